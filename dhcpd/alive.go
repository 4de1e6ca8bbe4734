package dhcpd

import (
	"context"
	"errors"
	"fmt"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/dhcpd/wire"
)

// A loop is the packet loop of one port of an interface, as Alive asks it.
type loop struct {
	sock     *segment.Socket
	port     uint16
	answered chan struct{} // holds one
}

// Alive asks every packet loop to handle a packet of the server's own, and returns which do not until ctx ends: nil if all do,
// or none runs. The packet takes the way of a client's, to its network, host and pool, but gets no reply and is not counted. It
// touches no disk. A packet that is sent to a port of this machine would not do: the sockets receive from their interface alone.
func (s *Server) Alive(ctx context.Context) error {
	s.mu.Lock()
	loops := make([]*loop, 0, len(s.loops))
	for l := range s.loops {
		loops = append(loops, l)
	}
	s.mu.Unlock()
	for _, l := range loops {
		select { // an answer that came too late for the last call
		case <-l.answered:
		default:
		}
		_ = l.sock.Interrupt(l.port) // fails if it was closed: then the loop has ended
	}
	var errs []error
	for _, l := range loops {
		select {
		case <-l.answered:
		case <-ctx.Done():
			if s.runs(l) {
				errs = append(errs, fmt.Errorf("the packet loop of interface %q, port %d, does not answer", l.sock.Interface(), l.port))
			}
		}
	}
	return errors.Join(errs...)
}

// runs reports whether a loop has not ended.
func (s *Server) runs(l *loop) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.loops[l]
	return ok
}

// enter makes a loop known to Alive, until the function that it returns is called.
func (s *Server) enter(sock *segment.Socket, port uint16) (l *loop, leave func()) {
	l = &loop{sock: sock, port: port, answered: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loops[l] = struct{}{}
	return l, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.loops, l)
		l.answer()
	}
}

func (l *loop) answer() {
	select {
	case l.answered <- struct{}{}:
	default:
	}
}

// answerItself handles a packet of the server's own.
func (s *Server) answerItself(x *exchange, l *loop) {
	defer s.contain()
	_ = l.sock.Resume(l.port) // fails if it was closed: then the next receive does too
	if s.parse(x, ownPacket()) == dropNone && s.match(x) == dropNone {
		s.deps.Book.Bound(x.req.MAC, x.scope.network.Subnet) // as every answer does
	}
	l.answer()
}

// ownPacket returns a DHCPINFORM of a machine that no lab has.
func ownPacket() []byte {
	const header, cookie = 236, "\x63\x82\x53\x63" // RFC 2131 section 3
	p := make([]byte, header, header+len(cookie)+4)
	p[0], p[1], p[2] = 1, 1, 6 // BOOTREQUEST, Ethernet, six bytes of address
	p[28] = 0x02               // the address: locally administered, else zero
	return append(append(p, cookie...), 53, 1, byte(wire.Inform), 255)
}
