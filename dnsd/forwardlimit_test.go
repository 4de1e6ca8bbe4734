package dnsd

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestForwardLimitOfOneClient: with a dead server behind the forwarder, a client that keeps asking gets SERVFAIL, by UDP
// and TCP, while the others' questions wait their turn.
func TestForwardLimitOfOneClient(t *testing.T) {
	t.Parallel()
	up, release := heldUpstream(t)
	table := compile(t, forwardingLab(up.addr))
	s, err := New(Config{ForwardTimeout: time.Minute, MaxForwards: 8}, Deps{
		Table: func() *Table { return table }, Now: time.Now, Log: newServer(t, table, nil).log, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ap := serve(t, s, "127.0.0.1")
	greedy := clientAt(t, "127.0.0.1", ap)
	const asked = 20
	for i := range asked {
		m := new(dns.Msg).SetQuestion(fmt.Sprintf("n%d.example.org.", i), dns.TypeA)
		if i%2 == 0 {
			m.SetEdns0(1232, i%4 == 0)
		}
		m.Id = uint16(i)
		if err := greedy.WriteMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	const share = 4
	for range asked - share {
		m := next(t, greedy)
		why := ""
		if opt := m.IsEdns0(); opt != nil {
			for _, o := range opt.Option {
				if e, ok := o.(*dns.EDNS0_EDE); ok {
					why = e.ExtraText
				}
			}
		}
		if m.Rcode != dns.RcodeServerFailure || (why != "") != (m.Id%2 == 0) {
			t.Errorf("question %d: %s, %q; want SERVFAIL, with the reason for clients with EDNS", m.Id, dns.RcodeToString[m.Rcode], why)
		}
	}
	if n := testutil.ToFloat64(s.metrics.limited); n != asked-share {
		t.Errorf("%v are counted, want %d", n, asked-share)
	}
	tcp := &dns.Conn{Conn: dial(t, ap)}
	if err := tcp.WriteMsg(new(dns.Msg).SetQuestion("tcp.example.org.", dns.TypeA)); err != nil {
		t.Fatal(err)
	}
	if m := next(t, tcp); m.Rcode != dns.RcodeServerFailure {
		t.Errorf("by TCP %s, want SERVFAIL", dns.RcodeToString[m.Rcode])
	}
	other := clientAt(t, "127.0.0.2", ap)
	if err := other.WriteMsg(new(dns.Msg).SetQuestion("other.example.org.", dns.TypeA)); err != nil {
		t.Fatal(err)
	}
	for name := ""; name != "udp other.example.org."; {
		select {
		case name = <-up.asked:
		case <-time.After(20 * time.Second):
			t.Fatal("another client's question is not asked")
		}
	}
	release()
	if m := next(t, other); len(m.Answer) != 1 {
		t.Errorf("another client got %s", m)
	}
	for range share {
		if m := next(t, greedy); len(m.Answer) != 1 {
			t.Errorf("what waited got %s", m)
		}
	}
}

// clientAt is a client with its own address.
func clientAt(t testing.TB, addr string, server netip.AddrPort) *dns.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(addr), 0))}
	conn, err := d.DialContext(t.Context(), "udp", server.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &dns.Conn{Conn: conn, UDPSize: 1232}
}

func next(t testing.TB, c *dns.Conn) *dns.Msg {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	m, err := c.ReadMsg()
	if err != nil {
		t.Fatal(err)
	}
	return m
}
