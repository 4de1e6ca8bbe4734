package httpd

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A crowd is the connections that one plane has open, Limits.Connections at most: each takes some 20 KiB and a descriptor,
// of which one client can open tens of thousands in a second. When there is no room, a newcomer takes the place of one that
// waits for a request, of the address that has most of them, the longest first. Where all are being answered, the address
// that has most loses its oldest; if that is the newcomer's own, the newcomer is turned away. Of many only some are looked
// at, by lot: in a flood that is as good, and to look at all would be what a flood wants.
type crowd struct {
	most  int
	cut   prometheus.Counter
	turns atomic.Int64 // connections opened and requests answered so far: cheaper to look at than a clock

	mu     sync.Mutex
	open   map[net.Conn]*link
	byAddr map[netip.Addr]int
}

const maxLooks = 64

func newCrowd(most int, cut prometheus.Counter) *crowd {
	return &crowd{most: most, cut: cut, open: map[net.Conn]*link{}, byAddr: map[netip.Addr]int{}}
}

// A link is a connection, for the handlers of its requests, which come one after the other.
type link struct {
	conn  *net.TCPConn // nil: not one of ours, as in a test
	again time.Time    // when the deadline of writes is to be set again
	addr  netip.Addr   // whose it is; the zero address for all who come by a Unix socket

	busy  atomic.Bool  // a request is being answered
	since atomic.Int64 // the turn at which it was opened, or its last request answered
}

type linkKey struct{}

// enter makes a new connection's link, and room for it. The link stands in the context of its requests: net/http has no
// other way to their connection.
func (c *crowd) enter(ctx context.Context, conn net.Conn) context.Context {
	tcp, _ := conn.(*net.TCPConn)
	l := &link{conn: tcp, addr: addrOf(conn)}
	l.since.Store(c.turns.Add(1))
	if victim := c.add(conn, l); victim != nil {
		c.cut.Inc()
		_ = victim.Close() // whoever reads or writes it hears of that
	}
	return context.WithValue(ctx, linkKey{}, l)
}

func addrOf(conn net.Conn) netip.Addr {
	ap, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	return ap.Addr().Unmap().WithZone("")
}

// add counts a connection in, and returns the one that there is no room for any more; nil: there is room.
func (c *crowd) add(conn net.Conn, l *link) (victim net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[conn] = l
	c.byAddr[l.addr]++
	if len(c.open) <= c.most {
		return nil
	}
	victim = c.victimLocked(conn)
	c.leaveLocked(victim)
	return victim
}

// victimLocked picks the connection that has to go for newcomer, which may be newcomer itself.
func (c *crowd) victimLocked(newcomer net.Conn) net.Conn {
	victim := newcomer
	best := place{busy: true, of: c.byAddr[c.open[newcomer].addr]}
	looks := maxLooks
	for conn, l := range c.open { // begins somewhere else each time
		if looks--; looks < 0 {
			break
		}
		p := place{busy: l.busy.Load(), of: c.byAddr[l.addr], since: l.since.Load()}
		if conn != newcomer && p.compare(best) < 0 {
			victim, best = conn, p
		}
	}
	return victim
}

// A place is what a connection's claim to stay is judged by.
type place struct {
	busy  bool
	of    int   // how many its address has
	since int64 // 0: a newcomer that finds everybody busy
}

// compare is below 0 if p has to go before q.
func (p place) compare(q place) int {
	if p.busy != q.busy {
		if q.busy {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(q.of, p.of), cmp.Compare(p.since, q.since))
}

// leave counts a connection out.
func (c *crowd) leave(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaveLocked(conn)
}

func (c *crowd) leaveLocked(conn net.Conn) {
	l := c.open[conn]
	if l == nil {
		return
	}
	delete(c.open, conn)
	if c.byAddr[l.addr]--; c.byAddr[l.addr] == 0 {
		delete(c.byAddr, l.addr)
	}
}

func linkOf(q *http.Request) *link {
	if l, ok := q.Context().Value(linkKey{}).(*link); ok {
		return l
	}
	return &link{}
}

// answered ends what set l.busy.
func (c *crowd) answered(l *link) {
	l.since.Store(c.turns.Add(1))
	l.busy.Store(false)
}
