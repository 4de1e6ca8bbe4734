package lab

import "net/netip"

// An index finds parts of a Lab by their key. It is built once, by resolve.
type index struct {
	hosts     map[string]*Host
	hostByMAC map[MAC]*Host
	hostByIP  map[netip.Addr]*Host
	networks  map[string]*Network
}

func (l *Lab) buildIndex() {
	l.index = index{
		hosts:     make(map[string]*Host, len(l.Hosts)),
		hostByMAC: make(map[MAC]*Host, len(l.Hosts)),
		hostByIP:  make(map[netip.Addr]*Host, len(l.Hosts)),
		networks:  make(map[string]*Network, len(l.Networks)),
	}
	for _, n := range l.Networks {
		l.index.networks[n.Name] = n
	}
	for _, h := range l.Hosts {
		l.index.hosts[h.Name] = h
		if h.IP.IsValid() {
			l.index.hostByIP[h.IP] = h
		}
		for _, m := range h.MACs {
			l.index.hostByMAC[m] = h
		}
	}
}

// Host returns the host of that name, or nil.
func (l *Lab) Host(name string) *Host { return l.index.hosts[name] }

// HostByMAC returns the host that has that NIC, or nil.
func (l *Lab) HostByMAC(m MAC) *Host { return l.index.hostByMAC[m] }

// HostByIP returns the host that that address is reserved for, or nil.
func (l *Lab) HostByIP(a netip.Addr) *Host { return l.index.hostByIP[a] }

// Network returns the network of that name, or nil.
func (l *Lab) Network(name string) *Network { return l.index.networks[name] }

// NetworkOf returns the network whose subnet holds a, or nil. Subnets never overlap.
func (l *Lab) NetworkOf(a netip.Addr) *Network {
	for _, n := range l.Networks {
		if n.Subnet.Contains(a) {
			return n
		}
	}
	return nil
}

// PoolOf returns the pool of n that serves a machine without a reservation: of all pools that match m the one whose
// pattern is most specific, the first by name among equals, or nil.
func (n *Network) PoolOf(m MAC) *Pool {
	var best *Pool
	bestBits := -1
	for _, p := range n.Pools {
		if bits := p.matchBits(m); bits > bestBits {
			best, bestBits = p, bits
		}
	}
	return best
}

// matchBits returns the bits of the most specific pattern that matches m: 0 for a pool open to anyone, -1 for none.
func (p *Pool) matchBits(m MAC) int {
	if len(p.MACs) == 0 {
		return 0
	}
	best := -1
	for _, pattern := range p.MACs {
		if pattern.Match(m) {
			best = max(best, pattern.Bits())
		}
	}
	return best
}

// MachineOf returns the host that has that NIC or, for an address inside a pool that boots a profile, a guest: a host
// made up for this MAC. It returns nil for a machine that the lab has nothing for.
func (l *Lab) MachineOf(m MAC, a netip.Addr) *Host {
	if h := l.HostByMAC(m); h != nil {
		return h
	}
	n := l.NetworkOf(a)
	if n == nil || m.IsZero() {
		return nil
	}
	p := n.PoolOf(m)
	if p == nil || p.Profile == nil || !p.Range.Contains(a) {
		return nil
	}
	name := m.Hyphens()
	return &Host{
		Pos: p.Pos, Name: name, FQDN: name + "." + l.Domain, Domain: l.Domain, MACs: []MAC{m}, IP: a, Network: n,
		Role: "guest", Profile: p.Profile, Lease: p.Lease, Routes: p.Routes, Pool: p, Vars: map[string]any{},
	}
}
