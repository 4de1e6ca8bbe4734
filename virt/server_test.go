package virt_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/virt"
)

const volume = "master-0-vda.qcow2"

func wantErr(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

func TestVMLifecycle(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newFake()
	b := newTestServer(t, oneHost(), f, virt.Config{})
	wantErr(t, b.Start(ctx, "master-0"), "start VM master-0 on hypervisor kvm1", "create it first")
	b.wantEvents(t)

	check(t, b.Create(ctx, "master-0"))
	wantCalls(t, f, "create-volume "+volume, "define master-0")
	b.wantEvents(t, event.VMCreated)
	check(t, b.Create(ctx, "master-0"))
	check(t, b.Start(ctx, "master-0"))
	check(t, b.Start(ctx, "master-0"))
	wantCalls(t, f, "start master-0")
	b.wantEvents(t, event.VMStarted)

	check(t, b.Restart(ctx, "master-0"))
	wantCalls(t, f, "destroy master-0", "start master-0")
	check(t, b.Stop(ctx, "master-0", virt.StopShutdown, 0))
	check(t, b.Stop(ctx, "master-0", virt.StopForce, 0))
	wantCalls(t, f, "shutdown master-0")
	check(t, b.Start(ctx, "master-0"))
	f.ignore = true
	check(t, b.Stop(ctx, "master-0", virt.StopRequest, 0)) // it does not wait
	f.ignore = false
	check(t, b.Stop(ctx, "master-0", virt.StopForce, 0))
	wantCalls(t, f, "start master-0", "shutdown master-0", "destroy master-0")
	b.wantEvents(t, event.VMStarted, event.VMStopped, event.VMStarted, event.VMStopped)
	check(t, b.Start(ctx, "master-0"))
	check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))
	wantCalls(t, f, "start master-0", "destroy master-0", "undefine master-0", "delete-volume "+volume)
	b.wantEvents(t, event.VMStarted, event.VMDeleted)
	if err := b.Delete(ctx, "master-0", virt.DeleteDisks); !errors.Is(err, virt.ErrAbsent) {
		t.Errorf("second delete: %v, want ErrAbsent", err)
	}
}

func TestCreateRedefinesAChangedDomain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newFake()
	b := newTestServer(t, oneHost(), f, virt.Config{})
	check(t, b.Create(ctx, "master-0"))
	check(t, b.Start(ctx, "master-0"))
	f.takeCalls()

	bigger := func(h *lab.Host) {
		h.VM.CPUs = 16
		h.VM.Disks = append(h.VM.Disks, lab.Disk{Size: gib})
	}
	b.use(t, oneHost(bigger))
	wantErr(t, b.Create(ctx, "master-0"), "running", "stop it, then create it again")
	wantCalls(t, f)
	if st := b.List(ctx); !st[0].Changed {
		t.Error("List does not show that the lab file has changed")
	}
	check(t, b.Stop(ctx, "master-0", virt.StopForce, 0))
	check(t, b.Create(ctx, "master-0"))
	wantCalls(t, f, "destroy master-0", "create-volume master-0-vdb.qcow2", "define master-0")
	if st := b.List(ctx); st[0].Changed {
		t.Error("List still shows a change")
	}
}

func TestDomainsAndVolumesOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	const other = "00000000-0000-4000-8000-000000000001"
	theirs := `<domain type="kvm"><name>master-0</name><uuid>` + other + `</uuid></domain>`
	t.Run("domain", func(t *testing.T) {
		t.Parallel()
		f := newFake()
		f.domains[other] = &fakeDomain{name: "master-0", xml: theirs, state: virt.StateRunning}
		b := newTestServer(t, oneHost(), f, virt.Config{})
		for name, do := range map[string]func() error{
			"create": func() error { return b.Create(t.Context(), "master-0") },
			"start":  func() error { return b.Start(t.Context(), "master-0") },
			"stop":   func() error { return b.Stop(t.Context(), "master-0", virt.StopForce, 0) },
			"delete": func() error { return b.Delete(t.Context(), "master-0", virt.DeleteDisks) },
		} {
			wantErr(t, do(), name, other, `not created from lab "telco"`, "rename")
		}
		wantCalls(t, f)
	})
	t.Run("volume", func(t *testing.T) {
		t.Parallel()
		f := newFake()
		f.volumes[volume] = true
		b := newTestServer(t, oneHost(), f, virt.Config{})
		wantErr(t, b.Create(t.Context(), "master-0"), volume, "virsh vol-delete --pool default "+volume)
		wantCalls(t, f)
	})
}

func TestFailedCreateDeletesItsVolumes(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.fail["define"] = errors.New("unsupported configuration")
	b := newTestServer(t, oneHost(), f, virt.Config{})
	wantErr(t, b.Create(t.Context(), "master-0"), "unsupported configuration")
	wantCalls(t, f, "create-volume "+volume, "define master-0", "delete-volume "+volume)
	b.wantEvents(t, event.VMFailed)
}

func TestDeleteKeepsOtherVolumes(t *testing.T) {
	t.Parallel()
	f := newFake()
	b := newTestServer(t, oneHost(), f, virt.Config{})
	check(t, b.Create(t.Context(), "master-0"))
	for _, d := range f.domains { // an admin attached disks: one outside the pool, one of another host
		d.xml = strings.Replace(d.xml, "<interface", `<disk type="file"><source file="/data/master-0-vdb.qcow2"/><target dev="vdb"/></disk>`+
			`<disk type="file"><source file="/pool/worker-0-vdc.qcow2"/><target dev="vdc"/></disk><interface`, 1)
	}
	f.volumes["worker-0-vdc.qcow2"], f.volumes["master-0-vdb.qcow2"] = true, true
	f.takeCalls()
	check(t, b.Delete(t.Context(), "master-0", virt.DeleteDisks))
	wantCalls(t, f, "undefine master-0", "delete-volume "+volume)
}

func TestOrphansAreListedAndDeleted(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newFake()
	b := newTestServer(t, oneHost(), f, virt.Config{})
	check(t, b.Create(ctx, "master-0"))
	b.use(t, oneHost(func(h *lab.Host) { h.Name = "worker-0" }))
	want := []virt.Status{
		{Host: "master-0", Hypervisor: "kvm1", State: virt.StateOff, Orphan: true},
		{Host: "worker-0", Hypervisor: "kvm1", State: virt.StateAbsent},
	}
	if diff := cmp.Diff(want, b.List(ctx), cmpopts.IgnoreFields(virt.Status{}, "UUID", "At")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	f.takeCalls()
	check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))
	wantCalls(t, f, "undefine master-0", "delete-volume "+volume)
	wantErr(t, b.Delete(ctx, "master-0", virt.DeleteDisks), `host "master-0" is no virtual machine of the lab, and no hypervisor has a VM of this name`)
	wantErr(t, b.Create(ctx, "worker-9"), `host "worker-9" is not a virtual machine`)
}

func TestShutdownTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.ignore = true
		b := newTestServer(t, oneHost(), f, virt.Config{ShutdownWait: 30 * time.Second})
		check(t, b.Create(t.Context(), "master-0"))
		check(t, b.Start(t.Context(), "master-0"))
		before := time.Now()
		wantErr(t, b.Stop(t.Context(), "master-0", virt.StopShutdown, 0), "did not shut down within 30s", "force it off")
		if waited := time.Since(before); waited != 30*time.Second {
			t.Errorf("waited %s", waited)
		}
	})
}

func TestHypervisorHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.hang = make(chan struct{})
		b := newTestServer(t, oneHost(), f, virt.Config{Timeout: 10 * time.Second})
		before := time.Now()
		wantErr(t, b.Create(t.Context(), "master-0"), "no answer")
		if waited := time.Since(before); waited != 10*time.Second {
			t.Errorf("create waited %s, want 10s", waited)
		}
		// It is known to be down now: nobody waits.
		before = time.Now()
		st := b.List(t.Context())
		if waited := time.Since(before); waited != 0 {
			t.Errorf("list waited %s for a hypervisor that is down", waited)
		}
		if len(st) != 1 || st[0].State != virt.StateUnknown || !strings.Contains(st[0].Err, "no answer") {
			t.Errorf("list: %+v", st)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		check(t, b.Serve(ctx))
		wantErr(t, b.Start(t.Context(), "master-0"), "the daemon is stopping")
		wantCalls(t, f) // the abandoned create changed nothing
	})
}

func TestSecondOperationOnAHostIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.hang = make(chan struct{})
		b := newTestServer(t, oneHost(), f, virt.Config{})
		first := make(chan error)
		go func() { first <- b.Create(t.Context(), "master-0") }()
		synctest.Wait()
		wantErr(t, b.Delete(t.Context(), "master-0", virt.DeleteDisks), `"create" is in progress`)
		close(f.hang)
		check(t, <-first)
	})
}

// TestStopInterrupted: who asked for a stop goes away while the machine ignores the request. It is not forced off, and nothing has failed.
func TestStopInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.ignore = true
		b := newTestServer(t, oneHost(), f, virt.Config{})
		check(t, b.Create(t.Context(), "master-0"))
		check(t, b.Start(t.Context(), "master-0"))
		b.events.take()
		f.takeCalls()
		ctx, leave := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() { stopped <- b.Stop(ctx, "master-0", virt.StopThenForce, time.Hour) }()
		time.Sleep(time.Minute)
		leave()
		err := <-stopped
		wantErr(t, err, "it was asked to shut down, and nobody waits for it any more")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v is not context.Canceled", err)
		}
		wantCalls(t, f, "shutdown master-0")
		b.wantEvents(t)
		wantState(t, b, virt.StateRunning)
	})
}

func TestHints(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, err, hint string }{
		{"group", "Failed to connect socket to '/var/run/libvirt/libvirt-sock': Permission denied", "usermod -aG libvirt bootlab"},
		{"polkit", "authentication unavailable: no polkit agent available to authenticate action 'org.libvirt.unix.manage'", "usermod -aG libvirt bootlab"},
		{"not running", "Failed to connect socket to '/var/run/libvirt/libvirt-sock': No such file or directory", "systemctl start libvirtd"},
		{"no virtqemud", "Failed to connect socket to '/run/libvirt/virtqemud-sock': Connection refused", "start virtqemud on the hypervisor (systemctl start virtqemud.socket), or correct the socket in hypervisors.kvm1.uri"},
		{"no virtlogd", "Failed to connect socket to '/run/libvirt/virtlogd-sock': No such file or directory", "No such file or directory: start virtlogd on the hypervisor (systemctl start virtlogd.socket)"},
		{"ssh key", "Cannot recv data: Permission denied (publickey).: Connection reset by peer", "log in with \"ssh\" without a password"},
		{"bridge", "Cannot get interface MTU on 'br0': No such device", "hypervisors.kvm1.bridges"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			f.fail["dial"] = errors.New(tt.err)
			b := newTestServer(t, oneHost(), f, virt.Config{})
			wantErr(t, b.Start(t.Context(), "master-0"), tt.err, tt.hint)
		})
	}
}

// TestApplySaysThatAMachineDoesNotStart: it is created all the same.
func TestApplySaysThatAMachineDoesNotStart(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.fail["start"] = errors.New("Failed to connect socket to '/run/libvirt/virtlogd-sock': No such file or directory")
	b := newTestServer(t, oneHost(), f, virt.Config{})
	wantErr(t, b.Apply(t.Context(), "master-0"), "master-0 is defined, and does not start (bootlab vm apply master-0 tries again): start VM master-0 on hypervisor kvm1: Failed to connect",
		"(systemctl start virtlogd.socket)")
	if st := b.List(t.Context())[0]; st.State != virt.StateOff {
		t.Errorf("%+v, want off", st)
	}
}

func TestNewPanicsOnNilDeps(t *testing.T) {
	t.Parallel()
	defer func() {
		if r := recover(); r != "virt: Deps.Table is nil" {
			t.Errorf("panic %v", r)
		}
	}()
	_, _ = virt.New(virt.Config{}, virt.Deps{})
}

// TestListDoesNotWait lists machines while one of two hypervisors is silent.
func TestListDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		b := newTestServer(t, oneHost(), f, virt.Config{ListWait: time.Second})
		b.wantHypervisors(t, 0, 0, 1)
		check(t, b.Create(t.Context(), "master-0"))
		list := func(wait time.Duration, state virt.State, parts ...string) virt.Status {
			t.Helper()
			before := time.Now()
			st := b.List(t.Context())[0]
			if waited := time.Since(before); waited != wait || st.State != state {
				t.Errorf("%s after %s, want %s after %s", st.State, waited, state, wait)
			}
			for _, p := range parts {
				if !strings.Contains(st.Err, p) {
					t.Errorf("error %q does not say %q", st.Err, p)
				}
			}
			return st
		}
		answered := list(0, virt.StateOff).At
		b.wantHypervisors(t, 1, 0, 0)
		f.mu.Lock()
		hang := make(chan struct{})
		f.hang = hang
		f.mu.Unlock()
		time.Sleep(time.Minute)
		if st := list(time.Second, virt.StateOff); st.At != answered {
			t.Errorf("state of %s, want that of the last answer, %s", st.At, answered)
		}
		time.Sleep(10 * time.Second) // the deadline of a refresh
		down := list(0, virt.StateUnknown, "hypervisor kvm1 is down since "+time.Now().Add(-time.Second).Format(time.DateTime), "no answer").Down
		if len(b.Unreachable()) != 1 {
			t.Errorf("unreachable: %v", b.Unreachable())
		}
		b.wantHypervisors(t, 0, 1, 0)
		time.Sleep(5 * time.Second)
		if st := list(0, virt.StateUnknown); st.Down != down {
			t.Errorf("down since %s, want %s", st.Down, down)
		}
		f.mu.Lock()
		f.hang = nil
		f.mu.Unlock()
		close(hang)
		synctest.Wait()
		if st := list(0, virt.StateOff); !st.Down.IsZero() || len(b.Unreachable()) > 0 {
			t.Errorf("after it answered: %+v, unreachable %v", st, b.Unreachable())
		}
	})
}

// TestKilledCreate ends a daemon after each of the calls of a create: another create succeeds, and so does a delete, which leaves
// nothing.
func TestKilledCreate(t *testing.T) {
	t.Parallel()
	l := func() *lab.Lab { return oneHost(fromImage) }
	for _, then := range []string{"create", "delete"} {
		for calls := 1; ; calls++ {
			f := newFake()
			server := func() *testServer {
				return newTestServerOf(t, &images{file: fstest.MapFS{"images/base.qcow2": {Data: qcow2(1 << 30)}}, config: ignition}, l(), virt.Config{}, virt.Deps{Driver: f})
			}
			f.left = calls
			err := server().Create(t.Context(), "master-0")
			if err == nil && !f.silent {
				if calls < 5 {
					t.Errorf("a create makes %d calls that change something", calls)
				}
				break
			}
			f.left, f.silent = 0, false
			b := server()
			if then == "create" {
				if err := b.Create(t.Context(), "master-0"); err != nil {
					t.Errorf("create after one that ended at call %d: %v", calls, err)
				}
				if err := b.Start(t.Context(), "master-0"); err != nil {
					t.Errorf("start after a create that ended at call %d: %v", calls, err)
				}
			}
			if err := b.Delete(t.Context(), "master-0", virt.DeleteDisks); err != nil && !errors.Is(err, virt.ErrAbsent) {
				t.Errorf("delete after a create that ended at call %d: %v", calls, err)
			}
			for name := range f.volumes {
				if strings.HasPrefix(name, "master-0") {
					t.Errorf("%s after a create that ended at call %d: volume %s is left", then, calls, name)
				}
			}
		}
	}
}
