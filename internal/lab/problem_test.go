package lab_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab"
)

// TestProblemDetail: the line of a problem is shown with a mark below the value.
func TestProblemDetail(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, source string
		column       int
		key, want    string
	}{
		{"value", "  memory: 16G # much", 11, "k", "    7 |   memory: 16G # much\n      |           ^^^\n"},
		{"key", "  memry: 16G", 3, "k", "    7 |   memry: 16G\n      |   ^^^^^\n"},
		{"of a list", "a: [42, 43]", 5, "k", "    7 | a: [42, 43]\n      |     ^^\n"},
		{"in quotes", `a: "b, c" # d`, 4, "k", "    7 | a: \"b, c\" # d\n      |    ^^^^^^\n"},
		{"MAC", "mac: 52:54:00:00:00:0g", 6, "k", "    7 | mac: 52:54:00:00:00:0g\n      |      ^^^^^^^^^^^^^^^^^\n"},
		{"missing", "  fcos", 7, "k", "    7 |   fcos\n      |       ^\n"},
		{"empty", "{mac: , network: a}", 7, "k", "    7 | {mac: , network: a}\n      |       ^\n"},
		{"word of a zone file", "x AA 1.2.3.4", 3, "zone z.", "    7 | x AA 1.2.3.4\n      |   ^^\n"},
		{"no source", "", 3, "k", ""},
		{"cursor", "a: \x1b[2J", 4, "k", "    7 | a: \uFFFD[2J\n      |    ^^^^\n"},
		{"long", strings.Repeat("x", 200) + " y", 202, "k", "    7 | …" + strings.Repeat("x", 59) + " y\n      | " + strings.Repeat(" ", 61) + "^\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := &lab.Problem{Pos: lab.Pos{File: "f", Line: 7, Column: tt.column}, Key: tt.key, Message: "m", Source: tt.source}
			if diff := cmp.Diff(p.Error()+"\n"+tt.want, p.Detail()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestProblemJSON: programs get the place, the key, the message and what would be right as fields.
func TestProblemJSON(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(lab.Problems{{Pos: lab.Pos{File: "f", Line: 1, Column: 2}, Key: "a.b", Message: `"16G" is not a size: did you mean 16GiB?`, Secret: true}})
	const want = `[{"pos":{"file":"f","line":1,"column":2},"key":"a.b","message":"\"16G\" is not a size: did you mean 16GiB?","hint":"did you mean 16GiB?"}]`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v\nwant %s", b, err, want)
	}
}
