package dnsd

import (
	"bytes"
	"context"
	"net/netip"

	"github.com/miekg/dns"
)

const (
	maxReferrals = 8 // one after the other
	maxAddresses = 8 // of the name servers of one zone that are asked
	dnsPort      = 53
)

// A delegation is a zone and its name servers.
type delegation struct {
	zone    string
	servers []nameServer
}

// A nameServer is one name server of a zone. Its addresses are those that came with the delegation; there may be none.
type nameServer struct {
	name  []byte // in wire form, lower case
	addrs []netip.Addr
}

// delegationOf returns the delegation in one of the table's zones that n is below.
func (t *Table) delegationOf(n *name) *delegation {
	m := t.match(n)
	if m.cut < 0 {
		return nil
	}
	origin := n.suffix(m.cut)
	d := &delegation{zone: nameText(origin)}
	set := m.zone.set(m.zone.node(n, m.cut), typeNS)
	for rdata := range m.zone.data(set) {
		var host name
		if _, err := host.parse(rdata); err == nil {
			d.servers = append(d.servers, nameServer{bytes.Clone(host.bytes()), t.addressesOf(&host)})
		}
	}
	return d
}

// addressesOf returns the addresses that the table has for a name, glue below a delegation included.
func (t *Table) addressesOf(n *name) (addrs []netip.Addr) {
	z, _ := t.zoneOf(n, 0)
	if z == nil {
		return nil
	}
	nd := z.node(n, 0)
	if nd == nil {
		return nil
	}
	for _, rtype := range [...]uint16{typeA, typeAAAA} {
		set := z.set(nd, rtype)
		if set == nil {
			continue
		}
		for rdata := range z.data(set) {
			if a, ok := netip.AddrFromSlice(rdata); ok {
				addrs = append(addrs, a)
			}
		}
	}
	return addrs
}

// addressesOf returns where the name servers of a delegated zone are. Those without addresses are looked up, as any name is.
func (f *forwarder) addressesOf(ctx context.Context, t *Table, d *delegation) (servers []upstream) {
	for _, s := range d.servers {
		if len(s.addrs) == 0 {
			s.addrs = f.lookUp(ctx, t, s.name)
		}
		for _, a := range s.addrs {
			if len(servers) < maxAddresses {
				servers = append(servers, upstream{addr: netip.AddrPortFrom(a, dnsPort)})
			}
		}
	}
	return servers
}

// lookUp returns the IPv4 addresses of a name, from the table or from other servers.
func (f *forwarder) lookUp(ctx context.Context, t *Table, wire []byte) (addrs []netip.Addr) {
	var n name
	if _, err := n.parse(wire); err != nil {
		return nil
	}
	if addrs = t.addressesOf(&n); len(addrs) > 0 {
		return addrs
	}
	q := upstreamQuery{table: t, name: &n, qtype: typeA}
	if z, _ := t.zoneOf(&n, 0); z != nil && !z.forwardMissing {
		return nil // ours, and there is none
	}
	if q.servers, _ = t.upstreams(&n); len(q.servers) == 0 {
		return nil
	}
	e, err := f.resolveShared(ctx, q)
	if err != nil {
		return nil
	}
	m, err := e.unpack(&n, typeA, f.now())
	if err != nil {
		return nil
	}
	for _, rr := range m.Answer {
		if a, ok := rr.(*dns.A); ok {
			if addr, ok := netip.AddrFromSlice(a.A.To4()); ok {
				addrs = append(addrs, addr)
			}
		}
	}
	return addrs
}

// referralIn returns the NS records of a reply that is no answer but says whom to ask (RFC 1034 section 4.3.1).
func referralIn(m *dns.Msg) (ns []*dns.NS) {
	if m.Rcode != dns.RcodeSuccess || len(m.Answer) > 0 || m.Authoritative {
		return nil
	}
	for _, rr := range m.Ns {
		switch rr := rr.(type) {
		case *dns.SOA:
			return nil
		case *dns.NS:
			ns = append(ns, rr)
		}
	}
	return ns
}

// follow makes an entry of a referral. Only the server of a delegated zone may refer, and only to a zone further down; an upstream
// that does has no answer.
func (q *upstreamQuery) follow(m *dns.Msg, ns []*dns.NS) (*cacheEntry, error) {
	zone := dns.CanonicalName(ns[0].Hdr.Name)
	asked := nameText(q.name.bytes())
	if q.cut == nil || !dns.IsSubDomain(zone, asked) || !dns.IsSubDomain(q.cut.zone, zone) || dns.CountLabel(zone) <= dns.CountLabel(q.cut.zone) {
		return nil, errLame
	}
	d := &delegation{zone: zone}
	for _, rr := range ns {
		wire, err := appendName(nil, dns.CanonicalName(rr.Ns))
		if err != nil || dns.CanonicalName(rr.Hdr.Name) != zone {
			continue
		}
		s := nameServer{name: wire}
		for _, extra := range m.Extra {
			owner := dns.CanonicalName(extra.Header().Name)
			if owner != dns.CanonicalName(rr.Ns) || !dns.IsSubDomain(q.cut.zone, owner) {
				continue // an address outside the zone of who says so is not believed
			}
			if a, ok := addressIn(extra); ok {
				s.addrs = append(s.addrs, a)
			}
		}
		d.servers = append(d.servers, s)
	}
	return &cacheEntry{referral: d}, nil
}

func addressIn(rr dns.RR) (netip.Addr, bool) {
	switch rr := rr.(type) {
	case *dns.A:
		return netip.AddrFromSlice(rr.A.To4())
	case *dns.AAAA:
		return netip.AddrFromSlice(rr.AAAA.To16())
	}
	return netip.Addr{}, false
}
