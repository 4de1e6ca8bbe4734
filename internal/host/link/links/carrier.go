package links

import (
	"bytes"
	"encoding/binary"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// NoCarrier reports whether an interface is up and connected to nothing, and whether that is because it is a bridge without any port. It is
// false for one that does not exist, and for a new bridge: the kernel gives it a carrier until its first port has gone.
func NoCarrier(name string) (none, noPort bool) {
	ifi, err := net.InterfaceByName(name)
	if err != nil || ifi.Flags&net.FlagUp == 0 || ifi.Flags&net.FlagRunning != 0 {
		return false, false
	}
	bridge, ports := false, 0
	dump, _ := syscall.NetlinkRIB(unix.RTM_GETLINK, unix.AF_UNSPEC) // without an answer it is no bridge
	messages, _ := syscall.ParseNetlinkMessage(dump)
	for _, m := range messages {
		if m.Header.Type != unix.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg {
			continue
		}
		attrs, _ := syscall.ParseNetlinkRouteAttr(&m)
		for _, attr := range attrs {
			switch attr.Attr.Type {
			case unix.IFLA_MASTER:
				if len(attr.Value) == 4 && int(binary.NativeEndian.Uint32(attr.Value)) == ifi.Index {
					ports++
				}
			case unix.IFLA_LINKINFO: // its first attribute is IFLA_INFO_KIND
				own := int(binary.NativeEndian.Uint32(m.Data[4:])) == ifi.Index
				bridge = bridge || own && len(attr.Value) > unix.SizeofRtAttr && bytes.HasPrefix(attr.Value[unix.SizeofRtAttr:], []byte("bridge\x00"))
			}
		}
	}
	return true, bridge && ports == 0
}
