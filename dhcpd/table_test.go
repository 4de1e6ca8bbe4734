package dhcpd

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

// TestCustomOptions: an option that the loader accepts is in the reply once, with the author's value.
func TestCustomOptions(t *testing.T) {
	t.Parallel()
	accepted := 0
	for code := 1; code < 255; code++ {
		text := fmt.Sprintf("version: 1\ndomain: lab.test\nnetworks:\n  a: {subnet: 10.77.0.0/24, address: 10.77.0.1, interface: lab0, options: {%q: {value: 'hex:0a4d0009', force: true}}}\n"+
			"hosts: {a: {mac: %s, ip: 10.77.0.21}}\n", strconv.Itoa(code), master0)
		l, err := load.Parse("lab.yaml", []byte(text), load.Options{})
		if err != nil {
			continue // it is the server's, or has a key of its own
		}
		accepted++
		b := newBench(t)
		b.table = Compile(l)
		out := b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeDiscover, mac(t, master0), udhcpc, raw(55, string([]byte{byte(code)})), raw(61, "\x01id")))
		if len(out) != 1 || !bytes.Equal(decode(t, out[0].data).Options[uint8(code)], []byte{10, 77, 0, 9}) {
			t.Errorf("option %d: got %d replies, want one with the author's value, once", code, len(out))
		}
	}
	if accepted < 200 {
		t.Errorf("the loader accepts %d options", accepted)
	}
}

func TestInterfaces(t *testing.T) {
	t.Parallel()
	l := testLab(t)
	if diff := cmp.Diff([]string{"lab0", "lab1"}, Compile(l).Interfaces()); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	l.Networks = l.Networks[1:2] // the relayed one
	if diff := cmp.Diff([]string{""}, Compile(l).Interfaces()); diff != "" {
		t.Errorf("interfaces of a lab behind relays (-want +got):\n%s", diff)
	}
	l.Networks[0].DHCP = lab.DHCPOff
	if got := Compile(l).Interfaces(); len(got) != 0 {
		t.Errorf("interfaces of a silent lab: %q, want none", got)
	}
}

// TestOneAddressPastARelay: behind a relay all that names the appliance is one address, wherever the relay's packets come in, and that is
// what the plan shows. Only the source of a reply is what the relay sent to: some take no other.
func TestOneAddressPastARelay(t *testing.T) {
	t.Parallel()
	const text = "version: 1\ndomain: lab.test\nnetworks:\n  one: {subnet: 10.77.0.0/24, address: 10.77.0.1, interface: lab0}\n" +
		"  two: {subnet: 10.79.0.0/24, address: 10.79.0.1, interface: lab1}\n  far: {subnet: 10.78.0.0/16, router: 10.78.255.254FAR}\n" +
		"profiles: {p: {kernel: k}}\nhosts: {far-0: {mac: '" + farHost + "', ip: 10.78.0.21, profile: p}}\n"
	for _, tt := range []struct{ name, far, want string }{
		{"derived", "", "10.77.0.1"},
		{"of another network", ", address: 10.79.0.1", "10.79.0.1"},
		{"in the network", ", address: 10.78.0.1", "10.78.0.1"},
	} {
		for _, iface := range []string{"lab0", "lab1"} {
			t.Run(tt.name+" by "+iface, func(t *testing.T) {
				t.Parallel()
				l, err := load.Parse("lab.yaml", []byte(strings.Replace(text, "FAR", tt.far, 1)), load.Options{})
				if err != nil {
					t.Fatal(err)
				}
				b := newBench(t)
				b.table = Compile(l)
				out := b.exchangeAt(iface, "192.0.2.77", 67, "10.78.0.254:67", message(t, dhcpv4.MessageTypeDiscover, mac(t, farHost), ipxe, withGiaddr("10.78.0.254")))
				if len(out) != 1 {
					t.Fatalf("%d replies, want 1", len(out))
				}
				offer, want := decode(t, out[0].data), net.ParseIP(tt.want)
				script := "http://" + tt.want + ":8080/boot/52-54-00-00-78-01/boot.ipxe"
				if dns := offer.DNS(); len(dns) != 1 || !dns[0].Equal(want) || !offer.ServerIdentifier().Equal(want) || !offer.ServerIPAddr.Equal(want) || offer.BootFileName != script {
					t.Errorf("want %s everywhere, got %s", tt.want, offer.Summary())
				}
				if files := BootFiles(l.Host("far-0")); len(files) == 0 || files[len(files)-1].File != script {
					t.Errorf("the plan shows %v, want %s", files, script)
				}
				if out[0].to.Source != ip("192.0.2.77") {
					t.Errorf("the reply comes from %s, want what the relay sent to", out[0].to.Source)
				}
			})
		}
	}
}

// TestPoolWithoutAddress: a pool whose whole range is given to others is a warning, where this server gives the addresses.
func TestPoolWithoutAddress(t *testing.T) {
	t.Parallel()
	const network = "{subnet: 10.N.0.0/24, address: 10.N.0.1, MODE, dns: [10.N.0.2], pools: {none: {range: 10.N.0.1-10.N.0.3}, some: {range: 10.N.0.4-10.N.0.9}}}\n"
	text := "version: 1\ndomain: lab.test\nnetworks:\n"
	for i, mode := range []string{"server", "proxy", "off"} {
		text += "  " + mode + ": " + strings.NewReplacer("N", strconv.Itoa(i+1), "MODE", "dhcp: "+mode).Replace(network)
	}
	text += "hosts:\n  a: {mac: '52:54:00:00:00:01', ip: 10.1.0.3}\n  b: {mac: '52:54:00:00:00:02', ip: 10.2.0.3}\n  c: {mac: '52:54:00:00:00:03', ip: 10.3.0.3}\n"
	l, err := load.Parse("lab.yaml", []byte(text), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := "lab.yaml:4:91: networks.server.pools.none.range: no address of 10.1.0.1-10.1.0.3 is free for machines without a reservation: " +
		"each is reserved, or of the appliance, a router, a server, a cluster or a balancer: want a wider range"
	if diff := cmp.Diff(want, Compile(l).Warnings().Error()); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestSharedWire(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.lab.Networks[1].Interface = "lab0" // far and main on one wire
	b.table = Compile(b.lab)
	for m, want := range map[string]string{master0: "10.77.0.21", pooled: "10.77.0.13", other: "10.78."} {
		if got := b.lease(t, m, udhcpc); !strings.HasPrefix(got, want) {
			t.Errorf("%s got %q, want %s…", m, got, want)
		}
	}
}

// bigLab is a lab of so many hosts.
func bigLab(n int) *lab.Lab {
	network := &lab.Network{
		Name: "big", Subnet: netip.MustParsePrefix("10.0.0.0/8"), Interface: "br0", Address: ip("10.0.0.1"), Router: ip("10.0.0.254"),
		DNS: []netip.Addr{ip("10.0.0.1")}, Lease: 12 * time.Hour, DHCP: lab.DHCPServer, BaseURL: "http://10.0.0.1",
		Routes: []lab.Route{{To: netip.MustParsePrefix("172.16.0.0/12"), Via: ip("10.0.0.2")}},
	}
	network.Pools = []*lab.Pool{{Name: "all", Network: network, Lease: time.Hour, Range: lab.Range{First: ip("10.1.0.0"), Last: ip("10.1.255.255")}}}
	l := &lab.Lab{Name: "big", Domain: "big.test", Networks: []*lab.Network{network}}
	for i := range n {
		l.Hosts = append(l.Hosts, &lab.Host{
			Name: fmt.Sprintf("node-%05d", i), Domain: "big.test", Network: network,
			MACs: []lab.MAC{{2, 1, 0, byte(i >> 16), byte(i >> 8), byte(i)}}, IP: netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}),
		})
	}
	return l
}

func BenchmarkCompile10000(b *testing.B) {
	l := bigLab(10_000)
	b.ReportAllocs()
	for b.Loop() {
		Compile(l)
	}
}

func BenchmarkDiscover(b *testing.B) {
	bench := newBench(b)
	data := message(b, 1, mac(b, master0), ovmf)
	x := &exchange{iface: "lab0", port: 67, from: netip.MustParseAddrPort(client0), out: nowhere{}}
	b.ReportAllocs()
	for b.Loop() {
		bench.handle(x, data)
		bench.events.all = bench.events.all[:0]
	}
}

type nowhere struct{}

func (nowhere) Frame() []byte { return frame[:segment.FrameHeadroom] }

func (nowhere) Queue(*segment.Socket, segment.Dest, []byte) {}

var frame [segment.FrameHeadroom + maxDatagram]byte

// TestRouterSolicitationsThatAreAnswered: in a network of ours all are; beside another DHCP server those of the hosts that boot from
// here, which would wait for a router else.
func TestRouterSolicitationsThatAreAnswered(t *testing.T) {
	t.Parallel()
	table := Compile(testLab(t))
	for _, tt := range []struct {
		name, iface string
		mac         lab.MAC
		want        bool
	}{
		{"a host", "lab0", mac(t, master0), true},
		{"anybody", "lab0", mac(t, other), true},
		{"an unknown sender", "lab0", lab.MAC{}, true},
		{"a host beside another server", "lab1", mac(t, besideH), true},
		{"anybody beside another server", "lab1", mac(t, other), false},
		{"an unknown sender, beside another server", "lab1", lab.MAC{}, false},
		{"a host of another network, beside another server", "lab1", mac(t, master0), false},
		{"an unknown interface", "eth9", mac(t, master0), false},
	} {
		if got := table.advertises(tt.iface, tt.mac); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
