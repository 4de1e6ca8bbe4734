package lbproxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"
)

// A heartbeat counts the turns of a goroutine that takes one at least once a second; zero: it does not run.
type heartbeat struct{ atomic.Int64 }

// A question is what Alive asks one goroutine.
type question struct {
	what     string // that has to answer
	answered func() bool
}

// aliveTick is how often Alive looks for answers.
const aliveTick = 10 * time.Millisecond

// Alive asks the goroutines that all connections share, and returns which do not answer until ctx ends: nil if all do, or none
// runs. It makes no connection. A balancer that accepts none because it is full is alive, whatever its backends do.
func (s *Server) Alive(ctx context.Context) error {
	asked := s.loops.ask()
	asked = append(asked, s.sweeps.ask("the sweep of idle connections"), s.udp.heartbeat.ask("the loop of mode udp"), s.http.deadlines.heartbeat.ask("the timer of mode http"))
	s.mu.Lock()
	for _, sock := range s.sockets {
		asked = append(asked, sock.ask())
	}
	s.mu.Unlock()
	for {
		asked = slices.DeleteFunc(asked, func(q question) bool { return q.answered() })
		if len(asked) == 0 {
			return nil
		}
		if pause.For(ctx, aliveTick) != nil {
			break
		}
	}
	errs := make([]error, len(asked))
	for i, q := range asked {
		errs[i] = fmt.Errorf("%s does not answer", q.what)
	}
	return errors.Join(errs...)
}

// ask waits for the next turn.
func (t *heartbeat) ask(what string) question {
	before := t.Load()
	return question{what, func() bool { return before == 0 || t.Load() != before }}
}

// ask waits until the connection that is being handed over is.
func (s *listenSocket) ask() question {
	before := s.heartbeat.Load()
	return question{fmt.Sprintf("the listener on %s", s.addr), func() bool { return before%2 == 0 || s.heartbeat.Load() != before }}
}

// ask sends every loop an event.
func (p *loops) ask() (asked []question) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, l := range p.all {
		select { // an answer that came too late for the last call
		case <-l.answered:
		default:
		}
		asked = append(asked, question{fmt.Sprintf("event loop %d of mode tcp", i+1), l.hasAnswered})
	}
	if p.self != nil {
		p.self.control(func(fd uintptr) { _, _ = writeSocket(int(fd), binary.NativeEndian.AppendUint64(nil, 1)) })
	}
	return asked
}

// hasAnswered reports whether the loop has answered since it was asked, or has ended.
func (l *loop) hasAnswered() bool {
	select {
	case <-l.answered:
	case <-l.ended:
	default:
		return false
	}
	return true
}
