package dnsd

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A ZoneFile is one zone as a file that other name servers read.
type ZoneFile struct {
	Origin string // with a final dot
	Kind   string // derived, or static
	Text   string // RFC 1035 section 5; of a zone that answers SERVFAIL a comment only
	Broken bool   // it answers SERVFAIL
}

// ZoneFiles returns all zones, sorted by origin. The records of each are in canonical order, its SOA first; what a record was derived
// from follows it as a comment.
func (t *Table) ZoneFiles() []ZoneFile {
	files := make([]ZoneFile, 0, len(t.zones))
	for _, z := range t.zones {
		f := ZoneFile{Origin: z.text, Kind: "static", Broken: z.broken}
		if z.derived {
			f.Kind = "derived"
		}
		var b bytes.Buffer
		fmt.Fprintf(&b, "; zone %s (%s)\n", f.Origin, f.Kind)
		if z.broken {
			fmt.Fprintf(&b, "; answers SERVFAIL: %s cannot be read\n", z.source.File)
		} else {
			z.write(&b)
		}
		f.Text = b.String()
		files = append(files, f)
	}
	slices.SortFunc(files, func(x, y ZoneFile) int { return cmp.Compare(x.Origin, y.Origin) })
	return files
}

func (z *zone) write(b *bytes.Buffer) {
	sources := z.sources()
	z.writeSet(b, z.apex(), z.set(z.apex(), typeSOA), sources)
	for _, nd := range z.sorted() {
		for _, set := range z.setsOf(nd) {
			if set.rtype != typeSOA {
				z.writeSet(b, nd, &set, sources)
			}
		}
	}
}

func (z *zone) writeSet(b *bytes.Buffer, nd *node, set *rrset, sources map[sourceKey]string) {
	owner := z.nameOf(nd)
	for rdata := range z.data(set) {
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
func (z *zone) sources() map[sourceKey]string {
	m := make(map[sourceKey]string, len(z.source.Records))
	for i := range z.source.Records {
		r := &z.source.Records[i]
		owner, err := appendName(nil, r.Name)
		if err != nil {
			continue
		}
		rtype, rdata, err := derivedData(nil, r)
		if err == nil {
			m[sourceKey{string(owner), rtype, string(rdata)}] = r.Source
		}
	}
	for k, set := range z.updated {
		for _, d := range set.Data {
			m[sourceKey{k.owner, k.rtype, string(d)}] = "dynamic update, key " + strings.TrimSuffix(set.Key, ".")
		}
	}
	return m
}
