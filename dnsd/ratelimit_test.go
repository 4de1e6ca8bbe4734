package dnsd

import (
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/miekg/dns"
)

// replyTo hands a message to a UDP reader's decision and returns the reply, or nil.
func replyTo(t *testing.T, s *Server, m *dns.Msg, from string) *dns.Msg {
	t.Helper()
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	r := &request{from: netip.MustParseAddr(from)}
	r.w.b = append(make([]byte, 0, udpBuffer), packed...)
	if s.handle(r) != ready || !s.applyRateLimit(r) {
		return nil
	}
	var reply dns.Msg
	if err := reply.Unpack(r.w.b); err != nil {
		t.Fatal(err)
	}
	return &reply
}

// TestRateLimit: replies to a network outside of the lab are bounded; half of those beyond are truncated, so that a real client asks by TCP.
// The lab's own clients, and who shows one of our cookies, are not.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	const rate = 10
	l := openshift()
	l.DNS.RateLimit = rate
	s := newServer(t, compile(t, l), nil)
	now := time.Now()
	s.deps.Now = func() time.Time { return now }
	question := new(dns.Msg).SetQuestion("api.mycluster.example.com.", dns.TypeA)
	ask := func(from ...string) (whole, truncated, none int) {
		for i := range 100 {
			switch m := replyTo(t, s, question, from[i%len(from)]); {
			case m == nil:
				none++
			case m.Truncated && len(m.Answer) == 0 && m.Rcode == dns.RcodeSuccess:
				truncated++
			case len(m.Answer) == 1:
				whole++
			default:
				t.Errorf("reply %v", m)
			}
		}
		return whole, truncated, none
	}
	want := func(name string, whole, truncated, none int, from ...string) {
		t.Helper()
		if w, tc, n := ask(from...); w != whole || tc != truncated || n != none {
			t.Errorf("%s: %d whole, %d truncated, %d none; want %d, %d, %d", name, w, tc, n, whole, truncated, none)
		}
	}
	want("a stranger", 2*rate, 40, 40, outside)
	now = now.Add(time.Second)
	want("a second later, and its neighbour", rate, 45, 45, outside, "203.0.113.77")
	want("the lab", 100, 0, 0, inside)
	want("loopback", 100, 0, 0, "127.0.0.1", "::1")
	want("IPv6", 2*rate, 40, 40, "2001:db8:1:2::1", "2001:db8:1:3::2") // one /56
	now = now.Add(-time.Hour)                                          // a clock that is set gives nothing away
	want("an hour back", 0, 50, 50, outside)

	m := replyTo(t, s, withCookie("api.mycluster.example.com. A", "0102030405060708"), outside)
	for range 2 { // dropped, then BADCOOKIE
		if m == nil {
			m = replyTo(t, s, withCookie("api.mycluster.example.com. A", "0102030405060708"), outside)
		}
	}
	if m == nil || m.Rcode != dns.RcodeBadCookie || len(cookieOf(m)) != 2*cookieLen {
		t.Fatalf("a client with a cookie: %v", m)
	}
	for range 100 {
		if m := replyTo(t, s, withCookie("api.mycluster.example.com. A", cookieOf(m)), outside); m == nil || len(m.Answer) != 1 {
			t.Fatalf("a client with our cookie: %v", m)
		}
	}
	l.DNS.RateLimit = 0
	table := compile(t, l)
	s.deps.Table = func() *Table { return table }
	want("without a limit", 100, 0, 0, outside)
}

// TestRateLimitOfUDP: the limit holds for what comes from a socket. The client is at an address that is no loopback address.
func TestRateLimitOfUDP(t *testing.T) {
	netns.Need(t, "root", "ip")
	t.Parallel()
	const stranger = "203.0.113.250"
	if out, err := exec.Command("ip", "addr", "replace", stranger+"/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l := openshift()
	l.DNS.RateLimit = 1
	ap := serve(t, newServer(t, compile(t, l), nil), "127.0.0.1")
	truncated := func(from string) (n int) {
		conn, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(from+":0")), net.UDPAddrFromAddrPort(ap))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		packed, _ := new(dns.Msg).SetQuestion("api.mycluster.example.com.", dns.TypeA).Pack()
		b := make([]byte, 512)
		for range 40 {
			_, _ = conn.Write(packed)
			_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			if _, err := conn.Read(b); err == nil && b[2]&(flagTC>>8) != 0 {
				n++
			}
		}
		return n
	}
	if truncated(stranger) == 0 {
		t.Error("none of 40 replies to a stranger was truncated")
	}
	if n := truncated("127.0.0.1"); n > 0 {
		t.Errorf("%d replies to the appliance itself were truncated", n)
	}
}

// TestForgedBroadcastSource: a query from the broadcast address of a network of the lab gets no reply, which all its machines would receive.
func TestForgedBroadcastSource(t *testing.T) {
	t.Parallel()
	l := openshift()
	l.Networks = []*lab.Network{{Name: "n", Subnet: netip.MustParsePrefix("10.66.0.0/24")}}
	s := newServer(t, compile(t, l), nil)
	question := new(dns.Msg).SetQuestion("api.mycluster.example.com.", dns.TypeA)
	for from, want := range map[string]bool{"10.66.0.255": false, "255.255.255.255": false, "224.0.0.1": false, "0.0.0.0": false, "10.66.0.21": true} {
		if got := replyTo(t, s, question, from) != nil; got != want {
			t.Errorf("a query from %s is answered: %v, want %v", from, got, want)
		}
	}
}
