package tftpd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/host/datagram"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// isRequest reports whether a packet asks to read or to write.
func isRequest(b []byte) bool { return len(b) >= 2 && b[0] == 0 && (b[1] == opRRQ || b[1] == opWRQ) }

// take takes what came to the port that all clients know.
func (s *Server) take(ctx context.Context, p packet) {
	switch {
	case isRequest(p.bytes):
		s.accept(ctx, p, fresh)
	case s.cfg.SinglePort:
		s.deliver(p)
	default:
		// A stray ACK or ERROR gets no answer: two servers could go on for ever.
		s.stats.dropped[reasonMalformed].Inc()
	}
}

// deliver hands a reply to the transfer that it is meant for, by the address and port that it came from. One that belongs to no
// transfer gets ERROR 5 (RFC 1350 section 4), so that its client need not wait for nothing; an ERROR never does.
func (s *Server) deliver(p packet) {
	r, ok := parseReply(p.bytes)
	if !ok {
		s.stats.dropped[reasonMalformed].Inc()
		return
	}
	s.mu.Lock()
	t := s.active[p.client]
	s.mu.Unlock()
	if t != nil {
		t.shared.put(r)
		return
	}
	s.stats.dropped[reasonStray].Inc()
	if r.op != opERROR {
		_, _, _ = p.conn.WriteMsgUDPAddrPort(appendError(nil, CodeUnknownTID, "unknown transfer"), datagram.AppendSource(nil, p.local), p.client)
	}
}

// An occasion is why a request is taken up.
type occasion int

const (
	fresh    occasion = iota // it has come
	repeated                 // it came while the transfer before was ending
)

// accept takes a request up, unless it is one that is being answered already, or there is too much to do.
func (s *Server) accept(ctx context.Context, p packet, why occasion) {
	t := &transfer{key: string(p.bytes), client: p.client, occasion: why, started: time.Now(), retries: s.cfg.Retries, stats: s.stats}
	if s.cfg.SinglePort {
		t.shared = newSharedPort(p.conn, p.local, p.client)
		t.transport = t.shared
	}
	inner, cancel := context.WithCancelCause(ctx)
	t.cancel = cancel
	if drop := s.admit(t); drop != "" {
		s.stats.dropped[drop].Inc()
		t.cancel(nil)
		return
	}
	s.wg.Go(func() {
		err := s.handle(inner, t, p.local)
		s.forget(t)
		if errors.Is(err, errProbe) && t.asked.Load() && why == fresh {
			// The request after a probe was here before the word that the probe is over.
			p.bytes = []byte(t.key)
			s.accept(ctx, p, repeated)
		}
	})
}

// admit gives a transfer its place, or says why there is none.
func (s *Server) admit(t *transfer) (drop string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.active[t.client]
	switch {
	case old != nil && old.key == t.key && s.current(old):
		// The transfer's own timer will send again what got lost.
		old.asked.Store(true)
		return reasonDuplicate
	case !s.roomLocked(t.client.Addr()):
		return reasonBusy
	case old != nil:
		old.cancel(errReplaced) // it has restarted, with the same port
	}
	s.active[t.client] = t
	s.stats.active.Set(float64(s.running.Add(1)))
	return ""
}

// current reports whether a request that comes again is the same one, on its way for long or sent because the answer was late. A
// machine that has started over is silent before.
func (s *Server) current(t *transfer) bool { return !t.answered() || t.silence() < 3*s.cfg.Timeout }

// roomLocked reports whether there is a place for a client at that address, or one is made. Those that had to make room may take a
// moment to end.
func (s *Server) roomLocked(from netip.Addr) bool {
	n, most := int(s.running.Load()), s.cfg.MaxTransfers
	if n < most || n > most+most/4 {
		return n < most
	}
	// A flood must not have us look for room for each of its packets: that takes longer than they take to come.
	if from == s.full.from && time.Since(s.full.at) < s.cfg.Timeout/100 {
		return false
	}
	ok := s.evictLocked(from)
	if !ok {
		s.full.from, s.full.at = from, time.Now()
	}
	return ok
}

// evictLocked ends a transfer whose client has never given a sign of life, if one that is there would have by now: requests under
// false addresses, or from ports that are closed, must not keep machines out. Of the address that has most of them it is the first, soon;
// where that is not worse than the newcomer's, the oldest of all has to have waited as long as an answer may take.
func (s *Server) evictLocked(from netip.Addr) bool {
	silent := map[netip.Addr]int{}
	worst := from
	for _, t := range s.active {
		if a := t.client.Addr(); !t.answered() {
			if silent[a]++; silent[a] > silent[worst]+1 {
				worst = a
			}
		}
	}
	patience := s.cfg.Timeout
	if worst != from {
		patience /= 20
	}
	var oldest *transfer
	for _, t := range s.active {
		if !t.answered() && (worst == from || t.client.Addr() == worst) && (oldest == nil || t.started.Before(oldest.started)) {
			oldest = t
		}
	}
	if oldest == nil || time.Since(oldest.started) < patience {
		return false
	}
	oldest.cancel(errEvicted)
	delete(s.active, oldest.client)
	return true
}

func (s *Server) forget(t *transfer) {
	t.cancel(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active[t.client] == t {
		delete(s.active, t.client)
	}
	s.stats.active.Set(float64(s.running.Add(-1)))
}

// handle answers one request and returns how that ended. Whatever it holds must not end the process.
func (s *Server) handle(ctx context.Context, t *transfer, local netip.Addr) (err error) {
	table := s.deps.Table()
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("request handler panicked", "addr", t.client, "err", p)
		}
	}()
	r, err := ParseRequest([]byte(t.key))
	if err != nil {
		s.stats.dropped[reasonMalformed].Inc()
		s.log.Debug("malformed request", "addr", t.client, "err", err)
		return nil
	}
	if err := s.join(ctx, t, local); err != nil {
		s.log.Error("open transfer", "addr", t.client, "err", err)
		return nil
	}
	defer t.transport.close()
	err = s.prepare(ctx, table, t, r)
	if err == nil {
		defer t.readAhead.content.close()
		err = t.run(ctx)
	}
	s.conclude(t, r, err, time.Since(t.started))
	return err
}

// join gives a transfer its line, unless it shares one.
func (s *Server) join(ctx context.Context, t *transfer, local netip.Addr) error {
	if t.transport != nil {
		return nil
	}
	p, err := newSocket(ctx, local, t.client, func() int { return int(s.running.Load()) })
	if err != nil {
		return err
	}
	t.transport = p
	return nil
}

// prepare finds what was asked for and agrees on terms. The error is a *refusal.
func (s *Server) prepare(ctx context.Context, table *Table, t *transfer, r Request) error {
	if r.Write {
		return &refusal{code: CodeAccess, message: "read-only server", err: errors.New("a write request: the server is read-only")}
	}
	if r.Mode != "octet" && r.Mode != "netascii" {
		return &refusal{code: CodeIllegal, message: "unknown mode", err: fmt.Errorf("mode %q: want octet or netascii", printable(r.Mode))}
	}
	target, ok := resolve(r.Name)
	if !ok {
		return &refusal{code: CodeAccess, message: "access violation", err: errNoSuchPath}
	}
	c, err := s.open(ctx, table, target, t.client.Addr())
	if err != nil {
		return err
	}
	l := limits{window: s.cfg.MaxWindow, timeout: s.cfg.Timeout, size: c.size}
	if r.Mode == "netascii" {
		if c, err = netascii(c); err != nil {
			return err
		}
		l.size = -1 // the size on this disk is not the number of bytes to come
	}
	if len(r.Options) > 0 {
		l.block = blockLimit(t.client)
	}
	t.readAhead.content = c
	t.terms = negotiate(r.Options, l)
	return nil
}

// conclude tells the house and the client, if it has to be told, how the request ended.
func (s *Server) conclude(t *transfer, r Request, err error, took time.Duration) {
	if t.occasion == repeated && !t.answered() && t.base > 0 {
		// The client wanted nothing more than the size, and had only asked for it twice.
		s.stats.dropped[reasonDuplicate].Inc()
		return
	}
	e := event.Event{MAC: macOf(r.Name), Addr: t.client.Addr(), Detail: label(r.Name), Dur: took}
	var refused *refusal
	result := resultFailed
	switch {
	case err == nil:
		result, e.Kind, e.Bytes = resultServed, event.TFTPServed, t.readAhead.content.size
		s.stats.duration.Observe(took.Seconds())
	case errors.Is(err, errProbe):
		result, e.Kind = resultProbe, event.TFTPProbe
	case errors.As(err, &refused) && t.base == 0:
		result, e.Kind, e.Err = resultRefused, event.TFTPRefused, redact(brief(refused.err, e.Detail))
	default:
		e.Kind, e.Bytes, e.Err = event.TFTPFailed, t.acked(), err.Error()
	}
	s.stats.results[result].Inc()
	s.stats.bytes.Add(float64(e.Bytes))
	if refused == nil || !refused.told {
		s.deps.Events.Record(e)
	}
	s.part(t, result, err)
}

// brief leaves out of err the path that asked, what was asked for, ends with.
func brief(err error, asked string) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok && strings.HasSuffix(asked, p.Path) {
		return p.Err.Error()
	}
	return err.Error()
}

// part tells the client that it gets nothing more, where it does not know.
func (s *Server) part(t *transfer, result string, err error) {
	var refused *refusal
	var ce *clientError
	switch {
	case result == resultRefused && errors.As(err, &refused):
		s.tell(t, refused.code, refused.message)
	case result == resultFailed && !errors.As(err, &ce) && !errors.Is(err, errReplaced): // which has the client's next transfer under way
		s.tell(t, CodeUndefined, "transfer aborted")
	}
}

func (s *Server) tell(t *transfer, code ErrorCode, message string) {
	b := appendError(nil, code, message)
	if err := t.transport.send(b, len(b)); err != nil {
		s.log.Debug("send error packet", "addr", t.client, "err", err)
	}
}
