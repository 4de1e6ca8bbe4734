package dnsd

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/miekg/dns"
)

// TestLoop: a server that forwards back to us, as dnsmasq beside us may, is found and not asked; another one answers.
func TestLoop(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "dnsmasq")
	good := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg { return reply(q, q.Question[0].Name+" 60 IN A 198.51.100.7") })
	port := netns.FreePort(t)
	around := netip.MustParseAddrPort(fmt.Sprintf("127.0.0.1:%d", port))
	s := newServerWithTimeout(t, compile(t, forwardingLab(around, good.addr)), nil, 10*time.Second)
	at := serve(t, s, "127.0.0.1")
	cmd := dnsmasq(t.Context(), port, fmt.Sprintf("--server=127.0.0.1#%d", at.Port()))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	waitTCP(t, around.String())
	s.forward.loopTests.mu.Lock()
	clear(s.forward.loopTests.asked) // dnsmasq may have come too late
	s.forward.loopTests.mu.Unlock()
	netns.WaitFor(t, "the loop to be found", func() bool {
		return !s.forward.servers.get(upstream{addr: around}).loops.IsZero()
	})
	if got := s.forward.servers.order([]upstream{{addr: around}, {addr: good.addr}}).servers; len(got) != 1 || got[0].addr != good.addr {
		t.Errorf("asked are %v", got)
	}
	if got := show(lookup(t, s, "www.example.org. A", inside)); got != "NOERROR ra\nan www.example.org. A 198.51.100.7" {
		t.Error(got)
	}
}

// TestForwardsToItself: a server that is its own upstream answers SERVFAIL at once.
func TestForwardsToItself(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"127.0.0.1", "::1"} {
		conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(host)})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		self := netip.MustParseAddrPort(conn.LocalAddr().String())
		s := newServerWithTimeout(t, compile(t, forwardingLab(self)), nil, 5*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- s.Serve(ctx, []*net.UDPConn{conn}, nil) }()
		go func() { done <- s.ServeChanges(ctx) }()
		netns.WaitFor(t, "the loop to be found", func() bool { return !s.forward.servers.get(upstream{addr: self}).loops.IsZero() })
		if got := explained(t, s, "www.example.org A", inside); !strings.Contains(got, "SERVFAIL") || !strings.Contains(got, "forwards to this appliance") {
			t.Errorf("%s: %s", host, got)
		}
		cancel()
		_, _ = <-done, <-done
	}
}
