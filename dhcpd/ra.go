package dhcpd

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// iPXE asks for an IPv6 router when it brings a NIC up and waits some 13 seconds for an answer, in every boot of every
// machine. The answer "here is a router that routes nothing and knows no prefix" (RFC 4861 section 4.2, router lifetime 0)
// ends the wait at once and configures nobody: no default route, no address, no change to what a real router says.

const (
	allNodes   = "ff02::1"
	allRouters = "ff02::2"
	ndHops     = 255 // RFC 4861 section 6.1.1: anything less came from another network
)

// advertise answers router solicitations on a socket's interface until ctx ends. It is best effort: an interface without
// IPv6 does without.
func (s *Server) advertise(ctx context.Context, sock *Socket) {
	if sock.iface == "" {
		return
	}
	conn, err := listenND(sock.iface)
	if err != nil {
		s.log.Info("router solicitations are not answered, iPXE may boot 13 s slower", keyIface, sock.iface, keyErr, err)
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer conn.Close()
	s.answerSolicitations(ctx, conn, sock)
}

func (s *Server) answerSolicitations(ctx context.Context, conn *ipv6.PacketConn, sock *Socket) {
	defer s.contain()
	buf := make([]byte, 512)
	reply := noRouter(sock.hw)
	wait := minBackoff
	for {
		n, cm, from, err := conn.ReadFrom(buf)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) || !sleep(ctx, wait) {
				return
			}
			wait = min(2*wait, maxBackoff)
			continue
		}
		wait = minBackoff
		if !isSolicitation(buf[:n], cm) || !s.deps.Table().advertises(sock.iface) {
			continue
		}
		if _, err := conn.WriteTo(reply, nil, advertiseTo(from, sock.iface)); err != nil {
			s.log.Debug("send router advertisement", keyIface, sock.iface, keyErr, err)
			continue
		}
		s.m.advertisements.Inc()
	}
}

// listenND opens a raw ICMPv6 socket that hears router solicitations of one interface.
func listenND(iface string) (*ipv6.PacketConn, error) {
	ifi, err := net.InterfaceByName(iface)
	if err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		ctl := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), iface) })
		return errors.Join(ctl, err)
	}}
	raw, err := lc.ListenPacket(context.Background(), "ip6:ipv6-icmp", "::")
	if err != nil {
		return nil, err
	}
	conn := ipv6.NewPacketConn(raw)
	var filter ipv6.ICMPFilter
	filter.SetAll(true)
	filter.Accept(ipv6.ICMPTypeRouterSolicitation)
	err = errors.Join(
		conn.SetICMPFilter(&filter),
		conn.SetControlMessage(ipv6.FlagHopLimit, true),
		conn.SetHopLimit(ndHops),
		conn.SetMulticastHopLimit(ndHops),
		conn.SetMulticastInterface(ifi),
		conn.JoinGroup(ifi, &net.IPAddr{IP: net.ParseIP(allRouters)}),
	)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// isSolicitation makes the checks of RFC 4861 section 6.1.1 that the kernel has not made.
func isSolicitation(b []byte, cm *ipv6.ControlMessage) bool {
	return len(b) >= 8 && b[0] == byte(ipv6.ICMPTypeRouterSolicitation) && b[1] == 0 && cm != nil && cm.HopLimit == ndHops
}

// noRouter is a router advertisement without router, flags, timers or prefixes; the kernel fills in the checksum.
func noRouter(hw net.HardwareAddr) []byte {
	body := make([]byte, 12, 20)
	body = append(body, 1, 1) // source link-layer address, in units of 8 bytes
	body = append(body, hw...)
	b, err := (&icmp.Message{Type: ipv6.ICMPTypeRouterAdvertisement, Body: &icmp.RawBody{Data: body}}).Marshal(nil)
	if err != nil {
		panic(err) // a fixed message
	}
	return b
}

// advertiseTo is who asked, or all nodes where the asker has no address yet (RFC 4861 section 6.2.6).
func advertiseTo(from net.Addr, iface string) net.Addr {
	ip, ok := from.(*net.IPAddr)
	if ok {
		if a, valid := netip.AddrFromSlice(ip.IP); valid && !a.IsUnspecified() {
			return ip
		}
	}
	return &net.IPAddr{IP: net.ParseIP(allNodes), Zone: iface}
}
