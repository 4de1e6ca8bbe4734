package segment

import (
	"context"
	"net"
	"strconv"
	"syscall"
	"unsafe"

	"github.com/bootlab/bootlab/internal/host/datagram"

	"golang.org/x/sys/unix"
)

// listenUDP binds the wildcard address: a socket that is bound to one address receives no broadcast.
func listenUDP(iface string, number uint16) (*udpSocket, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return control(c, func(fd int) error {
			err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
			if err == nil && iface != "" {
				err = unix.BindToDevice(fd, iface)
			}
			return err
		})
	}}
	conn, err := lc.ListenPacket(context.Background(), "udp4", ":"+strconv.Itoa(int(number)))
	if err != nil {
		return nil, err
	}
	p := &udpSocket{conn: conn.(*net.UDPConn)}
	if p.sys, err = p.conn.SyscallConn(); err == nil {
		err = control(p.sys, func(fd int) error { return setOptions(fd, iface) })
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return p, nil
}

// setOptions sets the options that must be set after bind.
//
// One of them is SO_REUSEADDR: dnsmasq, as libvirt starts it for a network of its own, binds the wildcard address first and
// its interface afterwards; the kernel allows it only if both sockets have the option. Set before bind, the option would let
// us share an interface with another server without an error; set after, our own bind has already failed if it had to, and
// so does that of a second bootlab.
func setOptions(fd int, iface string) error {
	datagram.EnlargeReceiveBuffer(fd)
	if iface == "" {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
}

func control(c syscall.RawConn, set func(fd int) error) error {
	var err error
	if closed := c.Control(func(fd uintptr) { err = set(int(fd)) }); closed != nil {
		return closed
	}
	return err
}

// ifreqHW is struct ifreq as SIOCGIFHWADDR fills it.
type ifreqHW struct {
	name   [unix.IFNAMSIZ]byte
	family uint16
	addr   [14]byte
	_      [8]byte
}

func (r *ifreqHW) ioctl(fd, request uintptr) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(r))); errno != 0 {
		return errno
	}
	return nil
}
