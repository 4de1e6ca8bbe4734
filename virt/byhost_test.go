package virt_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/virt"
)

// TestByHost: a host has one status, that of its machine where it is, whatever the order of the hypervisors in the lab file.
func TestByHost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*testing.T, *testServer, fakes, *lab.Lab)
		want   string // of a, which was created on kvm1 and runs
	}{
		{"as in the lab file", func(*testing.T, *testServer, fakes, *lab.Lab) {}, "kvm1 running"},
		{"on another hypervisor than in the lab file", func(t *testing.T, b *testServer, _ fakes, l *lab.Lab) { b.use(t, moved(l, "kvm2")) }, "kvm1 running"},
		{"on both", func(t *testing.T, b *testServer, f fakes, l *lab.Lab) {
			b.use(t, moved(l, "kvm2"))
			for uuid, d := range f["fake://kvm1"].domains { // as a migration by hand leaves it
				twin := *d
				twin.state = virt.StateOff
				f["fake://kvm2"].domains[uuid] = &twin
			}
		}, "kvm1 running"},
		{"its hypervisor is no longer in the lab file", func(t *testing.T, b *testServer, _ fakes, l *lab.Lab) {
			l = moved(l, "kvm2")
			l.Hypervisors = slices.DeleteFunc(l.Hypervisors, func(hv *lab.Hypervisor) bool { return hv.Name == "kvm1" })
			b.use(t, l)
		}, "kvm1 unknown"},
		{"on another hypervisor than in the lab file, which is down", func(t *testing.T, b *testServer, f fakes, l *lab.Lab) {
			b.use(t, moved(l, "kvm2"))
			f["fake://kvm1"].fail["list"] = errors.New("connection refused")
		}, "kvm1 unknown"},
		{"it was deleted", func(t *testing.T, b *testServer, _ fakes, l *lab.Lab) {
			check(t, b.Delete(t.Context(), "a", virt.DeleteDisks))
			b.use(t, moved(l, "kvm2"))
		}, "kvm2 absent"},
		{"its host is no longer in the lab file", func(t *testing.T, b *testServer, _ fakes, l *lab.Lab) {
			without := *l
			without.Hosts = nil
			b.use(t, &without)
		}, " "},
	} {
		for _, order := range []string{"kvm1 first", "kvm1 last"} {
			t.Run(tt.name+", "+order, func(t *testing.T) {
				t.Parallel()
				l := moved(openLab("a"), "kvm1")
				if order == "kvm1 last" {
					slices.Reverse(l.Hypervisors)
				}
				f := threeFakes()
				b := newTestServer(t, l, f, virt.Config{})
				check(t, b.CreateAndStart(t.Context(), "a"))
				b.List(t.Context()) // it was seen running
				tt.change(t, b, f, l)
				st := b.ByHost(t.Context())["a"]
				if got := fmt.Sprint(st.Hypervisor, " ", st.State); got != tt.want {
					t.Errorf("%q, want %q", got, tt.want)
				}
				if tt.want != " " && b.HypervisorOf("a") != st.Hypervisor && tt.want != "kvm1 unknown" {
					t.Errorf("its hypervisor is %q, and by host %q", b.HypervisorOf("a"), st.Hypervisor)
				}
			})
		}
	}
}

// TestPowerWhereTheMachineIs: once the lab file names another hypervisor, its power is switched on the one that has the machine, on
// which the other's networks are not created.
func TestPowerWhereTheMachineIs(t *testing.T) {
	t.Parallel()
	ctx, f, l := t.Context(), threeFakes(), moved(openLab("a"), "kvm1")
	b := newTestServer(t, l, f, virt.Config{})
	check(t, b.CreateAndStart(ctx, "a"))
	other := *l.Hypervisors[1]
	other.Bridges = []lab.Attachment{{Network: other.Bridges[0].Network, LibvirtNetwork: "lab-lan", Create: &lab.LibvirtNetwork{Forward: lab.ForwardNAT}}}
	*l.Hypervisors[1] = other
	b.use(t, moved(l, "kvm2"))
	kvm1 := f["fake://kvm1"]
	kvm1.takeCalls()
	check(t, b.Restart(ctx, "a"))
	wantCalls(t, kvm1, "destroy a", "start a")
	check(t, b.Stop(ctx, "a", virt.StopForce, 0))
	check(t, b.Start(ctx, "a"))
	check(t, b.Stop(ctx, "a", virt.StopForce, 0))
	check(t, b.Restart(ctx, "a"))
	wantCalls(t, kvm1, "destroy a", "start a", "destroy a", "start a")
	wantErr(t, b.Create(ctx, "a"), "it is running on hypervisor kvm1")
	wantErr(t, b.Apply(ctx, "a"), "it is running on hypervisor kvm1")
	wantCalls(t, f["fake://kvm2"])
}

// moved returns the lab with its machines on that hypervisor.
func moved(l *lab.Lab, to string) *lab.Lab {
	out := *l
	out.Hosts = nil
	for _, h := range l.Hosts {
		h, vm := *h, *h.VM
		vm.Candidates = nil
		vm.Hypervisor = l.Hypervisors[slices.IndexFunc(l.Hypervisors, func(hv *lab.Hypervisor) bool { return hv.Name == to })]
		h.VM = &vm
		out.Hosts = append(out.Hosts, &h)
	}
	return &out
}
