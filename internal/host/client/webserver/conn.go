package webserver

import (
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/client/connlimit"
)

// A Conn is a client's connection. Its requests arrive one after the other and find it by Of. The methods that are not
// net.Conn's do nothing on a nil Conn.
type Conn struct {
	net.Conn
	slot  *connlimit.Conn
	again time.Time // when to set the write deadline again
}

type connKey struct{}

// Of returns the connection that a request came on, nil in a test without one.
func Of(r *http.Request) *Conn {
	c, _ := r.Context().Value(connKey{}).(*Conn)
	return c
}

// ReadFrom lets net/http use sendfile(2).
func (c *Conn) ReadFrom(src io.Reader) (int64, error) { return io.Copy(c.Conn, src) }

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.slot.Remove()
	return c.Conn.Close()
}

// ExtendWrite gives the next write stall, or a little less: a deadline that was set just now stands, even if for the request
// before.
func (c *Conn) ExtendWrite(stall time.Duration) {
	now := time.Now()
	if c == nil || now.Before(c.again) {
		return
	}
	c.again = now.Add(stall / 16)
	_ = c.SetWriteDeadline(now.Add(stall))
}

// Cork lets the kernel send full segments only (TCP_CORK) until the function that it returns is called: each call of
// sendfile(2) would push out a small one at its end.
func (c *Conn) Cork() (uncork func()) {
	set := func(on int) { // if it cannot be set, segments leave as they did
		_, _ = c.socket(func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_CORK, on) })
	}
	set(1)
	return func() { set(0) }
}

// ackTimeout is how long a client may take to acknowledge the end of an answer: two minutes of TCP's retransmissions would keep a
// machine's next try waiting.
const ackTimeout = 10 * time.Second

// Acknowledged reports whether the client's system has acknowledged all that was sent. To write is to hand to the kernel, which
// sends again for minutes to the machine that has the address by then: until the client has acknowledged, no machine is known
// to have received anything. What is not TCP is taken for acknowledged.
func (c *Conn) Acknowledged() bool {
	deadline := time.Now().Add(ackTimeout)
	for wait := 200 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		pending := 0
		tcp, err := c.socket(func(fd int) (err error) {
			pending, err = unix.IoctlGetInt(fd, unix.SIOCOUTQ)
			return err
		})
		switch {
		case !tcp:
			return true
		case err != nil: // the connection is closed
			return false
		case pending == 0:
			return true
		case time.Now().After(deadline):
			return false
		}
		time.Sleep(wait) // also while the daemon stops: the answer has left
	}
}

// taken returns how many bytes the client's system has acknowledged; 0: not known.
func (c *Conn) taken() (n int64) {
	_, _ = c.socket(func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			n = int64(info.Bytes_acked)
		}
		return err
	})
	return n
}

// socket calls do with the descriptor of a TCP connection; false: it is none.
func (c *Conn) socket(do func(fd int) error) (tcp bool, err error) {
	if c == nil {
		return false, nil
	}
	conn, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return false, nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return true, err
	}
	if closed := raw.Control(func(fd uintptr) { err = do(int(fd)) }); closed != nil {
		return true, closed
	}
	return true, err
}
