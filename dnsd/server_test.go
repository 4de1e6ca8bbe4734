package dnsd

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// upstream is another DNS server, made with miekg/dns, that counts its queries.
type fakeServer struct {
	addr  netip.AddrPort
	asked chan string
}

// newUpstream answers with handler over UDP and TCP until the test ends.
func newUpstream(t testing.TB, handler func(m *dns.Msg, network string) *dns.Msg) *fakeServer {
	t.Helper()
	return newUpstreamAt(t, "127.0.0.1:0", handler)
}

// newUpstreamAt is newUpstream at an address.
func newUpstreamAt(t testing.TB, addr string, handler func(m *dns.Msg, network string) *dns.Msg) *fakeServer {
	t.Helper()
	u := &fakeServer{asked: make(chan string, 1000)}
	u.addr = serveDNS(t, addr, func(w dns.ResponseWriter, q *dns.Msg) {
		network := w.RemoteAddr().Network()
		u.asked <- network + " " + strings.ToLower(q.Question[0].Name)
		if m := handler(q, network); m != nil {
			_ = w.WriteMsg(m)
		}
	})
	return u
}

// serveDNS lets a handler serve UDP and TCP at an address, and returns it.
func serveDNS(t testing.TB, addr string, h dns.HandlerFunc) netip.AddrPort {
	t.Helper()
	l, pc := listenBoth(t, addr)
	for _, srv := range []*dns.Server{{Listener: l, Handler: h}, {PacketConn: pc, Handler: h, UDPSize: 1232}} {
		started := make(chan struct{})
		srv.NotifyStartedFunc = func() { close(started) }
		go func() { _ = srv.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = srv.Shutdown() })
	}
	return netip.MustParseAddrPort(l.Addr().String())
}

// heldUpstream answers 10.0.0.1 to everything, but not before release is called.
func heldUpstream(t testing.TB) (up *fakeServer, release func()) {
	t.Helper()
	gate := make(chan struct{})
	up = newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg {
		<-gate
		return reply(q, q.Question[0].Name+" 60 IN A 10.0.0.1")
	})
	release = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(release) // before its servers are shut down, which wait for their answers
	return up, release
}

// reply returns the reply to q with the given records in its answer section, or with a SOA and NXDOMAIN without any.
func reply(q *dns.Msg, records ...string) *dns.Msg {
	m := new(dns.Msg).SetReply(q)
	for _, text := range records {
		rr, err := dns.NewRR(text)
		if err != nil {
			panic(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	if len(records) == 0 {
		soa, _ := dns.NewRR("example.org. 900 IN SOA a. b. 1 2 3 4 300")
		m.Rcode, m.Ns = dns.RcodeNameError, []dns.RR{soa}
	}
	return m
}

// nameServers returns servers as the lab file has them.
func nameServers(addrs ...netip.AddrPort) (servers []lab.NameServer) {
	for _, a := range addrs {
		servers = append(servers, lab.NameServer{Addr: a})
	}
	return servers
}

func forwardingLab(servers ...netip.AddrPort) *lab.Lab {
	l := openshift()
	l.DNS.Forward = nameServers(servers...)
	l.DNS.Allow = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	l.Zones = append(l.Zones, zoneOfLines("z.test.", "out CNAME www.example.org.", "sub NS ns.sub", "ns.sub A 127.53.0.1"))
	return l
}

const inside = "192.168.131.50"

// TestForward asks what the lab does not hold.
func TestForward(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg {
		switch strings.ToLower(q.Question[0].Name) {
		case "www.example.org.", "new.mycluster.example.com.":
			return reply(q, q.Question[0].Name+" 300 IN A 198.51.100.7", "evil.example. 300 IN A 6.6.6.6")
		}
		return reply(q)
	})
	s := newServer(t, compile(t, forwardingLab(up.addr)), leaseBook{})
	const soa = "\nns example.org. SOA a."
	for _, tt := range []struct{ from, question, want string }{
		{inside, "www.example.org. A", "NOERROR ra\nan www.example.org. A 198.51.100.7"},
		{inside, "WWW.example.ORG. A", "NOERROR ra\nan WWW.example.ORG. A 198.51.100.7"},
		{"127.0.0.1", "www.example.org. A", "NOERROR ra\nan www.example.org. A 198.51.100.7"},
		{"198.51.100.3", "www.example.org. A", "NOERROR ra\nan www.example.org. A 198.51.100.7"},
		{outside, "www.example.org. A", "REFUSED"},
		{inside, "missing.example.org. A", "NXDOMAIN ra" + soa},
		{inside, "new.mycluster.example.com. A", "NXDOMAIN aa ra\nns mycluster.example.com. SOA bootlab.example.com."},
		{outside, "new.mycluster.example.com. A", "NXDOMAIN aa\nns mycluster.example.com. SOA bootlab.example.com."},
		{inside, "master.mycluster.example.com. AAAA", "NOERROR aa ra\nns mycluster.example.com. SOA bootlab.example.com."},
		{inside, "x.apps.mycluster.example.com. AAAA", "NOERROR aa ra\nns mycluster.example.com. SOA bootlab.example.com."},
		{inside, "missing.z.test. A", "NXDOMAIN aa ra\nns z.test. SOA bootlab.example.com."},
		{inside, "out.z.test. A", "NOERROR aa ra\nan out.z.test. CNAME www.example.org.\nan www.example.org. A 198.51.100.7"},
		{outside, "out.z.test. A", "NOERROR aa\nan out.z.test. CNAME www.example.org."},
		{outside, "x.sub.z.test. A", "NOERROR\nns sub.z.test. NS ns.sub.z.test.\nar ns.sub.z.test. A 127.53.0.1"},
	} {
		if diff := cmp.Diff(tt.want, show(lookup(t, s, tt.question, tt.from))); diff != "" {
			t.Errorf("%s from %s (-want +got):\n%s", tt.question, tt.from, diff)
		}
	}
	m := new(dns.Msg).SetQuestion("other.example.org.", dns.TypeA)
	m.RecursionDesired = false
	if got := show(exchange(t, s, m, inside)); got != "REFUSED ra" {
		t.Errorf("without RD: %s", got)
	}
	seen := map[string]int{}
	for len(up.asked) > 0 {
		q := <-up.asked
		if seen[q]++; seen[q] > 1 {
			t.Errorf("asked twice in spite of the cache: %s", q)
		}
	}
	if len(seen) != 2 {
		t.Errorf("asked %v, want two names", seen)
	}
}

// TestForwardZones sends each question to the servers of the longest domain, also below a static zone.
func TestForwardZones(t *testing.T) {
	t.Parallel()
	serverFor := func(addr string) *fakeServer {
		return newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg { return reply(q, q.Question[0].Name+" 60 IN A "+addr) })
	}
	all, corp, inner := serverFor("10.0.0.1"), serverFor("10.0.0.2"), serverFor("10.0.0.3")
	l := forwardingLab(all.addr)
	l.DNS.ForwardZones = []lab.ForwardZone{
		{Domain: "corp.example", Servers: nameServers(corp.addr)},
		{Domain: "in.z.test", Servers: nameServers(inner.addr)},
		{Domain: "nowhere.corp.example"},
	}
	s := newServer(t, compile(t, l), nil)
	wantAnswers(t, s, inside, []dialogue{
		{"a.corp.example. A", "NOERROR ra\nan a.corp.example. A 10.0.0.2"},
		{"corp.example. A", "NOERROR ra\nan corp.example. A 10.0.0.2"},
		{"acorp.example. A", "NOERROR ra\nan acorp.example. A 10.0.0.1"},
		{"x.in.z.test. A", "NOERROR ra\nan x.in.z.test. A 10.0.0.3"},
		{"x.nowhere.corp.example. A", "REFUSED ra"},
	})
}

// TestUpstreamTrouble lets servers fail in every way that one of them may, and wants the answer of the other.
func TestUpstreamTrouble(t *testing.T) {
	t.Parallel()
	good := newUpstream(t, func(q *dns.Msg, network string) *dns.Msg { return reply(q, q.Question[0].Name+" 60 IN A 10.0.0.1") })
	for _, tt := range []struct {
		name    string
		handler func(q *dns.Msg, network string) *dns.Msg
	}{
		{"silent", func(*dns.Msg, string) *dns.Msg { return nil }},
		{"servfail", func(q *dns.Msg, _ string) *dns.Msg { return new(dns.Msg).SetRcode(q, dns.RcodeServerFailure) }},
		{"refused", func(q *dns.Msg, _ string) *dns.Msg { return new(dns.Msg).SetRcode(q, dns.RcodeRefused) }},
		{"formerr without question", func(q *dns.Msg, _ string) *dns.Msg { return new(dns.Msg).SetRcodeFormatError(q) }},
		{"wrong ID", func(q *dns.Msg, _ string) *dns.Msg { m := reply(q, "x. 60 IN A 6.6.6.6"); m.Id++; return m }},
		{"other question", func(q *dns.Msg, _ string) *dns.Msg { m := reply(q); m.Question[0].Name = "x.example.net."; return m }},
		{"query comes back", func(q *dns.Msg, _ string) *dns.Msg { return q }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bad := newUpstream(t, tt.handler)
			s := newServerWithTimeout(t, compile(t, forwardingLab(bad.addr, good.addr)), nil, 20*time.Second)
			want := "NOERROR ra\nan www.example.org. A 10.0.0.1"
			if diff := cmp.Diff(want, show(lookup(t, s, "www.example.org. A", inside))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if want := "NOERROR ra\nan two.example.org. A 10.0.0.1"; show(lookup(t, s, "two.example.org. A", inside)) != want {
				t.Errorf("the second question has no answer")
			}
			alone := newServerWithTimeout(t, compile(t, forwardingLab(bad.addr)), nil, 100*time.Millisecond)
			if got := show(lookup(t, alone, "www.example.org. A", inside)); got != "SERVFAIL ra" {
				t.Errorf("alone: %s", got)
			}
		})
	}
	t.Run("closed port", func(t *testing.T) {
		t.Parallel()
		s := newServer(t, compile(t, forwardingLab(netip.MustParseAddrPort("127.0.0.1:1"), good.addr)), nil)
		if got := lookup(t, s, "www.example.org. A", inside); len(got.Answer) != 1 {
			t.Errorf("got %s", show(got))
		}
	})
}

// TestUpstreamTCP asks over TCP what UDP does not carry, or what may be forged: another spelling of the name.
func TestUpstreamTCP(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"truncated", "lower case"} {
		up := newUpstream(t, func(q *dns.Msg, network string) *dns.Msg {
			m := reply(q, q.Question[0].Name+" 60 IN A 10.0.0.1")
			if network == "tcp" {
				return m
			}
			if name == "truncated" {
				m.Truncated, m.Answer = true, nil
			}
			m.Answer = nil
			m.Question[0].Name = strings.ToLower(m.Question[0].Name)
			return m
		})
		s := newServer(t, compile(t, forwardingLab(up.addr)), nil)
		long := "www." + strings.Repeat("abcdefghij.", 8) + "example.org." // so long that its letters never stay as they are
		if got := lookup(t, s, long+" A", inside); len(got.Answer) != 1 {
			t.Errorf("%s: %s", name, show(got))
		}
		if first, second := <-up.asked, <-up.asked; first != "udp "+long || second != "tcp "+long {
			t.Errorf("%s: asked %q, then %q", name, first, second)
		}
	}
}

// TestRandomness: two questions differ in ID, in the case of their letters, and in their port.
func TestRandomness(t *testing.T) {
	t.Parallel()
	var n name
	wire, _ := appendName(nil, strings.Repeat("abcdefghij.", 10))
	if _, err := n.parse(wire); err != nil {
		t.Fatal(err)
	}
	a := upstreamQuery{name: &n, qtype: typeA}
	one, two := a.message(queryStyle{edns: true, mixed: true}), a.message(queryStyle{edns: true, mixed: true})
	if string(one[:2]) == string(two[:2]) && string(a.message(queryStyle{edns: true, mixed: true})[:2]) == string(one[:2]) {
		t.Error("three queries with one ID")
	}
	if string(one[12:]) == string(two[12:]) {
		t.Error("two queries with the same letters")
	}
	var m dns.Msg
	if err := m.Unpack(one); err != nil || m.IsEdns0() == nil || !m.RecursionDesired {
		t.Errorf("query %v: %v", m, err)
	}
}

// TestSingleFlight asks one question many times at once.
func TestSingleFlight(t *testing.T) {
	t.Parallel()
	up, release := heldUpstream(t)
	s := newServer(t, compile(t, forwardingLab(up.addr)), nil)
	done := make(chan string, 20)
	for range cap(done) {
		go func() { done <- show(lookup(t, s, "www.example.org. A", inside)) }()
	}
	first := <-up.asked
	release()
	for range cap(done) {
		if got := <-done; !strings.Contains(got, "10.0.0.1") {
			t.Errorf("got %s", got)
		}
	}
	if len(up.asked) != 0 {
		t.Errorf("asked %s and again %s", first, <-up.asked)
	}
}

// TestSockets asks a running server over UDP and TCP, with the tools that are installed.
func TestSockets(t *testing.T) {
	l := openshift()
	l.DNS.Transfer = []lab.Access{{From: netip.MustParsePrefix("127.0.0.1/32")}}
	l.Zones = append(l.Zones, wireLab().Zones...)
	s := newServer(t, compile(t, l).WithSerials(map[string]uint32{"mycluster.example.com.": 5}), nil)
	ap := serve(t, s, "127.0.0.1")
	port := fmt.Sprint(ap.Port())
	dig := func(args ...string) string {
		return netns.Run(t, "dig", append([]string{"@127.0.0.1", "-p", port, "+tries=1", "+time=20"}, args...)...)
	}
	t.Run("dig", func(t *testing.T) {
		netns.Need(t, "dig")
		if got := dig("+short", "x.apps.mycluster.example.com"); got != "192.168.131.10\n" {
			t.Errorf("wildcard: %q", got)
		}
		if got := dig("+short", "-x", "192.168.131.12"); got != "master.mycluster.example.com.\n" {
			t.Errorf("reverse: %q", got)
		}
		if got := dig("+short", "+bufsize=512", "many.z.test"); strings.Count(got, "\n") != 70 {
			t.Errorf("retry over TCP: %q", got)
		}
		if got := dig("+short", "+tcp", "+keepopen", "api.mycluster.example.com", "www.z.test"); got != "192.168.131.10\n192.0.2.1\n" {
			t.Errorf("two over one connection: %q", got)
		}
		if got := dig("version.bind", "CH", "TXT"); !strings.Contains(got, "status: REFUSED") {
			t.Errorf("version.bind: %s", got)
		}
		if got := dig("+ednsnegotiation", "+edns=5", "www.z.test"); !strings.Contains(got, "192.0.2.1") {
			t.Errorf("EDNS version negotiation: %s", got)
		}
	})
	t.Run("axfr", func(t *testing.T) {
		netns.Need(t, "dig")
		for _, qtype := range []string{"AXFR", "IXFR=1"} {
			got := dig("mycluster.example.com", qtype)
			if strings.Count(got, "\tSOA\t") != 2 || !strings.Contains(got, "*.apps.mycluster.example.com. 60 IN\tA\t192.168.131.10") ||
				!strings.Contains(got, "XFR size: 11 records") {
				t.Errorf("%s: %s", qtype, got)
			}
		}
		if got := dig("apps.mycluster.example.com", "AXFR"); !strings.Contains(got, "Transfer failed") {
			t.Errorf("transfer of what is no zone: %s", got)
		}
	})
	t.Run("kdig", func(t *testing.T) {
		netns.Need(t, "kdig")
		got := netns.Run(t, "kdig", "@127.0.0.1", "-p", port, "+tcp", "+edns=0", "+padding", "_etcd-server-ssl._tcp.mycluster.example.com", "SRV")
		if !strings.Contains(got, "0 10 2380 etcd-0.mycluster.example.com.") || strings.Contains(got, "WARNING") {
			t.Errorf("SRV: %s", got)
		}
	})
	t.Run("dnsperf", func(t *testing.T) {
		netns.Need(t, "dnsperf")
		file := filepath.Join(t.TempDir(), "queries")
		questions := "x.apps.mycluster.example.com A\nmaster.mycluster.example.com A\n12.131.168.192.in-addr.arpa PTR\n"
		if err := os.WriteFile(file, []byte(questions), 0o600); err != nil {
			t.Fatal(err)
		}
		got := netns.Run(t, "dnsperf", "-s", "127.0.0.1", "-p", port, "-d", file, "-n", "2000", "-c", "8", "-Q", "20000")
		if !strings.Contains(got, "Response codes:       NOERROR 6000 (100.00%)") {
			t.Errorf("dnsperf: %s", got)
		}
	})
}

// TestTransferRefused: clients that are not listed get no zone transfer.
func TestTransferRefused(t *testing.T) {
	s := newServer(t, compile(t, openshift()), nil)
	ap := serve(t, s, "127.0.0.1")
	tr := &dns.Transfer{ReadTimeout: time.Minute}
	ch, err := tr.In(new(dns.Msg).SetAxfr("mycluster.example.com."), ap.String())
	if err == nil {
		err = (<-ch).Error
	}
	if err == nil || !strings.Contains(err.Error(), "rcode: 5") {
		t.Errorf("transfer by anyone: %v", err)
	}
}

// TestBigTransfer carries a zone of many messages whole.
func TestBigTransfer(t *testing.T) {
	l := labOf(3000)
	l.DNS.Transfer = []lab.Access{{From: netip.MustParsePrefix("127.0.0.0/8")}}
	ap := serve(t, newServer(t, compile(t, l), nil), "127.0.0.1")
	ch, err := (&dns.Transfer{ReadTimeout: time.Minute}).In(new(dns.Msg).SetAxfr("c.example.com."), ap.String())
	if err != nil {
		t.Fatal(err)
	}
	records := 0
	for e := range ch {
		if e.Error != nil {
			t.Fatal(e.Error)
		}
		records += len(e.RR)
	}
	if want := 3000 + 1 + 1 + 2; records != want { // hosts, wildcard, NS, two SOA
		t.Errorf("%d records, want %d", records, want)
	}
}

// TestSourceAddress: on a wildcard socket of both families, a reply leaves from the address that was asked, whichever the
// kernel would choose.
func TestSourceAddress(t *testing.T) {
	netns.Need(t, "root", "ip")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	netns.Run(t, "ip", "addr", "add", "10.77.0.2/24", "dev", seg.Bridge)
	netns.Run(t, "ip", "addr", "add", "fd77::1/64", "dev", seg.Bridge, "nodad")
	netns.Run(t, "ip", "addr", "add", "fd77::2/64", "dev", seg.Bridge, "nodad")
	up := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg { return reply(q, q.Question[0].Name+" 0 IN A 10.0.0.1") })
	l := forwardingLab(up.addr)
	l.DNS.Allow = []netip.Prefix{netip.MustParsePrefix("10.77.0.0/24"), netip.MustParsePrefix("fd77::/64")}
	s := newServer(t, compile(t, l), nil)
	for _, listen := range []string{"[::]:0", "0.0.0.0:0"} {
		network := "udp"
		if listen[0] == '0' {
			network = "udp4"
		}
		pc, err := net.ListenPacket(network, listen)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx, []*net.UDPConn{pc.(*net.UDPConn)}, nil) }()
		port := fmt.Sprint(netip.MustParseAddrPort(pc.LocalAddr().String()).Port())
		for _, host := range []string{"10.77.0.1", "10.77.0.2", "127.0.0.5", "fd77::1", "fd77::2", "::1"} {
			if strings.Contains(host, ":") && network == "udp4" {
				continue
			}
			for _, question := range []string{"api.mycluster.example.com.", "www.example.org."} {
				// A connected socket takes replies from nowhere else.
				m, err := exchangeTwice(new(dns.Msg).SetQuestion(question, dns.TypeA), net.JoinHostPort(host, port))
				if err != nil || len(m.Answer) != 1 {
					t.Errorf("%s at %s of %s: %v %v", question, host, listen, m, err)
				}
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// exchangeTwice asks again if nothing comes back, as every resolver does: Linux now and then loses the first packet to an
// IPv6 address that is milliseconds old, before any server sees it.
func exchangeTwice(q *dns.Msg, addr string) (m *dns.Msg, err error) {
	c := &dns.Client{Timeout: 5 * time.Second}
	for range 2 {
		if m, _, err = c.Exchange(q, addr); err == nil {
			return m, nil
		}
	}
	return nil, err
}

// TestDnsmasqUpstream forwards to dnsmasq.
func TestDnsmasqUpstream(t *testing.T) {
	netns.Need(t, "root", "dnsmasq")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	port := netns.FreePort(t)
	server := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port))
	cmd := dnsmasq(ctx, port, "--address=/kuryr.example/172.24.4.2", "--host-record=one.example.net,192.0.2.1", "--local=/example.net/",
		"--cname=alias.example.net,one.example.net", "--txt-record=big.example.net,"+strings.Repeat("0123456789", 20))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	s := newServer(t, compile(t, forwardingLab(server)), nil)
	waitFor(t, server.String())
	wantAnswers(t, s, inside, []dialogue{
		{"x.kuryr.example. A", "NOERROR ra\nan x.kuryr.example. A 172.24.4.2"},
		{"one.example.net. A", "NOERROR ra\nan one.example.net. A 192.0.2.1"},
		{"alias.example.net. A", "NOERROR ra\nan alias.example.net. CNAME one.example.net.\nan one.example.net. A 192.0.2.1"},
		{"one.example.net. AAAA", "NOERROR ra"},
		{"two.example.net. A", "NXDOMAIN ra"},
	})
}

// TestMetrics counts by closed sets.
func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	table := compile(t, openshift())
	s, err := New(Config{}, Deps{Table: func() *Table { return table }, Now: time.Now, Log: newServer(t, table, nil).log, Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	lookup(t, s, "api.mycluster.example.com. A", outside)
	lookup(t, s, "www.example.org. AAAA", outside)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		if f.GetName() == metricQueries {
			for _, m := range f.GetMetric() {
				line := fmt.Sprint(m.GetCounter().GetValue())
				for _, l := range m.GetLabel() {
					line += " " + l.GetName() + "=" + l.GetValue()
				}
				got = append(got, line)
			}
		}
	}
	want := []string{"1 rcode=noerror source=derived type=A", "1 rcode=refused source=none type=AAAA"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNewPanics names the dependency that is missing.
func TestNewPanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if got := recover(); got != "dnsd: Deps.Table is nil" {
			t.Errorf("panic %v", got)
		}
	}()
	_, _ = New(Config{}, Deps{})
}

// TestServeWithoutSockets: with dns: off the server runs until its context ends, as with sockets.
func TestServeWithoutSockets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, compile(t, &lab.Lab{}), leaseBook{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx, nil, nil) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("Serve returned %v before its context ended", err)
		default:
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve returned %v, want nil", err)
		}
	})
}
