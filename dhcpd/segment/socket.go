package segment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/bootlab/bootlab/internal/host/link/arp"
	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/host/socket/datagram"
	"github.com/bootlab/bootlab/internal/lab"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// A Socket is what a server needs of one interface: the ports 67 and 4011, a packet socket that sends to clients without an
// address, and three packet sockets that receive ARP, the replies of other DHCP servers, and the messages that end a lease, with their
// senders. It receives DHCP of this interface alone, so other DHCP servers can run on other interfaces of the same machine, such as
// libvirt's dnsmasq. Listen opens all descriptors, so the Socket still works after privileges are dropped.
//
// Its methods may be used by several goroutines.
type Socket struct {
	iface  string
	index  int
	hw     atomic.Uint64 // a bridge changes its MAC when a port joins
	server *udpSocket
	pxe    *udpSocket
	icmp   *ipv4.PacketConn // replies to our pings past relays

	// Of one interface only.
	raw      *packet.Socket   // sends; receives nothing
	arp      *packet.Socket   // receives ARP
	replies  *packet.Socket   // receives DHCP messages to clients
	releases *packet.Socket   // receives DHCPRELEASE and DHCPDECLINE, for the senders of their frames
	origins  origins          // of releases
	ndp      *ipv6.PacketConn // router solicitations; nil: no IPv6 there, see ndFail
	ndpErr   error
}

// A udpSocket is one bound port.
type udpSocket struct {
	conn *net.UDPConn
	sys  syscall.RawConn
}

// Listen opens the sockets of an interface, or with "" those for packets that relays send to any interface. The process needs
// CAP_NET_RAW and CAP_NET_BIND_SERVICE. An error wraps syscall.EADDRINUSE where another program has a port, and
// syscall.ENODEV where there is no such interface.
//
// SO_REUSEPORT is not set: with it a second server would start without an error and share the packets.
func Listen(iface string) (_ *Socket, err error) {
	s := &Socket{iface: iface}
	defer func() {
		if err != nil {
			_ = s.Close()
			err = fmt.Errorf("listen for DHCP on interface %q: %w", iface, err)
		}
	}()
	if s.server, err = listenUDP(iface, PortServer); err != nil {
		return nil, err
	}
	if s.pxe, err = listenUDP(iface, PortPXE); err != nil {
		return nil, err
	}
	if s.icmp, err = listenICMP(); err != nil || iface == "" {
		return s, err
	}
	return s, s.openPacketSockets()
}

func (s *Socket) openPacketSockets() error {
	ifi, err := net.InterfaceByName(s.iface)
	if err != nil {
		return err
	}
	s.index = ifi.Index
	if err := control(s.server.sys, func(fd int) error { return s.readMAC(uintptr(fd)) }); err != nil {
		return err
	}
	// Protocol 0 receives nothing: this socket only sends, and must not get a copy of all other traffic.
	if s.raw, err = packet.OpenOn(ifi.Index, 0, nil); err != nil {
		return err
	}
	if s.arp, err = packet.OpenOn(ifi.Index, unix.ETH_P_ARP, arp.Filter()); err != nil {
		return err
	}
	if s.replies, err = packet.OpenOn(ifi.Index, unix.ETH_P_IP, replyFilter()); err != nil {
		return err
	}
	if s.releases, err = packet.OpenOn(ifi.Index, unix.ETH_P_ALL, releaseFilter()); err != nil {
		return err
	}
	s.ndp, s.ndpErr = listenNDP(ifi)
	return ignoreOutgoing(s.releases)
}

// Close closes all of it. Readers get net.ErrClosed.
func (s *Socket) Close() error {
	var errs []error
	for _, p := range []*udpSocket{s.server, s.pxe} {
		if p != nil {
			errs = append(errs, p.conn.Close())
		}
	}
	for _, t := range []*packet.Socket{s.raw, s.arp, s.replies, s.releases} {
		if t != nil {
			t.Close()
		}
	}
	if s.ndp != nil {
		errs = append(errs, s.ndp.Close())
	}
	if s.icmp != nil {
		errs = append(errs, s.icmp.Close())
	}
	return errors.Join(errs...)
}

// Interface returns the name of the interface, "" for any.
func (s *Socket) Interface() string { return s.iface }

// MAC returns the interface's address as of the last Check; zero for any interface.
func (s *Socket) MAC() (m lab.MAC) {
	v := s.hw.Load()
	for i := range m {
		m[i] = byte(v >> (8 * i))
	}
	return m
}

func (s *Socket) setMAC(m lab.MAC) {
	var v uint64
	for i, b := range m {
		v |= uint64(b) << (8 * i)
	}
	s.hw.Store(v)
}

// Receive waits for packets on a port of the socket, PortServer or PortPXE, and returns how many there are: at least one,
// unless err is set. After an error that is not net.ErrClosed, such as ENETDOWN of a NIC that goes down, it can be called
// again. Only the socket for any interface reports to which address a packet was sent.
func (s *Socket) Receive(port uint16, in *datagram.Receiver) (n int, err error) {
	return in.Receive(s.port(port).sys)
}

// Interrupt makes Receive on a port return os.ErrDeadlineExceeded, now and until Resume is called.
func (s *Socket) Interrupt(port uint16) error {
	return s.port(port).conn.SetReadDeadline(time.Unix(1, 0))
}

// Resume ends what Interrupt began.
func (s *Socket) Resume(port uint16) error { return s.port(port).conn.SetReadDeadline(time.Time{}) }

func (s *Socket) port(number uint16) *udpSocket {
	if number == PortPXE {
		return s.pxe
	}
	return s.server
}

// Why a socket receives nothing, although it has no error.
var (
	ErrNoInterface = errors.New("interface does not exist")
	ErrDown        = errors.New("interface is down")
	// ErrReplaced: the interface was deleted and made again under the same name. The socket must be opened again.
	ErrReplaced = errors.New("interface was replaced")
)

// Check returns nil if the socket's interface is up, else ErrNoInterface, ErrDown or ErrReplaced. It also notices a changed
// MAC. It costs three system calls, however many interfaces there are, and is meant to be called every half second.
func (s *Socket) Check() error {
	if s.iface == "" {
		return nil
	}
	return control(s.server.sys, func(fd int) error {
		ifr, err := unix.NewIfreq(s.iface)
		if err != nil || unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr) != nil {
			return ErrNoInterface
		}
		if ifr.Uint32() != uint32(s.index) {
			return ErrReplaced
		}
		_ = s.readMAC(uintptr(fd)) // else it stays
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil || ifr.Uint16()&unix.IFF_UP == 0 {
			return ErrDown
		}
		return nil
	})
}

// readMAC reads the interface's MAC through any socket. A bridge without ports may have none: 00:00:00:00:00:00, which package net
// does not report, until a port joins.
func (s *Socket) readMAC(fd uintptr) error {
	var ifr ifreqHW
	copy(ifr.name[:unix.IFNAMSIZ-1], s.iface)
	if err := ifr.ioctl(fd, unix.SIOCGIFHWADDR); err != nil {
		return err
	}
	if ifr.family != unix.ARPHRD_ETHER {
		return errors.New("not an Ethernet interface")
	}
	s.setMAC(lab.MAC(ifr.addr[:6]))
	return nil
}

// sendUDP sends from the address that the client knows as its server's, whatever other addresses the interface has.
func (s *Socket) sendUDP(d Dest, b []byte) error {
	conn := s.port(d.Port).conn
	if d.Source.IsValid() {
		oob := (&ipv4.ControlMessage{Src: d.Source.AsSlice()}).Marshal()
		_, _, err := conn.WriteMsgUDPAddrPort(b, oob, d.To)
		if !sourceUnavailable(err) {
			return err
		}
	}
	_, _, err := conn.WriteMsgUDPAddrPort(b, nil, d.To)
	return err
}

// sourceUnavailable reports whether a message failed because the machine does not have the source address now.
func sourceUnavailable(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENETUNREACH)
}

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
	err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
	if err != nil || iface == "" {
		return err
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
