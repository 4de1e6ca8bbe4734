package dhcpd

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/lab"
)

// maxRoutes is how many routes fit option 121 of one message.
const maxRoutes = 100

// optionsOf encodes what a network says; routes and custom may be a host's or pool's own. What cannot be encoded was
// reported, or is, by the checks here.
func optionsOf(n *lab.Network, routes []lab.Route, custom []lab.Option) *wire.Options {
	o, err := wire.Builder{
		Subnet: n.Subnet, Router: n.Router, DNS: n.DNS, NTP: n.NTP, MTU: n.MTU, Search: n.Search, Routes: routes, Custom: custom,
	}.Build()
	if err != nil {
		return &wire.Options{}
	}
	return o
}

// validDomain reports whether every label fits RFC 1035 section 2.3.4.
func validDomain(d string) bool {
	d = strings.TrimSuffix(d, ".")
	if d == "" || len(d) > 253 {
		return false
	}
	return !slices.ContainsFunc(strings.Split(d, "."), func(l string) bool { return l == "" || len(l) > 63 })
}

func checkNetwork(n *lab.Network, problems *lab.Problems) {
	key := "networks." + n.Name
	if !n.Subnet.IsValid() || !n.Subnet.Addr().Is4() {
		problems.Addf(n.Pos, key+".subnet", "%s: want an IPv4 prefix such as 192.168.16.0/24", n.Subnet)
		return
	}
	checkAddrs(n.Pos, key+".address", problems, n.Address)
	checkAddrs(n.Pos, key+".router", problems, n.Router)
	checkAddrs(n.Pos, key+".dns", problems, n.DNS...)
	checkAddrs(n.Pos, key+".ntp", problems, n.NTP...)
	if n.MTU != 0 && (n.MTU < 68 || n.MTU > 65535) {
		problems.Addf(n.Pos, key+".mtu", "%d: want 68 to 65535 (RFC 2132 section 5.1)", n.MTU)
	}
	for _, d := range n.Search {
		if !validDomain(d) {
			problems.Addf(n.Pos, key+".search", "%q is not a domain name: want labels of 1 to 63 bytes", d)
		}
	}
	checkRoutes(n.Pos, key+".routes", n.Routes, problems)
	checkOptions(n.Pos, key+".options", n.Options, problems)
	for _, p := range n.Pools {
		checkPool(n, p, problems)
	}
}

func checkPool(n *lab.Network, p *lab.Pool, problems *lab.Problems) {
	key := fmt.Sprintf("networks.%s.pools.%s", n.Name, p.Name)
	r := p.Range
	if !n.Subnet.Contains(r.First) || !n.Subnet.Contains(r.Last) || r.Last.Less(r.First) {
		problems.Addf(p.Pos, key+".range", "%s: want first and last address inside %s, in this order", r, n.Subnet)
	}
	checkRoutes(p.Pos, key+".routes", p.Routes, problems)
	checkOptions(p.Pos, key+".options", p.Options, problems)
}

func checkHost(h *lab.Host, problems *lab.Problems) {
	if !h.IP.Is4() || !h.Network.Subnet.Contains(h.IP) {
		problems.Addf(h.Pos, "hosts."+h.Name+".ip", "%s: want an address inside %s", h.IP, h.Network.Subnet)
	}
	checkOwn(h, problems)
}

// checkOwn checks what a host has of its own, with an address or without.
func checkOwn(h *lab.Host, problems *lab.Problems) {
	if len(h.Name) > 255 || len(h.Domain) > 255 {
		problems.Addf(h.Pos, "hosts."+h.Name, "a name of %d bytes: want at most 255", max(len(h.Name), len(h.Domain)))
	}
	if h.Routes != nil {
		checkRoutes(h.Pos, "hosts."+h.Name+".routes", h.Routes, problems)
	}
	if h.Options != nil {
		checkOptions(h.Pos, "hosts."+h.Name+".options", h.Options, problems)
	}
}

// checkAddrs accepts addresses that are absent; an IPv6 address where the packet has four bytes would be cut in silence.
func checkAddrs(pos lab.Pos, key string, problems *lab.Problems, addrs ...netip.Addr) {
	for _, a := range addrs {
		if a.IsValid() && !a.Is4() {
			problems.Addf(pos, key, "%s: want an IPv4 address", a)
		}
	}
}

func checkRoutes(pos lab.Pos, key string, routes []lab.Route, problems *lab.Problems) {
	for _, r := range routes {
		if !r.To.IsValid() || !r.To.Addr().Is4() || !r.Via.Is4() {
			problems.Addf(pos, key, "%s via %s: want an IPv4 prefix and an IPv4 address", r.To, r.Via)
		}
	}
	if len(routes) > maxRoutes {
		problems.Addf(pos, key, "%d routes: want at most %d, more do not fit a packet", len(routes), maxRoutes)
	}
}

func checkOptions(pos lab.Pos, key string, options []lab.Option, problems *lab.Problems) {
	for _, o := range options {
		if err := wire.CheckOption(o); err != nil {
			problems.Addf(pos, key, "%s", err)
		}
	}
}
