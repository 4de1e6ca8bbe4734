package netns

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// SolicitRouter asks for an IPv6 router on an interface of the test's own namespace until it is answered, and returns the
// router advertisement (RFC 4861 section 4.2) from its type on. No answer within 10 s fails the test.
func SolicitRouter(t testing.TB, iface string) (advertisement []byte) {
	t.Helper()
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			set = errors.Join(unix.BindToDevice(int(fd), iface),
				unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255))
		})
		return errors.Join(err, set)
	}}
	conn, err := lc.ListenPacket(t.Context(), "ip6:ipv6-icmp", "::")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	WaitFor(t, "a router advertisement", func() bool {
		advertisement = solicit(conn)
		return advertisement != nil
	})
	return advertisement
}

// solicit asks once; nil: no answer within 200 ms.
func solicit(conn net.PacketConn) []byte {
	const solicitation, advertisement = 133, 134
	to := &net.IPAddr{IP: net.ParseIP("ff02::2")} // without a zone: package net remembers for a minute which interface had that name
	if _, err := conn.WriteTo([]byte{solicitation, 0, 0, 0, 0, 0, 0, 0}, to); err != nil {
		return nil // the link-local address is still tentative
	}
	_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	buf := make([]byte, 1500)
	for {
		n, _, err := conn.ReadFrom(buf)
		if err != nil {
			return nil
		}
		if buf[0] == advertisement {
			return buf[:n]
		}
	}
}
