package connlimit

import (
	"cmp"
	"container/heap"
	"container/list"
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/host/client/clientaddr"
)

// A Config says how many connections a Set holds, and which of them it may evict. Only Max is required.
type Config struct {
	Max   int           // connections open at one time
	Grace time.Duration // a client with no more idle connections than the new one's loses none that is idle for less

	// Shared is for connections that are long and idle by nature: a client may have as many as are left for others, and its part
	// in any case. One more evicts the longest-idle one of its own; in a full set, that of the client with the most, if that has more than the new one's would have. Other
	// clients lose none: the new connection is refused. Grace and Patience have no effect.
	Shared bool

	// Where all clients have equally many connections in use, a new client may evict one that has taken less than MinRate bytes a second
	// for Patience; see Measure. 0: it is refused. With a Patience and no Grace, a connection that waits for its first request for less than
	// firstRequest is evicted after those in use that may be.
	Patience time.Duration
	MinRate  int64
}

// A Set is the open connections of a server. It is safe for concurrent use.
type Set struct {
	cfg Config

	mu      sync.Mutex
	open    int
	turn    uint64 // counts what makes a connection idle or in use: the order of eviction
	clients map[netip.Addr]*client
	ranking ranking       // of the clients; the first is the next to lose a connection
	freed   chan struct{} // closed by the next Remove; nil: AddWait does not wait
}

// A Conn is one connection of a Set.
type Conn struct {
	set    *Set
	client *client
	evict  func()

	// Guarded by set.mu.
	requests int           // in progress; 0: the connection is idle
	used     bool          // its first request has begun
	turn     uint64        // when it became idle or in use, or was found to be fast enough
	since    time.Time     // the same on the clock, where Config.Grace or Patience needs it
	taken    func() int64  // see Measure; nil: not measured
	before   int64         // what taken returned at since; negative: not known
	element  *list.Element // in client.idle or client.inUse; nil: removed
}

// A client is an address of clientaddr and its connections, in both lists the longest first.
type client struct {
	addr        netip.Addr
	idle, inUse list.List
	rank        int // index in Set.ranking
}

// New returns an empty set.
func New(cfg Config) *Set {
	if cfg.Max < 1 {
		panic("connlimit: Config.Max is below 1")
	}
	return &Set{cfg: cfg, clients: map[netip.Addr]*client{}}
}

// Client returns the address of the client of a connection. All clients of a Unix socket have the zero address.
func Client(conn net.Conn) netip.Addr {
	a, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return a.AddrPort().Addr()
}

// Add adds an idle connection of the client at addr (see clientaddr.Of), and evicts another if the set is full. It returns nil if none may
// be evicted. evict is called at most once, without locks held, when the connection loses its place; it must not block.
func (s *Set) Add(addr netip.Addr, evict func()) *Conn {
	c, _ := s.add(addr, evict)
	return c
}

// AddWait is like Add, but waits for a free place instead of returning nil. The error is that of ctx.
func (s *Set) AddWait(ctx context.Context, addr netip.Addr, evict func()) (*Conn, error) {
	for {
		c, freed := s.add(addr, evict)
		if c != nil {
			return c, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Len returns how many connections are open.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// Most returns the client with the most connections, and how many it has; invalid: there are none.
func (s *Set) Most() (most netip.Addr, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for addr, c := range s.clients {
		if has := c.size(); has > n {
			most, n = addr, has
		}
	}
	return most, n
}

// add returns the new connection, or what is closed when a place is free.
func (s *Set) add(addr netip.Addr, evict func()) (c *Conn, freed <-chan struct{}) {
	addr = clientaddr.Of(addr)
	s.mu.Lock()
	var victim *Conn
	if s.mustEvictLocked(addr) {
		if victim = s.victimLocked(addr); victim == nil {
			defer s.mu.Unlock()
			if s.freed == nil {
				s.freed = make(chan struct{})
			}
			return nil, s.freed
		}
		s.removeLocked(victim)
	}
	owner := s.clients[addr]
	if owner == nil {
		owner = &client{addr: addr}
		s.clients[addr] = owner
		heap.Push(&s.ranking, owner)
	}
	c = &Conn{set: s, client: owner, evict: evict}
	s.open++
	s.moveLocked(c)
	s.mu.Unlock()
	if victim != nil {
		victim.evict()
	}
	return c, nil
}

// mustEvictLocked reports whether a new connection of addr needs the place of another. A client gets its part, however many those have who
// came before: once the set is full, they lose them.
func (s *Set) mustEvictLocked(addr netip.Addr) bool {
	own := s.clients[addr]
	if own == nil || !s.cfg.Shared {
		return s.open >= s.cfg.Max
	}
	return s.open >= s.cfg.Max || own.size() >= max(share(s.cfg.Max, s.open), part(s.cfg.Max, len(s.clients)))
}

// victimLocked returns the connection that makes room for a new one of addr; nil: none may be evicted.
func (s *Set) victimLocked(addr netip.Addr) *Conn {
	own := s.clients[addr]
	if own == nil {
		own = &client{}
	}
	if s.cfg.Shared {
		if most := s.ranking[0]; s.open >= s.cfg.Max && most.size() > own.size()+1 {
			return most.first()
		}
		return own.first()
	}
	victim := s.evictableLocked(s.ranking[0], own)
	if victim == nil && s.cfg.Grace > 0 && s.ranking[0] == own && len(s.ranking) > 1 {
		// Its own connections are still within Grace: those of the next client may not be.
		next := 1
		if len(s.ranking) > 2 && s.ranking.Less(2, 1) {
			next = 2
		}
		victim = s.evictableLocked(s.ranking[next], own)
	}
	var fresh *Conn
	if victim != nil && s.freshLocked(victim) {
		if victim.client == own || victim.client.size() > own.size() {
			fresh = victim
		}
		victim = nil
	}
	if victim == nil && (s.cfg.Grace > 0 || s.cfg.Patience > 0) { // else the ranking has said it
		victim = s.inUseLocked(own)
	}
	return cmp.Or(victim, fresh)
}

// firstRequest is how long after its connect a client may take to send its request: a new machine must not lose its only connection to one
// that has many, before its request is read.
const firstRequest = time.Second

// freshLocked reports whether the first request of an idle connection may still be on its way.
func (s *Set) freshLocked(c *Conn) bool {
	return s.cfg.Patience > 0 && s.cfg.Grace == 0 && c.requests == 0 && !c.used && time.Since(c.since) < firstRequest
}

// maxLooks is how many connections one Add asks how fast they are.
const maxLooks = 8

// inUseLocked returns the connection in use that makes room for a new one of own where no idle one may be evicted: the oldest of the client
// that has more of them than own would have, or one that is too slow of those that have as many. A connection that is fast enough is
// asked again after all others.
func (s *Set) inUseLocked(own *client) *Conn {
	for range maxLooks {
		most := s.busiestLocked()
		if most == nil || most.inUse.Len() <= own.inUse.Len() {
			return nil
		}
		c := most.inUse.Front().Value.(*Conn)
		if most.inUse.Len() > own.inUse.Len()+1 {
			return c
		}
		if s.cfg.Patience == 0 || c.taken == nil || time.Since(c.since) < s.cfg.Patience {
			return nil // the others are not older
		}
		taken := c.taken()
		if c.before >= 0 && float64(taken-c.before) < float64(s.cfg.MinRate)*time.Since(c.since).Seconds() {
			return c
		}
		c.detachLocked(c.requests)
		s.moveLocked(c)
		c.before = taken
	}
	return nil
}

// busiestLocked returns the client with the most connections in use, of equals the one whose first is the oldest; nil: none is in use.
func (s *Set) busiestLocked() (most *client) {
	if s.ranking[0].idle.Len() == 0 {
		return s.ranking[0]
	}
	for _, c := range s.ranking { // idle ones cannot be evicted yet
		if c.inUse.Len() == 0 {
			continue
		}
		if most == nil || c.inUse.Len() > most.inUse.Len() || c.inUse.Len() == most.inUse.Len() && c.oldest() < most.oldest() {
			most = c
		}
	}
	return most
}

// oldest returns the turn of the first connection in use.
func (o *client) oldest() uint64 { return o.inUse.Front().Value.(*Conn).turn }

// evictableLocked returns the first connection of most, unless it must not be evicted for one of own.
func (s *Set) evictableLocked(most, own *client) *Conn {
	victim, more := most.first(), most.idle.Len() > own.idle.Len()+1
	if victim.requests > 0 {
		more = most.inUse.Len() > own.inUse.Len()+1
	}
	switch {
	case victim.requests > 0 && !more,
		victim.requests == 0 && !more && s.cfg.Grace > 0 && time.Since(victim.since) < s.cfg.Grace:
		return nil
	}
	return victim
}

// Touch notes that an idle connection was active: it is now the one that became idle last.
func (c *Conn) Touch() { c.use(0) }

// Measure makes Config.Patience hold for the connection: taken returns how many bytes its client has taken so far. It is called with locks
// held, and must not block.
func (c *Conn) Measure(taken func() int64) {
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	c.taken = taken
}

// Begin notes that a request begins. A connection is in use until End was called as often as Begin.
func (c *Conn) Begin() { c.use(1) }

// End notes that a request ended.
func (c *Conn) End() { c.use(-1) }

func (c *Conn) use(change int) {
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	was := c.requests
	c.requests += change
	c.used = c.used || change > 0
	if c.requests == 0 {
		c.before = -1 // at the start of the next request
	}
	if c.element != nil && (was == 0 || c.requests == 0) {
		c.detachLocked(was)
		c.set.moveLocked(c)
	}
}

// Remove takes the connection out of the set. Of one that is out already it does nothing.
func (c *Conn) Remove() {
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	if c.element == nil {
		return
	}
	c.set.removeLocked(c)
	if c.set.freed != nil {
		close(c.set.freed)
		c.set.freed = nil
	}
}

func (s *Set) removeLocked(c *Conn) {
	c.detachLocked(c.requests)
	s.open--
	if c.client.first() == nil {
		heap.Remove(&s.ranking, c.client.rank)
		delete(s.clients, c.client.addr)
		return
	}
	heap.Fix(&s.ranking, c.client.rank)
}

// detachLocked takes c out of the list that it is in with that many requests.
func (c *Conn) detachLocked(requests int) {
	c.client.list(requests).Remove(c.element)
	c.element = nil
}

// moveLocked puts c, which is in no list, at the end of the list where it belongs now.
func (s *Set) moveLocked(c *Conn) {
	s.turn++
	c.turn = s.turn
	if s.cfg.Grace > 0 || s.cfg.Patience > 0 {
		c.since = time.Now()
	}
	c.element = c.client.list(c.requests).PushBack(c)
	heap.Fix(&s.ranking, c.client.rank)
}

func (o *client) list(requests int) *list.List {
	if requests > 0 {
		return &o.inUse
	}
	return &o.idle
}

// size returns how many connections the client has.
func (o *client) size() int { return o.idle.Len() + o.inUse.Len() }

// first returns the connection that the client loses first; nil: it has none.
func (o *client) first() *Conn {
	e := o.idle.Front()
	if e == nil {
		e = o.inUse.Front()
	}
	if e == nil {
		return nil
	}
	return e.Value.(*Conn)
}

// A ranking is a heap of clients, for container/heap.
type ranking []*client

// Len implements heap.Interface.
func (r ranking) Len() int { return len(r) }

// Less implements heap.Interface: the client with the most idle connections comes first; without idle ones, the client with
// the most in use; of equals, the one whose first connection has waited longest.
func (r ranking) Less(i, j int) bool {
	a, b := r[i], r[j]
	if a.idle.Len() != b.idle.Len() {
		return a.idle.Len() > b.idle.Len()
	}
	if a.idle.Len() == 0 && a.inUse.Len() != b.inUse.Len() {
		return a.inUse.Len() > b.inUse.Len()
	}
	x, y := a.first(), b.first()
	return x != nil && y != nil && x.turn < y.turn
}

// Swap implements heap.Interface.
func (r ranking) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].rank, r[j].rank = i, j
}

// Push implements heap.Interface.
func (r *ranking) Push(x any) {
	o := x.(*client)
	o.rank = len(*r)
	*r = append(*r, o)
}

// Pop implements heap.Interface.
func (r *ranking) Pop() any {
	last := len(*r) - 1
	o := (*r)[last]
	(*r)[last] = nil
	*r = (*r)[:last]
	return o
}
