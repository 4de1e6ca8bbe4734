package dnsd

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/miekg/dns"
)

// TestNamesInDataAreCompressed: of the types of RFC 1035, and of no other (RFC 3597 section 4); the library reads them back.
func TestNamesInDataAreCompressed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + "." + strings.Repeat("c", 60) + ".z.test."
	s := newServer(t, compile(t, &lab.Lab{Zones: []*lab.Zone{zoneOfLines("z.test.", "@ SOA ns hostmaster 1 2 3 4 5", "@ NS ns", "@ NS ns.other.", "ns A 192.0.2.1",
		"@ MX 5 mail.www", "mail.www A 192.0.2.2", "p PTR www", "root PTR .", "s SRV 1 2 3 www", "www A 192.0.2.3", "del NS ns.del", "ns.del A 192.0.2.4", long+" NS ns."+long, "ns."+long+" A 192.0.2.5")}}), nil)
	for _, tt := range []struct {
		question string
		saved    int // octets
		want     string
	}{
		{"z.test. NS", 6, "NOERROR aa\nan z.test. NS ns.z.test.\nan z.test. NS ns.other."},
		{"Z.tesT. MX", 6, "NOERROR aa\nan Z.tesT. MX 5 mail.www.Z.tesT.\nar mail.www.Z.tesT. A 192.0.2.2"},
		{"p.z.test. PTR", 6, "NOERROR aa\nan p.z.test. PTR www.z.test."},
		{"root.z.test. PTR", 0, "NOERROR aa\nan root.z.test. PTR ."},
		{"s.z.test. SRV", 0, "NOERROR aa\nan s.z.test. SRV 1 2 3 www.z.test.\nar www.z.test. A 192.0.2.3"},
		{"no.z.test. A", 12, "NXDOMAIN aa\nns z.test. SOA ns.z.test."},
		{"x.del.z.test. A", 10, "NOERROR\nns del.z.test. NS ns.del.z.test.\nar ns.del.z.test. A 192.0.2.4"},
		{"x." + long + " A", 6 + 3*61, fmt.Sprintf("NOERROR\nns %[1]s NS ns.%[1]s\nar ns.%[1]s A 192.0.2.5", long)},
	} {
		owner, qtype, _ := strings.Cut(tt.question, " ")
		m := new(dns.Msg).SetQuestion(owner, dns.StringToType[qtype])
		packed, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		r := &request{from: netip.MustParseAddr(outside)}
		r.w.b = append(make([]byte, 0, udpBuffer), packed...)
		if s.handle(r) != ready {
			t.Fatal("no reply")
		}
		var reply dns.Msg
		if err := reply.Unpack(r.w.b); err != nil {
			t.Fatalf("%s: %v", tt.question, err)
		}
		if got := show(&reply); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.question, got, tt.want)
		}
		whole := 0 // with compression of owners alone
		for _, section := range [][]dns.RR{reply.Answer, reply.Ns, reply.Extra} {
			for _, rr := range section {
				data, err := rdataOf(rr)
				if err != nil {
					t.Fatal(err)
				}
				whole += 12 + len(data)
			}
		}
		if got := len(packed) + whole - len(r.w.b); got != tt.saved {
			t.Errorf("%s: %d octets saved, want %d", tt.question, got, tt.saved)
		}
	}
}

// TestMalformedOptions: EDNS options that are wrong in themselves are FORMERR, as BIND answers.
func TestMalformedOptions(t *testing.T) {
	t.Parallel()
	s := newServer(t, compile(t, wireLab()), nil)
	for _, tt := range []struct {
		name   string
		option uint16
		data   string
		want   int
	}{
		{"subnet", 8, "\x00\x01\x18\x00\xc0\x00\x02", dns.RcodeSuccess},
		{"subnet, IPv6", 8, "\x00\x02\x10\x00\x20\x01", dns.RcodeSuccess},
		{"subnet of nobody", 8, "\x00\x01\x00\x00", dns.RcodeSuccess},
		{"short subnet", 8, "\x00\x01\x18", dns.RcodeFormatError},
		{"empty subnet", 8, "", dns.RcodeFormatError},
		{"subnet too long", 8, "\x00\x01\x21\x00\xc0\x00\x02\x01\x00", dns.RcodeFormatError},
		{"subnet with another length", 8, "\x00\x01\x18\x00\xc0\x00\x02\x01", dns.RcodeFormatError},
		{"subnet with host bits", 8, "\x00\x01\x17\x00\xc0\x00\x03", dns.RcodeFormatError},
		{"subnet with a scope", 8, "\x00\x01\x18\x18\xc0\x00\x02", dns.RcodeFormatError},
		{"keepalive", 11, "", dns.RcodeSuccess},
		{"keepalive with a time", 11, "\x00\x01", dns.RcodeFormatError},
		{"short cookie", 10, "\x00\x01", dns.RcodeFormatError},
		{"padding", 12, "\x00\x00\x00", dns.RcodeSuccess},
	} {
		m := new(dns.Msg).SetQuestion("www.z.test.", dns.TypeA)
		m.SetEdns0(1232, false)
		packed, _ := m.Pack()
		packed[len(packed)-1] = byte(4 + len(tt.data))
		packed = append(packed, byte(tt.option>>8), byte(tt.option), 0, byte(len(tt.data)))
		packed = append(packed, tt.data...)
		r := &request{from: netip.MustParseAddr(outside)}
		r.w.b = append(make([]byte, 0, udpBuffer), packed...)
		if s.handle(r) != ready || int(r.code) != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, dns.RcodeToString[int(r.code)], dns.RcodeToString[tt.want])
		}
	}
}
