package interop

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

// TestSixAddresses: a network whose only pool is six addresses for the MACs of libvirt, with a route to the IPMI network.
func TestSixAddresses(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.104.1")
	l.lan = `    router: NET.254
    pools:
      libvirt:
        range: NET.130-NET.135
        mac: ["52:54:00:*:*:*"]
        routes: [{to: 10.0.0.0/19, via: NET.101}]
`
	l.hosts = `  provisioner: {mac: "3c:fd:fe:00:00:01", ip: NET.20}
  master-0: {mac: "3c:fd:fe:00:00:02", ip: NET.21, routes: [{to: 10.0.0.0/19, via: NET.101}]}
  vm: {mac: "52:54:00:99:00:01", ip: NET.22}
`
	l.write()
	d := start(t, l)
	w := d.machine(t, "02:00:00:00:ff:30").wire(t)
	wants := dhcpv4.WithRequestedOptions(dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionClasslessStaticRoute)
	routes := func(h captured) string { return fmt.Sprint(h.ClasslessStaticRoute()) }
	const ipmi = "[route to 10.0.0.0/19 via 10.104.1.101 route to 0.0.0.0/0 via 10.104.1.254]"
	given := map[string]string{}
	for i := range 6 {
		card := mac(fmt.Sprintf("52:54:00:12:34:%02x", i))
		ack := w.bind(card, wants)
		given[ack.YourIPAddr.String()] = card.String()
		if routes(ack) != ipmi {
			t.Errorf("%s has routes %s, want %s", card, routes(ack), ipmi)
		}
	}
	for n := 130; n <= 135; n++ {
		if a := fmt.Sprintf("10.104.1.%d", n); given[a] == "" {
			t.Errorf("no machine has %s", a)
		}
	}
	probe := discover(mac("3c:fd:fe:00:00:01"), wants)
	w.silent(discover(mac("52:54:00:12:34:06"), wants), probe)
	w.silent(discover(mac("3c:fd:fe:00:00:99"), wants), probe)
	for _, tt := range []struct{ name, mac, addr, routes string }{
		{"reserved, no routes", "3c:fd:fe:00:00:01", "10.104.1.20", "[]"},
		{"reserved, with the route", "3c:fd:fe:00:00:02", "10.104.1.21", ipmi},
		{"reserved, of the prefix", "52:54:00:99:00:01", "10.104.1.22", "[]"},
	} {
		if ack := w.bind(mac(tt.mac), wants); ack.YourIPAddr.String() != tt.addr || routes(ack) != tt.routes {
			t.Errorf("%s: got %s with routes %s, want %s with %s", tt.name, ack.YourIPAddr, routes(ack), tt.addr, tt.routes)
		}
	}
	d.logged("dhcp_refused mac=52:54:00:12:34:06")
	t.Run("who has them", func(t *testing.T) {
		_, line, _ := strings.Cut(d.log.String(), "dhcp_refused mac=52:54:00:12:34:06")
		line, _, _ = strings.Cut(line, "\n")
		for _, card := range given {
			if !strings.Contains(line, card) {
				t.Errorf("%s is not named: %s", card, line)
			}
		}
	})
	t.Run("one comes free", func(t *testing.T) {
		ack := w.bind(mac("52:54:00:12:34:00"), wants)
		from := netip.AddrPortFrom(netip.MustParseAddr(ack.YourIPAddr.String()), 68)
		w.send(message(dhcpv4.MessageTypeRelease, ack.ClientHWAddr, dhcpv4.WithClientIP(ack.YourIPAddr), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(ack.ServerIdentifier()))), from, toServers)
		d.until("the address is free", func() bool { return d.holder(ack.YourIPAddr.String()) == "" })
		d.until("the seventh machine is offered it", func() bool {
			h, ok := w.tryFrom(discover(mac("52:54:00:12:34:06"), wants), newClient, toServers, time.Second)
			return ok && h.YourIPAddr.Equal(ack.YourIPAddr)
		})
	})
}

// TestPoolCriteria: a machine gets an address of the most specific pool that matches its options or its relay's.
func TestPoolCriteria(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.104.2")
	l.lan = `    pools:
      any: {range: NET.100-NET.109}
      prefix: {range: NET.110-NET.119, mac: ["52:54:01:*:*:*"]}
      longer: {range: NET.120-NET.129, mac: ["52:54:01:80:00:00/25"]}
      arm: {range: NET.130-NET.139, arch: uefi-arm64}
      http: {range: NET.140-NET.149, vendor_class: "HTTPClient*"}
      ipxe: {range: NET.150-NET.159, user_class: iPXE}
      port: {range: NET.160-NET.169, circuit_id: eth0/7, per_port: 2}
      switch: {range: NET.170-NET.179, remote_id: "sw-7*"}
      both: {range: NET.180-NET.189, circuit_id: "eth0/8", remote_id: "sw-7*"}
`
	l.write()
	d := start(t, l)
	m := d.machine(t, "02:00:00:00:ff:31", "10.104.2.2")
	w := m.wire(t)
	relayed := dhcpv4.WithRelay(net.ParseIP("10.104.2.2"))
	for i, tt := range []struct {
		name string
		mac  string // empty: any
		mods []dhcpv4.Modifier
		want int // first address of the pool
	}{
		{name: "nothing special", want: 100},
		{name: "a prefix", mac: "52:54:01:00:00:01", want: 110},
		{name: "a longer prefix, which ends inside a byte", mac: "52:54:01:80:00:01", want: 120},
		{name: "beside the longer prefix", mac: "52:54:01:7f:ff:ff", want: 110},
		{name: "ARM by PXE", mods: []dhcpv4.Modifier{with(60, "PXEClient:Arch:00011:UNDI:003000"), with(93, "\x00\x0b")}, want: 130},
		{name: "x64 by PXE", mods: []dhcpv4.Modifier{with(60, "PXEClient:Arch:00007:UNDI:003000"), with(93, "\x00\x07")}, want: 100},
		{name: "HTTP", mods: []dhcpv4.Modifier{with(60, "HTTPClient:Arch:00016:UNDI:003001"), with(93, "\x00\x10")}, want: 140},
		{name: "iPXE, which writes its class raw", mods: []dhcpv4.Modifier{with(77, "iPXE")}, want: 150},
		{name: "a class in a list (RFC 3004)", mods: []dhcpv4.Modifier{with(77, "\x03foo\x04iPXE")}, want: 150},
		{name: "port", mods: []dhcpv4.Modifier{relayed, agentInfo("\x01eth0/7")}, want: 160},
		{name: "switch", mods: []dhcpv4.Modifier{relayed, agentInfo("\x01eth0/9", "\x02sw-71")}, want: 170},
		{name: "port of the switch", mods: []dhcpv4.Modifier{relayed, agentInfo("\x01eth0/8", "\x02sw-71")}, want: 180},
	} {
		t.Run(tt.name, func(t *testing.T) {
			card := numbered(0x900 + i)
			if tt.mac != "" {
				card = mac(tt.mac)
			}
			offer := w.exchange(m, tt.mods, func() *dhcpv4.DHCPv4 { return discover(card, tt.mods...) })
			ack := w.exchange(m, tt.mods, func() *dhcpv4.DHCPv4 { return selecting(offer, tt.mods...) })
			if n := int(ack.YourIPAddr.To4()[3]); ack.MessageType() != dhcpv4.MessageTypeAck || n < tt.want || n > tt.want+9 {
				t.Errorf("want an address from .%d, got %s", tt.want, ack)
			}
		})
	}
	t.Run("two to a port", func(t *testing.T) {
		mods := []dhcpv4.Modifier{relayed, agentInfo("\x01eth0/7")} // which has one already
		second := w.exchange(m, mods, func() *dhcpv4.DHCPv4 { return discover(numbered(0x980), mods...) })
		w.exchange(m, mods, func() *dhcpv4.DHCPv4 { return selecting(second, mods...) })
		w.silent(discover(numbered(0x981), mods...), discover(mac("52:54:00:00:00:10")))
		d.logged("(per_port)")
	})
}

// exchange sends as a client, or with giaddr as the relay at the machine's address.
func (w *wire) exchange(m *machine, _ []dhcpv4.Modifier, p func() *dhcpv4.DHCPv4) captured {
	w.t.Helper()
	q := p()
	if q.GatewayIPAddr.IsUnspecified() {
		return w.ask(q)
	}
	gi, _ := netip.AddrFromSlice(q.GatewayIPAddr.To4())
	return w.askFrom(q, netip.AddrPortFrom(gi, 67), netip.MustParseAddrPort(m.d.addr+":67"))
}

// everywhere returns an option's value from all places that option 52 names (RFC 3396 section 5).
func (h captured) everywhere(code byte) []byte {
	var value []byte
	over := byte(0)
	if v := h.Options.Get(dhcpv4.OptionOptionOverload); len(v) == 1 {
		over = v[0]
	}
	areas := [][]byte{h.raw[240:]}
	if over&1 != 0 {
		areas = append(areas, h.raw[108:236])
	}
	if over&2 != 0 {
		areas = append(areas, h.raw[44:108])
	}
	for _, b := range areas {
		for len(b) > 0 && b[0] != 255 {
			if b[0] == 0 {
				b = b[1:]
				continue
			}
			n := int(b[1])
			if b[0] == code {
				value = append(value, b[2:2+n]...)
			}
			b = b[2+n:]
		}
	}
	return value
}

// TestOptions checks the bytes of options against their RFCs, for each kind of client.
func TestOptions(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.104.3")
	l.lan = `    router: NET.254
    search: [lab.test, deep.lab.test]
    ntp: [NET.3, NET.4]
    mtu: 9000
    lease: 1h
    routes: [{to: 10.0.0.0/19, via: NET.101}]
    options: {"150": NET.9, "43": "hex:0104c0a81001", "224": "text:hello"}
`
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf("{to: 10.77.%d.0/24, via: NET.101}", i))
	}
	l.hosts = "  far: {mac: \"52:54:00:00:00:50\", ip: NET.50, routes: [" + strings.Join(many, ", ") + "]}\n"
	l.write()
	d := start(t, l)
	w := d.machine(t, "02:00:00:00:ff:32").wire(t)
	const routes = "\x13\x0a\x00\x00\x0a\x68\x03\x65\x00\x0a\x68\x03\xfe"
	everything := []byte{1, 3, 6, 12, 15, 26, 28, 42, 43, 51, 54, 58, 59, 119, 121, 150, 224, 249}
	for _, tt := range []struct {
		name string
		mods []dhcpv4.Modifier
		want map[uint8]string
	}{
		{"all that there is", []dhcpv4.Modifier{with(55, string(everything)), with(57, "\x05\xdc")}, map[uint8]string{
			1: "\xff\xff\xff\x00", 3: quad("10.104.3.254"), 6: quad("10.104.3.1"), 12: "w0", 15: "lab.test", 26: "\x23\x28", 28: quad("10.104.3.255"),
			42: quad("10.104.3.3") + quad("10.104.3.4"), 43: "\x01\x04\xc0\xa8\x10\x01", 51: "\x00\x00\x0e\x10", 54: quad("10.104.3.1"),
			58: "\x00\x00\x07\x08", 59: "\x00\x00\x0c\x4e", 119: "\x03lab\x04test\x00\x04deep\xc0\x00", 121: routes, 249: routes,
			150: quad("10.104.3.9"), 224: "hello",
		}},
		{"a short list", []dhcpv4.Modifier{with(55, "\x01\x79")}, map[uint8]string{1: "\xff\xff\xff\x00", 121: routes, 26: "", 42: "", 119: "", 249: ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ack := w.bind(mac("52:54:00:00:00:10"), tt.mods...)
			got := map[uint8]string{}
			for code := range tt.want {
				got[code] = string(ack.Options.Get(dhcpv4.GenericOptionCode(code)))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	t.Run("a value longer than an option (RFC 3396)", func(t *testing.T) {
		ack := w.bind(mac("52:54:00:00:00:50"), with(55, "\x01\x79"), with(57, "\x05\xdc"))
		if got := ack.ClasslessStaticRoute(); len(got) != 41 || got[39].String() != "route to 10.77.39.0/24 via 10.104.3.101" {
			t.Errorf("%d routes, want 41: %v", len(got), got)
		}
	})
	t.Run("nothing is asked for", func(t *testing.T) {
		ack := w.bind(mac("52:54:00:00:00:10"))
		for _, code := range []uint8{1, 3, 6, 51, 54} {
			if !ack.Options.Has(dhcpv4.GenericOptionCode(code)) {
				t.Errorf("option %d is missing", code)
			}
		}
	})
	t.Run("a small client", func(t *testing.T) {
		ack := w.bind(mac("52:54:00:00:00:10"), with(55, string(everything)), with(57, "\x02\x40"))
		if ack.Size > 576-28 {
			t.Errorf("%d bytes for a client that takes 576 in all", ack.Size)
		}
		for _, code := range []uint8{1, 3, 6, 51, 53, 54, 58, 59, 121} {
			if !ack.Options.Has(dhcpv4.GenericOptionCode(code)) {
				t.Errorf("option %d was left out", code)
			}
		}
	})
	t.Run("overload of one long value", func(t *testing.T) {
		ack := w.bind(mac("52:54:00:00:00:50"), with(55, "\x01\x79"), with(57, "\x02\x40"))
		if routes := ack.everywhere(121); len(routes) != 40*8+5 || ack.Size > 576-28 {
			t.Errorf("%d bytes of routes in a message of %d bytes, want all %d", len(routes), ack.Size, 40*8+5)
		}
	})
	t.Run("overload", func(t *testing.T) {
		l.lan = "    options: {"
		var want []byte
		for code := byte(224); code < 230; code++ {
			l.lan += fmt.Sprintf("\"%d\": \"text:%s\", ", code, strings.Repeat(string(rune('a'+code-224)), 50))
			want = append(want, code)
		}
		l.lan += "\"230\": \"text:end\"}\n"
		l.write()
		if err := d.reload(); err != nil {
			t.Fatal(err)
		}
		ack := w.bind(mac("52:54:00:00:00:11"), with(55, string(want)), with(57, "\x02\x40"))
		for _, code := range want {
			if v := ack.everywhere(code); len(v) != 50 {
				t.Errorf("option %d has %d bytes, want 50", code, len(v))
			}
		}
		if v := ack.Options.Get(dhcpv4.OptionOptionOverload); len(v) != 1 || ack.Size > 576-28 {
			t.Errorf("option 52 is %x, and the message has %d bytes", v, ack.Size)
		}
	})
	for _, tt := range []struct {
		name string
		code uint8
		lab  string
		mods []dhcpv4.Modifier
		want string
	}{
		{"81: the server does no updates for the client (RFC 4702)", 81, "", []dhcpv4.Modifier{with(81, "\x05\x00\x00\x02w0\x03lab\x04test\x00")}, "\x07\xff\xff\x02w0\x03lab\x04test\x00"},
		{"108: IPv6-only (RFC 8925)", 108, `"108": "u32:1800"`, []dhcpv4.Modifier{with(55, "\x6c")}, "\x00\x00\x07\x08"},
		{"a long value of the lab's author (RFC 3396)", 225, `"225": "hex:` + strings.Repeat("ab", 300) + `"`, []dhcpv4.Modifier{with(55, "\xe1"), with(57, "\x05\xdc")}, strings.Repeat("\xab", 300)},
		{"114: captive portal (RFC 8910)", 114, `"114": "text:https://portal.lab.test/api"`, []dhcpv4.Modifier{with(55, "\x72")}, "https://portal.lab.test/api"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.lab != "" {
				l.lan = "    options: {" + tt.lab + "}\n"
				l.write()
				if err := d.reload(); err != nil {
					t.Fatal(err)
				}
			}
			ack := w.bind(mac("52:54:00:00:00:10"), tt.mods...)
			if got := string(ack.Options.Get(dhcpv4.GenericOptionCode(tt.code))); len(got) < 4 || (tt.code != 81 && got != tt.want) || (tt.code == 81 && got[3:] != tt.want[3:]) {
				t.Errorf("option %d is %q, want %q", tt.code, got, tt.want)
			}
		})
	}
}
