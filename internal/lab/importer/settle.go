package importer

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

const checked = "imported.yaml" // the name of the lab file in errors of Options.Check

// settle returns the draft as a lab file that loads. What the loader refuses is left out, with a note.
func (d *draft) settle(header string) ([]byte, error) {
	root := d.tree()
	root.sort(topOrder)
	for {
		text := d.print(header, root)
		if len(d.o.Check(checked, text)) == 0 {
			d.noteMissing(root)
			return d.print(header, root), nil
		}
		// Once more, with a line for each value: it says which values are wrong.
		w := &writer{}
		w.mapping(root, nil, 0)
		problems := d.o.Check(checked, []byte(w.b.String()))
		if len(problems) == 0 {
			return text, d.o.Check(checked, text).Err()
		}
		if err := d.leaveOut(root, w.lines, problems); err != nil {
			return nil, err
		}
	}
}

// An expectation is a statement that is carried or has a note.
type expectation struct {
	at     place
	access bool // it keeps machines out
}

// noteMissing notes each statement that is neither in the lab nor in a note: another one replaced it, or what it is about was left out.
func (d *draft) noteMissing(root *mapping) {
	there := maps.Clone(d.accounted)
	root.lines(there)
	for _, e := range d.expected {
		if there[e.at.on()] {
			continue
		}
		d.note(e.at, "the lab file has nothing of this line: another line replaces it, or what it is about is left out")
		d.notes[len(d.notes)-1].WeakensAccess = e.access
	}
}

// lines adds the lines that entries are from.
func (m *mapping) lines(all map[line]bool) {
	for _, e := range m.entries {
		e.lines(all)
	}
}

func (e *entry) lines(all map[line]bool) {
	for _, at := range append(e.also, e.at) {
		all[at.on()] = true
	}
	for _, i := range e.list {
		i.lines(all)
	}
	if e.sub != nil {
		e.sub.lines(all)
	}
}

// print returns the lab file, with what is not enforced.
func (d *draft) print(header string, root *mapping) []byte {
	d.notes = inOrder(d.notes)
	w := &writer{flow: true}
	w.mapping(root, nil, 0)
	return []byte(header + comments(d.notes) + w.b.String())
}

// leaveOut removes the entries that problems are about. It removes at least one, or returns an error.
func (d *draft) leaveOut(root *mapping, lines []*entry, problems lab.Problems) error {
	removed := map[*entry]bool{}
	for _, p := range problems {
		if p.Pos.Line < 1 || p.Pos.Line > len(lines) {
			return fmt.Errorf("the imported lab is not valid: %w", p)
		}
		e := lines[p.Pos.Line-1]
		what, message := strings.TrimPrefix(p.Key, "."), withoutPlaces(p.Message)
		for e.needed && e.parent != nil {
			if e = e.parent; e.path() != "" {
				what = e.path()
			}
		}
		if e.parent == nil {
			return fmt.Errorf("the imported lab is not valid: %w", p)
		}
		if !removed[e] {
			removed[e] = true
			if why, ok := strings.CutPrefix(p.Key, what+"."); ok {
				message = why + ": " + message
			}
			d.note(e.at, "%s is left out: %s", what, message)
			d.notes[len(d.notes)-1].WeakensAccess = e.keepsOut()
		}
	}
	root.prune(removed)
	return nil
}

// prune removes entries, and mappings and lists that become empty by it.
func (m *mapping) prune(removed map[*entry]bool) {
	m.entries = slices.DeleteFunc(m.entries, func(e *entry) bool {
		gone := e.prune(removed)
		if gone {
			delete(m.byKey, e.key)
		}
		return gone
	})
}

// prune reports whether nothing is left of e.
func (e *entry) prune(removed map[*entry]bool) bool {
	if removed[e] {
		return true
	}
	before := len(e.list)
	e.texts = nil
	e.list = slices.DeleteFunc(e.list, func(i *entry) bool { return i.prune(removed) })
	if e.sub != nil {
		n := len(e.sub.entries)
		e.sub.prune(removed)
		return n > 0 && len(e.sub.entries) == 0
	}
	return before > 0 && len(e.list) == 0
}

var places = regexp.MustCompile(` \(` + regexp.QuoteMeta(checked) + `:[0-9:]+\)`)

// withoutPlaces removes the places in the lab file that was tried, which nobody sees.
func withoutPlaces(message string) string { return places.ReplaceAllString(message, "") }
