package dnsd

import (
	"net/netip"
	"runtime"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// simpleRecords reads the lines of a zone file that are most of a large one: a name, perhaps a TTL and a class, and an address or the name of a
// PTR. All other lines, and all that is not plain, is the real parser's, which takes five times as long.
type simpleRecords struct {
	p      *parser
	in     *zoneText
	file   string
	ttl    uint32
	hasTTL bool   // there was a $TTL: before, a TTL depends on other records
	buf    []byte // scratch
	origin []byte // in wire form
}

// takeSimpleLines lets the simple lines of a text be read without the parser.
func (p *parser) takeSimpleLines(in *zoneText, file string) {
	origin, err := appendName(nil, p.origin)
	if err != nil {
		return
	}
	s := &simpleRecords{p: p, in: in, file: file, origin: origin}
	in.simple, in.directives = s.take, s.directive
}

// directive looks at a directive that the parser reads next.
func (s *simpleRecords) directive(line string) {
	f := strings.Fields(line)
	switch {
	case strings.ContainsAny(line, "(\"\\") || strings.EqualFold(f[0], "$ORIGIN"):
		s.in.simple = nil // lines may depend on it, or belong to it
	case strings.EqualFold(f[0], "$TTL") && len(f) > 1:
		s.ttl, s.hasTTL = parseTTL(f[1])
	}
}

// take adds the record of a line, and reports false if it is not simple.
func (s *simpleRecords) take(line string, number int) bool {
	if !s.hasTTL || s.p.count >= maxZoneRecords {
		return false
	}
	owner, rest := field(line)
	word, rest := field(rest)
	ttl := s.ttl
	if n, ok := plainNumber(word); ok {
		ttl = n
		word, rest = field(rest)
	}
	if strings.EqualFold(word, "IN") {
		word, rest = field(rest)
	}
	data, rest := field(rest)
	if rest != "" {
		return false
	}
	rtype, ok := s.data(word, data)
	if !ok {
		return false
	}
	rdata := s.buf
	wire, ok := s.name(s.buf, owner)
	if !ok {
		return false
	}
	b := s.p.b
	if _, err := b.n.parse(wire[len(rdata):]); err != nil || b.n.hasSuffix(s.p.zone.origin, s.p.zone.labels) < 0 {
		return false
	}
	s.p.count++
	if s.p.count%recordsAtOnce == 0 {
		runtime.Gosched()
	}
	s.in.owner = append(s.in.owner[:0], b.n.bytes()...)
	pos := lab.Pos{File: s.file, Line: number, Column: 1}
	b.lines = append(b.lines, lab.Line{Pos: pos})
	s.p.zone.add(int32(len(b.lines)-1), pos, rtype, ttl, rdata)
	return true
}

// data reads the data of a type into s.buf.
func (s *simpleRecords) data(rtype, text string) (uint16, bool) {
	switch {
	case strings.EqualFold(rtype, "A"), strings.EqualFold(rtype, "AAAA") && !strings.Contains(text, "."):
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.Is4() != (len(rtype) == 1) {
			return 0, false
		}
		s.buf = append(s.buf[:0], a.AsSlice()...)
		return addrType(a), true
	case strings.EqualFold(rtype, "PTR"):
		var ok bool
		s.buf, ok = s.name(s.buf[:0], text)
		return typePTR, ok
	}
	return 0, false
}

// name appends a name of letters, digits, hyphens, underscores and asterisks, in wire form.
func (s *simpleRecords) name(b []byte, text string) ([]byte, bool) {
	start := len(b)
	for text != "" {
		label, rest, more := strings.Cut(text, ".")
		if label == "" || len(label) > maxLabel || !isPlain(label) {
			return b, false
		}
		b = append(append(b, byte(len(label))), label...)
		if more && rest == "" {
			b = append(b, 0)
			return b, len(b)-start <= maxName
		}
		text = rest
	}
	if len(b) == start {
		return b, false
	}
	b = append(b, s.origin...)
	return b, len(b)-start <= maxName
}

func isPlain(label string) bool {
	for i := range len(label) {
		switch c := label[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '*':
		default:
			return false
		}
	}
	return true
}

// field cuts the first word off a line, and the blanks behind it.
func field(line string) (word, rest string) {
	end := strings.IndexAny(line, " \t")
	if end < 0 {
		return line, ""
	}
	return line[:end], strings.TrimLeft(line[end:], " \t")
}

// plainNumber reads a TTL without units.
func plainNumber(s string) (n uint32, ok bool) {
	if len(s) == 0 || len(s) > 9 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = 10*n + uint32(s[i]-'0')
	}
	return n, true
}
