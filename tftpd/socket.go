package tftpd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxSegments and maxBatch bound one UDP_SEGMENT send: the kernel takes 64 segments (UDP_MAX_SEGMENTS of older kernels)
// and no more bytes than fit a UDP datagram.
const (
	maxSegments = 64
	maxBatch    = 65000
)

// watchDestination asks the kernel to tell to which address of this machine each packet was sent: on a machine with
// several, the answer must leave from that very one, or the client drops it. Dual-stack sockets want both options.
func watchDestination(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var err4, err6 error
	if err := raw.Control(func(fd uintptr) {
		err4 = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		err6 = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	}); err != nil {
		return err
	}
	if err4 != nil && err6 != nil {
		return fmt.Errorf("ask for the destination of packets: %w", err4)
	}
	return nil
}

// destination reads the address of this machine that a packet was sent to. For a broadcast that is the address that an
// answer should come from. It is invalid if the kernel did not tell.
func destination(oob []byte) netip.Addr {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.Addr{}
	}
	var to netip.Addr
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			return netip.AddrFrom4([4]byte(m.Data[4:8])) // ipi_spec_dst
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			to = netip.AddrFrom16([16]byte(m.Data[:16])).Unmap()
		}
	}
	return to
}

// dial opens the socket of one transfer, with a port of its own (its transfer identifier, RFC 1350 section 4). It is not
// connected: a packet from a stranger has to be answered with ERROR 5.
func dial(local, client netip.Addr) (*net.UDPConn, error) {
	network := "udp4"
	if client.Is6() {
		network = "udp6"
	}
	conn, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0)))
	if err != nil && local.IsValid() {
		// The address is not one of ours, as behind a transparent proxy.
		conn, err = net.ListenUDP(network, nil)
	}
	if err != nil {
		return nil, err
	}
	if err := tune(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// tune lets packets be fragmented on their way, as boot ROMs do not take part in path MTU discovery, and asks to hear
// that the client's port is closed.
func tune(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) {
		// Neither option is worth a refused boot. One of each pair fails, as a socket is of one family.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVERR, 1)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
	})
}

// blockLimit returns how many bytes of a file fit one packet on the way to client, or 0 if the kernel does not know.
func blockLimit(client netip.AddrPort) int {
	network, level, option, overhead := "udp4", unix.IPPROTO_IP, unix.IP_MTU, overhead4
	if client.Addr().Is6() {
		network, level, option, overhead = "udp6", unix.IPPROTO_IPV6, unix.IPV6_MTU, overhead6
	}
	// To connect a UDP socket sends nothing; it makes the kernel choose the route, which knows the MTU.
	probe, err := net.DialUDP(network, nil, net.UDPAddrFromAddrPort(client))
	if err != nil {
		return 0
	}
	defer probe.Close()
	raw, err := probe.SyscallConn()
	if err != nil {
		return 0
	}
	mtu := 0
	if err := raw.Control(func(fd uintptr) { mtu, _ = unix.GetsockoptInt(int(fd), level, option) }); err != nil {
		return 0
	}
	return max(0, mtu-overhead)
}

// A batcher sends runs of equally long packets, in one system call where the kernel can cut them apart (UDP_SEGMENT).
type batcher struct {
	conn  *net.UDPConn
	to    netip.AddrPort
	whole bool // the kernel or the interface cannot: one call for each packet
}

// send sends b as packets of size bytes, the last of which may be shorter.
func (s *batcher) send(b []byte, size int) error {
	if !s.whole && len(b) > size {
		_, _, err := s.conn.WriteMsgUDPAddrPort(b, segmentMessage(size), s.to)
		if err == nil {
			return nil
		}
		if !cannotSegment(err) {
			return err
		}
		s.whole = true
	}
	for len(b) > 0 {
		n := min(size, len(b))
		if _, err := s.conn.WriteToUDPAddrPort(b[:n], s.to); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// cannotSegment reports whether err says that segments are not to be had: an old kernel, an interface without checksum
// offload, packets larger than the MTU.
func cannotSegment(err error) bool {
	for _, no := range []error{unix.EIO, unix.EINVAL, unix.EMSGSIZE, unix.ENOPROTOOPT, unix.EOPNOTSUPP} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// segmentMessage is the control message that tells the kernel where to cut.
func segmentMessage(size int) []byte {
	b := make([]byte, unix.CmsgSpace(2))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(b[unix.CmsgLen(0):], uint16(size))
	return b
}
