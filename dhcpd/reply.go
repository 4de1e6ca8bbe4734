package dhcpd

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

const (
	headerSize  = 236 // RFC 2131 section 2, up to the options
	minMessage  = 300 // RFC 951; some relays and firmware drop less
	minDatagram = 576 // what every client takes (RFC 2131 section 2)
	maxDatagram = 1500
	udpOverhead = 28 // IPv4 and UDP headers
)

const magicCookie = "\x63\x82\x53\x63"

// An answer is a reply before it is bytes.
type answer struct {
	req     *request
	kind    dhcpv4.MessageType
	server  netip.Addr // option 54
	yiaddr  netip.Addr
	lease   time.Duration // 0: no lease is given or told
	options *Options      // nil: none, as in a refusal
	name    string        // option 12
	domain  string        // option 15
	boot    bootInfo
	message string // option 56
	dropped int    // set by append: options that found no room
}

// append writes the reply behind b. It is written by hand and not with the codec, because what matters most must come
// first (old firmware reads no further than it needs), must stay within what the client takes, and no bad address may
// bring the server down.
func (a *answer) append(b []byte) []byte {
	start := len(b)
	b = a.appendHeader(b)
	w := optionWriter{b: b, limit: start + a.limit() - 1 - a.agentSize()}
	if a.mayOverload() {
		w.limit -= 3 // option 52
	}
	a.writeOptions(&w)
	b = a.overload(&w, start)
	if len(a.req.agentInfo) > 0 {
		b = appendOption(b, 82, a.req.agentInfo) // RFC 3046 section 2.1: last, and as it came
	}
	b = append(b, 255)
	for len(b)-start < minMessage {
		b = append(b, 0)
	}
	return b
}

// mayOverload reports whether options may stand in the fields for file and server name. Firmware and iPXE read the file
// name there whatever option 52 says, or take it for options where they should not; systems read it right.
func (a *answer) mayOverload() bool { return a.req.stage == StageOS && a.boot.file == "" }

// overload puts what found no room into the fields file and sname (RFC 2131 section 4.1), and returns the message.
func (a *answer) overload(w *optionWriter, start int) []byte {
	if !a.mayOverload() || len(w.left) == 0 {
		a.dropped = len(w.left)
		return w.b
	}
	var used byte
	for _, field := range []struct {
		bit         byte
		first, last int
	}{{1, 108, 236}, {2, 44, 108}} {
		at, end := start+field.first, start+field.last-1 // one byte is the end mark
		w.left = slices.DeleteFunc(w.left, func(tlv []byte) bool {
			if at+len(tlv) > end {
				return false
			}
			at += copy(w.b[at:], tlv)
			used |= field.bit
			return true
		})
		if used&field.bit != 0 {
			w.b[at] = 255
		}
	}
	a.dropped = len(w.left)
	if used == 0 {
		return w.b
	}
	return append(w.b, optOverload, 1, used)
}

// limit is how long the DHCP message may be. Option 57 counts the datagram's headers for some clients and not for
// others; counting them is safe with both.
func (a *answer) limit() int {
	return min(max(a.req.maxSize, minDatagram), maxDatagram) - udpOverhead
}

func (a *answer) agentSize() int {
	if n := len(a.req.agentInfo); n > 0 {
		return n + 2*(n/255+1)
	}
	return 0
}

func (a *answer) appendHeader(b []byte) []byte {
	r := a.req
	b = append(b, byte(dhcpv4.OpcodeBootReply), 1, 6, 0)
	b = append(b, r.xid[:]...)
	b = append(b, 0, 0) // secs
	b = binary.BigEndian.AppendUint16(b, a.flags())
	b = appendAddr(b, a.ciaddr())
	b = appendAddr(b, a.yiaddr)
	b = appendAddr(b, a.boot.next)
	b = appendAddr(b, r.giaddr)
	b = append(b, r.mac[:]...)
	b = append(b, make([]byte, 10+64)...) // the rest of chaddr, sname
	var file [128]byte
	if len(a.boot.file) < len(file) && !a.custom(67) { // shim finds its second stage only by the header, so both header and option 67
		copy(file[:], a.boot.file)
	}
	b = append(b, file[:]...)
	return append(b, magicCookie...)
}

// flags: a relay must broadcast a refusal, since the client has no address to send it to (RFC 2131 section 4.3.2).
func (a *answer) flags() uint16 {
	if a.kind == dhcpv4.MessageTypeNak && a.req.giaddr.IsValid() {
		return a.req.flags | 0x8000
	}
	return a.req.flags
}

// ciaddr is only in acknowledgements (RFC 2131 table 3).
func (a *answer) ciaddr() netip.Addr {
	if a.kind == dhcpv4.MessageTypeAck {
		return a.req.ciaddr
	}
	return netip.Addr{}
}

func (a *answer) writeOptions(w *optionWriter) {
	w.put(53, []byte{byte(a.kind)})
	w.putAddr(54, a.server)
	if a.lease > 0 {
		s := seconds(a.lease)
		w.putUint32(51, s)
		w.putUint32(58, s/2)
		w.putUint32(59, s/8*7+s%8*7/8)
	}
	a.writeBoot(w)
	w.put(61, a.req.clientID) // RFC 6842
	if a.boot.vendor == vendorPXE || a.req.stage != StageOS {
		w.put(97, a.req.uuid)
	}
	if a.options != nil {
		for _, o := range a.options.list {
			if a.sends(o) {
				w.raw(o.tlv)
			}
		}
		if !a.custom(12) {
			w.put(12, []byte(a.name))
		}
		if !a.custom(15) {
			w.put(15, []byte(a.domain))
		}
	}
	if a.options != nil && len(a.req.fqdn) > 0 && !a.custom(12) {
		w.put(optFQDN, answerFQDN(a.req.fqdn, a.name, a.domain))
	}
	w.put(56, []byte(a.message))
}

func (a *answer) sends(o encoded) bool {
	switch o.when {
	case always:
		return true
	case notToNBP:
		return a.req.stage == StageOS || a.req.asks(o.code)
	case onlyOS:
		return a.req.stage == StageOS && !a.req.wantsAll && a.req.asks(o.code)
	default:
		return a.req.asks(o.code)
	}
}

// custom reports whether the author of the lab wrote this option.
func (a *answer) custom(code uint8) bool { return a.options != nil && a.options.has(code) }

// writeBoot leaves to the author of the lab what the author wrote: options 43, 60, 66 and 67 may be custom.
func (a *answer) writeBoot(w *optionWriter) {
	if a.boot.vendor != "" && !a.custom(60) && !a.custom(43) {
		w.put(60, []byte(a.boot.vendor))
		w.put(43, []byte(a.boot.pxe))
	}
	if a.boot.file != "" && !a.custom(67) {
		w.put(67, []byte(a.boot.file))
		w.raw([]byte{0}) // a pad: some EFI firmware reads the name as a C string, on into the next option
	}
	if a.boot.next.IsValid() && !a.custom(66) {
		w.put(66, []byte(a.boot.next.String()))
	}
	if !a.custom(optIPXE) {
		w.put(optIPXE, []byte(a.boot.ipxe))
	}
}

// An optionWriter appends options while there is room. What does not fit is left out: options come in the order of their
// worth.
type optionWriter struct {
	b     []byte
	limit int
	left  [][]byte // what found no room
}

func (w *optionWriter) raw(tlv []byte) {
	if len(w.b)+len(tlv) <= w.limit {
		w.b = append(w.b, tlv...)
	} else if len(tlv) > 1 {
		w.left = append(w.left, tlv)
	}
}

// put writes an option unless its value is empty.
func (w *optionWriter) put(code uint8, value []byte) {
	if n := len(value); n > 0 && len(w.b)+n+2*(n/255+1) <= w.limit {
		w.b = appendOption(w.b, code, value)
	} else if n > 0 {
		w.left = append(w.left, appendOption(nil, code, value))
	}
}

func (w *optionWriter) putUint32(code uint8, v uint32) {
	w.put(code, binary.BigEndian.AppendUint32(make([]byte, 0, 4), v))
}

func (w *optionWriter) putAddr(code uint8, a netip.Addr) {
	if a.Is4() {
		v := a.As4()
		w.put(code, v[:])
	}
}

// appendAddr writes four bytes, zeros for an address that is absent.
func appendAddr(b []byte, a netip.Addr) []byte {
	var v [4]byte
	if a.Is4() {
		v = a.As4()
	}
	return append(b, v[:]...)
}
