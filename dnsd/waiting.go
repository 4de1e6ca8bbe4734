package dnsd

import (
	"net/netip"
	"sync"
)

// waiting counts the questions that wait for the forwarder, of all clients and of each. A client may have as many as are left
// for others: half of all if it is alone, a third if there are two like it, and the first question of another always finds
// room. So a client that asks for what nobody answers keeps nobody else waiting. It is safe for concurrent use.
type waiting struct {
	most int

	mu  sync.Mutex
	all int
	of  map[netip.Prefix]int
}

// A turn is what becomes of a question that has to wait.
type turn uint8

const (
	waits   turn = iota // it may; leave must follow
	noTurn              // as many wait as may
	tooMany             // its client has its share
)

func newWaiting(most int) *waiting { return &waiting{most: most, of: map[netip.Prefix]int{}} }

// clientOf returns what a client is counted by: its address, or with IPv6 its network, in which one machine has any number of
// addresses.
func clientOf(from netip.Addr) netip.Prefix {
	bits := from.BitLen()
	if from.Is6() {
		bits = 64
	}
	p, _ := from.Prefix(bits) // of no address: no prefix, which is a client like any other
	return p
}

func (w *waiting) enter(from netip.Addr) turn {
	c := clientOf(from)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch left := w.most - w.all; {
	case left <= 0:
		return noTurn
	case w.of[c] >= left:
		return tooMany
	}
	w.all++
	w.of[c]++
	return waits
}

func (w *waiting) leave(from netip.Addr) {
	c := clientOf(from)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all--
	if w.of[c]--; w.of[c] == 0 {
		delete(w.of, c)
	}
}

// turnAway makes the reply to a client of which too many questions wait: it shall ask another server, or later.
func (s *Server) turnAway(r *request) {
	s.metrics.limited.Inc()
	r.w.rewind(mark{n: r.q.end})
	r.w.why = "too many questions of this client wait for other servers"
	r.code = servFail
	s.finish(r)
}
