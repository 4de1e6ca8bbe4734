package importer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// settings are what Kea and ISC dhcpd say for everything, a shared network, a subnet, a pool, a group or a host. Inner ones have
// precedence.
type settings struct {
	options    []setting
	lease      setting
	next, file setting // next-server and the boot file
	// clients says whether pools are for known machines only (its one word is "known") or for all.
	clients setting
}

// A setting is one option, or a value, with its place.
type setting struct {
	at    place
	code  uint8
	words []string
	force bool
	// fields are how the file itself defines the option; nil: it does not.
	fields *fields
}

// within returns s inside of outer: both, and what s says last.
func (s settings) within(outer settings) settings {
	all := settings{options: slices.Concat(outer.options, s.options), lease: outer.lease, next: outer.next, file: outer.file, clients: outer.clients}
	if len(s.clients.words) > 0 {
		all.clients = s.clients
	}
	if len(s.lease.words) > 0 {
		all.lease = s.lease
	}
	if len(s.next.words) > 0 {
		all.next = s.next
	}
	if len(s.file.words) > 0 {
		all.file = s.file
	}
	return all
}

// apply sets everything of s for t.
func (d *draft) apply(s settings, t target) {
	// Routers before routes: a route to 0.0.0.0/0 by the router is left out.
	for _, routes := range []bool{false, true} {
		for _, o := range s.options {
			if (o.code == 121 || o.code == 249) == routes {
				d.setting(o, t)
			}
		}
	}
	if len(s.lease.words) > 0 {
		d.lease(s.lease.at, t.mapping, s.lease.words[0])
	}
	d.bootFile(s, t)
}

// bootFile sets another boot server as options 66 and 67. A file of the same server is a note: profiles say what boots.
func (d *draft) bootFile(s settings, t target) {
	if len(s.file.words) == 0 {
		return
	}
	server := ""
	if len(s.next.words) > 0 && s.next.words[0] != "0.0.0.0" {
		server = s.next.words[0]
	}
	a, err := netip.ParseAddr(server)
	if server == "" || err == nil && slices.ContainsFunc(d.networks, func(n *network) bool { return n.address == a }) {
		d.note(s.file.at, "%s", profileHint)
		return
	}
	t.scope.set(66, option{at: s.next.at, value: "text:" + server})
	t.scope.set(67, option{at: s.file.at, value: "text:" + s.file.words[0]})
}

// routeBytes reads the bytes of option 121 (RFC 3442) as pairs of destination and gateway.
func routeBytes(b []byte) (words []string, err error) {
	for len(b) > 0 {
		bits := int(b[0])
		n := (bits + 7) / 8
		if bits > 32 || len(b) < 1+n+4 {
			return nil, fmt.Errorf("it is not a list of routes")
		}
		var to [4]byte
		copy(to[:], b[1:1+n])
		words = append(words, netip.PrefixFrom(netip.AddrFrom4(to), bits).String(), netip.AddrFrom4([4]byte(b[1+n:5+n])).String())
		b = b[5+n:]
	}
	return words, nil
}

// prefixMACs returns the pattern of all MAC addresses that begin with some bytes, "52:54:00:*:*:*".
func prefixMACs(digits string) (string, bool) {
	b, ok := hexBytes(digits)
	if !ok || len(b) > 6 {
		return "", false
	}
	parts := slices.Repeat([]string{"*"}, 6)
	for i, c := range b {
		parts[i] = fmt.Sprintf("%02x", c)
	}
	return strings.Join(parts, ":"), true
}
