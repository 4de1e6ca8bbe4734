package segment

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Prober knows which addresses are in use: it listens, looks ahead, and asks when it must. One is enough for all
// segments. Its methods may be used by several goroutines.
type Prober struct {
	cfg  ProberConfig
	deps ProberDeps
	wake chan struct{} // of Run: an earlier deadline, or work

	heard, asked, surveyed, found, silent, deafs, unprobed atomic.Uint64

	mu      sync.Mutex
	seen    *table
	probes  map[uint32]*probe
	onCall  int // probes that somebody waits for, or did
	wires   map[Path]wire
	surveys map[Path]*survey
	deaf    map[Path]time.Time // when frames were last lost in a flood: silence until then means nothing
	stopped bool
}

// A Path is the way to the machines of a network.
type Path struct {
	Interface string // where the server hears them, "" on any; the one that Serve has a socket of
	Relay     bool   // a relay is between: they are asked by ICMP and not by ARP
}

// A wire sends a question about an address.
type wire interface {
	ask(addr netip.Addr) error
	// lost reports whether the kernel had no room for what came since the last call.
	lost() bool
}

// A probe is one address that is being asked about.
type probe struct {
	addr    netip.Addr
	path    Path
	since   time.Time
	again   time.Time // to ask a second time; zero: done
	until   time.Time
	onCall  bool
	mac     lab.MAC // who answered, though it blocks nobody who waits
	met     bool    // somebody answered
	deaf    bool    // an answer may have been lost
	waiters []waiter
}

type waiter struct {
	asker lab.MAC
	done  func(Result)
}

const (
	// maxWaiters is how many may wait for one address. Different machines do so only where offers are not held.
	maxWaiters = 16
	// againAfter is the part of the wait after which the question is repeated, for a frame that was lost.
	againAfter = 3
	// stalled is how late a turn is that was not late for want of a processor alone.
	stalled = 20 * time.Millisecond
)

// NewProber returns a prober that knows nothing yet; see Serve and Run.
func NewProber(cfg ProberConfig, deps ProberDeps) *Prober {
	if deps.Now == nil {
		panic("segment: ProberDeps.Now is nil")
	}
	if deps.Wanted == nil {
		panic("segment: ProberDeps.Wanted is nil")
	}
	cfg = cfg.withDefaults()
	return &Prober{
		cfg: cfg, deps: deps, wake: make(chan struct{}, 1), seen: newTable(cfg.Addresses),
		probes: map[uint32]*probe{}, wires: map[Path]wire{}, surveys: map[Path]*survey{}, deaf: map[Path]time.Time{},
	}
}

// Stats returns the counters.
func (p *Prober) Stats() ProberStats {
	return ProberStats{
		Heard: p.heard.Load(), Asked: p.asked.Load(), Surveyed: p.surveyed.Load(), Found: p.found.Load(),
		Silent: p.silent.Load(), Deaf: p.deafs.Load(), Unprobed: p.unprobed.Load(),
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
	s, ok := p.seen.get(addr)
	at := time.Unix(0, s.at)
	if !ok || s.state == Free && now.Sub(at) >= p.cfg.FreeFor || s.state == InUse && now.Sub(at) >= p.cfg.UsedFor {
		return r
	}
	r.State, r.MAC, r.At = s.state, s.mac, at
	return r
}

// Forget drops what is known of an address: its machine gave it back.
func (p *Prober) Forget(addr netip.Addr) {
	if !addr.Is4() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.forget(addr)
}

// Probe asks whether an address is in use, on behalf of the machine that would get it, and calls done once: at once,
// before Probe returns, where the answer is known or nobody can be asked, else as soon as somebody answers or the wait is
// over, from a goroutine of Serve or Run. done must not block.
func (p *Prober) Probe(path Path, addr netip.Addr, asker lab.MAC, done func(Result)) {
	if r, waits := p.start(path, addr, waiter{asker, done}); !waits {
		done(r)
	}
}

// start reports that w waits, or what it is to be told now.
func (p *Prober) start(path Path, addr netip.Addr, w waiter) (r Result, waits bool) {
	now := p.deps.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	r = p.knownLocked(addr, now)
	if r.State != Unknown {
		return r, false
	}
	if !addr.Is4() || p.stopped {
		p.unprobed.Add(1)
		return r, false
	}
	pr := p.probes[tableKey(addr)]
	switch {
	case pr != nil && len(pr.waiters) >= maxWaiters, (pr == nil || !pr.onCall) && p.onCall >= p.cfg.Probes:
		p.unprobed.Add(1)
		return r, false
	case pr == nil:
		if pr = p.askLocked(path, addr, now); pr == nil {
			p.unprobed.Add(1)
			return r, false
		}
		p.asked.Add(1)
	}
	if !pr.onCall {
		pr.onCall = true
		p.onCall++
	}
	pr.waiters = append(pr.waiters, w)
	return r, true
}

// askLocked sends the first question about an address; nil: there is no way to.
func (p *Prober) askLocked(path Path, addr netip.Addr, now time.Time) *probe {
	w := p.wires[path]
	if w == nil || w.ask(addr) != nil {
		return nil
	}
	pr := &probe{addr: addr, path: path, since: now, again: now.Add(p.cfg.Wait / againAfter), until: now.Add(p.cfg.Wait)}
	p.probes[tableKey(addr)] = pr
	p.rouse()
	return pr
}

// hear takes note of somebody who has an address.
func (p *Prober) hear(addr netip.Addr, mac lab.MAC) {
	if !p.deps.Wanted(addr) {
		return
	}
	now := p.deps.Now()
	p.heard.Add(1)
	p.mu.Lock()
	p.seen.put(addr, InUse, mac, now)
	pr := p.probes[tableKey(addr)]
	var told []waiter
	if pr != nil {
		told = p.answeredLocked(pr, mac)
	}
	p.mu.Unlock()
	for _, w := range told {
		w.done(Result{Addr: addr, State: InUse, MAC: mac, At: now})
	}
}

// answeredLocked returns who need not wait longer. A machine that hears only itself waits on: another may have its
// address, too.
func (p *Prober) answeredLocked(pr *probe, mac lab.MAC) (told []waiter) {
	pr.met, pr.mac = true, mac
	left := pr.waiters[:0]
	for _, w := range pr.waiters {
		if w.asker == mac {
			left = append(left, w)
		} else {
			told = append(told, w)
		}
	}
	pr.waiters = left
	if len(left) == 0 {
		p.endLocked(pr)
		p.found.Add(1)
	}
	return told
}

func (p *Prober) endLocked(pr *probe) {
	delete(p.probes, tableKey(pr.addr))
	if pr.onCall {
		p.onCall--
	}
}

// hearEcho takes note of an answer to a ping, if it was asked for.
func (p *Prober) hearEcho(addr netip.Addr) {
	p.mu.Lock()
	pr := p.probes[tableKey(addr)]
	expected := pr != nil && pr.path.Relay
	p.mu.Unlock()
	if expected {
		p.hear(addr, lab.MAC{})
	}
}

func (p *Prober) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run keeps the prober's time until ctx ends; then everybody who waits is told Unknown. It may be called once.
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
	p.probes, p.onCall = map[uint32]*probe{}, 0
	p.mu.Unlock()
	for _, pr := range probes {
		for _, w := range pr.waiters {
			w.done(Result{Addr: pr.addr})
		}
	}
}

// tick does what is due and returns how long there is nothing to do; 0: until woken.
func (p *Prober) tick(now time.Time) time.Duration {
	p.mu.Lock()
	next := p.surveyLocked(now)
	ended := p.dueLocked(now)
	for _, pr := range p.probes {
		next = earlier(next, pr.until)
		next = earlier(next, pr.again)
	}
	p.mu.Unlock()
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

// dueLocked repeats questions and takes out the probes whose wait is over.
func (p *Prober) dueLocked(now time.Time) (ended []*probe) {
	for _, pr := range p.probes {
		pr.excuse(now, p.cfg.Wait)
		if !now.Before(pr.until) {
			p.concludeLocked(pr, now)
			ended = append(ended, pr)
		} else if !pr.again.IsZero() && !now.Before(pr.again) {
			pr.again = time.Time{}
			if w := p.wires[pr.path]; w != nil {
				_ = w.ask(pr.addr) // the first question stands
			}
		}
	}
	return ended
}

// excuse gives a probe more time if its turn comes so late that this process cannot have run: an answer may lie there
// unread. After the second question it is as much as always, else enough to read.
func (pr *probe) excuse(now time.Time, wait time.Duration) {
	due, more := pr.until, wait/againAfter
	if !pr.again.IsZero() {
		due, more = pr.again, wait-wait/againAfter
	}
	if now.Sub(due) > stalled {
		pr.until = now.Add(more)
	}
}

// concludeLocked ends a probe whose wait is over.
func (p *Prober) concludeLocked(pr *probe, now time.Time) {
	p.endLocked(pr)
	if w := p.wires[pr.path]; w != nil && w.lost() {
		p.deaf[pr.path] = now
	}
	pr.deaf = !p.deaf[pr.path].Before(pr.since)
	switch {
	case pr.met:
		p.found.Add(1)
	case pr.deaf:
		p.deafs.Add(1)
	default:
		p.silent.Add(1)
		p.seen.put(pr.addr, Free, lab.MAC{}, now)
	}
}

// result is what a probe whose wait is over has found.
func (pr *probe) result(now time.Time) Result {
	switch {
	case pr.met:
		return Result{Addr: pr.addr, State: InUse, MAC: pr.mac, At: now}
	case pr.deaf:
		return Result{Addr: pr.addr}
	}
	return Result{Addr: pr.addr, State: Free, At: now}
}

// deafened takes note that frames may have been lost on a path.
func (p *Prober) deafened(path Path) {
	now := p.deps.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf[path] = now
}

// earlier returns the earlier of two times, where zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
