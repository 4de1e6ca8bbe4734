package dnsd

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// raw hands bytes to a server and returns the bytes of the reply, or nil.
func raw(s *Server, msg []byte, from string) []byte {
	r := &request{from: netip.MustParseAddr(from)}
	r.w.b = append(make([]byte, 0, max(len(msg), udpBuffer)), msg...)
	if s.handle(r) != ready {
		return nil
	}
	return r.w.b
}

func wireLab() *lab.Lab {
	many := make([]string, 0, 70)
	for i := range 70 {
		many = append(many, fmt.Sprintf("many A 192.0.2.%d", i))
	}
	return &lab.Lab{Zones: []*lab.Zone{zoneOfLines("z.test.", append(many, "www A 192.0.2.1", "del NS a.very.long.name.that.needs.glue.del",
		"a.very.long.name.that.needs.glue.del A 192.0.2.2")...)},
		DNS: lab.DNS{Transfer: []lab.Access{{From: netip.MustParsePrefix("192.0.2.99/32")}}}}
}

// TestOddQueries sends what is not quite a query, and what is not for everyone.
func TestOddQueries(t *testing.T) {
	t.Parallel()
	s := newServer(t, compile(t, wireLab()), nil)
	query := func(change func(m *dns.Msg)) *dns.Msg {
		m := new(dns.Msg).SetQuestion("www.z.test.", dns.TypeA)
		change(m)
		return m
	}
	for _, tt := range []struct {
		name   string
		change func(m *dns.Msg)
		want   string
	}{
		{"plain", func(*dns.Msg) {}, "NOERROR aa\nan www.z.test. A 192.0.2.1"},
		{"a reply", func(m *dns.Msg) { m.Response = true }, "none"},
		{"notify", func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }, "NOTIMP"},
		{"update of no zone", func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }, "FORMERR"},
		{"no question", func(m *dns.Msg) { m.Question = nil }, "FORMERR"},
		{"two questions", func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }, "FORMERR"},
		{"chaos", func(m *dns.Msg) {
			m.Question[0] = dns.Question{Name: "version.bind.", Qtype: dns.TypeTXT, Qclass: dns.ClassCHAOS}
		}, "REFUSED"},
		{"axfr over UDP", func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAXFR }, "REFUSED"},
		{"ixfr by anyone", func(m *dns.Msg) { m.SetIxfr("z.test.", 1, "a.", "b.") }, "REFUSED"},
		{"maila", func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeMAILA }, "NOTIMP"},
		// 16 is BADVERS here; the library's table knows it by its name in TSIG.
		{"badvers", func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }, "BADSIG"},
		{"two OPT", func(m *dns.Msg) { m.SetEdns0(1232, false); m.Extra = append(m.Extra, m.Extra[0]) }, "FORMERR"},
		{"unknown option", func(m *dns.Msg) {
			m.SetEdns0(1232, false)
			m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_LOCAL{Code: 65001, Data: []byte("x")}, &dns.EDNS0_COOKIE{Cookie: "0011223344556677"})
		}, "NOERROR aa\nan www.z.test. A 192.0.2.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, show(exchange(t, s, query(tt.change), outside))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	ixfr := new(dns.Msg)
	ixfr.SetIxfr("z.test.", 1, "a.", "b.")
	if got := show(exchange(t, s, ixfr, "192.0.2.99")); got != "NOERROR aa\nan z.test. SOA z.test." {
		t.Errorf("IXFR over UDP by a secondary: %s", got)
	}
}

// TestMangled sends bytes that are no message.
func TestMangled(t *testing.T) {
	t.Parallel()
	s := newServer(t, compile(t, wireLab()), nil)
	good, _ := new(dns.Msg).SetQuestion("www.z.test.", dns.TypeA).Pack()
	header := good[:12:12]
	count := func(b []byte, word int, n uint16) []byte {
		b = append([]byte(nil), b...)
		binary.BigEndian.PutUint16(b[2*word:], n)
		return b
	}
	for _, tt := range []struct {
		name string
		msg  []byte
		want int // the rcode; -1: no reply
	}{
		{"empty", nil, -1},
		{"short", good[:11], -1},
		{"header only", header, 1},
		{"pointer to itself", append(header, 0xc0, 12, 0, 1, 0, 1), 1},
		{"label of 64", append(header, append([]byte{64}, good[12:]...)...), 1},
		{"no type", good[:len(good)-3], 1},
		{"rubbish behind", append(good[:len(good):len(good)], 0), 1},
		{"record missing", count(good, 5, 1), 1},
		{"name of 256", append(header, append([]byte(strings.Repeat("\x01a", 127)+"\x01a\x00"), 0, 1, 0, 1)...), 1},
		{"looping owner", append(count(good, 5, 1), 0xc0, byte(len(good)), 0, 1, 0, 1, 0, 0, 0, 0, 0, 0), 0},
	} {
		got := -1
		if reply := raw(s, tt.msg, outside); reply != nil {
			got = int(reply[3] & 0xf)
		}
		if got != tt.want {
			t.Errorf("%s: rcode %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestSize cuts what does not fit: 512 octets without EDNS, else what the client takes, 1232 at most.
func TestSize(t *testing.T) {
	t.Parallel()
	s := newServer(t, compile(t, wireLab()), nil)
	for _, tt := range []struct {
		name      string
		question  string
		edns      uint16
		truncated bool
	}{
		{"many, plain", "many.z.test.", 0, true},
		{"many, 1232", "many.z.test.", 1232, false},
		{"many, 4096", "many.z.test.", 4096, false},
		{"many, 1000", "many.z.test.", 1000, true},
		{"many, 100", "many.z.test.", 100, true},
		{"one, 100", "www.z.test.", 100, false},
	} {
		m := new(dns.Msg).SetQuestion(tt.question, dns.TypeA)
		limit := 512
		if tt.edns > 0 {
			m.SetEdns0(tt.edns, true)
			limit = min(max(512, int(tt.edns)), 1232)
		}
		packed, _ := m.Pack()
		b := raw(s, packed, outside)
		var reply dns.Msg
		if err := reply.Unpack(b); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if len(b) > limit || reply.Truncated != tt.truncated || reply.Truncated == (len(reply.Answer) > 0) {
			t.Errorf("%s: %d octets, truncated %t, %d answers; limit %d, want truncated %t", tt.name, len(b), reply.Truncated,
				len(reply.Answer), limit, tt.truncated)
		}
		if opt := reply.IsEdns0(); (opt != nil) != (tt.edns > 0) || opt != nil && (!opt.Do() || opt.UDPSize() != maxUDP) {
			t.Errorf("%s: OPT of the reply: %v", tt.name, opt)
		}
	}
}

// FuzzQuery: whatever comes in, a reply is a message that miekg/dns reads, is one to that message and fits.
func FuzzQuery(f *testing.F) {
	for _, q := range []string{"www.z.test. A", "many.z.test. A", "x.del.z.test. A", "console.apps.mycluster.example.com. AAAA",
		"_etcd-server-ssl._tcp.mycluster.example.com. SRV", "77.131.168.192.in-addr.arpa. PTR", "example.com. ANY", "x.org. A", "z.test. AXFR"} {
		owner, qtype, _ := strings.Cut(q, " ")
		m := new(dns.Msg).SetQuestion(owner, dns.StringToType[qtype])
		plain, _ := m.Pack()
		f.Add(plain)
		m.SetEdns0(1400, true)
		edns, _ := m.Pack()
		f.Add(edns)
	}
	// A query of dig 9.18 with a cookie, as captured.
	f.Add([]byte("\x9a\x1b\x01\x20\x00\x01\x00\x00\x00\x00\x00\x01\x03www\x01z\x04test\x00\x00\x01\x00\x01\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x0c" +
		"\x00\x0a\x00\x08\x5c\x1f\x0e\x2b\x77\x42\x91\xd3"))
	l := openshift()
	l.Zones = append(l.Zones, wireLab().Zones...)
	s := newServer(f, compile(f, l), clients(map[string]string{"laptop": "192.168.131.77"}))
	f.Fuzz(func(t *testing.T, msg []byte) {
		if len(msg) > maxUDP {
			return // the reader drops it
		}
		reply := raw(s, msg, outside)
		if reply == nil {
			return
		}
		var q query
		q.parse(msg)
		if len(reply) > q.limit {
			t.Fatalf("%d octets, limit %d", len(reply), q.limit)
		}
		if reply[0] != msg[0] || reply[1] != msg[1] || reply[2]&0x80 == 0 {
			t.Fatalf("no reply to that message: %x", reply[:4])
		}
		var m dns.Msg
		if err := m.Unpack(reply); err != nil {
			t.Fatalf("unpack %x: %v", reply, err)
		}
	})
}

// FuzzZoneLines: whatever people write compiles or is a problem with the line's place, and what compiles can be shown,
// read again, and is then the same zone.
func FuzzZoneLines(f *testing.F) {
	for _, lines := range []string{"@ NS ns\nns A 127.0.0.1\n* 300 A 172.24.4.2", "$TTL 1h\n@ SOA ns root (1 3H 30M 2W 1W)", "$ORIGIN x\n@ TXT \"a\"",
		"$GENERATE 1-4 h$ A 10.0.0.$", "a CNAME b\nb CNAME a", "x TYPE65400 \\# 2 abcd", "h HTTPS 1 . alpn=h2", "del NS ns.del\nns.del A 1.2.3.4"} {
		f.Add(lines)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(strings.ToUpper(text), "GENERATE") && len(text) > 60 {
			return // slow, not wrong
		}
		compiled, err := Compile(&lab.Lab{Zones: []*lab.Zone{zoneOfLines("z.test.", strings.Split(text, "\n")...)}}, nil)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "lab.yaml:") {
				t.Fatalf("a problem without a place: %v", err)
			}
			return
		}
		var shown, again strings.Builder
		if err := compiled.WriteZones(&shown); err != nil {
			t.Fatal(err)
		}
		second, err := Compile(&lab.Lab{Zones: []*lab.Zone{{Origin: "z.test.", File: "shown"}}},
			func(string, string) ([]byte, error) { return []byte(shown.String()), nil })
		if err != nil {
			t.Fatalf("what was shown does not compile: %v\n%s", err, shown.String())
		}
		_ = second.WriteZones(&again)
		if shown.String() != again.String() {
			t.Fatalf("shown, read and shown again (-first +second):\n%s", cmp.Diff(shown.String(), again.String()))
		}
	})
}

// FuzzReply: whatever a server of the forwarder replies, what a client gets of it is a message that miekg/dns
// reads, with the client's question and with records of that name or of what its CNAMEs lead to, also at the end of a chain.
func FuzzReply(f *testing.F) {
	q := new(dns.Msg).SetQuestion("www.example.org.", dns.TypeA)
	for _, records := range [][]string{nil, {"www.example.org. 60 IN A 192.0.2.1"},
		{"WWW.example.org. 60 IN CNAME a.example.net.", "a.example.net. 30 IN A 192.0.2.1", "other.test. 30 IN A 6.6.6.6"},
		{"www.example.org. 0 IN TXT x", "example.org. 60 IN DNAME example.net."}} {
		m := reply(q, records...)
		m.SetEdns0(1232, true)
		packed, _ := m.Pack()
		f.Add(packed)
	}
	for _, zone := range []string{"example.org.", "bank.example."} {
		packed, _ := liar(q, nil, []string{zone + " 60 IN SOA a. b. 1 2 3 4 5", zone + " 60 IN NS a."}, []string{"a. 60 IN A 6.6.6.6"}).Pack()
		f.Add(packed)
	}
	table := compile(f, forwardingLab(netip.MustParseAddrPort("127.0.0.1:1")))
	s := newServer(f, table, nil)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, question := range []string{"Www.example.org.", "out.z.test."} {
			r := &request{from: netip.MustParseAddr(inside)}
			packed, _ := new(dns.Msg).SetQuestion(question, dns.TypeA).Pack()
			r.w.b = append(make([]byte, 0, udpBuffer), packed...)
			if s.handle(r) != pending {
				t.Fatalf("%s is not for the forwarder", question)
			}
			a := upstreamQuery{name: r.cur, qtype: typeA}
			e, err := a.read(b)
			if err != nil {
				return
			}
			if r.chained {
				err = r.appendCached(e, s.deps.Now())
			} else {
				r.fromCache(e, s.deps.Now())
			}
			if err != nil {
				t.Fatalf("%s: join %x: %v", question, e.rest, err)
			}
			s.finish(r)
			checkReply(t, r.w.b, question)
		}
	})
}

func checkReply(t *testing.T, b []byte, question string) {
	t.Helper()
	var m dns.Msg
	if err := m.Unpack(b); err != nil {
		t.Fatalf("%s: unpack %x: %v", question, b, err)
	}
	if len(b) > minUDP || m.Question[0].Name != question {
		t.Fatalf("%s: %d octets about %s", question, len(b), m.Question[0].Name)
	}
	names := map[string]bool{dns.CanonicalName(question): true}
	for _, rr := range m.Answer {
		if cname, ok := rr.(*dns.CNAME); ok {
			names[dns.CanonicalName(cname.Target)] = true
		}
		if !names[dns.CanonicalName(rr.Header().Name)] && rr.Header().Rrtype != dns.TypeDNAME {
			t.Fatalf("%s: a record that was not asked for: %s", question, rr)
		}
	}
	for _, rr := range m.Ns {
		of := func(name string) bool { return dns.IsSubDomain(rr.Header().Name, name) }
		if rr.Header().Rrtype != dns.TypeSOA || !slices.ContainsFunc(slices.Collect(maps.Keys(names)), of) {
			t.Fatalf("%s: proves nothing: %s", question, rr)
		}
	}
	if len(m.Extra) > 0 {
		t.Fatalf("%s: %v", question, m.Extra)
	}
}
