package importer

import (
	"fmt"
	"slices"
	"strings"
)

const notEnforced = "NOT ENFORCED: "

// weaker records a statement that keeps somebody out, and that bootlab does not enforce.
func (d *draft) weaker(at place, format string, args ...any) {
	d.note(at, format, args...)
	d.notes[len(d.notes)-1].WeakensAccess = true
}

// comments returns what is not enforced as lines of a lab file.
func comments(notes []Note) string {
	var b strings.Builder
	for _, n := range notes {
		if n.WeakensAccess {
			fmt.Fprintln(&b, "#", n)
		}
	}
	return b.String()
}

// inOrder returns the notes by file and line, each once.
func inOrder(notes []Note) []Note {
	seen := make(map[Note]bool, len(notes))
	notes = slices.DeleteFunc(notes, func(n Note) bool {
		again := seen[n]
		seen[n] = true
		return again
	})
	slices.SortStableFunc(notes, func(a, b Note) int {
		if a.File != b.File {
			return strings.Compare(a.File, b.File)
		}
		return a.Line - b.Line
	})
	return notes
}

// keepsOut reports whether e, or an entry in it, keeps a machine from being served.
func (e *entry) keepsOut() bool {
	if e.key == "dhcp" && e.text == "off" {
		return true
	}
	return e.sub != nil && slices.ContainsFunc(e.sub.entries, (*entry).keepsOut)
}
