package links

import (
	"net/netip"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// TestChanged: an interface that is made, gets an address, goes up or is deleted notifies; many at once do, too.
func TestChanged(t *testing.T) {
	netns.Need(t, "root", "ip")
	w, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, args := range [][]string{
		{"link", "add", "br7", "type", "bridge"}, {"addr", "add", "10.0.0.1/24", "dev", "br7"}, {"addr", "add", "fd00::1/64", "dev", "br7"},
		{"link", "set", "br7", "up"}, {"link", "del", "br7"},
	} {
		for settled := false; !settled; { // what the step before has caused
			select {
			case <-w.Changed():
			case <-time.After(200 * time.Millisecond):
				settled = true
			}
		}
		netns.Run(t, "ip", args...)
		select {
		case <-w.Changed():
		case <-time.After(time.Minute):
			t.Errorf("ip %v: no notification", args)
		}
	}
}

// TestAddresses: an address of an interface, of loopback and of none in particular are served, others are not; and the interface that has an
// address is found, but not loopback.
func TestAddresses(t *testing.T) {
	netns.Need(t, "root", "ip")
	netns.Run(t, "ip", "link", "set", "lo", "up")
	netns.Run(t, "ip", "link", "add", "br6", "type", "bridge")
	netns.Run(t, "ip", "addr", "add", "10.0.8.1/24", "dev", "br6")
	all, err := Addrs()
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]bool{
		"10.0.8.1": true, "::ffff:10.0.8.1": true, "0.0.0.0": true, "::": true, "127.9.9.9": true, "::1": true, "10.0.8.2": false, "fe80::1%br6": false,
	} {
		if got := all.Serve(netip.MustParseAddr(addr)); got != want {
			t.Errorf("Serve(%s) is %v, want %v", addr, got, want)
		}
	}
	for addr, want := range map[string]string{"10.0.8.77": "br6", "127.0.0.1": "", "10.0.9.1": ""} {
		a := netip.MustParseAddr(addr)
		if name, p := Find(func(p netip.Prefix) bool { return p.Contains(a) }); name != want || p.IsValid() != (want != "") {
			t.Errorf("Find of %s: %q, %v; want %q", addr, name, p, want)
		}
	}
}

// TestNoCarrier: a bridge has a carrier from one of its ports, and one without any port is reported apart from a cable that is not connected.
func TestNoCarrier(t *testing.T) {
	netns.Need(t, "root", "ip")
	netns.Run(t, "ip", "link", "add", "br8", "up", "type", "bridge")
	netns.Run(t, "ip", "link", "add", "card8", "type", "veth", "peer", "name", "far8")
	t.Cleanup(func() { netns.Run(t, "ip", "link", "del", "br8"); netns.Run(t, "ip", "link", "del", "card8") })
	check := func(what, name string, wantNone, wantNoPort bool) {
		t.Helper()
		netns.WaitFor(t, what, func() bool {
			none, noPort := NoCarrier(name)
			return none == wantNone && noPort == wantNoPort
		})
	}
	check("an interface that is down", "card8", false, false)
	netns.Run(t, "ip", "link", "set", "card8", "master", "br8", "up")
	check("a port without a cable", "card8", true, false)
	check("a bridge with such a port", "br8", true, false)
	netns.Run(t, "ip", "link", "set", "far8", "up")
	check("a bridge with a cable", "br8", false, false)
	netns.Run(t, "ip", "link", "set", "card8", "nomaster")
	check("a bridge whose port was taken away", "br8", true, true)
	check("loopback", "lo", false, false)
	check("none", "none8", false, false)
}

// TestNil: without a socket there are no notifications, and nothing fails.
func TestNil(t *testing.T) {
	t.Parallel()
	var w *Watch
	select {
	case <-w.Changed():
		t.Error("a notification")
	default:
	}
	w.Close()
}
