package lab

import (
	"fmt"
	"slices"
	"strings"
)

// A Pos is a place in a lab file. Line and Column count from 1; the zero Pos means no position.
type Pos struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// String returns "file:line:column", as compilers and editors understand it.
func (p Pos) String() string {
	if p.File == "" {
		return "lab"
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// A Problem is one thing wrong in a lab file: where, which key and value, and what would be right.
type Problem struct {
	Pos     Pos    `json:"pos,omitzero"`
	Key     string `json:"key,omitempty"` // path of keys, such as hosts.master-0.mac
	Message string `json:"message"`       // lower case, names the value and what would be right
	// Path is the file that is missing or cannot be read, if that is the problem: it is solved once the file can be read.
	Path string `json:"-"`
}

// Error implements error: "file:line:column: key: message".
func (p *Problem) Error() string {
	switch {
	case p.Key == "" && p.Pos == Pos{}:
		return p.Message
	case p.Key == "":
		return fmt.Sprintf("%s: %s", p.Pos, p.Message)
	}
	return fmt.Sprintf("%s: %s: %s", p.Pos, p.Key, p.Message)
}

// Problems are all that is wrong, in the order of the file. An empty list is no error: use Err.
type Problems []*Problem

// Error implements error, one problem a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Err returns the problems sorted by position, or nil if there are none.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	ps.Sort()
	return ps
}

// Sort puts the problems in the order of the files.
func (ps Problems) Sort() {
	slices.SortStableFunc(ps, func(a, b *Problem) int {
		if c := strings.Compare(a.Pos.File, b.Pos.File); c != 0 {
			return c
		}
		if a.Pos.Line != b.Pos.Line {
			return a.Pos.Line - b.Pos.Line
		}
		return a.Pos.Column - b.Pos.Column
	})
}

// Addf adds a problem.
func (ps *Problems) Addf(pos Pos, key, format string, args ...any) {
	*ps = append(*ps, &Problem{Pos: pos, Key: key, Message: fmt.Sprintf(format, args...)})
}
