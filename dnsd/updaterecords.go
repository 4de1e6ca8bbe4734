package dnsd

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// An RRSet is what dynamic updates (RFC 2136) made of the records of one type at a name.
type RRSet struct {
	Zone string    `json:"zone"` // lower case, with a final dot
	Name string    `json:"name"` // lower case, with a final dot and escapes
	Type string    `json:"type"` // such as TXT or TYPE65400
	TTL  uint32    `json:"ttl"`
	Data [][]byte  `json:"data"` // in wire form; none: there is no such RRset
	Key  string    `json:"key"`  // that the last change was signed with
	At   time.Time `json:"at"`   // of the last change
}

// Compare orders RRsets by zone, name and type.
func (s RRSet) Compare(o RRSet) int {
	return cmp.Or(strings.Compare(s.Zone, o.Zone), strings.Compare(s.Name, o.Name), strings.Compare(s.Type, o.Type))
}

// Check returns an error if an RRset that was stored is none that a dynamic update makes: it could not be answered.
func (s RRSet) Check() error {
	rtype, known := typeNumber(s.Type)
	wire, err := packName(s.Name)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a domain name", s.Name)
	case !known || !updatable(rtype):
		return fmt.Errorf("%q is not a type that updates can add", s.Type)
	case len(s.Data) == 0 || s.TTL > maxUpdateTTL:
		return fmt.Errorf("%s %s has no data, or a TTL of more than %d", s.Name, s.Type, maxUpdateTTL)
	}
	for _, rdata := range s.Data {
		if _, err := recordText(wire, rtype, s.TTL, rdata); err != nil || len(rdata) > maxSetOctets {
			return fmt.Errorf("the data of %s %s is malformed", s.Name, s.Type)
		}
	}
	return nil
}

// packName returns a name, which may have escapes, in wire form. Letters keep their case.
func packName(text string) ([]byte, error) {
	wire := make([]byte, maxName+1)
	n, err := dns.PackDomainName(text, wire, 0, nil, false)
	return wire[:n], err
}

// packRecord returns a record in wire form, without compression.
func packRecord(rr dns.RR) ([]byte, error) {
	wire := make([]byte, dns.Len(rr)+16)
	n, err := dns.PackRR(rr, wire, 0, nil, false)
	return wire[:n], err
}

// rdataOf returns the data of a record without compression.
func rdataOf(rr dns.RR) ([]byte, error) {
	wire, err := packRecord(rr)
	if err != nil {
		return nil, refuse(formErr, "%s: %v", rr.Header().Name, err)
	}
	owner, err := nameEnd(wire, 0)
	if err != nil || owner+10 > len(wire) {
		return nil, refuse(formErr, "%s: malformed record", rr.Header().Name)
	}
	return bytes.Clone(wire[owner+10:]), nil
}

// length returns the octets of some data.
func length(all [][]byte) (octets int) {
	for _, d := range all {
		octets += len(d)
	}
	return octets
}

func containsData(all [][]byte, data []byte) bool {
	return slices.ContainsFunc(all, func(d []byte) bool { return bytes.Equal(d, data) })
}

func isKnown(rtype uint16) bool { _, ok := dns.TypeToRR[rtype]; return ok }

func typeText(rtype uint16) string { return dns.Type(rtype).String() }

// typeNumber is the opposite of typeText.
func typeNumber(text string) (uint16, bool) {
	if rtype, ok := dns.StringToType[strings.ToUpper(text)]; ok {
		return rtype, true
	}
	var n uint16
	_, err := fmt.Sscanf(strings.ToUpper(text), "TYPE%d", &n)
	return n, err == nil
}

// Records returns the records as zone-file lines.
func (s RRSet) Records() (lines []string) {
	rtype, _ := typeNumber(s.Type)
	wire, err := packName(s.Name)
	if err != nil {
		return nil
	}
	for _, data := range s.Data {
		if text, err := recordText(wire, rtype, s.TTL, data); err == nil {
			lines = append(lines, strings.ReplaceAll(text, "\t", " "))
		}
	}
	return lines
}

// ParseRecords sets the data of an RRset from zone-file lines, as Records returns them. The error is of the first that is none.
func (s *RRSet) ParseRecords(lines []string) error {
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil || rr == nil {
			return fmt.Errorf("%q is not a record: %w", line, err)
		}
		data, err := rdataOf(rr)
		if err != nil {
			return fmt.Errorf("%q is not a record: %w", line, err)
		}
		s.Data = append(s.Data, data)
	}
	return nil
}

// Updates returns the RRsets of dynamic updates that the table serves, sorted by zone, name and type.
func (t *Table) Updates() []RRSet {
	sets := []RRSet{}
	for _, z := range t.zones {
		for _, s := range z.updated {
			sets = append(sets, *s)
		}
	}
	slices.SortFunc(sets, RRSet.Compare)
	return sets
}

// Serves reports whether the table has an RRset of a dynamic update, and not only the store.
func (t *Table) Serves(s RRSet) bool {
	rtype, known := typeNumber(s.Type)
	wire, err := packName(s.Name)
	z := t.zoneNamed(s.Zone)
	return err == nil && known && z != nil && z.updated[setKey{string(wire), rtype}] != nil
}
