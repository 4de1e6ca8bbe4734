package golden_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/golden"
)

// A judged test keeps what is said of it.
type judged struct {
	testing.TB
	said string
}

func (j *judged) Errorf(format string, args ...any) { j.said = fmt.Sprintf(format, args...) }

func (j *judged) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// check returns the messages of Check, or of CheckBetween where there are marks, such as "<|>".
func check(t *testing.T, update bool, file, marks, got string) (said string) {
	t.Helper()
	j := &judged{TB: t}
	defer func() {
		if why := recover(); why != nil {
			said = fmt.Sprint("fatal: ", why)
		}
	}()
	if begin, end, ok := strings.Cut(marks, "|"); ok {
		golden.CheckBetween(j, &update, file, begin, end, got)
	} else {
		golden.Check(j, &update, file, got)
	}
	return j.said
}

func TestCheck(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "testdata", "a.txt")
	for _, step := range []struct {
		name   string
		update bool
		marks  string
		got    string
		said   []string // nothing: the test passes
	}{
		{name: "no file yet", got: "one\n", said: []string{"fatal: ", "a.txt"}},
		{name: "made", update: true, got: "one\n"},
		{name: "the same", got: "one\n"},
		{name: "another", got: "two\n", said: []string{"a.txt differs", "-update", "one", "two"}},
		{name: "rewritten", update: true, got: "two\n"},
		{name: "the new one", got: "two\n"},
		{name: "no marks", marks: "<|>", got: "part", said: []string{"fatal: ", "a.txt has lost the marks < and >"}},
		{name: "with marks", update: true, got: "above <old> below"},
		{name: "another part", marks: "<|>", got: "new", said: []string{"a.txt differs"}},
		{name: "the part rewritten", update: true, marks: "<|>", got: "new"},
		{name: "the rest stays", got: "above <new> below"},
		{name: "one mark", marks: "<|]", got: "new", said: []string{"fatal: "}},
	} {
		said := check(t, step.update, file, step.marks, step.got)
		if len(step.said) == 0 && said != "" {
			t.Errorf("%s: %s", step.name, said)
		}
		for _, part := range step.said {
			if !strings.Contains(said, part) {
				t.Errorf("%s: says %q, want %q in it", step.name, said, part)
			}
		}
	}
}
