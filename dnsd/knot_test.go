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

// TestBesideKnot makes zones of few labels, so that wildcards, empty non-terminals, CNAMEs and delegations meet often, and
// wants the same answers from Knot for every name and type.
func TestBesideKnot(t *testing.T) {
	netns.Need(t, "root", "knotd")
	const zones = 40
	dir, port := t.TempDir(), freePort(t)
	l := &lab.Lab{}
	conf := fmt.Sprintf("server:\n    listen: 127.0.0.1@%[2]d\n    udp-workers: 1\n    tcp-workers: 1\n    background-workers: 1\n    rundir: %[1]s\n"+
		"database:\n    storage: %[1]s\nlog:\n  - target: stderr\n    any: error\nzone:\n", dir, port)
	for i := range zones {
		origin := fmt.Sprintf("z%d.test.", i)
		text := randomZone(rand.New(rand.NewPCG(1, uint64(i))), origin)
		file := filepath.Join(dir, origin+"zone")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l.Zones = append(l.Zones, &lab.Zone{Origin: origin, File: file})
		conf += fmt.Sprintf("  - domain: %s\n    file: %s\n    zonefile-sync: -1\n    journal-content: none\n    semantic-checks: off\n", origin, file)
	}
	if err := os.WriteFile(filepath.Join(dir, "knot.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	table, err := CompileWith(l, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	startKnot(t, dir, port)
	s := newServer(t, table, nil)
	conn, err := dns.DialTimeout("udp", fmt.Sprintf("127.0.0.1:%d", port), 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := &dns.Client{Timeout: 20 * time.Second}
	asked, wrong := 0, 0
	for i, z := range l.Zones {
		for _, owner := range randomNames(z.Origin) {
			for _, qtype := range []string{"A", "TXT", "CNAME", "NS", "DS", "DNAME"} {
				q := new(dns.Msg).SetQuestion(owner, dns.StringToType[qtype])
				theirs, _, err := c.ExchangeWithConn(q, conn)
				if err != nil {
					t.Fatal(err)
				}
				asked++
				if diff := cmp.Diff(gist(theirs), gist(exchange(t, s, q, outside))); diff != "" && wrong < 5 {
					wrong++
					text, _ := os.ReadFile(l.Zones[i].File)
					t.Errorf("%s %s (-knot +dnsd):\n%s\n%s", owner, qtype, diff, text)
				}
			}
		}
	}
	if asked != zones*40*6 {
		t.Errorf("%d questions", asked)
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

// randomZone returns a zone of names of up to three labels out of a, b and *.
func randomZone(r *rand.Rand, origin string) string {
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
					fmt.Fprintf(&b, "%s DS 2371 13 2 1F987CC6583E92DF0890718C42\n", owner)
				}
				fmt.Fprintf(&b, "%[1]s NS ns.%[1]s\nns.%[1]s A 192.0.2.53\n", owner)
				continue
			}
			fallthrough
		case 2:
			fmt.Fprintf(&b, "%s TXT text\n", owner)
		default:
			fmt.Fprintf(&b, "%s A 192.0.2.%d\n", owner, 1+r.IntN(9))
		}
	}
	return b.String()
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
