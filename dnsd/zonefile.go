package dnsd

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// A ZoneFile is one zone as a file that other name servers read.
type ZoneFile struct {
	Origin string // with a final dot
	Kind   string // derived, or authored
	Text   string // RFC 1035 section 5; of a zone that answers SERVFAIL a comment only
	Broken bool   // it answers SERVFAIL
}

// ZoneFiles returns all zones, sorted by origin. The records of each are in canonical order, its SOA first; what a record was derived
// from follows it as a comment.
func (t *Table) ZoneFiles() []ZoneFile {
	files := make([]ZoneFile, 0, len(t.zones))
	for i := range t.zones {
		z := &t.zones[i]
		f := ZoneFile{Origin: z.text, Kind: "authored", Broken: z.broken}
		if z.derived {
			f.Kind = "derived"
		}
		var b bytes.Buffer
		fmt.Fprintf(&b, "; zone %s (%s)\n", f.Origin, f.Kind)
		if z.broken {
			fmt.Fprintf(&b, "; answers SERVFAIL: %s cannot be read\n", z.source.File)
		} else {
			t.writeZone(&b, i)
		}
		f.Text = b.String()
		files = append(files, f)
	}
	slices.SortFunc(files, func(x, y ZoneFile) int { return cmp.Compare(x.Origin, y.Origin) })
	return files
}

// WriteZones writes the text of all ZoneFiles. The error is w's.
func (t *Table) WriteZones(w io.Writer) error {
	for n, f := range t.ZoneFiles() {
		if n > 0 {
			f.Text = "\n" + f.Text
		}
		if _, err := io.WriteString(w, f.Text); err != nil {
			return fmt.Errorf("write zone %s: %w", f.Origin, err)
		}
	}
	return nil
}

func (t *Table) writeZone(b *bytes.Buffer, i int) {
	z := &t.zones[i]
	sources := t.sources(z.source)
	apex := &t.nodes[z.apex]
	t.writeSet(b, apex, t.set(apex, typeSOA), sources)
	for _, n := range t.sorted(i) {
		nd := &t.nodes[n]
		for j := range int(nd.sets) {
			if set := &t.sets[int(nd.first)+j]; set.rtype != typeSOA {
				t.writeSet(b, nd, set, sources)
			}
		}
	}
}

func (t *Table) writeSet(b *bytes.Buffer, nd *node, set *rrset, sources map[sourceKey]string) {
	owner := t.nameOf(nd)
	off := set.data
	for range set.n {
		var rdata []byte
		rdata, off = t.next(off)
		source := sources[sourceKey{string(owner), set.rtype, string(rdata)}]
		line, err := recordText(owner, set.rtype, set.ttl, rdata)
		if err != nil {
			line = "; " + err.Error()
		}
		b.WriteString(line)
		if source != "" {
			b.WriteString("\t; " + strings.ReplaceAll(source, "\n", " "))
		}
		b.WriteByte('\n')
	}
}

// A sourceKey is a record.
type sourceKey struct {
	owner string
	rtype uint16
	rdata string
}

// sources returns what the records of a zone were derived from.
func (t *Table) sources(z *lab.Zone) map[sourceKey]string {
	m := make(map[sourceKey]string, len(z.Records))
	for i := range z.Records {
		r := &z.Records[i]
		owner, err := appendName(nil, r.Name)
		if err != nil {
			continue
		}
		rtype, rdata, err := derivedData(nil, r)
		if err == nil {
			m[sourceKey{string(owner), rtype, string(rdata)}] = r.Source
		}
	}
	for k, set := range t.updated {
		if t.zones[k.zone].source == z {
			for _, d := range set.Data {
				m[sourceKey{k.owner, k.rtype, string(d)}] = "dynamic update, key " + strings.TrimSuffix(set.Key, ".")
			}
		}
	}
	return m
}
