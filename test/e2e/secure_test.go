package e2e

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/guest"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/qemu"
)

// secureLab is bootLab with that chain, and a kernel that prints whether Secure Boot is enforced.
func secureLab(chain string) string {
	return strings.NewReplacer("profile: guest,", "profile: guest, chain: "+chain+",", "      - quiet\n", "").Replace(bootLab)
}

// withSignedGuest returns files and those of the guest, with a disk that boots under Secure Boot.
func withSignedGuest(t testing.TB, files map[string]string) map[string]string {
	t.Helper()
	netns.Need(t, guest.SignedNeeds()...)
	all := maps.Clone(withGuest(t, files))
	g, err := guest.Build(t.Context(), guest.CacheDir())
	if err != nil {
		t.Fatal(err)
	}
	disk, err := guest.SignedDisk(t.Context(), g, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(disk)
	if err != nil {
		t.Fatal(err)
	}
	all["public/disk.img"] = string(body)
	return all
}

// TestSecureBoot installs a machine whose firmware enforces Secure Boot with Microsoft's keys: it loads Debian's shim, GRUB and kernel from
// the daemon, and once it is installed the same GRUB starts the shim on its disk.
func TestSecureBoot(t *testing.T) {
	t.Parallel()
	netns.Need(t, qemu.Needs()...)
	r := newRig(t, secureLab("grub"), withSignedGuest(t, bootFiles))
	m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: nodeMAC, Firmware: qemu.UEFISecure, Disk: qemu.NewDisk(t, 1<<30)})
	m.Await(t, patience, "bootlab: node boots guest")
	m.Await(t, patience, "Secure boot enabled")
	m.Await(t, patience, "GUEST kernel")
	done := m.Await(t, patience, "GUEST install done")
	m.Await(t, patience, "bootlab: node is installed")
	awaitInstalled(t, m)
	if n := m.Said("GUEST writing"); n != 1 {
		t.Errorf("%d installations, want 1", n)
	}
	up := m.Lines()[len(m.Lines())-1]
	t.Logf("from power-on: install done %.1fs, up from disk %.1fs", done.At.Seconds(), up.At.Seconds())
	r.wantKinds(t, "node", event.DHCPAck, event.TFTPServed, event.TFTPServed, event.ScriptServed, event.TFTPServed, event.TFTPServed,
		event.InstallStarted, event.InstallDone, event.InstallLocalBoot, event.DHCPAck)
	// Optional files that shim and GRUB request are not reported.
	r.wantNo(t, "node", event.TFTPRefused, event.TFTPFailed)
}

// TestSecureBootRefusesIPXE: the firmware of TestSecureBoot enforces Secure Boot, and does not start an unsigned program.
func TestSecureBootRefusesIPXE(t *testing.T) {
	t.Parallel()
	netns.Need(t, qemu.Needs()...)
	r := newRig(t, secureLab("ipxe"), bootFiles)
	m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: nodeMAC, Firmware: qemu.UEFISecure})
	m.Await(t, patience, "NBP filename is boot/52-54-00-77-00-21/ipxe.efi")
	m.Await(t, patience, "Access Denied")
	r.wantNo(t, "node", event.ScriptServed) // iPXE would have asked for it
}
