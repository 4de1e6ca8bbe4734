package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/qemu"
)

const nodeMAC = "52:54:00:77:00:21"

// bootLab has one machine that installs itself once, and a cluster around it. no_timer_check: on a busy host the kernel would count too few
// ticks of the emulated timer and panic (IO-APIC + timer doesn't work).
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

// patience bounds each step of a machine, which takes seconds. It only ends what hangs.
const patience = 5 * time.Minute

// awaitLease checks that the machine got all options of its network.
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

// awaitInstalled waits until the installed system is up from the disk, with the contents of its document.
func awaitInstalled(t *testing.T, m *qemu.Machine) {
	t.Helper()
	m.Await(t, patience, "GUEST installed system booted from disk")
	awaitLease(t, m)
	m.Await(t, patience, "GUEST name node.prod.lab.test = 10.77.0.21")
	m.Await(t, patience, "GUEST message node-sesame")
	m.Await(t, patience, "GUEST check served by bootlab")
	m.Await(t, patience, "GUEST installed system up")
}

// TestInstall: machines of every firmware find their address, program, script, kernel and document, install themselves, and boot from
// their disk, that time and the next. TestLife does so with the firmware that has iPXE in its ROM.
func TestInstall(t *testing.T) {
	t.Parallel()
	for _, fw := range withLong([]qemu.Firmware{qemu.BIOSPlain, qemu.UEFIPXE}, qemu.UEFIHTTP) {
		t.Run(string(fw), func(t *testing.T) {
			t.Parallel()
			netns.Need(t, qemu.Needs()...)
			r := newRig(t, bootLab, withGuest(t, bootFiles))
			m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: nodeMAC, Firmware: fw, Disk: qemu.NewDisk(t, 1<<30)})

			m.Await(t, patience, "GUEST kernel")
			awaitLease(t, m)
			m.Await(t, patience, "GUEST name node.prod.lab.test = 10.77.0.21")
			m.Await(t, patience, "GUEST message node-sesame")
			m.Await(t, patience, "GUEST install done")
			r.wantInstall(t, "installed")
			awaitInstalled(t, m)
			m.Reset(t)
			awaitInstalled(t, m)

			wantInstallations(t, m, 1)
			r.wantChain(t, fw)
			r.wantKinds(t, "node", event.DHCPAck, event.ScriptServed, event.FileServed, event.FileServed, event.InstallStarted, event.FileServed,
				event.InstallDone, event.InstallLocalBoot, event.DHCPAck)
		})
	}
}

// TestLife follows one machine. The daemon is killed in the middle of its install and after it: what it promised must hold when it is
// back, which is the lease, the token of this boot and the state of the install. Then the machine, the network first in its boot order,
// boots from its disk in each way that a lab file can ask for. At last it installs itself again, only after it is armed again.
func TestLife(t *testing.T) {
	t.Parallel()
	netns.Need(t, qemu.Needs()...)
	files := maps.Clone(bootFiles)
	files["config/guest.conf"] += "hold={{.FilesURL}}/public/go\n"
	r := newRig(t, bootLab, withGuest(t, files))
	m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: nodeMAC, Firmware: qemu.BIOS, Disk: qemu.NewDisk(t, 1<<30)})

	m.Await(t, patience, "GUEST message node-sesame")
	r.awaitInstall(t, "installing")
	r.kill(t)
	r.start(t)
	r.wantInstall(t, "installing")
	put(t, filepath.Join(r.dir, "files/public/go"), nil)
	m.Await(t, patience, "GUEST install done")
	r.kill(t)
	r.start(t)
	r.wantInstall(t, "installed")
	awaitInstalled(t, m) // local_boot: auto
	r.wantChain(t, qemu.BIOS)

	path := filepath.Join(r.dir, "lab.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		how    string
		script bool // it fetches one
	}{
		{"none", false},
		{"exit", true},
		{"sanboot", true},
	} {
		put(t, path, []byte(strings.Replace(string(text), "vars: {word: sesame}", "local_boot: "+tt.how+", vars: {word: sesame}", 1)))
		r.bootlab(t, "reload")
		before := m.Said("bootlab: node is installed")
		m.Reset(t)
		awaitInstalled(t, m)
		if fetched := m.Said("bootlab: node is installed") > before; fetched != tt.script {
			t.Errorf("local_boot: %s: the machine ran its script: %v", tt.how, fetched)
		}
	}
	wantInstallations(t, m, 1)

	r.bootlab(t, "install", "node", "--yes")
	m.Reset(t)
	m.Await(t, patience, "GUEST writing")
	m.Await(t, patience, "GUEST install done")
	awaitInstalled(t, m)
	wantInstallations(t, m, 2)
	// The first install_done is not asked for: the timeline may lose a second at a kill.
	r.wantKinds(t, "node", event.InstallLocalBoot, event.InstallArmed, event.InstallStarted, event.InstallDone, event.InstallLocalBoot)
}

func (r *rig) wantInstall(t *testing.T, want string) {
	t.Helper()
	if got := r.host(t, "node").Install; got != want {
		t.Errorf("install state %q, want %q", got, want)
	}
}

// awaitInstall waits for an install state: a document is read once its machine has acknowledged the end, and uses it already.
func (r *rig) awaitInstall(t *testing.T, want string) {
	t.Helper()
	eventually(t, patience, func() error {
		if got := r.host(t, "node").Install; got != want {
			return fmt.Errorf("install state %q, want %q", got, want)
		}
		return nil
	})
}

func wantInstallations(t *testing.T, m *qemu.Machine, want int) {
	t.Helper()
	if n := m.Said("GUEST writing"); n != want {
		t.Errorf("%d installations, want %d", n, want)
	}
}
