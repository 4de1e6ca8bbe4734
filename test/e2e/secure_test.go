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

// secureLab is bootLab with that chain, and a kernel that says on the console whether Secure Boot is enforced.
func secureLab(chain string) string {
	return strings.NewReplacer("profile: guest,", "profile: guest, chain: "+chain+",", "      - quiet\n", "").Replace(bootLab)
}

// withSignedGuest returns files and the guest's beside them, with a disk that starts under Secure Boot.
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

// TestSecureBoot installs a machine whose firmware enforces Secure Boot with Microsoft's keys: Debian's shim, GRUB and
// kernel come from the daemon, and the same GRUB starts shim on the disk once the machine is installed.
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
	// What shim and GRUB ask for and can do without is no news.
	r.wantNo(t, "node", event.TFTPRefused, event.TFTPFailed)
}

// TestSecureBootRefusesIPXE holds that the firmware of TestSecureBoot does enforce Secure Boot: it does not start a program
// that nobody has signed.
func TestSecureBootRefusesIPXE(t *testing.T) {
	t.Parallel()
	netns.Need(t, qemu.Needs()...)
	r := newRig(t, secureLab("ipxe"), bootFiles)
	m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: nodeMAC, Firmware: qemu.UEFISecure})
	m.Await(t, patience, "NBP filename is boot/52-54-00-77-00-21/ipxe.efi")
	m.Await(t, patience, "Access Denied")
	r.wantNo(t, "node", event.ScriptServed) // iPXE would have asked for it
}
