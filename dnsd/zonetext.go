package dnsd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/miekg/dns"
)

// A zoneText hands a zone file to the parser and knows on which line the record that is read begins, which the parser does not tell.
type zoneText struct {
	text string
	off  int

	simple     func(line string, number int) bool // takes a line that is a whole record, if it can; nil: it takes none
	directives func(line string)                  // is shown each directive
	owner      []byte                             // of the last record that was taken so, in wire form; empty: the parser has read a record since
	insert     string                             // what is read before the rest of the text

	line      int  // of the next byte, from 1
	record    int  // the line on which the record begins; 0: not seen yet
	directive int  // the line of the last directive: what $GENERATE makes has no line of its own
	skip      bool // the rest of this line is a comment or a directive
	blank     bool // the line has begun with a blank, and no record since
}

// ReadByte implements io.ByteReader, which keeps the parser from reading ahead.
func (z *zoneText) ReadByte() (byte, error) {
	if z.insert != "" {
		c := z.insert[0]
		z.insert = z.insert[1:]
		return c, nil
	}
	start := z.off == 0 || z.off < len(z.text) && z.text[z.off-1] == '\n'
	if start {
		z.line++
		z.skip = false
		if z.simple != nil && z.record == 0 {
			z.takeLines()
		}
		if z.insert != "" {
			return z.ReadByte()
		}
	}
	if z.off == len(z.text) {
		return 0, io.EOF
	}
	c := z.text[z.off]
	switch {
	case start && c == '$':
		z.directive, z.skip = z.line, true
	case c == ';' && z.record == 0:
		z.skip = true
	case z.record == 0 && !z.skip && c != ' ' && c != '\t' && c != '\r' && c != '\n':
		z.record, z.blank = z.line, false
	}
	if start && (c == ' ' || c == '\t') {
		z.blank = true
	}
	z.off++
	return c, nil
}

// takeLines takes the lines from here on that simple takes. The parser does not see them, so the owner of the last is inserted where a line
// goes on with it.
func (z *zoneText) takeLines() {
	for !z.blank && z.off < len(z.text) {
		end := strings.IndexByte(z.text[z.off:], '\n')
		if end < 0 || !z.simple(z.text[z.off:z.off+end], z.line) {
			break
		}
		z.off += end + 1
		z.line++
	}
	line, _, _ := strings.Cut(z.text[z.off:], "\n")
	rest := strings.TrimLeft(line, " \t")
	switch {
	case rest == "" || rest[0] == ';' || rest[0] == '\r':
	case line[0] == '$':
		z.directives(line)
	case len(rest) == len(line):
		z.owner = z.owner[:0]
	case len(z.owner) > 0:
		z.insert, z.record, z.blank = nameText(z.owner), z.line, false
	}
}

// Read implements io.Reader.
func (z *zoneText) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	c, err := z.ReadByte()
	if err != nil {
		return 0, err
	}
	b[0] = c
	return 1, nil
}

// at returns the line of the record that was read last.
func (z *zoneText) at() int {
	if z.record == 0 {
		return max(1, z.directive)
	}
	return z.record
}

// withGeneratedTTL gives every $GENERATE that has no TTL that of $TTL, which the parser does not do. ttl is the one in force at the
// start.
func withGeneratedTTL(text string, ttl uint32) string {
	if !strings.Contains(text, "$G") && !strings.Contains(text, "$g") {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimLeft(line, " \t"), "$") {
			line, ttl = generatedTTL(line, ttl)
		}
		b.WriteString(line)
	}
	return b.String()
}

// generatedTTL returns a directive, as withGeneratedTTL changes it, and the TTL in force after it.
func generatedTTL(line string, ttl uint32) (string, uint32) {
	f := strings.Fields(line)
	switch {
	case len(f) > 1 && strings.EqualFold(f[0], "$TTL"):
		if t, ok := parseTTL(f[1]); ok {
			return line, t
		}
	case len(f) > 4 && strings.EqualFold(f[0], "$GENERATE"):
		_, third := parseTTL(f[3])
		_, fourth := parseTTL(f[4])
		if !third && !(isClass(f[3]) && fourth) {
			line = fmt.Sprintf("%s %s %s %d %s", f[0], f[1], f[2], ttl, afterFields(line, 3))
		}
	}
	return line, ttl
}

// afterFields returns a line without its first n fields.
func afterFields(line string, n int) string {
	for range n {
		line = strings.TrimLeft(line, " \t")
		line = line[strings.IndexAny(line, " \t"):]
	}
	return strings.TrimLeft(line, " \t")
}

func isClass(s string) bool {
	_, ok := dns.StringToClass[strings.ToUpper(s)]
	return ok
}

// parseTTL reads a TTL with or without units (RFC 2308 section 4, BIND's units).
func parseTTL(s string) (uint32, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, false
	}
	// A record without TTL is the cheapest way to ask the real parser what a TTL means.
	rr, err := dns.NewRR("$TTL " + s + "\n. A 127.0.0.1\n")
	if err != nil || rr == nil {
		return 0, false
	}
	return rr.Header().Ttl, true
}

// errOutside is why a file is not included.
var errOutside = errors.New("it is outside the folder of the zone file")

// An includeFS opens the files that a zone file includes: only those in the folder of the zone file, and below.
type includeFS struct {
	root     string // absolute
	readFile ReadFile
	files    []string // that were opened
}

// Open implements fs.FS. The parser passes an absolute path without its first slash.
func (f *includeFS) Open(name string) (fs.File, error) {
	path := "/" + name
	if rel, err := filepath.Rel(f.root, path); err != nil || !filepath.IsLocal(rel) {
		return nil, errOutside
	}
	f.files = append(f.files, path)
	text, err := f.readFile(path, f.root)
	if err != nil {
		return nil, err
	}
	return &includedFile{bytes.NewReader(text)}, nil
}

// An includedFile is a file in memory.
type includedFile struct {
	*bytes.Reader
}

// Close implements fs.File.
func (*includedFile) Close() error { return nil }

// Stat implements fs.File. The parser does not ask.
func (*includedFile) Stat() (fs.FileInfo, error) { return nil, errors.ErrUnsupported }
