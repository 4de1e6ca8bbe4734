//go:build cgo && libvirt_dlopen

package virt_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/virt"
)

// TestMacvtap starts a machine whose NIC is a macvtap of an interface of the hypervisor: its DHCPDISCOVER leaves by that interface.
func TestMacvtap(t *testing.T) {
	d, on := startLibvirtd(t)
	newVeth(t, "uplink", "switch")
	if out, err := exec.Command("ip", "link", "add", "link", "uplink", "name", "probe", "type", "macvtap").CombinedOutput(); err != nil {
		netns.Absent(t, "macvtap", string(out))
	}
	netns.Run(t, "ip", "link", "del", "probe")
	startsOn(t, d, on, lab.Attachment{Macvtap: "uplink"}, "switch")
}

// TestOpenVSwitch starts a machine on a bridge of Open vSwitch, in a VLAN: its DHCPDISCOVER leaves by a port of that VLAN. Its switch is
// the one in user space, which needs no module of the kernel.
func TestOpenVSwitch(t *testing.T) {
	netns.Need(t, "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl", "/usr/share/openvswitch/vswitch.ovsschema")
	d, on := startLibvirtd(t)
	newVeth(t, "port", "wire")
	vsctl := startOpenVSwitch(t, filepath.Join(filepath.Dir(d.Images), "ovs"))
	vsctl("add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev")
	vsctl("add-port", "br-int", "port", "tag=7")
	startsOn(t, d, on, lab.Attachment{OVS: "br-int", VLAN: 7}, "wire")
	if ports := vsctl("list-ports", "br-int"); strings.TrimSpace(ports) != "port" {
		t.Errorf("ports after the machine was deleted: %s", ports)
	}
}

// startsOn starts a machine with an attachment, waits for its DHCPDISCOVER on an interface, and deletes it.
func startsOn(t *testing.T, d *libvirtd.Daemon, on func(*lab.Host), a lab.Attachment, iface string) {
	t.Helper()
	l := oneHost(on, func(h *lab.Host) {
		a.Network = h.Network
		h.VM.Hypervisor.Bridges[0] = a
	})
	b := newTestServer(t, l, nil, virt.Config{})
	serve(t, b)
	seen := discovers(t, iface)
	check(t, b.Apply(t.Context(), "master-0"))
	wantState(t, b, virt.StateRunning)
	wantPlan(t, b, virt.ConditionOK)
	waitDiscovers(t, seen, l.Hosts)
	check(t, b.Delete(t.Context(), "master-0", virt.DeleteDisks))
	leftovers(t, d, filepath.Dir(d.Images))
}

// newVeth makes a pair of interfaces that are connected to each other.
func newVeth(t *testing.T, one, other string) {
	t.Helper()
	netns.Need(t, "ip", "tcpdump")
	netns.Run(t, "ip", "link", "add", one, "type", "veth", "peer", "name", other)
	t.Cleanup(func() { netns.Run(t, "ip", "link", "del", one) })
	for _, end := range []string{one, other} {
		netns.Run(t, "ip", "link", "set", end, "up")
	}
}

// startOpenVSwitch runs Open vSwitch in a folder until the test ends, and returns ovs-vsctl.
func startOpenVSwitch(t *testing.T, dir string) (vsctl func(args ...string) string) {
	t.Helper()
	db, socket := filepath.Join(dir, "conf.db"), "unix:"+filepath.Join(dir, "db.sock")
	netns.Run(t, "ovsdb-tool", "create", db, "/usr/share/openvswitch/vswitch.ovsschema")
	for _, args := range [][]string{
		{"ovsdb-server", db, "--remote=p" + socket},
		{"ovs-vswitchd", socket, "--disable-system"}, // without the kernel's switch
	} {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "OVS_RUNDIR="+dir, "OVS_LOGDIR="+dir, "OVS_DBDIR="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		check(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	return func(args ...string) string {
		t.Helper()
		return netns.Run(t, "ovs-vsctl", append([]string{"--db=" + socket, "--timeout=60", "--retry"}, args...)...)
	}
}
