package dnsd

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// liar returns a reply of a server that lies, made from records by section.
func liar(q *dns.Msg, answer, ns, extra []string) *dns.Msg {
	m := new(dns.Msg).SetReply(q)
	for _, s := range []struct {
		to   *[]dns.RR
		text []string
	}{{&m.Answer, answer}, {&m.Ns, ns}, {&m.Extra, extra}} {
		for _, text := range s.text {
			rr, err := dns.NewRR(text)
			if err != nil {
				panic(err)
			}
			*s.to = append(*s.to, rr)
		}
	}
	return m
}

// TestLyingUpstream: of what another server says only the answer to the question is believed, cached and passed on.
func TestLyingUpstream(t *testing.T) {
	t.Parallel()
	big := make([]string, 500)
	for i := range big {
		big[i] = "big.example.org. 60 IN TXT " + strings.Repeat("x", 10) + string(rune('a'+i%26)) + strings.Repeat("y", i%200)
	}
	up := newUpstream(t, func(q *dns.Msg, network string) *dns.Msg {
		asked := q.Question[0].Name
		switch strings.ToLower(asked) {
		case "poison.example.org.":
			return liar(q, []string{asked + " 60 IN A 198.51.100.7", "bank.example. 86400 IN A 6.6.6.6", "api.mycluster.example.com. 86400 IN A 6.6.6.6"},
				[]string{"example. 86400 IN NS ns.evil.example."}, []string{"ns.evil.example. 86400 IN A 6.6.6.6"})
		case "other.example.org.":
			return liar(q, []string{"bank.example. 60 IN A 6.6.6.6"}, nil, nil)
		case "foreign.example.org.":
			m := liar(q, nil, []string{"bank.example. 900 IN SOA a. b. 1 2 3 4 300"}, nil)
			m.Rcode = dns.RcodeNameError
			return m
		case "class.example.org.":
			return liar(q, []string{asked + " 60 CH A 6.6.6.6"}, nil, nil)
		case "question.example.org.":
			m := liar(q, []string{asked + " 60 IN A 6.6.6.6"}, nil, nil)
			m.Question[0].Name = "bank.example."
			return m
		case "type.example.org.":
			m := liar(q, []string{asked + " 60 IN TXT x"}, nil, nil)
			m.Question[0].Qtype = dns.TypeTXT
			return m
		case "loop.example.org.":
			return liar(q, []string{asked + " 60 IN CNAME b.example.org.", "b.example.org. 60 IN CNAME loop.example.org."}, nil, nil)
		case "big.example.org.":
			if network == "udp" {
				m := liar(q, nil, nil, nil)
				m.Truncated = true
				return m
			}
			m := liar(q, big, nil, nil)
			m.Compress = true
			return m
		case "ttl.example.org.":
			return liar(q, []string{asked + " 2147483648 IN A 198.51.100.7"}, nil, nil)
		}
		return liar(q, nil, nil, nil)
	})
	s := newServerWithTimeout(t, compile(t, forwardingLab(up.addr)), nil, 10*time.Second)
	wantAnswers(t, s, inside, []dialogue{
		{"poison.example.org. A", "NOERROR ra\nan poison.example.org. A 198.51.100.7"},
		{"bank.example. A", "NOERROR ra"},
		{"api.mycluster.example.com. A", "NOERROR aa ra\nan api.mycluster.example.com. A 192.168.131.10"},
		{"other.example.org. A", "NOERROR ra"},
		{"foreign.example.org. A", "NXDOMAIN ra"},
		{"class.example.org. A", "NOERROR ra"},
		{"loop.example.org. A", "NOERROR ra\nan loop.example.org. CNAME b.example.org.\nan b.example.org. CNAME loop.example.org."},
		{"big.example.org. TXT", "NOERROR tc ra"},
		{"ttl.example.org. A", "NOERROR ra\nan ttl.example.org. A 198.51.100.7"},
	})
	wantAnswers(t, newServerWithTimeout(t, compile(t, forwardingLab(up.addr)), nil, 100*time.Millisecond), inside, []dialogue{ // nothing comes any more
		{"question.example.org. A", "SERVFAIL ra"},
		{"type.example.org. A", "SERVFAIL ra"},
	})
	for key := range s.forward.cache.entries {
		if strings.Contains(key, "\x04bank") || strings.Contains(key, "mycluster") || strings.Contains(key, "\x04evil") {
			t.Errorf("cached: %q", key)
		}
	}
}

// TestTTLOfUpstream: a TTL with the high bit is 0 (RFC 2181 section 8), and no record is passed on, or kept, for more than a day.
func TestTTLOfUpstream(t *testing.T) {
	t.Parallel()
	ttls := map[string]string{"max.example.org.": "4294967295", "high.example.org.": "2147483648", "long.example.org.": "2147483647", "day.example.org.": "86400"}
	up := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg {
		asked := q.Question[0].Name
		m := liar(q, []string{asked + " " + ttls[strings.ToLower(asked)] + " IN A 198.51.100.7"}, nil, nil)
		if q.Question[0].Qtype == dns.TypeTXT { // there is none
			m.Answer, m.Ns = nil, liar(q, nil, []string{"example.org. " + ttls[strings.ToLower(asked)] + " IN SOA a. b. 1 2 3 4 300"}, nil).Ns
		}
		return m
	})
	s := newServer(t, compile(t, forwardingLab(up.addr)), nil)
	for name, want := range map[string]uint32{"max.example.org.": 0, "high.example.org.": 0, "long.example.org.": 86400, "day.example.org.": 86400} {
		for _, qtype := range []string{"A", "TXT"} {
			m := lookup(t, s, name+" "+qtype, inside)
			rrs := slices.Concat(m.Answer, m.Ns)
			if len(rrs) != 1 || rrs[0].Header().Ttl != want {
				t.Errorf("%s %s, sent with a TTL of %s: %v, want one record with %d", name, qtype, ttls[name], rrs, want)
			}
		}
		if kept := slices.ContainsFunc(slices.Collect(maps.Keys(s.forward.cache.entries)), func(key string) bool {
			return strings.HasPrefix(key, string(rune(len(name)-13))+name[:len(name)-13])
		}); kept != (want > 0) {
			t.Errorf("%s is cached: %t, with a TTL of %d", name, kept, want)
		}
	}
}

// TestBrokenUpstream: a reply that does not hold the records that its header counts, or that cannot be read, is no answer, least of all
// one that says that there are no records: the next server is asked, and without one it is SERVFAIL.
func TestBrokenUpstream(t *testing.T) {
	t.Parallel()
	good := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg { return reply(q, q.Question[0].Name+" 60 IN A 10.0.0.1") })
	for name, change := range map[string]func(packed []byte, question int) []byte{
		"all counts are 65535, and no record": func(b []byte, n int) []byte {
			return append(append(b[:6:6], "\xff\xff\xff\xff\xff\xff"...), b[12:n]...)
		},
		"one answer is counted, and none":    func(b []byte, n int) []byte { return append(append(b[:6:6], 0, 1, 0, 0, 0, 0), b[12:n]...) },
		"two answers are counted, and one":   func(b []byte, _ int) []byte { b[7] = 2; return b },
		"an authority is counted, and none":  func(b []byte, _ int) []byte { b[9] = 1; return b },
		"an additional is counted, and none": func(b []byte, _ int) []byte { b[11] = 1; return b },
		"cut off":                            func(b []byte, _ int) []byte { return b[:len(b)-3] },
		"no record is counted, and one":      func(b []byte, _ int) []byte { b[7] = 0; return b },
		"an owner that points to itself": func(b []byte, n int) []byte {
			return append(b[:n:n], 0xc0, byte(n), 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 0, 0, 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := serveDNS(t, "127.0.0.1:0", func(w dns.ResponseWriter, q *dns.Msg) {
				q.Extra = nil
				question := q.Len()
				packed, _ := reply(q, q.Question[0].Name+" 60 IN A 10.0.0.2").Pack()
				_, _ = w.Write(change(packed, question))
			})
			alone := newServerWithTimeout(t, compile(t, forwardingLab(bad)), nil, 5*time.Second)
			if got := show(lookup(t, alone, "www.example.org. A", inside)); got != "SERVFAIL ra" {
				t.Errorf("alone: %s, want SERVFAIL", got)
			}
			both := newServerWithTimeout(t, compile(t, forwardingLab(bad, good.addr)), nil, 5*time.Second)
			if got, want := show(lookup(t, both, "www.example.org. A", inside)), "NOERROR ra\nan www.example.org. A 10.0.0.1"; got != want {
				t.Errorf("beside another: %s, want %s", got, want)
			}
		})
	}
}

// TestReplyWithoutQuestion: a reply without the question has no letters that a forger would have to guess. It is skipped or, where a
// server says that it does not answer, TCP shows whether it was the server.
func TestReplyWithoutQuestion(t *testing.T) {
	t.Parallel()
	for code := range 11 {
		t.Run(dns.RcodeToString[code], func(t *testing.T) {
			t.Parallel()
			up := serveDNS(t, "127.0.0.1:0", func(w dns.ResponseWriter, q *dns.Msg) {
				if w.RemoteAddr().Network() == "udp" {
					_ = w.WriteMsg(&dns.Msg{MsgHdr: dns.MsgHdr{Id: q.Id, Response: true, Rcode: code}})
				}
				_ = w.WriteMsg(reply(q, q.Question[0].Name+" 60 IN A 10.0.0.1"))
			})
			s := newServerWithTimeout(t, compile(t, forwardingLab(up)), nil, 5*time.Second)
			if got, want := show(lookup(t, s, "www.example.org. A", inside)), "NOERROR ra\nan www.example.org. A 10.0.0.1"; got != want {
				t.Errorf("got %s\nwant %s", got, want)
			}
		})
	}
}
