package interop

import (
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/test/support/netns"
)

// address returns what the daemon says of an address of a balancer or cluster.
func (d *daemon) address(addr string) (a api.Address) {
	d.t.Helper()
	for _, a := range d.status().Addresses {
		if a.Addr == netip.MustParseAddr(addr) {
			return a
		}
	}
	return a
}

// onBridge reports whether the bridge has an address.
func (d *daemon) onBridge(addr string) bool {
	d.t.Helper()
	return strings.Contains(netns.Run(d.t, "ip", "-o", "addr", "show", "dev", d.seg.Bridge), " "+addr+"/32 ")
}

// TestAddresses follows the addresses of balancers through a reload without root, crashes, a conflict and an orderly stop, and without the
// daemon's help. A machine on the segment reaches them by ARP all the while.
func TestAddresses(t *testing.T) {
	t.Parallel()
	netns.Need(t, "arping", "busybox")
	nobody(t)
	l := newLab(t, "10.73.2")
	l.balancers = "  web: {listen: \"NET.5:80\", backends: [w0:80]}\n"
	l.write()
	d := start(t, l)
	m := d.machine(t, "52:54:00:00:00:10", "10.73.2.10")
	answers := func(addr string) bool {
		_, err := m.run("arping", "-c1", "-w30", "-I", "eth0", addr)
		return err == nil
	}
	held := func(addr string) {
		t.Helper()
		d.until(addr+" is added", func() bool { return d.address(addr).State == "added" })
		if !d.onBridge(addr) || !answers(addr) {
			t.Errorf("%s: on the bridge %t, answers ARP %t", addr, d.onBridge(addr), answers(addr))
		}
	}
	held("10.73.2.5")

	// A reload: the daemon has no root any more.
	l.balancers = "  web: {listen: \"NET.6:80\", backends: [w0:80]}\n"
	l.write()
	held("10.73.2.6")
	d.until("the old address is removed", func() bool { return !d.onBridge("10.73.2.5") })

	// A crash leaves it; the next daemon does not want it, and wants another.
	d.kill()
	if !d.onBridge("10.73.2.6") {
		t.Fatal("kill -9 removed the address")
	}
	l.balancers = "  web: {listen: \"NET.7:80\", backends: [w0:80]}\n"
	l.write()
	d.start()
	held("10.73.2.7")
	d.until("what the crash left is removed", func() bool { return !d.onBridge("10.73.2.6") })

	// A crash, and the same lab: it is taken over.
	d.kill()
	d.start()
	held("10.73.2.7")

	// Another machine announces it: duplicate address detection finds this one, and an announcement is answered.
	if out, err := m.run("arping", "-D", "-c2", "-w30", "-I", "eth0", "10.73.2.7"); err == nil {
		t.Errorf("duplicate address detection finds nobody: %s", out)
	}
	if _, err := m.run("ip", "addr", "add", "10.73.2.7/24", "dev", "eth0"); err != nil {
		t.Fatal(err)
	}
	_, _ = m.run("arping", "-U", "-c1", "-w2", "-I", "eth0", "-s", "10.73.2.7", "10.73.2.7")
	d.until("the conflict is noticed", func() bool { return d.address("10.73.2.7").State == "conflict" })
	if a := d.address("10.73.2.7"); a.OK || a.Host != "w0" || !strings.Contains(a.Problem, "52:54:00:00:00:10 (w0)") {
		t.Errorf("%+v", a)
	}
	if out, err := d.bootlab("status"); err != nil || !strings.Contains(out, "used by another machine, too") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := m.run("ip", "addr", "del", "10.73.2.7/24", "dev", "eth0"); err != nil {
		t.Fatal(err)
	}
	held("10.73.2.7")

	// An orderly stop removes it, and nothing else.
	d.signal(syscall.SIGTERM)
	if code := d.exit(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if out := netns.Run(t, "ip", "-o", "-4", "addr", "show", "dev", l.seg.Bridge); strings.Count(out, "\n") != 1 || !strings.Contains(out, "10.73.2.1/24") {
		t.Errorf("after the stop the bridge has\n%s", out)
	}

	// With addresses: off everybody names the command that adds it, and it does.
	l.appliance = "  addresses: off\n"
	l.write()
	command := "ip addr add 10.73.2.7/32 dev " + l.seg.Bridge
	if out, err := d.bootlab("check"); err != nil || !strings.Contains(out, command) {
		t.Errorf("check: %v\n%s", err, out)
	}
	d.start()
	d.until("the missing address is noticed", func() bool { return d.address("10.73.2.7").State == "missing" })
	if out, err := d.bootlab("status"); err != nil || !strings.Contains(out, command) {
		t.Errorf("status: %v\n%s", err, out)
	}
	args := strings.Fields(command)
	netns.Run(t, args[0], args[1:]...)
	d.until("the address is noticed", func() bool { return d.address("10.73.2.7").State == "present" && answers("10.73.2.7") })
}

// holding starts a daemon that holds address 5 of a network for a balancer.
func holding(t *testing.T, net string) (*labFile, *daemon) {
	t.Helper()
	nobody(t)
	l := newLab(t, net)
	l.balancers = "  web: {listen: \"NET.5:80\", backends: [w0:80]}\n"
	l.write()
	d := start(t, l)
	d.until("it is added", func() bool { return d.address(net+".5").State == "added" })
	return l, d
}

// TestAddressOfAnInterfaceThatIsDown: nobody reaches an address on it, though the kernel keeps it there, and every page says so.
func TestAddressOfAnInterfaceThatIsDown(t *testing.T) {
	t.Parallel()
	l, d := holding(t, "10.73.4")
	netns.Run(t, "ip", "link", "set", l.seg.Bridge, "down")
	d.until("it is missing", func() bool { return d.address("10.73.4.5").State == "missing" })
	up := "ip link set " + l.seg.Bridge + " up"
	if a := d.address("10.73.4.5"); a.OK || a.Problem != "interface "+l.seg.Bridge+" is down: run "+up || a.Command != up {
		t.Errorf("%+v", a)
	}
	if body := d.page(t, "readyz"); !strings.Contains(body, "\naddresses: degraded: 1 on no interface (bootlab status says which)\n") {
		t.Errorf("/readyz:\n%s", body)
	}
	if n := d.metric(`bootlab_vips{state="missing"}`); n != 1 {
		t.Errorf("the metric counts %v", n)
	}
	netns.Run(t, "ip", "link", "set", l.seg.Bridge, "up")
	d.until("it is added again", func() bool { a := d.address("10.73.4.5"); return a.OK && a.State == "added" })
}

// TestAddressesOffAfterACrash: a daemon that is to hold no addresses removes those that it was killed with, though it may not add one: another
// machine may be about to take them.
func TestAddressesOffAfterACrash(t *testing.T) {
	t.Parallel()
	l, d := holding(t, "10.73.5")
	d.kill()
	l.appliance = "  addresses: off\n"
	l.write()
	d.start()
	if d.onBridge("10.73.5.5") {
		t.Error("what the crash left is still on the bridge")
	}
	d.until("it is missing", func() bool { return d.address("10.73.5.5").State == "missing" })
}

// TestAddressWithALease: a reload brings the address of a balancer that a machine has a lease of. The machine sleeps and answers no ARP, so the
// daemon holds the address, and says that it is another machine's, too, until that one has leased another.
func TestAddressWithALease(t *testing.T) {
	t.Parallel()
	netns.Need(t, "udhcpc")
	nobody(t)
	l := newLab(t, "10.73.3")
	l.write()
	d := start(t, l)
	m := d.machine(t, "02:00:73:03:00:01")
	addr := m.leaseAs(t, "laptop")
	if addr == "" {
		t.Fatal("no lease")
	}
	if out, err := m.run("ip", "addr", "flush", "dev", "eth0"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	l.balancers = "  web: {listen: \"" + addr + ":80\", backends: [w0:80]}\n"
	l.write()
	if err := d.reload(); err != nil {
		t.Fatal(err)
	}
	d.until("it is added", func() bool { return d.onBridge(addr) })
	d.until("the lease is noticed", func() bool { return d.address(addr).State == "leased" })
	if a := d.address(addr); a.OK || a.MAC.String() != "02:00:73:03:00:01" || !strings.Contains(a.Problem, "02:00:73:03:00:01 (laptop) has a lease of it") {
		t.Errorf("%+v", a)
	}
	d.logged("vip_leased")
	d.shows("leased to another machine", "status")
	if body := d.page(t, "readyz"); !strings.Contains(body, "\naddresses: degraded: 1 leased to another machine (bootlab status says which)\n") {
		t.Errorf("/readyz:\n%s", body)
	}
	if n := d.metric(`bootlab_vips{state="leased"}`); n != 1 {
		t.Errorf("the metric counts %v", n)
	}
	if other := m.leaseAs(t, "laptop"); other == "" || other == addr {
		t.Errorf("the machine leases %q, and had %s", other, addr)
	}
	d.until("it is the appliance's alone", func() bool { a := d.address(addr); return a.OK && a.State == "added" && a.Problem == "" })
}
