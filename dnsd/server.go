package dnsd

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/bootlab/bootlab/internal/host/client/connlimit"
	"github.com/bootlab/bootlab/internal/host/required"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/panics"
)

// The attribute keys of log lines.
const (
	keyAddr = "addr"
	keyErr  = "err"
	keyZone = "zone"
)

// A Config tunes a Server. The zero Config is the documented default.
type Config struct {
	MaxTCP         int           // open connections; 64
	MaxForwards    int           // queries that wait for the forwarder, of one client as many as are left; 256
	CacheEntries   int           // cached answers of the forwarder; 4096
	IdleTimeout    time.Duration // of a TCP connection; 10s
	ForwardTimeout time.Duration // for one try at one server; 1s. A query gets 4.5 times as long in all
}

// Deps are what a Server needs. All but Leases, Updates, Cookies and OnSegment are required.
type Deps struct {
	Table   func() *Table // the table in force
	Leases  Leases        // names of DHCP clients; nil: none
	Updates Updates       // what dynamic updates make; nil: they are refused
	Cookies Cookies       // keeps the secrets of cookies; nil: they last as long as the process
	// OnSegment reports whether an IPv6 address is on one of a lab's segments, so that its client may use the forwarder. A link-local
	// address has its interface as its zone, by name or by number. nil: none is.
	OnSegment  func(*lab.Lab, netip.Addr) bool
	Now        func() time.Time
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Panics     *panics.Server // counts contained panics; nil: they are only logged
}

// A Server answers DNS over UDP and TCP.
type Server struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	metrics *metrics
	panics  *panics.Server
	forward *forwarder
	conns   *connlimit.Set // TCP connections of all listeners

	// forwards counts queries that wait for the forwarder: a client whose queries no server answers does not block the others.
	forwards *connlimit.Counter

	changes changes
	queries queryLog
	rate    *rateLimit

	notifier notifier

	cookies       atomic.Pointer[CookieSecrets]
	cookiesLoaded bool // from Deps.Cookies; of rollCookies, as the next
	cookieWarned  bool
}

// New returns a server. It panics if a required dependency is nil.
func New(cfg Config, deps Deps) (*Server, error) {
	required.Fields(deps, "Leases", "Updates", "Cookies", "OnSegment", "Panics")
	cfg = cfg.withDefaults()
	m, err := newMetrics(deps.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register metrics of dnsd: %w", err)
	}
	s := &Server{
		cfg: cfg, deps: deps, log: deps.Log.With("server", "dnsd"), metrics: m, panics: cmp.Or(deps.Panics, panics.LogOnly(deps.Log, "dnsd")),
		forward: newForwarder(cfg, deps.Now, m), forwards: connlimit.NewCounter(cfg.MaxForwards),
		conns: connlimit.New(connlimit.Config{Max: cfg.MaxTCP}), rate: &rateLimit{seed: maphash.MakeSeed()},
	}
	s.cookies.Store(&CookieSecrets{Current: newCookieSecret(), Previous: newCookieSecret()})
	s.forward.panics, s.forward.tls.panics = s.panics, s.panics
	return s, nil
}

func (c Config) withDefaults() Config {
	c.MaxTCP = cmp.Or(c.MaxTCP, 64)
	c.MaxForwards = cmp.Or(c.MaxForwards, 256)
	c.CacheEntries = cmp.Or(c.CacheEntries, 4096)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 10*time.Second)
	c.ForwardTimeout = cmp.Or(c.ForwardTimeout, time.Second)
	return c
}

// Serve answers on all sockets until ctx ends, waits for queries in progress, and returns nil. Any other error is that of a
// socket. It closes no socket. There may be none: then it only waits for ctx. It may be called once for each socket.
func (s *Server) Serve(ctx context.Context, udp []*net.UDPConn, tcp []*net.TCPListener) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { <-ctx.Done(); return nil })
	for _, c := range udp {
		g.Go(func() error { return s.serveUDP(ctx, c) })
	}
	for _, l := range tcp {
		g.Go(func() error { return s.serveTCP(ctx, l) })
	}
	return g.Wait()
}

// Flush removes a name and what is below it from the cache of the forwarder, or everything if name is empty. It returns how many answers
// that were.
func (s *Server) Flush(name string) (removed int, err error) {
	wire := []byte{0}
	if name != "" {
		if wire, err = appendName(nil, name); err != nil {
			return 0, fmt.Errorf("%w: %w", ErrQuestion, err)
		}
	}
	removed, entries, bytes := s.forward.cache.flush(wire)
	s.metrics.entries.Set(float64(entries))
	s.metrics.bytes.Set(float64(bytes))
	return removed, nil
}

// A result is what handle made of a message.
type result uint8

const (
	dropped result = iota // no reply
	ready                 // the reply is in the request's writer
	pending               // it is for the forwarder, or for the store: finish it with answerForwarded
)

// handle answers the message in r.w.b, in place, from memory alone. The caller has set r.from and r.tcp.
func (s *Server) handle(r *request) result {
	r.t = s.deps.Table()
	if !r.t.lab.MayReply(r.from) {
		return dropped
	}
	code, reply := r.q.parse(r.w.b)
	if !reply {
		return dropped
	}
	code = s.authenticate(r, code)
	if r.cookie = cookieNone; r.q.cookieLen > 0 {
		r.cookie = s.checkCookie(&r.q, r.from)
	}
	msg := r.w.b
	r.begin(s.deps.OnSegment)
	if r.q.update && code == noError {
		return s.acceptUpdate(r, msg)
	}
	if code == noError {
		code = r.checkQuestion()
	}
	if code != noError {
		r.code = code
		return s.finish(r)
	}
	out := r.answer(s.deps.Leases)
	if out == answered {
		return s.finish(r)
	}
	return s.forwardOrRefuse(r, out)
}

// authenticate checks the TSIG record of a request that was parsed, and returns the code of its reply as far as it is known.
func (s *Server) authenticate(r *request, code rcode) rcode {
	if r.sig = nil; r.q.tsig == 0 {
		return code
	}
	var failed rcode
	if r.sig, failed = r.t.verify(r.w.b, r.q.tsig, nil, s.deps.Now()); failed != noError {
		s.metrics.unauthentic.Inc()
		if r.sig != nil {
			s.log.Info("TSIG is not valid", keyAddr, r.from, "key", nameText(r.sig.record[:len(r.sig.record)-8]), keyErr, r.sig.why())
		}
		return max(code, failed)
	}
	return code
}

// checkQuestion refuses what is not answered at all, and makes an IXFR over UDP the question for the SOA that it may be
// answered with (RFC 1995 section 2).
func (r *request) checkQuestion() rcode {
	switch {
	case r.q.qclass != classIN:
		return refused // version.bind too
	case r.q.qtype == typeIXFR && r.t.mayTransfer(r.from, r.sig):
		r.q.qtype = typeSOA
	case r.q.qtype == typeAXFR || r.q.qtype == typeIXFR:
		return refused
	case r.q.qtype != typeANY && isMeta(r.q.qtype):
		return notImp
	}
	return noError
}

// forwardOrRefuse decides about a question that the table does not answer for good.
func (s *Server) forwardOrRefuse(r *request, out lookupResult) result {
	r.delegated = out == delegated
	if s.isLoop(r) {
		r.code = refused
		return s.finish(r)
	}
	servers, at := r.t.upstreams(r.cur)
	if !r.recurse || len(servers) == 0 && !r.delegated {
		if out == noZone && !r.chained {
			r.code = refused
		}
		r.note(byPolicy, r.whyNotForwarded(len(servers) > 0 || r.delegated))
		return s.finish(r)
	}
	if r.trace != nil {
		r.traceRule(servers, at)
	}
	r.w.rewind(r.chainEnd)
	r.code = noError
	if r.chained {
		return pending
	}
	r.flags &^= flagAA
	r.kind, r.zone = kindForward, nil
	if r.trace != nil || !s.forward.cached(r) {
		r.w.rewind(r.chainEnd)
		return pending
	}
	return s.finish(r)
}

// answerForwarded asks the forwarder, or does an update, and finishes the reply.
func (s *Server) answerForwarded(ctx context.Context, r *request) {
	if r.update != nil {
		s.applyUpdate(ctx, r)
		return
	}
	for range maxChain {
		e, err := s.forward.resolveShared(ctx, r.upstreamQuery())
		if r.trace != nil {
			r.traceReply(e, err, s.deps.Now())
		}
		more := false
		switch {
		case err != nil:
		case r.toFollow(e) >= 0:
			more, err = s.chase(r, e)
		case r.chained || r.delegated:
			err = r.appendCached(e, s.deps.Now())
		default:
			r.fromCache(e, s.deps.Now())
		}
		if err != nil {
			s.log.Debug("forwarding failed", keyAddr, r.from, keyErr, err)
			r.code = servFail
			break
		}
		if !more {
			break
		}
	}
	s.finish(r)
}

// chase goes on with the target of the CNAME that is to be followed of another server's answer. It reports whether the forwarder has to be
// asked about it.
func (s *Server) chase(r *request, e *cacheEntry) (more bool, err error) {
	if err := r.appendChain(e, r.toFollow(e), s.deps.Now()); err != nil || r.w.full {
		return false, err
	}
	out := r.answer(s.deps.Leases)
	if out == answered {
		return false, nil
	}
	servers, _ := r.t.upstreams(r.cur)
	if r.delegated = out == delegated; !r.delegated && len(servers) == 0 {
		return false, nil
	}
	r.w.rewind(r.chainEnd)
	r.code = noError
	return true, nil
}

func (s *Server) finish(r *request) result {
	r.w.finish(&r.q, r.flags, r.code)
	if r.sig != nil {
		r.w.b = r.sig.sign(r.w.b, s.deps.Now())
	}
	if r.trace == nil {
		s.metrics.count(r.kind, r.q.qtype, r.code)
		if r.zone != nil {
			s.metrics.zones.count(r.t, r.zone.index, r.code)
		}
	}
	if s.queries.readers.Load() > 0 {
		s.queries.record(r, s.deps.Now())
	}
	return ready
}

// clone returns a copy of a request with a buffer of its own.
func (r *request) clone() *request {
	c := *r
	c.cur = &c.q.name
	if r.chained {
		c.cur = &c.next
	}
	c.w.b = append(make([]byte, 0, len(r.w.b)+256), r.w.b...)
	return &c
}

// recoverPanic keeps a panic of a handler from ending the process, and logs it as the bug that it is.
func (s *Server) recoverPanic() {
	if p := recover(); p != nil {
		s.metrics.dropped[dropPanic].Inc()
		s.panics.Note(p)
	}
}
