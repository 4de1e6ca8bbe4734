package repeats

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/host/client/clientaddr"
)

// A Key says which reports are alike.
type Key struct {
	What   string     // the kind of event, or the message; one of a bounded number
	Addr   netip.Addr // who caused it, where an address says so
	MAC    [6]byte    // the machine, where a MAC names it
	Reason string     // why; the source may have chosen it
}

// A Config bounds a Limiter.
type Config struct {
	Burst int // reports with one key that are passed on, before the next ones are counted; 1
	Keys  int // known at the same time; 128
	// PassOn passes on what finds no key, instead of counting it together. It is for reports that few unknown clients can cause.
	PassOn bool
}

// maxOfSource is how many keys one source has of its own.
const maxOfSource = 8

// The intervals of summaries: the first, and the longest.
const (
	firstInterval = 10 * time.Second
	maxInterval   = time.Minute
)

// A Summary is a number of reports that were not passed on.
type Summary[T any] struct {
	Last T             // the last of them
	More int           // how many they are, 1 or more
	Over time.Duration // the time in which they came
}

// A Limiter decides which reports are passed on. It is not safe for concurrent use.
type Limiter[T any] struct {
	cfg     Config
	entries map[Key]*entry[T]
	sources map[source]int // how many keys each has
	swept   time.Time
	next    time.Time // the earliest summary; zero: none waits
}

type entry[T any] struct {
	start    time.Time // of the interval
	interval time.Duration
	passed   int // since the start of the first interval
	more     int // since the start of this one
	last     *T  // nil: none was counted
	owner    source
}

// A source is an address of clientaddr, or a MAC where there is none.
type source struct {
	addr netip.Addr
	mac  [6]byte
}

func (k Key) source() source {
	if k.Addr.IsValid() {
		return source{addr: clientaddr.Of(k.Addr)}
	}
	return source{mac: k.MAC}
}

// New returns a limiter.
func New[T any](cfg Config) *Limiter[T] {
	cfg.Burst, cfg.Keys = cmp.Or(cfg.Burst, 1), cmp.Or(cfg.Keys, 128)
	return &Limiter[T]{cfg: cfg, entries: map[Key]*entry[T]{}, sources: map[source]int{}}
}

// Add reports whether a report is to be passed on. Otherwise it is counted for a summary.
func (l *Limiter[T]) Add(now time.Time, k Key, report T) bool {
	e := l.entry(now, k)
	if e == nil {
		return true
	}
	if e.more == 0 && now.Sub(e.start) >= e.interval {
		e.start, e.interval, e.passed = now, firstInterval, 0
	}
	if e.passed < l.cfg.Burst {
		e.passed++
		return true
	}
	e.more++
	if e.last == nil {
		e.last = new(T)
	}
	*e.last = report
	if due := e.start.Add(e.interval); l.next.IsZero() || due.Before(l.next) {
		l.next = due
	}
	return false
}

// entry returns the entry of a key, or one that it shares with others where its source or the limiter has too many; nil: it is passed on.
func (l *Limiter[T]) entry(now time.Time, k Key) *entry[T] {
	if e := l.entries[k]; e != nil {
		return e
	}
	owner := k.source()
	if owner != (source{}) && l.sources[owner] >= maxOfSource {
		k = Key{What: k.What, Addr: owner.addr, MAC: owner.mac}
		if e := l.entries[k]; e != nil {
			return e
		}
	}
	if len(l.entries) >= l.cfg.Keys {
		l.sweep(now)
	}
	if len(l.entries) >= l.cfg.Keys {
		if l.cfg.PassOn {
			return nil
		}
		k, owner = Key{What: k.What}, source{}
		if e := l.entries[k]; e != nil {
			return e
		}
	}
	e := &entry[T]{start: now, interval: firstInterval, owner: owner}
	l.entries[k] = e
	l.sources[owner]++
	return e
}

// sweep removes keys that had no report for an interval, at most once a second: a full table is searched for each new key otherwise.
func (l *Limiter[T]) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Second {
		return
	}
	l.swept = now
	for k, e := range l.entries {
		if e.more == 0 && now.Sub(e.start) >= e.interval {
			l.remove(k, e)
		}
	}
}

func (l *Limiter[T]) remove(k Key, e *entry[T]) {
	delete(l.entries, k)
	if l.sources[e.owner]--; l.sources[e.owner] <= 0 {
		delete(l.sources, e.owner)
	}
}

// Next returns when Due has something to return; the zero time if nothing waits.
func (l *Limiter[T]) Next() time.Time { return l.next }

// Due returns the summaries of all intervals that have ended, the oldest first.
func (l *Limiter[T]) Due(now time.Time) []Summary[T] {
	return l.collect(now, func(e *entry[T]) bool { return now.Sub(e.start) >= e.interval })
}

// Flush returns the summaries of everything that was counted, when no more reports are expected.
func (l *Limiter[T]) Flush(now time.Time) []Summary[T] {
	return l.collect(now, func(*entry[T]) bool { return true })
}

func (l *Limiter[T]) collect(now time.Time, due func(*entry[T]) bool) (all []Summary[T]) {
	l.next = time.Time{}
	for k, e := range l.entries {
		switch {
		case due(e) && e.more == 0:
			l.remove(k, e)
		case due(e):
			all = append(all, Summary[T]{Last: *e.last, More: e.more, Over: now.Sub(e.start)})
			e.start, e.interval, e.more = now, min(2*e.interval, maxInterval), 0
		case e.more > 0:
			if end := e.start.Add(e.interval); l.next.IsZero() || end.Before(l.next) {
				l.next = end
			}
		}
	}
	slices.SortFunc(all, func(a, b Summary[T]) int { return cmp.Compare(b.Over, a.Over) })
	return all
}

// An Alarm is the timer of an owner of limiters. The owner's lock guards it; the zero value is ready.
type Alarm struct {
	timer *time.Timer
	due   time.Time // when it fires; zero: it does not
}

// Set makes the alarm call fire at next, unless it does so earlier or next is zero. fire runs in a goroutine of its own and calls Fired.
func (a *Alarm) Set(now, next time.Time, fire func()) {
	if next.IsZero() || !a.due.IsZero() && !next.Before(a.due) {
		return
	}
	a.due = next
	if a.timer == nil {
		a.timer = time.AfterFunc(next.Sub(now), fire)
		return
	}
	a.timer.Reset(next.Sub(now))
}

// Fired is called when the alarm has fired: the next Set starts it again.
func (a *Alarm) Fired() { a.due = time.Time{} }
