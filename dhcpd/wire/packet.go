package wire

import (
	"bytes"
	"net/netip"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Packet is a message of a client, reduced to what a server acts on. Parse fills it, and it can be reused. Byte slices
// point into the message (or, where an option came in parts, into the Packet's own memory): they are valid until the next
// Parse and while the message's buffer is unchanged, and must not be written to. Addresses that were 0.0.0.0, absent or of a
// wrong length are invalid.
type Packet struct {
	Type  MessageType // option 53; it may be a server's message type, or one that RFC 2131 does not define
	XID   [4]byte
	Flags uint16  // see Broadcast
	MAC   lab.MAC // of the client, chaddr

	CIAddr           netip.Addr // the client's address, in use
	GIAddr           netip.Addr // of the relay; invalid: there is none
	Requested        netip.Addr // option 50
	ServerID         netip.Addr // option 54
	LinkAddr         netip.Addr // where the client is: link selection (RFC 3527), else subnet selection (RFC 3011), else GIAddr
	ServerIDOverride netip.Addr // what a relay wants as option 54 (RFC 5107)
	RelayPort        bool       // reply to the relay's source port, not 67 (RFC 8357)

	Client  ClientKind
	Arch    uint16 // the first of option 93 (see lab.ArchName), else what option 60 says; see HasArch
	HasArch bool   // the client sent one: Arch 0 is BIOS
	MaxSize int    // option 57 in bytes, 0: absent. Some count IP and UDP headers, some do not

	ParamList   []byte // option 55, the parameter request list, in the client's order
	ClientID    []byte // option 61
	UUID        []byte // option 97 with its type byte
	AgentInfo   []byte // option 82 whole
	CircuitID   []byte // option 82.1
	RemoteID    []byte // option 82.2
	VendorClass []byte // option 60
	UserClass   []byte // option 77 as it was sent: a list (RFC 3004), or bare text, as iPXE sends it

	hostname, fqdn []byte
	parts          parts
}

// parts are the options that Parse reads into fields of other types, and the memory for options in several parts.
type parts struct {
	kind, requested, server, subnet, maxSize, overload, arch, ndi, ipxe []byte

	file, sname []byte // the header's fields where option 52 says that they hold options
	seen, again Codes
	joined      []byte
}

// Broadcast reports whether the client cannot receive unicast yet (RFC 2131 section 4.1).
func (r *Packet) Broadcast() bool { return r.Flags&0x8000 != 0 }

// Requests reports whether the client's parameter request list (option 55) has the option.
func (r *Packet) Requests(code uint8) bool { return bytes.IndexByte(r.ParamList, code) >= 0 }

// Booting reports whether the client is firmware or a boot loader, and not an operating system.
func (r *Packet) Booting() bool { return r.Client != ClientOS }

// Hostname returns the first label of the client's name, in lower case: of option 81, else of option 12, since a client that
// sends both means 81 (RFC 4702 section 3.1). It is empty if that is not a host name (RFC 1123 section 2.1).
func (r *Packet) Hostname() string {
	var b [63]byte
	if f, ok := r.FQDN(); ok {
		if name := appendLabel(b[:0], f.label()); len(name) > 0 {
			return string(name)
		}
	}
	return string(appendLabel(b[:0], firstLabel(r.hostname)))
}

// CopyTo makes dst a copy of r that does not point into the packet: the values are appended to buf, which is returned.
func (r *Packet) CopyTo(dst *Packet, buf []byte) []byte {
	*dst = *r
	dst.parts = parts{arch: r.parts.arch, ndi: r.parts.ndi}
	for _, v := range [...]*[]byte{
		&dst.ParamList, &dst.ClientID, &dst.UUID, &dst.AgentInfo, &dst.CircuitID, &dst.RemoteID, &dst.VendorClass, &dst.UserClass,
		&dst.hostname, &dst.fqdn, &dst.parts.arch, &dst.parts.ndi,
	} {
		if len(*v) > 0 {
			start := len(buf)
			buf = append(buf, *v...)
			*v = buf[start:len(buf):len(buf)]
		}
	}
	return buf
}

func firstLabel(name []byte) []byte {
	name = bytes.TrimRight(name, "\x00")
	if i := bytes.IndexByte(name, '.'); i >= 0 {
		return name[:i]
	}
	return name
}

// HostLabel returns the first label of a name from elsewhere, in lower case, as Hostname does.
func HostLabel(name string) string {
	var b [63]byte
	return string(appendLabel(b[:0], firstLabel([]byte(name))))
}

// appendLabel appends a label in lower case if it is a host name's: it is shown to users and may become a DNS name.
func appendLabel(dst, label []byte) []byte {
	if len(label) == 0 || len(label) > 63 || label[0] == '-' {
		return dst
	}
	n := len(dst)
	for _, c := range label {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return dst[:n]
		}
		dst = append(dst, c)
	}
	return dst
}
