package tftpd

import (
	"context"
	"net/netip"

	"github.com/bootlab/bootlab/internal/host/link/neighbour"
)

// A request from the address and port of a transfer in progress is one of these:
//
//   - the same request, late or repeated: the timer of the transfer sends again what got lost;
//   - that of a machine that has started over with the same port, as firmware does: it replaces the transfer;
//   - one that another machine forged, to end the transfer: it is dropped.
//
// The frame of the request shows which: answers go to the MAC that the kernel has for the address, so the request of any other MAC is not
// that client's. That MAC counts, not the one that began the transfer: else a forged request that arrives first would lock the client out.
//
// Behind a router, over IPv6, on loopback or without a packet socket no frame shows the sender. Then the transfer goes on while its client
// answers: a machine that has started over has stopped to, and repeats its request. A transfer without an answer so far may itself be
// forged, and one whose last block was sent may only lack the last ACK: both are replaced at once.

// A repeat is a request from the address and port of a transfer in progress, whose sender is being looked up.
type repeat struct {
	client  netip.AddrPort
	request string
}

// maxRepeats is how many senders may be looked up at a time. A look-up takes up to half a second where the frame was not received.
const maxRepeats = 256

// request handles an RRQ or WRQ. The sender is looked up only where a transfer of its address and port is in progress, and not on this
// goroutine, which receives.
func (s *Server) request(ctx context.Context, p packet) {
	asked := repeat{p.client, string(p.data)}
	old, reason := s.inProgress(asked)
	switch {
	case reason != "":
		s.stats.dropped[reason].Inc()
	case old == nil:
		s.start(ctx, p, received, nil)
	default:
		p.data = []byte(asked.request) // the buffer is used again
		p.transfers.Go(func() {
			defer s.panics.Contain()
			if reason := s.lookUp(old, asked); reason != "" {
				s.stats.dropped[reason].Inc()
				return
			}
			s.start(ctx, p, received, old)
		})
	}
}

// inProgress returns the transfer that a request may replace, or the reason to drop the request; neither: none is in progress.
func (s *Server) inProgress(asked repeat) (old *transfer, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old = s.active[asked.client]
	_, pending := s.repeats[asked]
	switch {
	case old == nil:
		return nil, ""
	case old.request == asked.request && s.current(old):
		old.repeated.Store(true)
		return nil, reasonDuplicate
	case pending:
		return nil, reasonDuplicate
	case len(s.repeats) >= maxRepeats:
		return nil, reasonBusy
	}
	s.repeats[asked] = struct{}{}
	return old, ""
}

// lookedUp ends the look-up that inProgress began.
func (s *Server) lookedUp(asked repeat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.repeats, asked)
}

// current reports whether a request that arrives again belongs to the transfer in progress: it was delayed, or sent because the
// answer was late. A machine that has restarted was silent before.
func (s *Server) current(t *transfer) bool { return !t.answered() || t.silence() < 3*s.cfg.Timeout }

// lookUp is keep, after inProgress has begun the look-up. It ends before a transfer starts: the client may have that, and ask again, at once.
func (s *Server) lookUp(old *transfer, asked repeat) (reason string) {
	defer s.lookedUp(asked)
	return s.keep(old, asked)
}

// keep returns the reason to keep a transfer and to drop the request that would replace it; empty: the request replaces it.
func (s *Server) keep(old *transfer, asked repeat) (reason string) {
	user, err := s.deps.Senders.Requester(asked.client, asked.request, old.started)
	switch {
	case err != nil: // the kernel cannot be asked: nothing is known
		s.log.Debug("look up the sender of a request", "addr", asked.client, "err", err)
	case user == neighbour.Own:
		return ""
	case user == neighbour.Foreign:
		return reasonForged
	}
	if old.progresses() {
		return reasonDuplicate
	}
	return ""
}

// progresses reports whether the client of a transfer has answered within the time after which a packet is sent again, and lacks more than
// the last block.
func (t *transfer) progresses() bool {
	return t.answered() && !t.lastSent.Load() && t.silence() < t.wait(0) // once answered, its options stay
}
