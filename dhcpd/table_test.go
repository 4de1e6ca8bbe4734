package dhcpd

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/lab"

	"github.com/google/go-cmp/cmp"
)

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	six := ip("fd00::1")
	for _, tc := range []struct {
		name string
		edit func(*lab.Lab)
		want string
	}{
		{"subnet", func(l *lab.Lab) { l.Networks[0].Subnet = netip.MustParsePrefix("fd00::/64") }, "networks.beside.subnet: fd00::/64: want an IPv4 prefix"},
		{"router", func(l *lab.Lab) { l.Networks[2].Router = six }, "networks.main.router: fd00::1: want an IPv4 address"},
		{"dns", func(l *lab.Lab) { l.Networks[2].DNS = []netip.Addr{six} }, "networks.main.dns: fd00::1: want an IPv4 address"},
		{"mtu", func(l *lab.Lab) { l.Networks[2].MTU = 67 }, "networks.main.mtu: 67: want 68 to 65535"},
		{"search", func(l *lab.Lab) { l.Networks[2].Search = []string{"a..b"} }, `networks.main.search: "a..b" is not a domain name`},
		{"route to", func(l *lab.Lab) {
			l.Networks[2].Routes = []lab.Route{{To: netip.MustParsePrefix("fd00::/64"), Via: ip("10.77.0.1")}}
		}, "networks.main.routes: fd00::/64 via 10.77.0.1: want an IPv4 prefix"},
		{"route via", func(l *lab.Lab) {
			l.Host("master-1").Routes = []lab.Route{{To: netip.MustParsePrefix("10.0.0.0/8"), Via: six}}
		}, "hosts.master-1.routes: 10.0.0.0/8 via fd00::1: want"},
		{"option of ours", func(l *lab.Lab) { l.Networks[2].Options = []lab.Option{{Code: 53}} }, "networks.main.options: option 53 is written by the server itself"},
		{"option too long", func(l *lab.Lab) { l.Host("master-1").Options = []lab.Option{{Code: 200, Data: make([]byte, 2000)}} }, "option 200 has 2000 bytes; want at most 900"},
		{"pool", func(l *lab.Lab) { l.Networks[2].Pools[0].Range.Last = ip("10.77.1.5") }, "networks.main.pools.bootstrap.range: 10.77.0.130-10.77.1.5: want first and last"},
		{"pool backwards", func(l *lab.Lab) { l.Networks[2].Pools[0].Range.Last = ip("10.77.0.5") }, "networks.main.pools.bootstrap.range"},
		{"host elsewhere", func(l *lab.Lab) { l.Hosts[0].IP = ip("10.1.1.1") }, "hosts.bare.ip: 10.1.1.1: want an address inside 10.77.0.0/24"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := testLab(t)
			tc.edit(l)
			_, err := Compile(l)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestInterfaces(t *testing.T) {
	t.Parallel()
	l := testLab(t)
	if diff := cmp.Diff([]string{"lab0", "lab1"}, compile(t, l).Interfaces()); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	l.Networks = l.Networks[1:2] // the relayed one
	if diff := cmp.Diff([]string{""}, compile(t, l).Interfaces()); diff != "" {
		t.Errorf("interfaces of a lab behind relays (-want +got):\n%s", diff)
	}
	l.Networks[0].DHCP = lab.DHCPOff
	if got := compile(t, l).Interfaces(); len(got) != 0 {
		t.Errorf("interfaces of a silent lab: %q, want none", got)
	}
}

func TestSharedWire(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.lab.Networks[1].Interface = "lab0" // far and main on one wire
	b.table = compile(t, b.lab)
	for m, want := range map[string]string{master0: "10.77.0.21", guest: "10.77.0.13", other: "10.78."} {
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
	network.Pools = []*lab.Pool{{Name: "all", Network: network, Range: lab.Range{First: ip("10.1.0.0"), Last: ip("10.1.255.255")}}}
	l := &lab.Lab{Name: "big", Domain: "big.test", Networks: []*lab.Network{network}}
	for i := range n {
		l.Hosts = append(l.Hosts, &lab.Host{
			Name: fmt.Sprintf("node-%05d", i), Domain: "big.test", Network: network,
			MACs: []lab.MAC{{2, 1, 0, byte(i >> 16), byte(i >> 8), byte(i)}}, IP: fromUint32(toUint32(ip("10.2.0.0")) + uint32(i)),
		})
	}
	return l
}

func BenchmarkCompile10000(b *testing.B) {
	l := bigLab(10_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(l); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDiscover(b *testing.B) {
	bench := newBench(b)
	data := message(b, 1, mac(b, master0), ovmf)
	in := &inbound{
		iface: "lab0", port: 67, from: netip.MustParseAddrPort(client0), data: data, out: nowhere{},
	}
	b.ReportAllocs()
	for b.Loop() {
		bench.handle(in)
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
	table := compile(t, testLab(t))
	for _, tt := range []struct {
		name, iface string
		mac         lab.MAC
		want        bool
	}{
		{"a host", "lab0", mac(t, master0), true},
		{"anybody", "lab0", mac(t, other), true},
		{"nobody knows who", "lab0", lab.MAC{}, true},
		{"a host beside another server", "lab1", mac(t, besideH), true},
		{"anybody beside another server", "lab1", mac(t, other), false},
		{"nobody knows who, beside another server", "lab1", lab.MAC{}, false},
		{"a host of another network, beside another server", "lab1", mac(t, master0), false},
		{"an unknown interface", "eth9", mac(t, master0), false},
	} {
		if got := table.advertises(tt.iface, tt.mac); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
