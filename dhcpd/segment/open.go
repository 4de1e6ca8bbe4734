package segment

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// listenUDP binds the wildcard address: a socket bound to one address hears no broadcast.
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

// receiveBuffer holds the packets of a rack that is switched on at once, some 800 of them; the kernel's default holds 200.
// It is a limit, not memory in use.
const receiveBuffer = 1 << 20

// setOptions sets what is set after bind.
//
// SO_REUSEADDR is among it: dnsmasq, as libvirt starts it for a network of its own, binds the wildcard address first and
// its interface afterwards; the kernel lets it only if both sockets have the option. Set before bind it would let us
// share an interface with another server in silence; set after, our own bind was still refused where it had to be, and
// so is that of a second bootlab.
func setOptions(fd int, iface string) error {
	// Best effort: above the system's limit it needs CAP_NET_ADMIN.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
	if iface == "" {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
}

func control(c syscall.RawConn, set func(fd int) error) error {
	var err error
	return errors.Join(c.Control(func(fd uintptr) { err = set(int(fd)) }), err)
}

// openPacketSocket opens a packet socket. The filter is in place before the first packet.
func openPacketSocket(ifi *net.Interface, protocol int, filter []bpf.RawInstruction) (*packetSocket, error) {
	conn, err := packet.Listen(ifi, packet.Raw, protocol, &packet.Config{Filter: filter})
	if err != nil {
		return nil, err
	}
	t := &packetSocket{conn: conn}
	if t.sys, err = conn.SyscallConn(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return t, nil
}

// assemble is for the filters of this package, which are constant.
func assemble(program []bpf.Instruction) []bpf.RawInstruction {
	raw, err := bpf.Assemble(program)
	if err != nil {
		panic(err)
	}
	return raw
}

// read waits for one frame. It does not allocate, unlike ReadFrom.
func (t *packetSocket) read(buf []byte) (n int, err error) {
	waited := t.sys.Read(func(fd uintptr) bool {
		n, err = unix.Read(int(fd), buf)
		return !errors.Is(err, unix.EAGAIN)
	})
	if waited != nil {
		return 0, waited
	}
	return n, os.NewSyscallError("read", err)
}

// write sends one frame now or not at all.
func (t *packetSocket) write(frame []byte, to *unix.SockaddrLinklayer) (err error) {
	return control(t.sys, func(fd int) error { return unix.Sendto(fd, frame, unix.MSG_DONTWAIT, to) })
}

// listenICMP opens a raw socket that hears the answers to pings, and nothing else of ICMP. It is bound to no interface:
// which way leads past a relay is for the routing table to say.
func listenICMP() (*ipv4.PacketConn, error) {
	raw, err := net.ListenPacket("ip4:icmp", "0.0.0.0")
	if err != nil {
		return nil, err
	}
	conn := ipv4.NewPacketConn(raw)
	var filter ipv4.ICMPFilter
	filter.SetAll(true)
	filter.Accept(ipv4.ICMPTypeEchoReply)
	if err := conn.SetICMPFilter(&filter); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
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
