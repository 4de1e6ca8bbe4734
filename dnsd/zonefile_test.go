package dnsd

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// files is a folder of zone files in memory.
func files(texts map[string]string) ReadFile {
	return func(path, _ string) ([]byte, error) {
		text, ok := texts[path]
		if !ok {
			return nil, errNoFile
		}
		return []byte(text), nil
	}
}

// onDisk reads files of the disk.
func onDisk(path, _ string) ([]byte, error) { return os.ReadFile(path) }

// TestAllErrorsOfAZoneFile: every bad record is reported, each once, at the word that is wrong, and none that follows from another.
func TestAllErrorsOfAZoneFile(t *testing.T) {
	t.Parallel()
	const text = `$TTL 1h
@ SOA ns hostmaster (
	1 ; serial
	2 3 four 5 )
  NS ns
ns A 192.0.2.1
www  IN  A  192.0.2.333
x AA 192.0.2.4
good A 192.0.2.5
y MX mail
  A 192.0.2.6
six AAAA 192.0.2.7
srv SRV 2380 etcd-0
long TXT ( "a"
  "b" )
end CNAME
host.other.example. A 192.0.2.8
`
	want := `z:4:6: zone z.test.: "four" is not a number of the SOA: want serial, refresh, retry, expire and minimum; the zone answers SERVFAIL
z:7:13: zone z.test.: "192.0.2.333" is not an IPv4 address
z:8:3: zone z.test.: "AA" is not a type of record: did you mean A?
z:10:6: zone z.test.: "mail" is not the preference of an MX record: want a number before the name, as in MX 10 mail
z:12:10: zone z.test.: "192.0.2.7" is not an IPv6 address
z:13:14: zone z.test.: "etcd-0" is not a number of an SRV record: want priority, weight, port and target, as in SRV 0 10 2380 etcd-0
z:16:1: zone z.test.: the line ends before the record does
z:17:1: zone z.test.: host.other.example. is not in the zone z.test.`
	table, err := Compile(&lab.Lab{Zones: []*lab.Zone{{Origin: "z.test.", File: "/lab/z"}}}, files(map[string]string{"/lab/z": text}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, strings.ReplaceAll(table.BadFiles().Error(), "/lab/", "")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestBadZoneFile: an error in a zone file has its line, and disables its zone alone.
func TestBadZoneFile(t *testing.T) {
	t.Parallel()
	const head = "$TTL 1h\n@ SOA ns hostmaster (\n\t1 ; serial\n\t2 3 4 5 )\n@ NS ns\nns A 192.0.2.1\n\n; a comment\n" // 8 lines
	for _, tt := range []struct{ name, text, want string }{
		{"no type", "www 10.0.0.1", `:9:5: zone z.test.: "10.0.0.1" is neither a TTL nor a type of record: want NAME TYPE DATA, as in www A 10.0.0.1`},
		{"bad address", "www A 10.0.0.256", `:9:7: zone z.test.: "10.0.0.256" is not an IPv4 address`},
		{"outside", "www.example.org. A 10.0.0.1", ":9:1: zone z.test.: www.example.org. is not in the zone z.test."},
		{"class", "www CH A 10.0.0.1", ":9:1: zone z.test.: only class IN is served"},
		{"in parentheses", "www MX ( 10\n\n  mx.\n extra )\nx A 10.0.0.1", `:12:2: zone z.test.: "extra" is more than the record can hold: is a ; missing before a comment, or quotes around a text?`},
		{"after a long record", "t TXT ( \"a;b\"\n \"c\" ) ; x\n\nbad A x", `:12:7: zone z.test.: "x" is not an IPv4 address`},
		{"incomplete", "www TXT", ":9:1: zone z.test.: the record's data is incomplete"},
		{"cname and more", "www CNAME a\n\nwww A 10.0.0.1", ":11:1: zone z.test.: www.z.test.: a name with a CNAME has no other record (RFC 1034 section 3.6.2)"},
		{"wildcard NS", "* NS ns", ":9:1: zone z.test.: *.z.test.: a wildcard cannot be delegated (RFC 4592 section 4.2)"},
		{"generate", "$GENERATE 1-3 h$ A 10.0.0.25$", ""},
		{"generate, bad", "\n$GENERATE 1-3 h$ A 10.0.0.256$", `:10:1: zone z.test.: "10.0.0.2561" is not an IPv4 address`},
		{"directive", "$TTL x", `:9:6: zone z.test.: "x" is not a TTL: want seconds or units, as in $TTL 1h`},
		{"include outside", "$INCLUDE ../../etc/passwd", ":9:10: zone z.test.: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			table, err := Compile(&lab.Lab{Zones: []*lab.Zone{{Origin: "z.test.", File: "/lab/zones/z"}, zoneOfLines("good.test.", "@ A 192.0.2.9")}},
				files(map[string]string{"/lab/zones/z": head + tt.text + "\n", "/etc/passwd": "root"}))
			if err != nil {
				t.Fatalf("one bad file refuses the whole lab: %v", err)
			}
			s := newServer(t, table, nil)
			wantAnswers(t, s, outside, []dialogue{{"good.test. A", "NOERROR aa\nan good.test. A 192.0.2.9"}})
			got := ""
			for _, p := range table.BadFiles() {
				got += p.Error()
			}
			if tt.want == "" {
				if got != "" || show(lookup(t, s, "h1.z.test. A", outside)) != "NOERROR aa\nan h1.z.test. A 10.0.0.251" {
					t.Errorf("problems %q", got)
				}
				return
			}
			if want := "/lab/zones/z" + tt.want; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "; the zone answers SERVFAIL") {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			wantAnswers(t, s, outside, []dialogue{{"ns.z.test. A", "SERVFAIL"}})
		})
	}
}

// TestGenerateTTL: what $GENERATE makes has the TTL of $TTL, unless it has its own.
func TestGenerateTTL(t *testing.T) {
	t.Parallel()
	table, err := Compile(&lab.Lab{Zones: []*lab.Zone{{Origin: "z.test.", File: "/z"},
		zoneOfLines("lines.test.", "$TTL 7m", "$GENERATE 1-2 a$ A 10.0.0.$", "$GENERATE 1-1 b$ 9 A 10.0.0.$", "$GENERATE 1-1 c$ IN A 10.0.0.$")}},
		files(map[string]string{"/z": "$TTL 2h\n$GENERATE 1-2 a$ A 10.0.0.$\n$TTL 5m\n$generate 1-2\tb$  TXT \"x  $\"\n$GENERATE 1-1 c$ IN 9 A 10.0.0.$\n"}))
	if err != nil {
		t.Fatal(err)
	}
	if p := table.BadFiles(); len(p) > 0 {
		t.Fatal(p)
	}
	s := newServer(t, table, nil)
	for question, want := range map[string]string{
		"a2.z.test. A": "a2.z.test.\t7200\tIN\tA\t10.0.0.2", "b1.z.test. TXT": "b1.z.test.\t300\tIN\tTXT\t\"x  1\"", "c1.z.test. A": "c1.z.test.\t9\tIN\tA\t10.0.0.1",
		"a1.lines.test. A": "a1.lines.test.\t420\tIN\tA\t10.0.0.1", "b1.lines.test. A": "b1.lines.test.\t9\tIN\tA\t10.0.0.1", "c1.lines.test. A": "c1.lines.test.\t420\tIN\tA\t10.0.0.1",
	} {
		m := lookup(t, s, question, outside)
		if len(m.Answer) != 1 || m.Answer[0].String() != want {
			t.Errorf("%s: %v, want %s", question, m.Answer, want)
		}
	}
}

// TestInclude: files below the folder of the zone file may be included, with an origin of their own; their names are known, so that
// they are watched.
func TestInclude(t *testing.T) {
	t.Parallel()
	table, err := Compile(&lab.Lab{Zones: []*lab.Zone{{Origin: "z.test.", File: "/lab/zones/z"}}}, files(map[string]string{
		"/lab/zones/z":            "$TTL 60\n@ NS ns\nns A 192.0.2.1\n$INCLUDE sub/hosts\n$INCLUDE sub/hosts deep\nlast A 192.0.2.3\n",
		"/lab/zones/sub/hosts":    "www A 192.0.2.2\n$INCLUDE more\n",
		"/lab/zones/sub/more":     "more A 192.0.2.4\n",
		"/lab/secrets/not.public": "www A 6.6.6.6\n",
	}))
	if err != nil || len(table.BadFiles()) > 0 {
		t.Fatal(err, table.BadFiles())
	}
	s := newServer(t, table, nil)
	wantAnswers(t, s, outside, []dialogue{
		{"www.z.test. A", "NOERROR aa\nan www.z.test. A 192.0.2.2"},
		{"www.deep.z.test. A", "NOERROR aa\nan www.deep.z.test. A 192.0.2.2"},
		{"more.deep.z.test. A", "NOERROR aa\nan more.deep.z.test. A 192.0.2.4"},
		{"last.z.test. A", "NOERROR aa\nan last.z.test. A 192.0.2.3"},
	})
	want := []string{"/lab/zones/z", "/lab/zones/sub/hosts", "/lab/zones/sub/more", "/lab/zones/sub/hosts", "/lab/zones/sub/more"}
	if diff := cmp.Diff(want, table.Files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for _, path := range []string{"../../secrets/not.public", "/lab/secrets/not.public", "sub/../../../lab/secrets/not.public"} {
		table, err := Compile(&lab.Lab{Zones: []*lab.Zone{{Origin: "z.test.", File: "/lab/zones/z"}}}, files(map[string]string{
			"/lab/zones/z": "$INCLUDE " + path + "\n", "/lab/secrets/not.public": "www A 6.6.6.6\n"}))
		if err != nil || len(table.BadFiles()) != 1 || !strings.Contains(table.BadFiles()[0].Error(), errOutside.Error()) {
			t.Errorf("%s: %v %v", path, err, table.BadFiles())
		}
	}
}

// TestDNAME asks below a DNAME (RFC 6672).
func TestDNAME(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a123456789.", 20)
	s := newServer(t, compile(t, &lab.Lab{Zones: []*lab.Zone{
		zoneOfLines("old.test.", "sub DNAME new.test.", "sub A 192.0.2.5", "far DNAME "+strings.Repeat("b123456789.", 8), "self DNAME x.self"),
		zoneOfLines("new.test.", "www A 192.0.2.6", "*.w A 192.0.2.7"),
		zoneOfLines("apex.test.", "@ DNAME new.test.", "@ A 192.0.2.8"),
	}}), nil)
	wantAnswers(t, s, outside, []dialogue{
		{"www.sub.old.test. A", "NOERROR aa\nan sub.old.test. DNAME new.test.\nan www.sub.old.test. CNAME www.new.test.\nan www.new.test. A 192.0.2.6"},
		{"x.w.sub.old.test. A", "NOERROR aa\nan sub.old.test. DNAME new.test.\nan x.w.sub.old.test. CNAME x.w.new.test.\nan x.w.new.test. A 192.0.2.7"},
		{"none.sub.old.test. A", "NXDOMAIN aa\nan sub.old.test. DNAME new.test.\nan none.sub.old.test. CNAME none.new.test.\nns new.test. SOA new.test."},
		{"sub.old.test. A", "NOERROR aa\nan sub.old.test. A 192.0.2.5"},
		{"sub.old.test. DNAME", "NOERROR aa\nan sub.old.test. DNAME new.test."},
		{"www.apex.test. A", "NOERROR aa\nan apex.test. DNAME new.test.\nan www.apex.test. CNAME www.new.test.\nan www.new.test. A 192.0.2.6"},
		{"apex.test. A", "NOERROR aa\nan apex.test. A 192.0.2.8"},
		{"www.sub.old.test. CNAME", "NOERROR aa\nan sub.old.test. DNAME new.test.\nan www.sub.old.test. CNAME www.new.test."},
	})
	if m := lookup(t, s, long+"far.old.test. A", outside); m.Rcode != dns.RcodeYXDomain || len(m.Answer) != 1 {
		t.Errorf("a name that gets too long: %s", show(m))
	}
	if m := lookup(t, s, "a.self.old.test. A", outside); m == nil {
		t.Error("a DNAME that leads into itself has no answer")
	}
}

// TestDS: the DS records of a delegation are the parent's, also where the child zone is here too.
func TestDS(t *testing.T) {
	t.Parallel()
	const ds = "DS 2371 13 2 1F987CC6583E92DF0890718C42"
	s := newServer(t, compile(t, &lab.Lab{Zones: []*lab.Zone{
		zoneOfLines("p.test.", "cut NS ns.example.", "cut "+ds, "bare NS ns.example.", "child NS ns.example.", "child "+ds),
		zoneOfLines("child.p.test.", "@ A 192.0.2.1"),
	}}), nil)
	want := func(owner string) string { return "NOERROR aa\nan " + owner + " " + ds }
	wantAnswers(t, s, outside, []dialogue{
		{"cut.p.test. DS", want("cut.p.test.")},
		{"child.p.test. DS", want("child.p.test.")},
		{"bare.p.test. DS", "NOERROR aa\nns p.test. SOA p.test."},
		{"x.child.p.test. DS", "NXDOMAIN aa\nns child.p.test. SOA child.p.test."},
		{"p.test. DS", "NOERROR aa\nns p.test. SOA p.test."},
		{"child.p.test. A", "NOERROR aa\nan child.p.test. A 192.0.2.1"},
	})
}

// TestEmptyUnknownType: a record of an unknown type may have no data (RFC 3597 section 5).
func TestEmptyUnknownType(t *testing.T) {
	t.Parallel()
	table := compile(t, &lab.Lab{Zones: []*lab.Zone{zoneOfLines("z.test.", `a TYPE65400 \# 0`, `b TYPE1 \# 4 C0000201`)}})
	s := newServer(t, table, nil)
	m := exchange(t, s, new(dns.Msg).SetQuestion("a.z.test.", 65400), outside)
	if m.Rcode != dns.RcodeSuccess || len(m.Answer) != 1 || m.Answer[0].Header().Rdlength != 0 {
		t.Errorf("got %v", m)
	}
	wantAnswers(t, s, outside, []dialogue{{"b.z.test. A", "NOERROR aa\nan b.z.test. A 192.0.2.1"}})
	var b strings.Builder
	if err := table.WriteZones(&b); err != nil || !strings.Contains(b.String(), `TYPE65400`+"\t"+`\# 0`) {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// TestOddOrigins serves zones whose names are no host names: the root, and part of a /24 (RFC 2317).
func TestOddOrigins(t *testing.T) {
	t.Parallel()
	s := newServer(t, compile(t, &lab.Lab{Zones: []*lab.Zone{
		zoneOfLines("0/25.2.0.192.in-addr.arpa.", "1 PTR host.example."), zoneOfLines(".", "org NS ns.example."),
	}}), nil)
	wantAnswers(t, s, outside, []dialogue{
		{"1.0/25.2.0.192.in-addr.arpa. PTR", "NOERROR aa\nan 1.0/25.2.0.192.in-addr.arpa. PTR host.example."},
		{"www.org. A", "NOERROR\nns org. NS ns.example."},
	})
}

// TestZoneFilesOnDisk reads what people have: a file whose includes lie beside it.
func TestZoneFilesOnDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("@ NS ns\nns A 192.0.2.1\n$INCLUDE b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "b"), []byte("www A 192.0.2.2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	table, err := Compile(&lab.Lab{Zones: []*lab.Zone{{Origin: "z.test.", File: filepath.Join(dir, "a")}}}, onDisk)
	if err != nil || len(table.BadFiles()) > 0 {
		t.Fatal(err, table.BadFiles())
	}
	wantAnswers(t, newServer(t, table, nil), outside, []dialogue{{"www.z.test. A", "NOERROR aa\nan www.z.test. A 192.0.2.2"}})
}

// TestZoneFileOfAnyBytes: a zone file with an error in a word that is no UTF-8 is an error of that zone, and has its place.
func TestZoneFileOfAnyBytes(t *testing.T) {
	t.Parallel()
	table, err := Compile(&lab.Lab{Zones: []*lab.Zone{{Origin: "z.test.", File: "/z"}}}, func(string, string) ([]byte, error) { return []byte("@ NS ns\nwww A \xa3\n"), nil })
	if err != nil {
		t.Fatal(err)
	}
	if got := table.BadFiles(); len(got) != 1 || got[0].Pos != (lab.Pos{File: "/z", Line: 2, Column: 7}) {
		t.Errorf("%+v", got)
	}
}

// WriteZones writes the text of all ZoneFiles. The error is w's.
func (t *Table) WriteZones(w io.Writer) error {
	for n, f := range t.ZoneFiles() {
		if n > 0 {
			f.Text = "\n" + f.Text
		}
		if _, err := io.WriteString(w, f.Text); err != nil {
			return fmt.Errorf("write zone %s: %w", f.Origin, err)
		}
	}
	return nil
}
