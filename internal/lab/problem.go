package lab

import (
	"encoding/json"
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
	Of      string `json:"-"`             // the zone, where one alone is refused
	// Path is the file that is missing or cannot be read, if that is the problem: it is solved once the file can be read. Or it is one that
	// everybody can fetch and nobody should.
	Path string `json:"path,omitempty"`
	// Secret says that the line at Pos is not shown: it is one of a config document, which may hold passwords.
	Secret bool   `json:"-"`
	Source string `json:"source,omitempty"` // the line at Pos, if it is known
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

// Hint returns the part of the message that says what would be right; empty: none.
func (p *Problem) Hint() string {
	at := -1
	for _, word := range []string{": want ", "; want ", ": did you mean ", "; did you mean "} {
		if i := strings.LastIndex(p.Message, word); i > at {
			at = i
		}
	}
	if at < 0 {
		return ""
	}
	return p.Message[at+2:]
}

// MarshalJSON adds the hint to the fields.
func (p *Problem) MarshalJSON() ([]byte, error) {
	type fields Problem
	return json.Marshal(struct {
		*fields
		Hint string `json:"hint,omitempty"`
	}{(*fields)(p), p.Hint()})
}

// Detail returns the error and, where it is known, the line with a mark below the value, each on lines of their own.
func (p *Problem) Detail() string {
	if p.Source == "" {
		return p.Error() + "\n"
	}
	const before, most = 60, 140 // runes of a long line
	line := []rune(Printable(p.Source))
	from := min(max(p.Pos.Column-1, 0), len(line))
	to := from + span(line[from:])
	if strings.HasPrefix(p.Key, "zone ") { // of a zone file: words
		word, _, _ := strings.Cut(string(line[from:to]), " ")
		to = from + len([]rune(word))
	}
	lead := ""
	if len(line) > most && from > before {
		line, to, from = line[from-before:], to-from+before, before
		lead = "…"
	}
	if len(line) > most {
		line = append(line[:most:most], '…')
	}
	to = max(min(to, len(line)), from+1)
	margin := fmt.Sprintf("%5d", p.Pos.Line)
	return fmt.Sprintf("%s\n%s | %s%s\n%*s | %*s%s\n", p.Error(), margin, lead, string(line), len(margin), "", from+len([]rune(lead)), "", strings.Repeat("^", to-from))
}

// span returns the length of the key or value that line begins with.
func span(line []rune) int {
	if len(line) == 0 || strings.ContainsRune(" :,]}", line[0]) {
		return 1 // something is missing there
	}
	if q := line[0]; q == '"' || q == '\'' {
		if i := slices.Index(line[1:], q); i >= 0 {
			return i + 2
		}
	}
	for i, r := range line {
		next := rune(' ')
		if i+1 < len(line) {
			next = line[i+1]
		}
		switch {
		case r == ':' && next == ' ', r == ' ' && next == '#', i > 0 && (r == ',' || r == ']' || r == '}'), r == ' ' && next == ' ':
			return max(i, 1)
		}
	}
	return len([]rune(strings.TrimRight(string(line), " \r")))
}

// Detail returns the details of all problems.
func (ps Problems) Detail() string {
	var b strings.Builder
	for _, p := range ps {
		b.WriteString(p.Detail())
	}
	return b.String()
}

// Problems are all that is wrong, in the order of the file. An empty list is no error: use Err.
type Problems []*Problem

// Has reports whether a problem that reads like p is among ps.
func (ps Problems) Has(p *Problem) bool {
	return slices.ContainsFunc(ps, func(o *Problem) bool { return o.Pos == p.Pos && o.Key == p.Key && o.Message == p.Message })
}

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
