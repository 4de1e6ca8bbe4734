package dnsd

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// explained asks "NAME TYPE" from an address and returns the answer as text: code, flags, records, steps.
func explained(t *testing.T, s *Server, question, from string) string {
	t.Helper()
	owner, qtype, _ := strings.Cut(question, " ")
	e, err := s.Explain(t.Context(), Question{Name: owner, Type: qtype, From: netip.MustParseAddr(from)})
	if err != nil {
		return err.Error()
	}
	text := e.Question + "\n" + strings.Join(append([]string{e.Code}, e.Flags...), " ")
	for _, step := range e.Steps {
		text += "\n" + step.Name + " " + step.By + ": " + step.Text
	}
	return text
}

// TestExplain: what is said about an answer is what decided it.
func TestExplain(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg { return reply(q, q.Question[0].Name+" 60 IN A 198.51.100.7") })
	l := forwardingLab(up.addr)
	l.DNS.ForwardZones = []lab.ForwardZone{{Domain: "corp.example", Servers: l.DNS.Forward}}
	shared := derived("shared.example.", "on.shared.example. A 192.168.131.30")
	shared.ForwardMissing = true
	l.Zones = append(l.Zones, shared, zoneOfLines("lines.test.", "* A 10.0.0.1", "d DNAME mycluster.example.com."))
	s := newServer(t, compile(t, l), clients(map[string]string{"laptop": "192.168.131.77"}))
	cluster := "mycluster.example.com."
	rule := " rule: dns.forward: " + up.addr.String()
	for _, tt := range []struct{ question, from, want string }{
		{"api." + cluster, outside, "api." + cluster + " A\nNOERROR aa\napi." + cluster + " zone: zone " + cluster + " (derived), from host api"},
		{"x.apps." + cluster + " a", outside, "x.apps." + cluster + " A\nNOERROR aa\nx.apps." + cluster + " zone: zone " + cluster + " (derived), wildcard *.apps." + cluster + ", from host *"},
		{"api." + cluster + " ANY", outside, "api." + cluster + " ANY\nNOERROR aa\napi." + cluster + " zone: zone " + cluster + " (derived)"},
		{"api." + cluster + " AAAA", outside, "api." + cluster + " AAAA\nNOERROR aa\napi." + cluster + " zone: zone " + cluster + " (derived), the name has no such record"},
		{"none." + cluster, inside, "none." + cluster + " A\nNXDOMAIN aa ra\nnone." + cluster + " zone: zone " + cluster + " (derived) has no such name"},
		{"192.168.131.13", outside, "13.131.168.192.in-addr.arpa. PTR\nNOERROR aa\n13.131.168.192.in-addr.arpa. zone: zone 131.168.192.in-addr.arpa. (derived), from host 13"},
		{"laptop.example.com", outside, "laptop.example.com. A\nNOERROR aa\nlaptop.example.com. lease: lease of a DHCP client"},
		{"x.lines.test TYPE1", outside, "x.lines.test. TYPE1\nNOERROR aa\nx.lines.test. zone: zone lines.test. (static, lab.yaml:9:5), wildcard *.lines.test."},
		{"api.d.lines.test", outside, "api.d.lines.test. A\nNOERROR aa\napi.d.lines.test. zone: zone lines.test. (static, lab.yaml:9:5), DNAME of d.lines.test.\n" +
			"api." + cluster + " zone: zone " + cluster + " (derived), from host api"},
		{"nas.local", inside, "nas.local. A\nNXDOMAIN aa ra\nnas.local. local: no server outside has an answer (RFC 6303, 6761)"},
		{"www.example.org", outside, "www.example.org. A\nREFUSED\nwww.example.org. policy: only clients of the lab's networks and of dns.allow may use the forwarder"},
		{"out.z.test", outside, "out.z.test. A\nNOERROR aa\nout.z.test. zone: zone z.test. (static, lab.yaml:9:5), CNAME\n" +
			"www.example.org. policy: only clients of the lab's networks and of dns.allow may use the forwarder"},
		{"nope", inside, "nope. A\nNXDOMAIN aa ra\nnope. local: a name of one label is asked nowhere else: add the domain of the host"},
		{"a..b", inside, `not a question: "a..b" is not a domain name`},
		{"", inside, `not a question: "" is not a domain name`},
		{"a.b WRONG", inside, `not a question: "WRONG" is not a record type`},
	} {
		if diff := cmp.Diff(tt.want, explained(t, s, tt.question, tt.from)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.question, diff)
		}
	}
	for _, tt := range []struct{ question, want string }{
		{"www.example.org", "www.example.org. A\nNOERROR ra\nwww.example.org." + rule + "\nwww.example.org. upstream: answer of " + up.addr.String() + " in "},
		{"www.example.org", "www.example.org. A\nNOERROR ra\nwww.example.org." + rule + "\nwww.example.org. cache: answer of " + up.addr.String() + ", 0s old"},
		{"dc.corp.example", "dc.corp.example. A\nNOERROR ra\ndc.corp.example. rule: dns.forward_zones, corp.example.: " + up.addr.String() + "\ndc.corp.example. upstream: "},
		{"www.shared.example", "www.shared.example. A\nNOERROR ra\nwww.shared.example. zone: zone shared.example. (derived) has no such name\n" +
			"www.shared.example. rule: names that the zone does not have are forwarded (forward: missing)\nwww.shared.example." + rule + "\nwww.shared.example. upstream: "},
	} {
		if got := explained(t, s, tt.question, inside); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s (-want +got):\n%s", tt.question, cmp.Diff(tt.want, got))
		}
	}
	if l.DNS.Forward = nil; true {
		s = newServer(t, compile(t, l), nil)
		if got, want := explained(t, s, "www.example.org", inside), "no rule of dns.forward_zones or dns.forward"; !strings.HasSuffix(got, want) {
			t.Errorf("without dns.forward: %s, want %s", got, want)
		}
	}
}

// TestExplainDeadUpstream: the reason why there is no answer is there once, without the words of sockets.
func TestExplainDeadUpstream(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, func(*dns.Msg, string) *dns.Msg { return nil })
	s := newServerWithTimeout(t, compile(t, forwardingLab(up.addr)), nil, 250*time.Millisecond)
	got := explained(t, s, "www.example.org", inside)
	if reason := "upstream: no answer from " + up.addr.String() + " within 0.25 s"; strings.Count(got, up.addr.String()+" within") != 1 || !strings.Contains(got, reason) || strings.Contains(got, "timeout") {
		t.Errorf("want once %q in\n%s", reason, got)
	}
}

// TestFlush: a name and what is below it leave the cache, nothing else does.
func TestFlush(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg {
		return reply(q, q.Question[0].Name+" 60 IN A 198.51.100.7", q.Question[0].Name+" 60 IN TXT x")
	})
	s := newServer(t, compile(t, forwardingLab(up.addr)), nil)
	all := []string{"example.org.", "www.example.org.", "a.www.example.org.", "notexample.org.", "example.net."}
	fill := func() {
		for _, n := range all {
			lookup(t, s, n+" A", inside)
			lookup(t, s, n+" TXT", inside)
		}
	}
	for _, tt := range []struct {
		name string
		want int
	}{{"WWW.example.org", 4}, {"example.org.", 6}, {"org", 8}, {"other.example", 0}, {"", 10}} {
		fill()
		if got, err := s.Flush(tt.name); got != tt.want || err != nil {
			t.Errorf("flush %q: %d, %v, want %d", tt.name, got, err, tt.want)
		}
	}
	if len(s.forward.cache.entries) != 0 || s.forward.cache.bytes != 0 {
		t.Error("something is left")
	}
	if _, err := s.Flush("a..b"); err == nil {
		t.Error("a..b was flushed")
	}
}

// TestQueryLog: who asks for the queries of some clients gets them, until it stops reading.
func TestQueryLog(t *testing.T) {
	t.Parallel()
	s := newServer(t, compile(t, openshift()), nil)
	lookup(t, s, "early.example.com. A", inside)
	ctx, cancel := context.WithCancel(t.Context())
	queries := s.FollowQueries(ctx, func(a netip.Addr) bool { return a.String() == inside })
	lookup(t, s, "api.mycluster.example.com. A", outside)
	lookup(t, s, "api.mycluster.example.com. A", inside)
	q := <-queries
	if q.Question != "api.mycluster.example.com. A" || q.From.String() != inside || q.Code != "NOERROR" || q.Source != "derived" || q.Records != 1 || q.At.IsZero() {
		t.Errorf("got %+v", q)
	}
	cancel()
	for range queries { // closed
	}
	slow := s.FollowQueries(t.Context(), func(netip.Addr) bool { return true })
	for range followedQueries + 1 {
		lookup(t, s, "api.mycluster.example.com. A", inside)
	}
	n := 0
	for range slow {
		n++
	}
	if n != followedQueries || s.queries.readers.Load() != 0 {
		t.Errorf("a slow reader got %d, and %d are left", n, s.queries.readers.Load())
	}
}

// TestZoneMetrics: replies are counted by zone over reloads, and servers are measured, with a bounded number of labels.
func TestZoneMetrics(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg { return reply(q, q.Question[0].Name+" 60 IN A 198.51.100.7") })
	dead := netip.MustParseAddrPort("127.0.0.1:1")
	l := forwardingLab(up.addr, dead)
	table := compile(t, l)
	reg := prometheus.NewRegistry()
	s, err := New(Config{}, Deps{Table: func() *Table { return table }, Now: time.Now, Log: slog.New(slog.DiscardHandler), Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	lookup(t, s, "api.mycluster.example.com. A", inside)
	lookup(t, s, "none.mycluster.example.com. A", inside)
	lookup(t, s, "www.example.org. A", inside)
	lookup(t, s, "www.example.org. A", outside)
	_, _ = s.Explain(t.Context(), Question{Name: "api.mycluster.example.com", From: netip.MustParseAddr(inside)}) // is not counted
	l.Zones = append(l.Zones, zoneOfLines("aaa.test.", "x A 10.0.0.1"))
	table = compile(t, l)
	lookup(t, s, "api.mycluster.example.com. A", inside)
	lookup(t, s, "x.aaa.test. A", inside)
	for i := range 100 {
		l.Zones = append(l.Zones, zoneOfLines(fmt.Sprintf("z%d.test.", i), "x A 10.0.0.1"))
	}
	table = compile(t, l)
	for i := range 100 {
		lookup(t, s, fmt.Sprintf("x.z%d.test. A", i), inside)
	}
	got := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	labels := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case metricZone:
				got[m.GetLabel()[1].GetValue()+" "+m.GetLabel()[0].GetValue()] += m.GetCounter().GetValue()
				labels++
			case metricUpstream:
				got[m.GetLabel()[0].GetValue()] += float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	for label, want := range map[string]float64{"mycluster.example.com. noerror": 2, "mycluster.example.com. nxdomain": 1, "aaa.test. noerror": 1, up.addr.String(): 1} {
		if got[label] != want {
			t.Errorf("%s: %v, want %v", label, got[label], want)
		}
	}
	if labels > maxZoneLabels+2 || got["other noerror"] < 30 {
		t.Errorf("%d labels, %v of other zones", labels, got["other noerror"])
	}
}
