package segment

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/host/required"
	"github.com/bootlab/bootlab/internal/lab"
)

// A Use is what is known of an address.
type Use uint8

// The uses of an address.
const (
	Unknown Use = iota // nothing recent; as the result of a probe: no probe was sent, or frames were dropped in a flood
	Free               // probed without a reply
	InUse              // a machine answered a probe, or claims the address by ARP of its own
)

// A Result is what is known of an address, and since when.
type Result struct {
	Addr netip.Addr
	Use  Use
	MAC  lab.MAC   // of the machine that uses it, if InUse; zero past a relay
	At   time.Time // of the observation
	// Answered says that a machine answered a probe. Else it only claims the address, by ARP that anybody can send for any: Probe asks.
	Answered bool
}

// Blocks reports whether the address must not be given to that client. Its own reply does not block it: it may still use
// the address that it requests (RFC 2131 section 3.2). Past a relay the sender of a reply is unknown.
func (r Result) Blocks(client lab.MAC) bool { return r.Use == InUse && r.MAC != client }

// ProberDeps are what a prober works with. All but Received and Ignored are required.
type ProberDeps struct {
	Now func() time.Time
	// Relevant reports whether an address is to be observed: one that a pool may give. It is called for each ARP packet that
	// is received, by several goroutines.
	Relevant func(netip.Addr) bool
	// Received is called with the sender of each ARP packet that is received, and whether its frame came from that machine, by several
	// goroutines; nil: nobody asks.
	Received func(addr netip.Addr, mac lab.MAC, own bool)
	// Ignored is called with a machine whose claims are ignored from now on, since it answered no probe of many addresses; nil: nobody asks.
	Ignored func(lab.MAC)
}

// ProberStats are the counters of a prober.
type ProberStats struct {
	Observations uint64 // of relevant addresses, probed or not
	Probed       uint64 // probes started by Probe
	ProbedAhead  uint64 // probes started ahead
	InUse        uint64 // probes with a reply
	Free         uint64 // probes without a reply
	Unknown      uint64 // probes without a reply while frames were dropped
	Unprobed     uint64 // calls of Probe without a probe: too many at a time, or it could not be sent
}

// A Prober knows which addresses are in use: it listens to ARP, probes ahead, and probes on request. One is enough for all
// segments. Its methods may be used by several goroutines.
type Prober struct {
	deps  ProberDeps
	wait  time.Duration // for a reply to a probe
	limit int           // calls of Probe that may be under way
	wake  chan struct{} // of Run: an earlier deadline, or work

	observations, probed, probedAhead, inUse, free, unknown, unprobed atomic.Uint64

	mu        sync.Mutex
	observed  *observations
	probes    map[uint32]*probe
	requested int // number of probes started by Probe
	senders   map[Path]probeSender
	ahead     map[Path]*aheadList
	droppedAt map[Path]time.Time // when frames were last dropped in a flood: until then no reply proves nothing
	claims    claims
	stopped   bool
}

// A Path is the way to the machines of a network.
type Path struct {
	Interface string // of the socket that Serve was called with; "" for any
	Relay     bool   // the network is behind a relay: it is probed by ICMP and not by ARP
}

// A probeSender sends probes on a path.
type probeSender interface {
	send(addr netip.Addr) error
	// dropped reports whether the kernel has dropped frames since the last call.
	dropped() bool
}

// A probe is one address that is being probed.
type probe struct {
	addr      netip.Addr
	path      Path
	start     time.Time
	resendAt  time.Time // when to send the second probe; zero: sent
	deadline  time.Time
	requested bool
	mac       lab.MAC // that answered, where that blocks no waiter
	answered  bool    // a machine answered
	dropped   bool    // a reply may have been lost
	waiters   []waiter
}

type waiter struct {
	client lab.MAC
	done   func(Result)
}

const (
	// probeWait is how long a probe waits for a reply. It is sent twice in that time. A host sends three probes in some six seconds
	// before it uses an address (RFC 5227 section 2.1.1) and declines one that is in use, so this is the first of two checks. dnsmasq
	// waits up to 3 s, ISC dhcpd 1 s, both for ICMP.
	probeWait = 200 * time.Millisecond
	// MaxProbes is how many calls of Probe may be under way. Further ones return Unknown at once, so that a rack that is switched on
	// is not slowed down.
	MaxProbes = 64
	aheadRate = 50               // addresses a second that are probed ahead on each path
	freeFor   = 5 * time.Minute  // how long Free holds. A machine that takes the address later is observed by its ARP
	usedFor   = 10 * time.Minute // how long InUse holds
	maxKnown  = 16384            // addresses that are remembered, in about 0.7 MiB
	// maxWaiters is how many clients may wait for one address. Different clients do so only where offers are not held.
	maxWaiters = 16
	// resendShare is the part of the wait after which the probe is repeated, for a frame that was lost.
	resendShare = 3
	// maxLate is how late the prober may run before it assumes that the whole process did not run.
	maxLate = 20 * time.Millisecond
)

// NewProber returns a prober without observations; see Serve and Run.
func NewProber(deps ProberDeps) *Prober {
	required.Fields(deps, "Received", "Ignored")
	return &Prober{
		deps: deps, wait: probeWait, limit: MaxProbes, wake: make(chan struct{}, 1), observed: newObservations(maxKnown),
		probes: map[uint32]*probe{}, senders: map[Path]probeSender{}, ahead: map[Path]*aheadList{}, droppedAt: map[Path]time.Time{},
	}
}

// Stats returns the counters.
func (p *Prober) Stats() ProberStats {
	return ProberStats{
		Observations: p.observations.Load(), Probed: p.probed.Load(), ProbedAhead: p.probedAhead.Load(), InUse: p.inUse.Load(),
		Free: p.free.Load(), Unknown: p.unknown.Load(), Unprobed: p.unprobed.Load(),
	}
}

// Known returns what is known of an address now. It sends nothing and does not allocate.
func (p *Prober) Known(addr netip.Addr) Result {
	now := p.deps.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.knownLocked(addr, now)
}

func (p *Prober) knownLocked(addr netip.Addr, now time.Time) Result {
	r := Result{Addr: addr}
	if !addr.Is4() {
		return r
	}
	s, ok := p.observed.get(addr)
	at := time.Unix(0, s.at)
	if !ok || s.use == Free && now.Sub(at) >= freeFor || s.use == InUse && now.Sub(at) >= usedFor {
		return r
	}
	r.Use, r.MAC, r.At, r.Answered = s.use, s.mac, at, s.answered
	return r
}

// Forget deletes what is known of an address, such as one that its machine released.
func (p *Prober) Forget(addr netip.Addr) {
	if !addr.Is4() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.observed.young, tableKey(addr))
	delete(p.observed.old, tableKey(addr))
}

// Probe finds out whether an address is in use, for the client that would get it, and calls done once: before Probe returns
// if the result is known or no probe can be sent, else when a machine answers or the wait is over, from a goroutine of Serve
// or Run. done must not block.
func (p *Prober) Probe(path Path, addr netip.Addr, client lab.MAC, done func(Result)) {
	if r, waits := p.start(path, addr, waiter{client, done}); !waits {
		done(r)
	}
}

// start reports that w waits, or returns its result.
func (p *Prober) start(path Path, addr netip.Addr, w waiter) (r Result, waits bool) {
	now := p.deps.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	r = p.knownLocked(addr, now)
	if r.Use == Free || r.Answered {
		return r, false
	}
	if !addr.Is4() || p.stopped {
		p.unprobed.Add(1)
		return r, false
	}
	pr := p.probes[tableKey(addr)]
	switch {
	case pr != nil && len(pr.waiters) >= maxWaiters, (pr == nil || !pr.requested) && p.requested >= p.limit:
		p.unprobed.Add(1)
		return r, false
	case pr == nil:
		if pr = p.probeLocked(path, addr, now); pr == nil {
			p.unprobed.Add(1)
			return r, false
		}
		p.probed.Add(1)
	}
	if !pr.requested {
		pr.requested = true
		p.requested++
	}
	pr.waiters = append(pr.waiters, w)
	return r, true
}

// probeLocked sends the first probe of an address; nil: it cannot be sent.
func (p *Prober) probeLocked(path Path, addr netip.Addr, now time.Time) *probe {
	w := p.senders[path]
	if w == nil || w.send(addr) != nil {
		return nil
	}
	pr := &probe{addr: addr, path: path, start: now, resendAt: now.Add(p.wait / resendShare), deadline: now.Add(p.wait)}
	p.probes[tableKey(addr)] = pr
	p.wakeUp()
	return pr
}

// observe records that a machine answers at an address. Without a probe that is a claim.
func (p *Prober) observe(addr netip.Addr, mac lab.MAC) {
	if !p.deps.Relevant(addr) {
		return
	}
	now := p.deps.Now()
	p.observations.Add(1)
	p.mu.Lock()
	pr := p.probes[tableKey(addr)]
	var done []waiter
	if pr != nil {
		p.observed.put(addr, observation{at: now.UnixNano(), mac: mac, use: InUse, answered: true})
		done = p.answeredLocked(pr, mac)
	} else {
		p.claimLocked(addr, mac, now)
	}
	p.mu.Unlock()
	for _, w := range done {
		w.done(Result{Addr: addr, Use: InUse, MAC: mac, At: now, Answered: true})
	}
}

// answeredLocked returns the waiters that have their result. A client that answers its own probe waits on: another machine
// may use the address too.
func (p *Prober) answeredLocked(pr *probe, mac lab.MAC) (done []waiter) {
	pr.answered, pr.mac = true, mac
	left := pr.waiters[:0]
	for _, w := range pr.waiters {
		if w.client == mac {
			left = append(left, w)
		} else {
			done = append(done, w)
		}
	}
	pr.waiters = left
	if len(left) == 0 {
		p.endLocked(pr)
		p.inUse.Add(1)
	}
	return done
}

func (p *Prober) endLocked(pr *probe) {
	delete(p.probes, tableKey(pr.addr))
	if pr.requested {
		p.requested--
	}
}

// observeEcho records an echo reply, if its address is being probed.
func (p *Prober) observeEcho(addr netip.Addr) {
	p.mu.Lock()
	pr := p.probes[tableKey(addr)]
	expected := pr != nil && pr.path.Relay
	p.mu.Unlock()
	if expected {
		p.observe(addr, lab.MAC{})
	}
}

// Serve listens and probes on a socket's segment, and past its relays, until ctx ends or the socket is closed.
func (p *Prober) Serve(ctx context.Context, s *Socket) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { p.serveICMP(ctx, s) })
	if s.arp != nil {
		p.serveARP(ctx, s)
	}
}

// attach makes w the sender of a path until the returned function is called.
func (p *Prober) attach(path Path, w probeSender) (detach func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.senders[path] = w
	if s := p.ahead[path]; s != nil {
		s.next = time.Time{} // it was idle, since no probe could be sent
	}
	p.wakeUp()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.senders[path] == w {
			delete(p.senders, path)
		}
	}
}

func (p *Prober) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run repeats and ends probes until ctx ends; then all waiters get Unknown. It may be called once.
func (p *Prober) Run(ctx context.Context) {
	defer p.stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if next := p.tick(p.deps.Now()); next > 0 {
			timer.Reset(next)
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
		}
	}
}

func (p *Prober) stop() {
	p.mu.Lock()
	p.stopped = true
	probes := p.probes
	p.probes, p.requested = map[uint32]*probe{}, 0
	p.mu.Unlock()
	for _, pr := range probes {
		for _, w := range pr.waiters {
			w.done(Result{Addr: pr.addr})
		}
	}
}

// tick does what is due and returns when to call it again; 0: when woken.
func (p *Prober) tick(now time.Time) time.Duration {
	p.mu.Lock()
	next := p.aheadLocked(now)
	ended := p.expiredLocked(now)
	ignored := p.claims.ignored
	p.claims.ignored = nil
	for _, pr := range p.probes {
		next = earlier(next, pr.deadline)
		next = earlier(next, pr.resendAt)
	}
	p.mu.Unlock()
	for _, mac := range ignored {
		if p.deps.Ignored != nil {
			p.deps.Ignored(mac)
		}
	}
	for _, pr := range ended {
		r := pr.result(now)
		for _, w := range pr.waiters {
			w.done(r)
		}
	}
	if next.IsZero() {
		return 0
	}
	return max(next.Sub(now), time.Millisecond)
}

// expiredLocked repeats probes and returns those whose wait is over.
func (p *Prober) expiredLocked(now time.Time) (ended []*probe) {
	for _, pr := range p.probes {
		pr.extend(now, p.wait)
		if !now.Before(pr.deadline) {
			p.timeoutLocked(pr, now)
			ended = append(ended, pr)
		} else if !pr.resendAt.IsZero() && !now.Before(pr.resendAt) {
			pr.resendAt = time.Time{}
			if w := p.senders[pr.path]; w != nil {
				_ = w.send(pr.addr) // the first probe may still be answered
			}
		}
	}
	return ended
}

// extend gives a probe more time if the prober runs so late that this process did not run: a reply may be unread. Before the
// second probe that is the rest of the wait, after it enough time to read.
func (pr *probe) extend(now time.Time, wait time.Duration) {
	due, more := pr.deadline, wait/resendShare
	if !pr.resendAt.IsZero() {
		due, more = pr.resendAt, wait-wait/resendShare
	}
	if now.Sub(due) > maxLate {
		pr.deadline = now.Add(more)
	}
}

// timeoutLocked ends a probe whose wait is over and counts its result.
func (p *Prober) timeoutLocked(pr *probe, now time.Time) {
	p.endLocked(pr)
	if w := p.senders[pr.path]; w != nil && w.dropped() {
		p.droppedAt[pr.path] = now
	}
	pr.dropped = !p.droppedAt[pr.path].Before(pr.start)
	switch {
	case pr.answered:
		p.inUse.Add(1)
	case pr.dropped:
		p.unknown.Add(1)
	default:
		p.free.Add(1)
		if r := p.knownLocked(pr.addr, now); r.Use == InUse && !r.Answered {
			p.claims.unanswered(r.MAC, now)
		}
		p.observed.put(pr.addr, observation{at: now.UnixNano(), use: Free})
	}
}

// result returns the result of a probe whose wait is over.
func (pr *probe) result(now time.Time) Result {
	switch {
	case pr.answered:
		return Result{Addr: pr.addr, Use: InUse, MAC: pr.mac, At: now, Answered: true}
	case pr.dropped:
		return Result{Addr: pr.addr}
	}
	return Result{Addr: pr.addr, Use: Free, At: now}
}

// framesDropped records that frames may have been lost on a path.
func (p *Prober) framesDropped(path Path) {
	now := p.deps.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.droppedAt[path] = now
}

// earlier returns the earlier of two times, where zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
