package lbproxy

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// handshakes are the connects of relays whose last packet, an acknowledgement, waits for the client's first bytes: it leaves with them,
// and the kernel goes on to save acknowledgements of that connection. One in four packets to the backend of a short connection is saved, as
// by HAProxy's tcp-smart-connect. A client that waits for the backend's first bytes sends none, so that each is ended after handshakeDelay.
type handshakes struct {
	mu    sync.Mutex
	timer *time.Timer // nil: there were none yet
	open  []*relay
}

// handshakeDelay is longer than a client in the same building takes.
const handshakeDelay = time.Millisecond

func (h *handshakes) add(r *relay) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = append(h.open, r)
	switch {
	case h.timer == nil:
		h.timer = time.AfterFunc(handshakeDelay, h.end)
	case len(h.open) == 1:
		h.timer.Reset(handshakeDelay)
	}
}

// end ends those whose clients are silent.
func (h *handshakes) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.open {
		if !r.up.mover.begun.Load() {
			r.down.src.control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1) })
		}
	}
	clear(h.open)
	h.open = h.open[:0]
}
