package dnsd

import (
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
