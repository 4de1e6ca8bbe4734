package dnsd

import (
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/google/go-cmp/cmp"
)

// zoneTexts are zone files whose lines depend on each other in ways that reading simple lines apart must not change.
var zoneTexts = []string{
	"$TTL 300\nwww A 192.0.2.1\nmail 60 IN A 192.0.2.2\nm6 IN AAAA fd00::1\np PTR www\nq PTR www.example.\n",
	"$TTL 300\nwww A 192.0.2.1\n  A 192.0.2.2\n\tTXT x\n",
	"$TTL 300\nwww A 192.0.2.1\n; comment\n\n   \n  TXT x\n",
	"$TTL 300\nwww A 192.0.2.1\n   ; comment\n  TXT x\nother A 192.0.2.3\n",
	"$TTL 300\nwww A 192.0.2.1\n   \nother A 192.0.2.3\n TXT y\n",
	"$TTL 300\ntxt TXT (\nwww A 192.0.2.1\n)\nwww A 192.0.2.2\n",
	"$TTL 300\n@ SOA ns h ( 1 2 3\n 4 5 )\nwww A 192.0.2.2\n",
	"$TTL 300\ntxt TXT \"a\nwww A 192.0.2.1\n\"\nwww A 192.0.2.2\n",
	"$TTL (\n300 )\nwww A 192.0.2.1\n",
	"www A 192.0.2.1\n$TTL 60\nw2 A 192.0.2.2\nw3 30 A 192.0.2.3\nw4 A 192.0.2.4\n",
	"w1 30 A 192.0.2.1\nw2 A 192.0.2.2\n",
	"$TTL 60\n$ORIGIN sub.z.test.\nwww A 192.0.2.1\n$ORIGIN z.test.\nwww A 192.0.2.2\n",
	"$TTL 60\nwww A 192.0.2.1\n$GENERATE 1-2 g$ A 192.0.2.$\n TXT x\nh A 192.0.2.9\n",
	"$TTL 60\nwww A 192.0.2.1 ; comment\nw2 A 192.0.2.256\nw3 A 192.0.2.3\n",
	"$TTL 60\nA A 192.0.2.1\nIN IN A 192.0.2.2\n60 60 A 192.0.2.3\n@ A 192.0.2.4\n*.w A 192.0.2.5\nWWW A 192.0.2.6",
	"$TTL 1h\nout.example. A 192.0.2.1\n",
	"$TTL 60\nx CNAME y\nx A 192.0.2.1\n",
	"$TTL 60\nx.z.test. A 192.0.2.1\r\ny A 192.0.2.2\r\n",
	"$TTL 60\nx A 010.0.0.1\ny AAAA ::ffff:1.2.3.4\nz AAAA 1.2.3.4\nw A ::1\n",
	"$TTL 60\n.x A 192.0.2.1\nx..y A 192.0.2.1\n",
	"$TTL 60\nx A 192.0.2.1\n$TTL 60 junk\ny A 192.0.2.1\n",
	"$TTL 60\nx A 192.0.2.1\n$TTL nope\n",
}

// TestSimpleLines: a zone file whose simple lines are read without the parser is what the parser makes of all its lines.
func TestSimpleLines(t *testing.T) {
	t.Parallel()
	for _, text := range zoneTexts {
		compareZoneText(t, text)
	}
}

// FuzzZoneText is TestSimpleLines for any text.
func FuzzZoneText(f *testing.F) {
	for _, text := range zoneTexts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 || strings.Contains(strings.ToUpper(text), "$GENERATE") && len(text) > 100 {
			return
		}
		compareZoneText(t, text)
	})
}

// compareZoneText reads a zone file with and without its simple lines apart: after an $ORIGIN all lines are the parser's.
func compareZoneText(t *testing.T, text string) {
	t.Helper()
	read := func(text string) ([]ZoneFile, bool) {
		table, err := Compile(&lab.Lab{Zones: []*lab.Zone{{Origin: "z.test.", File: "/z"}}}, func(string, string) ([]byte, error) { return []byte(text), nil })
		if err != nil {
			t.Fatal(err)
		}
		return table.ZoneFiles(), len(table.BadFiles()) > 0
	}
	got, bad := read(text)
	want, alsoBad := read("$ORIGIN z.test.\n" + text)
	if diff := cmp.Diff(want, got); diff != "" || bad != alsoBad {
		t.Errorf("%q: bad %v, want %v (-parser +simple lines apart):\n%s", text, bad, alsoBad, diff)
	}
}
