package dnsd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/singleflight"

	"github.com/bootlab/bootlab/internal/observe/panics"
)

// errNoAnswer is returned when no server of the forwarder had an answer in time.
var errNoAnswer = errors.New("no server answered")

const (
	maxRefreshes    = 64 // that wait
	refreshWorkers  = 8
	refreshFraction = 10 // a tenth of its lifetime before it expires, an answer that is asked for is refreshed
	minRefreshed    = 10 * time.Second
)

// A forwarder asks other servers, each question once at a time, and caches the answers.
type forwarder struct {
	try     time.Duration // for one try
	total   time.Duration // for one question
	now     func() time.Time
	metrics *metrics
	panics  *panics.Server // set by New; a nil one lets panics pass
	cache   cache

	cacheEntries, cacheBytes int // bounds of the cache where the lab file has none

	pending singleflight.Group // of *cacheEntry, by cache key

	refreshes chan upstreamQuery // what is asked again before its answer expires

	servers   serverTable
	tls       *tlsPool
	loopTests loopTests
}

const defaultCacheBytes = 2 << 20

func newForwarder(cfg Config, now func() time.Time, m *metrics) *forwarder {
	return &forwarder{
		try: cfg.ForwardTimeout, total: cfg.ForwardTimeout * 9 / 2, now: now, metrics: m,
		cacheEntries: cfg.CacheEntries, cacheBytes: defaultCacheBytes,
		servers: serverTable{now: now, servers: map[upstream]*serverState{}}, tls: &tlsPool{conns: map[upstream]*tlsConn{}},
		refreshes: make(chan upstreamQuery, maxRefreshes),
	}
}

// An upstreamQuery is a question for other servers.
type upstreamQuery struct {
	table   *Table
	servers []upstream
	cut     *delegation // the servers are those of a delegated zone, which do not recurse; nil: they do
	name    *name
	qtype   uint16
	do, cd  bool
	refresh bool // the cached answer is about to expire: another one is wanted
}

// key is the question's key in the cache.
func (q *upstreamQuery) key() string { return string(appendKey(nil, q.name, q.qtype, q.do, q.cd)) }

// cached makes the cached answer to r's question, if there is one and it is complete, the reply.
func (f *forwarder) cached(r *request) bool {
	var buf [maxName + 3]byte
	now := f.now()
	e := f.cache.get(r.t.forwardHash, appendKey(buf[:0], r.cur, r.q.qtype, r.q.do, r.q.flags&flagCD != 0), now)
	if e == nil || r.toFollow(e) >= 0 {
		return false
	}
	f.metrics.hits.Inc()
	r.fromCache(e, now)
	if e.expiring(now) && e.refreshed.CompareAndSwap(false, true) {
		f.askForRefresh(r)
	}
	return true
}

// askForRefresh lets a question be asked again in the background. If many wait already, the answer just expires.
func (f *forwarder) askForRefresh(r *request) {
	n, q := *r.cur, r.upstreamQuery()
	q.name, q.refresh = &n, true
	select {
	case f.refreshes <- q:
	default:
	}
}

// refresh asks again what was asked for while its answer was about to expire, until ctx ends.
func (f *forwarder) refresh(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-f.refreshes:
			f.metrics.prefetched.Inc()
			_, _ = f.resolveShared(ctx, q) // the cached answer is still good
		}
	}
}

// upstreamQuery returns the question about r.cur for other servers.
func (r *request) upstreamQuery() upstreamQuery {
	q := upstreamQuery{table: r.t, name: r.cur, qtype: r.q.qtype, do: r.q.do, cd: r.q.flags&flagCD != 0}
	if r.delegated {
		q.cut = r.t.delegationOf(r.cur)
	} else {
		q.servers, _ = r.t.upstreams(r.cur)
	}
	return q
}

func (f *forwarder) resolveShared(ctx context.Context, q upstreamQuery) (*cacheEntry, error) {
	e, err, _ := f.pending.Do(q.key(), func() (any, error) { return f.resolveOnce(ctx, q) })
	if err != nil {
		return nil, err
	}
	return e.(*cacheEntry), nil
}

// resolveOnce returns the cached answer, or asks and caches it. When no server answers, an answer that has expired is better than
// none (RFC 8767).
func (f *forwarder) resolveOnce(ctx context.Context, q upstreamQuery) (*cacheEntry, error) {
	key, hash := q.key(), q.table.forwardHash
	if e := f.cache.get(hash, []byte(key), f.now()); e != nil && !q.refresh {
		f.metrics.hits.Inc()
		return e, nil
	}
	if !q.refresh {
		f.metrics.misses.Inc()
	}
	old := f.cache.expired(hash, []byte(key), f.now())
	total := f.total
	if old != nil {
		total = min(total, staleAfter)
	}
	ctx, cancel := context.WithTimeout(ctx, total)
	defer cancel()
	start := f.now()
	e, err := f.ask(ctx, q)
	f.metrics.forward.Observe(f.now().Sub(start).Seconds())
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, ctx.Err() // the server is stopping: that says nothing about the other servers
	}
	switch {
	case err != nil && q.refresh:
		return nil, err
	case err != nil && old != nil:
		f.metrics.stale.Inc()
		e = old.again()
	case err != nil:
		e = &cacheEntry{code: servFail, ttl: maxFailure, why: oneLine(err)}
	}
	e.key, e.at = key, f.now()
	if e.code == nxDomain && e.count[answers] == 0 {
		e.key = string(appendKey(nil, q.name, anyType, q.do, q.cd)) // the name has no type at all: RFC 2308 section 5
	}
	f.cache.limit(cmp.Or(q.table.cacheEntries, f.cacheEntries), cmp.Or(q.table.cacheBytes, f.cacheBytes))
	entries, bytes := f.cache.put(hash, e)
	f.metrics.entries.Set(float64(entries))
	f.metrics.bytes.Set(float64(bytes))
	return e, nil
}

// oneLine returns an error that may be one for each server, not too long.
func oneLine(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	return text[:min(len(text), 500)]
}

// ask asks the servers of a question and, from a delegated zone on, those that they refer to.
func (f *forwarder) ask(ctx context.Context, q upstreamQuery) (*cacheEntry, error) {
	if q.cut == nil {
		return f.askServers(ctx, q)
	}
	for range maxReferrals {
		if q.servers = f.addressesOf(ctx, q.table, q.cut); len(q.servers) == 0 {
			return nil, fmt.Errorf("%w: no name server of %s has an address", errNoAnswer, q.cut.zone)
		}
		e, err := f.askServers(ctx, q)
		if err != nil || e.referral == nil {
			return e, err
		}
		q.cut = e.referral
	}
	return nil, fmt.Errorf("%w: more than %d referrals", errNoAnswer, maxReferrals)
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
	if ns := referralIn(m); len(ns) > 0 {
		return q.follow(m, ns)
	}
	e := &cacheEntry{code: rcode(m.Rcode), ttl: maxPositive, ad: m.AuthenticatedData && q.cut == nil && !q.cd}
	out := &dns.Msg{Compress: true}
	out.Question = []dns.Question{{Name: nameText(q.name.bytes()), Qtype: q.qtype, Qclass: dns.ClassINET}}
	var end string
	out.Answer, end = chainOf(m.Answer, out.Question[0].Name)
	if len(out.Answer) == 0 || m.Rcode == dns.RcodeNameError || endsInCNAME(out.Answer, q.qtype) {
		out.Ns = absenceOf(m.Ns, end, q.do)
		e.ttl = negativeTTL(out.Ns)
	}
	for _, rr := range slices.Concat(out.Answer, out.Ns) {
		// The letters' case was our own secret; in lower case the question's owner is compressed to a pointer, so that every
		// client sees its own spelling.
		rr.Header().Name = dns.CanonicalName(rr.Header().Name)
		rr.Header().Ttl = boundedTTL(rr.Header().Ttl)
	}
	for _, rr := range out.Answer {
		e.ttl = min(e.ttl, time.Duration(rr.Header().Ttl)*time.Second)
	}
	packed, err := out.Pack()
	if err != nil {
		return nil, fmt.Errorf("repack the reply: %w", err)
	}
	e.setTargets(out, q.qtype)
	// A record without data (as in updates, RFC 2136) is read as empty fields, and those are written as less than its type has.
	if err := new(dns.Msg).Unpack(packed); err != nil {
		return nil, fmt.Errorf("the reply has a broken record: %w", err)
	}
	e.rest = slices.Clip(packed[headerLen+q.name.n+4:])
	e.count = [3]uint16{uint16(len(out.Answer)), uint16(len(out.Ns)), 0}
	return e, nil
}

// chainOf returns the records that belong to a name or to what its CNAMEs lead to, in the order of the chain, whatever order they
// came in, and the name at its end.
func chainOf(rrs []dns.RR, owner string) (chain []dns.RR, end string) {
	seen := map[string]bool{}
	for at := dns.CanonicalName(owner); at != "" && !seen[at]; {
		seen[at], end = true, at
		target := ""
		for _, rr := range rrs {
			if rr.Header().Class != dns.ClassINET {
				continue
			}
			dname, isDNAME := rr.(*dns.DNAME)
			switch {
			case isDNAME && dns.IsSubDomain(dname.Hdr.Name, at):
			case dns.CanonicalName(rr.Header().Name) != at:
				continue
			}
			if cname, ok := rr.(*dns.CNAME); ok {
				target = dns.CanonicalName(cname.Target)
			}
			chain = append(chain, rr)
		}
		at = target
	}
	return chain, end
}

func endsInCNAME(rrs []dns.RR, qtype uint16) bool {
	return qtype != typeCNAME && qtype != typeANY &&
		!slices.ContainsFunc(rrs, func(rr dns.RR) bool { return rr.Header().Rrtype == qtype })
}

// absenceOf returns the records of an authority section that belong to a negative answer about a name (RFC 2308, RFC 4035): the SOA of a
// zone that the name is in, and what proves the absence in it.
func absenceOf(rrs []dns.RR, owner string, do bool) []dns.RR {
	zone := ""
	for _, rr := range rrs {
		if rr.Header().Rrtype == dns.TypeSOA && dns.IsSubDomain(rr.Header().Name, owner) {
			zone = rr.Header().Name
		}
	}
	return slices.DeleteFunc(rrs, func(rr dns.RR) bool {
		h := rr.Header()
		if zone == "" || h.Class != dns.ClassINET || !dns.IsSubDomain(zone, h.Name) {
			return true
		}
		switch h.Rrtype {
		case dns.TypeSOA:
			return !strings.EqualFold(h.Name, zone)
		case dns.TypeNSEC, dns.TypeNSEC3, dns.TypeRRSIG:
			return !do
		}
		return true
	})
}

// boundedTTL returns the TTL of a record as it is kept and passed on. One with the high bit is 0 (RFC 2181 section 8).
func boundedTTL(ttl uint32) uint32 {
	if ttl >= 1<<31 {
		return 0
	}
	return min(ttl, uint32(maxPositive/time.Second))
}

// negativeTTL returns for how long there is nothing (RFC 2308 section 5): without a SOA, for no time at all.
func negativeTTL(ns []dns.RR) time.Duration {
	for _, rr := range ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return min(time.Duration(min(boundedTTL(soa.Hdr.Ttl), soa.Minttl))*time.Second, maxNegative)
		}
	}
	return 0
}

// unpack returns an entry as the message that answered a question.
func (e *cacheEntry) unpack(n *name, qtype uint16, now time.Time) (*dns.Msg, error) {
	b := make([]byte, headerLen, headerLen+n.n+4+len(e.rest))
	for i, n := range e.count {
		b[6+2*i], b[7+2*i] = byte(n>>8), byte(n)
	}
	b[5] = 1
	b = append(b, n.bytes()...)
	b = append(b, byte(qtype>>8), byte(qtype), 0, classIN)
	start := len(b)
	b = append(b, e.rest...)
	age(b, start, e, now)
	m := new(dns.Msg)
	if err := m.Unpack(b); err != nil {
		return nil, fmt.Errorf("unpack a cached answer: %w", err)
	}
	return m, nil
}

// setTargets notes where the CNAMEs of an answer lead.
func (e *cacheEntry) setTargets(m *dns.Msg, qtype uint16) {
	if qtype == typeCNAME || qtype == typeANY {
		return
	}
	for _, rr := range m.Answer {
		if cname, ok := rr.(*dns.CNAME); ok {
			wire, err := packName(dns.CanonicalName(cname.Target))
			if err != nil {
				return // the rest cannot be followed
			}
			e.targets = append(e.targets, slices.Clone(wire))
		}
	}
	e.endless = len(e.targets) > 0 && m.Rcode != dns.RcodeNameError && len(m.Ns) == 0 && endsInCNAME(m.Answer, qtype)
}

// toFollow returns which CNAME of an answer is to be followed, whatever comes behind it: the first one that leads into a zone of ours, or
// the last one that the other server did not follow itself; -1: none. A server of a delegated zone follows none that leads elsewhere.
func (r *request) toFollow(e *cacheEntry) int {
	for i, target := range e.targets {
		if _, err := r.scratch.parse(target); err == nil && r.t.answersFor(&r.scratch, r.delegated) {
			return i
		}
	}
	if e.endless {
		return len(e.targets) - 1
	}
	return -1
}

// answersFor reports whether a zone of ours, and no other server, has the say about a name. Those of a zone that we delegate have it there,
// so that one of them, which was asked, is believed.
func (t *Table) answersFor(n *name, delegated bool) bool {
	m := t.match(n)
	if m.zone == nil || delegated && m.cut >= 0 {
		return false
	}
	servers, at := t.upstreams(n)
	return len(servers) == 0 || at >= m.at
}

// appendChain appends an answer about r.cur as far as its CNAME i, and makes that one's target what is looked for.
func (r *request) appendChain(e *cacheEntry, i int, now time.Time) error {
	m, err := e.unpack(r.cur, r.q.qtype, now)
	if err != nil {
		return err
	}
	at := 0
	for _, rr := range m.Answer {
		if i < 0 && rr.Header().Rrtype != dns.TypeRRSIG {
			break
		}
		start := len(r.w.b)
		if err := r.w.raw(answers, rr); err != nil {
			return err
		}
		if rr.Header().Rrtype != typeCNAME || r.w.full {
			continue
		}
		if i--; i < 0 {
			h, _ := parseHeader(r.w.b, start)
			at = h.data
		}
	}
	if r.w.full {
		return nil
	}
	if _, err := r.next.parse(r.w.b[at:]); err != nil {
		return err
	}
	r.code = noError
	r.cur, r.owner, r.chained, r.chainEnd = &r.next, at, true, r.w.mark()
	return nil
}

// appendCached appends the cached answer about r.cur to a chain of CNAMEs.
func (r *request) appendCached(e *cacheEntry, now time.Time) error {
	m, err := e.unpack(r.cur, r.q.qtype, now)
	if err != nil {
		return err
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
	wire, err := packRecord(rr)
	if err != nil {
		return fmt.Errorf("pack %s: %w", rr.Header().Name, err)
	}
	if w.full || len(w.b)+len(wire) > w.limit {
		w.full = true
		return nil
	}
	w.b = append(w.b, wire...)
	w.count[s]++
	return nil
}

// takeForward counts in a query that handle left pending, until s.forwards.Release(r.from). It is dropped if too many wait already. A client that
// has used its share alone gets a reply: it shall ask another server, or later.
func (s *Server) takeForward(r *request) result {
	switch {
	case s.forwards.Take(r.from):
		return pending
	case s.forwards.Full():
		s.metrics.dropped[dropBusy].Inc() // the client asks again
		return dropped
	}
	s.metrics.limited.Inc()
	r.w.rewind(mark{n: r.q.end})
	r.w.why = "too many queries of this client wait for other servers"
	r.code = servFail
	return s.finish(r)
}
