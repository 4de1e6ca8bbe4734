package lbproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"

	"golang.org/x/sys/unix"
)

// A backend whose program is stopped or hangs accepts connections, as its kernel does that, and answers none: no check of
// kind tcp notices. Two signs together eject it:
//
//   - A connection's client has sent bytes, and none came back for Config.Silence, nor on any other connection of the backend.
//     That alone is normal (a log server, an upload): such a connection is a sign once for what it sends.
//   - A probe gets no answer: a connection that is closed for sending at once. A program that runs closes its side, or greets.
//
// A backend that is not known to answer probes, or has no checks, and one in HTTP mode whatever it answers, hangs once three clients have
// waited for their first response for a multiple of what others waited, and some backend of the balancer has answered one: its protocol is
// none without answers. The ejection ends with a byte from the backend; a passed check or an accepted connection shows
// nothing. As with every ejection, the backend is still used while no other is left.
//
// Silence alone is no loss: a program that is busy with what it has got looks the same. So such an ejection cuts no connection and repeats no
// request.
//
// A machine that is cut off acknowledges nothing. It is ejected, until a check passes, if a connection's bytes are sent again and not
// acknowledged for as long, and the probe cannot connect. What it has got is lost, and ended or sent to another backend.
const (
	silenceTick = 200 * time.Millisecond
	probeLimit  = time.Second     // for the answer to a probe
	probeGap    = time.Second     // between two probes of a backend
	probedFor   = 5 * time.Second // connections that wait although their backend answers probes are not probed for again for this long

	silentConnections = 3 // without a probe
	silentFor         = 2 * time.Second
	silentFactor      = 4 // times the longest wait for a first response so far

	learnPause = 10 * time.Minute // at most, between two probes of a backend that has answered none
)

// silence is what is known of the first responses of one backend of one balancer.
type silence struct {
	probing    atomic.Bool
	answers    atomic.Bool   // probes were answered once
	learn      time.Time     // the next probe that finds out whether probes are answered; of the watcher only, as the rest
	pause      time.Duration // before the one after it
	decided    time.Time     // the last decision
	hung       atomic.Bool   // it is ejected for what clients waited, not for a probe
	answered   atomic.Bool   // a connection got a response
	receivedAt atomic.Int64  // when the last byte is known to have come, since epoch
	slowest    atomic.Int64  // nanoseconds that a first response took
}

// received notes that bytes have come from the backend, also on a connection that ends now.
func (l *silence) received() { l.receivedAt.Store(int64(time.Since(epoch))) }

// quietFor returns how long ago that was.
func (l *silence) quietFor() time.Duration {
	return time.Since(epoch) - time.Duration(l.receivedAt.Load())
}

// responded notes a first response.
func (l *silence) responded(took time.Duration) {
	if !l.answered.Load() {
		l.answered.Store(true)
	}
	for old := l.slowest.Load(); int64(took) > old && !l.slowest.CompareAndSwap(old, int64(took)); old = l.slowest.Load() {
	}
}

// silenceOf returns how long a backend may leave a client without a response before it is looked at; false: for any time.
func (s *Server) silenceOf(b *backend) (time.Duration, bool) {
	set := b.health.key.check.Silence
	return cmp.Or(set, s.cfg.Silence), set >= 0
}

// An answerWatch looks for backends that do not answer.
type answerWatch struct {
	s       *Server
	probes  sync.WaitGroup
	waiting []*session // without a response so far
}

// watchAnswers runs until ctx ends.
func (s *Server) watchAnswers(ctx context.Context) {
	w := &answerWatch{s: s}
	defer w.probes.Wait()
	for pause.For(ctx, silenceTick) == nil {
		w.tick(ctx, time.Now())
	}
}

// A unresponsiveBackend is a backend with connections that have waited too long for a first response.
type unresponsiveBackend struct {
	frontend  *frontend
	backend   *backend
	sessions  []*session // in TCP mode
	conns     []net.Conn // all to the backend
	longest   time.Duration
	undecided bool // some were not part of the last decision
}

func (w *answerWatch) tick(ctx context.Context, now time.Time) {
	w.waiting = append(w.waiting, w.s.sessions.takeFresh()...)
	waiting := make(map[*backendState]*unresponsiveBackend)
	kept := w.waiting[:0]
	for _, ses := range w.waiting {
		if w.look(ses, waiting, now) {
			kept = append(kept, ses)
		}
	}
	clear(w.waiting[len(kept):])
	w.waiting = kept
	for _, f := range w.s.active.Load().frontends {
		for i := range f.backends {
			w.lookAt(ctx, f, &f.backends[i], waiting, now)
		}
	}
	for _, m := range waiting {
		w.decide(ctx, m, now)
	}
}

// look adds a session that has waited too long to those of its backend. It returns false if the session needs no more looks.
func (w *answerWatch) look(ses *session, waiting map[*backendState]*unresponsiveBackend, now time.Time) (waits bool) {
	r, state, turn := ses.relay, ses.to, ses.turn.Load()
	patience, on := w.s.silenceOf(r.backend)
	if turn >= 2 && !ses.answered {
		w.responded(ses, now)
	}
	switch {
	case r.left.Load() == 0:
		return false
	case turn%2 == 0:
		if state.stalled.Load() {
			w.s.reinstate(r.backend.health, state)
		}
		ses.watched.Store(false)
		return ses.turn.Load() != turn && !ses.watched.Swap(true) // the client has sent more meanwhile
	case turn != ses.asking:
		ses.asking, ses.asked = turn, now
		return true
	case !on, now.Sub(ses.asked) < patience:
		return true
	}
	m := waiting[state]
	if m == nil {
		m = &unresponsiveBackend{frontend: r.frontend, backend: r.backend}
		waiting[state] = m
	}
	m.sessions = append(m.sessions, ses)
	m.conns = append(m.conns, ses.backend)
	m.longest = max(m.longest, now.Sub(ses.asked))
	m.undecided = m.undecided || ses.undecided(now)
	return true
}

// undecided reports whether a session that waits is a sign that was not decided on: after a first response only if its client has sent more.
func (ses *session) undecided(now time.Time) bool {
	since := now.Sub(ses.decided)
	if since < probedFor || ses.decided.IsZero() || !ses.answered {
		return since >= probedFor
	}
	info, ok := tcpInfo(ses.backend)
	if sent := ok && time.Duration(info.Last_data_sent)*time.Millisecond < since; sent {
		return true
	}
	ses.decided = now // so that it is not looked at all the time
	return false
}

// responded notes a first response.
func (w *answerWatch) responded(ses *session, now time.Time) {
	ses.answered = true
	took := time.Duration(0)
	if !ses.asked.IsZero() {
		took = now.Sub(ses.asked)
	}
	ses.to.responded(took)
}

// lookAt learns whether a backend answers probes, looks at its requests in HTTP mode, and whether it answers again.
func (w *answerWatch) lookAt(ctx context.Context, f *frontend, b *backend, waiting map[*backendState]*unresponsiveBackend, now time.Time) {
	patience, on := w.s.silenceOf(b)
	state, probed := b.state, on && b.health.key.check.Kind != lab.CheckNone && !b.hasClientPort()
	if f.Mode == lab.ModeHTTP && on {
		if conns := state.pool.waiting(patience); len(conns) > 0 {
			waiting[state] = &unresponsiveBackend{frontend: f, backend: b, conns: conns, longest: patience, undecided: true}
		}
	}
	switch {
	case state.stalled.Load() && state.probes(b) && !state.hung.Load():
		w.probe(ctx, f, b, now, func(answered bool, _ error) {
			if answered && state.mayReturn(w.s.deps.Now()) {
				w.s.reinstate(b.health, state)
			}
		})
	case state.stalled.Load():
		if state.ejectedFor(w.s.deps.Now()) >= w.s.cfg.Ejection && !w.hangs(waiting[state], now) {
			w.s.reinstate(b.health, state)
		}
	case probed && !state.answers.Load() && state.used(f) && b.health.isUp() && !now.Before(state.learn):
		state.pause = min(max(2*state.pause, probeGap), learnPause)
		state.learn = now.Add(state.pause)
		w.probe(ctx, f, b, now, func(bool, error) {})
	}
}

// used reports whether the backend has answered a connection, in HTTP mode whether it had one.
func (s *backendState) used(f *frontend) bool {
	return s.answered.Load() || f.Mode == lab.ModeHTTP && s.pool.used()
}

// probes reports whether the backend is known to answer probes.
func (l *silence) probes(b *backend) bool {
	return l.answers.Load() && b.health.key.check.Kind != lab.CheckNone
}

// decide decides whether a backend is stopped.
func (w *answerWatch) decide(ctx context.Context, m *unresponsiveBackend, now time.Time) {
	b := m.backend
	state := b.state
	patience, _ := w.s.silenceOf(b)
	if state.ejected.Load() && !state.stalled.Load() && w.unacknowledged(m, patience+probeLimit/2) {
		w.leave(m) // connects have shown that it is cut off, sooner than a probe
		return
	}
	if !m.undecided || !b.usable() {
		return
	}
	if w.hangs(m, now) {
		state.hung.Store(true)
		w.ejectStalled(m)
		return
	}
	probes := state.probes(b)
	if !probes && (b.health.key.check.Kind == lab.CheckNone || !w.unacknowledged(m, patience)) {
		return
	}
	started := w.probe(ctx, m.frontend, b, now, func(answered bool, err error) {
		lasts := patience + probeLimit/2
		switch {
		case answered || !b.usable():
		case err == nil && probes && w.silent(m, lasts):
			state.hung.Store(false)
			w.ejectStalled(m)
		case err != nil && isSilence(err) && w.unacknowledged(m, lasts):
			w.s.eject(b, "acknowledges nothing: "+m.waits())
			w.leave(m)
		}
	})
	if started {
		for _, ses := range m.sessions {
			ses.decided = now
		}
	}
}

// hangs reports whether several clients have waited for a first response for a multiple of what others did. A backend of TCP mode that
// answers probes may be one that never answers clients, as a log server.
func (w *answerWatch) hangs(m *unresponsiveBackend, now time.Time) bool {
	if m == nil || m.frontend.Mode == lab.ModeTCP && m.backend.state.probes(m.backend) {
		return false
	}
	answered, limit := false, silentFor
	for i := range m.frontend.backends {
		state := m.frontend.backends[i].state
		answered = answered || state.answered.Load()
		limit = max(limit, silentFactor*time.Duration(state.slowest.Load()))
	}
	return answered && m.waitedFor(limit, now) >= silentConnections && w.silent(m, limit)
}

// waitedFor returns how many clients have waited that long for their first response, and began to after the last byte from the backend:
// those that it was silent to while it answered others want something that takes long.
func (m *unresponsiveBackend) waitedFor(d time.Duration, now time.Time) (n int) {
	quiet := m.backend.state.quietFor()
	for _, ses := range m.sessions {
		if waited := now.Sub(ses.asked); !ses.answered && waited >= d && waited <= quiet {
			n++
		}
	}
	return n + m.backend.state.pool.waitedFor(d, quiet)
}

// silent reports whether the backend's kernel has acknowledged a request, and no connection of the balancer has got a byte
// from the backend for that long, nor has one that has ended since.
func (w *answerWatch) silent(m *unresponsiveBackend, lasts time.Duration) bool {
	if m.backend.state.quietFor() < lasts {
		return false
	}
	delivered := false
	for _, c := range m.conns {
		info, ok := tcpInfo(c)
		delivered = delivered || ok && info.Bytes_acked > 1 && info.Unacked == 0
	}
	return delivered && !slices.ContainsFunc(w.s.connsTo(m.backend.state), func(c net.Conn) bool {
		info, ok := tcpInfo(c)
		return ok && info.Bytes_received > 0 && time.Duration(info.Last_data_recv)*time.Millisecond < lasts
	})
}

// unacknowledged reports whether the backend's kernel has not acknowledged bytes for that long, and no connection of the balancer has got a
// packet from it.
func (w *answerWatch) unacknowledged(m *unresponsiveBackend, lasts time.Duration) bool {
	lost := slices.ContainsFunc(m.conns, func(c net.Conn) bool {
		info, ok := tcpInfo(c)
		return ok && info.Unacked > 0 && info.Retransmits > 0
	})
	return lost && !slices.ContainsFunc(w.s.connsTo(m.backend.state), func(c net.Conn) bool {
		info, ok := tcpInfo(c)
		return ok && time.Duration(info.Last_ack_recv)*time.Millisecond < lasts
	})
}

// connsTo returns the connections to a backend.
func (s *Server) connsTo(state *backendState) []net.Conn {
	out := state.pool.conns()
	for _, ses := range s.sessions.all() {
		if ses.to == state {
			out = append(out, ses.backend)
		}
	}
	return out
}

// ejectStalled takes out a backend that does not answer.
func (w *answerWatch) ejectStalled(m *unresponsiveBackend) {
	s, state := w.s, m.backend.state
	state.stalled.Store(true)
	state.eject("accepts connections and answers none: "+m.waits(), s.deps.Now())
	s.report(func(b *backend) bool { return b.state == state }, 0)
}

// waits says how many clients wait for the backend.
func (m *unresponsiveBackend) waits() string {
	if len(m.conns) == 1 {
		return "1 client waits"
	}
	return fmt.Sprintf("%d clients wait", len(m.conns))
}

// leave ends what waits for a backend that is cut off: with on_down: keep only requests that may be repeated, while another backend is up.
func (w *answerWatch) leave(m *unresponsiveBackend) {
	if m.frontend.OnDown == lab.OnDownClose {
		m.backend.state.pool.lose(loseAll)
		for _, ses := range m.sessions {
			ses.abort(endBackendDown)
		}
		return
	}
	if m.frontend.hasUsable(noAddr.Addr()) {
		m.backend.state.pool.lose(loseRepeatable)
	}
}

// probe asks a backend for an answer, without keeping the watcher waiting. It returns false if there was a probe a moment ago.
// done gets what Server.probe returns.
func (w *answerWatch) probe(ctx context.Context, f *frontend, b *backend, now time.Time, done func(answered bool, err error)) (started bool) {
	if now.Sub(b.state.decided) < probeGap || !b.state.probing.CompareAndSwap(false, true) {
		return false
	}
	b.state.decided = now
	w.probes.Go(func() {
		defer b.state.probing.Store(false)
		_ = w.s.deps.Panics.Run(func() error {
			answered, err := w.s.probe(ctx, f, b.Addr)
			if answered {
				b.state.answers.Store(true)
			}
			done(answered, err)
			return nil
		})
	})
	return true
}

// probe connects to a backend and ends the connection for sending. It reports whether the backend sent a byte, closed or
// reset the connection. The error says that there is no result: it did not accept the connection, or its kernel did not acknowledge.
func (s *Server) probe(ctx context.Context, f *frontend, at netip.AddrPort) (answered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*probeLimit)
	defer cancel()
	dialing, connected := context.WithTimeout(ctx, probeLimit)
	conn, _, err := s.dialCheck(dialing, at, probeLimit/(checkDials+1))
	connected()
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	half, ok := conn.(*net.TCPConn)
	if !ok {
		return false, errors.ErrUnsupported
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if f.SendProxy != 0 {
		if err := writeProxyHeader(conn, f.SendProxy, netip.AddrPort{}, netip.AddrPort{}); err != nil {
			return false, err
		}
	}
	if err := half.CloseWrite(); err != nil {
		return true, nil // it has reset the connection already
	}
	_ = conn.SetReadDeadline(time.Now().Add(probeLimit))
	_, err = conn.Read(make([]byte, 1))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return true, nil // an end and a reset are answers
	}
	if info, ok := tcpInfo(conn); ctx.Err() != nil || !ok || info.State != unix.BPF_TCP_FIN_WAIT2 {
		return false, err // its kernel has not acknowledged the end
	}
	return false, nil
}
