package plan

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// A Change is one line that a plan gains or loses.
type Change struct {
	Section string `json:"section"` // the heading above the line
	Op      string `json:"op"`      // "+" or "-"; "~" for something that is hidden
	Line    string `json:"line"`
}

// line is a line of a plan below its heading. Each line of a plan names what it is about, so that a
// difference of sets says all that an edit script would, whatever the order.
type line struct{ section, text string }

// Diff returns what must change to get from one plan's text to the other's, section by section: each line that goes, then the one that
// comes for it.
func Diff(from, to string) []Change {
	have, want := lines(from), lines(to)
	gone, come := missing("-", have, want), missing("+", want, have)
	changes, done := []Change{}, map[string]bool{}
	for _, c := range slices.Concat(gone, come) {
		if !done[c.Section] {
			done[c.Section] = true
			changes = append(changes, paired(of(c.Section, gone), of(c.Section, come))...)
		}
	}
	return changes
}

// of returns the changes of a section.
func of(section string, all []Change) (some []Change) {
	for _, c := range all {
		if c.Section == section {
			some = append(some, c)
		}
	}
	return some
}

// paired returns the lines of a section that go, each with the one that comes and begins like it: a line begins with what it is about.
func paired(gone, come []Change) (all []Change) {
	for _, g := range gone {
		all = append(all, g)
		best, common := -1, 0
		for i, c := range come {
			if n := commonWords(g.Line, c.Line); n > common {
				best, common = i, n
			}
		}
		if best >= 0 {
			all = append(all, come[best])
			come = slices.Delete(come, best, best+1)
		}
	}
	return append(all, come...)
}

// commonWords returns how many words two lines begin with alike.
func commonWords(a, b string) (n int) {
	x, y := strings.Fields(a), strings.Fields(b)
	for n < min(len(x), len(y)) && x[n] == y[n] {
		n++
	}
	return n
}

// HideChanges replaces the changes of each config document by one that shows none of its text.
func HideChanges(changes []Change) []Change {
	out, seen := []Change{}, map[string]bool{}
	for _, c := range changes {
		if !strings.HasPrefix(c.Section, configSection) {
			out = append(out, c)
		} else if !seen[c.Section] {
			seen[c.Section] = true
			out = append(out, Change{Section: c.Section, Op: "~", Line: "another document; --secrets shows what changes in it"})
		}
	}
	return out
}

// missing returns the lines of a that b has not, or not as often.
func missing(op string, a, b []line) (changes []Change) {
	count := make(map[line]int, len(b))
	for _, l := range b {
		count[l]++
	}
	for _, l := range a {
		if count[l]--; count[l] < 0 {
			changes = append(changes, Change{Section: l.section, Op: op, Line: l.text})
		}
	}
	return changes
}

func lines(text string) (ls []line) {
	section, balancer := "", ""
	for s := range strings.Lines(text) {
		s = strings.TrimRight(s, "\n")
		switch {
		case s == "":
		case !strings.HasPrefix(s, " "):
			section = s
		case section == "BALANCERS" && strings.HasPrefix(s, "    "): // a backend, which many balancers have
			ls = append(ls, line{section, balancer + ": " + strings.Join(strings.Fields(s), " ")})
		case section == "BALANCERS":
			balancer = strings.Fields(s)[0]
			fallthrough
		default:
			ls = append(ls, line{section, strings.Join(strings.Fields(s), " ")}) // columns move when a name is longer
		}
	}
	return ls
}

// WriteDiff writes changes for people, grouped by section.
func WriteDiff(w io.Writer, changes []Change) error {
	if len(changes) == 0 {
		_, err := fmt.Fprintln(w, "nothing would change")
		return err
	}
	section := ""
	for _, c := range changes {
		if c.Section != section {
			section = c.Section
			if _, err := fmt.Fprintf(w, "%s\n", section); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(w, "%s %s\n", c.Op, c.Line); err != nil {
			return err
		}
	}
	return nil
}
