package dnsd

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// TestNothingLeaks asks for names that are the lab's, or nobody's, as a client that may recurse: no other server is asked.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg { return reply(q, q.Question[0].Name+" 60 IN A 6.6.6.6") })
	l := forwardingLab(up.addr)
	l.Hosts = append(l.Hosts, &lab.Host{Name: "off", FQDN: "off.shared.example", MACs: []lab.MAC{{2}}})
	shared := derived("shared.example.", "on.shared.example. A 192.168.131.30")
	shared.ForwardMissing = true
	small := derived("2.0.192.in-addr.arpa.")
	small.ForwardMissing = true
	l.Zones = append(l.Zones, shared, small)
	l.Networks = append(l.Networks, &lab.Network{Name: "small", Subnet: netip.MustParsePrefix("192.0.2.0/28")})
	s := newServer(t, compile(t, l), leaseBook{})
	const primary = "bootlab.example.com."
	local := func(zone string) string { return "NXDOMAIN aa ra\nns " + zone + " SOA " + zone }
	wantAnswers(t, s, inside, []dialogue{
		{"missing.mycluster.example.com. A", "NXDOMAIN aa ra\nns mycluster.example.com. SOA " + primary},
		{"missing.example.com. AAAA", "NXDOMAIN aa ra\nns example.com. SOA " + primary},
		{"99.131.168.192.in-addr.arpa. PTR", "NXDOMAIN aa ra\nns 131.168.192.in-addr.arpa. SOA " + primary},
		{"off.shared.example. A", "NXDOMAIN aa ra\nns shared.example. SOA " + primary}, // a host of the lab that is switched off
		{"5.2.0.192.in-addr.arpa. PTR", "NXDOMAIN aa ra\nns 2.0.192.in-addr.arpa. SOA " + primary},

		{"localhost. A", "NOERROR aa ra\nan localhost. A 127.0.0.1"},
		{"x.LocalHost. AAAA", "NOERROR aa ra\nan x.LocalHost. AAAA ::1"},
		{"localhost. MX", "NOERROR aa ra\nns localhost. SOA localhost."},
		{"1.0.0.127.in-addr.arpa. PTR", "NOERROR aa ra\nan 1.0.0.127.in-addr.arpa. PTR localhost."},
		{"1." + strings.Repeat("0.", 31) + "ip6.arpa. PTR", "NOERROR aa ra\nan 1." + strings.Repeat("0.", 31) + "ip6.arpa. PTR localhost."},
		{"2.0.0.127.in-addr.arpa. PTR", local("127.in-addr.arpa.")},
		{"7.6.5.10.in-addr.arpa. PTR", local("10.in-addr.arpa.")},
		{"1.1.31.172.in-addr.arpa. PTR", local("31.172.in-addr.arpa.")},
		{"1.1.168.192.in-addr.arpa. PTR", local("168.192.in-addr.arpa.")},
		{"10.in-addr.arpa. NS", "NOERROR aa ra\nan 10.in-addr.arpa. NS 10.in-addr.arpa."},
		{"10.in-addr.arpa. SOA", "NOERROR aa ra\nan 10.in-addr.arpa. SOA 10.in-addr.arpa."},
		{"b.a.9.e.f.ip6.arpa. PTR", local("9.e.f.ip6.arpa.")},
		{"printer.local. A", local("local.")},
		{"x.onion. A", local("onion.")},
		{"x.invalid. A", local("invalid.")},
		{"nas.home.arpa. A", local("home.arpa.")},
		{"wpad. A", "NXDOMAIN aa ra"},
		{"nas. HTTPS", "NXDOMAIN aa ra"},
	})
	if len(up.asked) > 0 {
		t.Errorf("asked elsewhere: %s", <-up.asked)
	}
	wantAnswers(t, s, inside, []dialogue{
		{"www.shared.example. A", "NOERROR ra\nan www.shared.example. A 6.6.6.6"}, // the domain is others' too
		{"200.2.0.192.in-addr.arpa. A", "NOERROR ra\nan 200.2.0.192.in-addr.arpa. A 6.6.6.6"},
		{"1.1.32.172.in-addr.arpa. A", "NOERROR ra\nan 1.1.32.172.in-addr.arpa. A 6.6.6.6"},
		{"org. NS", "NOERROR ra\nan org. A 6.6.6.6"},
	})
	wantAnswers(t, s, outside, []dialogue{{"localhost. A", "REFUSED"}, {"x.local. A", "REFUSED"}, {"wpad. A", "REFUSED"}})
}

// TestForwardedLocalZone: a rule of dns.forward_zones for a local zone, or for a part of it, says who has an answer.
func TestForwardedLocalZone(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg { return reply(q, q.Question[0].Name+" 60 IN A 10.0.0.9") })
	l := forwardingLab(up.addr)
	for _, domain := range []string{"20.10.in-addr.arpa", "local", "nas"} {
		l.DNS.ForwardZones = append(l.DNS.ForwardZones, lab.ForwardZone{Domain: domain, Servers: nameServers(up.addr)})
	}
	s := newServer(t, compile(t, l), nil)
	for question, want := range map[string]string{
		"1.1.20.10.in-addr.arpa. A": "NOERROR ra\nan 1.1.20.10.in-addr.arpa. A 10.0.0.9",
		"dc.local. A":               "NOERROR ra\nan dc.local. A 10.0.0.9",
		"nas. A":                    "NOERROR ra\nan nas. A 10.0.0.9",
		"1.1.21.10.in-addr.arpa. A": "NXDOMAIN aa ra\nns 10.in-addr.arpa. SOA 10.in-addr.arpa.",
	} {
		if diff := cmp.Diff(want, show(lookup(t, s, question, inside))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", question, diff)
		}
	}
}

// TestRecursionByIPv6: clients of the lab's segments may use the forwarder by IPv6 too, and dns.allow holds for addresses with a zone.
func TestRecursionByIPv6(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg { return reply(q, q.Question[0].Name+" 60 IN A 10.0.0.9") })
	l := forwardingLab(up.addr)
	s := newServer(t, compile(t, l), nil)
	s.deps.OnSegment = func(of *lab.Lab, a netip.Addr) bool { return of == l && a == netip.MustParseAddr("fe80::1%7") }
	l.DNS.Allow = []netip.Prefix{netip.MustParsePrefix("fe80::/10")}
	allowed := newServer(t, compile(t, l), nil)
	for _, tt := range []struct {
		s    *Server
		from string
		want string
	}{
		{s, "fe80::1%7", "NOERROR"}, {s, "fe80::1%8", "REFUSED"}, {s, "2001:db8::1", "REFUSED"}, {s, "203.0.113.9", "REFUSED"},
		{allowed, "fe80::1%8", "NOERROR"}, {allowed, "2001:db8::1", "REFUSED"},
	} {
		if got := show(lookup(t, tt.s, "www.example.org. A", tt.from)); !strings.HasPrefix(got, tt.want) {
			t.Errorf("from %s: %s, want %s", tt.from, got, tt.want)
		}
	}
}
