package lbproxy

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/host/client/clientaddr"
)

// net/http answers SETTINGS and PING, and opens and ends streams, as fast as a client asks for it. Frames that carry no
// content are counted here, for each client address: those beyond a rate end the connection with ENHANCE_YOUR_CALM
// (RFC 9113 section 10.5). Content earns some back, because a client acknowledges and measures what it gets: every DATA frame by
// up to two WINDOW_UPDATE frames. The burst is below the 10,000 answers that net/http queues before it closes a connection without
// a GOAWAY.
const (
	controlBurst = 5_000 // frames
	controlRate  = 1_000 // frames a second
	controlBytes = 1 << 10
)

// Frame types and the error of RFC 9113.
const (
	frameHead       = 9 // octets
	frameData       = 0
	frameHeaders    = 1
	frameRST        = 3
	frameGoAway     = 7
	flagEndStream   = 1   // of DATA and HEADERS
	flagPadded      = 8   // of DATA
	maxPadding      = 256 // octets, with that of their number
	enhanceYourCalm = 11
	anyStream       = 1<<31 - 1
)

// floodLinger is how many octets of a flood are read and dropped after GOAWAY, in which its client may notice it.
const floodLinger = 8 << 20

var (
	errFlood    = errors.New("too many HTTP/2 control frames")
	errManyOpen = errors.New("too many HTTP/2 requests without the end of a response")
)

// A frameScanner finds the frames in one direction of a connection.
type frameScanner struct {
	head [frameHead]byte
	have int // octets of head
	left int // octets of the frame's payload, or before the first frame, that are still to come
}

// scan looks at the next octets. It calls frame with the type, the flags and the payload's length of each frame whose head ends in them.
func (f *frameScanner) scan(p []byte, frame func(kind, flags byte, length int)) {
	for {
		skip := min(f.left, len(p))
		f.left -= skip
		if p = p[skip:]; len(p) == 0 {
			return
		}
		n := copy(f.head[f.have:], p)
		f.have += n
		if p = p[n:]; f.have < frameHead {
			return
		}
		f.have = 0
		f.left = int(f.head[0])<<16 | int(binary.BigEndian.Uint16(f.head[1:]))
		frame(f.head[3], f.head[4], f.left)
	}
}

// stream returns the stream of the frame whose head was read last.
func (f *frameScanner) stream() uint32 { return binary.BigEndian.Uint32(f.head[5:]) &^ (1 << 31) }

// between reports whether the last octet seen was the last of a frame.
func (f *frameScanner) between() bool { return f.have == 0 && f.left == 0 }

// A controlBudget is how many frames without content the connections of one client may send.
type controlBudget struct {
	mu     sync.Mutex
	conns  map[*http2Conn]struct{} // guarded by controlBudgets.mu; without those that evict has closed
	tokens float64
	at     time.Time
}

// controlBudgets are the budgets of the clients that have HTTP/2 connections. The zero value is ready.
type controlBudgets struct {
	mu      sync.Mutex
	clients map[netip.Addr]*controlBudget
}

// add gives a new connection of a client its budget; remove takes the connection out.
func (b *controlBudgets) add(client netip.Addr, h *http2Conn) {
	client = clientaddr.Of(client)
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.clients[client]
	if c == nil {
		if b.clients == nil {
			b.clients = make(map[netip.Addr]*controlBudget)
		}
		c = &controlBudget{conns: make(map[*http2Conn]struct{}), tokens: controlBurst, at: time.Now()}
		b.clients[client] = c
	}
	c.conns[h] = struct{}{}
	h.budget = c
}

func (b *controlBudgets) remove(h *http2Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(h.budget.conns, h)
}

// evict closes the connection of a client with the most open requests. It returns false if there is none.
func (b *controlBudgets) evict(client netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.clients[clientaddr.Of(client)]
	if c == nil {
		return false
	}
	var victim *http2Conn
	most := 0
	for h := range c.conns {
		if n := h.holds(); n > most {
			victim, most = h, n
		}
	}
	if victim == nil {
		return false
	}
	delete(c.conns, victim)
	victim.evict()
	return true
}

// expire forgets clients that have no connection and have been silent long enough to have their whole burst again.
func (b *controlBudgets) expire(before time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for client, c := range b.clients {
		if len(c.conns) == 0 && c.silent(before) {
			delete(b.clients, client)
		}
	}
}

// silent reports whether no frame came since a time.
func (c *controlBudget) silent(since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at.Before(since)
}

// spend takes frames from the budget, after it has added what content earns. It reports whether there were enough.
func (c *controlBudget) spend(frames, content int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.tokens = min(c.tokens+now.Sub(c.at).Seconds()*controlRate+float64(content)/controlBytes, controlBurst)
	c.at = now
	c.tokens -= float64(frames)
	return c.tokens >= 0
}
