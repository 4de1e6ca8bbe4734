package vip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/privilege"
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

// links returns all interfaces by name, and their MACs, which are this machine's own.
func links() (byName map[string]link, own map[lab.MAC]bool, err error) {
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
		flags = unix.IFA_F_NODAD // the kernel would wait for somebody to ask
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

// netlinkWait ends what hangs: the kernel answers at once.
const netlinkWait = 5 * time.Second

// change sends one request about an address, and returns its outcome. An error without the privilege is fs.ErrPermission.
func change(request, flags uint16, a netip.Addr, index int, addrFlags byte) error {
	family := byte(unix.AF_INET)
	if a.Is6() {
		family = unix.AF_INET6
	}
	const seq = 1
	b := make([]byte, unix.SizeofNlMsghdr, 128)
	b = append(b, family, byte(a.BitLen()), addrFlags, unix.RT_SCOPE_UNIVERSE)
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	for _, kind := range []uint16{unix.IFA_LOCAL, unix.IFA_ADDRESS} {
		b = appendAttr(b, kind, a.AsSlice())
	}
	b = appendAttr(b, attrProtocol, []byte{Protocol})
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], request)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
	binary.NativeEndian.PutUint32(b[8:], seq)
	return privilege.Using(privilege.NetAdmin, func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		defer func() { _ = unix.Close(fd) }()
		wait := unix.NsecToTimeval(int64(netlinkWait))
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
		if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return os.NewSyscallError("sendto", err)
		}
		return acknowledged(fd, seq)
	})
}

// acknowledged waits for the outcome of the request with that number.
func acknowledged(fd int, seq uint32) error {
	buf := make([]byte, 8<<10)
	for {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("recvfrom", err)
		}
		sender, ok := from.(*unix.SockaddrNetlink)
		if !ok || sender.Pid != 0 || n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(buf[4:]) != unix.NLMSG_ERROR || binary.NativeEndian.Uint32(buf[8:]) != seq {
			continue
		}
		if errno := -int32(binary.NativeEndian.Uint32(buf[unix.SizeofNlMsghdr:])); errno != 0 {
			return os.NewSyscallError("netlink", syscall.Errno(errno))
		}
		return nil
	}
}

func appendAttr(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%unix.NLMSG_ALIGNTO != 0 {
		b = append(b, 0)
	}
	return b
}

// denied reports whether err is a missing privilege.
func denied(err error) bool { return errors.Is(err, fs.ErrPermission) }

// openChanges returns a socket that becomes readable when an interface or an address changes.
func openChanges() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	groups := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR}
	if err := unix.Bind(fd, groups); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
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
