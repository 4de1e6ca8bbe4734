package daemon_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/host/link/arp"
	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/test/support/netns"
)

// address returns what the daemon says of an address of a cluster or balancer.
func (r *rig) address(addr string) (a api.Address) {
	r.t.Helper()
	for _, a := range r.status().Addresses {
		if a.Addr == netip.MustParseAddr(addr) {
			return a
		}
	}
	return a
}

func (r *rig) bridge() string {
	return regexp.MustCompile(`interface: (\w+)`).FindStringSubmatch(r.read())[1]
}

// on reports whether an interface has an address.
func (r *rig) on(iface, addr string) bool {
	return strings.Contains(netns.Run(r.t, "ip", "-o", "addr", "show", "dev", iface), " "+addr+"/")
}

// getBySocket returns a page as the command line's socket serves it.
func (r *rig) getBySocket(path string) string {
	r.t.Helper()
	return netns.Run(r.t, "curl", "-sS", "--unix-socket", filepath.Join(filepath.Dir(r.lab), "admin.sock"), "http://bootlab"+path)
}

// dial connects to an address from this machine.
func dial(addr string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	return c.Close()
}

// TestAddressesAreAdded: what a cluster needs is on its network's interface while the daemon runs: README's pattern, the appliance .1
// and the cluster .10, needs no command. It follows the lab, and goes with the daemon.
func TestAddressesAreAdded(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.62.0.1")
	bridge := r.bridge()
	base := r.read()
	cluster := base + "clusters: {prod: {kind: kubernetes, address: 10.62.0.10}}\n"
	r.write(strings.Replace(cluster, "ip: 10.62.0.11}", "ip: 10.62.0.11, cluster: prod, role: control-plane}", 1))
	r.start()
	r.until("the cluster's address is added", func() bool { return r.address("10.62.0.10").OK })
	if a := r.address("10.62.0.10"); a.State != "added" || a.Interface != bridge || a.For != "cluster prod" || a.Problem != "" || a.Since.IsZero() {
		t.Errorf("%+v", a)
	}
	if !r.on(bridge, "10.62.0.10") {
		t.Error("it is on no interface")
	}
	if err := dial("10.62.0.10:6443"); err != nil && !errors.Is(err, syscall.ECONNRESET) { // there is no healthy backend
		t.Error(err)
	}
	if body := r.get("http://10.62.0.1:9680/readyz"); !strings.Contains(body, "\naddresses: ok\n") {
		t.Errorf("/readyz:\n%s", body)
	}
	if m := r.get("http://10.62.0.1:9680/metrics"); !strings.Contains(m, "\nbootlab_vips{state=\"added\"} 1\n") || !strings.Contains(m, "\nbootlab_vips{state=\"in_use\"} 0\n") {
		t.Error("no metric counts it")
	}
	r.write(base + "balancers: {web: {listen: \"10.62.0.20:80\", backends: [a:80]}}\n")
	r.until("a balancer's address is added", func() bool { return r.address("10.62.0.20").OK })
	r.until("the cluster's is removed", func() bool { return !r.on(bridge, "10.62.0.10") })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if r.on(bridge, "10.62.0.20") || !r.on(bridge, "10.62.0.1") {
		t.Error(netns.Run(t, "ip", "addr", "show", "dev", bridge))
	}
	for _, kind := range []string{"vip_up", "10.62.0.20 of balancer web, on " + bridge} {
		if !strings.Contains(r.log.String(), kind) {
			t.Errorf("the log lacks %q:\n%s", kind, r.log)
		}
	}
}

// TestAddressOfAnotherMachine: the daemon says who has the address, and takes it once it is free.
func TestAddressOfAnotherMachine(t *testing.T) {
	netns.Need(t, "root", "ip")
	seg := netns.NewSegment(t, "10.61.0.1/24")
	spy := seg.NewClient(t, "52:54:00:00:00:02") // host b of the lab
	netns.Run(t, "ip", "-n", spy.Name, "addr", "add", "10.61.0.10/24", "dev", "eth0")
	r := newRig(t, "10.60.0.1")
	r.write(strings.NewReplacer("10.60.0.", "10.61.0.", r.bridge(), seg.Bridge).Replace(r.read()) + "balancers: {web: {listen: \"10.61.0.10:80\", backends: [a:80]}}\n")
	r.start()
	r.until("the other machine is noticed", func() bool { return r.address("10.61.0.10").State == "in_use" })
	if a := r.address("10.61.0.10"); a.OK || a.MAC.String() != "52:54:00:00:00:02" || a.Host != "b" || !strings.Contains(a.Problem, "MAC 52:54:00:00:00:02 (b) uses it") {
		t.Errorf("%+v", a)
	}
	if r.on(seg.Bridge, "10.61.0.10") {
		t.Error("it was added all the same")
	}
	if body := r.get("http://10.61.0.1:9680/readyz"); !strings.Contains(body, "\naddresses: degraded: 1 used by another machine (bootlab status says which)\n") {
		t.Errorf("/readyz:\n%s", body)
	}
	r.until("the log has it", func() bool { return strings.Contains(r.log.String(), "vip_in_use") })
	if boots, err := r.client.Boots(t.Context(), "b"); err != nil || len(boots) > 0 {
		t.Errorf("the timeline of b begins with it: %+v, %v", boots, err)
	}
	netns.Run(t, "ip", "-n", spy.Name, "addr", "del", "10.61.0.10/24", "dev", "eth0")
	r.until("it is added", func() bool { return r.address("10.61.0.10").State == "added" })
}

// TestClaimsOfAnAddress: machines with hundreds of MACs that claim an address of a cluster fill no log, and the address stays.
func TestClaimsOfAnAddress(t *testing.T) {
	netns.Need(t, "root", "ip")
	const addr = "10.126.3.1"
	vip := netip.MustParseAddr("10.126.3.10")
	r := newRig(t, addr)
	r.write(r.read() + "balancers: {web: {listen: \"10.126.3.10:80\", backends: [a:80]}}\n")
	netns.Run(t, "ip", "link", "add", "claims", "type", "veth", "peer", "name", "port9")
	t.Cleanup(func() { netns.Run(t, "ip", "link", "del", "claims") })
	netns.Run(t, "ip", "link", "set", "port9", "master", r.bridge(), "up")
	netns.Run(t, "ip", "link", "set", "claims", "up")
	netns.AwaitUp(t, "claims", "port9")
	link, err := net.InterfaceByName("claims")
	if err != nil {
		t.Fatal(err)
	}
	sock, err := packet.Open(unix.ETH_P_ARP, arp.Filter())
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	r.start()
	r.until("the address is added", func() bool { return r.address(vip.String()).OK })
	for i := range 300 {
		frame := arp.Request(lab.MAC{2, 9, 9, 0, byte(i >> 8), byte(i)}, vip, arp.Broadcast, vip)
		if err := sock.Send(link.Index, frame[:]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // each is noticed by itself
	}
	r.until("the last claim is noticed", func() bool { return r.address(vip.String()).MAC == lab.MAC{2, 9, 9, 0, 299 >> 8, 299 & 255} })
	if !r.on(r.bridge(), vip.String()) {
		t.Error("the address was given up")
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(strings.Split(r.log.String(), "\n"), func(l string) bool { return !strings.Contains(l, "vip_conflict") })
	// A summary comes after ten seconds, and at the end.
	if len(lines) < 2 || len(lines) > 6 || strings.Contains(lines[0], "more=") || !strings.Contains(lines[1], " more=") {
		t.Errorf("%d lines, want the first claim and a summary:\n%s", len(lines), strings.Join(lines, "\n"))
	}
}

// TestAddressesOff: the admin adds addresses; check, log, status and /readyz name those that are missing, and the command.
func TestAddressesOff(t *testing.T) {
	netns.Need(t, "root", "ip", "curl")
	r := newRig(t, "10.59.0.1")
	r.write(strings.Replace(r.read(), "appliance: {", "appliance: {addresses: off, ", 1) + "balancers: {web: {listen: \"10.59.0.10:80\", backends: [a:80]}}\n")
	command := fmt.Sprintf("ip addr add 10.59.0.10/32 dev %s", r.bridge())
	l, err := load.Lab(r.lab, load.Options{InterfaceAddr: interfaces.AddrIn})
	if err != nil {
		t.Fatal(err)
	}
	if w := interfaces.AddressWarnings(l); len(w) != 1 || !strings.Contains(w[0].Error(), "balancers.web.listen: no interface of this machine has 10.59.0.10, at which clients reach balancer web") || !strings.HasSuffix(w[0].Error(), command) {
		t.Errorf("check warns %v", w)
	}
	r.start()
	r.until("it is missing", func() bool { return r.address("10.59.0.10").State == "missing" })
	if a := r.address("10.59.0.10"); a.OK || a.Command != command || !strings.Contains(a.Problem, command) {
		t.Errorf("%+v", a)
	}
	if body := r.get("http://10.59.0.1:9680/readyz"); !strings.Contains(body, "\naddresses: degraded: 1 on no interface (") {
		t.Errorf("/readyz:\n%s", body)
	}
	if body := r.getBySocket("/readyz"); !strings.Contains(body, "\naddresses: degraded: 10.59.0.10 is on no interface ("+command+")\n") {
		t.Errorf("/readyz by the socket:\n%s", body)
	}
	if body := r.getBySocket("/"); !strings.Contains(body, "10.59.0.10</span> balancer web<em>") || !strings.Contains(body, command) {
		t.Errorf("the dashboard lacks the command:\n%s", body)
	}
	r.until("the log has the command", func() bool { return strings.Contains(r.log.String(), command) })
	args := strings.Fields(command)
	netns.Run(t, args[0], args[1:]...)
	r.until("it is noticed", func() bool { a := r.address("10.59.0.10"); return a.OK && a.State == "present" })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if !r.on(r.bridge(), "10.59.0.10") {
		t.Error("the daemon removed the admin's address")
	}
}

// TestAddedAddressIsNotTheNetworks: the default of networks.n.address is never an address that the daemon itself has added.
func TestAddedAddressIsNotTheNetworks(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.58.0.1")
	bridge := r.bridge()
	r.write(strings.NewReplacer(", address: 10.58.0.1", "", `"10.58.0.1:`, `"127.0.0.1:`).Replace(r.read()) + "balancers: {web: {listen: \"10.58.0.10:80\", backends: [a:80]}}\n")
	r.start()
	r.until("the address is added", func() bool { return r.address("10.58.0.10").OK })
	netns.Run(t, "ip", "addr", "del", "10.58.0.1/24", "dev", bridge)
	if all, _ := r.status().ConditionsOf(api.ConditionInterface); len(all) != 1 || all[0].Problem != "10.58.0.1 is on no interface: run ip addr add 10.58.0.1/24 dev "+bridge {
		t.Errorf("the remedy names an address of a balancer: %+v", all)
	}
	if _, err := r.client.Reload(t.Context(), api.Forced); err != nil {
		t.Fatal(err)
	}
	if w := r.status().Warnings; !strings.Contains(w.Error(), "networks.n") {
		t.Errorf("warnings %q: none that the network has no address", w)
	}
	netns.Run(t, "ip", "addr", "add", "10.58.0.1/24", "dev", bridge)
	r.until("the network has its address", func() bool { return len(r.status().Warnings) == 0 })
}
