package tftpd

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// fullFor is how long the server counts as full after a request was dropped.
const fullFor = time.Minute

// A Full says that requests were dropped in the last minute, because all transfers were in use.
type Full struct {
	Since   time.Time  // the first of the requests that were dropped with no longer pause than a minute
	Dropped int        // since then
	Max     int        // transfers at the same time
	Client  netip.Addr // with the most transfers now; invalid: there are none
	Held    int        // its transfers
}

// A fullness records that requests are dropped.
type fullness struct {
	mu          sync.Mutex
	since, last time.Time
	dropped     int
	reports     chan event.Event // of dropped requests, for Events
}

// maxReports is how many events of dropped requests may wait. To record one may take as long as an ARP request.
const maxReports = 16

// Full reports whether requests are dropped because all transfers are in use.
func (s *Server) Full() (Full, bool) {
	f := &s.full
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dropped == 0 || time.Since(f.last) > fullFor {
		return Full{}, false
	}
	full := Full{Since: f.since, Dropped: f.dropped, Max: s.cfg.MaxTransfers}
	full.Client, full.Held = s.slots.Most()
	return full, true
}

// noteDropped notes that the request of t was dropped, because all transfers are in use. It does not wait: it is called where requests are
// received.
func (s *Server) noteDropped(t *transfer) {
	f := &s.full
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.dropped == 0 || now.Sub(f.last) > fullFor {
		f.since, f.dropped = now, 0
		client, held := s.slots.Most()
		s.log.Warn("all transfers are in use: requests are dropped", "addr", t.client.Addr(), "max", s.cfg.MaxTransfers, "most", client, "transfers", held)
	}
	f.last = now
	f.dropped++
	if len(f.reports) == cap(f.reports) {
		return
	}
	if r, err := ParseRequest([]byte(t.request)); err == nil {
		f.reports <- event.Event{
			Kind: event.TFTPRefused, MAC: macOf(r.Name), Addr: t.client.Addr(), Detail: boot.RedactTokens(lab.Printable(lab.Shortened(trimOptionEnd(r.Name), maxText))),
			Reason: event.Busy, Err: "all transfers are in use", Unverified: true,
		}
	}
}

// reportDropped records what noteDropped has noted, until the function that it returns is called.
func (s *Server) reportDropped(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case e := <-s.full.reports:
				func() {
					defer s.panics.Contain()
					s.deps.Events.Record(e)
				}()
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}
