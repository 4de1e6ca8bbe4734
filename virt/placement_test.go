//go:build cgo && libvirt_dlopen

package virt_test

import (
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/virt"
)

// TestMovedMachine changes the hypervisor of a machine that runs: it is never created twice, whether its hypervisor answers, is
// down, or was taken out of the lab file, and it stays in the list.
func TestMovedMachine(t *testing.T) {
	d1, on1 := startLibvirtd(t)
	_, on2 := startLibvirtd(t)
	seg := netns.NewSegment(t, "10.79.0.1/24")
	ctx := t.Context()
	both := func(first bool, only ...string) *lab.Lab {
		l := oneHost(on1)
		h := l.Hosts[0]
		h.VM.Hypervisor.Name = "one"
		h.VM.Hypervisor.Bridges[0].Bridge = seg.Bridge
		two := *h.VM.Hypervisor
		other := oneHost(on2).Hypervisors[0]
		two.Name, two.URI = "two", other.URI
		l.Hypervisors = append(l.Hypervisors, &two)
		if !first {
			h.VM.Hypervisor = &two
		}
		if len(only) > 0 {
			l.Hypervisors = l.Hypervisors[1:]
		}
		return l
	}
	kept := &memory[virt.Placement]{byHost: map[string]virt.Placement{}}
	start := func(l *lab.Lab) *testServer {
		b := newTestServerWith(t, l, virt.Config{ListWait: 10 * time.Second}, virt.Deps{Placements: kept})
		serve(t, b)
		return b
	}
	b := start(both(true))
	check(t, b.Create(ctx, "master-0"))
	check(t, b.Start(ctx, "master-0"))

	b.use(t, both(false))
	wantErr(t, b.Create(ctx, "master-0"), "it is running on hypervisor one", "two machines must not have one MAC", "bootlab vm delete master-0")
	st := b.List(ctx)
	if len(st) != 2 || st[0].Hypervisor != "one" && st[1].Hypervisor != "one" {
		t.Errorf("list: %+v", st)
	}
	// It is down.
	check(t, d1.Freeze())
	wantErr(t, b.Create(ctx, "master-0"), "it is running on hypervisor one")
	// The daemon starts again: nothing has been asked yet.
	b = start(both(false))
	wantErr(t, b.Create(ctx, "master-0"), "it was running on hypervisor one", "bootlab vm forget master-0")
	// It is in the lab file no more.
	b.use(t, both(false, "two"))
	wantErr(t, b.Create(ctx, "master-0"), "it was running on hypervisor one")
	found := false
	for _, st := range b.List(ctx) {
		found = found || st.Hypervisor == "one" && st.State == virt.StateUnknown && st.Orphan && strings.Contains(st.Err, "the machine was running there")
	}
	if !found {
		t.Errorf("a machine of a hypervisor that was taken out is not listed: %+v", b.List(ctx))
	}
	// It is back: the machine is stopped and deleted where it is, and created on the other.
	check(t, d1.Thaw())
	b.use(t, both(false))
	netns.WaitFor(t, "hypervisor one", func() bool { b.List(ctx); return len(b.Unreachable()) == 0 })
	wantErr(t, b.Forget(ctx, "master-0"), "hypervisor one answers and has it")
	check(t, b.Stop(ctx, "master-0", virt.StopForce, 0))
	check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))
	check(t, b.Create(ctx, "master-0"))
	check(t, b.Start(ctx, "master-0"))
	if got := kept.byHost["master-0"].Hypervisor; got != "two" {
		t.Errorf("placement on %q, want two", got)
	}

	// Another host with its MAC, as after a host was renamed.
	renamed := both(false)
	renamed.Hosts[0].Name = "master-9"
	b.use(t, renamed)
	wantErr(t, b.Create(ctx, "master-9"), "VM master-0 on hypervisor two has its MAC 52:54:00:00:02:01", "bootlab vm delete master-0")
	check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))
	check(t, b.Create(ctx, "master-9"))
	check(t, b.Delete(ctx, "master-9", virt.DeleteDisks))
}

// TestChangesByVirsh has virsh define, start, stop and undefine a machine: the server sees it without asking for all of them.
func TestChangesByVirsh(t *testing.T) {
	d, on := startLibvirtd(t)
	seg := netns.NewSegment(t, "10.133.0.1/24")
	ctx := t.Context()
	kept := &memory[virt.Placement]{byHost: map[string]virt.Placement{}}
	l := oneHost(on, func(h *lab.Host) { h.VM.Hypervisor.Bridges[0].Bridge = seg.Bridge })
	b := newTestServerWith(t, l, virt.Config{Refresh: 24 * time.Hour}, virt.Deps{Placements: kept})
	serve(t, b)
	check(t, b.Create(ctx, "master-0"))
	seen := func(want virt.State) {
		t.Helper()
		netns.WaitFor(t, "state "+string(want), func() bool {
			kept.mu.Lock()
			defer kept.mu.Unlock()
			return kept.byHost["master-0"].State == want
		})
	}
	virsh := func(args ...string) { t.Helper(); netns.Run(t, "virsh", append([]string{"-c", d.URI}, args...)...) }
	seen(virt.StateOff)
	virsh("start", "master-0")
	seen(virt.StateRunning)
	virsh("suspend", "master-0")
	seen(virt.StatePaused)
	virsh("destroy", "master-0")
	seen(virt.StateOff)
	virsh("undefine", "master-0")
	seen("")
}
