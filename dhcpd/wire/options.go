package wire

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// A sendWhen says which clients get an option. The package documentation has the table.
type sendWhen uint8

const (
	sendAlways               sendWhen = iota
	sendIfRequested                   // who lists it in option 55, or sends no list
	sendToSystems                     // as onRequest, and to operating systems unasked
	sendToSystemsIfRequested          // operating systems that list it
)

// Options are the options that all machines of a network, a pool or a host have in common, encoded once by a Builder.
// They are immutable and may be used by any number of goroutines.
type Options struct {
	list        []encoded  // in the order of their priority: those with sendAlways first
	always      []byte     // those, encoded
	alwaysLen   int        // how many
	alwaysCodes Codes      // their codes
	index       [256]uint8 // where in list a code is, plus one
	bootFile    string     // a custom option 67
	nextServer  netip.Addr // a custom option 66, where that is an address
}

type encoded struct {
	code uint8
	when sendWhen
	tlv  []byte // code, length, value; several of them above 255 bytes (RFC 3396)
}

// appendValue appends the value, joined from its parts.
func (e encoded) appendValue(b []byte) []byte {
	for tlv := e.tlv; len(tlv) >= 2 && tlv[0] == e.code; {
		n := 2 + int(tlv[1])
		b, tlv = append(b, tlv[2:n]...), tlv[n:]
	}
	return b
}

// maxOption leaves room for the other options in a message of 1472 bytes.
const maxOption = 900

// sendWhenOf says which clients get a custom option: those that get the server's own under that number. Options that
// firmware and boot loaders need are sent always, since most of them do not list these in option 55. A client that gets
// option 108 without a request may stop using IPv4, so it is never forced (RFC 8925 section 3.3).
func sendWhenOf(o lab.Option) sendWhen {
	switch o.Code {
	case optV6Only:
		return sendToSystemsIfRequested
	case optMask, optRouter, optDNS:
		return sendAlways
	}
	if o.Force || bootOption(o.Code) {
		return sendAlways
	}
	switch o.Code {
	case optHostname, optDomain, optBroadcast, optRoutes:
		return sendToSystems
	}
	return sendIfRequested
}

// bootOption reports whether an option is for firmware or a boot loader: PXE (43, 60, 66, 67, and 128 to 135 by RFC 4578 section 2.4), TFTP
// servers (150), iPXE (175), PXELINUX (208 to 211, RFC 5071).
func bootOption(code uint8) bool {
	switch code {
	case optVendorInfo, optVendorClass, optTFTPName, optBootFile, optTFTPAddresses, optIPXE:
		return true
	}
	return code >= 128 && code <= 135 || code >= 208 && code <= 211
}

// A Builder holds what Options are made of. The zero value of a field leaves its option out. The values are those of a
// loaded lab: the loader (internal/lab/load) has checked that addresses are IPv4, that domain names, MTU and routes can be
// encoded, and that no custom option is one that the server itself sets.
type Builder struct {
	Subnet netip.Prefix // options 1 and 28
	Router netip.Addr   // 3
	DNS    []netip.Addr // 6
	NTP    []netip.Addr // 42
	MTU    int          // 26, in bytes
	Search []string     // 119
	Routes []lab.Route  // 121 and 249; the router is added as the default route unless there is one
	Custom []lab.Option // by number; they replace what stands here otherwise, and the later the earlier
}

// Build encodes the options.
func (b Builder) Build() *Options {
	var list []encoded
	add := func(code uint8, when sendWhen, value []byte) {
		if len(value) > 0 {
			list = append(list, encoded{code, when, appendTLV(nil, code, value)})
		}
	}
	if b.Subnet.IsValid() {
		mask, last := maskOf(b.Subnet), broadcastOf(b.Subnet)
		add(optMask, sendAlways, mask[:])
		add(optBroadcast, sendToSystems, last[:])
	}
	add(optRouter, sendAlways, addrs(b.Router))
	add(optDNS, sendAlways, addrs(b.DNS...))
	if len(b.Routes) > 0 {
		routes := encodeRoutes(b.Routes, b.gateway())
		add(optRoutes, sendToSystems, routes)
		add(optMSRoutes, sendIfRequested, routes)
	}
	if b.MTU > 0 {
		add(optMTU, sendIfRequested, []byte{byte(b.MTU >> 8), byte(b.MTU)})
	}
	add(optNTP, sendIfRequested, addrs(b.NTP...))
	add(optSearch, sendIfRequested, encodeSearch(b.Search))
	return newOptions(list, b.Custom)
}

// gateway is the default route that is added to routes: the first router of a custom option 3, else Router.
func (b Builder) gateway() netip.Addr {
	router := b.Router
	for _, c := range b.Custom {
		if c.Code == optRouter && len(c.Data) >= 4 {
			router = netip.AddrFrom4([4]byte(c.Data))
		}
	}
	return router
}

func newOptions(list []encoded, custom []lab.Option) *Options {
	o := &Options{}
	for _, c := range custom {
		list = slices.DeleteFunc(list, func(e encoded) bool { return e.code == c.Code })
		e := encoded{c.Code, sendWhenOf(c), appendTLV(nil, c.Code, c.Data)}
		if c.Code == optTFTPName {
			o.nextServer, _ = netip.ParseAddr(strings.TrimRight(string(c.Data), "\x00"))
		}
		if c.Code == optBootFile {
			o.bootFile = strings.TrimRight(string(c.Data), "\x00")
			e.tlv = append(e.tlv, optPad) // see appendBoot
		}
		list = append(list, e)
	}
	slices.SortStableFunc(list, func(a, b encoded) int { return rank(a) - rank(b) })
	o.list = list
	for i, e := range list {
		o.index[e.code] = uint8(i + 1)
		if e.when == sendAlways {
			o.always = append(o.always, e.tlv...)
			o.alwaysCodes.Add(e.code)
			o.alwaysLen++
		}
	}
	return o
}

// rank puts options with sendAlways first.
func rank(e encoded) int {
	if e.when == sendAlways {
		return 0
	}
	return 1
}

// Has reports whether the option is among these.
func (o *Options) Has(code uint8) bool { return o != nil && o.index[code] != 0 }
