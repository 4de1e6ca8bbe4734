package vip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/link/rtnetlink"
	"github.com/bootlab/bootlab/internal/host/process/privilege"
	"github.com/bootlab/bootlab/internal/lab"
)

// Protocol marks the addresses that this package adds, in their field IFA_PROTO (Linux 5.18).
const Protocol = 0xb0

const attrProtocol = 11 // IFA_PROTO of linux/if_addr.h

// An onLink is an address that an interface of this machine has.
type onLink struct {
	addr     netip.Addr
	bits     int
	link     int
	protocol byte
	flags    uint32
}

// onLinks returns all addresses of this machine's interfaces.
func onLinks() (all []onLink, err error) {
	dump, err := syscall.NetlinkRIB(unix.RTM_GETADDR, unix.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("read the addresses of the interfaces: %w", os.NewSyscallError("netlink", err))
	}
	messages, err := syscall.ParseNetlinkMessage(dump)
	if err != nil {
		return nil, fmt.Errorf("read the addresses of the interfaces: %w", err)
	}
	for _, m := range messages {
		if m.Header.Type != unix.RTM_NEWADDR || len(m.Data) < unix.SizeofIfAddrmsg {
			continue
		}
		attrs, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil {
			return nil, fmt.Errorf("read the addresses of the interfaces: %w", err)
		}
		a := onLink{bits: int(m.Data[1]), flags: uint32(m.Data[2]), link: int(binary.NativeEndian.Uint32(m.Data[4:]))}
		for _, attr := range attrs {
			switch attr.Attr.Type {
			case unix.IFA_ADDRESS:
				if !a.addr.IsValid() { // of a point-to-point link it is the peer's
					a.addr, _ = netip.AddrFromSlice(attr.Value)
				}
			case unix.IFA_LOCAL:
				a.addr, _ = netip.AddrFromSlice(attr.Value)
			case unix.IFA_FLAGS:
				if len(attr.Value) == 4 {
					a.flags = binary.NativeEndian.Uint32(attr.Value)
				}
			case attrProtocol:
				if len(attr.Value) == 1 {
					a.protocol = attr.Value[0]
				}
			}
		}
		all = append(all, a)
	}
	return all, nil
}

// A link is an interface.
type link struct {
	index   int
	mac     lab.MAC // zero: it is no Ethernet
	up      bool
	carrier bool
}

// interfaces returns all interfaces by name, and their MACs, which are this machine's own.
func interfaces() (byName map[string]link, own map[lab.MAC]bool, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, nil, fmt.Errorf("read the interfaces: %w", err)
	}
	byName, own = map[string]link{}, map[lab.MAC]bool{}
	for _, i := range all {
		l := link{index: i.Index, up: i.Flags&net.FlagUp != 0, carrier: i.Flags&net.FlagRunning != 0}
		if len(i.HardwareAddr) == len(l.mac) {
			l.mac = lab.MAC(i.HardwareAddr)
			own[l.mac] = true
		}
		byName[i.Name] = l
	}
	return byName, own, nil
}

// add adds an address with its mark. As it is the only one of its prefix, it adds no route and is the source of no connection that does not
// name it.
func add(a netip.Addr, on link) error {
	var flags byte
	if a.Is6() && !on.carrier {
		flags = unix.IFA_F_NODAD // the kernel would wait for a neighbour
	}
	return change(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, a, on.index, flags)
}

// remove removes an address that add has added.
func remove(a netip.Addr, index int) error {
	err := change(unix.RTM_DELADDR, 0, a, index, 0)
	if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// change sends one request about an address. An error without the privilege is fs.ErrPermission.
func change(request, flags uint16, a netip.Addr, index int, addrFlags byte) error {
	body := []byte{rtnetlink.Family(a), byte(a.BitLen()), addrFlags, unix.RT_SCOPE_UNIVERSE}
	body = binary.NativeEndian.AppendUint32(body, uint32(index))
	for _, kind := range []uint16{unix.IFA_LOCAL, unix.IFA_ADDRESS} {
		body = rtnetlink.AppendAttr(body, kind, a.AsSlice())
	}
	body = rtnetlink.AppendAttr(body, attrProtocol, []byte{Protocol})
	return privilege.Using(privilege.NetAdmin, func() error {
		conn, err := rtnetlink.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		return conn.Change(request, flags, body)
	})
}

// Marked returns the addresses that this package, in this process or another one, has added to an interface. They say nothing of the
// network that the interface is in.
func Marked(name string) (marked []netip.Addr) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil
	}
	all, _ := onLinks() // without an answer none is known to be marked
	for _, a := range all {
		if a.link == ifi.Index && a.protocol == Protocol {
			marked = append(marked, a.addr)
		}
	}
	return marked
}
