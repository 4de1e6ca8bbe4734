package dhcpd

import (
	"errors"
	"flag"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/golden"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

var update = flag.Bool("update", false, "rewrite golden files")

const (
	master0 = "52:54:00:00:02:01" // reserved 10.77.0.21, with a profile
	second0 = "52:54:00:00:02:02" // the same machine's other NIC
	master1 = "52:54:00:00:02:03" // reserved 10.77.0.131, with own routes and options
	bare    = "52:54:00:00:00:09" // reserved, nothing to boot
	pooled  = "52:54:00:aa:bb:01" // pool bootstrap, which boots a profile
	other   = "02:00:00:00:00:07" // pool guests
	besideH = "52:54:00:00:09:01" // in the proxied network
	farHost = "52:54:00:00:78:01" // in the relayed network
	client0 = "0.0.0.0:68"
)

// TestReplies holds the whole reply for each kind of client, as text.
func TestReplies(t *testing.T) {
	t.Parallel()
	const (
		disc = dhcpv4.MessageTypeDiscover
		req  = dhcpv4.MessageTypeRequest
		inf  = dhcpv4.MessageTypeInform
	)
	selecting := func(a string) []dhcpv4.Modifier { return []dhcpv4.Modifier{withRequested(a), withServer("10.77.0.1")} }
	for _, tc := range []struct {
		name  string
		kind  dhcpv4.MessageType
		mac   string
		who   client
		more  []dhcpv4.Modifier
		iface string
		port  uint16
		from  string
		setup func(*bench)
	}{
		{name: "ovmf-discover", kind: disc, mac: master0, who: ovmf},
		{name: "ovmf-request", kind: req, mac: master0, who: ovmf, more: selecting("10.77.0.21")},
		{name: "ovmf-http-discover", kind: disc, mac: master0, who: ovmfHTTP},
		{name: "bios-discover", kind: disc, mac: master0, who: bios},
		{name: "ipxe-discover", kind: disc, mac: master0, who: ipxe},
		{name: "ipxe-request", kind: req, mac: master0, who: ipxe, more: selecting("10.77.0.21")},
		{name: "installer-request", kind: req, mac: master0, who: debianInstaller, more: selecting("10.77.0.21")},
		{name: "networkd-request", kind: req, mac: master0, who: networkd, more: selecting("10.77.0.21")},
		{name: "second-nic", kind: disc, mac: second0, who: udhcpc},
		{name: "own-routes-and-options", kind: disc, mac: master1, who: networkd},
		{name: "no-profile", kind: disc, mac: bare, who: ovmf},
		{name: "pool-with-profile-ipxe", kind: disc, mac: pooled, who: ipxe},
		{name: "pool-with-routes", kind: disc, mac: pooled, who: networkd},
		{name: "pool-anyone", kind: disc, mac: other, who: udhcpc},
		{name: "nak-wrong-network", kind: req, mac: master0, who: dhclient, more: []dhcpv4.Modifier{withRequested("192.168.1.5")}},
		{name: "nak-not-the-reserved", kind: req, mac: master0, who: dhclient, more: []dhcpv4.Modifier{withRequested("10.77.0.99")}},
		{name: "renew-unicast", kind: req, mac: master0, who: networkd, more: []dhcpv4.Modifier{withCiaddr("10.77.0.21")}, from: "10.77.0.21:68"},
		{name: "inform", kind: inf, mac: other, who: dhclient, more: []dhcpv4.Modifier{withCiaddr("10.77.0.77")}, from: "10.77.0.77:68"},
		{name: "port-4011", kind: req, mac: master0, who: ovmf, more: []dhcpv4.Modifier{withCiaddr("10.77.0.21")}, port: 4011, from: "10.77.0.21:4011"},
		{name: "relay", kind: disc, mac: other, who: udhcpc, more: []dhcpv4.Modifier{
			withGiaddr("10.78.0.254"), raw(82, "\x01\x04port\x02\x02sw"),
		}, from: "10.78.0.254:67"},
		{name: "relay-ipxe", kind: disc, mac: farHost, who: ipxe, more: []dhcpv4.Modifier{withGiaddr("10.78.0.254")}, from: "10.78.0.254:67"},
		{name: "relay-ipxe-any-interface", kind: disc, mac: farHost, who: ipxe, iface: "any", more: []dhcpv4.Modifier{
			withGiaddr("10.78.0.254"),
		}, from: "10.78.0.254:67"},
		{name: "relay-link-selection-and-port", kind: disc, mac: other, who: udhcpc, more: []dhcpv4.Modifier{
			withGiaddr("192.0.2.1"), raw(82, "\x05\x04\x0a\x4e\x00\x00\x0b\x04\xc0\x00\x02\x09\x13\x00"),
		}, from: "192.0.2.1:1067"},
		{name: "relay-subnet-option", kind: disc, mac: other, who: udhcpc, more: []dhcpv4.Modifier{
			withGiaddr("192.0.2.1"), raw(118, "\x0a\x4e\x00\x00"),
		}, from: "192.0.2.1:67"},
		{name: "relay-nak", kind: req, mac: other, who: udhcpc, more: []dhcpv4.Modifier{
			withGiaddr("10.78.0.254"), withRequested("10.77.0.5"),
		}, from: "10.78.0.254:67"},
		{name: "proxy-ovmf", kind: disc, mac: besideH, who: ovmf, iface: "lab1"},
		{name: "pool-host-without-address", kind: disc, mac: "02:00:00:00:77:01", who: ovmf},
		{name: "proxy-host-without-address", kind: disc, mac: "52:54:00:00:09:02", who: ovmf, iface: "lab1"},
		// Trap 2 of the facts: shim takes the folder of its GRUB from the header's field alone.
		{name: "secure-boot", kind: disc, mac: "52:54:00:00:02:30", who: ovmf},
		{name: "secure-boot-http", kind: disc, mac: "52:54:00:00:02:30", who: ovmfHTTP},
		{name: "raspberry-pi-3", kind: disc, mac: pi3, who: raspberry3},
		{name: "raspberry-pi-4-proxy", kind: disc, mac: piProxy, who: raspberry4, iface: "lab1"},
		{name: "proxy-ipxe", kind: disc, mac: besideH, who: ipxe, iface: "lab1"},
		{name: "proxy-http", kind: disc, mac: besideH, who: ovmfHTTP, iface: "lab1"},
		{name: "proxy-4011", kind: req, mac: besideH, who: ovmf, iface: "lab1", port: 4011, more: []dhcpv4.Modifier{withCiaddr("10.79.0.50")}, from: "10.79.0.50:4011"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if tc.setup != nil {
				tc.setup(b)
			}
			switch tc.iface {
			case "":
				tc.iface = "lab0"
			case "any":
				tc.iface = ""
			}
			if tc.port == 0 {
				tc.port = 67
			}
			if tc.from == "" {
				tc.from = client0
			}
			out := b.exchange(tc.iface, tc.port, tc.from, message(t, tc.kind, mac(t, tc.mac), tc.who, tc.more...))
			if len(out) != 1 {
				t.Fatalf("%d replies, want 1", len(out))
			}
			golden.Check(t, update, "testdata/"+tc.name+".txt", text(t, out[0]))
		})
	}
}

// TestRelayed: whether a client is on the segment where its packet came in, and can be found there by ARP.
func TestRelayed(t *testing.T) {
	t.Parallel()
	networks := map[string]*lab.Network{
		"on lab0":     {Interface: "lab0", Subnet: netip.MustParsePrefix("10.77.0.0/24"), Address: ip("10.77.0.1")},
		"past lab0":   {Interface: "lab0", Subnet: netip.MustParsePrefix("10.78.0.0/24"), Address: ip("10.77.0.1")},
		"past a port": {Subnet: netip.MustParsePrefix("10.79.0.0/24"), Address: ip("10.77.0.1")},
	}
	for _, tt := range []struct {
		network, iface, giaddr string
		want                   bool
	}{
		{"on lab0", "lab0", "", false},
		{"on lab0", "lab0", "10.77.0.254", true},
		{"on lab0", "lab1", "", true}, // a renewal
		{"past lab0", "lab0", "", true},
		{"past a port", "lab0", "", true},
		{"past a port", "", "", true},
	} {
		x := &exchange{iface: tt.iface, scope: &scope{network: networks[tt.network]}}
		x.req.GIAddr, _ = netip.ParseAddr(tt.giaddr)
		if got := x.relayed(); got != tt.want {
			t.Errorf("a packet of a machine %s, by %q, giaddr %q: relayed %v", tt.network, tt.iface, tt.giaddr, got)
		}
	}
}

// TestSilence: packets that must get no answer.
func TestSilence(t *testing.T) {
	t.Parallel()
	const disc, req = dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest
	for _, tc := range []struct {
		name  string
		iface string
		port  uint16
		data  func(t *testing.T) []byte
		kinds []event.Kind
	}{
		{name: "an unknown machine", iface: "lab0", data: func(t *testing.T) []byte {
			return message(t, disc, mac(t, "52:54:00:00:09:01"), ovmf, withGiaddr("10.80.0.1"))
		}},
		{name: "an unknown interface", iface: "eth9", kinds: []event.Kind{event.DHCPRefused}, data: func(t *testing.T) []byte { return message(t, disc, mac(t, master0), ovmf) }},
		{name: "an unknown relay", iface: "lab0", kinds: []event.Kind{event.DHCPRefused}, data: func(t *testing.T) []byte {
			return message(t, disc, mac(t, master0), ovmf, withGiaddr("172.16.0.1"))
		}},
		{name: "the offer of a rogue server selected", iface: "lab0", kinds: []event.Kind{event.DHCPRogueServerChosen}, data: func(t *testing.T) []byte {
			return message(t, req, mac(t, master0), ovmf, withRequested("10.77.0.50"), withServer("10.77.0.66"))
		}},
		{name: "no message type", iface: "lab0", data: func(t *testing.T) []byte {
			return message(t, disc, mac(t, master0), nil, dhcpv4.WithoutOption(dhcpv4.OptionDHCPMessageType))
		}},
		{name: "a reply", iface: "lab0", data: func(t *testing.T) []byte {
			return message(t, disc, mac(t, master0), nil, func(d *dhcpv4.DHCPv4) { d.OpCode = dhcpv4.OpcodeBootReply })
		}},
		{name: "too many relays", iface: "lab0", data: func(t *testing.T) []byte {
			return message(t, disc, mac(t, master0), nil, func(d *dhcpv4.DHCPv4) { d.HopCount = 17 })
		}},
		{name: "a group address", iface: "lab0", data: func(t *testing.T) []byte { return message(t, disc, mac(t, "ff:ff:ff:ff:ff:ff"), nil) }},
		{name: "not Ethernet", iface: "lab0", data: func(t *testing.T) []byte {
			return message(t, disc, mac(t, master0), nil, func(d *dhcpv4.DHCPv4) { d.HWType = 32 })
		}},
		{name: "cut short", iface: "lab0", data: func(t *testing.T) []byte { return message(t, disc, mac(t, master0), ovmf)[:200] }},
		{name: "release of what one does not have", iface: "lab0", data: func(t *testing.T) []byte {
			return message(t, dhcpv4.MessageTypeRelease, mac(t, master0), nil, withCiaddr("10.77.0.21"), withServer("10.77.0.1"))
		}},
		{name: "decline of what one does not have", iface: "lab0", data: func(t *testing.T) []byte {
			return message(t, dhcpv4.MessageTypeDecline, mac(t, other), nil, withRequested("10.77.0.202"), withServer("10.77.0.1"))
		}},
		{name: "proxy: an operating system", iface: "lab1", data: func(t *testing.T) []byte { return message(t, disc, mac(t, besideH), udhcpc) }},
		{name: "proxy: U-Boot as itself, which there is nothing for", iface: "lab1", data: func(t *testing.T) []byte {
			return message(t, disc, mac(t, besideH), nil, raw(60, "U-Boot.armv8"), raw(93, "\x00\x16"))
		}},
		{name: "proxy: an unknown machine", iface: "lab1", data: func(t *testing.T) []byte { return message(t, disc, mac(t, other), ovmf) }},
		{name: "proxy: a request to the other server", iface: "lab1", data: func(t *testing.T) []byte {
			return message(t, req, mac(t, besideH), ovmf, withRequested("10.79.0.50"), withServer("10.79.0.254"))
		}},
		{name: "4011: an operating system", iface: "lab0", port: 4011, data: func(t *testing.T) []byte {
			return message(t, req, mac(t, master0), udhcpc, withCiaddr("10.77.0.21"))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if tc.port == 0 {
				tc.port = 67
			}
			if out := b.exchange(tc.iface, tc.port, client0, tc.data(t)); len(out) != 0 {
				t.Fatalf("got an answer:\n%s", text(t, out[0]))
			}
			var kinds []event.Kind
			for _, e := range b.events.take() {
				kinds = append(kinds, e.Kind)
			}
			if diff := cmp.Diff(tc.kinds, kinds, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if n := len(b.deps.Book.All()); n != 0 {
				t.Errorf("%d leases in the book, want none", n)
			}
		})
	}
}

// lease runs DISCOVER and REQUEST and returns the address, or "" without an acknowledgement.
func (b *bench) lease(t *testing.T, m string, c client) string {
	t.Helper()
	out := b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeDiscover, mac(t, m), c))
	if len(out) != 1 {
		return ""
	}
	offer := decode(t, out[0].data)
	out = b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeRequest, mac(t, m), c,
		withRequested(offer.YourIPAddr.String()), withServer(offer.ServerIdentifier().String())))
	if len(out) != 1 {
		return ""
	}
	ack := decode(t, out[0].data)
	if ack.MessageType() != dhcpv4.MessageTypeAck {
		return ack.MessageType().String()
	}
	if !ack.YourIPAddr.Equal(offer.YourIPAddr) {
		t.Errorf("offered %s, acknowledged %s", offer.YourIPAddr, ack.YourIPAddr)
	}
	return ack.YourIPAddr.String()
}

// TestOneAddressPerMachine: each stage of a boot sends another client identifier; the address stays.
func TestOneAddressPerMachine(t *testing.T) {
	t.Parallel()
	for m, commits := range map[string]int{master0: 1, pooled: 2} { // its name comes with its operating system
		b := newBench(t)
		first := b.lease(t, m, ovmf)
		for _, c := range []client{ipxe, debianInstaller, networkd, dhclient} {
			if got := b.lease(t, m, c); got != first || got == "" {
				t.Errorf("%s: got %q, want %q as before", m, got, first)
			}
		}
		if n := len(b.deps.Book.All()); n != 1 {
			t.Errorf("%s: %d leases, want 1", m, n)
		}
		if n := b.store.count(); n != commits {
			t.Errorf("%s: %d commits for five stages within a second, want %d", m, n, commits)
		}
	}
}

// TestPoolNeverGivesWhatIsTaken: the range of guests covers the cluster's address, and that of bootstrap a reserved one.
func TestPoolNeverGivesWhatIsTaken(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	got := map[string]bool{}
	for i := range 5 {
		if a := b.lease(t, lab.MAC{2, 0, 0, 0, 1, byte(i)}.String(), udhcpc); a != "" {
			got[a] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{"10.77.0.201": true, "10.77.0.202": true, "10.77.0.203": true}, got); diff != "" {
		t.Errorf("addresses of pool guests (-want +got):\n%s", diff)
	}
	clear(got)
	for i := range 8 {
		if a := b.lease(t, lab.MAC{0x52, 0x54, 0, 1, 1, byte(i)}.String(), udhcpc); a != "" {
			got[a] = true
		}
	}
	want := map[string]bool{"10.77.0.130": true, "10.77.0.132": true, "10.77.0.133": true, "10.77.0.134": true, "10.77.0.135": true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("addresses of pool bootstrap (-want +got):\n%s", diff)
	}
}

// TestRefusalIsRecordedOnce: a machine that gets no address and asks again and again is recorded once, and then in summaries.
func TestRefusalIsRecordedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.withBus()
	b.lab.Networks[2].Pools = nil
	b.table = Compile(b.lab)
	refused := func() (n int) {
		for _, e := range b.events.take() {
			if e.Kind == event.DHCPRefused {
				n++
			}
		}
		return n
	}
	for range 3 {
		if a := b.lease(t, other, udhcpc); a != "" {
			t.Fatalf("got %s, want nothing", a)
		}
	}
	if n := refused(); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
	b.clock.Advance(time.Minute)
	b.Server.deps.Events.(*event.Bus).Flush()
	if n := refused(); n != 1 {
		t.Errorf("%d summaries a minute later, want 1", n)
	}
}

// TestSilentUnlessDurable: a commit of a new lease that fails is answered with silence, and leaves nothing behind.
func TestSilentUnlessDurable(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.store.FailCommits(errors.New("disk full"))
	if a := b.lease(t, other, ovmf); a != "" {
		t.Fatalf("got %s although the store failed", a)
	}
	if all := b.deps.Book.All(); len(all) != 0 {
		t.Fatalf("book has %v, want nothing", all)
	}
	b.store.FailCommits(nil)
	if a := b.lease(t, other, ovmf); a == "" {
		t.Fatal("got nothing once the store is well")
	}
}

// TestBookSurvives: what was acknowledged is there after the process was killed, and its machine keeps it.
func TestBookSurvives(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	want := map[string]string{}
	for i := range 3 {
		m := lab.MAC{2, 0, 0, 0, 1, byte(i)}.String()
		want[m] = b.lease(t, m, networkd)
	}
	before := b.deps.Book.All()
	b.reopen(t)
	if diff := cmp.Diff(before, b.deps.Book.All(), cmp.Comparer(time.Time.Equal), cmpopts.EquateComparable(before[0].Addr)); diff != "" {
		t.Errorf("book after reopening (-before +after):\n%s", diff)
	}
	for m, a := range want {
		if got := b.lease(t, m, dhclient); got != a {
			t.Errorf("%s: got %q after reopening, want %q", m, got, a)
		}
	}
	if got := b.lease(t, "02:00:00:00:02:99", udhcpc); got != "" {
		t.Errorf("a fourth machine got %s of a full pool", got)
	}
}

// TestRenewal: early renewals are answered from the book with the time left, late ones are stored first.
func TestRenewal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.lease(t, master0, networkd)
	renew := func() (time.Duration, int) {
		before := b.store.count()
		out := b.exchange("lab0", 67, "10.77.0.21:68", message(t, dhcpv4.MessageTypeRequest, mac(t, master0), networkd, withCiaddr("10.77.0.21")))
		if len(out) != 1 {
			t.Fatalf("%d replies to a renewal, want 1", len(out))
		}
		return decode(t, out[0].data).IPAddressLeaseTime(0), b.store.count() - before
	}
	b.clock.Advance(time.Hour)
	if left, commits := renew(); left != 11*time.Hour || commits != 0 {
		t.Errorf("after 1 h of 12: lease time %s with %d commits, want 11h with none", left, commits)
	}
	b.clock.Advance(5 * time.Hour)
	if left, commits := renew(); left != 12*time.Hour || commits != 1 {
		t.Errorf("after 6 h of 12: lease time %s with %d commits, want 12h with 1", left, commits)
	}
}

// TestExpiryReleaseDecline follows one small pool through the life of its addresses.
func TestExpiryReleaseDecline(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := func(i int) string { return lab.MAC{2, 0, 0, 0, 1, byte(i)}.String() }
	for i := range 3 {
		b.lease(t, m(i), udhcpc)
	}
	mine, _ := b.deps.Book.ByMAC(mac(t, m(0)))
	if got := b.lease(t, m(3), udhcpc); got != "" {
		t.Fatalf("full pool gave %s", got)
	}
	b.exchange("lab0", 67, mine.Addr.String()+":68", message(t, dhcpv4.MessageTypeRelease, mac(t, m(0)), nil,
		withCiaddr(mine.Addr.String()), withServer("10.77.0.1")))
	if _, ok := b.deps.Book.ByAddr(mine.Addr); ok {
		t.Error("a released lease is live")
	}
	if got := b.lease(t, m(0), udhcpc); got != mine.Addr.String() {
		t.Errorf("after its release the machine got %q, want %s again", got, mine.Addr)
	}
	b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeDecline, mac(t, m(0)), nil,
		withRequested(mine.Addr.String()), withServer("10.77.0.1")))
	b.clock.Advance(2 * time.Second) // the pool was found full a moment ago
	if got := b.lease(t, m(0), udhcpc); got != "" {
		t.Errorf("the declined address, or one in use, was given: %s", got)
	}
	b.clock.Advance(quarantineTime + time.Second)
	if got := b.lease(t, m(3), udhcpc); got != mine.Addr.String() {
		t.Errorf("after the quarantine got %q, want %s", got, mine.Addr)
	}
	b.clock.Advance(13 * time.Hour)
	if got := b.lease(t, m(4), udhcpc); got == "" {
		t.Error("an expired lease was not given to a new client")
	}
}

// TestOffersAreKept: what is offered to one is not offered to another while there are other addresses, and a retransmission
// gets the same.
func TestOffersAreKept(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	offer := func(i int) string {
		out := b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeDiscover, lab.MAC{2, 0, 0, 0, 1, byte(i)}, udhcpc))
		if len(out) == 0 {
			return ""
		}
		return decode(t, out[0].data).YourIPAddr.String()
	}
	seen := map[string]int{}
	for i := range 3 {
		first := offer(i)
		if again := offer(i); again != first {
			t.Errorf("machine %d was offered %q, then %q", i, first, again)
		}
		seen[first]++
	}
	if len(seen) != 3 || seen[""] != 0 {
		t.Errorf("offers %v: want three addresses", seen)
	}
	b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeRequest, lab.MAC{2, 0, 0, 0, 1, 0}, udhcpc, // selects another server's
		withRequested("10.77.0.5"), withServer("10.77.0.66")))
	b.clock.Advance(2 * time.Second)
	if offer(9) == "" {
		t.Error("a withdrawn offer is still kept")
	}
}

// TestReservationWins: the lab reserves a leased address for another machine; the lease holder gets a NAK at its next request.
func TestReservationWins(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	had := b.lease(t, other, udhcpc)
	host := &lab.Host{Name: "new", Domain: "lab.test", MACs: []lab.MAC{mac(t, "02:00:00:00:00:55")}, IP: ip(had), Network: b.lab.Networks[2]}
	b.lab.Hosts = append(b.lab.Hosts, host)
	b.table = Compile(b.lab)
	if got := b.lease(t, "02:00:00:00:00:55", udhcpc); got != had {
		t.Errorf("the new host got %q, want %s", got, had)
	}
	out := b.exchange("lab0", 67, had+":68", message(t, dhcpv4.MessageTypeRequest, mac(t, other), udhcpc, withCiaddr(had)))
	if len(out) != 1 || decode(t, out[0].data).MessageType() != dhcpv4.MessageTypeNak {
		t.Errorf("the machine that had %s was not refused: %d replies", had, len(out))
	}
	if got := b.lease(t, other, udhcpc); got == had || got == "" {
		t.Errorf("the machine that had %s got %q, want another", had, got)
	}
}

// TestTwoDaemons share a store: one address is never given twice.
func TestTwoDaemons(t *testing.T) {
	t.Parallel()
	a, b := newBench(t), newBench(t)
	b.store = a.store
	b.reopen(t)
	got := map[string]string{}
	for i := range 6 {
		m := lab.MAC{2, 0, 0, 0, 1, byte(i)}.String()
		which := []*bench{a, b}[i%2]
		for range 4 { // a refused client starts over
			if addr := which.lease(t, m, udhcpc); strings.HasPrefix(addr, "10.") {
				if had, ok := got[addr]; ok {
					t.Fatalf("%s given to %s and %s", addr, had, m)
				}
				got[addr] = m
				break
			}
			which.clock.Advance(2 * time.Second)
		}
	}
	if len(got) != 3 {
		t.Errorf("%d of 3 addresses given: %v", len(got), got)
	}
	if n := a.store.leases(t); n != 3 {
		t.Errorf("%d leases stored, want 3", n)
	}
}

// TestForget: a changed reservation moves the machine, and its old address is free.
func TestReservationMoves(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.lease(t, master0, udhcpc)
	moved := *b.lab.Host("master-0")
	moved.IP = ip("10.77.0.22")
	b.lab.Hosts = []*lab.Host{&moved}
	b.table = Compile(b.lab)
	out := b.exchange("lab0", 67, "10.77.0.21:68", message(t, dhcpv4.MessageTypeRequest, mac(t, master0), udhcpc, withCiaddr("10.77.0.21")))
	if len(out) != 1 || decode(t, out[0].data).MessageType() != dhcpv4.MessageTypeNak {
		t.Fatalf("renewal of the old address: %d replies, want a NAK", len(out))
	}
	if got := b.lease(t, master0, udhcpc); got != "10.77.0.22" {
		t.Errorf("got %q, want the new address", got)
	}
	if _, ok := b.deps.Book.ByAddr(ip("10.77.0.21")); ok {
		t.Error("the old address is still leased")
	}
}

// TestEvents checks the events of one boot.
func TestEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.lease(t, master0, ovmf)
	b.lease(t, master0, ipxe)
	b.lease(t, master0, networkd)
	m, a := mac(t, master0), ip("10.77.0.21")
	file := "pxe boot/52-54-00-00-02-01/ipxe.efi"
	script := "ipxe http://10.77.0.1:8080/boot/52-54-00-00-02-01/boot.ipxe"
	want := []event.Event{
		{Kind: event.DHCPDiscover, MAC: m, Host: "master-0", Client: event.ClientPXE, Detail: "pxe arch 7"},
		{Kind: event.DHCPOffer, MAC: m, Host: "master-0", Addr: a, Client: event.ClientPXE, Detail: file},
		{Kind: event.DHCPAck, MAC: m, Host: "master-0", Addr: a, Client: event.ClientPXE, Detail: file},
		{Kind: event.DHCPDiscover, MAC: m, Host: "master-0", Client: event.ClientIPXE, Detail: "ipxe arch 0"},
		{Kind: event.DHCPOffer, MAC: m, Host: "master-0", Addr: a, Client: event.ClientIPXE, Detail: script},
		{Kind: event.DHCPAck, MAC: m, Host: "master-0", Addr: a, Client: event.ClientIPXE, Detail: script},
		{Kind: event.DHCPDiscover, MAC: m, Host: "master-0", Client: event.ClientOS, Detail: "os"},
		{Kind: event.DHCPOffer, MAC: m, Host: "master-0", Addr: a, Client: event.ClientOS, Detail: "os"},
		{Kind: event.DHCPAck, MAC: m, Host: "master-0", Addr: a, Client: event.ClientOS, Detail: "os"},
	}
	for i := range want {
		want[i].Network = "main"
	}
	if diff := cmp.Diff(want, b.events.take(), cmpopts.EquateComparable(a)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestSmallMessages: a client that takes 576 bytes gets no more, and what it cannot do without.
func TestSmallMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.lab.Networks[2].Options = []lab.Option{{Code: 200, Data: make([]byte, 300)}, {Code: 201, Data: make([]byte, 250)}}
	b.table = Compile(b.lab)
	for _, size := range []string{"", "\x00\x10", "\x02\x40"} {
		var more []dhcpv4.Modifier
		if size != "" {
			more = append(more, raw(57, size))
		}
		more = append(more, withGiaddr("10.77.0.254"), raw(82, "\x01\x40"+strings.Repeat("x", 64)))
		out := b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeDiscover, mac(t, master0), dhclient, more...))
		if len(out) != 1 || len(out[0].data) > 548 {
			t.Fatalf("option 57 %q: want one message of at most 548 bytes, got %d of %d", size, len(out), len(out[0].data))
		}
		p := decode(t, out[0].data)
		if len(p.Options[82]) != 66 || len(p.Options[1]) != 4 || len(p.Options[3]) != 4 || len(p.Options[6]) != 4 {
			t.Errorf("option 57 %q: something indispensable is missing:\n%s", size, text(t, out[0]))
		}
	}
}
