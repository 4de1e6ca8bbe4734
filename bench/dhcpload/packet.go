package dhcpload

import "encoding/binary"

// A kind is the message type of RFC 2132 section 9.6.
type kind uint8

const (
	discover kind = 1
	offer    kind = 2
	request  kind = 3
	ack      kind = 5
)

// Offsets in the fixed part (RFC 2131 section 2).
const (
	atXID, atCiaddr, atYiaddr, atGiaddr, atChaddr = 4, 12, 16, 24, 28
	atMagic, atOptions                            = 236, 240
	shortest                                      = 300 // RFC 1542 section 2.1: what old relays insist on
	longest                                       = 1500
)

const magic = 0x63825363

// A message is what this load says or hears. Addresses are in host order, 0 is none.
type message struct {
	kind      kind
	xid       uint32
	machine   int32
	giaddr    uint32
	ciaddr    uint32
	yiaddr    uint32
	requested uint32 // option 50
	server    uint32 // option 54
	lease     uint32 // option 51, seconds
}

// put writes a client's message as its relay hands it on, into b, which must hold shortest bytes, and returns its length.
func (m *message) put(b []byte) int {
	clear(b[:shortest])
	b[0], b[1], b[2], b[3] = 1, 1, 6, 1 // BOOTREQUEST over Ethernet, one hop
	m.putFixed(b)
	at := m.putOptions(b, atOptions)
	at += copy(b[at:], []byte{55, 7, 1, 3, 6, 15, 51, 58, 59})
	b[at] = 255
	return shortest
}

func (m *message) putFixed(b []byte) {
	binary.BigEndian.PutUint32(b[atXID:], m.xid)
	binary.BigEndian.PutUint32(b[atCiaddr:], m.ciaddr)
	binary.BigEndian.PutUint32(b[atYiaddr:], m.yiaddr)
	binary.BigEndian.PutUint32(b[atGiaddr:], m.giaddr)
	b[atChaddr], b[atChaddr+1] = macPrefix>>8, macPrefix&0xff
	binary.BigEndian.PutUint32(b[atChaddr+2:], uint32(m.machine))
	binary.BigEndian.PutUint32(b[atMagic:], magic)
}

func (m *message) putOptions(b []byte, at int) int {
	at += copy(b[at:], []byte{53, 1, byte(m.kind)})
	for _, o := range [...]struct {
		code  byte
		value uint32
	}{{50, m.requested}, {54, m.server}, {51, m.lease}} {
		if o.value != 0 {
			b[at], b[at+1] = o.code, 4
			binary.BigEndian.PutUint32(b[at+2:], o.value)
			at += 6
		}
	}
	return at
}

// parse reads a message of either direction and reports whether it is one of this load.
func parse(b []byte) (m message, ok bool) {
	if len(b) < atOptions || binary.BigEndian.Uint32(b[atMagic:]) != magic || binary.BigEndian.Uint16(b[atChaddr:]) != macPrefix {
		return m, false
	}
	m = message{
		xid: binary.BigEndian.Uint32(b[atXID:]), machine: int32(binary.BigEndian.Uint32(b[atChaddr+2:])),
		giaddr: binary.BigEndian.Uint32(b[atGiaddr:]), ciaddr: binary.BigEndian.Uint32(b[atCiaddr:]),
		yiaddr: binary.BigEndian.Uint32(b[atYiaddr:]),
	}
	for b = b[atOptions:]; len(b) > 0 && b[0] != 255; {
		if b[0] == 0 {
			b = b[1:]
			continue
		}
		if len(b) < 2 || len(b) < 2+int(b[1]) {
			return m, false
		}
		m.option(b[0], b[2:2+int(b[1])])
		b = b[2+int(b[1]):]
	}
	return m, m.kind != 0
}

func (m *message) option(code byte, value []byte) {
	if code == 53 && len(value) == 1 {
		m.kind = kind(value[0])
	}
	if len(value) != 4 {
		return
	}
	switch n := binary.BigEndian.Uint32(value); code {
	case 50:
		m.requested = n
	case 51:
		m.lease = n
	case 54:
		m.server = n
	}
}
