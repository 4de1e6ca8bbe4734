package dnsd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// TestForwardedCNAME: a CNAME of another server that leads into a zone of the lab is followed there, whatever that server says about the
// target, as is the last one of a chain that it did not follow itself.
func TestForwardedCNAME(t *testing.T) {
	t.Parallel()
	const api = "api.mycluster.example.com."
	up := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg {
		asked := q.Question[0].Name
		cname := func(target string) string { return asked + " 60 IN CNAME " + target }
		lower := strings.ToLower(asked)
		var n int
		switch _, _ = fmt.Sscanf(lower, "n%d.example.org.", &n); {
		case n > 0:
			return liar(q, []string{cname(fmt.Sprintf("n%d.example.org.", n+1))}, nil, nil)
		case lower == "lab.example.org.":
			return liar(q, []string{cname(api)}, nil, nil)
		case lower == "lie.example.org.":
			return liar(q, []string{cname("b.example.org."), "b.example.org. 60 IN CNAME " + api, api + " 60 IN A 6.6.6.6"}, nil, nil)
		case lower == "none.example.org.", lower == "missing.example.org.":
			target := map[bool]string{true: api, false: "missing.z.test."}[lower == "none.example.org."]
			m := liar(q, []string{cname(target)}, []string{". 60 IN SOA a. b. 1 2 3 4 300"}, nil)
			m.Rcode = dns.RcodeNameError
			return m
		case lower == "back.example.org.":
			return liar(q, []string{cname("out.z.test.")}, nil, nil)
		case lower == "lazy.example.org.":
			return liar(q, []string{cname("www.example.org.")}, nil, nil)
		case lower == "www.example.org.":
			return liar(q, []string{asked + " 60 IN A 198.51.100.7"}, nil, nil)
		}
		return reply(q)
	})
	s := newServerWithTimeout(t, compile(t, forwardingLab(up.addr)), leaseBook{}, time.Minute)
	all := []dialogue{
		{"lab.example.org. A", "NOERROR ra\nan lab.example.org. CNAME " + api + "\nan " + api + " A 192.168.131.10"},
		{"none.example.org. A", "NOERROR ra\nan none.example.org. CNAME " + api + "\nan " + api + " A 192.168.131.10"},
		{"lie.example.org. A", "NOERROR ra\nan lie.example.org. CNAME b.example.org.\nan b.example.org. CNAME " + api + "\nan " + api + " A 192.168.131.10"},
		{"lazy.example.org. A", "NOERROR ra\nan lazy.example.org. CNAME www.example.org.\nan www.example.org. A 198.51.100.7"},
		{"back.example.org. A", "NOERROR ra\nan back.example.org. CNAME out.z.test.\nan out.z.test. CNAME www.example.org.\nan www.example.org. A 198.51.100.7"},
		{"lab.example.org. CNAME", "NOERROR ra\nan lab.example.org. CNAME " + api},
	}
	wantAnswers(t, s, inside, all)
	wantAnswers(t, s, inside, all) // from the cache
	if got := show(lookup(t, s, "missing.example.org. A", inside)); !strings.HasPrefix(got, "NXDOMAIN ra\nan missing.example.org. CNAME missing.z.test.\nns z.test. SOA") {
		t.Errorf("a target that its zone does not have: %s", got)
	}
	before := len(up.asked)
	chain := new(dns.Msg).SetQuestion("n1.example.org.", dns.TypeA)
	chain.SetEdns0(1232, false) // room for more
	if m := exchange(t, s, chain, inside); m.Truncated || m.Rcode != dns.RcodeSuccess || len(m.Answer) > maxChain+1 {
		t.Errorf("a chain without an end: %v", m)
	}
	if n := len(up.asked) - before; n > maxChain+1 {
		t.Errorf("asked %d times about a chain without an end", n)
	}
}
