package httpd

import (
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"
)

// ackTimeout is how long a client may take to acknowledge the end of a document: two minutes of TCP's retransmissions would keep a
// machine's next try waiting.
const ackTimeout = 10 * time.Second

// acknowledged reports whether the client's system has acknowledged all that was sent on the connection of a request. To write is to hand to
// the kernel, which sends again for minutes to the machine that has the address by then: until the client has acknowledged, no machine is known to have
// received anything.
func acknowledged(q *http.Request) bool {
	conn := connectionOf(q)
	if conn == nil {
		return true // a test without one
	}
	socket, ok := conn.Conn.(*net.TCPConn)
	if !ok {
		return true // TLS or a pipe of a test
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	deadline := time.Now().Add(ackTimeout)
	for wait := 200 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		pending := 0
		var ioctl error
		err := raw.Control(func(fd uintptr) { pending, ioctl = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
		switch {
		case err != nil || ioctl != nil:
			return false // the connection is closed
		case pending == 0:
			return true
		case time.Now().After(deadline):
			return false
		}
		time.Sleep(wait) // also while the daemon stops: the document has left
	}
}
