package interop

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestPoolConflicts: five of six addresses of a pool are configured by hand on other machines. The free one is leased; the others
// are never offered, and the machines that use them are reported.
func TestPoolConflicts(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.106.1")
	l.lan = "    pools: {six: {range: NET.100-NET.105}}\n"
	l.write()
	l.conflicts(t, "02:00:00:00:ff:51", 100, 104)
	d := start(t, l)
	w := d.machine(t, "02:00:00:00:ff:50").wire(t)
	if ack := w.bind(mac("52:54:00:00:00:10")); ack.YourIPAddr.String() != l.net+".10" {
		t.Errorf("a reserved machine got %s", ack.YourIPAddr)
	}
	var offer captured
	d.until("the free address is found", func() bool {
		var ok bool
		offer, ok = w.tryFrom(discover(numbered(1)), newClient, toServers, 2*time.Second)
		return ok
	})
	if offer.YourIPAddr.String() != l.net+".105" {
		t.Errorf("offered %s, which another machine uses", offer.YourIPAddr)
	}
	if ack := w.ask(selecting(offer)); ack.MessageType() != dhcpv4.MessageTypeAck {
		t.Errorf("want an ACK, got %s", ack)
	}
	// Other machines get no answer, however often they ask.
	for n := 2; n < 5; n++ {
		if h, ok := w.tryFrom(discover(numbered(n)), newClient, toServers, time.Second); ok {
			t.Errorf("%s", h)
		}
	}
	for _, h := range w.all() {
		if n := h.YourIPAddr.To4()[3]; h.OpCode == dhcpv4.OpcodeBootReply && n >= 100 && n <= 104 {
			t.Errorf("an address in use was given: %s", h)
		}
	}
	// The conflicts are reported at the next survey.
	d.until("the log names the addresses and the machine", func() bool {
		return strings.Contains(regexpLine(d.log.String(), "dhcp_pool_conflict"), "addr="+l.net+".10") && strings.Contains(d.log.String(), "02:00:00:00:ff:51")
	})
	d.shows(l.net+".10", "leases", "--state", "conflict")
}

// conflicts adds a machine that uses the addresses from first to last without a lease. Its kernel answers ARP requests for them, however
// busy the test is.
func (l *labFile) conflicts(t *testing.T, card string, first, last int) {
	t.Helper()
	other := l.machine(t, card)
	var batch strings.Builder
	for i := first; i <= last; i++ {
		fmt.Fprintf(&batch, "addr add %s.%d/24 dev eth0\n", l.net, i)
	}
	cmd := exec.Command("ip", "-n", other.Name, "-batch", "-")
	cmd.Stdin = strings.NewReader(batch.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("add the addresses: %v\n%s", err, out)
	}
}

// TestManyNewClients: of a rack that asks at once, most clients get an offer before the address could be probed. Those whose address
// turns out to be in use are refused at their REQUEST, and never lease it.
func TestManyNewClients(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.106.8")
	l.lan = "    pools: {many: {range: NET.100-NET.249}}\n"
	l.write()
	l.conflicts(t, "02:00:00:00:ff:5b", 100, 249)
	d := start(t, l)
	w := d.machine(t, "02:00:00:00:ff:5c").wire(t)
	w.bind(mac("52:54:00:00:00:10"))
	mark := w.mark()
	for n := range 40 {
		w.send(discover(numbered(n)), newClient, toServers)
	}
	var offers []captured
	d.until("an offer", func() bool {
		time.Sleep(time.Second) // a client collects offers for as long
		offers = nil
		for _, h := range w.all()[mark:] {
			if h.MessageType() == dhcpv4.MessageTypeOffer {
				offers = append(offers, h)
			}
		}
		return len(offers) > 0
	})
	d.until("the probes are answered", func() bool {
		return d.metric(`bootlab_dhcpd_probes_total{result="in_use"}`) >= float64(len(offers))
	})
	for _, h := range offers {
		if answer := w.ask(selecting(h)); answer.MessageType() != dhcpv4.MessageTypeNak {
			t.Errorf("%s is in use, and got %s", h.YourIPAddr, answer)
		}
	}
	t.Logf("%d of 40 were offered an address in use, and refused at their REQUEST", len(offers))
}

func regexpLine(log, word string) string {
	_, rest, _ := strings.Cut(log, word)
	line, _, _ := strings.Cut(rest, "\n")
	return line
}

// TestBridgeWithAnotherMAC changes the bridge's MAC while the daemon runs, as happens to a bridge without a configured MAC when a port with
// a lower one is added. ARP replies then go to the new MAC.
func TestBridgeWithAnotherMAC(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.106.7")
	l.lan = "    pools: {one: {range: NET.110-NET.110}}\n"
	l.write()
	neighbour := l.machine(t, "02:00:00:00:ff:59")
	d := start(t, l)
	netns.Run(t, "ip", "link", "set", l.seg.Bridge, "address", "02:b0:00:00:00:07")
	netns.Run(t, "ip", "-n", neighbour.Name, "addr", "add", l.net+".100/24", "dev", "eth0")
	w := d.machine(t, "02:00:00:00:ff:5a").wire(t)
	if ack := w.bind(mac("52:54:00:00:00:10")); ack.YourIPAddr.String() != l.net+".10" {
		t.Errorf("a reserved machine got %s", ack.YourIPAddr)
	}
	l.lan = strings.ReplaceAll(l.lan, "110", "100") // not probed yet
	l.write()
	if err := d.reload(); err != nil {
		t.Fatal(err)
	}
	if h, ok := w.tryFrom(discover(numbered(1)), newClient, toServers, 2*time.Second); ok {
		t.Errorf("an address in use is offered: %s", h)
	}
}

// TestConflictBehindRelay is TestPoolConflicts beyond the reach of ARP: the other machine is behind a real router.
func TestConflictBehindRelay(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.106.2")
	l.networks = "  far: {subnet: 10.106.60.0/24, interface: BRIDGE, router: 10.106.60.1, pools: {two: {range: 10.106.60.100-10.106.60.101}}}\n"
	l.write()
	router := l.machine(t, "52:54:00:00:ff:52", l.net+".2")
	netns.Run(t, "ip", "route", "add", "10.106.60.0/24", "via", l.net+".2")
	seg := netns.NewSegment(t, "10.106.61.254/24") // only the link is wanted
	join(t, seg, router, "eth1")
	netns.Run(t, "ip", "-n", router.Name, "addr", "add", "10.106.60.1/24", "dev", "eth1")
	netns.Run(t, "ip", "netns", "exec", router.Name, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	other := seg.NewClient(t, "52:54:00:00:ff:53")
	netns.Run(t, "ip", "-n", other.Name, "addr", "add", "10.106.60.100/24", "dev", "eth0")
	netns.Run(t, "ip", "-n", other.Name, "route", "add", "default", "via", "10.106.60.1")
	d := start(t, l)
	w := router.wire(t)
	gi, server := netip.MustParseAddrPort("10.106.60.1:67"), netip.MustParseAddrPort(d.addr+":67")
	via := dhcpv4.WithRelay(net.ParseIP("10.106.60.1"))
	for n := range 2 {
		var offer captured
		d.until("an offer", func() bool {
			var ok bool
			offer, ok = w.tryFrom(discover(numbered(n), via), gi, server, 2*time.Second)
			return ok || n > 0
		})
		switch {
		case n == 0 && offer.YourIPAddr.String() != "10.106.60.101":
			t.Errorf("offered %s, which answers pings", offer)
		case n > 0 && offer.DHCPv4 != nil && offer.YourIPAddr.String() == "10.106.60.100":
			t.Errorf("offered %s, which answers pings", offer)
		}
		if n == 0 {
			w.askFrom(selecting(offer, via), gi, server)
		}
	}
}

// TestRogue starts another DHCP server on the segment. It is logged once, with its address, MAC and interface, and counted.
func TestRogue(t *testing.T) {
	t.Parallel()
	netns.Need(t, "dnsmasq")
	l := newLab(t, "10.106.3")
	d := start(t, l)
	rogue := d.machine(t, "02:00:00:00:ff:54", l.net+".9")
	log := rogue.daemonize(t, "dnsmasq", "-k", "--conf-file=/dev/null", "--port=0", "--interface=eth0", "--except-interface=lo", "--bind-interfaces", "--no-ping",
		"--dhcp-range="+l.net+".60,"+l.net+".70", "--dhcp-authoritative", "--user=root", "--pid-file=", "--dhcp-leasefile="+filepath.Join(t.TempDir(), "leases"), "--log-facility=-", "--log-dhcp")
	d.until("dnsmasq listens", func() bool { return strings.Contains(log.String(), "DHCP, sockets bound") })
	// A server is seen by what it broadcasts, and by what a bridge floods because it does not know the client yet.
	w := d.machine(t, "02:00:00:00:ff:55").wire(t)
	const victim = "02:00:00:00:66:01"
	d.until("the other server's offer", func() bool { // as a client does, again and again
		mark := w.mark()
		w.send(discover(mac(victim), dhcpv4.WithBroadcast(true)), newClient, toServers)
		_, _, ok := w.since(mark, time.Second, func(h captured) bool {
			return h.OpCode == dhcpv4.OpcodeBootReply && h.From.Addr().String() == l.net+".9"
		})
		return ok
	})
	d.logged("dhcp_rogue")
	line := regexpLine(d.log.String(), "dhcp_rogue")
	for _, want := range []string{l.net + ".9", "02:00:00:00:ff:54", l.seg.Bridge} {
		if !strings.Contains(line, want) {
			t.Errorf("the event does not name %s: %s", want, line)
		}
	}
	if n := d.metric("bootlab_dhcpd_rogue_replies_total"); n < 1 {
		t.Errorf("bootlab_dhcpd_rogue_replies_total is %v", n)
	}
	d.shows(l.net+".9", "timeline", victim)
	for range 20 {
		mark := w.mark()
		p := discover(mac(victim), dhcpv4.WithBroadcast(true))
		w.send(p, newClient, toServers)
		w.await("the other server's offer", mark, patience, func(h captured) bool { return answers(p)(h) && h.From.Addr().String() == l.net+".9" })
	}
	if n := strings.Count(d.log.String(), "dhcp_rogue"); n > 2 {
		t.Errorf("one server is reported %d times", n)
	}
	for _, h := range w.all() {
		if h.From.Addr().String() == l.addr() && h.ServerIdentifier().String() != l.addr() {
			t.Errorf("our own answer names another server: %s", h)
		}
	}
}
