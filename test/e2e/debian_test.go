package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/qemu"
)

// installerDir is where Debian's package debian-installer-12-netboot-amd64 puts the installer for the network.
const installerDir = "/usr/lib/debian-installer/images/12/amd64/text/debian-installer/amd64"

// debianLab boots Debian's own installer.
const debianLab = `
version: 1
lab: e2e
domain: lab.test
appliance: {state: DIR/state, files: files, admin_socket: DIR/admin.sock, user: nobody}
networks:
  inner: {subnet: 10.77.0.0/24, interface: BRIDGE, address: 10.77.0.1}
profiles:
  bookworm:
    os: debian
    kernel: images/linux
    initrd: [images/initrd.gz]
    args: [console=ttyS0, DEBIAN_FRONTEND=text, no_timer_check]
    config: preseed.cfg
    install_to: /dev/vda
hosts:
  node: {mac: "52:54:00:77:00:21", ip: 10.77.0.21, profile: bookworm}
`

// withInstaller returns files with Debian's installer beside them.
func withInstaller(t *testing.T, files map[string]string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, body := range files {
		all[name] = body
	}
	for _, name := range []string{"linux", "initrd.gz"} {
		body, err := os.ReadFile(filepath.Join(installerDir, name))
		if err != nil {
			netns.Need(t, "debian-installer-12-netboot-amd64") // no program: skips, or fails where all is required
		}
		all["images/"+name] = string(body)
	}
	return all
}

// installerPatience bounds the time until the preseed file, which takes 80 seconds on an idle machine.
const installerPatience = 10 * time.Minute

// TestDebianInstaller boots Debian's installer until it has its preseed file. It must not ask a question, in a network without a router,
// on a machine whose first NIC has a link to nowhere.
func TestDebianInstaller(t *testing.T) {
	t.Parallel()
	netns.Need(t, qemu.Needs()...)
	r := newRig(t, debianLab, withInstaller(t, map[string]string{
		"preseed.cfg": "d-i preseed/early_command string echo; echo \"PRESEED {{.Host.Name}} runs as $(hostname) at $(ip -4 -o addr show scope global | tr -s ' ')\" >/dev/console; sleep 600\n",
	}))
	m := qemu.Start(t, qemu.Config{
		Bridge: r.seg.Bridge, MAC: nodeMAC, Firmware: qemu.BIOS, MemoryMiB: 1024, Disk: qemu.NewDisk(t, 4<<30),
		IdleCard: true,
	})
	line := m.Await(t, installerPatience, "PRESEED node runs as")
	t.Logf("preseed file after %.1fs", line.At.Seconds())
	if !strings.Contains(line.Text, "runs as node at") || !strings.Contains(line.Text, " 10.77.0.21/24 ") {
		t.Errorf("not the name or the address of the lab: %s", line.Text)
	}
	if n := m.Said("Prompt:"); n > 0 {
		t.Errorf("it asked %d questions before it had its preseed file", n)
	}
	r.awaitInstall(t, "installing")
	r.wantKinds(t, "node", event.DHCPAck, event.ScriptServed, event.FileServed, event.FileServed, event.DHCPAck, event.ConfigServed, event.InstallStarted)
	// It does not take our boot file for a preseed file, and reads its own once. Firmware and installer have one lease.
	for kind, want := range map[event.Kind]int{event.ScriptServed: 1, event.ConfigServed: 1, event.ConfigRefused: 0, event.FileMissing: 0} {
		if got := r.count(t, "node", kind); got != want {
			t.Errorf("%d times %s, want %d", got, kind, want)
		}
	}
	if leases := ask[[]api.Lease](t, r, "leases"); len(leases) != 1 || leases[0].MAC.String() != nodeMAC {
		t.Errorf("leases: %+v; want one, of %s", leases, nodeMAC)
	}
}
