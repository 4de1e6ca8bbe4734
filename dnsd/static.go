package dnsd

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/miekg/dns"
)

// maxZoneRecords bounds what the static part of one zone may expand to, as $GENERATE can.
const maxZoneRecords = 500_000

// recordsAtOnce is after how many records, some 0.5 ms, queries get their turn on a machine with one CPU.
const recordsAtOnce = 256

var (
	errRecordType = errors.New("not a type that a derived record can have")
	errTooMany    = fmt.Errorf("the zone has more than %d records", maxZoneRecords)
	errIncomplete = errors.New("the record's data is incomplete")
	errClass      = errors.New("only class IN is served")
)

// A parser reads the static part of one zone. It carries from line to line what a zone file does: $ORIGIN, $TTL and the
// last owner.
type parser struct {
	b       *builder
	zone    *zoneBuilder
	ttl     uint32
	origin  string
	owner   string
	count   int
	include *includeFS // what a file may include; nil: nothing
	dry     bool       // only errors are wanted
}

// line adds the records of one static line.
func (p *parser) line(line lab.Line, key string) {
	b := p.b
	b.lines = append(b.lines, line)
	text := line.Text
	switch {
	case strings.TrimSpace(text) == "":
		return
	case text[0] == ' ' || text[0] == '\t':
		text = p.owner + text // an empty owner is the last one, RFC 1035 section 5.1
	}
	if p.directive(text) {
		return
	}
	if _, err := p.read(text, ""); err != nil {
		b.probs.Addf(line.Pos, key, "%q: %s", line.Text, explain(err))
	}
}

// directive takes the $ORIGIN or $TTL of a line of its own. What it does not understand is left to the real parser.
func (p *parser) directive(text string) bool {
	f := strings.Fields(text)
	if len(f) < 2 || f[0][0] != '$' {
		return false
	}
	switch strings.ToUpper(f[0]) {
	case "$ORIGIN":
		if _, ok := dns.IsDomainName(f[1]); !ok {
			return false
		}
		if p.origin = strings.ToLower(f[1]); !dns.IsFqdn(p.origin) {
			p.origin += "." + strings.TrimPrefix(p.zone.text, ".")
		}
		return true
	case "$TTL":
		ttl, ok := parseTTL(f[1])
		if !ok {
			return false
		}
		p.ttl = ttl
		return true
	}
	return false
}

// file adds the records of a zone file. A zone whose file is missing or has an error answers SERVFAIL; all others are served.
func (p *parser) file(path string, readFile ReadFile) {
	z := p.zone
	key := "dns.zones." + strings.TrimSuffix(z.text, ".") + ".file"
	p.b.t.files = append(p.b.t.files, path)
	text, err := []byte(nil), errors.New("zone files are not read here")
	if readFile != nil {
		text, err = readFile(path, "")
	}
	if err != nil {
		z.broken = true
		p.b.t.noFiles = append(p.b.t.noFiles, &lab.Problem{Pos: z.source.Pos, Key: key, Message: fmt.Sprintf("zone %s answers SERVFAIL: %v", z.text, err), Of: z.text})
		return
	}
	lines := min(bytes.Count(text, []byte("\n")), maxZoneRecords)
	z.grow(lines, len(text)+16*lines)
	p.b.lines = slices.Grow(p.b.lines, lines)
	p.include = &includeFS{root: filepath.Dir(path), readFile: readFile}
	line, err := p.read(string(text), path)
	p.b.t.files = append(p.b.t.files, p.include.files...)
	if err != nil {
		p.fileErrors(string(text), path, line, err)
	}
}

// brokenFile reports an error in a zone file and makes its zone answer SERVFAIL.
func (z *zoneBuilder) brokenFile(pos lab.Pos, text string) {
	if !z.broken {
		text += "; the zone answers SERVFAIL"
	}
	z.broken = true
	z.b.t.badFiles = append(z.b.t.badFiles, &lab.Problem{Pos: pos, Key: "zone " + z.text, Message: text, Of: z.text})
}

// read adds all records of a text. An error comes with the line that it is about. A panic of the parser, which has had some, is
// an error of the text.
func (p *parser) read(text, file string) (line int, err error) {
	in := &zoneText{text: withGeneratedTTL(text, p.ttl)}
	if file != "" && !p.dry {
		p.takeSimpleLines(in, file)
	}
	defer func() {
		if r := recover(); r != nil {
			line, err = in.at(), fmt.Errorf("cannot be read: %v", r)
		}
	}()
	zp := dns.NewZoneParser(in, p.origin, file)
	zp.SetDefaultTTL(p.ttl)
	if p.include != nil {
		zp.SetIncludeAllowed(true)
		zp.SetIncludeFS(p.include)
	}
	for rr, ok := zp.Next(); ok; rr, ok = zp.Next() {
		if p.count++; p.count > maxZoneRecords {
			return in.at(), errTooMany
		}
		if p.count%recordsAtOnce == 0 {
			runtime.Gosched()
		}
		if file != "" {
			p.b.lines = append(p.b.lines, lab.Line{Pos: lab.Pos{File: file, Line: in.at(), Column: 1}})
		}
		last := int32(len(p.b.lines) - 1)
		if err := p.add(rr, last); err != nil {
			return in.at(), err
		}
		in.record = 0
	}
	return in.at(), zp.Err()
}

// add adds one parsed record.
func (p *parser) add(rr dns.RR, line int32) error {
	h := rr.Header()
	switch {
	case h.Class != dns.ClassINET:
		return errClass
	case isMeta(h.Rrtype):
		return fmt.Errorf("%s is not a type that a zone can hold", dns.TypeToString[h.Rrtype])
	}
	p.owner = h.Name
	if n := dns.Len(rr) + 16; n > len(p.b.packed) {
		p.b.packed = make([]byte, 2*n)
	}
	buf := p.b.packed
	end, err := dns.PackRR(rr, buf, 0, nil, false)
	if err != nil {
		return err
	}
	owner, err := p.b.n.parse(buf[:end])
	if err != nil {
		return err
	}
	if !isAddress(h.Rrtype, buf[owner+10:end]) && !roundTrips(buf[:end], owner) {
		return errIncomplete // the parser takes less than a record needs: empty data is a dynamic update's
	}
	if p.b.n.hasSuffix(p.zone.origin, p.zone.labels) < 0 {
		return fmt.Errorf("%s is not in the zone %s", h.Name, p.zone.text)
	}
	if !p.dry {
		p.zone.add(line, p.b.lines[line].Pos, h.Rrtype, h.Ttl, buf[owner+10:end])
	}
	return nil
}

// isAddress reports whether record data is an address of the record's type. Addresses come in bulk, and are simple enough not to be
// asked whether they make a round trip.
func isAddress(rtype uint16, rdata []byte) bool {
	return rtype == typeA && len(rdata) == 4 || rtype == typeAAAA && len(rdata) == 16
}

// roundTrips reports whether the record that was packed into b can be read, shown and read again.
func roundTrips(b []byte, owner int) bool {
	rdata := b[owner+10:]
	rr, _, err := dns.UnpackRR(b, 0)
	if err != nil {
		return false
	}
	if len(rdata) == 0 {
		_, known := dns.TypeToRR[rr.Header().Rrtype]
		return !known
	}
	again, err := dns.NewRR(rr.String())
	if err != nil || again == nil {
		return false
	}
	wire, err := packRecord(again)
	return err == nil && bytes.HasSuffix(wire, rdata)
}

// isMeta reports whether a type is for questions and transactions only (RFC 6895 section 3.1).
func isMeta(rtype uint16) bool {
	return rtype == 0 || rtype == typeOPT || rtype >= 249 && rtype <= typeANY
}

// nameText returns a name in wire form as text, with escapes where it needs them.
func nameText(wire []byte) string {
	text, _, err := dns.UnpackDomainName(wire, 0)
	if err != nil {
		return fmt.Sprintf("%x", wire)
	}
	return text
}

// recordText returns one record as a zone file has it.
func recordText(owner []byte, rtype uint16, ttl uint32, rdata []byte) (string, error) {
	msg := bytes.Clone(owner)
	msg = append(msg, byte(rtype>>8), byte(rtype), 0, classIN)
	msg = append(msg, byte(ttl>>24), byte(ttl>>16), byte(ttl>>8), byte(ttl))
	msg = append(msg, byte(len(rdata)>>8), byte(len(rdata)))
	rr, _, err := dns.UnpackRR(append(msg, rdata...), 0)
	if err != nil {
		return "", fmt.Errorf("show %s: %w", nameText(owner), err)
	}
	return rr.String(), nil
}
