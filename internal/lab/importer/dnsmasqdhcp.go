package importer

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// A dhcpRange is a dhcp-range.
type dhcpRange struct {
	st          statement
	sets, needs []string
	first, last netip.Addr
	mask        int // bits; 0: not in the file
	mode        string
	lease       string
	network     *network
	pool        *pool // nil: static or proxy
}

// A reservation is a dhcp-host.
type reservation struct {
	byID bool // it names a client identifier
	*host
	sets    []string
	ignored bool
}

// dhcpRanges makes networks and pools.
func (q *dnsmasq) dhcpRanges() {
	q.reservations()
	for _, st := range q.take("dhcp-range") {
		if r, ok := q.parseRange(st); ok {
			q.ranges = append(q.ranges, r)
		}
	}
	for _, r := range q.ranges {
		r.network = q.rangeNetwork(r)
		switch {
		case r.mode == "proxy":
			r.network.set("dhcp", r.st.at, "proxy")
		case r.last.IsValid():
			q.rangePool(r)
		default: // the network and its hosts
			q.accounted[r.st.at.on()] = true
		}
		if r.lease == "" {
			r.lease = "1h" // dnsmasq's default
		}
		if r.pool != nil && r.network.value("lease") != "" {
			q.lease(r.st.at, &r.pool.mapping, r.lease)
			if r.pool.value("lease") == r.network.value("lease") {
				r.pool.prune(map[*entry]bool{r.pool.get("lease"): true})
			}
		} else if r.mode != "proxy" {
			q.lease(r.st.at, &r.network.mapping, r.lease)
		}
	}
}

func (q *dnsmasq) parseRange(st statement) (*dhcpRange, bool) {
	r := &dhcpRange{st: st}
	var rest []string
	r.sets, r.needs, rest = tagsOf(st.words)
	if len(rest) > 1 {
		if _, err := netip.ParseAddr(rest[0]); err != nil && !strings.Contains(rest[0], ":") {
			r.sets, rest = append(r.sets, rest[0]), rest[1:] // the tag of older files
		}
	}
	if len(rest) == 0 || strings.Contains(rest[0], ":") {
		q.note(st.at, "DHCPv6 and router advertisements are not sent: it is left out")
		return nil, false
	}
	var err error
	if r.first, err = netip.ParseAddr(rest[0]); err != nil || !r.first.Is4() {
		q.note(st.at, "%q is not an IPv4 address: it is left out", rest[0])
		return nil, false
	}
	for _, w := range rest[1:] {
		a, err := netip.ParseAddr(w)
		switch bits := maskBits(a); {
		case err == nil && bits > 0:
			r.mask = bits
		case err == nil && !r.last.IsValid() && a.Is4():
			r.last = a
		case err == nil: // the broadcast address
		case w == "static" || w == "proxy":
			r.mode = w
		case w != "":
			r.lease = w
		}
	}
	return r, true
}

// maskBits returns the length of a netmask, or 0.
func maskBits(a netip.Addr) int {
	if !a.Is4() {
		return 0
	}
	b := a.As4()
	n := binary.BigEndian.Uint32(b[:])
	bits := 0
	for n&(1<<31) != 0 {
		n <<= 1
		bits++
	}
	if n != 0 {
		return 0
	}
	return bits
}

// rangeNetwork returns the network of a range.
func (q *dnsmasq) rangeNetwork(r *dhcpRange) *network {
	if n := q.networkOf(r.first); n != nil {
		return n
	}
	name := ""
	for _, t := range append(slices.Clone(r.sets), r.needs...) {
		if q.tags[t] == nil && t != "known" && t[0:min(1, len(t))] != "!" {
			name = t
		}
	}
	return q.dnsmasqNetwork(r.st.at, name, r.first, r.mask, r.needs)
}

// dnsmasqNetwork makes the network of an address. dnsmasq takes the netmask from the interface; where that is not on this machine, it
// is /24.
func (q *dnsmasq) dnsmasqNetwork(at place, name string, a netip.Addr, bits int, tags []string) *network {
	iface, own := "", netip.Prefix{}
	if q.o.Interface != nil {
		iface, own = q.o.Interface(a)
	}
	switch {
	case bits > 0:
	case iface != "":
		bits = own.Bits()
	default:
		bits = 24
		q.note(at, "the netmask is not in the file: subnet %s is assumed", netip.PrefixFrom(a, bits).Masked())
	}
	subnet := netip.PrefixFrom(a, bits).Masked()
	n := q.addNetwork(at, name, subnet)
	for _, t := range tags {
		if slices.Contains(q.interfaces, t) {
			iface = t
		}
	}
	if only := q.onlyInterface(); iface == "" && only != "" {
		iface = only
	}
	if iface != "" {
		n.set("interface", at, iface)
	}
	n.address = own.Addr()
	for _, listen := range q.addresses {
		if subnet.Contains(listen) {
			n.address = listen
		}
	}
	return n
}

// onlyInterface returns the interface that dnsmasq serves, if it is one.
func (q *dnsmasq) onlyInterface() string {
	served := slices.DeleteFunc(slices.Clone(q.interfaces), func(i string) bool { return i == "lo" || i == "" || strings.Contains(i, "*") })
	if len(served) == 1 {
		return served[0]
	}
	return ""
}

// rangePool makes the pool of a range.
func (q *dnsmasq) rangePool(r *dhcpRange) {
	criteria, ok := q.criteria(r.st, r.needs)
	if !ok {
		return
	}
	name := "guests"
	for _, t := range append(slices.Clone(r.needs), r.sets...) {
		if t != "" && t[0] != '!' && !slices.Contains(q.interfaces, t) && t != r.network.name {
			name = t
			break
		}
	}
	r.pool = r.network.addPool(r.st.at, name, r.first, r.last)
	for key, patterns := range criteria {
		r.pool.needList(key, r.st.at, patterns...)
	}
}

// reservations reads dhcp-host. Those whose MAC has an asterisk set tags only.
func (q *dnsmasq) reservations() {
	for _, st := range append(q.take("dhcp-host"), q.take("dhcp-hostsfile")...) { // files are read after all statements
		h := &reservation{host: &host{at: st.at}}
		lease, wild := "", ""
		for _, w := range st.words {
			form, rest, tagged := strings.Cut(w, ":")
			a, notAddress := netip.ParseAddr(strings.Trim(w, "[]"))
			switch _, hardware, _ := strings.Cut(w, "-"); {
			case w == "":
			case w == "ignore":
				h.ignored = true
			case tagged && (form == "set" || form == "net"):
				h.sets = append(h.sets, rest)
			case tagged && form == "tag":
				q.note(st.at, "tag:%s is left out: a host has one address", rest)
			case tagged && form == "id":
				h.byID = rest != "*"
			case notAddress == nil && a.Is4():
				h.ip = a
			case notAddress == nil || strings.HasPrefix(w, "["):
				q.note(st.at, "DHCPv6 is not served: %s is left out", w)
			case strings.Contains(w, "*") && isMACPattern(w):
				wild = fullMAC(w)
			case isMAC(fullMAC(w)):
				h.macs = append(h.macs, fullMAC(w))
			case strings.Contains(hardware, ":") && isMAC(fullMAC(hardware)):
				h.macs = append(h.macs, fullMAC(hardware))
			case isLease(w):
				lease = w
			default:
				h.name = w
			}
		}
		q.reserve(st, h, lease, wild)
	}
}

func (q *dnsmasq) reserve(st statement, h *reservation, lease, wild string) {
	if lease != "" {
		q.lease(st.at, &h.mapping, lease)
	}
	for _, s := range h.sets {
		q.tag(s)
		q.accounted[st.at.on()] = true
	}
	if h.byID && len(h.macs) > 0 { // else the note below says it
		q.note(st.at, "machines are known by MAC: the client identifier is left out")
	}
	switch {
	case wild != "":
		for _, s := range h.sets {
			q.criterion(s, "mac", wild)
		}
		switch {
		case h.ignored:
			q.weaker(st.at, "machines are ignored by whole MAC addresses only: these are served")
		case h.ip.IsValid() || h.name != "":
			q.note(st.at, "a reservation needs a whole MAC address: only its tags are used")
		}
	case len(h.macs) == 0 && h.ignored:
		q.weaker(st.at, "machines are ignored by MAC only: this one is served")
	case len(h.macs) == 0 && h.name != "" && h.ip.IsValid():
		q.note(st.at, "machines are known by MAC, not by a client identifier or the name that they send: the host has no mac")
		q.names = append(q.names, address{st.at, h.name, h.ip})
	case len(h.macs) == 0:
		q.note(st.at, "there is no MAC address: it is left out")
	default:
		if h.ignored {
			h.need("dhcp", st.at, "off")
		}
		for _, s := range h.sets {
			q.tag(s).criteria["mac"] = append(q.tag(s).criteria["mac"], h.macs...)
		}
		q.reserved = append(q.reserved, h)
		for _, s := range h.sets {
			q.bySet[s] = append(q.bySet[s], h)
		}
	}
}

func isMAC(s string) bool {
	_, err := lab.ParseMAC(s)
	return err == nil
}

func isMACPattern(s string) bool {
	_, err := lab.ParseMACPattern(fullMAC(s))
	return err == nil
}

// isLease reports whether a word of dhcp-host is a lease time and not a name.
func isLease(w string) bool {
	return w == "infinite" || w[0] >= '0' && w[0] <= '9' && strings.Trim(strings.ToLower(w[:len(w)-1]), "0123456789") == "" && strings.Contains("0123456789smhdw", strings.ToLower(w[len(w)-1:]))
}

// dhcpHosts gives every reservation a network.
func (q *dnsmasq) dhcpHosts() {
	for _, h := range q.reserved {
		q.hosts = append(q.hosts, h.host)
		switch {
		case h.ip.IsValid() && q.networkOf(h.ip) == nil:
			q.dnsmasqNetwork(h.at, "", h.ip, 0, nil)
		case !h.ip.IsValid() && len(q.networks) > 0:
			if h.network = q.networks[0].name; len(q.networks) > 1 && !h.ignored {
				q.note(h.at, "its network is not in the file: %s is assumed", h.network)
			}
		case !h.ip.IsValid() && h.ignored:
		}
	}
}
