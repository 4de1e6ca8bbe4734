package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
)

// TestAnErrorOfAHypervisorIsSaidOnce: whatever is printed of machines of a hypervisor that does not answer has libvirt's text once, below
// the table, and the table fits a terminal.
func TestAnErrorOfAHypervisorIsSaidOnce(t *testing.T) {
	t.Parallel()
	const down = "hypervisor kvm1 is down since 2026-11-23 14:20:46: connect to qemu:///system: Failed to connect socket to '/var/run/libvirt/libvirt-sock': " +
		"No such file or directory: start libvirt on the hypervisor (systemctl start libvirtd), or correct the socket in hypervisors.kvm1.uri"
	const gib = 1 << 30
	pool := []api.StoragePool{{Name: "default", Active: true, Capacity: 100 * gib, Free: 40 * gib}}
	for name, text := range map[string]func(*cobra.Command) error{
		"vm list": func(cmd *cobra.Command) error {
			return vmsText(cmd, []api.VM{{Host: "m1", Hypervisor: "kvm1", State: "unknown", Err: down}, {Host: "m2", Hypervisor: "kvm1", State: "unknown", Err: down}})
		},
		"vm plan": func(cmd *cobra.Command) error {
			return vmPlanText(cmd, []api.VMPlan{
				{Host: "m1", Hypervisor: "kvm1", State: "unknown", Condition: "unknown", Details: []string{down}},
				{Host: "m2", Hypervisor: "kvm1", State: "unknown", Condition: "unknown", Details: []string{down}},
				{Network: "lan", Hypervisor: "kvm1", State: "unknown", Condition: "unknown", Details: []string{down}},
			})
		},
		"vm capacity": func(cmd *cobra.Command) error {
			return capacityText(cmd, []api.Hypervisor{{Name: "kvm1", VMs: 2, Allocated: gib, Err: down},
				{Name: "kvm2", CPUs: 128, Memory: 1024 * gib, Free: 1000 * gib, Allocated: 24 * gib, Others: 8 * gib, Pools: pool, VMs: 12, Running: 12}})
		},
		"why": func(cmd *cobra.Command) error {
			d := api.Diagnosis{Host: "m1", State: "unknown", Stage: "machine", Since: time.Now(), Cause: "its hypervisor does not answer", Facts: []string{down}}
			other := d
			other.Host = "m2"
			return whyText(cmd, []api.Diagnosis{d, other})
		},
	} {
		var out bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetOut(&out)
		if err := text(cmd); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), "Failed to connect socket"); n != 1 {
			t.Errorf("%s: libvirt's error is there %d times, want once:\n%s", name, n, out.String())
		}
		if n := strings.Count(out.String(), "m2"); name != "vm capacity" && n == 0 {
			t.Errorf("%s: it does not say which machines:\n%s", name, out.String())
		}
		for line := range strings.Lines(out.String()) {
			if len(line) > 101 && !strings.Contains(line, down) {
				t.Errorf("%s: a row has %d columns:\n%s", name, len(line), line)
			}
		}
	}
}

// TestUnreached: what apply could not do for a hypervisor that does not answer is one line, without the reason that the table has.
func TestUnreached(t *testing.T) {
	t.Parallel()
	err := unreached([]api.VMPlan{
		{Host: "m1", Hypervisor: "kvm1", Condition: "unknown", Details: []string{"no route"}},
		{Host: "m2", Hypervisor: "kvm1", Condition: "unknown", Details: []string{"no route"}},
		{Network: "lan", Hypervisor: "kvm1", Condition: "unknown", Details: []string{"no route"}},
		{Host: "m3", Condition: "unknown", Details: []string{"hypervisor kvm1 may have it"}},
		{Host: "m4", Hypervisor: "kvm2", Condition: "duplicated", Details: []string{"it is on kvm3 too"}},
		{Host: "m5", Hypervisor: "kvm2", Condition: "ok"},
	})
	if want := "unknown on kvm1: m1, m2, network lan\nunknown, and on no hypervisor yet: m3\nduplicated on kvm2: m4"; err == nil || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
}
