package wire

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
)

const (
	minMessage  = 300 // RFC 951; some relays and firmware drop less
	minDatagram = 576 // what every client takes (RFC 2131 section 2)
	maxDatagram = 1500
	udpOverhead = 28 // IPv4 and UDP headers
	maxMessage  = maxDatagram - udpOverhead
	fixedRoom   = 64 // what options 53, 54, 51, 58 and 59 take, and then some
)

// A Reply is a server's message. It can be reused, but not by two goroutines at a time.
type Reply struct {
	Req        *Packet       // the client's packet; never nil
	Type       MessageType   // Offer, Ack or Nak
	ServerID   netip.Addr    // option 54
	YIAddr     netip.Addr    // the client's address; not sent in a refusal, nor to Inform
	NextServer netip.Addr    // the TFTP server: siaddr, and options 66 and 150; invalid: none
	Lease      time.Duration // options 51, 58 and 59; 0: none. More than 32 bits of seconds is infinite
	Options    *Options      // nil: none, and neither Name nor Domain
	Name       string        // option 12
	Domain     string        // option 15
	FQDN       string        // the client's name in DNS, without a final dot, for option 81; empty: none

	BootFile    string // header field and option 67: a path by TFTP, or a URL. Not for an operating system: some use it for their own purpose
	VendorClass string // option 60, which goes with PXE43
	VendorInfo  string // option 43, encoded
	IPXE        string // option 175, encoded
	Message     string // option 56

	// Omitted is set by Append: the options that exceed the client's limit.
	Omitted Codes
}

// Append appends the reply to b. It allocates only if b has less than 1472 bytes of room.
//
// It uses no codec: the most important options must come first (old firmware reads no further than it needs), the message
// must stay within the client's limit, and a bad address must not end the process.
func (a *Reply) Append(b []byte) []byte {
	w := writer{b: slices.Grow(b, maxMessage)}
	start := len(b)
	a.write(&w, start, fieldsClosed)
	if w.omitted != (Codes{}) && !a.Req.Booting() && a.Type != Nak {
		// EDK2 and other firmware read a boot file name in these fields, so only systems get options there.
		closed := w
		if a.write(&w, start, fieldsOpen); !w.better(&closed) { // option 52 itself takes space
			a.write(&w, start, fieldsClosed)
		}
	}
	a.Omitted = w.omitted
	return w.b
}

// A fieldUse says whether the fields sname and file have options, too (option 52).
type fieldUse int

const (
	fieldsClosed fieldUse = iota
	fieldsOpen
)

// write writes the message at start, and overwrites an earlier try.
func (a *Reply) write(w *writer, start int, fields fieldUse) {
	*w = writer{b: a.appendHeader(w.b[:start])}
	total, agent := a.limits()
	w.end = start + total - agent - 1
	if agent == 0 && len(a.Req.AgentInfo) > 0 {
		w.omit(optAgentInfo)
	}
	a.fixed(w)
	if fields == fieldsOpen {
		w.openFields(start, a.File() == "")
	}
	a.options(w)
	w.closeFields(start)
	if agent > 0 {
		w.b = appendTLV(w.b, optAgentInfo, a.Req.AgentInfo) // RFC 3046 section 2.2: last, and as it came
	}
	w.b = append(w.b, optEnd)
	if n := len(w.b) - start; n < minMessage {
		w.b = w.b[:start+minMessage]
		clear(w.b[start+n:])
	}
}

// limits returns how long the message may be, and how much of it option 82 takes.
//
// Option 57 counts the datagram's headers for some clients and not for others; counting them is safe with both. A relay
// removes option 82 (RFC 3046 section 2.1), so with a relay it does not count. If there is no space for it at all it is left
// out (section 2.2).
func (a *Reply) limits() (total, agent int) {
	total = min(max(a.Req.MaxSize, minDatagram), maxDatagram) - udpOverhead
	n := len(a.Req.AgentInfo)
	if n == 0 {
		return total, 0
	}
	agent = tlvSize(n)
	with := total
	if a.Req.GIAddr.IsValid() {
		with = min(total+agent, maxMessage)
	}
	if with-agent-1 < optionsAt+fixedRoom {
		return total, 0
	}
	return with, agent
}

func (a *Reply) appendHeader(b []byte) []byte {
	r := a.Req
	b = b[:len(b)+optionsAt]
	h := b[len(b)-optionsAt:]
	clear(h)
	h[0], h[1], h[2] = opReply, ethernet, 6
	copy(h[4:], r.XID[:])
	binary.BigEndian.PutUint16(h[10:], a.flags())
	copy(h[28:], r.MAC[:])
	putAddr(h[24:], r.GIAddr)
	copy(h[headerSize:], magicCookie)
	if a.Type == Nak { // RFC 2131 table 3: no other field
		return b
	}
	if a.Type == Ack {
		putAddr(h[12:], r.CIAddr)
	}
	if r.Type != Inform {
		putAddr(h[16:], a.YIAddr)
	}
	putAddr(h[20:], a.next())
	// in the header and in option 67: shim looks only in the header for its second stage
	if file := a.File(); len(file) < headerSize-fileAt {
		copy(h[fileAt:], file)
	}
	return b
}

// next is the header's next server (siaddr): for machines that boot nothing from here, the TFTP server of a custom option
// 66. PXE ROMs and iPXE look for the address only there.
func (a *Reply) next() netip.Addr {
	if a.NextServer.IsValid() || a.Options == nil {
		return a.NextServer
	}
	return a.Options.nextServer
}

// File is the boot file in the header, as in option 67. A custom boot file is not sent to systems there, because Debian's
// installer takes a URL in the header for its preseed file.
func (a *Reply) File() string {
	if !a.Options.Has(optBootFile) {
		return a.BootFile
	}
	if a.Req.Booting() {
		return a.Options.bootFile
	}
	return ""
}

// flags returns the header's flags: a relay must broadcast a refusal, since the client has no address to send it to (RFC 2131 section 4.3.2).
func (a *Reply) flags() uint16 {
	if a.Type == Nak && a.Req.GIAddr.IsValid() {
		return a.Req.Flags | 0x8000
	}
	return a.Req.Flags
}

// fixed writes the options that come first and always fit.
func (a *Reply) fixed(w *writer) {
	w.b = append(w.b, optMessageType, 1, byte(a.Type))
	if a.ServerID.Is4() {
		v := a.ServerID.As4()
		w.b = append(w.b, optServer, 4, v[0], v[1], v[2], v[3])
	}
	if a.Lease <= 0 || a.Type == Nak || a.Req.Type == Inform { // RFC 2131 section 4.3.5
		return
	}
	s := seconds(a.Lease)
	w.b = binary.BigEndian.AppendUint32(append(w.b, optLease, 4), s)
	if s == math.MaxUint32 {
		return // a lease without end needs no renewal
	}
	w.b = binary.BigEndian.AppendUint32(append(w.b, optRenew, 4), s/2)
	w.b = binary.BigEndian.AppendUint32(append(w.b, optRebind, 4), s/8*7+s%8*7/8) // RFC 2131 section 4.4.5: 0.5 and 0.875
}

// options writes the other options by priority, so that those that do not fit are the least important.
func (a *Reply) options(w *writer) {
	if a.Type == Nak { // RFC 2131 table 3 and RFC 6842: nothing else
		put(w, optClientID, a.Req.ClientID)
		put(w, optMessage, a.Message)
		return
	}
	a.boot(w)
	put(w, optClientID, a.Req.ClientID) // RFC 6842
	if a.Req.Booting() {
		put(w, optUUID, a.Req.UUID) // PXE firmware drops what comes without it (RFC 4578 section 2.3)
	}
	if o := a.Options; o != nil {
		a.common(w, o)
	}
	if f, ok := a.Req.FQDN(); ok && a.Options != nil {
		a.fqdn(w, f)
	}
	put(w, optMessage, a.Message)
	if a.Req.Booting() { // RFC 4578 sections 2.1 and 2.2 want them in servers' packets too; no firmware that we saw misses them
		put(w, optArch, a.Req.parts.arch)
		put(w, optNDI, a.Req.parts.ndi)
	}
}

// boot writes the options for booting. Custom options 43, 60, 66, 67 and 175 replace them.
func (a *Reply) boot(w *writer) {
	o := a.Options
	if a.VendorClass != "" && !o.Has(optVendorClass) && !o.Has(optVendorInfo) {
		put(w, optVendorClass, a.VendorClass)
		put(w, optVendorInfo, a.VendorInfo)
	}
	if a.BootFile != "" && !o.Has(optBootFile) {
		w.written++
		if b := w.fieldFor(tlvSize(len(a.BootFile)) + 1); b != nil {
			*b = appendTLV(*b, optBootFile, a.BootFile)
			*b = append(*b, optPad) // some EFI firmware reads the name as a C string, on into the next option
		} else {
			w.omit(optBootFile)
		}
	}
	if a.NextServer.Is4() && !o.Has(optTFTPName) {
		var text [15]byte
		put(w, optTFTPName, a.NextServer.AppendTo(text[:0]))
	}
	if a.NextServer.Is4() && a.Req.Requests(optTFTPAddresses) && !o.Has(optTFTPAddresses) {
		v := a.NextServer.As4()
		put(w, optTFTPAddresses, v[:])
	}
	if !o.Has(optIPXE) {
		put(w, optIPXE, a.IPXE)
	}
}

// common writes the options of the network, pool or host: first those with sendAlways, then those that the client lists, in
// its order (RFC 2132 section 9.8), then those that it gets without a request.
func (a *Reply) common(w *writer, o *Options) {
	if len(w.b)+len(o.always) <= w.end {
		w.b, w.written = append(w.b, o.always...), w.written+o.alwaysLen
	} else {
		for _, e := range o.list[:o.alwaysLen] {
			w.raw(e)
		}
	}
	done := o.alwaysCodes
	for _, code := range a.Req.ParamList {
		if !done.Has(code) {
			done.Add(code)
			a.listed(w, o, code)
		}
	}
	unlisted := len(a.Req.ParamList) == 0
	system := !a.Req.Booting()
	for _, e := range o.list[o.alwaysLen:] {
		if !done.Has(e.code) && (e.when == sendIfRequested && unlisted || e.when == sendToSystems && (unlisted || system)) {
			w.raw(e)
		}
	}
	if unlisted || system {
		for _, code := range [...]uint8{optHostname, optDomain} {
			if !done.Has(code) && !o.Has(code) {
				a.listed(w, o, code)
			}
		}
	}
}

// listed writes an option that the client lists.
func (a *Reply) listed(w *writer, o *Options, code uint8) {
	if i := o.index[code]; i != 0 {
		if e := o.list[i-1]; e.when != sendToSystemsIfRequested || !a.Req.Booting() {
			w.raw(e)
		}
		return
	}
	switch code {
	case optHostname:
		put(w, optHostname, a.Name)
	case optDomain:
		put(w, optDomain, a.Domain)
	}
}

// fqdn answers option 81 (RFC 4702 section 4).
func (a *Reply) fqdn(w *writer, f FQDN) {
	var v [3 + 255 + 1]byte
	name := strings.TrimSuffix(a.FQDN, ".")
	if !validDomain(name) {
		name = ""
	}
	put(w, optFQDN, f.append(v[:0], name))
}

// putAddr writes four bytes, zeros for an address that is absent.
func putAddr(b []byte, a netip.Addr) {
	if a.Is4() {
		v := a.As4()
		copy(b, v[:])
	}
}
