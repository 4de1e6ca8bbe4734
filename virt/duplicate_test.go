package virt_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/virt"
)

// TestPlanShowsDuplicates: a machine that is on two hypervisors, and one whose MAC a running domain of others has.
func TestPlanShowsDuplicates(t *testing.T) {
	t.Parallel()
	f := threeFakes()
	l := openLab("a", "b", "c")
	for i, h := range l.Hosts {
		h.VM.Hypervisor, h.VM.Candidates = l.Hypervisors[i], nil
	}
	l.Hosts[2].NICs = []lab.NIC{{Network: l.Hosts[2].Network, MAC: lab.MAC{0x52, 0x54, 0, 8, 0, 0xab}}}
	b := newTestServer(t, l, f, virt.Config{})
	for _, h := range l.Hosts {
		check(t, b.Create(t.Context(), h.Name))
	}
	further := l.Hosts[2].NICs[0].MAC
	kvm1, kvm2 := f["fake://kvm1"], f["fake://kvm2"]
	for uuid, d := range kvm1.domains { // as a migration by hand leaves it
		twin := *d
		kvm2.domains[uuid] = &twin
	}
	for _, theirs := range []struct {
		mac   lab.MAC
		state virt.State
	}{{l.Hosts[2].MACs[0], virt.StateRunning}, {l.Hosts[2].MACs[0], virt.StateOff}, {further, virt.StateRunning}, {further, virt.StateOff}} {
		text := `<domain><name>theirs</name><devices><interface type="bridge"><mac address="` + theirs.mac.String() + `"/></interface></devices></domain>`
		kvm1.domains["theirs"] = &fakeDomain{name: "theirs", xml: text, state: theirs.state}
		plan, err := b.Plan(t.Context(), nil)
		check(t, err)
		got := map[string]string{}
		for _, p := range plan {
			got[p.Host+" on "+p.Hypervisor] = string(p.Condition) + " " + strings.Join(p.Details, "; ")
		}
		c := "duplicated domain \"theirs\" on hypervisor kvm1, which is running, has its MAC " + theirs.mac.String()
		if theirs.state == virt.StateOff {
			c = "ok"
		}
		for machine, want := range map[string]string{
			"a on kvm1": "duplicated it is defined, but off, on hypervisor kvm2, and two machines must not have one MAC", "a on kvm2": "orphaned", "b on kvm2": "ok", "c on kvm3": c,
		} {
			if !strings.HasPrefix(got[machine], want) {
				t.Errorf("theirs has %s and is %s: %s: %q, want %q", theirs.mac, theirs.state, machine, got[machine], want)
			}
		}
		err = b.Start(t.Context(), "c")
		if theirs.state == virt.StateOff {
			check(t, err)
			check(t, b.Stop(t.Context(), "c", virt.StopForce, 0))
		} else {
			wantErr(t, err, "has its MAC "+theirs.mac.String())
			wantErr(t, b.Restart(t.Context(), "c"), "has its MAC "+theirs.mac.String()) // it is off
		}
	}
	wantErr(t, b.Start(t.Context(), "a"), "it is defined, but off, on hypervisor kvm2")
}

// An exiting hypervisor has machines that go off by themselves just before they are forced off.
type exiting struct{ *fake }

func (e exiting) Open(string, func([]string)) virt.Hypervisor { return e }

func (e exiting) Destroy(ctx context.Context, uuid string) error {
	return errors.Join(e.fake.Destroy(ctx, uuid), errors.New("domain is not running"))
}

// TestStopOfAMachineThatExits: a machine that went off by itself is off, and that is no failure.
func TestStopOfAMachineThatExits(t *testing.T) {
	t.Parallel()
	f := newFake()
	b := newTestServer(t, oneHost(), exiting{f}, virt.Config{})
	check(t, b.Create(t.Context(), "master-0"))
	check(t, b.Start(t.Context(), "master-0"))
	check(t, b.Stop(t.Context(), "master-0", virt.StopForce, 0))
	check(t, b.Start(t.Context(), "master-0"))
	check(t, b.Delete(t.Context(), "master-0", virt.DeleteDisks))
}
