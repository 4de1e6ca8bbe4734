package lab

import (
	"net/netip"
	"slices"
)

// AllMACs returns the MACs of all NICs of h, those that it boots from first.
func (h *Host) AllMACs() []MAC {
	if len(h.NICs) == 0 {
		return h.MACs
	}
	all := append([]MAC(nil), h.MACs...)
	for _, n := range h.NICs {
		all = append(all, n.MAC)
	}
	return all
}

// BootsFrom reports whether h boots from the NIC with that MAC. One of its further NICs boots nothing.
func (h *Host) BootsFrom(m MAC) bool { return slices.Contains(h.MACs, m) }

// Interfaces returns h as each of its networks sees it: itself for the NIC that boots, then a copy for each further NIC, which has the
// NIC's MAC, address and network, and boots nothing.
func (h *Host) Interfaces() []*Host {
	all := []*Host{h}
	for _, n := range h.NICs {
		as := *h
		as.MACs, as.IP, as.IP6, as.Network, as.FQDN, as.Model, as.NICs = []MAC{n.MAC}, n.IP, n.IP6, n.Network, n.FQDN, n.Model, nil
		as.Profile, as.Routes, as.Options = nil, nil, nil
		all = append(all, &as)
	}
	return all
}

// AddrOf returns the address reserved for one of the MACs of h; invalid: none.
func (h *Host) AddrOf(m MAC) netip.Addr {
	for _, n := range h.NICs {
		if n.MAC == m {
			return n.IP
		}
	}
	return h.IP
}

// The values of AddressFrom.
const (
	FromPool   = "from a pool"
	FromOther  = "from another server"
	FromNobody = "none: no pool"
	FromSilent = "none: dhcp is off"

	FromElsewhere = "not by DHCP" // reserved, and another server gives it, or nobody
)

// AddressFrom says where the first NIC gets its address; empty: from here, the reserved one.
func (h *Host) AddressFrom() string {
	n := h.Network
	switch {
	case h.IP.IsValid() && n != nil && n.DHCP == DHCPServer && !h.Ignored:
		return ""
	case h.IP.IsValid():
		return FromElsewhere
	case h.Ignored || n != nil && n.DHCP == DHCPProxy:
		return FromOther
	case n != nil && n.DHCP == DHCPOff:
		return FromSilent
	case n != nil && len(n.Pools) == 0:
		return FromNobody
	}
	return FromPool
}

// KnownAddrs reports whether the addresses of h are known here: this lab leases them, or its lab file says them, of a host that DHCP does not
// answer. Elsewhere another server gives any.
func (h *Host) KnownAddrs() bool {
	n := h.Network
	return n == nil || n.DHCP == DHCPServer && (!h.Ignored || h.IP.IsValid())
}

// NamedAddrs returns the addresses that the FQDN of h has; an invalid one is none.
func (h *Host) NamedAddrs() (ip, ip6 netip.Addr) {
	if h.Named > 0 {
		n := &h.NICs[h.Named-1]
		return n.IP, n.IP6
	}
	return h.IP, h.IP6
}

// LeasedMACs returns the MACs whose lease gives the FQDN of h its address; none where one is reserved.
func (h *Host) LeasedMACs() []MAC {
	switch ip, _ := h.NamedAddrs(); {
	case ip.IsValid():
		return nil
	case h.Named > 0:
		return []MAC{h.NICs[h.Named-1].MAC}
	}
	return h.MACs
}

// AddrIn returns the address of h in a subnet, else that of its FQDN.
func (h *Host) AddrIn(subnet netip.Prefix) netip.Addr {
	if len(h.NICs) == 0 {
		return h.IP
	}
	for _, as := range h.Interfaces() {
		if as.IP.IsValid() && subnet.Contains(as.IP) {
			return as.IP
		}
	}
	ip, _ := h.NamedAddrs()
	return ip
}

// Has reports whether an address is one of h.
func (h *Host) Has(a netip.Addr) bool {
	if !a.IsValid() {
		return false
	}
	for _, n := range h.NICs {
		if a == n.IP || a == n.IP6 {
			return true
		}
	}
	return a == h.IP || a == h.IP6
}
