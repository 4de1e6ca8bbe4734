package segment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/bootlab/bootlab/internal/host/link/nd"
	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// iPXE solicits IPv6 routers when it brings a NIC up and waits some 13 seconds for an advertisement, in every boot. One with
// router lifetime 0 and without prefixes (RFC 4861 section 4.2) ends the wait at once and configures no machine: no default
// route, no address, no change to what a real router advertises.

const (
	allNodes        = "ff02::1"
	allRouters      = "ff02::2"
	sourceLinkLayer = 1   // an option (RFC 4861 section 4.6.1)
	ndHops          = 255 // RFC 4861 section 6.1.1: a lower hop limit came from another network
)

// Advertise answers router solicitations on a socket's segment until ctx ends or the socket is closed. wanted reports whether
// to answer a machine; its MAC is zero if unknown. answered is called after each answer, with the error of sending it. The
// error of Advertise is that the interface has no IPv6: iPXE may boot 13 s slower there.
func Advertise(ctx context.Context, s *Socket, wanted func(lab.MAC) bool, answered func(error)) error {
	if s.ndp == nil {
		if s.ndpErr != nil {
			return fmt.Errorf("answer router solicitations on interface %q: %w", s.iface, s.ndpErr)
		}
		return nil
	}
	defer interruptReads(ctx, s.ndp)()
	buf := make([]byte, 512)
	for wait := minWait; ctx.Err() == nil; {
		n, cm, from, err := s.ndp.ReadFrom(buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) || pause.For(ctx, wait) != nil {
				return nil
			}
			wait = min(2*wait, maxWait)
			continue
		}
		wait = minWait
		if isSolicitation(buf[:n], cm) && wanted(solicitingMAC(buf[:n], from)) {
			answered(advertise(s, from))
		}
	}
	return nil
}

// listenNDP opens a raw ICMPv6 socket that receives router solicitations on one interface.
func listenNDP(ifi *net.Interface) (*ipv6.PacketConn, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return control(c, func(fd int) error { return unix.BindToDevice(fd, ifi.Name) })
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

// isSolicitation makes the checks of RFC 4861 section 6.1.1 that the kernel does not make.
func isSolicitation(b []byte, cm *ipv6.ControlMessage) bool {
	return len(b) >= 8 && b[0] == byte(ipv6.ICMPTypeRouterSolicitation) && b[1] == 0 && cm != nil && cm.HopLimit == ndHops
}

// solicitingMAC returns the MAC of the sender of a solicitation: from its source link-layer address option (RFC 4861 section
// 4.6.1), else from its link-local address (RFC 4291 appendix A), as iPXE forms it; zero if neither has it.
func solicitingMAC(b []byte, from net.Addr) lab.MAC {
	if mac := nd.SourceMAC(b[8:]); !mac.IsZero() {
		return mac
	}
	addr, ok := from.(*net.IPAddr)
	if !ok || len(addr.IP) != net.IPv6len || !addr.IP.IsLinkLocalUnicast() || addr.IP[11] != 0xff || addr.IP[12] != 0xfe {
		return lab.MAC{}
	}
	id := addr.IP[8:]
	return lab.MAC{id[0] ^ 2, id[1], id[2], id[5], id[6], id[7]}
}

// noRouter is a router advertisement without router, flags, timers or prefixes; the kernel fills in the checksum.
func noRouter(hw lab.MAC) []byte {
	body := make([]byte, 12, 20)
	body = append(body, sourceLinkLayer, 1) // in units of 8 bytes
	body = append(body, hw[:]...)
	b, err := (&icmp.Message{Type: ipv6.ICMPTypeRouterAdvertisement, Body: &icmp.RawBody{Data: body}}).Marshal(nil)
	if err != nil {
		panic(err) // a fixed message
	}
	return b
}

// advertise answers the sender, or all nodes if it has no address yet (RFC 4861 section 6.2.6). The latter address has no
// zone, which package net would look up by the interface's name and cache for a minute; the socket is bound to its interface.
func advertise(s *Socket, from net.Addr) error {
	to := &net.IPAddr{IP: net.ParseIP(allNodes)}
	if ip, ok := from.(*net.IPAddr); ok && !ip.IP.IsUnspecified() {
		to = ip
	}
	_, err := s.ndp.WriteTo(noRouter(s.MAC()), nil, to)
	return err
}
