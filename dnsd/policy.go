package dnsd

import (
	"bytes"
	"slices"

	"github.com/bootlab/bootlab/internal/lab"
)

// addPolicy notes who is forwarded where, and who may transfer.
func (b *builder) addPolicy(l *lab.Lab, readFile ReadFile) {
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
	for _, z := range t.zones {
		if z.delegates {
			t.delegates = true
			sig = t.appendDelegations(sig, z)
		}
	}
	t.forwardHash = stableHash(sig)
}

// appendDelegations appends what is known of the servers of the zones that a zone delegates.
func (t *Table) appendDelegations(b []byte, z *zone) []byte {
	for i := range z.nodes {
		nd := &z.nodes[i]
		if !nd.cut {
			continue
		}
		b = append(b, z.nameOf(nd)...)
		set := z.set(nd, typeNS)
		b = append(b, z.setData(set)...)
		for rdata := range z.data(set) {
			var host name
			if _, err := host.parse(rdata); err != nil {
				continue
			}
			for _, a := range t.addressesOf(&host) {
				b = append(b, a.AsSlice()...)
			}
		}
	}
	return b
}

// stableHash returns a hash that is the same in every process for the same bytes.
func stableHash(b []byte) uint64 { return hashLabel(hashSeed, b) }
