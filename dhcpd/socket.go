package dhcpd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"bootlab/internal/lab"

	"github.com/mdlayher/packet"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

const (
	ethernetHeader = 14
	ipv4Header     = 20
	udpHeader      = 8
	// frameHeadroom is what a reply leaves free in front, for the headers of a raw frame.
	frameHeadroom = ethernetHeader + ipv4Header + udpHeader
)

// A destination is where a reply goes.
type destination struct {
	source netip.Addr // our address in the network
	port   uint16     // our port: 67 or 4011
	to     netip.AddrPort
	mac    lab.MAC // of a client without an address; zero: to is reached by IP
}

func (d *destination) broadcast() {
	d.to = netip.AddrPortFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), portClient)
	d.mac = lab.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
}

// A Socket is what a server needs of one interface: the ports 67 and 4011, and a raw sender for clients that have no
// address yet. Only DHCP of this interface reaches it, so it lives beside other DHCP servers on other interfaces of the
// same machine, such as libvirt's dnsmasq.
type Socket struct {
	iface string
	index int
	hw    net.HardwareAddr
	main  *net.UDPConn
	pxe   *net.UDPConn
	raw   *packet.Conn // nil on the socket for any interface
}

// A port is one bound port of a socket.
type port struct {
	number uint16
	conn   *net.UDPConn
	any    bool // on any interface: tell where a packet was sent to
}

// read returns one packet, who sent it and, on any interface, to which of our addresses.
func (p port) read(buf []byte) (n int, from netip.AddrPort, local netip.Addr, err error) {
	if !p.any {
		n, from, err = p.conn.ReadFromUDPAddrPort(buf)
		return n, from, netip.Addr{}, err
	}
	var oob [64]byte
	n, size, _, from, err := p.conn.ReadMsgUDPAddrPort(buf, oob[:])
	if err != nil {
		return 0, from, netip.Addr{}, err
	}
	var cm ipv4.ControlMessage
	if cm.Parse(oob[:size]) == nil {
		local = addrOf(cm.Dst.To4())
	}
	return n, from, local, nil
}

// Listen opens the sockets of an interface, or with "" those for packets that relays send to any interface. It needs
// CAP_NET_RAW and CAP_NET_BIND_SERVICE. An error wraps syscall.EADDRINUSE where another program has a port.
//
// SO_REUSEPORT is left off on purpose: with it a second server would start in silence and share the packets.
func Listen(iface string) (_ *Socket, err error) {
	s := &Socket{iface: iface}
	defer func() {
		if err != nil {
			_ = s.Close()
			err = fmt.Errorf("listen for DHCP on interface %q: %w", iface, err)
		}
	}()
	if s.main, err = listenUDP(iface, portServer); err != nil {
		return nil, err
	}
	if s.pxe, err = listenUDP(iface, portPXE); err != nil {
		return nil, err
	}
	if iface == "" {
		return s, nil
	}
	ifi, err := net.InterfaceByName(iface)
	if err != nil {
		return nil, err
	}
	s.index, s.hw = ifi.Index, ifi.HardwareAddr
	if len(s.hw) != len(lab.MAC{}) {
		return nil, fmt.Errorf("not an Ethernet interface")
	}
	// Protocol 0 receives nothing: this socket only sends, and must not get a copy of every image that is served.
	s.raw, err = packet.Listen(ifi, packet.Raw, 0, nil)
	return s, err
}

// listenUDP binds the wildcard address: a socket bound to one address hears no broadcast.
func listenUDP(iface string, number uint16) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		ctl := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
			if err == nil && iface != "" {
				err = unix.BindToDevice(int(fd), iface)
			}
		})
		return errors.Join(ctl, err)
	}}
	conn, err := lc.ListenPacket(context.Background(), "udp4", ":"+strconv.Itoa(int(number)))
	if err != nil {
		return nil, err
	}
	udp := conn.(*net.UDPConn)
	growBuffer(udp)
	if iface == "" {
		return udp, ipv4.NewPacketConn(udp).SetControlMessage(ipv4.FlagDst, true)
	}
	if err := letOthersBind(udp); err != nil {
		_ = udp.Close()
		return nil, err
	}
	return udp, nil
}

// receiveBuffer holds the packets of a rack that is switched on at once, some 800 of them; the kernel's default holds 200.
// It is a limit, not memory in use.
const receiveBuffer = 1 << 20

// growBuffer is best effort: above the system's limit it needs CAP_NET_ADMIN.
func growBuffer(conn *net.UDPConn) {
	_ = conn.SetReadBuffer(receiveBuffer)
	if c, err := conn.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
		})
	}
}

// letOthersBind sets SO_REUSEADDR, now that this socket is bound. dnsmasq, as libvirt starts it for a network of its own,
// binds the wildcard address first and its interface afterwards; the kernel lets it only if both sockets have the option.
// Set before bind it would let us share an interface with another server in silence; set after, our own bind was still
// refused where it had to be, and so is that of a second bootlab.
func letOthersBind(conn *net.UDPConn) error {
	c, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	ctl := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
	return errors.Join(ctl, err)
}

// Close closes all of it. A reader gets net.ErrClosed.
func (s *Socket) Close() error {
	var errs []error
	for _, c := range []*net.UDPConn{s.main, s.pxe} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	if s.raw != nil {
		errs = append(errs, s.raw.Close())
	}
	return errors.Join(errs...)
}

func (s *Socket) ports() []port {
	any := s.iface == ""
	return []port{{portServer, s.main, any}, {portPXE, s.pxe, any}}
}

// stale reports whether the interface was taken away and made again, which leaves this socket deaf. While it is away the
// socket waits.
func (s *Socket) stale() bool {
	if s.iface == "" {
		return false
	}
	ifi, err := net.InterfaceByName(s.iface)
	return err == nil && ifi.Index != s.index
}

// send implements link.
func (s *Socket) send(d destination, frame []byte) error {
	if d.mac.IsZero() || s.raw == nil {
		return s.sendUDP(d, frame[frameHeadroom:])
	}
	putHeaders(frame, s.hw, d)
	_, err := s.raw.WriteTo(frame, &packet.Addr{HardwareAddr: d.mac[:]})
	if err == nil {
		return nil
	}
	// The kernel may refuse raw frames (a filter, a lost capability). What everybody hears, this client hears too.
	d.broadcast()
	if udpErr := s.sendUDP(d, frame[frameHeadroom:]); udpErr != nil {
		return errors.Join(err, udpErr)
	}
	return nil
}

// sendUDP sends from the address that the client knows as its server, whatever else the interface has.
func (s *Socket) sendUDP(d destination, b []byte) error {
	conn := s.main
	if d.port == portPXE {
		conn = s.pxe
	}
	var oob []byte
	if d.source.IsValid() {
		oob = (&ipv4.ControlMessage{Src: d.source.AsSlice()}).Marshal()
	}
	_, _, err := conn.WriteMsgUDPAddrPort(b, oob, d.to)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENETUNREACH) { // the address is not on this machine just now
		_, _, err = conn.WriteMsgUDPAddrPort(b, nil, d.to)
	}
	return err
}

// putHeaders writes Ethernet, IPv4 and UDP headers into the headroom of a frame.
func putHeaders(frame []byte, hw net.HardwareAddr, d destination) {
	copy(frame[0:], d.mac[:])
	copy(frame[6:], hw)
	binary.BigEndian.PutUint16(frame[12:], unix.ETH_P_IP)
	putIPv4(frame[ethernetHeader:], d)
}

func putIPv4(ip []byte, d destination) {
	src, dst := [4]byte{}, d.to.Addr().As4()
	if d.source.Is4() {
		src = d.source.As4()
	}
	clear(ip[:ipv4Header])
	ip[0] = 4<<4 | ipv4Header/4
	ip[1] = 0x10 // low delay, as other servers do
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	ip[6] = 0x40 // do not fragment
	ip[8] = 64
	ip[9] = unix.IPPROTO_UDP
	copy(ip[12:], src[:])
	copy(ip[16:], dst[:])
	binary.BigEndian.PutUint16(ip[10:], ^sum16(0, ip[:ipv4Header]))
	putUDP(ip[ipv4Header:], src, dst, d)
}

// putUDP computes the checksum: it may be left out in IPv4, but some firmware drops what has none.
func putUDP(udp []byte, src, dst [4]byte, d destination) {
	binary.BigEndian.PutUint16(udp[0:], d.port)
	binary.BigEndian.PutUint16(udp[2:], d.to.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	udp[6], udp[7] = 0, 0
	sum := sum16(0, src[:])
	sum = sum16(sum, dst[:])
	sum = sum16(sum, []byte{0, unix.IPPROTO_UDP, udp[4], udp[5]})
	sum = ^sum16(sum, udp)
	if sum == 0 {
		sum = 0xffff // zero would say "no checksum" (RFC 768)
	}
	binary.BigEndian.PutUint16(udp[6:], sum)
}

// sum16 adds b to a ones' complement sum (RFC 1071).
func sum16(sum uint16, b []byte) uint16 {
	s := uint32(sum)
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	for s > 0xffff {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}
