package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/qemu"
)

const nodeMAC = "52:54:00:77:00:21"

// bootLab has one machine that installs itself once, and a cluster around it. Its kernel takes the timer for good: on an emulated
// machine that gets no turn while the kernel counts ticks, it would panic (IO-APIC + timer doesn't work).
const bootLab = `
version: 1
lab: e2e
domain: lab.test
appliance: {state: DIR/state, files: files, admin_socket: DIR/admin.sock, user: nobody}
networks:
  inner:
    subnet: 10.77.0.0/24
    interface: BRIDGE
    address: 10.77.0.1
    router: 10.77.0.254
    search: [prod.lab.test, lab.test]
    ntp: [10.77.0.1]
    mtu: 1400
    routes: [{to: 10.9.0.0/24, via: 10.77.0.9}]
profiles:
  guest:
    kernel: images/vmlinuz
    initrd: [images/initrd.img]
    args:
      - console=ttyS0
      - quiet
      - no_timer_check
      - bootlab.config={{.ConfigURL}}
      - bootlab.done={{.DoneURL}}
      - bootlab.image={{.FilesURL}}/public/disk.img
    config: config/guest.conf
    install_to: /dev/vda
    install: once
clusters:
  prod: {kind: openshift, domain: lab.test}
hosts:
  node: {mac: "52:54:00:77:00:21", ip: 10.77.0.21, cluster: prod, role: worker, profile: guest, vars: {word: sesame}}
`

var bootFiles = map[string]string{
	"config/guest.conf": `disk={{.Profile.InstallTo}}
names=node.prod.lab.test
message={{.Host.Name}}-{{.Host.Vars.word}}
check={{.FilesURL}}/public/greeting.txt
`,
	"public/greeting.txt": "served by bootlab\n",
}

// patience bounds each step of a machine. Emulation takes seconds; a busy machine takes more.
const patience = 5 * time.Minute

// awaitLease holds that the guest got all that the lab file says about its network.
func awaitLease(t *testing.T, m *qemu.Machine) {
	t.Helper()
	line := m.Await(t, patience, "GUEST lease").Text
	for _, want := range []string{
		"ip=10.77.0.21/24 ", "router=10.77.0.254 ", "10.9.0.0/24 10.77.0.9", "0.0.0.0/0 10.77.0.254", "dns='10.77.0.1'",
		"search='prod.lab.test lab.test'", "hostname=node", "ntp='10.77.0.1'", "mtu=1400 ", "server=10.77.0.1",
	} {
		if !strings.Contains(line, want) {
			t.Errorf("the lease lacks %q: %s", want, line)
		}
	}
}

// awaitInstalled holds that the installed system comes up from the disk, with what its document said.
func awaitInstalled(t *testing.T, m *qemu.Machine) {
	t.Helper()
	m.Await(t, patience, "GUEST installed system booted from disk")
	awaitLease(t, m)
	m.Await(t, patience, "GUEST name node.prod.lab.test = 10.77.0.21")
	m.Await(t, patience, "GUEST message node-sesame")
	m.Await(t, patience, "GUEST check served by bootlab")
	m.Await(t, patience, "GUEST installed system up")
}

// TestInstall lets machines of every firmware find their address, firmware, script, kernel and document, install
// themselves, and boot from their disk: that time and the next.
func TestInstall(t *testing.T) {
	tests := []struct {
		firmware qemu.Firmware
		program  []event.Kind // how its network boot program is told of
	}{
		{qemu.BIOS, nil}, // its ROM is iPXE already
		{qemu.BIOSPlain, []event.Kind{event.TFTPServed}},
		{qemu.UEFIPXE, []event.Kind{event.TFTPServed}},
		{qemu.UEFIHTTP, []event.Kind{event.FirmwareServed}},
	}
	for _, tt := range tests {
		t.Run(string(tt.firmware), func(t *testing.T) {
			netns.Need(t, qemu.Needs()...)
			r := newRig(t, bootLab, withGuest(t, bootFiles))
			m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: nodeMAC, Firmware: tt.firmware, Disk: qemu.NewDisk(t, 1<<30)})

			m.Await(t, patience, "GUEST kernel")
			awaitLease(t, m)
			m.Await(t, patience, "GUEST name node.prod.lab.test = 10.77.0.21")
			m.Await(t, patience, "GUEST message node-sesame")
			done := m.Await(t, patience, "GUEST install done")
			if got := r.host(t, "node").Install; got != "installed" {
				t.Errorf("install state %q after the installer said that it is done", got)
			}
			awaitInstalled(t, m)
			up := m.Lines()[len(m.Lines())-1]
			m.Reset(t)
			awaitInstalled(t, m)
			again := m.Lines()[len(m.Lines())-1]

			if n := m.Said("GUEST writing"); n != 1 {
				t.Errorf("%d installations, want 1", n)
			}
			kinds := append([]event.Kind{event.DHCPAck}, tt.program...)
			kinds = append(kinds, event.ScriptServed, event.FileServed, event.FileServed, event.InstallStarted, event.FileServed,
				event.InstallDone, event.InstallLocalBoot, event.DHCPAck)
			r.wantKinds(t, "node", kinds...)
			t.Logf("from power-on: install done %.1fs, up from disk %.1fs; reset to up %.1fs",
				done.At.Seconds(), up.At.Seconds(), (again.At - up.At).Seconds())
		})
	}
}

// TestInstallAgain holds that a machine installs itself again when, and only when, it is told to.
func TestInstallAgain(t *testing.T) {
	netns.Need(t, qemu.Needs()...)
	r := newRig(t, bootLab, withGuest(t, bootFiles))
	m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: nodeMAC, Firmware: qemu.BIOS, Disk: qemu.NewDisk(t, 1<<30)})
	m.Await(t, patience, "GUEST install done")
	awaitInstalled(t, m)

	r.bootlab(t, "install", "node")
	m.Reset(t)
	m.Await(t, patience, "GUEST writing")
	m.Await(t, patience, "GUEST install done")
	awaitInstalled(t, m)
	r.wantKinds(t, "node", event.InstallDone, event.InstallArmed, event.InstallStarted, event.InstallDone, event.InstallLocalBoot)
}

// TestKill kills the daemon in the middle of an install. What it promised must hold when it is back: the lease, the token of
// this boot, and the state of the install.
func TestKill(t *testing.T) {
	netns.Need(t, qemu.Needs()...)
	files := map[string]string{"public/greeting.txt": bootFiles["public/greeting.txt"]}
	files["config/guest.conf"] = bootFiles["config/guest.conf"] + "hold={{.FilesURL}}/public/go\n"
	r := newRig(t, bootLab, withGuest(t, files))
	m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: nodeMAC, Firmware: qemu.BIOS, Disk: qemu.NewDisk(t, 1<<30)})
	m.Await(t, patience, "GUEST message node-sesame")
	r.kill(t)
	r.start(t)
	if got := r.host(t, "node").Install; got != "installing" {
		t.Errorf("install state %q after the kill, want installing", got)
	}
	put(t, filepath.Join(r.dir, "files/public/go"), nil)
	m.Await(t, patience, "GUEST install done")
	r.kill(t)
	r.start(t)
	if got := r.host(t, "node").Install; got != "installed" {
		t.Errorf("install state %q after the second kill, want installed", got)
	}
	awaitInstalled(t, m)
	if n := m.Said("GUEST writing"); n != 1 {
		t.Errorf("%d installations, want 1", n)
	}
}
