package dnsd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

const maxZones = 65_535

// The TTLs and SOA timers of synthesised records, in seconds.
const (
	derivedTTL = 60  // a change of the lab shows within a minute
	staticTTL  = 300 // of static lines that carry none
	leaseTTL   = 30
	healthTTL  = 5 // of names that follow the backends of a balancer

	soaRefresh = 3600
	soaRetry   = 600
	soaExpire  = 7 * 86400
	soaMinimum = 60
)

// The record types that this package looks into.
const (
	typeA      = 1
	typeNS     = 2
	typeCNAME  = 5
	typeSOA    = 6
	typePTR    = 12
	typeMX     = 15
	typeTXT    = 16
	typeAAAA   = 28
	typeSRV    = 33
	typeDNAME  = 39
	typeOPT    = 41
	typeDS     = 43
	typeKEY    = 25
	typeRRSIG  = 46
	typeNSEC   = 47
	typeDNSKEY = 48
	typeHTTPS  = 65
	typeTSIG   = 250
	typeIXFR   = 251
	typeAXFR   = 252
	typeANY    = 255

	classIN = 1
)

// A ReadFile returns the content of the file of an absolute path. below is empty, or a folder that the path is in and that no link may
// lead out of: then the error is ErrLinkOutside.
type ReadFile func(path, below string) ([]byte, error)

// ErrLinkOutside is why a file is not included.
var ErrLinkOutside = errors.New("a link leads outside the folder of the zone file, or is not relative")

// Compile returns the table of a lab, with what dynamic updates have made of its zones. A file that cannot be read, and an update that no
// longer goes together with the lab, is a warning of the table, and the zone of such a file answers SERVFAIL; what is wrong inside a file is
// an error, with its place, among the lab.Problems. Without readFile no file can be read.
func Compile(l *lab.Lab, readFile ReadFile, updates ...RRSet) (*Table, error) {
	b := newBuilder(l)
	for _, z := range l.Zones {
		b.addZone(z)
	}
	b.addDomain(l)
	b.addPooled(l)
	for _, z := range b.zones {
		z.fill(readFile)
	}
	for _, z := range b.zones {
		z.addApex()
	}
	for _, z := range b.zones {
		z.delegateFromParent()
	}
	for _, z := range b.zones {
		z.makeRRSets()
		z.addFollowed()
	}
	b.addPolicy(l, readFile)
	b.addKeys(l.DNS.Keys, readFile)
	if err := b.probs.Err(); err != nil {
		return nil, err
	}
	return b.t.withAllUpdates(updates), nil
}

// A builder makes one table.
type builder struct {
	t     *Table
	zones []*zoneBuilder // by index
	lines []lab.Line     // static: what records point to
	probs lab.Problems
	n     name   // scratch
	buf   []byte // scratch

	packed []byte // scratch: the record that a parser reads

	primary []byte // the appliance's name; nil: it has none
}

// A zoneBuilder makes one zone of a table.
type zoneBuilder struct {
	*zone
	b     *builder
	recs  []record
	heads []int32 // by node: the first of its records in recs, or -1
	tails []int32
}

// A record is one resource record before it has its place.
type record struct {
	next  int32 // of the same node, or -1
	line  int32 // index in lines, or -1: derived
	ttl   uint32
	data  uint32 // in zone.blob: length and data
	rtype uint16
}

func newBuilder(l *lab.Lab) *builder {
	t := &Table{lab: l, zones: make([]*zone, 0, len(l.Zones)+1), origins: &origins{slots: make([]uint32, 8), index: make(map[string]int, len(l.Zones))}}
	for len(t.origins.slots) < 2*len(l.Zones) {
		t.origins.slots = make([]uint32, 2*len(t.origins.slots))
	}
	return &builder{t: t}
}

// grow makes room for so many more records, each of which may have a name of its own, and for octets of names and data.
func (z *zoneBuilder) grow(records, octets int) {
	nodes := records + records/16
	z.nodes = slices.Grow(z.nodes, nodes)
	z.blob = slices.Grow(z.blob, octets)
	z.recs, z.heads, z.tails = slices.Grow(z.recs, records), slices.Grow(z.heads, nodes), slices.Grow(z.tails, nodes)
	z.growSlots(len(z.nodes) + nodes)
}

// addZone makes an empty zone. What is no domain name, or is there already, is a problem.
func (b *builder) addZone(z *lab.Zone) {
	key := "dns.zones." + strings.TrimSuffix(z.Origin, ".")
	if !b.name(z.Pos, key, z.Origin) {
		return
	}
	if above, at := b.t.zoneOf(&b.n, 0); above != nil && at == 0 {
		b.probs.Addf(z.Pos, key, "zone %s is defined twice: merge its records", z.Origin)
		return
	}
	if len(b.t.zones) >= maxZones {
		b.probs.Addf(z.Pos, key, "more than %d zones", maxZones)
		return
	}
	made := &zoneBuilder{b: b, zone: &zone{index: len(b.t.zones), origin: bytes.Clone(b.n.bytes()), labels: b.n.labels, text: z.Origin,
		derived: z.Derived, forwardMissing: z.ForwardMissing, source: z, content: &contentHash{}}}
	records := len(z.Records) + len(z.Lines) + 4
	made.grow(records, records*52)
	made.node(0, 0)
	b.zones, b.t.zones = append(b.zones, made), append(b.t.zones, made.zone)
	b.t.origins.add(made.zone)
}

// add adds a zone.
func (o *origins) add(z *zone) {
	o.index[z.text] = z.index
	o.depth = max(o.depth, z.labels)
	mask := uint32(len(o.slots) - 1)
	i := z.apex().hash & mask
	for o.slots[i] != 0 {
		i = (i + 1) & mask
	}
	o.slots[i] = uint32(z.index + 1)
}

// addDomain notes where DHCP clients get their names and, as NS records want one, the name of the appliance: the host that
// stands at its address, else bootlab.<domain>.
func (b *builder) addDomain(l *lab.Lab) {
	for _, n := range l.Networks {
		b.t.networks = append(b.t.networks, n.Subnet)
		if n.Subnet6.IsValid() {
			b.t.networks = append(b.t.networks, n.Subnet6)
		}
	}
	if l.Domain == "" || !b.name(lab.Pos{}, "domain", l.Domain) {
		return
	}
	b.t.domain = bytes.Clone(b.n.bytes())
	b.t.domainText = strings.ToLower(strings.TrimSuffix(l.Domain, ".")) + "."
	primary, err := appendName(nil, lab.ApplianceLabel+"."+b.t.domainText)
	if err != nil { // too long
		primary = b.t.domain
	}
	b.primary = primary
	for _, h := range l.Hosts {
		if !h.IP.IsValid() || h.Network == nil || h.IP != h.Network.Address {
			continue
		}
		if wire, err := appendName(nil, h.FQDN); err == nil {
			b.primary = wire
			return
		}
	}
}

// addPooled notes the names of hosts whose address is that of a lease.
func (b *builder) addPooled(l *lab.Lab) {
	b.t.pooled = map[string][]lab.MAC{}
	for _, h := range l.Hosts {
		macs := h.LeasedMACs()
		if len(macs) == 0 {
			continue
		}
		for _, text := range append([]string{h.FQDN}, h.Aliases...) {
			if b.name(h.Pos, "hosts."+h.Name, text) {
				b.t.pooled[string(b.n.bytes())] = macs
			}
		}
	}
}

// fill adds what the lab has for a zone.
func (z *zoneBuilder) fill(readFile ReadFile) {
	source := z.source
	for j := range source.Records {
		z.addDerived(source.Pos, &source.Records[j])
	}
	if len(source.Lines) == 0 && source.File == "" {
		return
	}
	p := parser{b: z.b, zone: z, ttl: staticTTL, origin: source.Origin, owner: source.Origin}
	for j, line := range source.Lines {
		p.line(line, "dns.zones."+strings.TrimSuffix(source.Origin, ".")+".records["+strconv.Itoa(j)+"]")
	}
	if source.File != "" {
		p.file(source.File, readFile)
	}
}

// addDerived adds a record of the lab's own.
func (z *zoneBuilder) addDerived(pos lab.Pos, r *lab.Record) {
	var rtype uint16
	b := z.b
	wire, err := appendName(b.buf[:0], r.Name)
	if err == nil {
		b.setOwner(wire)
		rtype, b.buf, err = derivedData(wire[:0], r)
	}
	if err != nil {
		b.probs.Addf(pos, "zone "+z.text, "%s %s from %s: %v", r.Name, r.Type, r.Source, err)
		return
	}
	ttl := uint32(derivedTTL)
	if r.Follows != nil {
		ttl = healthTTL
	}
	z.add(-1, pos, rtype, ttl, b.buf)
}

// name parses text into b.n and reports whether it is a name.
func (b *builder) name(pos lab.Pos, key, text string) bool {
	wire, err := appendName(b.buf[:0], text)
	if err != nil {
		b.probs.Addf(pos, key, "%v", err)
		return false
	}
	b.buf = wire
	if _, err := b.n.parse(wire); err != nil {
		b.probs.Addf(pos, key, "%q is not a domain name", text)
		return false
	}
	return true
}

// add adds a record whose owner is in b.n.
func (z *zoneBuilder) add(line int32, pos lab.Pos, rtype uint16, ttl uint32, rdata []byte) {
	if at := z.b.n.hasSuffix(z.origin, z.labels); at < 0 {
		z.b.probs.Addf(pos, "zone "+z.text, "%s is not in the zone", nameText(z.b.n.bytes()))
		return
	}
	nd := z.node(0, 0)
	if line == -1 && nd != 0 {
		z.nodes[nd].derived = true
	}
	z.recs = append(z.recs, record{next: -1, line: line, ttl: ttl, rtype: rtype, data: z.appendData(rdata)})
	if last := int32(len(z.recs) - 1); z.heads[nd] < 0 {
		z.heads[nd], z.tails[nd] = last, last
	} else {
		z.recs[z.tails[nd]].next = last
		z.tails[nd] = last
	}
}

// node returns the node of b.n without its first labels, and makes it if it is not there.
func (z *zoneBuilder) node(label int, stored uint32) int {
	i := z.ensure(&z.b.n, label, stored)
	for len(z.heads) < len(z.nodes) {
		z.heads, z.tails = append(z.heads, -1), append(z.tails, -1)
	}
	return i
}

// has returns the node of b.n if it has records, or -1.
func (z *zoneBuilder) has(wire []byte) int {
	nd := z.find(z.b.n.hash[0], wire)
	if nd >= 0 && z.heads[nd] < 0 {
		return -1
	}
	return nd
}

// setOwner makes wire, which is well-formed, the owner of what is added next.
func (b *builder) setOwner(wire []byte) { _, _ = b.n.parse(wire) }

// derivedData appends the type and data of a derived record.
func derivedData(b []byte, r *lab.Record) (rtype uint16, rdata []byte, err error) {
	switch r.Type {
	case "A":
		a := r.Addr.As16()
		return typeA, append(b, a[12:]...), wantAddr(r.Addr.Unmap().Is4(), r.Addr)
	case "AAAA":
		a := r.Addr.As16()
		return typeAAAA, append(b, a[:]...), wantAddr(r.Addr.Is6() && !r.Addr.Is4In6(), r.Addr)
	case "PTR":
		rtype = typePTR
	case "CNAME":
		rtype = typeCNAME
	case "NS":
		rtype = typeNS
	case "SRV":
		rtype = typeSRV
		b = binary.BigEndian.AppendUint16(b, r.Priority)
		b = binary.BigEndian.AppendUint16(b, r.Weight)
		b = binary.BigEndian.AppendUint16(b, r.Port)
	default:
		return 0, b, errRecordType
	}
	rdata, err = appendName(b, r.Target)
	return rtype, rdata, err
}

func wantAddr(ok bool, a netip.Addr) error {
	if !ok {
		return &lab.Problem{Message: "address " + a.String() + " does not fit the type"}
	}
	return nil
}
