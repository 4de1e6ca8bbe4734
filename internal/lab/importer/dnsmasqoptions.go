package importer

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// dhcpDefaults sets what dnsmasq sends without being told: itself as router.
func (q *dnsmasq) dhcpDefaults() {
	for _, n := range q.networks {
		if n.address.IsValid() && n.value("dhcp") != "proxy" {
			n.set("router", n.at, n.address.String())
		}
	}
}

// dhcpOptions reads dhcp-option, and dhcp-boot where it names another server.
func (q *dnsmasq) dhcpOptions() {
	options := q.take("dhcp-option")
	forced := q.take("dhcp-option-force")
	// Those without tags first, routers before routes: a route to 0.0.0.0/0 by the router is left out.
	for _, untagged := range []bool{true, false} {
		for i, st := range slices.Concat(options, forced) {
			need, rest := optionTags(st.words)
			if len(rest) == 0 || (len(need) == 0) != untagged {
				continue
			}
			q.dhcpOption(st, need, rest, i >= len(options))
		}
	}
	var kept []statement
	for _, st := range q.take("dhcp-boot") {
		_, need, rest := tagsOf(st.words)
		if len(rest) < 3 || q.isOwn(rest[2]) {
			kept = append(kept, st)
			continue
		}
		for _, t := range q.targets(st, need) {
			t.scope.set(66, option{at: st.at, value: "text:" + rest[2]})
			t.scope.set(67, option{at: st.at, value: "text:" + rest[0]})
		}
	}
	if len(kept) > 0 {
		q.statements["dhcp-boot"] = kept
	}
}

// isOwn reports whether a text is an address of dnsmasq itself.
func (q *dnsmasq) isOwn(s string) bool {
	a, err := netip.ParseAddr(s)
	return s == "" || err == nil && slices.ContainsFunc(q.networks, func(n *network) bool { return n.address == a })
}

func (q *dnsmasq) dhcpOption(st statement, need, rest []string, force bool) {
	form, _, _ := strings.Cut(rest[0], ":")
	switch form {
	case "option6":
		q.note(st.at, "DHCPv6 is not served: it is left out")
		return
	case "vendor", "encap", "vi-encap":
		if !slices.ContainsFunc(need, func(n string) bool {
			return q.tags[strings.TrimPrefix(n, "!")] != nil && q.tags[strings.TrimPrefix(n, "!")].boots
		}) && rest[0] != "vendor:PXEClient" {
			q.note(st.at, "options inside of others are written as bytes: options: {\"43\": \"hex:…\"}")
		}
		q.accounted[st.at.on()] = true // bootlab sends those of PXE
		return
	}
	code, ok := optionCode(rest[0])
	if !ok {
		q.note(st.at, "%q is not an option that is known here: set it by its number", rest[0])
		return
	}
	words := slices.DeleteFunc(slices.Clone(rest[1:]), func(w string) bool { return w == "" })
	for _, t := range q.targets(st, need) {
		q.option(st.at, t, code, words, force)
	}
}

// targets returns what a statement with tags is for. It notes a statement that is for nothing.
func (q *dnsmasq) targets(st statement, need []string) (all []target) {
	for _, name := range need {
		bare, negated := strings.CutPrefix(name, "!")
		switch t := q.tags[bare]; {
		case t != nil && t.boots:
			q.note(st.at, "%s", profileHint)
			return nil
		case negated:
			q.note(st.at, "tag:%s is not carried: it is left out", name)
			return nil
		}
	}
	for _, n := range q.networks {
		if q.all(need, func(t string) bool { return q.networkHas(n, t) }) {
			all = append(all, n.target())
			continue
		}
		for _, p := range n.pools {
			if q.all(need, func(t string) bool { return q.networkHas(n, t) || q.poolHas(p, t) }) {
				all = append(all, p.target())
			}
		}
		for _, h := range q.reservedWith(n, need) {
			if q.hostIn(h, n) && q.all(need, func(t string) bool { return q.networkHas(n, t) || q.hostHas(h, t) }) {
				all = append(all, h.target())
			}
		}
	}
	if len(all) == 0 && len(q.networks) > 0 {
		q.note(st.at, "no network, pool or host is all that has the tag %s: it is left out", strings.Join(need, ", "))
	}
	return all
}

// reservedWith returns the reservations that may have all tags, where n gives its clients some.
func (q *dnsmasq) reservedWith(n *network, tags []string) []*reservation {
	for _, name := range tags {
		if t := q.tags[name]; name != "known" && (t == nil || len(t.macs) == 0) && !q.networkHas(n, name) {
			return q.bySet[name]
		}
	}
	return q.reserved
}

func (q *dnsmasq) all(tags []string, has func(string) bool) bool {
	return !slices.ContainsFunc(tags, func(t string) bool { return !has(t) })
}

func (q *dnsmasq) hostIn(h *reservation, n *network) bool {
	return n.subnet.Contains(h.ip) || !h.ip.IsValid() && h.network == n.name
}

// networkHas reports whether every client of n has a tag.
func (q *dnsmasq) networkHas(n *network, name string) bool {
	if slices.Contains(q.interfaces, name) {
		return n.value("interface") == name
	}
	found := false
	for _, r := range q.ranges {
		if r.network == n && !slices.Contains(r.sets, name) {
			return false
		}
		found = found || r.network == n
	}
	return found
}

// poolHas reports whether every client of p has a tag: by the range, or because what the pool matches sets the tag.
func (q *dnsmasq) poolHas(p *pool, name string) bool {
	if slices.ContainsFunc(q.ranges, func(r *dhcpRange) bool {
		return r.pool == p && (slices.Contains(r.sets, name) || slices.Contains(r.needs, name))
	}) {
		return true
	}
	t := q.tags[name]
	if t == nil {
		return false
	}
	for key, patterns := range t.criteria {
		of := p.get(key)
		if of != nil && !slices.ContainsFunc(of.list, func(e *entry) bool { return !slices.Contains(patterns, e.text) }) {
			return true
		}
	}
	return false
}

// hostHas reports whether a machine has a tag by its reservation or its MAC.
func (q *dnsmasq) hostHas(h *reservation, name string) bool {
	if name == "known" || slices.Contains(h.sets, name) {
		return true
	}
	t := q.tags[name]
	return t != nil && len(h.macs) > 0 && slices.ContainsFunc(t.macs, func(p string) bool {
		pattern, err := lab.ParseMACPattern(p)
		mac, err2 := lab.ParseMAC(h.macs[0])
		return err == nil && err2 == nil && pattern.Match(mac)
	})
}

// dhcpIgnore reads which clients get no answer.
func (q *dnsmasq) dhcpIgnore() {
	for _, st := range q.take("dhcp-ignore") {
		need, more := optionTags(st.words)
		for _, w := range more { // without a prefix
			need = append(need, bareTag(w))
		}
		if slices.Equal(need, []string{"!known"}) {
			q.knownOnly(st)
			continue
		}
		found := false
		for _, h := range q.reserved {
			if len(need) > 0 && q.all(need, func(t string) bool { return q.hostHas(h, t) }) {
				h.need("dhcp", st.at, "off")
				found = true
			}
		}
		if !found || !slices.ContainsFunc(need, q.ofHostsOnly) {
			q.weaker(st.at, "machines without a line of their own cannot be ignored: give pools criteria that leave them out")
		}
	}
}

// ofHostsOnly reports whether only machines with a reservation can have a tag.
func (q *dnsmasq) ofHostsOnly(name string) bool {
	if name == "known" {
		return true
	}
	t := q.tags[name]
	if t == nil || t.boots || t.other != "" || len(t.criteria) > 1 || len(t.macs) > 0 || len(q.bySet[name]) == 0 {
		return false
	}
	return !slices.ContainsFunc(t.criteria["mac"], func(p string) bool { return strings.Contains(p, "*") }) &&
		!slices.ContainsFunc(q.ranges, func(r *dhcpRange) bool { return slices.Contains(r.sets, name) })
}

// knownOnly restricts all pools to the hosts without a reserved address.
func (q *dnsmasq) knownOnly(st statement) {
	known := q.knownMACs()
	q.accounted[st.at.on()] = true
	for _, n := range q.networks {
		n.pools = slices.DeleteFunc(n.pools, func(p *pool) bool {
			own := known
			if e := p.get("mac"); e != nil {
				own = matching(texts(e.list), known)
			}
			if len(own) == 0 {
				q.note(p.at, "no machine that %s (%s:%d) leaves is without a reservation: the pool is left out", clip(st.at.text), st.at.file, st.at.line)
				return true
			}
			p.needList("mac", st.at, own...)
			return false
		})
	}
}

// matching returns the MAC addresses that one of the patterns matches.
func matching(patterns, macs []string) []string {
	return slices.DeleteFunc(slices.Clone(macs), func(s string) bool {
		mac, err := lab.ParseMAC(s)
		return err != nil || !slices.ContainsFunc(patterns, func(p string) bool {
			pattern, err := lab.ParseMACPattern(p)
			return err == nil && pattern.Match(mac)
		})
	})
}
