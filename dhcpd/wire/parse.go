package wire

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/bootlab/bootlab/internal/lab"
)

const (
	headerSize = 236 // RFC 2131 section 2, up to the magic cookie
	optionsAt  = headerSize + len(magicCookie)
	snameAt    = 44
	fileAt     = 108

	opRequest, opReply = 1, 2
	ethernet           = 1  // htype
	maxHops            = 16 // RFC 1542 section 4.1.1
)

const magicCookie = "\x63\x82\x53\x63"

// A ParseError says why a packet cannot be answered. Its values are the constants below, which can be compared and are
// labels of a metric.
type ParseError string

// The errors of Parse.
const (
	ErrShort      ParseError = "malformed"   // shorter than a header, or without the cookie of RFC 2131
	ErrNotRequest ParseError = "not_request" // a reply, or BOOTP: without one byte of option 53
	ErrHardware   ParseError = "hardware"    // not Ethernet, or no unicast address
	ErrHops       ParseError = "hops"        // through more relays than RFC 1542 allows
)

// Error implements error.
func (e ParseError) Error() string { return "parse DHCP packet: " + string(e) }

// Label returns the error as a metric's label.
func (e ParseError) Label() string { return string(e) }

// Parse reads a packet into r and overwrites it. The error is a ParseError, and r is then not usable.
//
// It accepts what other servers accept. A packet may end without option 255, and an option that is cut short ends the options
// and spoils none before it: so do dnsmasq and Kea, only ISC dhcpd refuses such a packet whole. An option that comes
// several times is one in parts (RFC 3396), also across the fields that option 52 opens (RFC 2131 section 4.1: options
// field, file, sname).
func (r *Packet) Parse(b []byte) error {
	joined := r.parts.joined
	*r = Packet{}
	r.parts.joined = joined[:0]
	if len(b) < optionsAt || string(b[headerSize:optionsAt]) != magicCookie {
		return ErrShort
	}
	if b[0] != opRequest {
		return ErrNotRequest
	}
	r.parseOptions(b)
	if len(r.parts.kind) != 1 {
		return ErrNotRequest
	}
	if b[1] != ethernet || b[2] != 6 {
		return ErrHardware
	}
	r.MAC = lab.MAC(b[28:34])
	if r.MAC.IsZero() || r.MAC[0]&1 != 0 { // a group address is not a client's, and a reply to it would reach all machines
		return ErrHardware
	}
	if b[3] > maxHops {
		return ErrHops
	}
	r.header(b)
	r.fields()
	r.findClient()
	r.relay()
	return nil
}

func (r *Packet) header(b []byte) {
	r.XID = [4]byte(b[4:8])
	r.Flags = binary.BigEndian.Uint16(b[10:])
	r.CIAddr = addrOf(b[12:16])
	r.GIAddr = addrOf(b[24:28])
}

// parseOptions walks once over the options where each comes once, as in nearly every packet.
func (r *Packet) parseOptions(b []byte) {
	r.walk(b[optionsAt:])
	if v := r.parts.overload; len(v) == 1 && !r.parts.again.Has(optOverload) {
		if v[0]&1 != 0 {
			r.parts.file = b[fileAt:headerSize]
			r.walk(r.parts.file)
		}
		if v[0]&2 != 0 && v[0] < 4 {
			r.parts.sname = b[snameAt:fileAt]
			r.walk(r.parts.sname)
		}
	}
	if r.parts.again != (Codes{}) {
		r.join(b)
	}
}

// walk reads the options of one field. Of an option in several parts it keeps the last part and sets again.
func (r *Packet) walk(b []byte) {
	for len(b) > 0 {
		code := b[0]
		if code == optPad {
			b = b[1:]
			continue
		}
		if code == optEnd {
			return
		}
		if len(b) < 2 || len(b) < 2+int(b[1]) {
			return
		}
		end := 2 + int(b[1])
		if p := r.slot(code); p != nil {
			if r.parts.seen.Has(code) {
				r.parts.again.Add(code)
			}
			r.parts.seen.Add(code)
			*p = b[2:end:end]
		}
		b = b[end:]
	}
}

// slot returns the field for an option's value, nil for options that a server does not read.
func (r *Packet) slot(code uint8) *[]byte {
	switch code {
	case optHostname:
		return &r.hostname
	case optRequestedIP:
		return &r.parts.requested
	case optOverload:
		return &r.parts.overload
	case optMessageType:
		return &r.parts.kind
	case optServer:
		return &r.parts.server
	case optParamList:
		return &r.ParamList
	case optMaxSize:
		return &r.parts.maxSize
	case optVendorClass:
		return &r.VendorClass
	case optClientID:
		return &r.ClientID
	case optUserClass:
		return &r.UserClass
	case optFQDN:
		return &r.fqdn
	case optAgentInfo:
		return &r.AgentInfo
	case optArch:
		return &r.parts.arch
	case optNDI:
		return &r.parts.ndi
	case optUUID:
		return &r.UUID
	case optSubnetSelect:
		return &r.parts.subnet
	case optIPXE:
		return &r.parts.ipxe
	}
	return nil
}

// join joins the options that came in parts (RFC 3396). It reads the packet once for each of them, which are few, and needs no
// more memory than the packet's.
func (r *Packet) join(b []byte) {
	for code := range r.parts.again.All() {
		start := len(r.parts.joined)
		r.gather(code, b[optionsAt:])
		r.gather(code, r.parts.file)
		r.gather(code, r.parts.sname)
		end := len(r.parts.joined)
		*r.slot(code) = r.parts.joined[start:end:end]
	}
}

func (r *Packet) gather(code uint8, b []byte) {
	for len(b) > 0 && b[0] != optEnd {
		if b[0] == optPad {
			b = b[1:]
			continue
		}
		if len(b) < 2 || len(b) < 2+int(b[1]) {
			return
		}
		end := 2 + int(b[1])
		if b[0] == code {
			r.parts.joined = append(r.parts.joined, b[2:end]...)
		}
		b = b[end:]
	}
}

func (r *Packet) fields() {
	p := &r.parts
	r.Type = MessageType(p.kind[0])
	r.Requested = addrOf(p.requested)
	r.ServerID = addrOf(p.server)
	if len(p.maxSize) == 2 {
		r.MaxSize = int(binary.BigEndian.Uint16(p.maxSize))
	}
}

// findClient distinguishes firmware, iPXE and systems. iPXE sends PXEClient too, so it is checked first; it writes its user class as
// bare text, against RFC 3004, and Tinkerbell's builds send that name there.
func (r *Packet) findClient() {
	switch {
	case r.parts.seen.Has(optIPXE), bytes.Contains(r.UserClass, []byte("iPXE")), bytes.Contains(r.UserClass, []byte("Tinkerbell")):
		r.Client = ClientIPXE
	case bytes.HasPrefix(r.VendorClass, []byte("HTTPClient")):
		r.Client = ClientHTTP
	case bytes.HasPrefix(r.VendorClass, []byte("PXEClient")), bytes.HasPrefix(r.VendorClass, []byte("U-Boot")):
		r.Client = ClientPXE
	default:
		r.Client = ClientOS
	}
	if v := r.parts.arch; len(v) >= 2 { // a list; the first is the client's (RFC 4578 section 2.1)
		r.Arch, r.HasArch = binary.BigEndian.Uint16(v), true
		return
	}
	r.Arch, r.HasArch = archOf(r.VendorClass)
}

// archOf reads "PXEClient:Arch:00007:UNDI:003000", for firmware that leaves option 93 out.
func archOf(vendor []byte) (uint16, bool) {
	_, rest, found := bytes.Cut(vendor, []byte(":Arch:"))
	if !found {
		return 0, false
	}
	n, digits := 0, 0
	for ; digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9'; digits++ {
		if n = n*10 + int(rest[digits]-'0'); n > 0xffff {
			return 0, false
		}
	}
	if digits == 0 || digits < len(rest) && rest[digits] != ':' {
		return 0, false
	}
	return uint16(n), true
}

func (r *Packet) relay() {
	r.LinkAddr = addrOf(r.parts.subnet)
	for code, value := range SubOptions(r.AgentInfo) {
		switch code {
		case agentCircuitID:
			r.CircuitID = value
		case agentRemoteID:
			r.RemoteID = value
		case agentLinkSelection:
			if a := addrOf(value); a.IsValid() {
				r.LinkAddr = a
			}
		case agentServerOverride:
			r.ServerIDOverride = addrOf(value)
		case agentSourcePort:
			r.RelayPort = true
		}
	}
	if !r.LinkAddr.IsValid() {
		r.LinkAddr = r.GIAddr
	}
}

// SubOptions yields the sub-options of option 82 (RFC 3046 section 2.0) up to the first that is cut short. The values
// alias b.
func SubOptions(b []byte) func(yield func(code uint8, value []byte) bool) {
	return func(yield func(uint8, []byte) bool) {
		for len(b) >= 2 {
			end := 2 + int(b[1])
			if len(b) < end || !yield(b[0], b[2:end:end]) {
				return
			}
			b = b[end:]
		}
	}
}

// addrOf returns the IPv4 address in b, invalid unless b holds exactly one that is not 0.0.0.0.
func addrOf(b []byte) netip.Addr {
	if len(b) != 4 || binary.BigEndian.Uint32(b) == 0 {
		return netip.Addr{}
	}
	return netip.AddrFrom4([4]byte(b))
}
