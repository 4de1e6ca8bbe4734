package dnsd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/singleflight"
)

// errNoAnswer is returned when no server of the forwarder had an answer in time.
var errNoAnswer = errors.New("no server answered")

// failedDelay is for how long a server that failed is asked only after all others.
const failedDelay = 30 * time.Second

// A forwarder asks other servers, each question once at a time, and caches the answers.
type forwarder struct {
	try     time.Duration // for one try
	total   time.Duration // for one question
	now     func() time.Time
	metrics *metrics
	cache   cache

	pending singleflight.Group // of *cacheEntry, by cache key

	mu     sync.Mutex
	failed map[netip.AddrPort]time.Time // when a server failed last
}

func newForwarder(cfg Config, now func() time.Time, m *metrics) *forwarder {
	return &forwarder{
		try: cfg.ForwardTimeout, total: cfg.ForwardTimeout * 9 / 2, now: now, metrics: m,
		cache:  cache{maxEntries: cfg.CacheEntries, maxBytes: cfg.CacheBytes},
		failed: map[netip.AddrPort]time.Time{},
	}
}

// An upstreamQuery is a question for other servers.
type upstreamQuery struct {
	hash    uint64 // of the forwarding rules
	servers []netip.AddrPort
	name    *name
	qtype   uint16
	do, cd  bool
	key     string
}

// cached makes the cached answer to r's question, if there is one, the reply.
func (f *forwarder) cached(r *request) bool {
	var buf [maxName + 3]byte
	now := f.now()
	e := f.cache.get(r.t.forwardHash, appendKey(buf[:0], r.cur, r.q.qtype, r.q.do, r.q.flags&flagCD != 0), now)
	if e == nil {
		return false
	}
	f.metrics.hits.Inc()
	r.fromCache(e, now)
	return true
}

// resolve returns the answer about r.cur, from the cache or from other servers. A question that is pending is not sent again.
func (f *forwarder) resolve(ctx context.Context, r *request) (*cacheEntry, error) {
	servers, _ := r.t.upstreams(r.cur)
	q := upstreamQuery{hash: r.t.forwardHash, servers: servers, name: r.cur, qtype: r.q.qtype, do: r.q.do, cd: r.q.flags&flagCD != 0}
	q.key = string(appendKey(nil, q.name, q.qtype, q.do, q.cd))
	e, err, _ := f.pending.Do(q.key, func() (any, error) { return f.resolveOnce(ctx, q) })
	if err != nil {
		return nil, err
	}
	return e.(*cacheEntry), nil
}

// resolveOnce returns the cached answer, or asks and caches it.
func (f *forwarder) resolveOnce(ctx context.Context, q upstreamQuery) (*cacheEntry, error) {
	if e := f.cache.get(q.hash, []byte(q.key), f.now()); e != nil {
		f.metrics.hits.Inc()
		return e, nil
	}
	f.metrics.misses.Inc()
	ctx, cancel := context.WithTimeout(ctx, f.total)
	defer cancel()
	start := f.now()
	e, err := f.askServers(ctx, q)
	f.metrics.forward.Observe(f.now().Sub(start).Seconds())
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, ctx.Err() // the server is stopping: that says nothing about the other servers
	}
	if err != nil {
		e = &cacheEntry{code: servFail, ttl: maxFailure}
	}
	e.key, e.at = q.key, f.now()
	entries, bytes := f.cache.put(q.hash, e)
	f.metrics.entries.Set(float64(entries))
	f.metrics.bytes.Set(float64(bytes))
	return e, nil
}

// askServers asks one server after the other until one answers, and over again as long as one of them may only have lost a
// packet and ctx lasts.
func (f *forwarder) askServers(ctx context.Context, q upstreamQuery) (*cacheEntry, error) {
	errs := []error{errNoAnswer}
	for again := true; again && ctx.Err() == nil; {
		again = false
		for _, server := range f.order(q.servers) {
			e, err := f.exchange(ctx, q, server)
			if err == nil {
				f.setFailed(server, false)
				return e, nil
			}
			if ctx.Err() != nil {
				break
			}
			f.metrics.failures.Inc()
			f.setFailed(server, true)
			errs = append(errs, fmt.Errorf("ask %s: %w", server, err))
			again = again || errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
	return nil, errors.Join(errs...)
}

// order returns the servers as configured, but those that failed of late last.
func (f *forwarder) order(servers []netip.AddrPort) []netip.AddrPort {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	var good, bad []netip.AddrPort
	for _, s := range servers {
		if at, failed := f.failed[s]; failed && now.Sub(at) < failedDelay {
			bad = append(bad, s)
		} else {
			good = append(good, s)
		}
	}
	return slices.Concat(good, bad)
}

func (f *forwarder) setFailed(server netip.AddrPort, failed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if failed {
		f.failed[server] = f.now()
	} else {
		delete(f.failed, server)
	}
}

// An rcodeError is a reply that is no answer.
type rcodeError struct{ code int }

// Error implements error.
func (e *rcodeError) Error() string { return "replied " + dns.RcodeToString[e.code] }

// newEntry makes an entry of a server's reply. Of the reply are kept the records that answer the question and, where there
// are none, those that say so: nothing else that a server may add is believed.
func (q *upstreamQuery) newEntry(m *dns.Msg) (*cacheEntry, error) {
	if m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
		return nil, &rcodeError{m.Rcode}
	}
	e := &cacheEntry{code: rcode(m.Rcode), ttl: maxPositive}
	out := &dns.Msg{Compress: true}
	out.Question = []dns.Question{{Name: nameText(q.name.bytes()), Qtype: q.qtype, Qclass: dns.ClassINET}}
	out.Answer = chainOf(m.Answer, out.Question[0].Name)
	if len(out.Answer) == 0 || m.Rcode == dns.RcodeNameError || endsInCNAME(out.Answer, q.qtype) {
		out.Ns = slices.DeleteFunc(m.Ns, func(rr dns.RR) bool { return !provesAbsence(rr, q.do) })
		e.ttl = negativeTTL(out.Ns)
	}
	for _, rr := range slices.Concat(out.Answer, out.Ns) {
		// The letters' case was our own secret; in lower case the question's owner is compressed to a pointer, so that every
		// client sees its own spelling.
		rr.Header().Name = dns.CanonicalName(rr.Header().Name)
	}
	for _, rr := range out.Answer {
		e.ttl = min(e.ttl, time.Duration(rr.Header().Ttl)*time.Second)
	}
	packed, err := out.Pack()
	if err != nil {
		return nil, fmt.Errorf("repack the reply: %w", err)
	}
	// A record without data (as in updates, RFC 2136) is read as empty fields, and those are written as less than its type has.
	if err := new(dns.Msg).Unpack(packed); err != nil {
		return nil, fmt.Errorf("the reply has a broken record: %w", err)
	}
	e.rest = slices.Clip(packed[headerLen+q.name.n+4:])
	e.count = [3]uint16{uint16(len(out.Answer)), uint16(len(out.Ns)), 0}
	return e, nil
}

// chainOf returns the records that belong to a name or to what its CNAMEs lead to.
func chainOf(rrs []dns.RR, owner string) []dns.RR {
	names := map[string]bool{dns.CanonicalName(owner): true}
	var chain []dns.RR
	for _, rr := range rrs {
		dname, isDNAME := rr.(*dns.DNAME)
		if isDNAME && dns.IsSubDomain(dname.Hdr.Name, owner) {
			chain = append(chain, rr)
			continue
		}
		if !names[dns.CanonicalName(rr.Header().Name)] || rr.Header().Class != dns.ClassINET {
			continue
		}
		if cname, ok := rr.(*dns.CNAME); ok {
			names[dns.CanonicalName(cname.Target)] = true
		}
		chain = append(chain, rr)
	}
	return chain
}

func endsInCNAME(rrs []dns.RR, qtype uint16) bool {
	return qtype != typeCNAME && qtype != typeANY &&
		!slices.ContainsFunc(rrs, func(rr dns.RR) bool { return rr.Header().Rrtype == qtype })
}

// provesAbsence reports whether a record of the authority section belongs to a negative answer (RFC 2308, RFC 4035).
func provesAbsence(rr dns.RR, do bool) bool {
	switch rr.Header().Rrtype {
	case dns.TypeSOA:
		return true
	case dns.TypeNSEC, dns.TypeNSEC3, dns.TypeRRSIG:
		return do
	}
	return false
}

// negativeTTL returns for how long there is nothing (RFC 2308 section 5): without a SOA, for no time at all.
func negativeTTL(ns []dns.RR) time.Duration {
	for _, rr := range ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return min(time.Duration(min(soa.Hdr.Ttl, soa.Minttl))*time.Second, maxNegative)
		}
	}
	return 0
}

// appendCached appends the cached answer about the end of a chain of CNAMEs to the chain.
func (r *request) appendCached(e *cacheEntry, now time.Time) error {
	b := make([]byte, headerLen, headerLen+r.cur.n+4+len(e.rest))
	for i, n := range e.count {
		b[6+2*i], b[7+2*i] = byte(n>>8), byte(n)
	}
	b[5] = 1
	b = append(b, r.cur.bytes()...)
	b = append(b, byte(r.q.qtype>>8), byte(r.q.qtype), 0, classIN)
	start := len(b)
	b = append(b, e.rest...)
	age(b, start, now.Sub(e.at))
	var m dns.Msg
	if err := m.Unpack(b); err != nil {
		return fmt.Errorf("unpack a cached answer: %w", err)
	}
	r.code = e.code
	for s, rrs := range [][]dns.RR{m.Answer, m.Ns} {
		for _, rr := range rrs {
			if err := r.w.raw(section(s), rr); err != nil {
				return err
			}
		}
	}
	return nil
}

// raw adds a record without compression.
func (w *writer) raw(s section, rr dns.RR) error {
	buf := make([]byte, dns.Len(rr)+16)
	n, err := dns.PackRR(rr, buf, 0, nil, false)
	if err != nil {
		return fmt.Errorf("pack %s: %w", rr.Header().Name, err)
	}
	if w.full || len(w.b)+n > w.limit {
		w.full = true
		return nil
	}
	w.b = append(w.b, buf[:n]...)
	w.count[s]++
	return nil
}
