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

// WriteZones writes all zones as zone-file text, sorted by origin and, within a zone, in canonical order; what a record was
// derived from follows it as a comment. The error is w's.
func (t *Table) WriteZones(w io.Writer) error {
	order := make([]int, len(t.zones))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int { return cmp.Compare(t.zones[x].text, t.zones[y].text) })
	var b bytes.Buffer
	for n, z := range order {
		if n > 0 {
			b.WriteByte('\n')
		}
		t.writeZone(&b, z)
		if _, err := w.Write(b.Bytes()); err != nil {
			return fmt.Errorf("write zone %s: %w", t.zones[z].text, err)
		}
		b.Reset()
	}
	return nil
}

func (t *Table) writeZone(b *bytes.Buffer, i int) {
	z := &t.zones[i]
	kind := "authored"
	if z.derived {
		kind = "derived"
	}
	fmt.Fprintf(b, "; zone %s (%s)\n", z.text, kind)
	if z.broken {
		fmt.Fprintf(b, "; answers SERVFAIL: %s cannot be read\n", z.source.File)
		return
	}
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
	return m
}
