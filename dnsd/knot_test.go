package dnsd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

const generate = "$GENERATE 1-3 g$.a A 192.0.2.$\n"

// A reference is a name server that answers for the same zone files. start runs it.
type reference struct {
	name, program string
	start         func(t *testing.T, dir string, port int, zones []*lab.Zone)
}

var references = []reference{
	{"Knot", "knotd", func(t *testing.T, dir string, port int, zones []*lab.Zone) {
		conf := fmt.Sprintf("server:\n    listen: 127.0.0.1@%[2]d\n    udp-workers: 1\n    tcp-workers: 1\n    background-workers: 1\n    rundir: %[1]s\n"+
			"database:\n    storage: %[1]s\nlog:\n  - target: stderr\n    any: error\nzone:\n", dir, port)
		for _, z := range zones {
			conf += fmt.Sprintf("  - domain: %s\n    file: %s\n    zonefile-sync: -1\n    journal-content: none\n    semantic-checks: off\n", z.Origin, z.File)
		}
		write(t, filepath.Join(dir, "knot.conf"), "%s", conf)
		startKnot(t, dir, port)
	}},
	{"NSD", "nsd", func(t *testing.T, dir string, port int, zones []*lab.Zone) {
		conf := fmt.Sprintf("server:\n  ip-address: 127.0.0.1@%[2]d\n  username: \"\"\n  zonesdir: %[1]q\n  database: \"\"\n  pidfile: \"%[1]s/nsd.pid\"\n  xfrdfile: \"%[1]s/xfrd\"\n"+
			"  xfrdir: %[1]q\n  zonelistfile: \"%[1]s/list\"\n  server-count: 1\n  minimal-responses: yes\n  rrl-ratelimit: 0\nremote-control:\n  control-enable: no\n", dir, port)
		for _, z := range zones {
			conf += fmt.Sprintf("zone:\n  name: %q\n  zonefile: %q\n", z.Origin, z.File)
		}
		run(t, "nsd", "-d", "-c", write(t, filepath.Join(dir, "nsd.conf"), "%s", conf))
		waitFor(t, fmt.Sprintf("127.0.0.1:%d", port))
	}},
	{"BIND", "named", func(t *testing.T, dir string, port int, zones []*lab.Zone) {
		conf := fmt.Sprintf("options { directory %q; listen-on port %d { 127.0.0.1; }; listen-on-v6 { none; }; pid-file none; session-keyfile none; recursion no;"+
			" dnssec-validation no; notify no; empty-zones-enable no; minimal-responses yes; };\ncontrols {};\nlogging { category default { null; }; };\n", dir, port)
		for _, z := range zones {
			conf += fmt.Sprintf("zone %q { type primary; file %q; check-names ignore; check-integrity no; };\n", z.Origin, z.File)
		}
		run(t, "named", "-f", "-n", "1", "-c", write(t, filepath.Join(dir, "named.conf"), "%s", conf))
		waitFor(t, fmt.Sprintf("127.0.0.1:%d", port))
	}},
}

// TestBesidePeers makes zones of few labels, so that wildcards, empty non-terminals, CNAMEs, DNAMEs and delegations, of zones that are
// here too and of others, meet often, and wants the same answers from Knot, NSD and BIND for every name and type.
func TestBesidePeers(t *testing.T) {
	const zones = 40
	for _, ref := range references {
		t.Run(ref.name, func(t *testing.T) {
			netns.Need(t, "root", ref.program)
			t.Parallel()
			dir, port := t.TempDir(), netns.FreePort(t)
			_ = os.Chmod(dir, 0o755)
			l := &lab.Lab{}
			var theirs []*lab.Zone
			add := func(origin, text string) {
				l.Zones = append(l.Zones, &lab.Zone{Origin: origin, File: write(t, filepath.Join(dir, origin+"zone"), "%s", text)})
				if ref.program != "named" { // the others do not know $GENERATE
					text = strings.Replace(text, generate, "g1.a A 192.0.2.1\ng2.a A 192.0.2.2\ng3.a A 192.0.2.3\n", 1)
				}
				theirs = append(theirs, &lab.Zone{Origin: origin, File: write(t, filepath.Join(dir, origin+"theirs"), "%s", text)})
			}
			for i := range zones {
				r := rand.New(rand.NewPCG(1, uint64(i)))
				origin := fmt.Sprintf("z%d.test.", i)
				text, cut := randomZone(r, origin)
				add(origin, text)
				if cut != "" && i%2 == 0 {
					add(cut, fmt.Sprintf("$ORIGIN %s\n$TTL 60\n@ SOA ns.invalid. h.invalid. 1 2 3 4 60\n@ NS ns.invalid.\n@ A 192.0.2.99\n* TXT child\n", cut))
				}
			}
			table, err := Compile(l, onDisk)
			if err != nil {
				t.Fatal(err)
			}
			ref.start(t, dir, port, theirs)
			s := newServer(t, table, nil)
			conn, err := dns.DialTimeout("udp", fmt.Sprintf("127.0.0.1:%d", port), 20*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			c := &dns.Client{Timeout: 20 * time.Second}
			asked, wrong := 0, 0
			for i := range zones {
				origin := fmt.Sprintf("z%d.test.", i)
				for _, owner := range append(randomNames(origin), "g2.a."+origin, "g9.a."+origin) {
					for _, qtype := range []uint16{dns.TypeA, dns.TypeTXT, dns.TypeCNAME, dns.TypeNS, dns.TypeDS, dns.TypeDNAME, dns.TypeSOA, 65400} {
						q := new(dns.Msg).SetQuestion(owner, qtype)
						theirs, _, err := c.ExchangeWithConn(q, conn)
						if err != nil {
							t.Fatal(err)
						}
						asked++
						if theirs.Rcode == dns.RcodeServerFailure && len(theirs.Answer) > 0 {
							continue // BIND answers so to a loop of CNAMEs
						}
						if diff := cmp.Diff(gist(theirs), gist(exchange(t, s, q, outside))); diff != "" {
							if wrong++; wrong < 6 {
								text, _ := os.ReadFile(filepath.Join(dir, origin+"zone"))
								t.Errorf("%s %s (-%s +dnsd):\n%s\n%s", owner, dns.Type(qtype), ref.name, diff, text)
							}
						}
					}
				}
			}
			if t.Logf("%d of %d answers differ", wrong, asked); asked != zones*42*8 {
				t.Errorf("%d questions", asked)
			}
		})
	}
}

// startKnot runs knotd until the test ends.
func startKnot(t *testing.T, dir string, port int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, "knotd", "-c", filepath.Join(dir, "knot.conf"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	waitFor(t, fmt.Sprintf("127.0.0.1:%d", port))
}

// gist is what both servers must agree on. Additional records are a matter of taste, and Knot writes a CNAME that a
// wildcard points to itself twice.
func gist(m *dns.Msg) string {
	m = m.Copy()
	m.Extra = nil
	lines := strings.Split(show(m), "\n")
	slices.Sort(lines[1:])
	return strings.Join(slices.Compact(lines), "\n")
}

// randomZone returns a zone of names of up to three labels out of a, b and *, and where it delegates, if it does.
func randomZone(r *rand.Rand, origin string) (text, delegated string) {
	var b strings.Builder
	fmt.Fprintf(&b, "$ORIGIN %s\n$TTL 60\n@ SOA ns.invalid. h.invalid. 1 2 3 4 60\n@ NS ns.invalid.\n", origin)
	cut, dname, taken := "", "", map[string]bool{}
	names := randomNames(origin)[1:]
	for range 3 + r.IntN(6) {
		owner := names[r.IntN(len(names))]
		if cut != "" && dns.IsSubDomain(cut, owner) || dname != "" && dns.IsSubDomain(dname, owner) || taken[owner] {
			continue
		}
		taken[owner] = true
		bottom := !slices.ContainsFunc(names, func(n string) bool { return taken[n] && n != owner && dns.IsSubDomain(owner, n) })
		switch r.IntN(8) {
		case 6:
			if dname == "" && bottom && !strings.Contains(owner, "*") {
				dname = owner
				fmt.Fprintf(&b, "%s DNAME %s\n", owner, names[r.IntN(len(names))])
			}
		case 0:
			fmt.Fprintf(&b, "%s CNAME %s\n", owner, names[r.IntN(len(names))])
		case 1:
			if cut == "" && !strings.Contains(owner, "*") && bottom {
				cut = owner
				if r.IntN(2) == 0 {
					fmt.Fprintf(&b, "%s DS 2371 13 2 1F987CC6583E92DF0890718C421F987CC6583E92DF0890718C421F987CC6583E\n", owner)
				}
				fmt.Fprintf(&b, "%[1]s NS ns.%[1]s\nns.%[1]s A 192.0.2.53\n", owner)
				continue
			}
			fallthrough
		case 2:
			fmt.Fprintf(&b, "%s TXT text\n", owner)
		case 3:
			fmt.Fprintf(&b, "%s TYPE65400 \\# 2 0102\n", owner)
		default:
			fmt.Fprintf(&b, "%s A 192.0.2.%d\n", owner, 1+r.IntN(9))
		}
	}
	if below := "a." + origin; (cut == "" || !dns.IsSubDomain(cut, below)) && (dname == "" || !dns.IsSubDomain(dname, below)) {
		b.WriteString(generate)
	}
	return b.String(), cut
}

// randomNames returns the origin and all names of up to three labels below it.
func randomNames(origin string) []string {
	names, last := []string{origin}, []string{origin}
	for range 3 {
		var longer []string
		for _, n := range last {
			for _, label := range []string{"a.", "b.", "*."} {
				longer = append(longer, label+n)
			}
		}
		names, last = append(names, longer...), longer
	}
	return names
}
