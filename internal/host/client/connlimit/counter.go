package connlimit

import (
	"net/netip"
	"sync"

	"github.com/bootlab/bootlab/internal/host/client/clientaddr"
)

// share returns how many of limit a client may have while that many are taken: as many as are left for others (a dynamic threshold, as of
// queues in switches). A client alone gets half, each of two a third, each of N one of N+1 parts, and the part that is left is for the
// next client.
func share(limit, taken int) int { return limit - taken }

// part is what each of some clients may have, so that as much is left for the next one.
func part(limit, clients int) int { return limit / (clients + 1) }

// A Counter bounds what clients have of something at one time, such as requests in progress: a client gets no more than are left for others.
// It is safe for concurrent use.
type Counter struct {
	limit int

	mu      sync.Mutex
	taken   int
	clients map[netip.Addr]int // of clientaddr
}

// NewCounter returns a counter with nothing taken.
func NewCounter(limit int) *Counter {
	return &Counter{limit: limit, clients: make(map[netip.Addr]int)}
}

// Take counts one in for the client at addr, unless it has its share. Release must follow.
func (c *Counter) Take(addr netip.Addr) bool { return c.take(addr, share) }

// TakeLeft is Take for a client that was Outnumbered, of what the other one has released since.
func (c *Counter) TakeLeft(addr netip.Addr) bool {
	return c.take(addr, func(limit, taken int) int {
		if taken < limit {
			return limit
		}
		return 0
	})
}

func (c *Counter) take(addr netip.Addr, most func(limit, taken int) int) bool {
	addr = clientaddr.Of(addr)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clients[addr] >= most(c.limit, c.taken) {
		return false
	}
	c.taken++
	c.clients[addr]++
	return true
}

// Outnumbered returns the client with the most, if all are taken, and the client at addr has less than its part and would not have more than
// the other with one more. Where clients came one after the other, and each took its share, the last ones had next to nothing left.
func (c *Counter) Outnumbered(addr netip.Addr) (most netip.Addr, ok bool) {
	addr = clientaddr.Of(addr)
	c.mu.Lock()
	defer c.mu.Unlock()
	has, n := c.clients[addr], 0
	if c.taken < c.limit || has >= part(c.limit, len(c.clients)) {
		return most, false
	}
	for client, of := range c.clients {
		if of > n {
			most, n = client, of
		}
	}
	return most, n > has+1
}

// Release counts one out.
func (c *Counter) Release(addr netip.Addr) {
	addr = clientaddr.Of(addr)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken--
	if c.clients[addr]--; c.clients[addr] == 0 {
		delete(c.clients, addr)
	}
}

// Of returns how many the client at addr has.
func (c *Counter) Of(addr netip.Addr) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clients[clientaddr.Of(addr)]
}

// Taken returns how many all clients have.
func (c *Counter) Taken() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.taken
}

// Full reports whether no client gets one more.
func (c *Counter) Full() bool { return c.Taken() >= c.limit }
