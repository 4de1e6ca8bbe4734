package importer

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// A kind is how the value of a DHCP option is encoded.
type kind int

const (
	kindUnknown kind = iota // guessed from its text, as dnsmasq does
	kindAddrs
	kindText
	kindU8
	kindU16
	kindU32
	kindBool
	kindHex
	kindBytes       // as kindHex, and nothing else
	kindBytesOrText // bytes with colons, else text
	kindAddr6
	kindDomains // RFC 3397, without compression
)

// optionKinds are the encodings of options (RFC 2132 and IANA's registry of BOOTP and DHCP parameters).
var optionKinds = func() map[uint8]kind {
	all := map[uint8]kind{}
	for k, codes := range map[kind][]uint8{
		kindAddrs: {1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16, 21, 28, 32, 33, 41, 42, 44, 45, 48, 49, 65, 68, 69, 70, 71, 72, 73, 74, 75, 76, 138, 150},
		kindText:  {12, 14, 15, 17, 18, 40, 47, 60, 64, 66, 67, 86, 100, 101, 114, 209, 210, 252},
		kindU8:    {23, 37, 46, 52, 53, 116}, kindU16: {13, 22, 26, 57, 93, 117}, kindU32: {2, 24, 35, 38, 51, 58, 59, 91, 108, 211},
		kindBool: {19, 20, 27, 29, 30, 31, 34, 36, 39}, kindHex: {43, 61, 82, 94, 97, 120, 125, 175},
	} {
		for _, c := range codes {
			all[c] = k
		}
	}
	return all
}()

// optionCode returns the number of an option by name or number.
func optionCode(name string) (uint8, bool) {
	if n, err := strconv.ParseUint(name, 10, 8); err == nil {
		return uint8(n), n > 0 && n < 255
	}
	return lab.OptionCode(name)
}

// A target is what an option is set for: a network, or a pool or a host, whose network is nil.
type target struct {
	network *network
	scope   *scope
	mapping *mapping
}

func (n *network) target() target { return target{n, &n.options, &n.mapping} }
func (p *pool) target() target    { return target{nil, &p.options, &p.mapping} }
func (h *host) target() target    { return target{nil, &h.options, &h.mapping} }

// option sets an option from the words of its value. Without words it is not sent.
func (d *draft) option(at place, t target, code uint8, words []string, force bool) {
	switch {
	case code == 1 || code == 28:
		d.accounted[at.on()] = true // follow from the subnet
		return
	case code == 121 || code == 249:
		d.routes(at, t, words)
		return
	case code == 51:
		d.lease(at, t.mapping, strings.Join(words, ""))
		return
	case code == 12:
		d.note(at, "machines get the name of their host: option 12 is left out")
		return
	case code == 15 && t.network != nil && len(words) == 1 && (d.domain == "" || strings.EqualFold(d.domain, words[0])):
		d.domain, d.domainAt = words[0], at
		return
	case len(words) == 0:
		if t.network == nil || networkKeys[code] == "" {
			return
		}
		d.accounted[at.on()] = true
		t.mapping.prune(map[*entry]bool{t.mapping.get(networkKeys[code]): true})
		if code == 6 {
			t.mapping.setList("dns", at)
		}
		return
	}
	if t.network != nil && networkKeys[code] != "" {
		d.networkOption(at, t.network, code, words)
		return
	}
	value, err := encode(code, words)
	if err != nil {
		d.note(at, "option %d is left out: %v", code, err)
		return
	}
	t.scope.set(code, option{at, value, force})
}

// networkOption sets an option that has a key of its own.
func (d *draft) networkOption(at place, n *network, code uint8, words []string) {
	switch key := networkKeys[code]; key {
	case "router":
		n.set(key, at, words[0])
		if len(words) > 1 {
			d.note(at, "a network has one router: %s is set, the others are left out", words[0])
		}
	case "mtu":
		n.set(key, at, words[0])
	default: // 0.0.0.0 is the address of the server itself, as in dnsmasq
		var own []string
		for _, w := range words {
			switch {
			case w != "0.0.0.0":
				own = append(own, w)
			case n.address.IsValid():
				own = append(own, n.address.String())
			case code == 6:
				d.accounted[at.on()] = true // the default
			default:
				d.note(at, "the address of this server is not known: set %s of network %s", key, n.name)
			}
		}
		if len(own) > 0 {
			n.setList(key, at, own...)
		}
	}
}

// routes reads pairs of destination and gateway.
func (d *draft) routes(at place, t target, words []string) {
	if len(words)%2 != 0 {
		d.note(at, "the routes are left out: want pairs of destination and gateway")
		return
	}
	router, complete := "", false
	if t.network != nil {
		router = t.network.value("router")
	}
	t.scope.routes = nil
	for pair := range slices.Chunk(words, 2) {
		to, via := pair[0], pair[1]
		if !strings.Contains(to, "/") {
			to += "/32"
		}
		if p, err := netip.ParsePrefix(to); err == nil {
			to, complete = p.Masked().String(), complete || p.Bits() == 0
			if p.Bits() == 0 && via == router {
				d.accounted[at.on()] = true // is added
				continue
			}
		}
		t.scope.routes = append(t.scope.routes, route{at, to, via})
	}
	if !complete {
		d.note(at, "the router is sent as a default route too: clients that use option 121 ignore option 3 (RFC 3442)")
	}
}

// lease sets a lease time in the notation of dnsmasq: 90, 45m, 12h, 7d, 2w or infinite.
func (d *draft) lease(at place, m *mapping, s string) {
	if s == "infinite" || s == "4294967295" {
		m.set("lease", at, "8760h")
		d.note(at, "a lease has an end: a year (8760h) stands for infinite")
		return
	}
	number, unit := strings.TrimRight(s, "smhdwSMHDW"), strings.ToLower(strings.TrimLeft(s, "0123456789"))
	n, err := strconv.ParseUint(number, 10, 32)
	factor := map[string]uint64{"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[unit]
	if err != nil || factor == 0 || n == 0 {
		d.note(at, "%q is not a lease time: it is left out", s)
		return
	}
	m.set("lease", at, span(n*factor))
}

// span writes seconds in the largest unit that fits.
func span(seconds uint64) string {
	switch {
	case seconds%3600 == 0:
		return fmt.Sprintf("%dh", seconds/3600)
	case seconds%60 == 0:
		return fmt.Sprintf("%dm", seconds/60)
	}
	return fmt.Sprintf("%ds", seconds)
}

// encode returns the value of an option in the notation of the lab file.
func encode(code uint8, words []string) (string, error) {
	k := optionKinds[code]
	switch {
	case code == 119:
		k = kindDomains
	case k == kindUnknown:
		k = guess(words)
	}
	return encodeAs(k, words)
}

// encodeAs returns a value of one kind in the notation of the lab file.
func encodeAs(k kind, words []string) (string, error) {
	text := strings.Join(words, ",")
	switch k {
	case kindDomains:
		return searchList(words)
	case kindAddr6:
		a, err := netip.ParseAddr(text)
		if err != nil || !a.Is6() {
			return "", fmt.Errorf("%q is not an IPv6 address", text)
		}
		return "hex:" + hex.EncodeToString(a.AsSlice()), nil
	case kindBytes:
		b, err := keaBytes(text)
		if err != nil {
			return "", fmt.Errorf("%q: %w", text, err)
		}
		return "hex:" + hex.EncodeToString(b), nil
	case kindBytesOrText:
		if b, ok := hexBytes(text); ok && strings.Contains(text, ":") {
			return "hex:" + hex.EncodeToString(b), nil
		}
	case kindAddrs:
		for _, w := range words {
			if a, err := netip.ParseAddr(w); err != nil || !a.Is4() {
				return "", fmt.Errorf("%q is not an IPv4 address", w)
			}
		}
		return strings.Join(words, ", "), nil
	case kindHex:
		if b, ok := hexBytes(text); ok {
			return "hex:" + hex.EncodeToString(b), nil
		}
	case kindBool:
		switch strings.ToLower(text) {
		case "1", "true", "on", "yes":
			return "u8:1", nil
		case "0", "false", "off", "no", "":
			return "u8:0", nil
		}
		return "", fmt.Errorf("%q is not true or false", text)
	case kindU8, kindU16, kindU32:
		bits := map[kind]int{kindU8: 8, kindU16: 16, kindU32: 32}[k]
		n, err := strconv.ParseInt(text, 0, 64)
		if err != nil || n < -1<<(bits-1) || n >= 1<<bits {
			return "", fmt.Errorf("%q is not a number of %d bits", text, bits)
		}
		return fmt.Sprintf("u%d:%d", bits, uint64(n)&(1<<bits-1)), nil
	}
	return "text:" + text, nil
}

// guess returns how dnsmasq encodes the value of an option that it does not know.
func guess(words []string) kind {
	all := func(ok func(string) bool) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return !ok(w) })
	}
	text := strings.Join(words, ",")
	n, err := strconv.ParseUint(text, 10, 32)
	switch {
	case all(func(w string) bool { a, err := netip.ParseAddr(w); return err == nil && a.Is4() }):
		return kindAddrs
	case err == nil && n < 1<<8:
		return kindU8
	case err == nil && n < 1<<16:
		return kindU16
	case err == nil:
		return kindU32
	case strings.Contains(text, ":") && all(func(w string) bool { return w != "" && strings.Trim(w, "0123456789abcdefABCDEF:") == "" }):
		return kindHex
	}
	return kindText
}

// searchList encodes domains as RFC 3397 does, without compression.
func searchList(words []string) (string, error) {
	var b []byte
	for _, w := range words {
		name := strings.TrimSuffix(w, ".")
		if !lab.IsDomain(name) {
			return "", fmt.Errorf("%q is not a domain", w)
		}
		for label := range strings.SplitSeq(name, ".") {
			b = append(append(b, byte(len(label))), label...)
		}
		b = append(b, 0)
	}
	return "hex:" + hex.EncodeToString(b), nil
}

// hexBytes reads "0104c0", "0x0104c0" and "1:4:c0".
func hexBytes(text string) ([]byte, bool) {
	var digits string
	for part := range strings.SplitSeq(strings.TrimPrefix(text, "0x"), ":") {
		if len(part)%2 != 0 {
			part = "0" + part
		}
		digits += part
	}
	b, err := hex.DecodeString(digits)
	return b, err == nil && len(b) > 0
}
