package segment

import (
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	alice = lab.MAC{2, 0, 0, 0, 0, 1}
	bob   = lab.MAC{2, 0, 0, 0, 0, 2}
	here  = Path{Interface: "br0"}
	there = Path{Interface: "br0", Relay: true}
)

// A fakeSender keeps the times of its probes.
type fakeSender struct {
	mu    sync.Mutex
	asked map[netip.Addr][]time.Time
	err   error
	drops bool // since lost was called last
}

func (w *fakeSender) dropped() (lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lost, w.drops = w.drops, false
	return lost
}

func (w *fakeSender) send(a netip.Addr) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked[a] = append(w.asked[a], time.Now())
	return w.err
}

func (w *fakeSender) times(a netip.Addr) []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked[a])
}

// newProber runs a prober with a fake wire for both paths until the test ends. It must be called in a bubble.
func newProber(t testing.TB) (*Prober, *fakeSender) {
	t.Helper()
	return newProberAt(t, MaxProbes, time.Now)
}

func newProberAt(t testing.TB, limit int, now func() time.Time) (*Prober, *fakeSender) {
	t.Helper()
	p := NewProber(ProberDeps{Now: now, Relevant: netip.MustParsePrefix("10.77.0.0/16").Contains})
	p.limit = limit
	w := &fakeSender{asked: map[netip.Addr][]time.Time{}}
	p.attach(here, w)
	p.attach(there, w)
	background(t, p.Run)
	return p, w
}

// answers collects results and when they came.
type answers struct {
	mu    sync.Mutex
	start time.Time
	got   []answer
}

type answer struct {
	Use   Use
	MAC   lab.MAC
	After time.Duration
}

func newAnswers() *answers { return &answers{start: time.Now()} }

func (a *answers) done(r Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got = append(a.got, answer{r.Use, r.MAC, time.Since(a.start)})
}

func (a *answers) want(t *testing.T, want ...answer) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if diff := cmp.Diff(want, a.got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

const ms = time.Millisecond

func TestProbe(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		path    Path
		answers map[time.Duration]lab.MAC // who says to have the address, and when
		want    answer
		blocks  bool // alice, who asks
	}{
		{"silence", here, nil, answer{Free, lab.MAC{}, 200 * ms}, false},
		{"another machine", here, map[time.Duration]lab.MAC{50 * ms: bob}, answer{InUse, bob, 50 * ms}, true},
		{"just in time", here, map[time.Duration]lab.MAC{199 * ms: bob}, answer{InUse, bob, 199 * ms}, true},
		{"its own machine", here, map[time.Duration]lab.MAC{50 * ms: alice}, answer{InUse, alice, 200 * ms}, false},
		{"both", here, map[time.Duration]lab.MAC{10 * ms: alice, 50 * ms: bob}, answer{InUse, bob, 50 * ms}, true},
		{"past a relay", there, map[time.Duration]lab.MAC{50 * ms: {}}, answer{InUse, lab.MAC{}, 50 * ms}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, w := newProber(t)
				a, addr := newAnswers(), ip("10.77.0.9")
				p.Probe(tt.path, addr, alice, a.done)
				for after, m := range tt.answers {
					time.AfterFunc(after, func() { p.observe(addr, m) })
				}
				time.Sleep(time.Second)
				a.want(t, tt.want)
				if r := p.Known(addr); r.Blocks(alice) != tt.blocks || r.Use != tt.want.Use {
					t.Errorf("known: %+v, want %v", r, tt.want.Use)
				}
				if n := len(w.times(addr)); n != 2 && tt.want.After > 100*ms {
					t.Errorf("asked %d times, want twice", n)
				}
			})
		})
	}
}

// TestProbeOfAKnownAddress asks nobody, until the knowledge is old.
func TestProbeOfAKnownAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, w := newProber(t)
		answers := func() {
			p.Probe(here, ip("10.77.0.9"), lab.MAC{}, func(Result) {})
			p.observe(ip("10.77.0.9"), bob)
		}
		answers()
		p.observe(ip("10.99.0.9"), bob) // nobody cares
		a := newAnswers()
		p.Probe(here, ip("10.77.0.9"), alice, a.done)
		a.want(t, answer{InUse, bob, 0})
		if r := p.Known(ip("10.99.0.9")); r.Use != Unknown {
			t.Errorf("unwanted address: %+v", r)
		}
		p.Forget(ip("10.77.0.9"))
		if r := p.Known(ip("10.77.0.9")); r.Use != Unknown {
			t.Errorf("forgotten: %+v", r)
		}
		answers()
		time.Sleep(10*time.Minute - time.Nanosecond)
		if r := p.Known(ip("10.77.0.9")); r.Use != InUse {
			t.Errorf("after almost ten minutes: %+v", r)
		}
		time.Sleep(time.Nanosecond)
		if r := p.Known(ip("10.77.0.9")); r.Use != Unknown {
			t.Errorf("after ten minutes: %+v", r)
		}
		if n := len(w.times(ip("10.77.0.9"))); n != 2 {
			t.Errorf("asked %d times, want once before each answer", n)
		}
	})
}

// TestProbesAreBounded: beyond the bound, without a way to ask, and at the end, the answer is Unknown, and it always comes.
func TestProbesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, w := newProberAt(t, 2, time.Now)
		a, b := newAnswers(), newAnswers()
		for _, addr := range []string{"10.77.0.1", "10.77.0.2", "10.77.0.1"} {
			p.Probe(here, ip(addr), alice, a.done)
		}
		p.Probe(here, ip("10.77.0.3"), alice, b.done)
		p.Probe(Path{Interface: "nosuch0"}, ip("10.77.0.1"), alice, b.done) // joins the one that is under way
		p.Probe(here, ip("fd00::1"), alice, b.done)
		b.want(t, answer{}, answer{})
		time.Sleep(time.Second)
		free := answer{Use: Free, After: 200 * ms}
		a.want(t, free, free, free)
		b.want(t, answer{}, answer{}, free)
		w.err = syscall.ENETDOWN
		c := newAnswers()
		p.Probe(here, ip("10.77.0.4"), alice, c.done)
		p.Probe(Path{Interface: "nosuch0"}, ip("10.77.0.5"), alice, c.done)
		c.want(t, answer{}, answer{})
		want := ProberStats{Probed: 2, Free: 2, Unprobed: 4}
		if diff := cmp.Diff(want, p.Stats()); diff != "" {
			t.Errorf("stats (-want +got):\n%s", diff)
		}
	})
}

// TestNoReplyInAFlood means nothing, and is not remembered.
func TestNoReplyInAFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, w := newProber(t)
		for _, lost := range []time.Duration{0, 199 * ms} {
			a := newAnswers()
			time.AfterFunc(lost, func() { p.framesDropped(here) })
			p.Probe(here, ip("10.77.0.1"), alice, a.done)
			time.Sleep(300 * ms)
			a.want(t, answer{After: 200 * ms})
		}
		// The kernel counts what it had no room for, and forgets it when it is asked: on behalf of both, who were asked about
		// when it happened.
		w.drops = true
		b, c := newAnswers(), newAnswers()
		p.Probe(here, ip("10.77.0.2"), alice, b.done)
		time.Sleep(ms)
		p.Probe(here, ip("10.77.0.3"), alice, c.done)
		time.Sleep(300 * ms)
		b.want(t, answer{After: 200 * ms})
		c.want(t, answer{After: 201 * ms})
		a := newAnswers()
		p.Probe(here, ip("10.77.0.1"), alice, a.done)
		time.Sleep(300 * ms)
		a.want(t, answer{Use: Free, After: 200 * ms})
	})
}

// TestStalledProcess: while the machine did not run the daemon for a moment (a guest that is not scheduled, a disk that
// swaps) an answer may have come that is not read yet. That time is not taken for silence.
func TestStalledProcess(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		stall    time.Duration // when the process sleeps for 300 ms, of which this clock does not tell
		answered time.Duration // 0: never
		want     answer
	}{
		{"before the second question", 10 * ms, 100 * ms, answer{InUse, bob, 100 * ms}},
		{"after it", 100 * ms, 210 * ms, answer{InUse, bob, 210 * ms}},
		{"nobody is there", 100 * ms, 0, answer{Use: Free, After: 200*ms + 200*ms/resendShare}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var slept atomic.Int64
				p, w := newProberAt(t, MaxProbes, func() time.Time { return time.Now().Add(time.Duration(slept.Load())) })
				a, addr := newAnswers(), ip("10.77.0.9")
				p.Probe(here, addr, alice, a.done)
				time.AfterFunc(tt.stall, func() { slept.Store(int64(300 * ms)) })
				if tt.answered > 0 {
					time.AfterFunc(tt.answered, func() { p.observe(addr, bob) })
				}
				time.Sleep(time.Second)
				a.want(t, tt.want)
				if n := len(w.times(addr)); n != 2 {
					t.Errorf("asked %d times, want twice", n)
				}
			})
		})
	}
}

func TestProbeEndsWithRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewProber(ProberDeps{Now: time.Now, Relevant: netip.Addr.IsValid})
		p.attach(here, &fakeSender{asked: map[netip.Addr][]time.Time{}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); p.Run(ctx) }()
		a := newAnswers()
		p.Probe(here, ip("10.77.0.1"), alice, a.done)
		cancel()
		<-done
		p.Probe(here, ip("10.77.0.2"), alice, a.done)
		a.want(t, answer{}, answer{})
	})
}

// TestProbeAhead: addresses that may be offered next are known before anybody asks, at a bounded rate, and stay known.
func TestProbeAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, w := newProber(t)
		var addrs []netip.Addr
		for i := range byte(100) {
			addrs = append(addrs, netip.AddrFrom4([4]byte{10, 77, 1, i}))
		}
		start := time.Now()
		p.Probe(here, addrs[3], lab.MAC{}, func(Result) {})
		p.observe(addrs[3], bob)
		p.ProbeAhead(here, addrs)
		time.Sleep(time.Second)
		if n := p.Stats().ProbedAhead; n < 45 || n > 51 {
			t.Errorf("%d addresses in the first second, want 50", n)
		}
		p.ProbeAhead(here, slices.Clone(addrs)) // no news
		time.Sleep(2 * time.Second)
		if s := p.Stats(); s.ProbedAhead != 99 || s.Free != 99 {
			t.Errorf("after a round: %+v, want 99 asked", s)
		}
		if len(w.times(addrs[3])) != 1 || len(w.times(addrs[4])) != 2 {
			t.Errorf("asked %d times for one that is known, %d for one that is not", len(w.times(addrs[3])), len(w.times(addrs[4])))
		}
		// An hour: each stays known, and is asked for no oftener than every 2.5 minutes.
		for range 3600 {
			time.Sleep(time.Second)
			for _, a := range addrs {
				if p.Known(a).Use == Unknown {
					t.Fatalf("%s is unknown after %s", a, time.Since(start))
				}
			}
		}
		if n := p.Stats().ProbedAhead; n > 100*60*2/5+100 {
			t.Errorf("%d questions in an hour for 100 addresses", n)
		}
		p.ProbeAhead(here, nil)
		before := p.Stats().ProbedAhead
		time.Sleep(time.Hour)
		if n := p.Stats().ProbedAhead; n != before {
			t.Errorf("%d questions while nothing is wanted", n-before)
		}
	})
}

// TestClaims: a machine that announces many addresses by ARP keeps them from clients until they are probed, soon. Then it is ignored for a while,
// and reported once. One that answers is believed, also if an announcement of another one comes between.
func TestClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, w := newProber(t)
		var ignored []lab.MAC
		p.deps.Ignored = func(m lab.MAC) { ignored = append(ignored, m) }
		var addrs []netip.Addr
		for i := range byte(100) {
			addrs = append(addrs, netip.AddrFrom4([4]byte{10, 77, 1, i}))
		}
		p.ProbeAhead(here, addrs)
		time.Sleep(10 * time.Second) // the round is over
		claim := func(want Use) {
			t.Helper()
			for _, a := range addrs {
				p.claim(a, bob)
				if r := p.Known(a); r.Use != want || r.Answered {
					t.Fatalf("%s, which is claimed: %+v", a, r)
				}
			}
		}
		claim(InUse)
		a := newAnswers()
		p.Probe(here, addrs[99], alice, a.done)
		p.claim(addrs[99], bob) // is no answer
		time.Sleep(250 * ms)
		a.want(t, answer{Free, lab.MAC{}, 200 * ms})
		time.Sleep(5 * time.Second)
		claim(Free)
		if !slices.Equal(ignored, []lab.MAC{bob}) {
			t.Errorf("ignored: %v", ignored)
		}
		p.claim(addrs[0], alice)
		time.Sleep(1100 * ms)
		p.observe(addrs[0], alice) // answers the probe that begins after a second
		if r := p.Known(addrs[0]); r.Use != InUse || r.MAC != alice || !r.Answered {
			t.Errorf("a machine that answers: %+v, asked at %v", r, w.times(addrs[0]))
		}
		time.Sleep(11 * time.Minute)
		claim(InUse)
	})
}

// TestProbeAheadWaitsForASender: an interface that comes later is surveyed at once when it is there.
func TestProbeAheadWaitsForASender(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, w := newProber(t)
		late := Path{Interface: "late0"}
		p.ProbeAhead(late, []netip.Addr{ip("10.77.0.1")})
		time.Sleep(time.Second)
		detach := p.attach(late, w)
		time.Sleep(time.Second)
		if r := p.Known(ip("10.77.0.1")); r.Use != Free {
			t.Errorf("after the interface came: %+v", r)
		}
		detach()
		time.Sleep(time.Hour)
		if n := len(w.times(ip("10.77.0.1"))); n != 2 {
			t.Errorf("asked %d times, want 2", n)
		}
	})
}

// TestObservationsAreBounded: a flood pushes out what is old, and no more is kept than was said.
func TestObservationsAreBounded(t *testing.T) {
	t.Parallel()
	tb, now := newObservations(100), time.Now()
	kept := ip("10.77.0.1")
	for i := range uint32(10000) {
		tb.put(kept, observation{use: InUse, mac: alice, at: now.UnixNano()})
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], i)
		tb.put(netip.AddrFrom4(a), observation{use: InUse, mac: bob, at: now.UnixNano()})
		if len(tb.young)+len(tb.old) > 100 {
			t.Fatalf("%d entries", len(tb.young)+len(tb.old))
		}
	}
	if s, ok := tb.get(kept); !ok || s.mac != alice {
		t.Errorf("an address whose ARP is received all the time is forgotten: %+v", s)
	}
	if _, ok := tb.get(ip("0.0.0.1")); ok {
		t.Error("an old address is still there")
	}
}

func BenchmarkKnown(b *testing.B) {
	p := NewProber(ProberDeps{Now: time.Now, Relevant: netip.Addr.IsValid})
	for i := range uint32(8000) {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], 10<<24+i)
		p.observe(netip.AddrFrom4(a), bob)
	}
	addr := ip("10.0.1.1")
	b.ReportAllocs()
	for b.Loop() {
		if p.Known(addr).Use != InUse {
			b.Fatal("forgotten")
		}
	}
}
