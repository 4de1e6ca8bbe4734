package neighbour_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/host/neighbour"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

var (
	host, second = lab.MAC{2, 0, 0, 0, 0, 0x10}, lab.MAC{2, 0, 0, 0, 0, 0x11}
	spy          = lab.MAC{2, 0, 0, 0, 0, 0x66}
)

// A rig is a segment with the host, a neighbour and this machine.
type rig struct {
	t         *testing.T
	seg       *netns.Segment
	host, spy *netns.Client
	addr      netip.Addr
	*neighbour.Resolver
}

func newRig(t *testing.T, n int) *rig {
	t.Helper()
	subnet := fmt.Sprintf("10.78.%d", n)
	r := &rig{t: t, seg: netns.NewSegment(t, subnet+".1/24"), addr: netip.MustParseAddr(subnet + ".10")}
	r.host, r.spy = r.seg.NewClient(t, host.String()), r.seg.NewClient(t, spy.String())
	r.ip(r.host, "addr", "add", r.addr.String()+"/24", "dev", "eth0")
	r.ip(r.spy, "addr", "add", subnet+".66/24", "dev", "eth0")
	var err error
	if r.Resolver, err = neighbour.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func (r *rig) ip(c *netns.Client, args ...string) {
	r.t.Helper()
	netns.Run(r.t, "ip", append([]string{"-n", c.Name}, args...)...)
}

// entry sets the kernel's entry for the host.
func (r *rig) entry(mac lab.MAC) {
	r.t.Helper()
	netns.Run(r.t, "ip", "neigh", "replace", r.addr.String(), "lladdr", mac.String(), "dev", r.seg.Bridge, "nud", "reachable")
}

func (r *rig) want(v neighbour.User, mac lab.MAC, both ...bool) (silent bool) {
	r.t.Helper()
	found, err := r.Find(r.addr, []lab.MAC{host, second})
	silent = found.Silent
	found.Silent = false
	if want := (neighbour.Found{User: v, MAC: mac, Both: len(both) > 0}); err != nil || found != want {
		r.t.Errorf("found %v, %v; want %v\n%s", found, err, want, netns.Run(r.t, "ip", "neigh"))
	}
	return silent
}

func TestFind(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "ip")
	take := func(r *rig) { r.ip(r.spy, "addr", "add", r.addr.String()+"/24", "dev", "eth0") }
	off := func(r *rig) { r.ip(r.host, "link", "set", "eth0", "down") }
	for i, tt := range []struct {
		name  string
		setUp func(r *rig)
		want  neighbour.User
		mac   lab.MAC
		both  []bool
	}{
		{"the host, for the first time", func(*rig) {}, neighbour.Own, host, nil},
		{"the host, known", func(r *rig) { r.entry(host) }, neighbour.Own, host, nil},
		{"another NIC of it", func(r *rig) { r.ip(r.host, "link", "set", "eth0", "address", second.String()) }, neighbour.Own, second, nil},
		{"the host answers no ARP", func(r *rig) { r.ip(r.host, "link", "set", "eth0", "arp", "off"); r.entry(host) }, neighbour.Own, host, nil},
		{"none", off, neighbour.None, lab.MAC{}, nil},
		{"a neighbour, while the host is off", func(r *rig) { off(r); take(r) }, neighbour.Foreign, spy, nil},
		{"a neighbour, while the host is off and its entry is old", func(r *rig) { r.entry(host); off(r); take(r) }, neighbour.Foreign, spy, nil},
		{"a neighbour that has sent gratuitous ARP", func(r *rig) { r.entry(spy) }, neighbour.Foreign, spy, []bool{true}},
		{"a neighbour that has sent gratuitous ARP, while the host is off", func(r *rig) { r.entry(spy); off(r) }, neighbour.Foreign, spy, nil},
		{"the host, while a neighbour has its address too", func(r *rig) { r.entry(host); take(r) }, neighbour.Own, host, nil},
		{"behind a router", func(r *rig) {
			netns.Run(t, "ip", "route", "add", r.addr.String()+"/32", "via", strings.Replace(r.addr.String(), ".10", ".66", 1))
			take(r)
		}, neighbour.Elsewhere, lab.MAC{}, nil},
		{"this machine", func(r *rig) { netns.Run(t, "ip", "addr", "add", r.addr.String()+"/32", "dev", r.seg.Bridge) }, neighbour.Elsewhere, lab.MAC{}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, 100+i)
			tt.setUp(r)
			if silent := r.want(tt.want, tt.mac, tt.both...); silent != (tt.name == "the host answers no ARP") {
				t.Errorf("silent: %t", silent)
			}
		})
	}
}

// TestFindIPv6: for IPv6 the kernel's table decides.
func TestFindIPv6(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "ip")
	r := newRig(t, 50)
	netns.Run(t, "ip", "addr", "add", "fd00:78::1/64", "dev", r.seg.Bridge, "nodad")
	r.addr = netip.MustParseAddr("fd00:78::10")
	r.want(neighbour.None, lab.MAC{})
	r.entry(spy)
	r.want(neighbour.Foreign, spy)
	r.entry(host)
	r.want(neighbour.Own, host)
}

// TestFindTogether: many requests at once share the answer.
func TestFindTogether(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "ip")
	r := newRig(t, 51)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if found, err := r.Find(r.addr, []lab.MAC{host}); err != nil || found.User != neighbour.Own {
				t.Errorf("found %v, %v", found, err)
			}
		})
	}
	wg.Wait()
}

// TestWithoutPacketSocket: without CAP_NET_RAW the kernel's table is all that is known.
func TestWithoutPacketSocket(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "ip")
	r := newRig(t, 52)
	r.Resolver = neighbour.WithoutARP()
	r.want(neighbour.None, lab.MAC{})
	// The kernel learns the MAC when it has something to send.
	conn, err := net.Dial("udp4", r.addr.String()+":9")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	netns.WaitFor(t, "the kernel to know the host", func() bool {
		_, _ = conn.Write([]byte("x")) // the port is closed
		found, err := r.Find(r.addr, []lab.MAC{host})
		time.Sleep(10 * time.Millisecond)
		return err == nil && found.User == neighbour.Own
	})
}

// TestEntry: the kernel's entry alone decides, and no machine is asked.
func TestEntry(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, 9)
	find := func(want neighbour.User) {
		t.Helper()
		if found, err := r.Entry(r.addr, []lab.MAC{host, second}); err != nil || found.User != want {
			t.Errorf("%+v, %v, want %v", found, err, want)
		}
	}
	find(neighbour.None) // though the host would answer
	r.entry(host)
	find(neighbour.Own)
	r.entry(spy)
	find(neighbour.Foreign)
}
