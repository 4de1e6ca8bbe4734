package dnsd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// updatedLab keeps updates in memory and puts the tables in force that they make, as the daemon does with its store.
type updatedLab struct {
	lab    *lab.Lab
	mu     sync.Mutex
	sets   map[string]RRSet
	serial uint32
	table  atomic.Pointer[Table]
	fail   error
}

func newUpdatedLab(t testing.TB, l *lab.Lab) *updatedLab {
	u := &updatedLab{lab: l, sets: map[string]RRSet{}}
	u.use(t)
	return u
}

func (u *updatedLab) use(t testing.TB) {
	var all []RRSet
	for _, s := range u.sets {
		all = append(all, s)
	}
	table, err := Compile(u.lab, keyFiles, all...)
	if err != nil {
		t.Errorf("compile: %v", err)
		return
	}
	u.serial++
	serials := map[string]uint32{}
	for _, z := range u.lab.Zones {
		serials[z.Origin] = u.serial
	}
	u.table.Store(table.WithSerials(serials))
}

// of returns the updates of a zone.
func (u *updatedLab) of(origin string) (sets []RRSet) {
	for _, s := range u.sets {
		if s.Zone == origin {
			sets = append(sets, s)
		}
	}
	return sets
}

// reload puts another lab in force.
func (u *updatedLab) reload(t testing.TB, l *lab.Lab) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.lab = l
	u.use(t)
}

func (u *updatedLab) server(t testing.TB) *Server {
	s := newServer(t, u.table.Load(), nil)
	s.deps.Table, s.deps.Updates = u.table.Load, updatesFunc(func(plan func(*Table) ([]RRSet, error)) error {
		u.mu.Lock()
		defer u.mu.Unlock()
		changed, err := plan(u.table.Load())
		if err != nil || len(changed) == 0 {
			return err
		}
		if u.fail != nil {
			return u.fail
		}
		for _, s := range changed {
			if key := s.Name + s.Type; len(s.Data) == 0 {
				delete(u.sets, key)
			} else {
				u.sets[key] = s
			}
		}
		u.serial++
		origin := changed[0].Zone
		u.table.Store(u.table.Load().WithUpdates(origin, u.of(origin), Learned{}).WithSerials(map[string]uint32{origin: u.serial}))
		return nil
	})
	return s
}

type updatesFunc func(plan func(*Table) ([]RRSet, error)) error

func (f updatesFunc) Update(_ context.Context, plan func(*Table) ([]RRSet, error)) error {
	return f(plan)
}

// updateLab has a zone that testKey may update, and in it names of hosts and static lines.
func updateLab() *lab.Lab {
	z := derived("z.test.", "host.z.test. A 192.0.2.1", "*.apps.z.test. A 192.0.2.2", "alias.z.test. CNAME host.z.test.")
	z.Derived = false
	z.Lines = zoneOfLines("z.test.", "www A 192.0.2.3", "del NS ns.del", "ns.del A 192.0.2.4", "cn CNAME www", "dn DNAME www").Lines
	z.Update, z.UpdateReserved = []lab.Access{{Key: testKey}}, []string{"*.dev"}
	child := zoneOfLines("child.z.test.", "x A 192.0.2.9")
	l := &lab.Lab{Zones: []*lab.Zone{child, z, zoneOfLines("closed.test.", "www A 192.0.2.3")}}
	l.DNS.Keys = []lab.TSIGKey{{Name: testKey, Algorithm: "hmac-sha256", SecretFile: "/plain"}}
	l.DNS.Transfer = []lab.Access{{Key: testKey}}
	return l
}

// sendUpdate sends an update that is signed with testKey.
func sendUpdate(t testing.TB, ap netip.AddrPort, m *dns.Msg) int {
	t.Helper()
	m.SetTsig(testKey, dns.HmacSHA256, 300, time.Now().Unix())
	c := &dns.Client{Net: "tcp", Timeout: 20 * time.Second, TsigSecret: map[string]string{testKey: testSecret}}
	reply, _, err := c.Exchange(m, ap.String())
	if reply == nil {
		t.Fatal(err)
	}
	return reply.Rcode
}

func rr(t testing.TB, text string) dns.RR {
	t.Helper()
	rr, err := dns.NewRR(text)
	if err != nil {
		t.Fatal(err)
	}
	return rr
}

// TestUpdatePolicy: what the lab file has stays as it is there, and who has no key changes nothing.
func TestUpdatePolicy(t *testing.T) {
	t.Parallel()
	u := newUpdatedLab(t, updateLab())
	ap := serve(t, u.server(t), "127.0.0.1")
	insert := func(text string) func(*dns.Msg) { return func(m *dns.Msg) { m.Insert([]dns.RR{rr(t, text)}) } }
	for _, tt := range []struct {
		name   string
		change func(*dns.Msg)
		want   string
	}{
		{"new name", insert("new.z.test. 60 A 192.0.2.7"), "NOERROR"},
		{"beside a static record", insert("www.z.test. 60 TXT x"), "NOERROR"},
		{"challenge below a wildcard", insert("_acme-challenge.apps.z.test. 60 TXT x"), "NOERROR"},
		{"unknown type", insert(`new.z.test. 60 TYPE65400 \# 2 0102`), "NOERROR"},
		{"proxy discovery", insert("wpad.z.test. 60 A 192.0.2.66"), "REFUSED"},
		{"proxy discovery below", insert("wpad.dev.z.test. 60 CNAME www.z.test."), "REFUSED"},
		{"tunnel", insert("isatap.z.test. 60 A 192.0.2.66"), "REFUSED"},
		{"localhost", insert("LocalHost.z.test. 60 A 192.0.2.66"), "REFUSED"},
		{"every name", insert("*.z.test. 60 A 192.0.2.66"), "REFUSED"},
		{"every name below", insert("*.x.z.test. 60 TXT x"), "REFUSED"},
		{"the appliance's name", insert("bootlab.z.test. 60 A 192.0.2.66"), "REFUSED"},
		{"the name server's name", insert("ns.z.test. 60 A 192.0.2.66"), "REFUSED"},
		{"a control plane's name", insert("api.z.test. 60 A 192.0.2.66"), "REFUSED"},
		{"a control plane's name for nodes", insert("API-int.z.test. 60 A 192.0.2.66"), "REFUSED"},
		{"that of a cluster further below", insert("api.x.z.test. 60 A 192.0.2.66"), "NOERROR"},
		{"challenge at the top", insert("_acme-challenge.z.test. 60 TXT x"), "NOERROR"},
		{"challenge of a control plane", insert("_acme-challenge.api.z.test. 60 TXT x"), "NOERROR"},
		{"that label further below", insert("ns.x.z.test. 60 A 192.0.2.66"), "NOERROR"},
		{"a wildcard that the zone allows", insert("*.dev.z.test. 60 A 192.0.2.7"), "NOERROR"},
		{"host below a wildcard", insert("console.apps.z.test. 60 A 192.0.2.7"), "REFUSED"},
		{"deep below a wildcard", insert("_x.console.apps.z.test. 60 TXT x"), "REFUSED"},
		{"host's name", insert("host.z.test. 60 TXT x"), "REFUSED"},
		{"wildcard itself", insert("*.apps.z.test. 60 TXT x"), "REFUSED"},
		{"static record", insert("www.z.test. 60 A 192.0.2.7"), "REFUSED"},
		{"at a static CNAME", insert("cn.z.test. 60 A 192.0.2.7"), "REFUSED"},
		{"CNAME at a static name", insert("www.z.test. 60 CNAME x.z.test."), "REFUSED"},
		{"delete a host", func(m *dns.Msg) { m.RemoveName([]dns.RR{rr(t, "host.z.test. 0 A 192.0.2.1")}) }, "REFUSED"},
		{"delete a static record", func(m *dns.Msg) { m.Remove([]dns.RR{rr(t, "www.z.test. 0 A 192.0.2.3")}) }, "REFUSED"},
		{"delete the apex", func(m *dns.Msg) { m.RemoveName([]dns.RR{rr(t, "z.test. 0 A 192.0.2.1")}) }, "NOERROR"},
		{"delete the SOA", func(m *dns.Msg) { m.RemoveRRset([]dns.RR{rr(t, "z.test. 0 SOA a. b. 1 1 1 1 1")}) }, "NOERROR"},
		{"new SOA", insert("z.test. 60 SOA a. b. 4000000000 1 1 1 1"), "REFUSED"},
		{"delegation", insert("sub.z.test. 60 NS ns.x."), "REFUSED"},
		{"DNAME", insert("sub.z.test. 60 DNAME x."), "REFUSED"},
		{"below a delegation", insert("a.del.z.test. 60 A 192.0.2.7"), "NOTZONE"},
		{"at a DNAME", insert("dn.z.test. 60 TXT x"), "NOERROR"},
		{"below a DNAME", insert("a.dn.z.test. 60 A 192.0.2.7"), "NOTZONE"},
		{"in the zone below", insert("a.child.z.test. 60 A 192.0.2.7"), "NOTZONE"},
		{"outside", insert("a.example. 60 A 192.0.2.7"), "NOTZONE"},
		{"no such zone", func(m *dns.Msg) { m.SetUpdate("none.test.") }, "NOTAUTH"},
		{"a name of the zone", func(m *dns.Msg) { m.SetUpdate("www.z.test.") }, "NOTAUTH"},
		{"closed zone", func(m *dns.Msg) {
			m.SetUpdate("closed.test.")
			m.Insert([]dns.RR{rr(t, "a.closed.test. 60 A 192.0.2.7")})
		}, "REFUSED"},
		{"no SOA in the zone section", func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeA }, "FORMERR"},
	} {
		m := new(dns.Msg).SetUpdate("z.test.")
		tt.change(m)
		if got := dns.RcodeToString[sendUpdate(t, ap, m)]; got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	unsigned := new(dns.Msg).SetUpdate("z.test.")
	unsigned.Insert([]dns.RR{rr(t, "evil.z.test. 60 A 192.0.2.66")})
	for network, c := range map[string]*dns.Client{"udp": {}, "tcp": {Net: "tcp"}} {
		if reply, _, err := c.Exchange(unsigned, ap.String()); err != nil || reply.Rcode != dns.RcodeRefused {
			t.Errorf("unsigned over %s: %v, %v", network, reply, err)
		}
	}
	wantAnswers(t, u.server(t), outside, []dialogue{
		{"new.z.test. A", "NOERROR aa\nan new.z.test. A 192.0.2.7"},
		{"www.z.test. TXT", "NOERROR aa\nan www.z.test. TXT \"x\""},
		{"dn.z.test. TXT", "NOERROR aa\nan dn.z.test. TXT \"x\""},
		{"_acme-challenge.apps.z.test. TXT", "NOERROR aa\nan _acme-challenge.apps.z.test. TXT \"x\""},
		{"console.apps.z.test. A", "NOERROR aa\nan console.apps.z.test. A 192.0.2.2"},
	})

	// A store that fails changes nothing.
	u.mu.Lock()
	u.fail = errors.New("disk full")
	u.mu.Unlock()
	m := new(dns.Msg).SetUpdate("z.test.")
	m.Insert([]dns.RR{rr(t, "lost.z.test. 60 A 192.0.2.7")})
	if got := sendUpdate(t, ap, m); got != dns.RcodeServerFailure {
		t.Errorf("a store that fails: %s", dns.RcodeToString[got])
	}
	wantAnswers(t, u.server(t), outside, []dialogue{{"lost.z.test. A", "NXDOMAIN aa\nns z.test. SOA z.test."}})
}

// TestUpdatesAreBounded: no key fills the memory.
func TestUpdatesAreBounded(t *testing.T) {
	t.Parallel()
	u := newUpdatedLab(t, updateLab())
	ap := serve(t, u.server(t), "127.0.0.1")
	m := new(dns.Msg).SetUpdate("z.test.")
	for i := range maxSetRecords + 1 {
		m.Insert([]dns.RR{rr(t, fmt.Sprintf("many.z.test. 60 A 10.0.%d.%d", i/256, i%256))})
	}
	if got := sendUpdate(t, ap, m); got != dns.RcodeRefused {
		t.Errorf("%d records: %s", maxSetRecords+1, dns.RcodeToString[got])
	}
}

// TestUpdatesOfAZoneAreBounded: the records of all updates of a zone have a limit, and what is deleted makes room.
func TestUpdatesOfAZoneAreBounded(t *testing.T) {
	t.Parallel()
	u := newUpdatedLab(t, updateLab())
	ap := serve(t, u.server(t), "127.0.0.1")
	large := func(i int) []dns.RR {
		var all []dns.RR
		for j := range 200 {
			all = append(all, rr(t, fmt.Sprintf("n%d-%d.z.test. 60 TXT %d%s", i, j/100, j, strings.Repeat("x", 240))))
		}
		return all
	}
	insert := func(i int) int {
		m := new(dns.Msg).SetUpdate("z.test.")
		m.Insert(large(i))
		return sendUpdate(t, ap, m)
	}
	n := 0
	for n*240*200 <= maxZoneOctets && insert(n) == dns.RcodeSuccess {
		n++
	}
	if octets := n * 240 * 200; octets > maxZoneOctets || octets < maxZoneOctets*9/10 {
		t.Fatalf("%d octets were accepted, the limit is %d", octets, maxZoneOctets)
	}
	m := new(dns.Msg).SetUpdate("z.test.")
	m.RemoveName([]dns.RR{rr(t, "n0-0.z.test. 60 A 192.0.2.1"), rr(t, "n0-1.z.test. 60 A 192.0.2.1")})
	if got := sendUpdate(t, ap, m); got != dns.RcodeSuccess {
		t.Fatalf("removing a name: %s", dns.RcodeToString[got])
	}
	if got := insert(n); got != dns.RcodeSuccess {
		t.Errorf("after a name was removed: %s", dns.RcodeToString[got])
	}
}

// TestLabTakesPrecedence: a reload whose lab file has a name that was updated keeps the update, serves it no longer, and gives it back.
func TestLabTakesPrecedence(t *testing.T) {
	t.Parallel()
	u := newUpdatedLab(t, updateLab())
	ap := serve(t, u.server(t), "127.0.0.1")
	for _, text := range []string{"new.z.test. 60 A 192.0.2.7", "a.b.z.test. 60 A 192.0.2.8"} {
		m := new(dns.Msg).SetUpdate("z.test.")
		m.Insert([]dns.RR{rr(t, text)})
		if got := sendUpdate(t, ap, m); got != dns.RcodeSuccess {
			t.Fatal(dns.RcodeToString[got])
		}
	}
	before := u.lab
	for _, lines := range [][]string{{"new A 192.0.2.100", "b DNAME www"}, {"new CNAME www", "b NS ns.x."}} {
		l := updateLab()
		l.Zones[1].Lines = append(l.Zones[1].Lines, zoneOfLines("z.test.", lines...).Lines...)
		u.reload(t, l)
		if got := fmt.Sprint(u.table.Load().Warnings()); !strings.Contains(got, "2 RRsets of dynamic updates are kept, but not served") {
			t.Errorf("%v: warnings %q", lines, got)
		}
	}
	wildcard := updateLab()
	wildcard.Zones[1].Records = append(wildcard.Zones[1].Records, derived("z.test.", "*.b.z.test. A 192.0.2.101").Records...)
	u.reload(t, wildcard)
	wantAnswers(t, u.server(t), outside, []dialogue{
		{"new.z.test. A", "NOERROR aa\nan new.z.test. A 192.0.2.7"},
		{"a.b.z.test. A", "NOERROR aa\nan a.b.z.test. A 192.0.2.101"},
	})
	without := updateLab()
	without.Zones = without.Zones[:1]
	u.reload(t, without)
	u.reload(t, before)
	wantAnswers(t, u.server(t), outside, []dialogue{{"new.z.test. A", "NOERROR aa\nan new.z.test. A 192.0.2.7"}})
}

// TestUpdatesBesideBIND sends the same random updates to BIND and wants the same codes and the same zone.
func TestUpdatesBesideBIND(t *testing.T) {
	netns.Need(t, "root", "named")
	t.Parallel()
	dir, port := t.TempDir(), netns.FreePort(t)
	write(t, filepath.Join(dir, "z.db"), "$TTL 60\n@ SOA z.test. h.z.test. 1 3600 600 604800 60\n@ NS ns.invalid.\n")
	conf := write(t, filepath.Join(dir, "named.conf"), `options {
	directory %[1]q; listen-on port %[2]d { 127.0.0.1; }; listen-on-v6 { none; }; pid-file none; session-keyfile none;
	recursion no; dnssec-validation no; notify no; empty-zones-enable no; };
controls {};
logging { category default { null; }; };
key "ns2.test" { algorithm hmac-sha256; secret %[3]q; };
zone "z.test" { type primary; file "z.db"; allow-update { key ns2.test; }; allow-transfer { any; }; check-integrity no; };
`, dir, port, testSecret)
	run(t, "named", "-f", "-n", "1", "-c", conf)
	bind := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port))
	waitFor(t, bind.String())
	l := &lab.Lab{Zones: []*lab.Zone{{Origin: "z.test.", Update: []lab.Access{{Key: testKey}}, UpdateReserved: []string{"*"}}}}
	l.DNS.Keys = []lab.TSIGKey{{Name: testKey, Algorithm: "hmac-sha256", SecretFile: "/plain"}}
	l.DNS.Transfer = []lab.Access{{From: netip.MustParsePrefix("127.0.0.0/8")}}
	u := newUpdatedLab(t, l)
	ours := serve(t, u.server(t), "127.0.0.1")
	codes, updates := map[string]int{}, 300
	if os.Getenv("BOOTLAB_LONG") != "" {
		updates = 5000
	}
	for i := range updates {
		m := randomUpdate(t, rand.New(rand.NewPCG(7, uint64(i))))
		theirs, got := sendUpdate(t, bind, m.Copy()), sendUpdate(t, ours, m.Copy())
		codes[dns.RcodeToString[theirs]]++
		if theirs != got {
			t.Fatalf("update %d: BIND %s, we %s\n%s\nzone:\n%s", i, dns.RcodeToString[theirs], dns.RcodeToString[got], m, strings.Join(zoneOf(t, bind), "\n"))
		}
		if i%20 != 19 {
			continue
		}
		if diff := cmp.Diff(zoneOf(t, bind), zoneOf(t, ours)); diff != "" {
			t.Fatalf("after update %d (-BIND +dnsd):\n%s\n%s", i, diff, m)
		}
	}
	t.Log(codes)
	for _, code := range []string{"NOERROR", "NXDOMAIN", "YXDOMAIN", "NXRRSET", "YXRRSET", "FORMERR", "NOTZONE"} {
		if codes[code] == 0 {
			t.Errorf("no update had the code %s", code)
		}
	}
}

// zoneOf transfers z.test and returns all but its SOA and NS records.
func zoneOf(t testing.TB, ap netip.AddrPort) (lines []string) {
	t.Helper()
	ch, err := (&dns.Transfer{ReadTimeout: time.Minute}).In(new(dns.Msg).SetAxfr("z.test."), ap.String())
	if err != nil {
		t.Fatal(err)
	}
	for e := range ch {
		if e.Error != nil {
			t.Fatal(e.Error)
		}
		for _, rr := range e.RR {
			if rr.Header().Name != "z.test." {
				lines = append(lines, strings.ToLower(strings.ReplaceAll(rr.String(), "\t", " ")))
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// randomUpdate returns an update of few names and types, so that its parts meet each other and those before it.
func randomUpdate(t testing.TB, r *rand.Rand) *dns.Msg {
	m := new(dns.Msg).SetUpdate("z.test.")
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	record := func() dns.RR {
		name := pick("a.z.test.", "b.z.test.", "a.b.z.test.", "*.z.test.", "A.z.test.")
		if r.IntN(150) == 0 && len(m.Answer) == 0 { // BIND looks at the names of changes before it looks at prerequisites
			name = "a.example."
		}
		return rr(t, name+" 60 "+pick("A 192.0.2.1", "A 192.0.2.2", "TXT x", "TXT y", "CNAME b.z.test.", "CNAME x.test.", "MX 5 b.z.test."))
	}
	for range r.IntN(3) {
		one := []dns.RR{record()}
		switch r.IntN(5) {
		case 0:
			m.NameUsed(one)
		case 1:
			m.NameNotUsed(one)
		case 2:
			m.RRsetUsed(one)
		case 3:
			m.RRsetNotUsed(one)
		case 4:
			one[0].Header().Ttl = 0
			m.Used(one)
		}
	}
	m.Answer = dns.Dedup(m.Answer, nil) // two of the same are one (RFC 2181 section 5), which BIND denies
	for range 1 + r.IntN(4) {
		one := []dns.RR{record()}
		switch r.IntN(7) {
		default:
			m.Insert(one)
		case 0:
			m.RemoveName(one)
		case 1:
			m.RemoveRRset(one)
		case 2:
			m.Remove(one)
		}
	}
	if r.IntN(40) == 0 && len(m.Answer) == 0 && m.Ns[0].Header().Name != "a.example." { // BIND looks at classes before prerequisites and names
		m.Ns[0].Header().Class = dns.ClassCHAOS
	}
	return m
}

// TestNsupdate: Debian's nsupdate finds the zone and changes it, and IXFR carries the changes.
func TestNsupdate(t *testing.T) {
	netns.Need(t, "root", "nsupdate")
	t.Parallel()
	u := newUpdatedLab(t, updateLab())
	ap := serve(t, u.server(t), "127.0.0.1")
	key := write(t, filepath.Join(t.TempDir(), "key"), "key \"ns2.test\" { algorithm hmac-sha256; secret %q; };\n", testSecret)
	script := func(lines ...string) (string, error) {
		cmd := exec.Command("nsupdate", "-k", key)
		cmd.Stdin = strings.NewReader(fmt.Sprintf("server %s %d\n", ap.Addr(), ap.Port()) + strings.Join(lines, "\n") + "\nsend\n")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := script("prereq nxdomain n.z.test.", "update add n.z.test. 60 A 192.0.2.7", "update add n.z.test. 60 TXT heritage"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := script("prereq nxdomain n.z.test.", "update add n.z.test. 60 A 192.0.2.8"); err == nil || !strings.Contains(out, "YXDOMAIN") {
		t.Errorf("%v %s", err, out)
	}
	if out, err := script("update delete n.z.test. TXT", "update add n.z.test. 60 AAAA fd00::1"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := script("update delete host.z.test."); err == nil || !strings.Contains(out, "REFUSED") {
		t.Errorf("%v %s", err, out)
	}
	m := new(dns.Msg)
	m.SetIxfr("z.test.", 1, "a.", "b.")
	m.SetTsig(testKey, dns.HmacSHA256, 300, time.Now().Unix())
	ch, err := (&dns.Transfer{ReadTimeout: time.Minute, TsigSecret: map[string]string{testKey: testSecret}}).In(m, ap.String())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for e := range ch {
		if e.Error != nil {
			t.Fatal(e.Error)
		}
		n += len(e.RR)
	}
	if want := 1 + (2 + 2) + (2 + 2) + 1; n != want {
		t.Errorf("an IXFR of two updates has %d records, want %d", n, want)
	}
}

// FuzzUpdate sends any body of an update with the right key: nothing but the open names of the zone ever changes.
func FuzzUpdate(f *testing.F) {
	for i := range 20 {
		packed, err := randomUpdate(f, rand.New(rand.NewPCG(9, uint64(i)))).Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	table, err := Compile(updateLab(), keyFiles)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m dns.Msg
		r := &request{t: table, sig: &signature{key: table.keyNamed(testKey)}}
		if m.Unpack(b) != nil {
			return
		}
		_, _ = r.q.name.parse([]byte("\x01z\x04test\x00"))
		sets, err := table.planUpdate(&m, r, time.Now())
		if err != nil {
			return
		}
		after, err := Compile(updateLab(), keyFiles, sets...)
		if err != nil {
			t.Fatalf("%v\n%+v", err, sets)
		}
		for _, s := range sets {
			if len(s.Data) > 0 && !after.Serves(s) {
				t.Fatalf("not served: %+v", s)
			}
		}
		for _, n := range []string{"\x04host\x01z\x04test\x00", "\x03www\x01z\x04test\x00", "\x07console\x04apps\x01z\x04test\x00"} {
			var at name
			_, _ = at.parse([]byte(n))
			if m := after.match(&at); m.node == nil || m.zone.set(m.node, typeA) == nil {
				t.Fatalf("%q is gone", n)
			}
		}
	})
}
