package neighbour

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/link/rtnetlink"
	"github.com/bootlab/bootlab/internal/lab"
)

// A kernel asks the kernel of its routes, links and neighbours. It needs no privilege.
type kernel struct{ *rtnetlink.Conn }

// A route is the way to an address.
type route struct {
	link   int        // the index of its interface
	direct bool       // no router on the way, and not this machine itself
	source netip.Addr // that this machine sends from
}

// route returns the way to addr.
func (k kernel) route(addr netip.Addr) (r route, err error) {
	body := make([]byte, unix.SizeofRtMsg)
	body[0], body[1] = rtnetlink.Family(addr), byte(addr.BitLen())
	body = rtnetlink.AppendAttr(body, unix.RTA_DST, addr.AsSlice())
	reply, err := k.Get(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, body, unix.SizeofRtMsg)
	if err != nil {
		return r, fmt.Errorf("find the route to %s: %w", addr, err)
	}
	r.direct = reply.Head[7] == unix.RTN_UNICAST
	for kind, value := range reply.Attrs() {
		switch kind {
		case unix.RTA_OIF:
			if len(value) == 4 {
				r.link = int(binary.NativeEndian.Uint32(value))
			}
		case unix.RTA_GATEWAY, unix.RTA_VIA:
			r.direct = false
		case unix.RTA_PREFSRC:
			r.source, _ = netip.AddrFromSlice(value)
		}
	}
	return r, nil
}

// skipStats is RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h, which package unix lacks.
const skipStats = 1 << 3

// hardware returns the MAC of an interface; false if it has none, as a tunnel.
func (k kernel) hardware(link int) (mac lab.MAC, ok bool, err error) {
	body := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(body[4:], uint32(link))
	// To sum up the statistics of all processors is most of the kernel's work.
	body = rtnetlink.AppendAttr(body, unix.IFLA_EXT_MASK, binary.NativeEndian.AppendUint32(nil, skipStats))
	reply, err := k.Get(unix.RTM_GETLINK, unix.RTM_NEWLINK, body, unix.SizeofIfInfomsg)
	if err != nil {
		return mac, false, fmt.Errorf("find the MAC of interface %d: %w", link, err)
	}
	if binary.NativeEndian.Uint16(reply.Head[2:]) != unix.ARPHRD_ETHER {
		return mac, false, nil
	}
	for kind, value := range reply.Attrs() {
		if kind == unix.IFLA_ADDRESS && len(value) == len(mac) {
			return lab.MAC(value), true, nil
		}
	}
	return mac, false, nil
}

// neighbour returns the MAC that the kernel sends to for an address of an interface's segment; zero: none is known. Kernels before 5.0 do
// not answer for a single address: none is known then.
func (k kernel) neighbour(link int, addr netip.Addr) (mac lab.MAC) {
	body := make([]byte, unix.SizeofNdMsg)
	body[0] = rtnetlink.Family(addr)
	binary.NativeEndian.PutUint32(body[4:], uint32(link))
	body = rtnetlink.AppendAttr(body, unix.NDA_DST, addr.AsSlice())
	reply, err := k.Get(unix.RTM_GETNEIGH, unix.RTM_NEWNEIGH, body, unix.SizeofNdMsg)
	if err != nil {
		return mac
	}
	for kind, value := range reply.Attrs() {
		if kind == unix.NDA_LLADDR && len(value) == len(mac) {
			return lab.MAC(value)
		}
	}
	return mac
}
