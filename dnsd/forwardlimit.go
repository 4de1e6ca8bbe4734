package dnsd

import (
	"net/netip"
	"sync"

	"github.com/bootlab/bootlab/internal/host/client/clientaddr"
)

// A forwardLimit bounds the queries that wait for the forwarder, of all clients and of each. A client may have as many as are
// left for others: half of all if it is alone, a third if there are two like it, and the first query of another client always
// finds a place. So a client whose queries no server answers does not block the others. It is safe for concurrent use.
type forwardLimit struct {
	max int

	mu      sync.Mutex
	all     int
	clients map[netip.Addr]int
}

// An admission is whether a query may wait.
type admission uint8

const (
	admitted     admission = iota // it may; release must follow
	limitReached                  // max queries wait
	shareUsed                     // its client has its share
)

func newForwardLimit(limit int) *forwardLimit {
	return &forwardLimit{max: limit, clients: map[netip.Addr]int{}}
}

func (l *forwardLimit) acquire(from netip.Addr) admission {
	c := clientaddr.Of(from)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch left := l.max - l.all; {
	case left <= 0:
		return limitReached
	case l.clients[c] >= left:
		return shareUsed
	}
	l.all++
	l.clients[c]++
	return admitted
}

func (l *forwardLimit) release(from netip.Addr) {
	c := clientaddr.Of(from)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.clients[c]--; l.clients[c] == 0 {
		delete(l.clients, c)
	}
}

// refuseForward makes the reply to a client that has used its share: it shall ask another server, or later.
func (s *Server) refuseForward(r *request) {
	s.metrics.limited.Inc()
	r.w.rewind(mark{n: r.q.end})
	r.w.why = "too many queries of this client wait for other servers"
	r.code = servFail
	s.finish(r)
}
