package dnsd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"
)

const (
	loopDomain     = "\x0cbootlab-loop\x00" // of the names that look for loops: it exists nowhere
	loopTestAgain  = 10 * time.Minute       // what a server forwards to may change
	loopTestWithin = 5 * time.Second
	maxLoopTests   = 256
)

// loopTests find servers that forward back to us, however many others are between: each is asked for a random name of its own, and
// the server whose name comes in as a query is asked no more. It is safe for concurrent use.
type loopTests struct {
	mu    sync.Mutex
	names map[string]upstream // that were sent, by label
	asked map[upstream]time.Time
}

// label returns the label of a new name for a server; "": it was asked within that time.
func (t *loopTests) label(server upstream, now time.Time, again time.Duration) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, ok := t.asked[server]; ok && now.Sub(last) < again {
		return ""
	}
	if t.names == nil || len(t.names) >= maxLoopTests {
		t.names, t.asked = map[string]upstream{}, map[upstream]time.Time{}
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	label := hex.EncodeToString(random[:])
	t.names[label], t.asked[server] = server, now
	return label
}

// serverOf returns the server that a name was sent to.
func (t *loopTests) serverOf(n *name) (upstream, bool) {
	if n.labels != 2 || string(n.suffix(1)) != loopDomain {
		return upstream{}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	server, ok := t.names[string(n.wire[1:1+n.wire[0]])]
	return server, ok
}

// findLoops asks the servers of every new table, and now and then all of them again, until ctx ends. It logs which do not answer.
func (s *Server) findLoops(ctx context.Context) {
	silent := map[string]bool{}
	for ctx.Err() == nil {
		s.forward.findLoops(ctx, s.deps.Table())
		s.reportForwards(silent)
		_ = pause.For(ctx, tableCheck)
	}
}

// findLoops asks all servers of a table that were not asked of late, and waits for them.
func (f *forwarder) findLoops(ctx context.Context, t *Table) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, rule := range t.forwards {
		for _, server := range rule.servers {
			state := f.servers.get(server)
			label := f.loopTests.label(server, f.now(), state.loopTestDue(f.now()))
			if label == "" {
				continue
			}
			var n name
			if _, err := n.parse([]byte("\x10" + label + loopDomain)); err != nil {
				continue
			}
			wg.Go(func() {
				within, cancel := context.WithTimeout(ctx, loopTestWithin)
				defer cancel()
				q := upstreamQuery{table: t, name: &n, qtype: typeTXT}
				err := f.panics.Run(func() error {
					_, err := f.exchange(within, q, server, &state)
					return err
				})
				if ctx.Err() == nil { // whatever the reply is: what counts is our own query, and that there is a reply
					f.servers.update(server, func(s *serverState, now time.Time) { s.noteReply(err, now) })
				}
			})
		}
	}
}

// isLoop reports whether a query is one of ours that has come back, and notes through whom.
func (s *Server) isLoop(r *request) bool {
	server, ok := s.forward.loopTests.serverOf(r.cur)
	if !ok {
		return false
	}
	s.forward.servers.update(server, func(state *serverState, now time.Time) {
		if !now.Before(state.loops) {
			s.log.Warn("a server of dns.forward or dns.forward_zones forwards to this appliance: it is not asked", keyAddr, server)
		}
		state.loops = now.Add(2 * loopTestAgain)
	})
	return true
}
