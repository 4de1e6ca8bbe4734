package e2e

import (
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
	for _, firmware := range []string{"bios", "uefi", "uefi-secure"} {
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
