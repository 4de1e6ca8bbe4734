package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
)

// vmLab is bootLab with the machine as a virtual one.
func vmLab(uri, firmware string) string {
	return strings.NewReplacer(
		"vars: {word: sesame}}", "vars: {word: sesame}, vm: {hypervisor: here, cpus: 1, memory: 512MiB, disks: [1GiB], firmware: "+firmware+"}}",
		"clusters:", "hypervisors:\n  here: {uri: \""+uri+"\", bridges: {inner: BRIDGE}, domain_type: qemu}\nclusters:",
	).Replace(bootLab)
}

// TestVM creates a virtual machine through libvirt, waits until it has installed itself and is up from its disk, and deletes it.
func TestVM(t *testing.T) {
	t.Parallel()
	for _, firmware := range withLong([]string{"bios", "uefi-secure"}, "uefi") {
		t.Run(firmware, func(t *testing.T) {
			t.Parallel()
			netns.Need(t, libvirtd.Needs()...)
			netns.Enter(t)
			libvirt := startLibvirt(t)
			files := withGuest
			if firmware == "uefi-secure" { // its chain is shim and GRUB, by default
				files = withSignedGuest
			}
			r := newRigHere(t, vmLab(libvirt.URI, firmware), files(t, bootFiles))

			r.bootlab(t, "vm", "create", "node")
			r.follow(t, "node", patience, func(e event.Event) bool { return e.Kind == event.InstallDone })
			// Only the installed system, up from the disk, fetches the greeting.
			r.follow(t, "node", patience, func(e event.Event) bool {
				return e.Kind == event.FileServed && strings.HasSuffix(e.Detail, "greeting.txt")
			})
			r.wantKinds(t, "node", event.VMCreated, event.DHCPAck, event.ScriptServed, event.InstallStarted, event.InstallDone,
				event.InstallLocalBoot, event.FileServed)
			if h := r.host(t, "node"); h.VM != "running" || h.Install != "installed" {
				t.Errorf("after the install: VM %q, install %q; want running, installed", h.VM, h.Install)
			}
			if firmware == "bios" { // once is enough: it is the same for both
				again := ask[[]api.Arming](t, r, "install", "node", "--now", "--yes")
				if len(again) != 1 || !again[0].Cycled {
					t.Errorf("install --now: %+v", again)
				}
				r.follow(t, "node", patience, func(e event.Event) bool { return e.Kind == event.InstallDone })
			}
			r.bootlab(t, "vm", "delete", "node", "--disks", "--yes")
			if h := r.host(t, "node"); h.VM != "absent" {
				t.Errorf("after it was deleted: VM %q", h.VM)
			}
		})
	}
}

// TestVMHardware starts a 64-bit ARM machine and one with a TPM, and waits until each has its boot script.
func TestVMHardware(t *testing.T) {
	t.Parallel()
	if os.Getenv("BOOTLAB_LONG") == "" {
		t.Skip("BOOTLAB_LONG is not set: boots UEFI twice by emulation, with a TPM and as 64-bit ARM")
	}
	for name, tt := range map[string]struct {
		keys    string
		needs   []string
		monitor string // what QEMU says of the TPM
	}{
		"aarch64": {"uefi, arch: aarch64, tpm: true", []string{"qemu-system-aarch64", "swtpm", "swtpm_setup"}, "tpm-tis"},
		"tpm":     {"uefi, tpm: true", []string{"swtpm", "swtpm_setup"}, "tpm-crb"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			netns.Need(t, append(libvirtd.Needs(), tt.needs...)...)
			netns.Enter(t)
			libvirt := startLibvirt(t)
			r := newRigHere(t, vmLab(libvirt.URI, tt.keys), bootFiles)
			r.bootlab(t, "vm", "create", "node")
			r.follow(t, "node", patience, func(e event.Event) bool { return e.Kind == event.ScriptServed })
			tpm := netns.Run(t, "virsh", "-c", libvirt.URI, "qemu-monitor-command", "--hmp", "node", "info tpm")
			if !strings.Contains(tpm, "model="+tt.monitor) || !strings.Contains(tpm, "type=emulator") {
				t.Errorf("TPM: %s", tpm)
			}
			r.bootlab(t, "vm", "delete", "node", "--disks", "--yes")
		})
	}
}
