package interop

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/test/support/netns"
)

// daemonize runs a program in the machine until the test ends.
func (m *machine) daemonize(t *testing.T, name string, args ...string) *output {
	t.Helper()
	netns.Need(t, name)
	cmd, log := m.Command(context.Background(), name, args...), &output{}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = log, log, time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", name, tail(log.String()))
		}
	})
	return log
}

// join adds a NIC to a machine, on another segment.
func join(t *testing.T, s *netns.Segment, m *machine, card string) {
	t.Helper()
	end := "x" + m.NIC
	netns.Run(t, "ip", "link", "add", end, "type", "veth", "peer", "name", card, "netns", m.Name)
	netns.Run(t, "ip", "link", "set", end, "master", s.Bridge, "up")
	netns.Run(t, "ip", "-n", m.Name, "link", "set", card, "up")
}

// TestRelayAgent: ISC's dhcrelay, which adds option 82, stands between the daemon and a network that the daemon has no address in. A
// client there gets its lease through the relay, and renews and releases by unicast.
func TestRelayAgent(t *testing.T) {
	t.Parallel()
	netns.Need(t, "dhcrelay")
	for i, tt := range []struct{ name, iface string }{{"through the interface that leads there", "interface: BRIDGE, "}, {"through any interface", ""}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, fmt.Sprintf("10.101.%d", 1+i))
			far := fmt.Sprintf("10.101.%d.", 50+i)
			srv := l.apart()
			l.networks = fmt.Sprintf("  far: {subnet: %[1]s0/24, %[2]srouter: %[1]s1, lease: 20s, pools: {all: {range: %[1]s100-%[1]s120}}}\n", far, tt.iface)
			l.hosts = "  c0: {mac: \"52:54:00:00:00:20\", ip: " + far + "20, network: far}\n"
			l.write()
			d := start(t, l)
			netns.Run(t, "ip", "-n", srv.Name, "route", "add", far+"0/24", "via", l.net+".2")
			d.behindRelay(t, far, map[string]string{"52:54:00:00:00:20": far + "20", "52:54:00:00:00:21": far + "1"})
		})
	}
}

// behindRelay runs a relay, and behind it a client for each MAC, which must get an address with that prefix.
func (d *daemon) behindRelay(t *testing.T, far string, want map[string]string) {
	agent := d.machine(t, "52:54:00:00:ff:10", d.net+".2")
	seg := netns.NewSegment(t, far+"254/24")
	join(t, seg, agent, "eth1")
	netns.Run(t, "ip", "-n", agent.Name, "addr", "add", far+"1/24", "dev", "eth1")
	netns.Run(t, "ip", "netns", "exec", agent.Name, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	up := agent.wire(t)
	log := agent.daemonize(t, "dhcrelay", "-4", "-d", "-a", "-m", "append", "-id", "eth1", "-iu", "eth0", "--no-pid", d.addr)
	d.until("the relay listens", func() bool { return strings.Contains(log.String(), "Sending on   Socket/fallback") })
	for card, addr := range want {
		t.Run(addr, func(t *testing.T) {
			t.Parallel()
			m := &machine{Client: seg.NewClient(t, card), d: d}
			m.livesBehind(t, up, card, addr)
		})
	}
}

// livesBehind: dhclient gets a lease through a relay, whose upstream packets are captured, and renews and releases by unicast.
func (m *machine) livesBehind(t *testing.T, up *wire, card, want string) {
	w, r := m.wire(t), m.runs(t, programs()[0])
	r.start()
	mine := func(kind dhcpv4.MessageType) func(captured) bool {
		return func(h captured) bool { return h.MessageType() == kind && h.ClientHWAddr.String() == card }
	}
	ack, mark := w.await("a lease through the relay", 0, patience, mine(dhcpv4.MessageTypeAck))
	addr := ack.YourIPAddr.String()
	if !strings.HasPrefix(addr, want) {
		t.Errorf("got %s, want %s…", addr, want)
	}
	request, at := up.await("the relayed request", 0, patience, mine(dhcpv4.MessageTypeRequest))
	echo, _ := up.await("the answer to the relay", at, patience, mine(dhcpv4.MessageTypeAck))
	asked := request.Options.Get(dhcpv4.OptionRelayAgentInformation)
	if diff := cmp.Diff(asked, echo.Options.Get(dhcpv4.OptionRelayAgentInformation)); diff != "" || len(asked) == 0 {
		t.Errorf("option 82 (-asked +answered)\n%s", diff)
	}
	if ack.Options.Has(dhcpv4.OptionRelayAgentInformation) {
		t.Error("the relay left option 82 in: the test proves nothing")
	}
	_, mark = w.await("RENEWING past the relay", mark, patience, renewing(m.d.addr))
	again, mark := w.await("the answer", mark, patience, func(h captured) bool { // the relay passes the request on, too
		return h.OpCode == dhcpv4.OpcodeBootReply && h.GatewayIPAddr.IsUnspecified()
	})
	if again.MessageType() != dhcpv4.MessageTypeAck || !again.YourIPAddr.Equal(ack.YourIPAddr) {
		t.Errorf("renewal past the relay: %s", again)
	}
	r.giveBack()
	w.await("RELEASE", mark, patience, mine(dhcpv4.MessageTypeRelease))
	m.d.until("the release", func() bool { return m.d.holder(addr) == "" })
	if s := m.d.log.String(); strings.Contains(s, "a DHCPRELEASE of "+addr+" is ignored") {
		t.Errorf("its DHCPRELEASE was taken for another machine's:\n%s", tail(s))
	}
}

// agentInfo is option 82 with these sub-options.
func agentInfo(subs ...string) dhcpv4.Modifier {
	var b []byte
	for _, s := range subs {
		b = append(append(b, s[0], byte(len(s)-1)), s[1:]...)
	}
	return dhcpv4.WithGeneric(dhcpv4.OptionRelayAgentInformation, b)
}

func quad(addr string) string { return string(net.ParseIP(addr).To4()) }

// TestRelayFields sends as a relay, to check every field of RFC 3046 and its extensions. Three networks are served through one
// interface.
func TestRelayFields(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.102.1")
	l.networks = `  west: {subnet: 10.102.60.0/24, interface: BRIDGE, router: 10.102.60.1, pools: {all: {range: 10.102.60.100-10.102.60.200}}}
  east: {subnet: 10.102.61.0/24, interface: BRIDGE, router: 10.102.61.1, pools: {all: {range: 10.102.61.100-10.102.61.200}}}
`
	l.hosts = "  e0: {mac: \"52:54:00:00:00:30\", ip: 10.102.61.30, network: east}\n"
	l.write()
	d := start(t, l)
	m := d.machine(t, "52:54:00:00:ff:11", "10.102.1.2")
	for _, subnet := range []string{"10.102.60.0/24", "10.102.61.0/24"} {
		netns.Run(t, "ip", "route", "add", subnet, "via", "10.102.1.2")
	}
	w := m.wire(t)
	server := netip.MustParseAddrPort(d.addr + ":67")
	for i, tt := range []struct {
		name   string
		giaddr string
		mods   []dhcpv4.Modifier
		port   uint16 // the relay's; 0: 67
		net    string // the address comes from here; empty: silence
		by     string // option 54; empty: the appliance
	}{
		{name: "giaddr", giaddr: "10.102.60.1", net: "10.102.60."},
		{name: "giaddr of the other network", giaddr: "10.102.61.1", net: "10.102.61."},
		{name: "giaddr on the wire", giaddr: "10.102.1.2", net: "10.102.1."},
		{name: "option 82 is echoed", giaddr: "10.102.60.1", mods: []dhcpv4.Modifier{agentInfo("\x01port 7", "\x02switch 3", "\x97odd")}, net: "10.102.60."},
		{name: "link selection (RFC 3527)", giaddr: "10.102.1.2", mods: []dhcpv4.Modifier{agentInfo("\x01port 7", "\x05"+quad("10.102.61.0"))}, net: "10.102.61."},
		{name: "subnet selection (RFC 3011)", giaddr: "10.102.1.2", mods: []dhcpv4.Modifier{with(118, quad("10.102.60.0"))}, net: "10.102.60."},
		{name: "link selection beats subnet selection", giaddr: "10.102.1.2", mods: []dhcpv4.Modifier{with(118, quad("10.102.60.0")), agentInfo("\x05" + quad("10.102.61.0"))}, net: "10.102.61."},
		{name: "server identifier override (RFC 5107)", giaddr: "10.102.60.1", mods: []dhcpv4.Modifier{agentInfo("\x0b" + quad("10.102.60.1"))}, net: "10.102.60.", by: "10.102.60.1"},
		{name: "relay source port (RFC 8357)", giaddr: "10.102.60.1", mods: []dhcpv4.Modifier{agentInfo("\x13")}, port: 10067, net: "10.102.60."},
		{name: "an unknown network", giaddr: "10.102.99.1"},
		{name: "link selection of an unknown network", giaddr: "10.102.60.1", mods: []dhcpv4.Modifier{agentInfo("\x05" + quad("10.102.99.0"))}},
		{name: "17 hops", giaddr: "10.102.60.1", mods: []dhcpv4.Modifier{func(p *dhcpv4.DHCPv4) { p.HopCount = 17 }}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.port == 0 {
				tt.port = 67
			}
			if tt.by == "" {
				tt.by = d.addr
			}
			gi := netip.AddrPortFrom(netip.MustParseAddr(tt.giaddr), tt.port)
			mods := append([]dhcpv4.Modifier{dhcpv4.WithRelay(net.ParseIP(tt.giaddr))}, tt.mods...)
			card := numbered(0x600 + i)
			p := discover(card, mods...)
			if tt.net == "" {
				// Answers come in the order of the requests: after the probe's, none can follow.
				mark := w.mark()
				w.send(p, gi, server)
				w.askFrom(discover(numbered(0x6ff), dhcpv4.WithRelay(net.ParseIP("10.102.60.1"))), netip.MustParseAddrPort("10.102.60.1:67"), server)
				if h, _, ok := w.since(mark, 50*time.Millisecond, answers(p)); ok {
					t.Errorf("want silence, got %s", h)
				}
				return
			}
			check := func(asked *dhcpv4.DHCPv4, h captured, kind dhcpv4.MessageType) {
				t.Helper()
				if h.MessageType() != kind || !strings.HasPrefix(h.YourIPAddr.String(), tt.net) || h.To != gi || !h.GatewayIPAddr.Equal(asked.GatewayIPAddr) || h.ServerIdentifier().String() != tt.by {
					t.Errorf("want %s of %s… by %s to %s, got %s", kind, tt.net, tt.by, gi, h)
				}
				if diff := cmp.Diff(asked.Options.Get(dhcpv4.OptionRelayAgentInformation), h.Options.Get(dhcpv4.OptionRelayAgentInformation)); diff != "" {
					t.Errorf("option 82 (-asked +answered)\n%s", diff)
				}
			}
			offer := w.askFrom(p, gi, server)
			check(p, offer, dhcpv4.MessageTypeOffer)
			p = selecting(offer, mods...)
			check(p, w.askFrom(p, gi, server), dhcpv4.MessageTypeAck)
		})
	}
	t.Run("NAK is broadcast by the relay", func(t *testing.T) {
		p := rebooting(mac("52:54:00:00:00:30"), "10.102.61.99", dhcpv4.WithRelay(net.ParseIP("10.102.61.1")))
		h := w.askFrom(p, netip.MustParseAddrPort("10.102.61.1:67"), server)
		if h.MessageType() != dhcpv4.MessageTypeNak || !h.IsBroadcast() || h.To.String() != "10.102.61.1:67" {
			t.Errorf("want a NAK to the relay with the broadcast flag, got %s, flags %#x", h, h.Flags)
		}
	})
	t.Run("renewal past the relay", func(t *testing.T) {
		via := dhcpv4.WithRelay(net.ParseIP("10.102.60.1"))
		gi, card := netip.MustParseAddrPort("10.102.60.1:67"), numbered(0x650)
		ack := w.askFrom(selecting(w.askFrom(discover(card, via), gi, server), via), gi, server)
		addr := netip.MustParseAddr(ack.YourIPAddr.String())
		h := w.askFrom(message(dhcpv4.MessageTypeRequest, card, dhcpv4.WithClientIP(ack.YourIPAddr)), netip.AddrPortFrom(addr, 68), server)
		if h.MessageType() != dhcpv4.MessageTypeAck || h.To != netip.AddrPortFrom(addr, 68) {
			t.Errorf("want an ACK to %s, got %s", addr, h)
		}
	})
}

// TestSharedSegment serves two networks on one segment without a relay: a machine gets the address that it has in either.
func TestSharedSegment(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.102.2")
	l.networks = "  second: {subnet: 10.102.70.0/24, interface: BRIDGE, address: 10.102.70.1, router: 10.102.70.254, pools: {phones: {range: 10.102.70.100-10.102.70.120, mac: [\"02:70:00:*:*:*\"]}}}\n"
	l.hosts = "  s0: {mac: \"52:54:00:00:00:31\", ip: 10.102.70.31}\n"
	l.write()
	netns.Run(t, "ip", "addr", "add", "10.102.70.1/24", "dev", l.seg.Bridge)
	d := start(t, l)
	w := d.machine(t, "52:54:00:00:ff:12").wire(t)
	for _, tt := range []struct{ name, mac, want, by, router string }{
		{"reserved in the first", "52:54:00:00:00:10", "10.102.2.10", "10.102.2.1", ""},
		{"reserved in the second", "52:54:00:00:00:31", "10.102.70.31", "10.102.70.1", "10.102.70.254"},
		{"an unknown machine", "02:00:00:00:00:01", "10.102.2.", "10.102.2.1", ""},
		{"one that only the second takes", "02:70:00:00:00:01", "10.102.70.1", "10.102.70.1", "10.102.70.254"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ack := w.bind(mac(tt.mac))
			var router string
			if r := ack.Router(); len(r) > 0 {
				router = r[0].String()
			}
			if !strings.HasPrefix(ack.YourIPAddr.String(), tt.want) || ack.ServerIdentifier().String() != tt.by || router != tt.router {
				t.Errorf("want %s… by %s, router %q; got %s, router %q", tt.want, tt.by, tt.router, ack, router)
			}
		})
	}
	// A machine that the lab moves to the other network gets a NAK, and then its address there.
	w.silent(rebooting(mac("02:00:00:00:00:02"), "10.99.99.99", func(p *dhcpv4.DHCPv4) { p.HopCount = 17 }), discover(mac("52:54:00:00:00:10")))
	if h := w.ask(rebooting(mac("52:54:00:00:00:31"), "10.102.2.31")); h.MessageType() != dhcpv4.MessageTypeNak {
		t.Errorf("an old address in the first network: got %s, want a NAK", h)
	}
}

// TestVLAN serves a tagged and an untagged network, to one machine with a NIC in each. Where the kernel has no 802.1Q, a second segment
// replaces the tag, under the name of a VLAN interface.
func TestVLAN(t *testing.T) {
	t.Parallel()
	netns.Need(t, "udhcpc", "arping")
	const card = "eth0.100"
	l := newLab(t, "10.102.3")
	srv := l.apart()
	l.networks = "  tagged: {subnet: 10.102.80.0/24, interface: eth0.100, address: 10.102.80.1, pools: {all: {range: 10.102.80.100-10.102.80.120}}}\n"
	l.write()
	m := &machine{Client: l.seg.NewClient(t, "52:54:00:00:01:40")}
	var wire *netns.Segment
	for _, c := range []*netns.Client{srv, m.Client} {
		if exec.Command("ip", "-n", c.Name, "link", "add", "link", "eth0", "name", card, "type", "vlan", "id", "100").Run() == nil {
			netns.Run(t, "ip", "-n", c.Name, "link", "set", card, "up")
			continue
		}
		if wire == nil {
			wire = netns.NewSegment(t, "10.102.80.254/24")
		}
		join(t, wire, &machine{Client: c}, card)
	}
	netns.Run(t, "ip", "-n", srv.Name, "addr", "add", "10.102.80.1/24", "dev", card)
	m.d = start(t, l)
	for card, want := range map[string]string{"eth0": "10.102.3.1", card: "10.102.80.1"} {
		if got := m.leaseOn(t, card); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, want %s…", card, got, want)
		}
	}
	if leases, err := m.d.client.Leases(t.Context()); err != nil || len(leases) != 2 {
		t.Errorf("%d leases, %v; want one in each network", len(leases), err)
	}
	if out, err := m.run("sh", "-c", "arping -c1 -w30 -I eth0 "+m.d.addr+" && arping -c1 -w30 -I "+card+" 10.102.80.1"); err != nil {
		t.Errorf("the addresses are of no use: %v\n%s", err, out)
	}
}
