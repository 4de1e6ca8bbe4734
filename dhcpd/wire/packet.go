package wire

import (
	"bytes"
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Packet is what a client or its relay said, reduced to what a server acts on. Parse fills it, and it may be used for
// packet after packet. Byte slices alias the packet (or, where an option came in parts, the Packet's own memory): they
// are good until the next Parse and as long as the packet's buffer is left alone, and must not be written to. Addresses
// that were 0.0.0.0, absent or of a wrong length are invalid.
type Packet struct {
	Type  MessageType // option 53, as it came: it may be no client's message, or none that RFC 2131 knows
	XID   [4]byte
	Secs  uint16  // as it came; iPXE and some firmware write what they like
	Flags uint16  // see Broadcast
	Hops  uint8   // at most 16
	MAC   lab.MAC // of the client, chaddr

	CIAddr           netip.Addr // that the client has and uses
	GIAddr           netip.Addr // of the relay; invalid: there is none
	Requested        netip.Addr // option 50
	ServerID         netip.Addr // option 54
	LinkAddr         netip.Addr // where the client is: link selection (RFC 3527), else subnet selection (RFC 3011), else GIAddr
	ServerIDOverride netip.Addr // what a relay wants as option 54 (RFC 5107)
	RelayPort        bool       // answer the relay's source port, not 67 (RFC 8357)

	Stage   Stage
	Arch    Arch          // the first of option 93, else what option 60 says; see HasArch
	HasArch bool          // it said one: Arch 0 is BIOS
	MaxSize int           // option 57 in bytes, 0: absent. Some count IP and UDP headers, some do not
	Lease   time.Duration // option 51, what the client would like; 0: absent

	ParamList   []byte // option 55, in the client's order
	ClientID    []byte // option 61
	UUID        []byte // option 97 with its type byte
	AgentInfo   []byte // option 82 whole
	CircuitID   []byte // option 82.1
	RemoteID    []byte // option 82.2
	VendorClass []byte // option 60
	UserClass   []byte // option 77 as it came, see UserClasses
	Message     []byte // option 56: why a client declines or releases
	RapidCommit bool   // option 80 (RFC 4039)

	hostname, fqdn []byte
	parts          parts
}

// parts are the options that Parse reads into fields of other types, and the memory for what came in several parts.
type parts struct {
	kind, requested, server, subnet, maxSize, lease, overload, arch, ndi, ipxe, rapid []byte

	file, sname     []byte // the header's fields where option 52 says that they hold options
	seen, again     Codes
	joined          []byte
	malformedOption bool
}

// Broadcast reports whether the client cannot receive unicast yet (RFC 2131 section 4.1).
func (r *Packet) Broadcast() bool { return r.Flags&0x8000 != 0 }

// Asks reports whether the client wants the option: it lists it, or sends no list (RFC 2132 section 9.8).
func (r *Packet) Asks(code uint8) bool {
	return len(r.ParamList) == 0 || bytes.IndexByte(r.ParamList, code) >= 0
}

// Requests reports whether the client asks for the option by its number.
func (r *Packet) Requests(code uint8) bool { return bytes.IndexByte(r.ParamList, code) >= 0 }

// Truncated reports whether the options were cut short inside one. What came before it was taken.
func (r *Packet) Truncated() bool { return r.parts.malformedOption }

// Booting reports whether firmware or a boot loader asks, and not an operating system.
func (r *Packet) Booting() bool { return r.Stage != StageOS }

// AppendHostname appends the first label of what the client calls itself, in lower case: of option 81, else of option
// 12, since who sends both means 81 (RFC 4702 section 3.1). It appends nothing if that is no host name (RFC 1123
// section 2.1). It allocates nothing where dst has 63 bytes of room.
func (r *Packet) AppendHostname(dst []byte) []byte {
	if f, ok := r.FQDN(); ok {
		if out := appendLabel(dst, f.label()); len(out) > len(dst) {
			return out
		}
	}
	return appendLabel(dst, firstLabel(r.hostname))
}

// Hostname returns what AppendHostname appends. It allocates.
func (r *Packet) Hostname() string {
	var b [63]byte
	return string(r.AppendHostname(b[:0]))
}

// UserClasses yields the classes of option 77: each of them where it is written by RFC 3004, or all of it as one where it
// is not. iPXE and some systems write the bare name.
func (r *Packet) UserClasses(yield func(class []byte) bool) {
	if !isUserClassList(r.UserClass) {
		if len(r.UserClass) > 0 {
			yield(r.UserClass)
		}
		return
	}
	for b := r.UserClass; len(b) > 0; b = b[1+int(b[0]):] {
		if !yield(b[1 : 1+int(b[0])]) {
			return
		}
	}
}

// isUserClassList reports whether b is nothing but length-prefixed classes, none of them empty.
func isUserClassList(b []byte) bool {
	for len(b) > 0 {
		n := int(b[0])
		if n == 0 || len(b) < 1+n {
			return false
		}
		b = b[1+n:]
	}
	return true
}

func firstLabel(name []byte) []byte {
	name = bytes.TrimRight(name, "\x00")
	if i := bytes.IndexByte(name, '.'); i >= 0 {
		return name[:i]
	}
	return name
}

// appendLabel appends a label in lower case if it is a host name's: it is shown to people and may become a DNS name.
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
