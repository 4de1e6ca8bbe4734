package importer

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// nameHosts sets the lab's domain, and gives every name with an address to a host or to a zone.
func (d *draft) nameHosts() {
	d.chooseDomain()
	d.named = nil
	byIP := map[netip.Addr]*host{}
	for _, h := range d.hosts {
		if h.ip.IsValid() && byIP[h.ip] == nil {
			byIP[h.ip] = h
		}
	}
	for _, a := range d.names {
		h := byIP[a.ip]
		switch n := d.networkOf(a.ip); {
		case h != nil:
		case n == nil || a.ip == n.address || strings.HasPrefix(a.name, "*") || d.hostNamed(a.name) != nil:
			d.record(a.at, a.name, recordType(a.ip), a.ip.String())
			continue
		default:
			h = &host{at: a.at, name: a.name, ip: a.ip}
			byIP[a.ip] = h
			d.hosts = append(d.hosts, h)
			d.indexName(h)
			continue
		}
		switch {
		case h.name == "":
			h.name = a.name
			h.also = append(h.also, a.at)
			d.indexName(h)
		case d.full(h.name) == d.full(a.name):
			h.also = append(h.also, a.at)
		default:
			h.append("aliases", a.at, d.alias(h, a.name))
		}
	}
}

func recordType(ip netip.Addr) string {
	if ip.Is4() {
		return "A"
	}
	return "AAAA"
}

// oneHostPerMAC leaves out MACs that a host of an earlier line has, with lastMAC of a later one, and hosts that have no other.
func (d *draft) oneHostPerMAC() {
	if d.lastMAC {
		slices.Reverse(d.hosts)
		defer func() { slices.Reverse(d.hosts) }()
	}
	first := map[lab.MAC]place{}
	d.hosts = slices.DeleteFunc(d.hosts, func(h *host) bool {
		had := len(h.macs)
		h.macs = slices.DeleteFunc(h.macs, func(s string) bool {
			mac, err := lab.ParseMAC(s)
			at, again := first[mac]
			switch {
			case err != nil || again && at == h.at:
			case again && had > 1:
				d.note(h.at, "%s is the MAC of a host at %s:%d: it is left out", s, at.file, at.line)
			case again:
				d.notes = slices.DeleteFunc(d.notes, func(n Note) bool { // about what is left out
					return n.File == lab.Printable(h.at.file) && n.Line == h.at.line && !n.WeakensAccess
				})
				d.note(h.at, "%s is the MAC of a host at %s:%d: this host is left out", s, at.file, at.line)
			default:
				first[mac] = h.at
			}
			return again && at != h.at
		})
		return had > 0 && len(h.macs) == 0
	})
}

// hostNamed returns the host with that name, or nil.
func (d *draft) hostNamed(name string) *host {
	if d.named == nil {
		d.named = make(map[string]*host, len(d.hosts))
		for _, h := range d.hosts {
			d.indexName(h)
		}
	}
	return d.named[d.full(name)]
}

// indexName makes hostNamed find h.
func (d *draft) indexName(h *host) {
	if full := d.full(h.name); d.named != nil && h.name != "" && d.named[full] == nil {
		d.named[full] = h
	}
}

// full returns a name with its domain, in lower case and without a final dot.
func (d *draft) full(name string) string {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if !strings.Contains(name, ".") && d.domain != "" {
		return name + "." + d.domain
	}
	return name
}

// chooseDomain sets the domain to that of most names, if the files do not say.
func (d *draft) chooseDomain() {
	if d.domain = strings.ToLower(strings.Trim(d.domain, ".")); lab.IsDomain(d.domain) {
		return
	}
	count, best := map[string]int{}, ""
	try := func(name string) {
		if _, domain, _ := strings.Cut(strings.ToLower(strings.TrimSuffix(name, ".")), "."); lab.IsDomain(domain) && !d.looksUp(domain) {
			count[domain]++
			if n := count[domain] - count[best]; best == "" || n > 0 || n == 0 && domain < best {
				best = domain
			}
		}
	}
	for _, h := range d.hosts {
		try(h.name)
	}
	for _, a := range d.names {
		try(a.name)
	}
	for _, name := range d.seen {
		if strings.Count(name, ".") > 1 { // its domain is no TLD
			try(name)
		}
	}
	if best == "" {
		best = "lab.internal"
		if len(d.networks) > 0 && d.needsDomain {
			d.note(d.networks[0].at, "no domain is in the file: %s stands for it: set domain", best)
		}
	}
	d.domain = best
}

// looksUp reports whether a name in a domain is looked up in DNS.
func (d *draft) looksUp(domain string) bool {
	return slices.ContainsFunc(d.outside, func(name string) bool { return strings.HasSuffix("."+strings.ToLower(name), "."+domain) })
}

// alias returns another name of h: relative to the domain of h where it is in it, else absolute.
func (d *draft) alias(h *host, name string) string {
	_, domain, _ := strings.Cut(d.full(h.name), ".")
	if label, ok := strings.CutSuffix(d.full(name), "."+domain); ok && !strings.Contains(label, ".") {
		return label
	}
	return d.full(name) + "."
}

// write adds h to hosts, and to clusters the one whose domain its name needs.
func (h *host) write(d *draft, hosts, clusters *mapping) {
	label, domain, dotted := strings.Cut(strings.ToLower(strings.TrimSuffix(h.name, ".")), ".")
	if label == "" {
		label = h.anonymous()
	}
	if dotted && domain != d.domain {
		cluster, parent, _ := strings.Cut(domain, ".")
		known := clusters.get(cluster)
		switch {
		case lab.IsDomain(parent) && (known == nil || known.sub.value("domain") == parent):
			clusters.under(cluster, h.at).set("kind", h.at, "plain")
			clusters.under(cluster, h.at).need("domain", h.at, parent)
			h.set("cluster", h.at, cluster)
		default:
			h.append("aliases", h.at, d.full(h.name)+".")
		}
	}
	name := d.free("hosts", label, func(try string) bool { return hosts.get(try) != nil })
	if name != label {
		d.note(h.at, "the name %s is in use: this host is %s", label, name)
		h.prune(map[*entry]bool{h.get("cluster"): true})
	}
	if len(h.macs) == 1 {
		h.need("mac", h.at, h.macs[0])
	} else if len(h.macs) > 1 {
		h.needList("mac", h.at, h.macs...)
	}
	switch {
	case h.ip.IsValid() && h.ip.Is6():
		h.need("ip6", h.at, h.ip.String())
	case h.ip.IsValid():
		h.need("ip", h.at, h.ip.String())
	case len(d.networks) > 1 && h.network != "":
		h.set("network", h.at, h.network)
	}
	if n := d.networkOf(h.ip); n != nil {
		h.options.inherit(n.options)
	} else if len(d.networks) == 1 {
		h.options.inherit(d.networks[0].options)
	}
	h.options.write(&h.mapping)
	hosts.add(&entry{key: name, at: h.at, also: h.also, sub: &h.mapping})
}

// anonymous returns a name for a host that has none.
func (h *host) anonymous() string {
	if len(h.macs) > 0 {
		return "host-" + strings.NewReplacer(":", "", "-", "").Replace(strings.ToLower(h.macs[0]))
	}
	return "host-" + strings.NewReplacer(".", "-", ":", "-").Replace(h.ip.String())
}

// record adds a record to the zone that its name belongs to.
func (d *draft) record(at place, name, rtype, data string) {
	name = d.full(name)
	if !lab.IsDomain(strings.TrimPrefix(name, "*.")) {
		d.note(at, "%q is not a name: it is left out", name)
		return
	}
	origin := d.zoneOf(name)
	owner := "@"
	if name != origin {
		owner = strings.TrimSuffix(name, "."+origin)
	}
	d.zones.under(origin, at).append("records", at, owner+" "+rtype+" "+data)
}

// zoneOf returns the origin of the zone for a name: the most specific that there is, the lab's domain, or a new one: its parent, without
// the labels of a service.
func (d *draft) zoneOf(name string) string {
	for rest, more := name, true; more; _, rest, more = strings.Cut(rest, ".") {
		if rest == d.domain || d.zones.get(rest) != nil {
			return rest
		}
	}
	for strings.HasPrefix(name, "_") || strings.HasPrefix(name, "*") {
		_, rest, ok := strings.Cut(name, ".")
		if !ok {
			break
		}
		name = rest
	}
	if _, parent, ok := strings.Cut(name, "."); ok && strings.Contains(parent, ".") {
		return parent
	}
	return name
}

// writeZones adds the zones to dns. Those that the other server did not own alone forward what they do not have.
func (d *draft) writeZones() {
	if d.forwardAll {
		d.zones.under(d.domain, d.domainAt)
		for _, e := range d.zones.entries {
			if !d.owned[e.key] {
				e.sub.set("forward", e.at, "missing")
			}
		}
	}
	for _, e := range d.zones.entries {
		if len(e.sub.entries) > 0 {
			d.dns.under("zones", e.at).add(e)
		}
	}
}
