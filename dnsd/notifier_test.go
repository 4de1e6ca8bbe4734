package dnsd

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestNotifierBacksOff: a secondary that does not reply is logged once for each zone, asked ever less often, and told again when it is back; a
// change begins anew.
func TestNotifierBacksOff(t *testing.T) {
	t.Parallel()
	var n notifier
	k := notifyKey{"z.test.", lab.Secondary{Addr: netip.MustParseAddrPort("192.0.2.1:53")}}
	start := time.Unix(1_800_000_000, 0)
	n.want(k, start)
	var tries []time.Duration
	warned, at := 0, start
	for range 3 * 3600 {
		if len(n.start(at, 1)) == 1 {
			tries = append(tries, at.Sub(start))
			if len(n.start(at.Add(time.Hour), 1)) > 0 {
				t.Fatal("a second message while the first waits for its reply")
			}
			if news, _ := n.ended(k, false); news {
				warned++
			}
		}
		if at == start.Add(time.Hour) {
			n.want(k, at)
		}
		at = at.Add(time.Second)
	}
	if want := []time.Duration{0, 2 * time.Second, 6 * time.Second, 14 * time.Second, 30 * time.Second, 330 * time.Second}; len(tries) < 40 || len(tries) > 60 || !equalStart(tries, want) {
		t.Errorf("%d tries, the first at %v, want %v", len(tries), tries[:6], want)
	}
	if warned != 1 {
		t.Errorf("%d warnings in three hours, want 1", warned)
	}
	n.want(k, at)
	n.start(at, 1)
	n.want(k, at) // changes while the message is on its way
	if news, _ := n.ended(k, true); !news {
		t.Error("that the secondary replies again is no news")
	}
	if len(n.start(at, 1)) != 1 {
		t.Error("the change that came meanwhile is forgotten")
	}
	if news, _ := n.ended(k, true); news {
		t.Error("the second reply is news")
	}
	if len(n.start(at.Add(time.Hour), 1)) != 0 || len(n.pending) != 0 || len(n.silent) != 0 {
		t.Errorf("something is left: %v %v", n.pending, n.silent)
	}
}

func equalStart(got, want []time.Duration) bool {
	for i := range want {
		if got[i] != want[i] {
			return false
		}
	}
	return true
}

// TestSilentSecondary: secondaries that are away, with more zones than messages may wait, delay nobody else's.
func TestSilentSecondary(t *testing.T) {
	t.Parallel()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	away, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}) // takes everything and never replies
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFromUDP(b)
			if err != nil {
				return
			}
			b[2] |= 0x80
			_, _ = conn.WriteToUDP(b[:n], from)
		}
	}()
	l := &lab.Lab{}
	for i := range 3 * maxNotifies {
		l.Zones = append(l.Zones, zoneOfLines(strings.Repeat("a", 1+i%60)+"."+strings.Repeat("b", 1+i/60)+".test.", "@ NS ns"))
	}
	l.DNS.Notify = []lab.Secondary{{Addr: away.LocalAddr().(*net.UDPAddr).AddrPort()}, {Addr: conn.LocalAddr().(*net.UDPAddr).AddrPort()}}
	s := newServer(t, compile(t, l), nil)
	serve(t, s, "127.0.0.1")
	netns.WaitFor(t, "the secondary that replies to have all zones", func() bool { return testutil.ToFloat64(s.metrics.notified) == float64(len(l.Zones)) })
}
