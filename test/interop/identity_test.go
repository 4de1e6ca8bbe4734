package interop

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/test/support/netns"
)

// stages are the client identifiers that one machine uses in one boot, in order.
func stages(card net.HardwareAddr) []struct {
	name string
	mods []dhcpv4.Modifier
} {
	return []struct {
		name string
		mods []dhcpv4.Modifier
	}{
		{"the ROM", []dhcpv4.Modifier{with(60, "PXEClient:Arch:00000:UNDI:002001"), with(93, "\x00\x00"), with(97, "\x00 a machine's id.")}},
		{"iPXE", []dhcpv4.Modifier{with(61, "\x01"+string(card)), with(60, "PXEClient:Arch:00000:UNDI:002001"), with(77, "iPXE"), with(175, "\xb1\x01\x01")}},
		{"the initramfs", []dhcpv4.Modifier{with(61, "\xff\x00\x00\x00\x01\x00\x01\x00\x01\x2a\x00\x00\x00"+string(card)), with(60, "dracut")}},
		{"the system", []dhcpv4.Modifier{with(61, "\xff\x33\x22\x11\x00\x00\x02\x00\x00\xab\x11\x01\x02\x03\x04\x05\x06\x07\x08"), with(12, "node")}},
	}
}

// TestOneMachineManyClientIDs: a server that keyed leases by client identifier would lease four addresses to one machine.
func TestOneMachineManyClientIDs(t *testing.T) {
	t.Parallel()
	d := start(t, newLab(t, "10.103.1"))
	w := d.machine(t, "52:54:00:00:ff:20").wire(t)
	for _, tt := range []struct{ name, mac, want string }{{"reservation", "52:54:00:00:00:10", "10.103.1.10"}, {"pool", "52:54:00:00:02:01", "10.103.1."}} {
		t.Run(tt.name, func(t *testing.T) {
			want := tt.want
			for _, s := range stages(mac(tt.mac)) {
				ack := w.bind(mac(tt.mac), s.mods...)
				got := ack.YourIPAddr.String()
				if !strings.HasPrefix(got, want) {
					t.Errorf("%s got %s, want %s", s.name, got, want)
				}
				want = got
				asked := message(dhcpv4.MessageTypeDiscover, mac(tt.mac), s.mods...)
				if diff := cmp.Diff(asked.Options.Get(dhcpv4.OptionClientIdentifier), ack.Options.Get(dhcpv4.OptionClientIdentifier)); diff != "" {
					t.Errorf("%s: client identifier is not echoed (RFC 6842) (-asked +answered)\n%s", s.name, diff)
				}
			}
		})
	}
	if leases, err := d.client.Leases(t.Context()); err != nil || len(leases) != 2 {
		t.Errorf("%d leases, %v; want one for each machine", len(leases), err)
	}
}

// TestHostFromAPool: a host without an address in the lab file still has its name there, by DHCP and by DNS.
func TestHostFromAPool(t *testing.T) {
	t.Parallel()
	netns.Need(t, "dig")
	l := newLab(t, "10.103.6")
	l.hosts = "  printer: {mac: \"52:54:00:00:00:40\", aliases: [lp]}\n"
	l.write()
	d := start(t, l)
	ack := d.machine(t, "52:54:00:00:ff:25").wire(t).bind(mac("52:54:00:00:00:40"), with(12, "NPI1234"), with(55, "\x01\x0c"))
	if got := ack.HostName(); got != "printer" {
		t.Errorf("it gets the host name %q", got)
	}
	for question, want := range map[string]string{"printer.lab.test": ack.YourIPAddr.String(), "lp.lab.test": ack.YourIPAddr.String(), "npi1234.lab.test": "", "-x" + ack.YourIPAddr.String(): "printer.lab.test."} {
		out, err := exec.Command("dig", append([]string{"+short", "@" + d.addr}, strings.SplitAfter(question, "-x")...)...).CombinedOutput()
		if got := strings.TrimSpace(string(out)); got != want || err != nil {
			t.Errorf("dig %s: %q, %v; want %q", question, got, err, want)
		}
	}
}

// TestWithoutDNS: where another name server has port 53 of the appliance, dnsd is off, and no lease names the appliance as a name server.
func TestWithoutDNS(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.103.7")
	l.replace(strings.Replace(l.text(), `dns: "10.103.7.1:53"`, "dns: off", 1))
	theirs, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(10, 103, 7, 1), Port: 53})
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	d := start(t, l)
	ack := d.machine(t, "52:54:00:00:ff:26").wire(t).bind(mac("52:54:00:00:00:10"), with(55, "\x01\x03\x06"))
	if v := ack.Options.Get(dhcpv4.OptionDomainNameServer); v != nil {
		t.Errorf("it gets the name servers % x", v)
	}
	for _, s := range d.status().Servers {
		if s.Name == "dnsd" && (len(s.Addrs) > 0 || !s.Serving) {
			t.Errorf("dnsd reports %+v", s)
		}
	}
}

// TestWithoutTFTP: where another TFTP server has port 69 of the appliance, tftpd is off, and no lease names a boot file for TFTP.
func TestWithoutTFTP(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.103.8")
	l.replace(strings.Replace(l.text(), `tftp: "10.103.8.1:69"`, "tftp: off", 1))
	theirs, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(10, 103, 8, 1), Port: 69})
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	d := start(t, l)
	d.until("tftpd is ready, on no address", func() bool {
		return slices.ContainsFunc(d.status().Servers, func(s api.Server) bool {
			return s.Name == "tftpd" && s.Serving && len(s.Addrs) == 0
		})
	})
}

// TestTwoNICsOfOneHost: a host boots from either NIC with one address, and neither gets a NAK.
func TestTwoNICsOfOneHost(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.103.2")
	l.hosts = "  two: {mac: [\"52:54:00:00:00:41\", \"52:54:00:00:00:42\"], ip: NET.41}\n"
	l.write()
	d := start(t, l)
	w := d.machine(t, "52:54:00:00:ff:21").wire(t)
	for round := range 2 {
		for _, card := range []string{"52:54:00:00:00:41", "52:54:00:00:00:42"} {
			if ack := w.bind(mac(card)); ack.YourIPAddr.String() != "10.103.2.41" {
				t.Errorf("round %d: %s got %s, want 10.103.2.41", round, card, ack.YourIPAddr)
			}
			// A reserved address may be acknowledged before its lease is on disk.
			netns.WaitFor(t, fmt.Sprintf("round %d: the lease book has the address for %s, which just got it", round, card), func() bool { return d.holder("10.103.2.41") == card })
		}
	}
}

// TestOffersAreHeld: an offered address is not offered to another machine as long as the pool has others, and requested by another it
// is refused. Then the oldest offer that nobody took up is made again, and the first machine that requests the address has it.
func TestOffersAreHeld(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.103.3")
	l.lan = "    pools: {three: {range: NET.100-NET.102}}\n"
	l.write()
	d := start(t, l)
	w := d.machine(t, "52:54:00:00:ff:22").wire(t)
	a, b := w.ask(discover(numbered(1))), w.ask(discover(numbered(2)))
	thief := selecting(a)
	thief.ClientHWAddr = numbered(9)
	if h := w.ask(thief); h.MessageType() != dhcpv4.MessageTypeNak {
		t.Errorf("a machine requests what is offered to another: want a NAK, got %s", h)
	}
	c := w.ask(discover(numbered(3)))
	if a.YourIPAddr.Equal(b.YourIPAddr) || a.YourIPAddr.Equal(c.YourIPAddr) || b.YourIPAddr.Equal(c.YourIPAddr) {
		t.Fatalf("offered to three machines: %s, %s, %s", a.YourIPAddr, b.YourIPAddr, c.YourIPAddr)
	}
	e := w.ask(discover(numbered(4)))
	if !e.YourIPAddr.Equal(a.YourIPAddr) {
		t.Errorf("the pool is used up: a fourth machine is offered %s, want the oldest offer %s", e.YourIPAddr, a.YourIPAddr)
	}
	for _, offer := range []captured{c, e, b} {
		if h := w.ask(selecting(offer)); h.MessageType() != dhcpv4.MessageTypeAck || !h.YourIPAddr.Equal(offer.YourIPAddr) {
			t.Errorf("want an ACK of %s, got %s", offer.YourIPAddr, h)
		}
	}
	if h := w.ask(selecting(a)); h.MessageType() != dhcpv4.MessageTypeNak {
		t.Errorf("the address has another machine meanwhile: want a NAK, got %s", h)
	}
	w.silent(discover(numbered(1)), discover(mac("52:54:00:00:00:10")))
	if again := w.ask(discover(numbered(4))); !again.YourIPAddr.Equal(e.YourIPAddr) {
		t.Errorf("a machine that has %s is offered %s", e.YourIPAddr, again.YourIPAddr)
	}
}

// TestWhenToRefuse: a NAK makes a machine start its boot again, so it must be right; without an answer it keeps waiting.
func TestWhenToRefuse(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.103.4")
	l.lan = "    pools: {two: {range: NET.100-NET.101, mac: [\"52:54:aa:*:*:*\"]}}\n"
	l.write()
	d := start(t, l)
	w := d.machine(t, "52:54:00:00:ff:23").wire(t)
	reserved, unknown, pooled, other := mac("52:54:00:00:00:10"), mac("02:00:00:00:00:01"), numbered(1), numbered(2)
	held := w.bind(pooled)
	w.own(held.YourIPAddr.String(), pooled, nil)
	notHeld := map[bool]string{true: "10.103.4.101", false: "10.103.4.100"}[held.YourIPAddr.String() == "10.103.4.100"]
	at := func(a string) dhcpv4.Modifier { return dhcpv4.WithClientIP(net.ParseIP(a)) }
	for _, tt := range []struct {
		name string
		p    *dhcpv4.DHCPv4
		want dhcpv4.MessageType // none: silence
	}{
		{"INIT-REBOOT with the reserved address", rebooting(reserved, "10.103.4.10"), dhcpv4.MessageTypeAck},
		{"INIT-REBOOT with another address", rebooting(reserved, "10.103.4.99"), dhcpv4.MessageTypeNak},
		{"INIT-REBOOT with an address of another network", rebooting(reserved, "192.0.2.7"), dhcpv4.MessageTypeNak},
		{"INIT-REBOOT of an unknown machine with an address of another network", rebooting(unknown, "192.0.2.7"), dhcpv4.MessageTypeNak},
		{"INIT-REBOOT of a unknown, who may be another server's", rebooting(unknown, "10.103.4.77"), dhcpv4.MessageTypeNone},
		{"INIT-REBOOT with another's lease", rebooting(other, held.YourIPAddr.String()), dhcpv4.MessageTypeNak},
		{"INIT-REBOOT with a free address, of a machine with a lease", rebooting(pooled, notHeld), dhcpv4.MessageTypeNak},
		{"SELECTING a free address that was not offered, of a machine with a lease", message(dhcpv4.MessageTypeRequest, pooled, with(50, quad(notHeld)), with(54, quad("10.103.4.1"))), dhcpv4.MessageTypeNak},
		{"REBINDING a free address, of a machine with a lease", message(dhcpv4.MessageTypeRequest, pooled, at(notHeld)), dhcpv4.MessageTypeNak},
		{"INIT-REBOOT with a free address of the pool, of a machine that never had one", rebooting(other, notHeld), dhcpv4.MessageTypeNone},
		{"RENEWING", message(dhcpv4.MessageTypeRequest, pooled, at(held.YourIPAddr.String())), dhcpv4.MessageTypeAck},
		{"RENEWING another's lease", message(dhcpv4.MessageTypeRequest, reserved, at(held.YourIPAddr.String())), dhcpv4.MessageTypeNak},
		{"REBINDING of a unknown, who may be another server's", message(dhcpv4.MessageTypeRequest, unknown, at("10.103.4.77")), dhcpv4.MessageTypeNone},
		{"SELECTING another server", message(dhcpv4.MessageTypeRequest, reserved, with(50, quad("10.103.4.10")), with(54, quad("10.103.4.9"))), dhcpv4.MessageTypeNone},
		{"DISCOVER of an unknown machine", discover(unknown), dhcpv4.MessageTypeNone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.want == dhcpv4.MessageTypeNone {
				w.silent(tt.p, discover(mac("52:54:00:00:00:11")))
				return
			}
			from := newClient
			if a, ok := netip.AddrFromSlice(tt.p.ClientIPAddr.To4()); ok && !a.IsUnspecified() {
				from = netip.AddrPortFrom(a, 68)
			}
			h := w.askFrom(tt.p, from, toServers)
			if h.MessageType() != tt.want {
				t.Errorf("want %s, got %s", tt.want, h)
			}
			if tt.want == dhcpv4.MessageTypeNak && (h.To.String() != "255.255.255.255:68" || !h.YourIPAddr.IsUnspecified()) {
				t.Errorf("a NAK is broadcast and assigns nothing (RFC 2131 table 3), got %s", h)
			}
		})
	}
	t.Run("a client that says everything twice", func(t *testing.T) {
		mark := w.mark()
		offer := w.ask(discover(pooled))
		for range 2 {
			w.send(selecting(offer), newClient, toServers)
			w.send(discover(pooled), newClient, toServers)
		}
		acks := 0
		for acks < 2 {
			var h captured
			if h, mark = w.await("both answers", mark, patience, func(h captured) bool { return h.OpCode == dhcpv4.OpcodeBootReply }); h.MessageType() == dhcpv4.MessageTypeAck {
				acks++
			} else if h.MessageType() == dhcpv4.MessageTypeNak {
				t.Fatalf("a concurrent client is refused: %s", h)
			}
		}
	})
}

// TestAddressing checks destination, source and framing of replies against RFC 2131 section 4.1.
func TestAddressing(t *testing.T) {
	t.Parallel()
	d := start(t, newLab(t, "10.103.5"))
	w := d.machine(t, "52:54:00:00:ff:24").wire(t)
	card, addr := mac("52:54:00:00:00:10"), "10.103.5.10"
	w.own(addr, card, nil)
	broadcast, everywhere := dhcpv4.WithBroadcast(true), "255.255.255.255:68"
	for _, tt := range []struct {
		name     string
		p        *dhcpv4.DHCPv4
		from, to string
		eth      net.HardwareAddr
	}{
		{"a client without an address", discover(card), "0.0.0.0:68", addr + ":68", card},
		{"one that cannot receive unicast", discover(card, broadcast), "0.0.0.0:68", everywhere, broadcastMAC},
		{"one that renews", message(dhcpv4.MessageTypeRequest, card, dhcpv4.WithClientIP(net.ParseIP(addr))), addr + ":68", addr + ":68", card},
		{"one that rebinds and has the flag", message(dhcpv4.MessageTypeRequest, card, dhcpv4.WithClientIP(net.ParseIP(addr)), broadcast), addr + ":68", addr + ":68", card},
		{"INFORM", message(dhcpv4.MessageTypeInform, card, dhcpv4.WithClientIP(net.ParseIP(addr))), addr + ":68", addr + ":68", card},
		{"INFORM by an unknown machine with a static address", message(dhcpv4.MessageTypeInform, mac("02:00:00:00:00:09"), dhcpv4.WithClientIP(net.ParseIP(addr))), addr + ":68", addr + ":68", card},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := w.askFrom(tt.p, netip.MustParseAddrPort(tt.from), toServers)
			if h.To.String() != tt.to || h.Eth.String() != tt.eth.String() || h.From.String() != d.addr+":67" {
				t.Errorf("want the answer from %s:67 to %s (%s), got %s", d.addr, tt.to, tt.eth, h)
			}
			if tt.p.MessageType() == dhcpv4.MessageTypeInform {
				if h.MessageType() != dhcpv4.MessageTypeAck || !h.YourIPAddr.IsUnspecified() || h.Options.Has(dhcpv4.OptionIPAddressLeaseTime) || h.SubnetMask() == nil {
					t.Errorf("INFORM wants options but no lease (RFC 2131 section 4.3.5), got %s\n%s", h, h.Summary())
				}
			}
			if h.Size < 300 {
				t.Errorf("%d bytes; BOOTP wants 300 (RFC 1542 section 2.1)", h.Size)
			}
		})
	}
}

// TestDecline: another machine answers ARP for an address, but only to the client, as behind a firewall. The client declines the address
// and gets another one.
func TestDecline(t *testing.T) {
	t.Parallel()
	for i, p := range []program{decliningUdhcpc(), decliningDhcpcd()} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			netns.Need(t, p.needs...)
			l := newLab(t, fmt.Sprintf("10.103.%d", 10+i))
			l.lan = "    pools: {two: {range: NET.100-NET.101}}\n"
			l.write()
			d := start(t, l)
			const card = "52:54:00:00:03:01"
			m := d.machine(t, card)
			w, conflicting := m.wire(t), d.machine(t, "52:54:00:00:ff:25").wire(t)
			r := m.runs(t, p)
			for _, addr := range []string{".100", ".101"} { // whichever it is offered
				conflicting.own(l.net+addr, conflicting.hw, mac(card))
			}
			r.start()
			ack, mark := w.await("the first address", 0, patience, func(h captured) bool { return h.MessageType() == dhcpv4.MessageTypeOffer })
			first := ack.YourIPAddr.String()
			conflicting.leave(map[string]string{l.net + ".100": l.net + ".101", l.net + ".101": l.net + ".100"}[first])
			_, mark = w.await("DECLINE", mark, patience, func(h captured) bool {
				return h.MessageType() == dhcpv4.MessageTypeDecline && h.RequestedIPAddress().String() == first
			})
			again, _ := w.await("another address", mark, patience, func(h captured) bool { return h.MessageType() == dhcpv4.MessageTypeAck })
			if again.YourIPAddr.String() == first {
				t.Errorf("%s is offered again", first)
			}
			d.until("the declined address is logged", func() bool { return strings.Contains(regexpLine(d.log.String(), "dhcp_decline"), "addr="+first) })
			d.until("the address is shown as quarantined, not as leased", func() bool { return d.holder(first) == "" })
			// No machine gets it: the pool has no other.
			probe := d.machine(t, "52:54:00:00:ff:26").wire(t)
			probe.silent(discover(numbered(7)), discover(mac("52:54:00:00:00:10")))
		})
	}
}

func decliningUdhcpc() program {
	return program{
		name: "udhcpc", needs: []string{"udhcpc", "busybox"}, config: "#!/bin/sh\nexec /etc/udhcpc/default.script \"$@\"\n", prepare: "chmod 755 DIR/conf",
		command: "exec udhcpc -f -a -i eth0 -s DIR/conf -t 10 -T 1 -A 1",
	}
}

func decliningDhcpcd() program {
	p := programs()[2]
	p.config = strings.Replace(p.config, "noarp\n", "", 1)
	return p
}
