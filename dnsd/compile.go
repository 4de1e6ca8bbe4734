package dnsd

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// The TTLs and SOA timers of synthesised records, in seconds.
const (
	derivedTTL  = 60  // a change of the lab shows within a minute
	authoredTTL = 300 // of authored lines that carry none
	leaseTTL    = 30
	healthTTL   = 5 // of names that follow the members of a balancer

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
	typeDNSKEY = 48
	typeHTTPS  = 65
	typeTSIG   = 250
	typeIXFR   = 251
	typeAXFR   = 252
	typeANY    = 255

	classIN = 1
)

// Compile returns the table of a lab without reading any file: a zone that stands in a file answers SERVFAIL. The error is
// a lab.Problems with the place of every bad line.
func Compile(l *lab.Lab) (*Table, error) { return CompileWith(l, nil) }

// CompileWith returns the table of a lab. readFile returns the content of a zone file, given its absolute path, as
// os.ReadFile does. A file that cannot be read is a warning of the table, and its zone answers SERVFAIL; what is wrong
// inside a file is an error.
func CompileWith(l *lab.Lab, readFile func(name string) ([]byte, error)) (*Table, error) {
	return CompileUpdated(l, readFile, nil)
}

// CompileUpdated is CompileWith for zones that dynamic updates have changed. What no longer goes together with the lab is a warning.
func CompileUpdated(l *lab.Lab, readFile func(name string) ([]byte, error), updates []RRSet) (*Table, error) {
	b := newBuilder(l)
	for _, z := range l.Zones {
		b.addZone(z)
	}
	b.addDomain(l)
	b.addPooled(l)
	for i := range b.t.zones {
		b.fill(i, readFile)
	}
	for i := range b.t.zones {
		b.addApex(i)
	}
	for i := range b.t.zones {
		b.delegateFromParent(i)
	}
	b.addUpdates(updates)
	b.makeRRSets()
	b.groupNodes()
	b.addFollowed()
	b.addPolicy(l, readFile)
	b.addKeys(l.DNS.Keys, readFile)
	if err := b.probs.Err(); err != nil {
		return nil, err
	}
	return b.t, nil
}

// A builder makes one table.
type builder struct {
	t     *Table
	recs  []record
	heads []int32 // by node: the first of its records in recs, or -1
	tails []int32
	lines []lab.Line // authored: what records point to
	probs lab.Problems
	n     name   // scratch
	buf   []byte // scratch

	packed []byte // scratch: the record that a parser reads

	primary []byte // the appliance's name; nil: it has none
}

// A record is one resource record before it has its place.
type record struct {
	next  int32 // of the same node, or -1
	line  int32 // index in lines, or -1: derived, or updatedLine
	ttl   uint32
	data  uint32 // in Table.blob: length and data
	rtype uint16
}

func newBuilder(l *lab.Lab) *builder {
	records := 4
	for _, z := range l.Zones {
		records += len(z.Records) + len(z.Lines) + 4
	}
	b := &builder{t: &Table{lab: l, slots: make([]uint32, 64), zones: make([]zone, 0, len(l.Zones)+1)}}
	b.grow(records, records*52)
	return b
}

// grow makes room for so many more records, each of which may have a name of its own, and for octets of names and data.
func (b *builder) grow(records, octets int) {
	t := b.t
	nodes := records + records/16
	t.nodes = slices.Grow(t.nodes, nodes)
	t.blob = slices.Grow(t.blob, octets)
	b.recs, b.heads, b.tails = slices.Grow(b.recs, records), slices.Grow(b.heads, nodes), slices.Grow(b.tails, nodes)
	b.growSlots(len(t.nodes) + nodes)
}

// growSlots makes the hash large enough for so many nodes: half of it stays empty.
func (b *builder) growSlots(nodes int) {
	t, size := b.t, len(b.t.slots)
	for size < 2*nodes {
		size *= 2
	}
	if size == len(t.slots) {
		return
	}
	t.slots = make([]uint32, size)
	for i := range t.nodes {
		t.place(i)
	}
}

// addZone makes an empty zone. What is no domain name, or is there already, is a problem.
func (b *builder) addZone(z *lab.Zone) {
	key := "dns.zones." + strings.TrimSuffix(z.Origin, ".")
	if !b.name(z.Pos, key, z.Origin) {
		return
	}
	if at, i := b.t.zoneOf(&b.n, 0); at >= 0 && i == 0 {
		b.probs.Addf(z.Pos, key, "zone %s is defined twice: merge its records", z.Origin)
		return
	}
	if len(b.t.zones) >= originZone {
		b.probs.Addf(z.Pos, key, "more than %d zones", originZone)
		return
	}
	i := len(b.t.zones)
	origin := b.store(b.n.bytes())
	b.t.zones = append(b.t.zones, zone{origin: origin, labels: uint8(b.n.labels), derived: z.Derived, forwardMissing: z.ForwardMissing, text: z.Origin, source: z})
	b.t.depth = max(b.t.depth, b.n.labels)
	b.insert(node{hash: slotHash(-1, b.n.hash[0]), name: origin, first: uint32(i), zone: originZone})
	b.t.zones[i].apex = uint32(b.node(i, 0, origin))
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
	b.primary = append([]byte("\x07bootlab"), b.t.domain...)
	if len(b.primary) > maxName {
		b.primary = b.t.domain
	}
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
		macs := h.MACs
		if h.Named > 0 {
			macs = []lab.MAC{h.NICs[h.Named-1].MAC}
		}
		if ip, _ := h.NamedAddrs(); ip.IsValid() || len(macs) == 0 {
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
func (b *builder) fill(i int, readFile func(string) ([]byte, error)) {
	z := b.t.zones[i].source
	for j := range z.Records {
		b.addDerived(i, z.Pos, &z.Records[j])
	}
	if len(z.Lines) == 0 && z.File == "" {
		return
	}
	p := parser{b: b, zone: i, ttl: authoredTTL, origin: z.Origin, owner: z.Origin}
	for j, line := range z.Lines {
		p.line(line, "dns.zones."+strings.TrimSuffix(z.Origin, ".")+".records["+strconv.Itoa(j)+"]")
	}
	if z.File != "" {
		p.file(z.File, readFile)
	}
}

// addDerived adds a record of the lab's own.
func (b *builder) addDerived(i int, pos lab.Pos, r *lab.Record) {
	var rtype uint16
	wire, err := appendName(b.buf[:0], r.Name)
	if err == nil {
		b.setOwner(wire)
		rtype, b.buf, err = derivedData(wire[:0], r)
	}
	if err != nil {
		b.probs.Addf(pos, "zone "+b.t.zones[i].text, "%s %s from %s: %v", r.Name, r.Type, r.Source, err)
		return
	}
	ttl := uint32(derivedTTL)
	if r.Follows != nil {
		ttl = healthTTL
	}
	b.add(i, -1, pos, rtype, ttl, b.buf)
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
func (b *builder) add(i int, line int32, pos lab.Pos, rtype uint16, ttl uint32, rdata []byte) {
	z := &b.t.zones[i]
	if at := b.n.hasSuffix(b.t.nameOf(&b.t.nodes[z.apex]), int(z.labels)); at < 0 {
		b.probs.Addf(pos, "zone "+z.text, "%s is not in the zone", nameText(b.n.bytes()))
		return
	}
	nd := b.node(i, 0, 0)
	if line == -1 && uint32(nd) != z.apex {
		b.t.nodes[nd].derived = true
	}
	r := record{next: -1, line: line, ttl: ttl, rtype: rtype, data: uint32(len(b.t.blob))}
	b.t.blob = binary.BigEndian.AppendUint16(b.t.blob, uint16(len(rdata)))
	b.t.blob = append(b.t.blob, rdata...)
	b.recs = append(b.recs, r)
	if last := int32(len(b.recs) - 1); b.heads[nd] < 0 {
		b.heads[nd], b.tails[nd] = last, last
	} else {
		b.recs[b.tails[nd]].next = last
		b.tails[nd] = last
	}
}

// node returns the node of b.n without its first labels, and makes it and its ancestors up to the apex if it is not there.
// stored is where that name stands in the blob; 0: nowhere yet.
func (b *builder) node(z, label int, stored uint32) int {
	if i := b.t.find(z, b.n.hash[label], b.n.suffix(label)); i >= 0 {
		return i
	}
	if stored == 0 {
		stored = b.store(b.n.suffix(label))
	}
	i := b.insert(node{hash: slotHash(z, b.n.hash[label]), name: stored, zone: uint16(z)})
	if b.n.labels-label > int(b.t.zones[z].labels) {
		b.node(z, label+1, stored+1+uint32(b.n.wire[b.n.off[label]]))
	}
	return i
}

func (b *builder) store(wire []byte) uint32 {
	if len(b.t.blob) == 0 {
		b.t.blob = append(b.t.blob, 0) // so that no name stands at 0
	}
	b.t.blob = append(b.t.blob, wire...)
	return uint32(len(b.t.blob) - len(wire))
}

func (b *builder) insert(nd node) int {
	t := b.t
	b.growSlots(len(t.nodes) + 1)
	t.nodes = append(t.nodes, nd)
	b.heads, b.tails = append(b.heads, -1), append(b.tails, -1)
	t.place(len(t.nodes) - 1)
	return len(t.nodes) - 1
}

func (t *Table) place(nd int) {
	mask := uint32(len(t.slots) - 1)
	i := t.nodes[nd].hash & mask
	for t.slots[i] != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = uint32(nd + 1)
}

// addApex adds the NS and SOA records that a zone lacks.
func (b *builder) addApex(i int) {
	z := &b.t.zones[i]
	if z.broken {
		return
	}
	ns, soa := b.first(z.apex, typeNS), b.first(z.apex, typeSOA)
	apex := bytes.Clone(b.t.nameOf(&b.t.nodes[z.apex]))
	primary := b.primary
	if primary == nil {
		primary = apex
	}
	if ns != nil {
		primary = bytes.Clone(ns)
	} else {
		b.setOwner(apex)
		b.add(i, -1, z.source.Pos, typeNS, derivedTTL, primary)
		b.addPrimary(i, primary)
	}
	if soa != nil {
		return
	}
	b.setOwner(apex)
	b.add(i, -1, z.source.Pos, typeSOA, derivedTTL, soaData(primary, apex))
}

// addPrimary gives the appliance's name its addresses, in the zone that it is in, unless it has some already.
func (b *builder) addPrimary(i int, primary []byte) {
	b.setOwner(primary)
	if z, _ := b.t.zoneOf(&b.n, 0); z != i {
		return
	}
	if nd := b.t.find(i, b.n.hash[0], b.n.bytes()); nd >= 0 && b.heads[nd] >= 0 && uint32(nd) != b.t.zones[i].apex {
		return
	}
	for _, n := range b.t.lab.Networks {
		if n.Address.IsValid() && n.Address.Is4() {
			b.add(i, -1, n.Pos, typeA, derivedTTL, n.Address.AsSlice())
		}
	}
}

// delegateFromParent adds to a derived zone the delegation of a zone below it that is here too: a server that has only the upper one, as a
// secondary may, then knows that there is one, and a DS is asked of it.
func (b *builder) delegateFromParent(child int) {
	z := &b.t.zones[child]
	origin := bytes.Clone(b.t.nameOf(&b.t.nodes[z.apex]))
	b.setOwner(origin)
	parent, _ := b.t.zoneOf(&b.n, 1)
	if z.labels == 0 || z.broken || parent < 0 || !b.t.zones[parent].derived || b.t.zones[parent].broken {
		return
	}
	if nd := b.t.find(parent, b.n.hash[0], origin); nd >= 0 && b.heads[nd] >= 0 {
		return
	}
	for r := b.heads[z.apex]; r >= 0; r = b.recs[r].next {
		if b.recs[r].rtype != typeNS {
			continue
		}
		host, _ := b.t.next(b.recs[r].data)
		host = bytes.Clone(host)
		b.setOwner(origin)
		b.add(parent, -1, z.source.Pos, typeNS, b.recs[r].ttl, host)
		b.addGlue(parent, child, host)
	}
}

// addGlue adds the addresses that a zone has for a name of its own to the zone above.
func (b *builder) addGlue(parent, child int, host []byte) {
	b.setOwner(host)
	nd := b.t.find(child, b.n.hash[0], host)
	if nd < 0 {
		return
	}
	if up := b.t.find(parent, b.n.hash[0], host); up >= 0 && b.heads[up] >= 0 {
		return // for another zone
	}
	for r := b.heads[nd]; r >= 0; r = b.recs[r].next {
		rec := b.recs[r]
		if rdata, _ := b.t.next(rec.data); rec.rtype == typeA || rec.rtype == typeAAAA {
			b.setOwner(host)
			b.add(parent, -1, b.t.zones[child].source.Pos, rec.rtype, rec.ttl, bytes.Clone(rdata))
		}
	}
}

// setOwner makes wire, which is well-formed, the owner of what is added next.
func (b *builder) setOwner(wire []byte) { _, _ = b.n.parse(wire) }

// first returns the data of the first record of a type at a node, or nil.
func (b *builder) first(nd uint32, rtype uint16) []byte {
	for r := b.heads[nd]; r >= 0; r = b.recs[r].next {
		if b.recs[r].rtype == rtype {
			rdata, _ := b.t.next(b.recs[r].data)
			return rdata
		}
	}
	return nil
}

// soaData returns the data of a synthesised SOA record, with serial 0: see WithSerials.
func soaData(primary, origin []byte) []byte {
	b := slices.Concat(primary, []byte("\x0ahostmaster"), origin)
	if len(origin)+11 > maxName {
		b = slices.Concat(primary, origin)
	}
	for _, n := range []uint32{0, soaRefresh, soaRetry, soaExpire, soaMinimum} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

// addPolicy notes who is forwarded where, and who may transfer.
func (b *builder) addPolicy(l *lab.Lab, readFile func(string) ([]byte, error)) {
	t := b.t
	t.allow = slices.Concat(t.networks, l.DNS.Allow)
	t.transfer, t.notify = l.DNS.Transfer, l.DNS.Notify
	t.rate = l.DNS.RateLimit
	t.cacheEntries, t.cacheBytes = l.DNS.CacheEntries, int(l.DNS.CacheSize)
	for _, f := range l.DNS.ForwardZones {
		if b.name(lab.Pos{}, "dns.forward_zones", f.Domain) {
			t.forwards = append(t.forwards, forwardZone{bytes.Clone(b.n.bytes()), b.n.labels, b.upstreams("dns.forward_zones."+f.Domain, f.Servers, readFile)})
		}
	}
	if len(l.DNS.Forward) > 0 {
		t.forwards = append(t.forwards, forwardZone{[]byte{0}, 0, b.upstreams("dns.forward", l.DNS.Forward, readFile)})
	}
	slices.SortStableFunc(t.forwards, func(x, y forwardZone) int { return y.labels - x.labels })
	var sig []byte
	for _, f := range t.forwards {
		sig = append(sig, f.domain...)
		for _, s := range f.servers {
			sig = append(append(sig, s.String()...), ' ')
		}
	}
	for i := range t.zones {
		if t.zones[i].delegates {
			t.delegates = true
		}
	}
	if t.delegates {
		sig = append(sig, t.blob...)
	}
	t.forwardHash = stableHash(sig)
}

// groupNodes gives every zone the list of its nodes, so that what concerns one zone does not look at all others.
func (b *builder) groupNodes() {
	b.t.index = make(map[string]int, len(b.t.zones))
	count := make([]int, len(b.t.zones)+1)
	for i := range b.t.nodes {
		if z := b.t.nodes[i].zone; z != originZone {
			count[z]++
		}
	}
	all := make([]uint32, len(b.t.nodes))
	for i := range b.t.zones {
		z := &b.t.zones[i]
		b.t.index[z.text] = i
		z.members, all = all[:0:count[i]], all[count[i]:]
	}
	for i := range b.t.nodes {
		if z := b.t.nodes[i].zone; z != originZone {
			b.t.zones[z].members = append(b.t.zones[z].members, uint32(i))
		}
	}
}

// stableHash returns a hash that is the same in every process for the same bytes.
func stableHash(b []byte) uint64 { return hashLabel(hashSeed, b) }

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
