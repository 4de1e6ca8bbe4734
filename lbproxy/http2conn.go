package lbproxy

import (
	"encoding/binary"
	"net"
	"sync"
	"time"
)

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

	last uint32 // stream that was opened; of the goroutine that reads

	using    sync.Mutex
	requests int                 // in progress
	counted  int                 // of them, in http2.streams
	open     map[uint32]struct{} // streams, until the end of their responses is written; nil: the connection is closed
	reset    int                 // streams that the client has reset, and whose handlers may not have ended or begun
}

// begin notes that the client opens a stream, or sends trailers. It reports false if its address has too many: the handler of a request, with
// its head, stays until the client's system has taken the response, which only the frames show.
func (h *http2Conn) begin(stream uint32) bool {
	h.use(0)
	if stream <= h.last {
		return true
	}
	h.last = stream
	if h2 := h.c.proxy.h2; !h2.take(h2.open, h.c.x.src.Addr()) {
		return false
	}
	h.using.Lock()
	defer h.using.Unlock()
	if h.open == nil {
		h.c.proxy.h2.open.Release(h.c.x.src.Addr())
		return true
	}
	h.open[stream] = struct{}{}
	return true
}

// holds returns how many requests the connection keeps open.
func (h *http2Conn) holds() int {
	h.using.Lock()
	defer h.using.Unlock()
	return len(h.open) + h.reset
}

// end notes that a response was written to its end, or its stream was reset; by the client, its handler has still to notice that.
func (h *http2Conn) end(stream uint32, byClient int) {
	h.using.Lock()
	defer h.using.Unlock()
	if _, ok := h.open[stream]; !ok {
		return
	}
	delete(h.open, stream)
	if h.reset += byClient; byClient == 0 {
		h.c.proxy.h2.open.Release(h.c.x.src.Addr())
	}
}

// admitted notes requests that http2.streams has counted in, or that have ended.
func (h *http2Conn) admitted(requests int) {
	h.using.Lock()
	defer h.using.Unlock()
	if requests < 0 && h.counted == 0 { // evict was faster
		return
	}
	if h.counted += requests; requests < 0 {
		h.c.proxy.h2.streams.Release(h.c.x.src.Addr())
	}
}

// endAll is end for all streams of a connection that is closed.
func (h *http2Conn) endAll() {
	h.using.Lock()
	defer h.using.Unlock()
	for range len(h.open) + h.reset {
		h.c.proxy.h2.open.Release(h.c.x.src.Addr())
	}
	h.open, h.reset = nil, 0
}

// evict closes the connection for a request of another client, which may begin at once: the handlers of this one's end soon.
func (h *http2Conn) evict() {
	h.endAll()
	h.using.Lock()
	for range h.counted {
		h.c.proxy.h2.streams.Release(h.c.x.src.Addr())
	}
	h.counted = 0
	h.using.Unlock()
	h.c.abort()
}

// use counts requests in progress in, or out. While there are none, timeouts.keepalive runs.
func (h *http2Conn) use(requests int) {
	h.using.Lock()
	defer h.using.Unlock()
	if requests < 0 && h.reset > 0 { // which request of net/http is which stream is not known
		h.reset--
		h.c.proxy.h2.open.Release(h.c.x.src.Addr())
	}
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
	var flood error
	h.in.scan(b[:n], func(kind, flags byte, length int) {
		switch kind {
		case frameHeaders: // the limit of streams counts
			if !h.begin(h.in.stream()) {
				flood = errManyOpen
			}
			return
		case frameRST:
			h.end(h.in.stream(), 1)
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
		flood = errFlood
	}
	if flood != nil {
		h.refuse(flood)
		return 0, flood
	}
	if n == 0 && h.c.deadline.expired() {
		h.goAway(h.last, 0)
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

// refuse sends GOAWAY to a client that floods, and returns before its connection is to be closed.
func (h *http2Conn) refuse(why error) {
	h.c.proxy.s.reject("", rejectFlood, h.c.x.src, why)
	if !h.goAway(anyStream, enhanceYourCalm) {
		return
	}
	select {
	case <-h.away:
		h.c.linger(floodLinger) // so that the client reads it before the reset that closing sends
	case <-time.After(lingerTime): // the rest of a frame, and GOAWAY after it, by Write
		h.c.abort()
	}
}

// awayTime is how long a client may take for what is being written, and GOAWAY after it.
const awayTime = 250 * time.Millisecond

// goAway sends GOAWAY with the last stream that may have been served. A client that does not take it, or what is being written, loses its connection
// at once, and with it what the connection keeps from others: goAway returns false then.
func (h *http2Conn) goAway(last uint32, code byte) bool {
	limit := time.AfterFunc(awayTime, h.c.abort)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flooding = code == enhanceYourCalm
	h.goAwayLocked(last, code)
	return limit.Stop()
}

// goAwayLocked sends GOAWAY if no frame is being written.
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
	h.out.scan(b[:n], func(kind, flags byte, length int) {
		if kind == frameRST || kind <= frameHeaders && flags&flagEndStream != 0 {
			h.end(h.out.stream(), 0)
		}
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
		h.endAll()
		h.c.proxy.h2.control.remove(h)
		h.c.close()
	})
	return nil
}
