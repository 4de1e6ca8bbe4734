package tftpd

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
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
func destination(oob []byte) (to netip.Addr) {
	for len(oob) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		switch {
		case err != nil:
			return to
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			return netip.AddrFrom4([4]byte(data[4:8])) // ipi_spec_dst
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			to = netip.AddrFrom16([16]byte(data[:16])).Unmap()
		}
		oob = rest
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
	if err := errors.Join(fragment(conn), hearErrors(conn)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// fragment lets packets be fragmented on their way, as boot ROMs do not take part in path MTU discovery.
func fragment(conn *net.UDPConn) error {
	return trySockopts(conn, [][3]int{
		{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT}, {unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT},
	})
}

// hearErrors asks to hear that the client's port is closed.
func hearErrors(conn *net.UDPConn) error {
	return trySockopts(conn, [][3]int{{unix.IPPROTO_IP, unix.IP_RECVERR, 1}, {unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1}})
}

// trySockopts sets options that are not worth a refused boot: level, name and value of each. One of each pair fails, as a socket
// is of one family.
func trySockopts(conn *net.UDPConn, options [][3]int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) {
		for _, o := range options {
			_ = unix.SetsockoptInt(int(fd), o[0], o[1], o[2])
		}
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
