package httpd

import (
	"context"
	"net"

	"golang.org/x/sys/unix"
)

// connKey is the key of a request's connection. A context is the only way by which net/http tells a handler of it.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// queueOf returns a function that counts the bytes which were written to a request's connection and not taken by its
// reader: unsent, or not acknowledged (SIOCOUTQ, tcp(7)). For what is no TCP connection it is always 0.
func queueOf(ctx context.Context) func() int64 {
	c, ok := ctx.Value(connKey{}).(*net.TCPConn)
	if !ok {
		return func() int64 { return 0 }
	}
	return func() (n int64) {
		raw, err := c.SyscallConn()
		if err != nil {
			return 0
		}
		_ = raw.Control(func(fd uintptr) {
			if queued, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
				n = int64(queued)
			}
		})
		return n
	}
}
