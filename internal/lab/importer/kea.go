package importer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// kea reads the DHCPv4 part of a configuration of Kea: a file, or the answer of config-get.
type kea struct {
	*draft
	classes  map[string]map[string]string // criteria of a pool, by class
	defined  map[string]definition        // options of option-def, by name
	open     []string                     // interfaces-config
	deferred []func()                     // hosts, which need all networks
}

// A node is a JSON value with its line. encoding/json into structs would lose the lines, and members that are not known.
type node struct {
	at      place
	text    string // of a string, a number, true, false or null
	members []member
	items   []*node
}

type member struct {
	name string
	node *node
}

func (n *node) get(name string) *node {
	if n != nil {
		for _, m := range n.members {
			if m.name == name {
				return m.node
			}
		}
	}
	return nil
}

func (n *node) value(name string) string {
	if m := n.get(name); m != nil {
		return m.text
	}
	return ""
}

func (n *node) list(name string) []*node {
	if m := n.get(name); m != nil {
		return m.items
	}
	return nil
}

func readKea(d *draft, s *sources, names []string) error {
	k := &kea{draft: d, classes: map[string]map[string]string{}, defined: map[string]definition{}}
	d.needsDomain = true
	for _, name := range names {
		data, err := s.read(name)
		if err != nil {
			return err
		}
		root, err := parseJSON(name, data)
		if err != nil {
			return err
		}
		if len(root.items) == 1 {
			root = root.items[0] // the answer of config-get
		}
		if arguments := root.get("arguments"); arguments != nil {
			root = arguments
		}
		dhcp4 := root.get("Dhcp4")
		if dhcp4 == nil {
			return fmt.Errorf("%s: there is no Dhcp4: want the configuration of kea-dhcp4, or the answer of config-get", name)
		}
		k.server(dhcp4)
	}
	for _, f := range k.deferred {
		f()
	}
	return nil
}

// maxDepth is how deep values may be nested.
const maxDepth = 64

// parseJSON reads JSON with the comments that Kea permits: # and // to the end of a line, and /* */.
func parseJSON(file string, data []byte) (*node, error) {
	data = withoutComments(data)
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	line, counted := 1, int64(0)
	here := func() int {
		line += bytes.Count(data[counted:dec.InputOffset()], []byte("\n"))
		counted = dec.InputOffset()
		return line
	}
	var read func(name string, depth int) (*node, error)
	read = func(name string, depth int) (*node, error) {
		token, err := dec.Token()
		n := &node{at: place{file, here(), name}}
		if err != nil {
			return nil, err
		}
		if depth > maxDepth {
			return nil, fmt.Errorf("more than %d levels", maxDepth)
		}
		switch token {
		case json.Delim('{'):
			for dec.More() {
				key, err := dec.Token()
				if err != nil {
					return nil, err
				}
				v, err := read(fmt.Sprint(key), depth+1)
				if err != nil {
					return nil, err
				}
				n.members = append(n.members, member{fmt.Sprint(key), v})
			}
			_, err = dec.Token()
		case json.Delim('['):
			for dec.More() {
				v, err := read(name, depth+1)
				if err != nil {
					return nil, err
				}
				n.items = append(n.items, v)
			}
			_, err = dec.Token()
		default:
			n.text = fmt.Sprint(token)
			n.at.text += ": " + n.text
		}
		return n, err
	}
	n, err := read("", 0)
	if err != nil {
		if bytes.Contains(data, []byte("<?include")) {
			return nil, fmt.Errorf("%s:%d: not JSON: %w: <?include?> is not read; import the answer of config-get", file, here(), err)
		}
		return nil, fmt.Errorf("%s:%d: not JSON: %w", file, here(), err)
	}
	return n, nil
}

// withoutComments replaces comments by blanks, so that lines stay the same.
func withoutComments(data []byte) []byte {
	out := slices.Clone(data)
	for i := 0; i < len(out); i++ {
		end := -1
		switch {
		case out[i] == '"':
			for i++; i < len(out) && out[i] != '"'; i++ {
				if out[i] == '\\' {
					i++
				}
			}
			continue
		case out[i] == '#', bytes.HasPrefix(out[i:], []byte("//")):
			end = bytes.IndexByte(out[i:], '\n')
		case bytes.HasPrefix(out[i:], []byte("/*")):
			if end = bytes.Index(out[i:], []byte("*/")); end >= 0 {
				end += 2
			}
		default:
			continue
		}
		if end < 0 {
			end = len(out) - i
		}
		for j := i; j < i+end; j++ {
			if out[j] != '\n' {
				out[j] = ' '
			}
		}
		i += end - 1
	}
	return out
}

// keaSilent are members that bootlab does by itself, that do not matter, or that other functions read.
const keaSilent = `interfaces-config subnet4 shared-networks option-data option-def client-classes reservations valid-lifetime min-valid-lifetime
	max-valid-lifetime renew-timer rebind-timer calculate-tee-times t1-percent t2-percent lease-database authoritative match-client-id echo-client-id next-server
	boot-file-name server-hostname control-socket control-sockets loggers expired-leases-processing multi-threading sanity-checks reservations-global reservations-in-subnet
	reservations-out-of-pool reservations-lookup-first host-reservation-identifiers reservation-mode dhcp-queue-control dhcp4o6-port parked-packet-limit decline-probation-period
	statistic-default-sample-count statistic-default-sample-age server-tag store-extended-info cache-threshold cache-max-age ip-reservations-unique early-global-reservations-lookup
	hostname-char-set hostname-char-replacement compatibility user-context comment id subnet interface pools relay name pool pool-id client-class test
	allocator offer-lifetime hw-address ip-address hostname client-classes 4o6-interface 4o6-interface-id 4o6-subnet hosts-databases hosts-database config-control ddns-use-conflict-resolution`

// unread notes members that have no equivalent.
func (k *kea) unread(n *node) {
	for _, m := range n.members {
		switch {
		case listed(keaSilent, m.name):
		case strings.HasPrefix(m.name, "ddns-") || m.name == "dhcp-ddns":
			if m.name == "ddns-send-updates" && m.node.text == "true" {
				k.note(m.node.at, "names of clients are served here, and not sent to another DNS server")
			}
		case m.name == "hooks-libraries":
			for _, h := range m.node.items {
				library := h.value("library")
				if strings.Contains(library, "_limits") || strings.Contains(library, "_radius") || strings.Contains(library, "_user_chk") {
					k.weaker(h.at, "there is no hook: %s is left out", library)
				} else if library != "" && !strings.Contains(library, "lease_cmds") && !strings.Contains(library, "stat_cmds") && !strings.Contains(library, "ping_check") {
					k.note(h.at, "there is no hook: %s is left out", library)
				}
			}
		default:
			k.note(m.node.at, "there is no equivalent: it is left out")
		}
	}
}

func (k *kea) server(n *node) {
	k.unread(n)
	for _, i := range n.get("interfaces-config").list("interfaces") {
		if name, _, _ := strings.Cut(i.text, "/"); name != "*" {
			k.open = append(k.open, name)
		}
	}
	for _, def := range n.list("option-def") {
		if code, ok := optionCode(def.value("code")); ok && (def.value("space") == "" || def.value("space") == "dhcp4") {
			k.defined[def.value("name")] = keaDefinition(code, def)
		}
	}
	for _, class := range n.list("client-classes") {
		k.class(class)
	}
	global := k.settings(n)
	for _, subnet := range n.list("subnet4") {
		k.subnet(subnet, global, nil)
	}
	for _, shared := range n.list("shared-networks") {
		k.unread(shared)
		k.ofClass(shared)
		inner := k.settings(shared).within(global)
		for _, subnet := range shared.list("subnet4") {
			k.subnet(subnet, inner, shared)
		}
	}
	for _, r := range n.list("reservations") {
		k.deferred = append(k.deferred, func() { k.reservation(r, nil) })
	}
}

// settings reads the options and times of a scope.
func (k *kea) settings(n *node) (s settings) {
	for _, o := range n.list("option-data") {
		name := o.value("name")
		def, ok := k.definition(o)
		space := o.value("space")
		switch {
		case space != "" && space != "dhcp4":
			k.note(o.at, "options inside of others are written as bytes: options: {\"43\": \"hex:…\"}")
		case !ok:
			k.note(o.at, "option %s is not known here: set it by its number", name)
		default:
			o.at.text = "option-data: " + strings.Trim(name+" "+o.value("data"), " ")
			s.options = append(s.options, def.keaSetting(o))
		}
	}
	k.times(n)
	for name, v := range map[string]*setting{"valid-lifetime": &s.lease, "next-server": &s.next, "boot-file-name": &s.file} {
		if m := n.get(name); m != nil && m.text != "" {
			*v = setting{at: m.at, words: []string{m.text}}
		}
	}
	return s
}

// times notes when clients are to renew and rebind, unless they do so then anyway (RFC 2131 section 4.4.5).
func (k *kea) times(n *node) {
	lease, _ := strconv.ParseUint(n.value("valid-lifetime"), 10, 32)
	for _, t := range []struct {
		key, does, share string
		seconds          uint64
	}{{"renew-timer", "renew", "half", lease / 2}, {"rebind-timer", "rebind", "7/8", lease * 7 / 8}} {
		if m := n.get(t.key); m != nil && (lease == 0 || m.text != fmt.Sprint(t.seconds)) {
			k.note(m.at, "clients %s after %s of the lease (RFC 2131): it is left out", t.does, t.share)
		}
	}
}

// relayed reports whether a subnet or shared network is of clients behind a relay. Kea 1.4 writes one address, 0.0.0.0 for none.
func relayed(n *node) bool {
	relay := n.get("relay")
	one := relay.value("ip-address")
	return len(relay.list("ip-addresses")) > 0 || one != "" && one != "0.0.0.0"
}

// subnet adds a network; shared is the shared network that it is in, or nil.
func (k *kea) subnet(n *node, outer settings, shared *node) {
	k.unread(n)
	p, err := netip.ParsePrefix(n.value("subnet"))
	if err != nil || !p.Addr().Is4() {
		k.note(n.at, "%q is not an IPv4 prefix: it is left out", n.value("subnet"))
		return
	}
	at := n.get("subnet").at
	net := k.addNetwork(at, "", p)
	iface := cmp.Or(n.value("interface"), shared.value("interface"))
	if iface == "" && len(k.open) == 1 && !relayed(n) && !relayed(shared) {
		iface = k.open[0]
	}
	if iface != "" {
		net.set("interface", at, iface)
	}
	net.relayed = relayed(n) || relayed(shared)
	k.apply(k.settings(n).within(outer), net.target())
	k.ofClass(n)
	for _, p := range n.list("pools") {
		k.pool(net, p)
	}
	for _, r := range n.list("reservations") {
		k.deferred = append(k.deferred, func() { k.reservation(r, net) })
	}
}

// ofClass notes that a subnet or a shared network is for clients of a class.
func (k *kea) ofClass(n *node) {
	for _, name := range []string{"client-class", "client-classes"} {
		if class := n.get(name); class != nil && (class.text != "" || len(class.items) > 0) {
			k.weaker(class.at, "a class is of pools: it is left out here")
		}
	}
}

func (k *kea) pool(net *network, n *node) {
	k.unread(n)
	text := n.value("pool")
	a, b, ok := strings.Cut(text, "-")
	first, err := netip.ParseAddr(strings.TrimSpace(a))
	last, err2 := netip.ParseAddr(strings.TrimSpace(b))
	if p, notPrefix := netip.ParsePrefix(strings.TrimSpace(text)); !ok && notPrefix == nil && p.Addr().Is4() {
		first, last, err, err2 = p.Masked().Addr(), lastOf(p), nil, nil
	}
	if err != nil || err2 != nil {
		k.note(n.at, "%q is not a range: it is left out", text)
		return
	}
	class := n.value("client-class")
	if all := n.list("client-classes"); class == "" && len(all) == 1 {
		class = all[0].text
	} else if class == "" && len(all) > 1 {
		k.note(n.at, "a pool matches one class: the pool is left out")
		return
	}
	criteria, known := k.classes[class]
	if class != "" && class != "ALL" && !known {
		k.note(n.at, "the clients of class %s cannot be expressed by one key of a pool: the pool is left out", class)
		return
	}
	name := class
	if name == "" {
		name = "guests"
	}
	p := net.addPool(n.get("pool").at, name, first, last)
	for key, pattern := range criteria {
		p.needList(key, n.at, pattern)
	}
	k.apply(k.settings(n), p.target())
}

// lastOf returns the last address of an IPv4 prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}

// Tests of classes that a pool has a key for.
var (
	keaVendor = regexp.MustCompile(`^substring\(option\[(?:60|vendor-class-identifier)\]\.(?:hex|text),\s*0,\s*\d+\)\s*==\s*'([^']+)'$`)
	keaArch   = regexp.MustCompile(`^option\[(?:93|client-system)\]\.hex\s*==\s*0x([0-9A-Fa-f]{4})$`)
	keaMAC    = regexp.MustCompile(`^substring\(pkt4\.mac,\s*0,\s*\d\)\s*==\s*0x([0-9A-Fa-f]{2,12})$`)
	keaHexMAC = regexp.MustCompile(`^substring\(hexstring\(pkt4\.mac,\s*':'\),\s*0,\s*\d+\)\s*==\s*'([0-9A-Fa-f:]+)'$`)
)

// class reads a client class. Classes about boot files need nothing; others that no pool can match are notes.
func (k *kea) class(n *node) {
	name, test := n.value("name"), strings.TrimSpace(n.value("test"))
	n.at.text = "class " + name
	if m := keaVendor.FindStringSubmatch(test); m != nil {
		k.classes[name] = map[string]string{"vendor_class": m[1] + "*"}
	} else if m := keaArch.FindStringSubmatch(test); m != nil {
		var code int
		_, _ = fmt.Sscanf(m[1], "%x", &code) // the expression has four digits
		k.classes[name] = map[string]string{"arch": fmt.Sprint(code)}
	} else if m := append(keaMAC.FindStringSubmatch(test), keaHexMAC.FindStringSubmatch(test)...); m != nil {
		if pattern, ok := prefixMACs(strings.TrimSuffix(m[1], ":")); ok {
			k.classes[name] = map[string]string{"mac": pattern}
		}
	}
	if file := n.get("boot-file-name"); file != nil {
		k.note(file.at, "%s", profileHint)
	}
	if name == "DROP" {
		k.weaker(n.at, "machines without a line of their own cannot be ignored: give pools criteria that leave them out")
	}
	for _, o := range n.list("option-data") {
		k.note(o.at, "options are of networks, pools and hosts, not of classes: option %s%s is left out", o.value("name"), o.value("code"))
	}
}

// reservation adds a host. The network is nil for one of all networks.
func (k *kea) reservation(n *node, net *network) {
	k.unread(n)
	mac := n.value("hw-address")
	h := &host{at: n.at, name: n.value("hostname")}
	h.at.text = strings.Join(strings.Fields("reservation "+mac+" "+n.value("ip-address")), " ")
	if mac == "" {
		note := k.note
		if slices.ContainsFunc(n.list("client-classes"), func(c *node) bool { return c.text == "DROP" }) {
			note = k.weaker
		}
		note(h.at, "machines are known by MAC: it is left out")
		return
	}
	h.macs = []string{mac}
	if a, err := netip.ParseAddr(n.value("ip-address")); err == nil && a.Is4() {
		h.ip = a
	}
	if net == nil && len(k.networks) > 0 {
		net = k.networks[0]
		if len(k.networks) > 1 && !h.ip.IsValid() {
			k.note(h.at, "its network is not in the file: %s is assumed", net.name)
		}
	}
	if net != nil {
		h.network = net.name
	}
	for _, class := range n.list("client-classes") {
		if class.text == "DROP" {
			h.need("dhcp", class.at, "off")
			continue
		}
		k.note(class.at, "a host has no class: set its options, or its profile")
	}
	k.apply(k.settings(n), h.target())
	k.hosts = append(k.hosts, h)
}
