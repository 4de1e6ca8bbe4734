package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestLeaseFiles imports a file of dnsmasq into a running daemon, exports it in every format, and imports what was exported.
func TestLeaseFiles(t *testing.T) {
	h := serve(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	soon, past := time.Now().Add(2*time.Hour).Unix(), time.Now().Add(-time.Hour).Unix()
	from := write("dnsmasq.leases", fmt.Sprintf(`%[1]d 52:54:00:00:09:01 10.88.0.101 printer 01:52:54:00:00:09:01
0 52:54:00:00:09:02 10.88.0.102 * *
%[1]d 52:54:00:00:09:03 10.99.0.103 elsewhere *
%[1]d 52:54:00:00:09:04 10.88.0.11 * *
%[1]d 52:54:00:00:09:05 10.88.0.50 * *
%[2]d 52:54:00:00:09:06 10.88.0.104 * *
%[1]d 52:54:00:00:09:01 10.88.0.105 * *
`, soon, past))
	skipped := []string{
		"10.88.0.11 52:54:00:00:09:04 - reserved the address is reserved for a",
		"10.88.0.50 52:54:00:00:09:05 - in no pool no pool of network n has the address",
		"10.88.0.104 52:54:00:00:09:06 - expired it ended ",
		"10.88.0.105 52:54:00:00:09:01 - double the file has a lease of 10.88.0.101 for this machine that ends later",
		"10.99.0.103 52:54:00:00:09:03 elsewhere outside our networks the address is in no network of the lab",
		"skipped 5: 1 double, 1 expired, 1 in no pool, 1 outside our networks, 1 reserved",
	}
	h.steps(
		step{args: "leases import --check " + from, out: append([]string{"would import 2 leases, "}, skipped...)},
		step{args: "leases", not: []string{"10.88.0.101"}},
		step{args: "leases import " + from, out: append([]string{"imported 2 leases, "}, skipped...)},
		step{args: "leases", out: []string{"10.88.0.101 52:54:00:00:09:01 (printer) n guests active in ", "10.88.0.102 52:54:00:00:09:02 - n guests active"}},
		step{args: "leases import --json " + from, json: true, out: []string{`"imported": 0`, `"kind": "already leased"`}},
		step{args: "leases export", out: []string{"ip,mac,hostname,state,since,expires,", "10.88.0.101,52:54:00:00:09:01,printer,active,"}},
		step{args: "leases export --format dnsmasq", out: []string{fmt.Sprintf("%d 52:54:00:00:09:01 10.88.0.101 printer 01:52:54:00:00:09:01 0 52:54:00:00:09:02 10.88.0.102 * *", soon)}},
		step{args: "leases export --format kea", out: []string{",1,0,0,printer,0,", ",4294967295,"}},
		step{args: "leases export --format kea --subnet-id m=4", err: "--subnet-id m=4: no network m has a lease, a host or a pool; networks: n"},
		step{args: "leases export --format kea --subnet-id n=1 --subnet-id xx=2", err: "--subnet-id xx=2: no network xx has a lease, a host or a pool; networks: n"},
		step{args: "leases export --format kea --subnet-id n", err: "want network=id, such as lan=1"},
		step{args: "leases export --format isc", err: `--format "isc" is not known: want csv, json, kea or dnsmasq`},
		step{args: "leases import " + write("empty", ""), err: "it is empty"},
		step{args: "leases import " + write("odd", "hello"), err: "it is in no format that bootlab knows; --format names one of"},
		step{args: "leases import --format kea " + from, err: "line 1: there is no column address; nothing was imported"},
		step{args: "leases import " + write("cut", "1795359845 52:54:00:00:09:08 10.88.0.108 x *\n1795"), err: "line 2: 1 words, want 5"},
		step{args: "leases import " + write("endless", "ip,mac,expires\n10.88.0.108,52:54:00:00:09:08,\n"), err: "endless: line 2: there is no expires: want a time such as 2026-11-22T15:04:05Z, or never; nothing was imported"},
		step{args: "leases", not: []string{"10.88.0.108"}},
	)
	list := func() string { return h.run("leases", "export", "--format", "dnsmasq").out }
	before := list()
	for _, format := range []string{"csv", "json", "kea", "dnsmasq"} {
		text := h.run("leases", "export", "--format", format).out
		h.steps(
			step{args: "leases release 10.88.0.101 10.88.0.102"},
			step{args: "leases import " + write("again."+format, text), out: []string{"imported 2 leases"}, not: []string{"skipped"}},
		)
		if after := list(); after != before {
			t.Errorf("%s: leases before:\n%safter export and import:\n%s", format, before, after)
		}
	}
	h.steps(
		step{args: "leases import " + write("other", fmt.Sprintf("%d 52:54:00:00:09:08 10.88.0.101 * *\n", soon)), out: []string{"imported 0 leases, skipped 1: 1 already leased", "the address is leased to 52:54:00:00:09:01"}},
		step{args: "leases import " + write("elsewhere", fmt.Sprintf("%d 52:54:00:00:09:09 10.99.0.5 * *\n", soon)), err: "no lease was imported", out: []string{"imported 0 leases, skipped 1: 1 outside our networks"}},
		step{args: "leases import --replace " + filepath.Join(dir, "other"), out: []string{"imported 1 lease (1 of them in place of other leases)"}},
		step{args: "leases", out: []string{"10.88.0.101 52:54:00:00:09:08"}, not: []string{"52:54:00:00:09:01"}},
	)
}
