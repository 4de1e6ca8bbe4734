package dnsd

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// TestLineup: the fastest server is asked first, what is not known together with it, what failed of late last.
func TestLineup(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	servers := serverTable{now: func() time.Time { return now }, servers: map[upstream]*serverState{}}
	at := func(i int) upstream {
		return upstream{addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(i)}), 53)}
	}
	order := func() string {
		l := servers.order([]upstream{at(1), at(2), at(3)})
		text := ""
		for _, s := range l.servers {
			text += fmt.Sprint(s.addr.Addr().As4()[3])
		}
		return fmt.Sprint(text, " ", l.atOnce, " ", l.down)
	}
	want := func(step, want string) {
		t.Helper()
		if got := order(); got != want {
			t.Errorf("%s: %s, want %s", step, got, want)
		}
	}
	want("nothing is known", "123 3 false")
	servers.answered(at(1), 300*time.Millisecond)
	servers.answered(at(2), 5*time.Millisecond)
	servers.overtaken(at(3), 50*time.Millisecond)
	want("measured", "231 1 false")
	servers.failed(at(2), errNoAnswer)
	want("the fastest failed", "312 1 false")
	now = now.Add(firstRetry)
	want("it may be well again", "321 2 false")
	want("one question is enough to see", "312 1 false")
	servers.failed(at(1), errNoAnswer)
	servers.failed(at(3), errNoAnswer)
	want("all failed", "123 1 true")
	servers.answered(at(3), time.Millisecond)
	want("one is back", "312 1 false")
	now = now.Add(time.Hour)
	want("an hour later", "312 3 false")
}

// TestRaceDelay: how long the next server waits follows from how long the first one usually takes.
func TestRaceDelay(t *testing.T) {
	t.Parallel()
	servers := serverTable{now: time.Now, servers: map[upstream]*serverState{}}
	addr := upstream{addr: netip.MustParseAddrPort("127.0.0.1:53")}
	for range 100 {
		servers.answered(addr, 100*time.Millisecond)
	}
	state := servers.get(addr)
	if got := state.usualLimit(time.Second); got < 100*time.Millisecond || got > 120*time.Millisecond {
		t.Errorf("usualLimit with a server of 100 ms: %v", got)
	}
	slow := serverState{rtt: 3 * time.Second}
	if got := slow.usualLimit(time.Second); got != time.Second {
		t.Errorf("usualLimit with a server of 3 s: %v, want that of one try", got)
	}
}

// TestSecondServerAnswers: while the first server, fast so far, is silent, the second one answers, long before a try ends.
func TestSecondServerAnswers(t *testing.T) {
	t.Parallel()
	silent := make(chan struct{})
	first := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg {
		select {
		case <-silent:
			return nil
		default:
			return reply(q, q.Question[0].Name+" 60 IN A 10.0.0.1")
		}
	})
	second := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg { return reply(q, q.Question[0].Name+" 60 IN A 10.0.0.2") })
	s := newServerWithTimeout(t, compile(t, forwardingLab(first.addr, second.addr)), nil, time.Hour) // no try ends
	lookup(t, s, "a.example.org. A", inside)
	s.forward.servers.answered(upstream{addr: first.addr}, time.Microsecond)
	s.forward.servers.overtaken(upstream{addr: second.addr}, time.Second)
	close(silent)
	if got, want := show(lookup(t, s, "b.example.org. A", inside)), "NOERROR ra\nan b.example.org. A 10.0.0.2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestServerHabits: servers without EDNS, and those that change the letters' case and have no TCP, are understood.
func TestServerHabits(t *testing.T) {
	t.Parallel()
	lower := func(q *dns.Msg) *dns.Msg {
		q.Question[0].Name = strings.ToLower(q.Question[0].Name)
		return reply(q, q.Question[0].Name+" 0 IN A 10.0.0.1")
	}
	for _, tt := range []struct {
		name    string
		handler func(q *dns.Msg, network string) *dns.Msg
	}{
		{"FORMERR to EDNS", func(q *dns.Msg, _ string) *dns.Msg {
			if q.IsEdns0() != nil {
				return new(dns.Msg).SetRcode(q, dns.RcodeFormatError)
			}
			return reply(q, q.Question[0].Name+" 0 IN A 10.0.0.1")
		}},
		{"NOTIMP to EDNS", func(q *dns.Msg, _ string) *dns.Msg {
			if q.IsEdns0() != nil {
				return new(dns.Msg).SetRcode(q, dns.RcodeNotImplemented)
			}
			return reply(q, q.Question[0].Name+" 0 IN A 10.0.0.1")
		}},
		{"lower case, no TCP", func(q *dns.Msg, network string) *dns.Msg {
			if network == "tcp" {
				return new(dns.Msg).SetRcode(q, dns.RcodeRefused)
			}
			return lower(q)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			up := newUpstream(t, tt.handler)
			s := newServer(t, compile(t, forwardingLab(up.addr)), nil)
			name := "www." + strings.Repeat("abcdefghij.", 8) + "example.org."
			for range 2 {
				if got, want := show(lookup(t, s, name+" A", inside)), "NOERROR ra\nan "+name+" A 10.0.0.1"; got != want {
					t.Fatalf("got %s", got)
				}
			}
			asked := len(up.asked)
			lookup(t, s, name+" A", inside)
			if again := len(up.asked) - asked; again != 1 {
				t.Errorf("asked %d times although its habit is known", again)
			}
		})
	}
}

// TestForgedRejectionOfEDNS: an error without the question, whose ID and port alone had to be guessed, has the question asked again without
// EDNS. It does not end EDNS with that server.
func TestForgedRejectionOfEDNS(t *testing.T) {
	t.Parallel()
	var queries, plain atomic.Int64
	up := serveDNS(t, "127.0.0.1:0", func(w dns.ResponseWriter, q *dns.Msg) {
		if queries.Add(1) == 1 {
			_ = w.WriteMsg(new(dns.Msg).SetRcodeFormatError(q))
		}
		if q.IsEdns0() == nil {
			plain.Add(1)
		}
		_ = w.WriteMsg(reply(q, q.Question[0].Name+" 0 IN A 10.0.0.1"))
	})
	s := newServerWithTimeout(t, compile(t, forwardingLab(up)), nil, 5*time.Second)
	for range 3 {
		if got, want := show(lookup(t, s, "www.example.org. A", inside)), "NOERROR ra\nan www.example.org. A 10.0.0.1"; got != want {
			t.Fatalf("got %s\nwant %s", got, want)
		}
	}
	if n := plain.Load(); n != 1 {
		t.Errorf("%d of %d queries were without EDNS, want the one after the forged reply", n, queries.Load())
	}
}

// TestUpstreamAnswer: what clients see of an answer does not depend on the order of its records nor on our letters' case.
func TestUpstreamAnswer(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg {
		asked := q.Question[0].Name
		switch strings.ToLower(asked) {
		case "order.example.org.":
			return reply(q, "b.example.org. 60 IN A 10.0.0.2", "a.example.org. 60 IN CNAME b.example.org.", asked+" 60 IN CNAME a.example.org.")
		case "case.example.org.":
			m := reply(q, asked+" 60 IN CNAME x."+asked, "x."+asked+" 60 IN A 10.0.0.3")
			m.Compress = true
			return m
		case "lame.example.org.":
			m := new(dns.Msg).SetReply(q)
			ns, _ := dns.NewRR("example.org. 60 IN NS a.gtld-servers.net.")
			m.Ns = []dns.RR{ns}
			return m
		}
		return reply(q)
	})
	s := newServerWithTimeout(t, compile(t, forwardingLab(up.addr)), nil, 5*time.Second)
	wantAnswers(t, s, inside, []dialogue{
		{"order.example.org. A", "NOERROR ra\nan order.example.org. CNAME a.example.org.\nan a.example.org. CNAME b.example.org.\nan b.example.org. A 10.0.0.2"},
		{"case.example.org. A", "NOERROR ra\nan case.example.org. CNAME x.case.example.org.\nan x.case.example.org. A 10.0.0.3"},
		{"lame.example.org. A", "SERVFAIL ra"},
		{"none.example.org. A", "NXDOMAIN ra\nns example.org. SOA a."},
	})
	asked := len(up.asked)
	wantAnswers(t, s, inside, []dialogue{{"none.example.org. AAAA", "NXDOMAIN ra\nns example.org. SOA a."}})
	if len(up.asked) != asked {
		t.Error("NXDOMAIN for one type was not believed for another")
	}
}

// TestStaleAnswer: when no server answers any more, an expired answer is given again, for 30 s.
func TestStaleAnswer(t *testing.T) {
	t.Parallel()
	table := compile(t, forwardingLab(netip.MustParseAddrPort("127.0.0.1:1")))
	s := newServer(t, table, nil)
	start := time.Now()
	learn(t, s, table, "www.example.org.", "www.example.org. 300 IN A 198.51.100.7")
	now := start.Add(time.Hour)
	s.deps.Now, s.forward.now, s.forward.servers.now = func() time.Time { return now }, func() time.Time { return now }, func() time.Time { return now }
	m := lookup(t, s, "www.example.org. A", inside)
	if got := show(m); got != "NOERROR ra\nan www.example.org. A 198.51.100.7" || m.Answer[0].Header().Ttl != 30 {
		t.Errorf("an hour later: %v", m)
	}
	now = start.Add(25*time.Hour + time.Minute)
	if got := show(lookup(t, s, "www.example.org. A", inside)); got != "SERVFAIL ra" {
		t.Errorf("a day later: %s", got)
	}
}

// TestDelegation: for a client that may recurse, the servers of a delegated zone are asked, through referrals and CNAMEs that lead
// elsewhere; others get the referral.
func TestDelegation(t *testing.T) {
	netns.Need(t, "root")
	const child, grandchild = "127.53.0.2", "127.53.0.3"
	answer := func(zone, ns string) func(*dns.Msg, string) *dns.Msg {
		return func(q *dns.Msg, _ string) *dns.Msg {
			asked := strings.ToLower(q.Question[0].Name)
			switch {
			case q.RecursionDesired:
				return new(dns.Msg).SetRcode(q, dns.RcodeRefused)
			case ns != "" && dns.IsSubDomain("deep."+zone, asked):
				m := new(dns.Msg).SetReply(q)
				rr, _ := dns.NewRR("deep." + zone + " 60 IN NS ns.deep." + zone)
				glue, _ := dns.NewRR("ns.deep." + zone + " 60 IN A " + ns)
				m.Ns, m.Extra = []dns.RR{rr}, []dns.RR{glue}
				return m
			case strings.HasPrefix(asked, "alias."):
				m := reply(q, q.Question[0].Name+" 60 IN CNAME www.example.org.")
				m.Authoritative = true
				return m
			case strings.HasPrefix(asked, "back."):
				m := reply(q, q.Question[0].Name+" 60 IN CNAME api.mycluster.example.com.")
				m.Authoritative = true
				return m
			}
			m := reply(q, q.Question[0].Name+" 60 IN TXT "+zone)
			m.Authoritative = true
			return m
		}
	}
	newUpstreamAt(t, net.JoinHostPort(child, "53"), answer("sub.d.test.", grandchild))
	newUpstreamAt(t, net.JoinHostPort(grandchild, "53"), answer("deep.sub.d.test.", ""))
	up := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg { return reply(q, q.Question[0].Name+" 60 IN A 198.51.100.7") })
	l := forwardingLab(up.addr)
	l.Zones = append(l.Zones, zoneOfLines("d.test.", "sub NS ns.sub", "ns.sub A "+child, "there CNAME x.sub"))
	s := newServer(t, compile(t, l), nil)
	for question, want := range map[string]string{
		"x.sub.d.test. TXT":      "NOERROR ra\nan x.sub.d.test. TXT \"sub.d.test.\"",
		"x.deep.sub.d.test. TXT": "NOERROR ra\nan x.deep.sub.d.test. TXT \"deep.sub.d.test.\"",
		"there.d.test. TXT":      "NOERROR aa ra\nan there.d.test. CNAME x.sub.d.test.\nan x.sub.d.test. TXT \"sub.d.test.\"",
		"alias.sub.d.test. A":    "NOERROR ra\nan alias.sub.d.test. CNAME www.example.org.\nan www.example.org. A 198.51.100.7",
		"back.sub.d.test. A":     "NOERROR ra\nan back.sub.d.test. CNAME api.mycluster.example.com.\nan api.mycluster.example.com. A 192.168.131.10",
	} {
		for _, when := range []string{"first", "cached"} {
			if diff := cmp.Diff(want, show(lookup(t, s, question, inside))); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", question, when, diff)
			}
		}
	}
	for len(up.asked) > 0 {
		if q := <-up.asked; !strings.Contains(q, "www.example.org.") {
			t.Errorf("the forwarder was asked: %s", q)
		}
	}
	if got, want := show(lookup(t, s, "x.sub.d.test. TXT", outside)), "NOERROR\nns sub.d.test. NS ns.sub.d.test.\nar ns.sub.d.test. A "+child; got != want {
		t.Errorf("from outside: %s", got)
	}
	l.DNS.Forward = nil // delegations are followed without a forwarder too
	alone := newServer(t, compile(t, l), nil)
	if got, want := show(lookup(t, alone, "x.sub.d.test. TXT", inside)), "NOERROR ra\nan x.sub.d.test. TXT \"sub.d.test.\""; got != want {
		t.Errorf("without a forwarder: %s", got)
	}
}
