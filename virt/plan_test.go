//go:build cgo && libvirt_dlopen

package virt_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/virt"
)

// wantPlan checks the condition of the only machine, and that its details have these parts.
func wantPlan(t *testing.T, b *testServer, want virt.Condition, parts ...string) {
	t.Helper()
	plan, err := b.Plan(t.Context(), nil)
	check(t, err)
	if len(plan) != 1 || plan[0].Condition != want {
		t.Fatalf("plan %+v, want %s", plan, want)
	}
	text := strings.Join(plan[0].Details, "\n")
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("details %q lack %q", text, part)
		}
	}
	if len(parts) == 0 && text != "" {
		t.Errorf("details %q, want none", text)
	}
}

// TestPlanAndApply takes a machine through every condition, with edits by virsh behind our back.
func TestPlanAndApply(t *testing.T) {
	d, on := startLibvirtd(t)
	seg := netns.NewSegment(t, "10.80.0.1/24")
	ctx := t.Context()
	with := func(change ...func(*lab.Host)) *lab.Lab {
		return oneHost(append([]func(*lab.Host){on, func(h *lab.Host) {
			h.VM.Hypervisor.Bridges[0].Bridge = seg.Bridge
			h.VM.Disks = append(h.VM.Disks, lab.Disk{Size: gib, Bus: "scsi", Cache: "unsafe"})
		}}, change...)...)
	}
	virsh := func(args ...string) { t.Helper(); netns.Run(t, "virsh", append([]string{"-c", d.URI}, args...)...) }
	b := newTestServer(t, with(), nil, virt.Config{})
	serve(t, b)
	wantPlan(t, b, virt.ConditionMissing)
	check(t, b.Apply(ctx, "master-0"))
	wantState(t, b, virt.StateRunning)
	wantPlan(t, b, virt.ConditionOK)
	check(t, b.Stop(ctx, "master-0", virt.StopForce, 0))
	wantPlan(t, b, virt.ConditionOK)
	b.wantEvents(t, event.VMCreated, event.VMStarted, event.VMStopped)

	for _, firmware := range []lab.Firmware{lab.FirmwareUEFI, lab.FirmwareUEFISecure} {
		b.use(t, with(func(h *lab.Host) { h.VM.Firmware = firmware }))
		wantPlan(t, b, virt.ConditionChanged, "lab file: "+string(firmware))
		check(t, b.Apply(ctx, "master-0"))
		wantPlan(t, b, virt.ConditionOK)
		b.wantEvents(t, event.VMChanged)
		check(t, b.Start(ctx, "master-0"))
		wantPlan(t, b, virt.ConditionOK)
		// What enrolls the keys of Secure Boot are the variables, which uefi has left behind without keys.
		vars, err := filepath.Glob(filepath.Join(filepath.Dir(d.Images), "lib/qemu/nvram/*"))
		check(t, err)
		if len(vars) != 1 {
			t.Fatalf("firmware variables: %v", vars)
		}
		text, err := os.ReadFile(vars[0])
		check(t, err)
		if has := bytes.Contains(text, []byte("Microsoft")); has != (firmware == lab.FirmwareUEFISecure) {
			t.Errorf("%s: firmware variables with keys: %v", firmware, has)
		}
		if firmware == lab.FirmwareUEFISecure {
			b.use(t, with())
			wantErr(t, b.Apply(ctx, "master-0"), "stop it first")
		}
		check(t, b.Stop(ctx, "master-0", virt.StopForce, 0))
		b.events.take()
	}
	check(t, b.Apply(ctx, "master-0"))
	wantPlan(t, b, virt.ConditionOK)

	virsh("setmaxmem", "master-0", "524288", "--config")
	virsh("attach-interface", "master-0", "bridge", seg.Bridge, "--mac", "52:54:00:aa:00:01", "--config")
	wantPlan(t, b, virt.ConditionDrifted, "memory: 512 MiB, lab file: 256 MiB", "interface 52:54:00:aa:00:01", "is not in the lab file")
	check(t, b.Start(ctx, "master-0"))
	check(t, b.Apply(ctx, "master-0"))
	wantPlan(t, b, virt.ConditionOK) // its next start has what the lab file says; it runs with more memory

	b.use(t, with(func(h *lab.Host) { h.VM.CPUs = 2 }))
	wantPlan(t, b, virt.ConditionChanged, "cpus: 1, lab file: 2", "it runs")
	check(t, b.Apply(ctx, "master-0"))
	wantPlan(t, b, virt.ConditionRestart, "it runs")
	check(t, b.Apply(ctx, "master-0"))
	check(t, b.Stop(ctx, "master-0", virt.StopForce, 0))
	wantPlan(t, b, virt.ConditionOK)

	gone := with()
	gone.Hosts = nil
	b.use(t, gone)
	wantPlan(t, b, virt.ConditionOrphaned, "bootlab vm delete master-0")
	check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))
	if plan, err := b.Plan(ctx, nil); err != nil || len(plan) != 0 {
		t.Errorf("plan without machines: %+v, %v", plan, err)
	}
}

// TestHardwareDoesNotDrift defines machines with all that a lab file may ask for on a real libvirtd, which writes its own details into
// their definitions.
func TestHardwareDoesNotDrift(t *testing.T) {
	netns.Need(t, "qemu-system-aarch64")
	_, change := startLibvirtd(t)
	b := newTestServer(t, oneHost(change), nil, virt.Config{})
	serve(t, b)
	for name, with := range map[string]func(*lab.Host){
		"aarch64": func(h *lab.Host) { h.VM.Arch, h.VM.Firmware, h.VM.Machine = lab.ArchARM64, lab.FirmwareUEFI, "virt" },
		"q35":     func(h *lab.Host) { h.VM.Video, h.VM.HugePages, h.VM.Shared = "none", 2<<20, true },
		"ovs": func(h *lab.Host) {
			h.VM.Hypervisor.Bridges[0] = lab.Attachment{Network: h.Network, OVS: "br-int", VLAN: 7}
		},
		"macvtap": func(h *lab.Host) {
			h.VM.Hypervisor.Bridges[0] = lab.Attachment{Network: h.Network, Macvtap: "eno1"}
		},
		"portgroup": func(h *lab.Host) {
			h.VM.Hypervisor.Bridges[0] = lab.Attachment{Network: h.Network, LibvirtNetwork: "lan", PortGroup: "blue"}
		},
	} {
		b.use(t, oneHost(change, with))
		if err := b.Create(t.Context(), "master-0"); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		plan, err := b.Plan(t.Context(), nil)
		check(t, err)
		if len(plan) != 1 || plan[0].Condition != virt.ConditionOK {
			t.Errorf("%s: plan %+v", name, plan)
		}
		check(t, b.Delete(t.Context(), "master-0", virt.DeleteDisks))
	}
}

// broken panics where a definition is read.
type broken struct{ *fake }

func (b broken) Open(string, func([]string)) virt.Hypervisor { return b }

func (b broken) XML(context.Context, string) (string, error) { panic("a bug") }

// TestPlanContainsAPanic: the plan runs on a goroutine of its own for each hypervisor, where a panic would end the daemon.
func TestPlanContainsAPanic(t *testing.T) {
	t.Parallel()
	b := newTestServer(t, oneHost(), broken{newFake()}, virt.Config{})
	check(t, b.Create(t.Context(), "master-0"))
	wantPlan(t, b, virt.ConditionUnknown, "a bug of bootlab")
}
