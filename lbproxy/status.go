package lbproxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"
)

// A BalancerStatus is the current state of a balancer.
type BalancerStatus struct {
	Name        string
	Listen      lab.Binds
	Mode        lab.BalanceMode
	Balance     lab.Algorithm
	Connections int64 // open
	Limit       int
	Queued      int // clients that wait for a backend with less than its limit
	Backends    []BackendStatus
}

// A BackendStatus is the current state of a backend.
type BackendStatus struct {
	Key          string // names it in its balancer, also while its address changes or is not known
	Name         string
	Host         string
	Addr         netip.AddrPort
	Backup       bool
	Weight       int
	LabWeight    int  // of the lab file, if another is set at run time
	Added        bool // at run time: it is not in the lab file
	Limit        int  // of Connections; 0: none
	Check        lab.CheckKind
	Health       Health // Down without an address, too
	Drained      bool
	DrainedSince time.Time // zero: it is not
	// TakesConnections is whether it gets new connections: it is neither down nor drained. One that was not checked yet is used as if up.
	TakesConnections bool
	Reason           string        // of Health, or the last failure if it is still up
	Unreachable      bool          // nobody answered its last check, which failed: not even to refuse the connection
	Since            time.Time     // Health holds
	Connections      int64         // in HTTP mode: requests
	Total            int64         // connections, in HTTP mode requests, since the start
	Errors           int64         // failed connects, and in HTTP mode responses that are 5xx, missing or cut, since the start
	P50, P99         time.Duration // of the last 10 to 20 seconds, until connected, in HTTP mode until the head of the response; 0: none
}

// WithoutCheck reports whether nothing checks the backend, and its connections show no fault.
func (m BackendStatus) WithoutCheck() bool {
	return m.Health == Unchecked && m.Check == lab.CheckNone
}

// key returns BackendStatus.Key: its name and port. An address of the lab file is its own key, and so is each of several addresses of a name:
// one of them may never have served.
func (b *Backend) key() string {
	if b.Label == lab.BackendText(b.Addr) {
		return b.Addr.String()
	}
	return withPort(b.Name, b.Addr)
}

// Status returns every balancer of the active table, sorted by name, its backends in the order of the lab file.
func (s *Server) Status() []BalancerStatus {
	t := s.active.Load()
	out := make([]BalancerStatus, len(t.frontends))
	for i, f := range t.frontends {
		out[i] = BalancerStatus{
			Name: f.Name, Listen: f.Listen, Mode: f.Mode, Balance: f.Balance,
			Connections: f.state.active.Load(), Limit: f.MaxConnections, Queued: int(f.state.queue.len.Load()), Backends: make([]BackendStatus, len(f.backends)),
		}
		for j := range f.backends {
			out[i].Backends[j] = f.backends[j].status()
		}
		for _, b := range f.missing {
			out[i].Backends = append(out[i].Backends, BackendStatus{
				Key: b.key(), Name: b.Name, Host: b.Host, Backup: b.Backup, Weight: max(b.Weight, 1), Check: f.Check.Kind, Health: Down, Unreachable: true, Reason: s.whyMissing(b.source()),
			})
		}
	}
	return out
}

func (b *backend) status() BackendStatus {
	health, reason, since := b.currentHealth()
	labWeight := 0
	p50, p99 := b.state.traffic.quantiles()
	if set := b.state.weight.Load(); set > 0 && int(set) != b.Weight {
		labWeight = b.Weight
	}
	return BackendStatus{
		LabWeight: labWeight, Added: b.Added,
		Key: b.key(), Name: b.Name, Host: b.Host, Addr: b.Addr, Backup: b.Backup, Weight: b.weight(), Limit: b.Limit, Check: b.health.key.check.Kind, Health: health,
		Drained: b.state.drained.is(), DrainedSince: b.state.drained.since(), TakesConnections: b.usable(), Unreachable: b.health.unreachable.Load(),
		Reason: reason, Since: since, Connections: b.state.active.Load(),
		Total: b.state.traffic.total.Load(), Errors: b.state.traffic.errors.Load(), P50: p50, P99: p99,
	}
}

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
