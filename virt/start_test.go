//go:build cgo && libvirt_dlopen

package virt_test

import (
	"errors"
	"testing"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/virt"
)

// TestUnstarted takes a machine through the ways in which it is defined and does not run, over restarts of the daemon.
func TestUnstarted(t *testing.T) {
	ctx := t.Context()
	f := newFake()
	starts := &memory[virt.PendingStart]{byHost: map[string]virt.PendingStart{}}
	start := func() *testServer {
		return newTestServerWith(t, oneHost(), virt.Config{}, virt.Deps{Driver: f, Starts: starts})
	}
	off := func(b *testServer) { // by virsh, behind our back
		t.Helper()
		for _, d := range f.domains {
			d.state = virt.StateOff
		}
		wantState(t, b, virt.StateOff)
	}

	b := start()
	f.fail["start"] = errors.New("no memory")
	wantErr(t, b.Apply(ctx, "master-0"), "master-0 is defined, and does not start", "no memory")
	wantPlan(t, b, virt.ConditionUnstarted, "not started: its start at ", " failed: no memory", "bootlab vm apply starts it")
	b = start()
	wantPlan(t, b, virt.ConditionUnstarted, "failed: no memory")
	wantErr(t, b.Apply(ctx, "master-0"), "no memory")
	wantPlan(t, b, virt.ConditionUnstarted, "failed: no memory")
	delete(f.fail, "start")
	b.events.take()
	check(t, b.Apply(ctx, "master-0"))
	b.wantEvents(t, event.VMStarted)
	wantState(t, b, virt.StateRunning)
	wantPlan(t, b, virt.ConditionOK)

	off(b) // an admin wants it off
	wantPlan(t, b, virt.ConditionOK)
	f.takeCalls()
	check(t, b.Apply(ctx, "master-0"))
	wantCalls(t, f)
	check(t, b.Start(ctx, "master-0"))
	check(t, b.Stop(ctx, "master-0", virt.StopForce, 0))
	wantPlan(t, b, virt.ConditionOK)

	// A start that an admin asked for, and gave up.
	f.fail["start"] = errors.New("no memory")
	wantErr(t, b.Start(ctx, "master-0"), "no memory")
	wantPlan(t, b, virt.ConditionUnstarted, "failed: no memory")
	check(t, b.Stop(ctx, "master-0", virt.StopForce, 0))
	wantPlan(t, b, virt.ConditionOK)

	// One that virsh made good.
	wantErr(t, b.Restart(ctx, "master-0"), "no memory")
	wantPlan(t, b, virt.ConditionUnstarted, "failed: no memory")
	for _, d := range f.domains {
		d.state = virt.StateRunning
	}
	wantPlan(t, b, virt.ConditionOK)
	off(b)
	wantPlan(t, b, virt.ConditionOK)

	// A deleted one is missing, and nothing more.
	wantErr(t, b.Start(ctx, "master-0"), "no memory")
	check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))
	wantPlan(t, b, virt.ConditionMissing)
	if len(starts.byHost) > 0 {
		t.Errorf("starts of a machine that was deleted: %v", starts.byHost)
	}
	delete(f.fail, "start")

	// A daemon that ended between the definition and the start.
	for name, apply := range map[string]func(*testServer) error{
		"create": func(b *testServer) error { return b.CreateAndStart(ctx, "master-0") },
		"apply":  func(b *testServer) error { return b.Apply(ctx, "master-0") },
	} {
		f.left = 3 // the mark, the disk, the domain
		if err := apply(b); err == nil {
			t.Errorf("%s of a machine that does not start: no error", name)
		}
		f.silent, f.left = false, 0
		for host := range starts.byHost { // nobody noted that it failed
			starts.byHost[host] = virt.PendingStart{At: starts.byHost[host].At}
		}
		b = start()
		wantPlan(t, b, virt.ConditionUnstarted, "was interrupted; bootlab vm apply starts it")
		check(t, b.Apply(ctx, "master-0"))
		wantState(t, b, virt.StateRunning)
		wantPlan(t, b, virt.ConditionOK)
		check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))
	}
}

// TestMachineLargerThanItsHypervisor: libvirt would define it, and its emulator would fail when it starts.
func TestMachineLargerThanItsHypervisor(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.memory = 2 << 30
	b := newTestServer(t, oneHost(), f, virt.Config{}) // 4 GiB
	const why = "it wants 4096 MiB of memory, and hypervisor kvm1 has 2048 MiB in all"
	wantPlan(t, b, virt.ConditionMissing, why)
	wantErr(t, b.Create(t.Context(), "master-0"), why)
	wantErr(t, b.Apply(t.Context(), "master-0"), why)
	wantCalls(t, f)
}
