package lbproxy

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
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
	frameGoAway     = 7
	flagPadded      = 8   // of DATA
	maxPadding      = 256 // octets, with that of their number
	enhanceYourCalm = 11
	anyStream       = 1<<31 - 1
)

// floodLinger is how many octets of a flood are read and dropped after GOAWAY, in which its client may notice it.
const floodLinger = 8 << 20

var errFlood = errors.New("too many HTTP/2 control frames")

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

// between reports whether the last octet seen was the last of a frame.
func (f *frameScanner) between() bool { return f.have == 0 && f.left == 0 }

// A controlBudget is how many frames without content the connections of one client may send.
type controlBudget struct {
	mu     sync.Mutex
	conns  int // guarded by controlBudgets.mu
	tokens float64
	at     time.Time
}

// controlBudgets are the budgets of the clients that have HTTP/2 connections. The zero value is ready.
type controlBudgets struct {
	mu      sync.Mutex
	clients map[netip.Addr]*controlBudget
}

// open returns the budget of a client for one more connection; close gives it back.
func (b *controlBudgets) open(client netip.Addr) *controlBudget {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.clients[client]
	if c == nil {
		if b.clients == nil {
			b.clients = make(map[netip.Addr]*controlBudget)
		}
		c = &controlBudget{tokens: controlBurst, at: time.Now()}
		b.clients[client] = c
	}
	c.conns++
	return c
}

func (b *controlBudgets) close(client netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clients[client].conns--
}

// expire forgets clients that have no connection and have been silent long enough to have their whole burst again.
func (b *controlBudgets) expire(before time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for client, c := range b.clients {
		if c.conns == 0 && c.silent(before) {
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

// An http2Conn is a client connection in HTTP/2, after TLS, as net/http reads and writes it.
type http2Conn struct {
	net.Conn
	c      *httpConn
	budget *controlBudget
	once   sync.Once
	in     frameScanner // of what net/http reads, on one goroutine

	mu       sync.Mutex    // serialises writes
	out      frameScanner  // of what was written
	flooding bool          // GOAWAY was sent, or is to be sent at the end of the frame
	away     chan struct{} // closed when GOAWAY was sent

	using    sync.Mutex
	requests int    // in progress
	last     uint32 // stream that was opened; of the goroutine that reads
}

// use counts requests in progress in, or out. While there are none, timeouts.keepalive runs.
func (h *http2Conn) use(requests int) {
	h.using.Lock()
	defer h.using.Unlock()
	if h.requests += requests; h.requests > 0 {
		h.c.deadline.clear()
		return
	}
	h.c.deadline.set(h.c.timeouts().KeepAlive)
}

// Read implements net.Conn.
func (h *http2Conn) Read(b []byte) (int, error) {
	n, err := h.read(b)
	control, content := 0, 0
	h.in.scan(b[:n], func(kind, flags byte, length int) {
		if kind == frameHeaders {
			h.last = binary.BigEndian.Uint32(h.in.head[5:]) &^ (1 << 31)
			h.use(0)
			return // the limit of streams counts
		}
		if kind == frameData && flags&flagPadded != 0 {
			length = max(length-maxPadding, 0) // what is content for sure
		}
		if kind == frameData && length > 0 {
			content += length
			return
		}
		control++
	})
	if control+content > 0 && !h.budget.spend(control, content) {
		h.goAway()
		return 0, errFlood
	}
	if n == 0 && h.c.deadline.expired() && h.mu.TryLock() { // else the client does not take a frame
		h.goAwayLocked(h.last, 0)
		h.mu.Unlock()
	}
	return n, err
}

// read reads what was read ahead, and then without a buffer of ours: net/http has its own.
func (h *http2Conn) read(b []byte) (int, error) {
	c := h.c
	if c.in != nil && c.in.Buffered() == 0 {
		c.giveBack()
	}
	if c.in != nil {
		return c.in.Read(b)
	}
	return reading{c}.Read(b)
}

// goAway sends GOAWAY to a client that floods.
func (h *http2Conn) goAway() {
	h.c.proxy.s.reject("", rejectFlood, h.c.x.src, errFlood)
	h.mu.Lock()
	h.flooding = true
	h.goAwayLocked(anyStream, enhanceYourCalm)
	h.mu.Unlock()
	select {
	case <-h.away:
	case <-time.After(lingerTime): // the client does not take the frame that is being written
	}
	h.c.linger(floodLinger) // so that the client reads it before the reset that closing sends
}

// goAwayLocked sends GOAWAY with the last stream that may have been served, if no frame is being written.
func (h *http2Conn) goAwayLocked(last uint32, code byte) {
	if !h.out.between() {
		return
	}
	frame := []byte{0, 0, 8, frameGoAway, 0, 0, 0, 0, 0}
	_, _ = h.Conn.Write(append(binary.BigEndian.AppendUint32(frame, last), 0, 0, 0, code))
	close(h.away)
}

// Write implements net.Conn.
func (h *http2Conn) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.flooding && h.out.between() {
		return len(b), nil // after GOAWAY; an error would end the connection before the client has read it
	}
	n, err := h.Conn.Write(b)
	content := 0
	h.out.scan(b[:n], func(kind, _ byte, length int) {
		if kind == frameData && length > 0 {
			content += max(length, 2*controlBytes)
		}
	})
	if content > 0 {
		h.budget.spend(0, content)
	}
	h.c.sent.Add(int64(n))
	if h.flooding {
		h.goAwayLocked(anyStream, enhanceYourCalm)
	}
	return n, err
}

// Close implements net.Conn.
func (h *http2Conn) Close() error {
	h.once.Do(func() {
		h.c.proxy.h2.control.close(h.c.x.src.Addr())
		h.c.close()
	})
	return nil
}
