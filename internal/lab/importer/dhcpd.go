package importer

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A clause is a statement of dhcpd.conf: words, and perhaps a block. Strings are words without their quotes.
type clause struct {
	at    place
	words []string
	block []*clause
	has   bool // it has a block
}

// maxBlocks is how deep blocks may be nested.
const maxBlocks = 32

// parseDHCPD reads a file of clauses, with those that it includes in their place.
func parseDHCPD(s *sources, name string, depth int) ([]*clause, error) {
	if depth > maxIncludes {
		return nil, fmt.Errorf("read %s: %d files include each other", name, depth)
	}
	data, err := s.read(name)
	if err != nil {
		return nil, err
	}
	p := &clauses{file: name, tokens: dhcpdTokens(string(data))}
	all, err := p.block(0)
	if err != nil {
		return nil, err
	}
	return include(s, all, name, depth)
}

// include replaces each include by the clauses of its file.
func include(s *sources, all []*clause, from string, depth int) (out []*clause, err error) {
	for _, c := range all {
		if c.words[0] == "include" && len(c.words) == 2 {
			more, err := parseDHCPD(s, s.path(c.words[1], from), depth+1)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", c.at.file, c.at.line, err)
			}
			out = append(out, more...)
			continue
		}
		if c.block, err = include(s, c.block, from, depth); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// A token is a word, a string, or one of ; { } and comma.
type token struct {
	line int
	text string
	kind byte // 'w' a word, 's' a string, or the character itself
}

// dhcpdTokens splits a text. Comments begin with #.
func dhcpdTokens(s string) (all []token) {
	line := 1
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '\n':
			line++
			i++
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case c == '#':
			for i < len(s) && s[i] != '\n' {
				i++
			}
		case strings.IndexByte(";{},", c) >= 0:
			all = append(all, token{line, string(c), c})
			i++
		case c == '"':
			var b strings.Builder
			begin := line
			for i++; i < len(s) && s[i] != '"'; i++ {
				if s[i] == '\\' && i+1 < len(s) {
					i++
				}
				if s[i] == '\n' {
					line++
				}
				b.WriteByte(s[i])
			}
			all = append(all, token{begin, b.String(), 's'})
			i++
		default:
			from := i
			for i < len(s) && strings.IndexByte(" \t\r\n;{},\"#", s[i]) < 0 {
				i++
			}
			all = append(all, token{line, s[from:i], 'w'})
		}
	}
	return all
}

type clauses struct {
	file   string
	tokens []token
	next   int
}

// block reads clauses up to the end of the file, or of the block.
func (p *clauses) block(depth int) (all []*clause, err error) {
	c := &clause{}
	begins := p.next
	for p.next < len(p.tokens) {
		t := p.tokens[p.next]
		p.next++
		if len(c.words) == 0 {
			c.at = place{file: p.file, line: t.line}
		}
		switch t.kind {
		case ',':
		case 'w', 's':
			c.words = append(c.words, t.text)
		case ';':
			all = finish(all, c)
			c = &clause{}
		case '{':
			if n := len(c.words); n > 0 && c.words[n-1] == "=" { // the types of an option
				for ; p.next < len(p.tokens) && p.tokens[p.next].kind != '}'; p.next++ {
					if p.tokens[p.next].kind == 'w' {
						c.words = append(c.words, p.tokens[p.next].text)
					}
				}
				p.next++
				continue
			}
			if depth >= maxBlocks || len(c.words) == 0 {
				return nil, fmt.Errorf("%s:%d: a block is not possible here", p.file, t.line)
			}
			c.has = true
			if c.block, err = p.block(depth + 1); err != nil {
				return nil, err
			}
			all = finish(all, c)
			c = &clause{}
		case '}':
			if depth == 0 {
				return nil, fmt.Errorf("%s:%d: } without {", p.file, t.line)
			}
			if len(c.words) > 0 {
				return nil, fmt.Errorf("%s:%d: a semicolon is missing", p.file, t.line)
			}
			return all, nil
		}
	}
	switch {
	case len(c.words) > 0:
		return nil, fmt.Errorf("%s:%d: a semicolon is missing: the statement does not end", p.file, c.at.line)
	case depth > 0:
		return nil, fmt.Errorf("%s:%d: the block that begins here is not closed: want } in a line below", p.file, p.tokens[begins-1].line)
	}
	return all, nil
}

// finish adds a clause that is complete, unless it is empty.
func finish(all []*clause, c *clause) []*clause {
	if len(c.words) == 0 {
		return all
	}
	c.at.text = strings.Join(c.words, " ")
	return append(all, c)
}

// dhcpd reads the configuration of ISC dhcpd.
type dhcpd struct {
	*draft
	defined  map[string]definition // options that the file defines, by name
	deferred []func()              // hosts, which need all networks
}

func readDHCPD(d *draft, s *sources, names []string) error {
	d.needsDomain = true
	r := &dhcpd{draft: d, defined: map[string]definition{}}
	for _, name := range names {
		all, err := parseDHCPD(s, name, 0)
		if err != nil {
			return err
		}
		r.noBooting(all)
		r.scope(all, r.settings(all), settings{}, nil)
	}
	for _, f := range r.deferred {
		f()
	}
	return nil
}

// dhcpdSilent are statements that bootlab does by itself, that do not matter, or that other functions read.
const dhcpdSilent = `authoritative ddns-update-style ddns-updates log-facility max-lease-time min-lease-time one-lease-per-client get-lease-hostnames
	use-host-decl-names ping-check ping-timeout update-static-leases local-address local-port omapi-port omapi-key lease-file-name pid-file-name db-time-format
	adaptive-lease-time-threshold infinite-is-reserved stash-agent-options ignore-client-uids server-identifier server-name always-broadcast always-reply-rfc1048
	dhcp-cache-threshold delayed-ack max-ack-delay deny allow ignore option range default-lease-time next-server filename hardware fixed-address not
	update-optimization update-conflict-detection boot-unknown-clients dynamic-bootp-lease-length vendor-option-space min-secs interface shared-network`

// scope reads the statements of a block. of are the settings of subnets in it, with those around it; group are those of the groups that
// hosts in it are in; n is the network that it is in.
func (r *dhcpd) scope(all []*clause, of, group settings, n *network) {
	r.unread(all)
	for _, c := range all {
		switch w := c.words; {
		case !c.has:
		case w[0] == "subnet" && len(w) == 4:
			r.subnet(c, of, group)
		case w[0] == "shared-network":
			r.noBooting(c.block)
			r.scope(c.block, r.settings(c.block).within(of), group, n)
		case w[0] == "group":
			s := r.settings(c.block)
			r.noBooting(c.block)
			r.scope(c.block, s.within(of), s.within(group), n)
		case w[0] == "pool" && n != nil:
			r.unread(c.block)
			r.pool(c, of, n)
		case w[0] == "host":
			r.unread(c.block)
			r.deferred = append(r.deferred, func() { r.host(c, group, n) })
		}
	}
}

// noBooting notes a block, not that of a host, whose machines get no answer.
func (r *dhcpd) noBooting(all []*clause) {
	for _, c := range all {
		if c.refusesBooting() {
			r.weaker(c.at, "machines are ignored one by one, by dhcp: off of a host: these are served")
		}
	}
}

// refusesBooting reports whether clients that c is for get no answer.
func (c *clause) refusesBooting() bool {
	return len(c.words) == 2 && (c.words[0] == "deny" || c.words[0] == "ignore") && c.words[1] == "booting"
}

// limits reports whether a class or an expression keeps clients out, or gives them few leases.
func (c *clause) limits() bool {
	return c.refusesBooting() || len(c.words) > 1 && c.words[0] == "lease" && c.words[1] == "limit" || slices.ContainsFunc(c.block, (*clause).limits)
}

// unread notes the statements of a block that have no equivalent.
func (r *dhcpd) unread(all []*clause) {
	for _, c := range all {
		note := r.note
		if c.limits() {
			note = r.weaker
		}
		switch w := c.words[0]; {
		case c.has && (w == "subnet" || w == "shared-network" || w == "group" || w == "pool" || w == "host"):
		case w == "class" || w == "subclass":
			note(c.at, "a pool matches arch, vendor_class, user_class, circuit_id and remote_id; boot files follow from the firmware: the class is left out")
		case w == "if" || w == "elsif" || w == "else" || w == "on" || w == "switch":
			note(c.at, "expressions are left out; boot files follow from the firmware once a host or pool has a profile")
		case w == "subnet6" || w == "shared-network6" || w == "range6":
			r.note(c.at, "DHCPv6 is not served: it is left out")
		case w == "failover":
			r.note(c.at, "there are no failover pairs: it is left out")
		case w == "zone" || w == "key":
			r.note(c.at, "names of clients are served here, and not sent to another DNS server")
		case c.has || !listed(dhcpdSilent, w):
			r.note(c.at, "there is no equivalent: it is left out")
		}
	}
}

// settings reads the options and times of a block.
func (r *dhcpd) settings(all []*clause) (s settings) {
	for _, c := range all {
		w := c.words
		if only, ok := knownClients(w); ok {
			s.clients = setting{at: c.at, words: []string{only}}
		}
		switch {
		case c.has || len(w) < 2:
		case w[0] == "option":
			if o, ok := r.option(c); ok {
				s.options = append(s.options, o)
			}
		case w[0] == "default-lease-time":
			s.lease = setting{at: c.at, words: w[1:2]}
		case w[0] == "next-server":
			s.next = setting{at: c.at, words: w[1:2]}
		case w[0] == "filename":
			s.file = setting{at: c.at, words: w[1:2]}
		}
	}
	return s
}

// knownClients reads whether machines without a host get an address: "known" or "all".
func knownClients(w []string) (clients string, ok bool) {
	switch strings.ReplaceAll(strings.Join(w, " "), "unknown clients", "unknown-clients") {
	case "deny unknown-clients", "ignore unknown-clients", "boot-unknown-clients off", "boot-unknown-clients false":
		return "known", true
	case "allow unknown-clients", "boot-unknown-clients on", "boot-unknown-clients true":
		return "all", true
	}
	return "", false
}

// option reads a value, or the definition of an option: option NAME code N = TYPE.
func (r *dhcpd) option(c *clause) (setting, bool) {
	name, words := c.words[1], c.words[2:]
	if len(words) > 1 && words[0] == "code" {
		if code, ok := optionCode(words[1]); ok && !strings.Contains(name, ".") {
			r.defined[name] = dhcpdDefinition(code, words[2:])
		}
		return setting{}, false
	}
	def, ok := r.defined[name]
	code := def.code
	if !ok {
		code, ok = optionCode(strings.TrimPrefix(name, "dhcp."))
	}
	switch {
	case name == "space":
		return setting{}, false
	case strings.Contains(name, ".") && !ok:
		r.note(c.at, "options inside of others are written as bytes: options: {\"43\": \"hex:…\"}")
		return setting{}, false
	case !ok:
		r.note(c.at, "option %s is not known here: set it by its number", name)
		return setting{}, false
	case slices.Contains(words, "="):
		r.note(c.at, "expressions are left out")
		return setting{}, false
	case code == 121 || code == 249:
		b := make([]byte, 0, len(words))
		for _, w := range words {
			n, err := strconv.ParseUint(w, 0, 8)
			if err != nil {
				break
			}
			b = append(b, byte(n))
		}
		routes, err := routeBytes(b)
		if err != nil || len(b) != len(words) {
			r.note(c.at, "it is not a list of routes: it is left out")
			return setting{}, false
		}
		return setting{at: c.at, code: code, words: routes}, true
	}
	return setting{at: c.at, code: code, words: words, fields: def.fields}, true
}

func (r *dhcpd) subnet(c *clause, of, group settings) {
	a, err := netip.ParseAddr(c.words[1])
	mask, err2 := netip.ParseAddr(c.words[3])
	if err != nil || err2 != nil || maskBits(mask) == 0 || c.words[2] != "netmask" || !a.Is4() {
		r.note(c.at, "want subnet ADDRESS netmask MASK: it is left out")
		return
	}
	n := r.addNetwork(c.at, "", netip.PrefixFrom(a, maskBits(mask)))
	s := r.settings(c.block).within(of)
	r.apply(s, n.target())
	for _, i := range c.block {
		if i.words[0] == "interface" && len(i.words) == 2 {
			n.set("interface", i.at, i.words[1])
		}
	}
	r.noBooting(c.block)
	r.ranges(c.block, n, s, settings{})
	r.scope(c.block, s, group, n)
}

func (r *dhcpd) pool(c *clause, of settings, n *network) {
	s := r.settings(c.block)
	r.noBooting(c.block)
	r.ranges(c.block, n, s.within(of), s)
}

// ranges makes a pool of each range of a block, with the settings own. A block that some clients may not use is noted, or, where those of
// and around it say so, left out.
func (r *dhcpd) ranges(all []*clause, n *network, of, own settings) {
	const knownHint = "a pool for known machines needs their mac: the pools here are left out, and hosts keep their addresses"
	known := false
	if clients := of.clients; first(clients.words) == "known" {
		known = true
		r.note(clients.at, knownHint)
	}
	for _, c := range all {
		if c.words[0] != "allow" && c.words[0] != "deny" && c.words[0] != "ignore" || c.has {
			continue
		}
		if _, ok := knownClients(c.words); ok || c.refusesBooting() {
			continue
		}
		switch rule := strings.Join(c.words, " "); rule {
		case "allow known-clients", "allow known clients":
			known = true
			r.note(c.at, knownHint)
		case "allow booting", "allow bootp", "deny bootp", "ignore client-updates", "deny client-updates", "allow client-updates", "allow all clients",
			"deny duplicates", "allow duplicates", "deny declines", "ignore declines", "allow declines", "ignore bootp":
		default:
			r.weaker(c.at, "pools select clients by their own keys: this rule is left out")
		}
	}
	for _, c := range all {
		w := c.words
		if w[0] != "range" || c.has || known {
			continue
		}
		if len(w) > 1 && w[1] == "dynamic-bootp" {
			w = w[1:]
		}
		if len(w) == 2 {
			w = append(slices.Clone(w), w[1])
		}
		if len(w) != 3 {
			r.note(c.at, "want range FIRST LAST: it is left out")
			continue
		}
		first, err := netip.ParseAddr(w[1])
		last, err2 := netip.ParseAddr(w[2])
		if err != nil || err2 != nil {
			r.note(c.at, "want two addresses: it is left out")
			continue
		}
		p := n.addPool(c.at, "guests", first, last)
		r.apply(own, p.target())
	}
}

func (r *dhcpd) host(c *clause, group settings, in *network) {
	h := &host{at: c.at}
	if len(c.words) > 1 {
		h.name = c.words[1]
	}
	if in != nil {
		h.network = in.name
	} else if len(r.networks) > 0 {
		h.network = r.networks[0].name
	}
	for _, i := range c.block {
		w := i.words
		switch {
		case w[0] == "hardware" && len(w) == 3:
			h.macs = append(h.macs, fullMAC(w[2]))
		case w[0] == "fixed-address":
			for j, text := range w[1:] {
				a, err := netip.ParseAddr(text)
				if err != nil && r.o.Lookup != nil {
					a = r.o.Lookup(text)
				}
				switch {
				case !a.IsValid():
					r.note(i.at, "%s has no address here: it is left out", text)
				case j == 0:
					h.ip = a.Unmap()
				default:
					r.note(i.at, "a host has one address: %s is left out", text)
				}
			}
		case w[0] == "option" && len(w) == 3 && w[1] == "host-name":
			h.name = w[2]
		case i.refusesBooting():
			h.need("dhcp", i.at, "off")
		}
	}
	if len(h.macs) == 0 {
		note := r.note
		if h.get("dhcp") != nil {
			note = r.weaker
		}
		note(c.at, "machines are known by MAC: it is left out")
		return
	}
	s := r.settings(c.block).within(group)
	s.options = slices.DeleteFunc(s.options, func(o setting) bool { return o.code == 12 })
	r.apply(s, h.target())
	r.hosts = append(r.hosts, h)
}
