package dhcpd

import (
	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/lab"
)

// A member is a host that the lab file has without an address: it gets one from a pool, and is told all else as a host.
type member struct {
	host    *lab.Host
	scope   *scope
	options map[*Pool]*wire.Options // in place of the pool's; nil: the host has none of its own
}

// addMember notes a host without an address. What it leaves out of routes and options is its pool's.
func (t *Table) addMember(s *scope, h *lab.Host) {
	m := &member{host: h, scope: s}
	if h.Routes != nil || h.Options != nil {
		m.options = make(map[*Pool]*wire.Options, len(s.pools))
		for _, p := range s.pools {
			m.options[p] = optionsOf(s.network, either(h.Routes, p.pool.Routes, s.network.Routes), either(h.Options, p.pool.Options, s.network.Options))
		}
	}
	for _, mac := range h.MACs {
		t.members[mac] = m
	}
}

// either returns the first list that was written down.
func either[T any](lists ...[]T) []T {
	for _, l := range lists {
		if l != nil {
			return l
		}
	}
	return nil
}

// memberOf returns the member of s with that NIC, or nil.
func (t *Table) memberOf(mac lab.MAC, s *scope) *member {
	if m := t.members[mac]; m != nil && m.scope == s {
		return m
	}
	return nil
}

// tell puts into a reply from a pool what the lab file says of this host.
func (m *member) tell(a *wire.Reply, p *Pool) {
	if m == nil {
		return
	}
	a.Name, a.Domain = m.host.Name, m.host.Domain
	if m.options != nil {
		a.Options = m.options[p]
	}
}

// host returns the host that the lab file has for the machine in this network, or nil.
func (x *exchange) host() *lab.Host {
	switch {
	case x.res != nil:
		return x.res.Host
	case x.member != nil:
		return x.member.host
	}
	return nil
}
