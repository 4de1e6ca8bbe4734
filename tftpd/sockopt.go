package tftpd

import (
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

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
	if err := errors.Join(allowFragments(conn), receiveErrors(conn)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// fragment lets packets be fragmented on their way, as boot ROMs do not take part in path MTU discovery.
func allowFragments(conn *net.UDPConn) error {
	return setOptions(conn, [][3]int{
		{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT}, {unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT},
	})
}

// receiveErrors asks to hear that the client's port is closed.
func receiveErrors(conn *net.UDPConn) error {
	return setOptions(conn, [][3]int{{unix.IPPROTO_IP, unix.IP_RECVERR, 1}, {unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1}})
}

// setOptions sets options that are not worth a refused boot: level, name and value of each. One of each pair fails, as a socket
// is of one family.
func setOptions(conn *net.UDPConn, options [][3]int) error {
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
