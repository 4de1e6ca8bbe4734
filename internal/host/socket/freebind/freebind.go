// Package freebind lets sockets listen on addresses that no interface has (IP_FREEBIND of ip(7)).
//
// The daemon may start before its network is up, and an address may be lost for a while: the socket works as soon as it is there.
//
//	lc := net.ListenConfig{Control: freebind.Control}
package freebind

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Control sets the option on a socket that is not bound yet. It is a Control of net.ListenConfig, whose network says which IP it is of.
func Control(network, _ string, c syscall.RawConn) (err error) {
	level, option := unix.IPPROTO_IP, unix.IP_FREEBIND
	if strings.HasSuffix(network, "6") {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_FREEBIND
	}
	if closed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) }); closed != nil {
		return closed
	}
	return err
}
