package dhcpd

import (
	"encoding/binary"
	"net/netip"
)

// lastAddr returns the broadcast address of an IPv4 prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	host := uint32(1)<<(32-p.Bits()) - 1
	return fromUint32(toUint32(p.Masked().Addr()) | host)
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
