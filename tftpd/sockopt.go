package tftpd

import (
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// listenFor opens the socket of one transfer with a client. It is not connected: a packet of another sender has to be
// answered with ERROR 5.
func listenFor(local, client netip.Addr) (*net.UDPConn, error) {
	network := "udp4"
	if client.Is6() {
		network = "udp6"
	}
	conn, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0)))
	if err != nil && local.IsValid() {
		// The address is not one of this machine, as behind a transparent proxy.
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

// allowFragments lets routers fragment packets, since boot ROMs do no path MTU discovery.
func allowFragments(conn *net.UDPConn) error {
	return setOptions(conn, [][3]int{
		{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT}, {unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT},
	})
}

// receiveErrors makes the kernel report that the client's port is closed, though the socket is not connected.
func receiveErrors(conn *net.UDPConn) error {
	return setOptions(conn, [][3]int{{unix.IPPROTO_IP, unix.IP_RECVERR, 1}, {unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1}})
}

// setOptions sets options that a boot can do without: level, name and value of each. One of each pair fails, since a socket
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
	// Connecting a UDP socket sends nothing; it makes the kernel choose the route, which has the MTU.
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
