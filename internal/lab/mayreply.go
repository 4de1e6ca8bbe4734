package lab

import (
	"encoding/binary"
	"net/netip"
)

// MayReply reports whether a reply may be sent to the source of a datagram: not to a broadcast address, of a network of the lab or of all,
// nor to a group or the unspecified address. Who forges such a source has the reply delivered to every machine of a segment.
func (l *Lab) MayReply(to netip.Addr) bool {
	to = to.Unmap()
	switch {
	case !to.IsValid() || to.IsUnspecified() || to.IsMulticast():
		return false
	case !to.Is4():
		return true
	}
	b := to.As4()
	a := binary.BigEndian.Uint32(b[:])
	if a == ^uint32(0) {
		return false
	}
	for _, n := range l.Networks {
		if host := ^uint32(0) >> n.Subnet.Bits(); n.Subnet.Contains(to) && host > 1 { // RFC 3021: a /31 has no broadcast address
			return a&host != host && a&host != 0 // the latter is the former one of BSD 4.2, which kernels know
		}
	}
	return true
}
