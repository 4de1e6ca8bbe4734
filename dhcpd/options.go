package dhcpd

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"bootlab/internal/lab"
)

// A condition says to whom an option goes.
type condition uint8

const (
	always    condition = iota
	onRequest           // only who lists it in option 55, or sends no list
	notToNBP            // as onRequest, and to operating systems unasked
	onlyOS              // only operating systems that list it
)

// Options are the options that all machines of a network, a pool or a host have in common, encoded once. They are
// immutable and stand in the order of their worth: where a client takes small messages only, the last are left out.
type Options struct {
	list []encoded
}

type encoded struct {
	code uint8
	when condition
	tlv  []byte // code, length, value; several of them above 255 bytes (RFC 3396)
}

// ours are the codes that this server alone writes; an authored option may not carry them.
var ours = [...]uint8{0, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 61, 82, 93, 94, 97, 255}

// maxOptionSize leaves room for the rest in a message of 1472 bytes.
const maxOptionSize = 900

// commonOptions encodes what a network says; routes and custom may be a host's or pool's own. custom replaces what the
// server would have said under the same code.
func commonOptions(n *lab.Network, routes []lab.Route, custom []lab.Option) *Options {
	o := &Options{}
	mask := netMask(n.Subnet)
	o.add(1, always, mask[:])
	o.addAddrs(3, always, n.Router)
	o.addAddrs(6, always, n.DNS...)
	o.add(28, always, lastAddr(n.Subnet).AsSlice())
	if len(routes) > 0 {
		b := encodeRoutes(routes, n.Router)
		o.add(121, notToNBP, b)
		o.add(optMSRoutes, onRequest, b)
	}
	if n.MTU > 0 {
		o.add(26, onRequest, binary.BigEndian.AppendUint16(nil, uint16(n.MTU)))
	}
	o.addAddrs(42, onRequest, n.NTP...)
	if len(n.Search) > 0 {
		o.add(119, onRequest, encodeSearch(n.Search))
	}
	for _, c := range custom {
		o.list = slices.DeleteFunc(o.list, func(e encoded) bool { return e.code == c.Code })
		when := authored(c.Code)
		if c.Force {
			when = always
		}
		o.add(c.Code, when, c.Data)
	}
	return o
}

// optV6Only asks a machine to do without IPv4 (RFC 8925). To firmware, iPXE or an installer that is the end of its boot.
const optV6Only = 108

// authored says to whom an option goes that the author of the lab wrote. What firmware and boot loaders live on, what this
// server sends anyhow and what is private to a site go to everybody: boot loaders do not ask for all that they read.
func authored(code uint8) condition {
	switch {
	case code == optV6Only:
		return onlyOS
	case slices.Contains([]uint8{1, 3, 6, 12, 15, 28, 43, 60, 66, 67, 121, 150, optIPXE}, code), // ours, PXE, iPXE
		code >= 128 && code <= 135, code >= 208 && code <= 211, code >= 224: // PXE vendors, PXELINUX, site
		return always
	}
	return onRequest
}

// has reports whether the option was authored or derived here.
func (o *Options) has(code uint8) bool {
	return slices.ContainsFunc(o.list, func(e encoded) bool { return e.code == code })
}

func (o *Options) add(code uint8, when condition, value []byte) {
	o.list = append(o.list, encoded{code, when, appendOption(nil, code, value)})
}

func (o *Options) addAddrs(code uint8, when condition, addrs ...netip.Addr) {
	var b []byte
	for _, a := range addrs {
		if a.Is4() {
			b = append(b, a.AsSlice()...)
		}
	}
	if len(b) > 0 {
		o.add(code, when, b)
	}
}

// appendOption writes an option, in several parts where the value is longer than one can be (RFC 3396).
func appendOption(b []byte, code uint8, value []byte) []byte {
	for len(value) > math.MaxUint8 {
		b = append(append(b, code, math.MaxUint8), value[:math.MaxUint8]...)
		value = value[math.MaxUint8:]
	}
	return append(append(b, code, uint8(len(value))), value...)
}

// encodeRoutes writes classless routes (RFC 3442). A client that understands them must ignore the router option, so the
// router is repeated as the default route unless the author wrote one.
func encodeRoutes(routes []lab.Route, router netip.Addr) []byte {
	var b []byte
	hasDefault := !router.Is4()
	for _, r := range routes {
		hasDefault = hasDefault || r.To.Bits() == 0
		b = appendRoute(b, r.To, r.Via)
	}
	if !hasDefault {
		b = appendRoute(b, netip.PrefixFrom(netip.IPv4Unspecified(), 0), router)
	}
	return b
}

func appendRoute(b []byte, to netip.Prefix, via netip.Addr) []byte {
	dst, gw := to.Masked().Addr().As4(), via.As4()
	b = append(b, uint8(to.Bits()))
	b = append(b, dst[:(to.Bits()+7)/8]...)
	return append(b, gw[:]...)
}

// encodeSearch writes a search list with the compression of RFC 1035 section 4.1.4, as RFC 3397 asks.
func encodeSearch(domains []string) []byte {
	var b []byte
	seen := map[string]int{}
	for _, d := range domains {
		b = appendName(b, strings.ToLower(strings.TrimSuffix(d, ".")), seen)
	}
	return b
}

func appendName(b []byte, name string, seen map[string]int) []byte {
	for name != "" {
		if at, ok := seen[name]; ok {
			return append(b, 0xc0|uint8(at>>8), uint8(at))
		}
		if len(b) < 1<<14 {
			seen[name] = len(b)
		}
		var label string
		label, name, _ = strings.Cut(name, ".")
		b = append(append(b, uint8(len(label))), label...)
	}
	return append(b, 0)
}

// validDomain reports whether every label fits RFC 1035 section 2.3.4.
func validDomain(d string) bool {
	d = strings.TrimSuffix(d, ".")
	if d == "" || len(d) > 253 {
		return false
	}
	return !slices.ContainsFunc(strings.Split(d, "."), func(l string) bool { return l == "" || len(l) > 63 })
}

// seconds returns d as the wire has it; what does not fit is infinite (RFC 2131 section 3.3).
func seconds(d time.Duration) uint32 {
	if s := int64(d / time.Second); s < math.MaxUint32 {
		return uint32(max(s, 0))
	}
	return math.MaxUint32
}

func netMask(p netip.Prefix) [4]byte {
	var m [4]byte
	binary.BigEndian.PutUint32(m[:], ^uint32(0)<<(32-p.Bits()))
	if p.Bits() == 0 {
		m = [4]byte{}
	}
	return m
}

func lastAddr(p netip.Prefix) netip.Addr {
	m := netMask(p)
	return fromUint32(toUint32(p.Masked().Addr()) | ^binary.BigEndian.Uint32(m[:]))
}

func toUint32(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func fromUint32(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// checkCustom says what is wrong with an authored option, or nothing.
func checkCustom(o lab.Option) string {
	if slices.Contains(ours[:], o.Code) {
		return fmt.Sprintf("option %d is written by the server itself; leave it out", o.Code)
	}
	if len(o.Data) > maxOptionSize {
		return fmt.Sprintf("option %d has %d bytes; want at most %d", o.Code, len(o.Data), maxOptionSize)
	}
	return ""
}
