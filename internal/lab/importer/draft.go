package importer

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// A draft is the lab that a reader fills.
type draft struct {
	o     Options
	notes []Note
	// expected are the statements that the lab must have something of. Otherwise they get a note, unless they are accounted for: they have
	// one, or the lab does what they say without an entry.
	expected  []expectation
	accounted map[line]bool

	domain   string // of the lab; empty: derived from names
	domainAt place
	// needsDomain says that files of the format have the domain of the machines.
	needsDomain bool
	appliance   mapping
	networks    []*network
	hosts       []*host
	seen        []string // names of other machines, which say what the domain is
	outside     []string // names that are looked up in DNS: the domain is none of theirs
	names       []address
	zones       mapping // by origin
	dns         mapping
	balancers   mapping
	profiles    mapping
	hyper       mapping // hypervisors
	// forwardAll says that names which a zone does not have are to be forwarded, as the other server does, except in zones of owned.
	forwardAll bool
	owned      map[string]bool   // by origin
	lastMAC    bool              // of hosts with the same MAC the last is used
	named      map[string]*host  // by full name; nil: not used yet
	numbers    map[[2]string]int // the last one of a name of a section
}

// A network is a network of the draft.
type network struct {
	mapping
	at      place
	name    string
	subnet  netip.Prefix
	address netip.Addr
	options scope
	pools   []*pool
	relayed bool // the file says that its machines are behind a DHCP relay
}

// A pool is a pool of a network.
type pool struct {
	mapping
	at      place
	name    string
	options scope
}

// A host is a machine with a reservation.
type host struct {
	mapping
	at      place
	name    string // may have dots; empty: derived from mac or ip
	macs    []string
	ip      netip.Addr
	network string  // needed without ip, where there are several networks
	also    []place // other lines with its name
	options scope
}

// An address is a name with an address in DNS, without a reservation.
type address struct {
	at   place
	name string
	ip   netip.Addr
}

// A scope is what DHCP sends: options by number in the notation of the lab file, and routes.
type scope struct {
	options map[uint8]option
	routes  []route
}

type option struct {
	at    place
	value string
	force bool
}

type route struct {
	at      place
	to, via string
}

func newDraft(o Options) *draft {
	return &draft{o: o, accounted: map[line]bool{}, owned: map[string]bool{}, numbers: map[[2]string]int{}}
}

// free returns a name of a section that is not taken: name, or name with a number.
func (d *draft) free(section, name string, taken func(string) bool) string {
	try := name
	for key := [2]string{section, name}; taken(try); {
		d.numbers[key] = max(d.numbers[key], 1) + 1
		try = fmt.Sprintf("%s-%d", name, d.numbers[key])
	}
	return try
}

// note records that a statement is not carried as it is.
func (d *draft) note(at place, format string, args ...any) {
	d.accounted[at.on()] = true
	d.notes = append(d.notes, Note{File: lab.Printable(at.file), Line: at.line, Statement: clip(at.text), Text: lab.Printable(fmt.Sprintf(format, args...))})
}

// listed reports whether a word is in a list with blanks between.
func listed(list, word string) bool {
	for w := range strings.FieldsSeq(list) {
		if w == word {
			return true
		}
	}
	return false
}

// clip shortens a statement for a note.
func clip(s string) string {
	s = lab.Printable(s)
	if r := []rune(s); len(r) > 80 {
		return string(r[:79]) + "…"
	}
	return s
}

// networkOf returns the network that contains ip, or nil.
func (d *draft) networkOf(ip netip.Addr) *network {
	for _, n := range d.networks {
		if n.subnet.Contains(ip) {
			return n
		}
	}
	return nil
}

// addNetwork returns the network of a subnet, which it makes with a name that is free.
func (d *draft) addNetwork(at place, name string, subnet netip.Prefix) *network {
	subnet = subnet.Masked()
	for _, n := range d.networks {
		if n.subnet == subnet {
			return n
		}
	}
	n := &network{at: at, name: d.freeNetwork(name), subnet: subnet}
	n.need("subnet", at, subnet.String())
	d.networks = append(d.networks, n)
	return n
}

func (d *draft) freeNetwork(name string) string {
	return d.free("networks", ident(name, "lan"), func(try string) bool {
		return slices.ContainsFunc(d.networks, func(n *network) bool { return n.name == try })
	})
}

// addPool adds a pool with a name that is free in its network.
func (n *network) addPool(at place, name string, first, last netip.Addr) *pool {
	name = ident(name, "pool")
	for i, try := 2, name; ; i, try = i+1, fmt.Sprintf("%s-%d", name, i) {
		if !slices.ContainsFunc(n.pools, func(p *pool) bool { return p.name == try }) {
			p := &pool{at: at, name: try}
			p.need("range", at, first.String()+"-"+last.String())
			n.pools = append(n.pools, p)
			return p
		}
	}
}

// ident returns a name of the lab file that is like s.
func ident(s, fallback string) string {
	s = strings.Map(func(r rune) rune {
		if lab.IsName("a" + string(r)) {
			return r
		}
		return '-'
	}, s)
	s = strings.TrimLeft(s, "._-")
	if s == "" {
		return fallback
	}
	return s[:min(len(s), 60)]
}

// tree returns the draft as the mapping that is written.
func (d *draft) tree() *mapping {
	d.reach()
	d.oneHostPerMAC()
	d.nameHosts()
	root := &mapping{}
	root.set("version", place{}, "1")
	root.set("domain", d.domainAt, d.domain)
	hosts, clusters := &mapping{}, &mapping{}
	for _, h := range d.hosts {
		h.write(d, hosts, clusters)
	}
	networks := &mapping{}
	for _, n := range d.networks {
		networks.add(&entry{key: n.name, at: n.at, sub: n.tree()})
	}
	d.writeZones()
	for _, section := range []struct {
		key string
		m   *mapping
	}{
		{"appliance", &d.appliance}, {"networks", networks}, {"profiles", &d.profiles}, {"hosts", hosts}, {"clusters", clusters},
		{"dns", &d.dns}, {"balancers", &d.balancers}, {"hypervisors", &d.hyper},
	} {
		if len(section.m.entries) > 0 {
			root.add(&entry{key: section.key, sub: section.m})
		}
	}
	return root
}

// reach sets how the appliance reaches the networks, from the interfaces of this machine where the files do not say. One that neither
// an interface nor a relay leads to is not served.
func (d *draft) reach() {
	addressed, reached := false, false
	for _, n := range d.networks {
		if d.o.Interface != nil && n.get("interface") == nil {
			if name, own := d.o.Interface(n.subnet.Addr()); name != "" {
				n.set("interface", n.at, name)
				if !n.address.IsValid() {
					n.address = own.Addr()
				}
			}
		}
		if n.address.IsValid() {
			n.set("address", n.at, n.address.String())
		}
		addressed = addressed || n.address.IsValid()
		reached = reached || addressed || n.get("interface") != nil && n.get("dhcp") == nil
	}
	for _, n := range d.networks {
		switch {
		case n.get("interface") != nil || n.get("dhcp") != nil:
		case reached && n.relayed:
			d.note(n.at, "network %s is served through its DHCP relay, and needs no interface", n.name)
		case n.relayed:
			d.note(n.at, "network %s is served through its DHCP relay, and needs no interface: add the network that the relay reaches this machine in, with its address, and remove dhcp: off", n.name)
			n.set("dhcp", n.at, "off")
		case addressed:
			d.note(n.at, "the interface of network %s is not in the file: it is served through a DHCP relay", n.name)
		default:
			d.note(n.at, "the interface of network %s is not in the file: set interface and address, and remove dhcp: off", n.name)
			n.set("dhcp", n.at, "off")
		}
	}
}

func (n *network) tree() *mapping {
	n.options.write(&n.mapping)
	for _, p := range n.pools {
		p.options.inherit(n.options)
		p.options.write(&p.mapping)
		n.under("pools", p.at).add(&entry{key: p.name, at: p.at, sub: &p.mapping})
	}
	return &n.mapping
}

// inherit adds what the network has. Options and routes of a pool or a host replace the network's as a whole, so they repeat them.
func (s *scope) inherit(n scope) {
	if len(s.options) > 0 {
		for code, o := range n.options {
			if _, own := s.options[code]; !own {
				s.options[code] = o
			}
		}
	}
}

// networkKeys are options that have keys of their own in networks. They are not among the options of a network.
var networkKeys = map[uint8]string{3: "router", 6: "dns", 26: "mtu", 42: "ntp", 119: "search"}

// write puts options and routes into a network, a pool or a host.
func (s *scope) write(m *mapping) {
	for _, code := range slices.Sorted(maps.Keys(s.options)) {
		o := s.options[code]
		e := m.under("options", o.at).set(fmt.Sprint(code), o.at, o.value)
		if o.force {
			e.text, e.sub = "", &mapping{}
			e.sub.need("value", o.at, o.value)
			e.sub.set("force", o.at, "true")
		}
		e.quoted = true
	}
	for _, r := range s.routes {
		item := &mapping{}
		item.need("to", r.at, r.to)
		item.need("via", r.at, r.via)
		m.appendMap("routes", r.at, item)
	}
}

// set replaces an option.
func (s *scope) set(code uint8, o option) {
	if s.options == nil {
		s.options = map[uint8]option{}
	}
	s.options[code] = o
}
