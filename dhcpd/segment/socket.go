package segment

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/mdlayher/packet"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// A Socket is what a server needs of one interface: the ports 67 and 4011, a raw sender for clients that have no address
// yet, and two ears in the kernel's packet layer, for ARP and for the answers of other DHCP servers. Only DHCP of this
// interface reaches it, so it lives beside other DHCP servers on other interfaces of the same machine, such as libvirt's
// dnsmasq. All descriptors are opened by Listen, so it works on after privileges are dropped.
//
// Its methods may be used by several goroutines.
type Socket struct {
	iface string
	index int
	hw    atomic.Uint64 // a bridge takes another MAC when a port joins
	main  *udpPort
	pxe   *udpPort
	icmp  *ipv4.PacketConn // answers to our pings past relays

	// Of one interface only.
	raw    *tap             // sends, hears nothing
	arp    *tap             // ARP for us and for all
	rogue  *tap             // DHCP for clients
	nd     *ipv6.PacketConn // router solicitations; nil: no IPv6 there, see ndFail
	ndFail error
}

// A udpPort is one bound port.
type udpPort struct {
	conn *net.UDPConn
	sys  syscall.RawConn
}

// A tap is a packet socket on one interface.
type tap struct {
	conn *packet.Conn
	sys  syscall.RawConn
}

// Listen opens the sockets of an interface, or with "" those for packets that relays send to any interface. It needs
// CAP_NET_RAW and CAP_NET_BIND_SERVICE. An error wraps syscall.EADDRINUSE where another program has a port, and
// syscall.ENODEV where there is no such interface.
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
	if s.main, err = listenUDP(iface, PortServer); err != nil {
		return nil, err
	}
	if s.pxe, err = listenUDP(iface, PortPXE); err != nil {
		return nil, err
	}
	if s.icmp, err = listenICMP(); err != nil || iface == "" {
		return s, err
	}
	return s, s.openTaps()
}

func (s *Socket) openTaps() error {
	ifi, err := net.InterfaceByName(s.iface)
	if err != nil {
		return err
	}
	s.index = ifi.Index
	if len(ifi.HardwareAddr) != len(lab.MAC{}) {
		return errors.New("not an Ethernet interface")
	}
	s.setMAC(lab.MAC(ifi.HardwareAddr))
	// Protocol 0 receives nothing: this socket only sends, and must not get a copy of every image that is served.
	if s.raw, err = openTap(ifi, 0, nil); err != nil {
		return err
	}
	if s.arp, err = openTap(ifi, unix.ETH_P_ARP, arpFilter()); err != nil {
		return err
	}
	if s.rogue, err = openTap(ifi, unix.ETH_P_IP, replyFilter()); err != nil {
		return err
	}
	s.nd, s.ndFail = listenND(ifi)
	return nil
}

// Close closes all of it. Readers get net.ErrClosed.
func (s *Socket) Close() error {
	var errs []error
	for _, p := range []*udpPort{s.main, s.pxe} {
		if p != nil {
			errs = append(errs, p.conn.Close())
		}
	}
	for _, t := range []*tap{s.raw, s.arp, s.rogue} {
		if t != nil {
			errs = append(errs, t.conn.Close())
		}
	}
	if s.nd != nil {
		errs = append(errs, s.nd.Close())
	}
	if s.icmp != nil {
		errs = append(errs, s.icmp.Close())
	}
	return errors.Join(errs...)
}

// Interface returns the name of the interface, "" for any.
func (s *Socket) Interface() string { return s.iface }

// MAC returns the interface's address as it was when the socket was opened or Stale was last asked; zero for any.
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

func (s *Socket) port(number uint16) *udpPort {
	if number == PortPXE {
		return s.pxe
	}
	return s.main
}

// Stale reports whether the interface was taken away and made again, which leaves this socket deaf and without an error.
// While the interface is away the socket waits. Stale also learns a changed MAC. It costs two system calls, however many
// interfaces there are, and is meant to be asked every few seconds.
func (s *Socket) Stale() (stale bool) {
	if s.iface == "" {
		return false
	}
	_ = s.main.sys.Control(func(fd uintptr) {
		var index uint32
		if index, stale = s.replaced(int(fd)); stale || index == 0 {
			return
		}
		s.learnMAC(fd)
	})
	return stale
}

// learnMAC reads the interface's MAC by any socket. Where it cannot be read the last one holds.
func (s *Socket) learnMAC(fd uintptr) {
	var ifr ifreqHW
	copy(ifr.name[:unix.IFNAMSIZ-1], s.iface)
	if ifr.ioctl(fd, unix.SIOCGIFHWADDR) == nil {
		s.setMAC(lab.MAC(ifr.addr[:6]))
	}
}

// replaced looks the name up: index 0 says that there is no such interface now.
func (s *Socket) replaced(fd int) (index uint32, stale bool) {
	ifr, err := unix.NewIfreq(s.iface)
	if err != nil || unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr) != nil {
		return 0, false
	}
	return ifr.Uint32(), ifr.Uint32() != uint32(s.index)
}

// Send sends one frame: frame[FrameHeadroom:] is the DHCP message, and the headroom is written over. An Outbox is for many.
func (s *Socket) Send(d Dest, frame []byte) error {
	if d.MAC.IsZero() || s.raw == nil {
		return s.sendUDP(d, frame[FrameHeadroom:])
	}
	putHeaders(frame, s.MAC(), &d)
	_, err := s.raw.conn.WriteTo(frame, &packet.Addr{HardwareAddr: d.MAC[:]})
	if err == nil {
		return nil
	}
	return s.sendLoud(d, frame, err)
}

// sendLoud is for when the kernel refuses raw frames (a filter, a lost capability): what everybody hears, this client
// hears too.
func (s *Socket) sendLoud(d Dest, frame []byte, refused error) error {
	d.Broadcast()
	if err := s.sendUDP(d, frame[FrameHeadroom:]); err != nil {
		return errors.Join(refused, err)
	}
	return nil
}

// sendUDP sends from the address that the client knows as its server, whatever else the interface has.
func (s *Socket) sendUDP(d Dest, b []byte) error {
	conn := s.port(d.Port).conn
	if d.Source.IsValid() {
		oob := (&ipv4.ControlMessage{Src: d.Source.AsSlice()}).Marshal()
		_, _, err := conn.WriteMsgUDPAddrPort(b, oob, d.To)
		if !notOurAddress(err) {
			return err
		}
	}
	_, _, err := conn.WriteMsgUDPAddrPort(b, nil, d.To)
	return err
}

// notOurAddress reports that the source address is not on this machine just now.
func notOurAddress(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENETUNREACH)
}
