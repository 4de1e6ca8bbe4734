package install_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/logfile"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// A walk does random things to one host: its NICs ask for scripts, installers read their documents, in part or whole, one
// after the other or two at a time, and say that they are done; people arm and mark; time passes; the daemon is killed
// between any two steps. It knows no state of the machine's own: it holds the machine to what was promised to those who
// came.
type walk struct {
	t        *testing.T
	r        *rand.Rand
	now      time.Time
	store    store.Store
	machine  *install.Machine
	host     *lab.Host
	timeouts int
	log      []string

	// What was promised since the host was armed.
	over  bool              // it counts as installed
	boots int               // installers begun
	boot  *boot             // that is under way
	stale map[string]string // tokens that must read nothing any more, or nothing yet, and why

	promised map[string]install.Signals // by token
}

// A boot is one boot of an installer, as the machine sees it.
type boot struct {
	tokens  []string
	nic     lab.MAC
	at      time.Time
	began   time.Time // its document was read, for the first time
	reads   int
	signals install.Signals
}

const modelReads = 2

func (w *walk) Record(e event.Event) {
	switch e.Kind {
	case event.InstallTimeout:
		w.timeouts++
	case event.InstallLoop:
		w.note("held")
	}
}

func (w *walk) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
	w.log = w.log[max(0, len(w.log)-40):]
}

func (w *walk) fatal(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\nafter %q", fmt.Sprintf(format, args...), w.log)
}

// TestModel walks at random, on a store in memory and on the real one.
func TestModel(t *testing.T) {
	t.Parallel()
	for seed := range 60 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			var s store.Store = storetest.Memory()
			steps := 3000
			if seed < 3 {
				b, _, err := logfile.Open(filepath.Join(t.TempDir(), "state.db"))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { b.Close() })
				s, steps = b, 200
			}
			walkAlong(t, s, uint64(seed), steps)
		})
	}
}

func walkAlong(t *testing.T, s store.Store, seed uint64, steps int) {
	w := &walk{
		t: t, r: rand.New(rand.NewPCG(seed, 4)), now: time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC), store: s,
		stale: map[string]string{}, promised: map[string]install.Signals{}, host: host(lab.InstallOnce),
	}
	w.host.MACs = []lab.MAC{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}
	w.host.Profile.InstallTimeout = 2 * time.Hour
	w.host.Profile.Config = "worker.ign"
	w.kill()
	for range steps {
		w.step()
	}
}

func (w *walk) step() {
	switch n := w.r.IntN(100); {
	case n < 20:
		w.script()
	case n < 45:
		w.read()
	case n < 52:
		w.readTogether()
	case n < 60:
		w.steal()
	case n < 68:
		w.done()
	case n < 72:
		w.arm()
	case n < 73:
		w.mark()
	case n < 78:
		w.systemUp()
	case n < 82:
		w.expire()
	case n < 90:
		w.pass()
	default:
		w.kill()
	}
}

// kill forgets all memory, as kill -9 does, and starts again.
func (w *walk) kill() {
	m, err := install.Open(w.t.Context(), install.Config{Attempts: 3}, install.Deps{Store: w.store, Events: w, Now: func() time.Time { return w.now }})
	if err != nil {
		w.fatal("open: %v", err)
	}
	w.machine = m
	w.note("kill")
}

func (w *walk) pass() {
	d := []time.Duration{time.Second, 15 * time.Second, time.Minute, 10 * time.Minute, 3 * time.Hour}[w.r.IntN(5)]
	w.now = w.now.Add(d)
	w.note("pass %s", d)
}

// lateNow reports whether the time-out of the boot under way is over.
func (w *walk) lateNow() bool {
	return w.boot != nil && !w.boot.began.IsZero() && w.now.Sub(w.boot.began) >= w.host.Profile.InstallTimeout
}

// signals reports whether the boot under way must be taken for done at that signal.
func (w *walk) signals(signal install.Signals) bool {
	b := w.boot
	return b != nil && !b.began.IsZero() && b.signals&signal != 0 && w.now.Sub(b.began) >= time.Minute
}

func (w *walk) script() {
	signals := []install.Signals{0, install.Callback, install.NextBoot, install.NextBoot | install.SystemLease}[w.r.IntN(4)]
	ask := install.Request{NIC: w.host.MACs[w.r.IntN(2)], Prepare: by(signals)}
	ended := w.lateNow() || w.signals(install.NextBoot)
	decision, err := w.machine.Boot(w.t.Context(), w.host, ask)
	if err != nil {
		w.fatal("boot: %v", err)
	}
	if _, ok := w.promised[decision.Token]; !ok {
		w.promised[decision.Token] = signals
	}
	switch w.r.IntN(4) {
	case 0:
		w.note("another's request for %v: %+v", ask.NIC, decision)
		if decision.Token != "" && (w.boot == nil || !slices.Contains(w.boot.tokens, decision.Token)) {
			w.stale[decision.Token] = "of a script that nobody received"
		}
		return
	case 1:
		w.kill()
	}
	if err := w.machine.Received(w.t.Context(), w.host, decision); err != nil {
		w.fatal("received: %v", err)
	}
	delete(w.stale, decision.Token)
	if promised, ok := w.promised[decision.Token]; ok { // to the first who asked
		signals = promised
	}
	w.note("script for %v, signals %v: %+v", ask.NIC, signals, decision)
	same := w.boot != nil && w.now.Sub(w.boot.at) < 20*time.Second && (w.boot.reads == 0 || w.boot.nic != ask.NIC)
	switch {
	case w.over || ended:
		if !decision.LocalBoot || decision.Held {
			w.fatal("installed twice for one arming: %+v", decision)
		}
		w.end("done")
	case decision.Held:
		if w.boots < 3 {
			w.fatal("held after %d boots", w.boots)
		}
		w.supersede("held")
	case decision.LocalBoot:
		w.fatal("not installed, and sent to its disk: %+v", decision)
	case same:
		w.boot.tokens = append(w.boot.tokens, decision.Token)
		if n := len(w.boot.tokens); n > 4 && w.boot.tokens[n-5] != decision.Token {
			w.boot.tokens = w.boot.tokens[:0:0] // a daemon that dies five times in twenty seconds keeps the last four
			w.boot.tokens = append(w.boot.tokens, decision.Token)
		}
	default:
		if w.boots++; w.boots > 3 {
			w.fatal("%d boots, and not held", w.boots)
		}
		w.supersede("of another boot")
		w.boot = &boot{tokens: []string{decision.Token}, nic: ask.NIC, at: w.now, signals: signals}
	}
}

// supersede makes all tokens stale.
func (w *walk) supersede(why string) {
	if w.boot != nil {
		for _, token := range w.boot.tokens {
			w.stale[token] = why
		}
	}
	w.boot = nil
}

// end updates the model when the host counts as installed.
func (w *walk) end(why string) {
	w.over = true
	if w.boot != nil {
		for _, token := range w.boot.tokens {
			w.stale[token] = why
		}
	}
}

// alive reports whether the boot under way may read.
func (w *walk) alive() bool { return w.boot != nil && !w.over }

func (w *walk) token() string { return w.boot.tokens[w.r.IntN(len(w.boot.tokens))] }

// read reads the document, whole or in part.
func (w *walk) read() {
	if !w.alive() || w.now.Sub(w.boot.at) > 24*time.Hour {
		return
	}
	token := w.token()
	release, err := w.machine.Read(w.host, token, modelReads)
	if w.boot.reads >= modelReads {
		if !errors.Is(err, install.ErrReads) {
			w.fatal("read %d of %d: %v", w.boot.reads+1, modelReads, err)
		}
		return
	}
	if err != nil {
		w.fatal("an installer that was let boot is refused: %v", err)
	}
	defer release()
	switch w.r.IntN(4) {
	case 0:
		w.note("half a read")
		return
	case 1:
		w.kill() // it may have all of it, or not: it may ask again
		return
	}
	w.booked(token)
}

func (w *walk) booked(token string) {
	if err := w.machine.ConfigRead(w.t.Context(), w.host, token); err != nil {
		w.fatal("book a read: %v", err)
	}
	w.note("read")
	w.boot.reads++
	if w.boot.began.IsZero() {
		w.boot.began = w.now
	}
}

// readTogether lets as many read at once as like: no more than may get it.
func (w *walk) readTogether() {
	if !w.alive() || w.now.Sub(w.boot.at) > 24*time.Hour {
		return
	}
	token, got := w.token(), 0
	var releases []func()
	for range 4 {
		release, err := w.machine.Read(w.host, token, modelReads)
		if err == nil {
			got++
			releases = append(releases, release)
		} else if !errors.Is(err, install.ErrBusy) && !errors.Is(err, install.ErrReads) {
			w.fatal("read together: %v", err)
		}
	}
	if want := modelReads - w.boot.reads; got != want {
		w.fatal("%d readers at once, want %d", got, want)
	}
	for _, release := range releases {
		if w.r.IntN(2) == 0 {
			w.booked(token)
		}
		release()
	}
}

// steal tries tokens that are none, or none any more.
func (w *walk) steal() {
	tokens := map[string]string{"": "none", "guess": "a guess"}
	for token, why := range w.stale {
		tokens[token] = why
		if len(tokens) > 6 {
			break
		}
	}
	for token, why := range tokens {
		if _, err := w.machine.Read(w.host, token, modelReads); err == nil || errors.Is(err, install.ErrBusy) {
			w.fatal("token %q (%s) may read: %v", token, why, err)
		}
		if err := w.machine.ConfigRead(w.t.Context(), w.host, token); err == nil {
			w.fatal("token %q (%s) has read", token, why)
		}
	}
	if w.r.IntN(20) == 0 {
		clear(w.stale)
	}
}

func (w *walk) done() {
	if err := w.machine.Done(w.t.Context(), w.host, "guess"); err == nil {
		w.fatal("a guess says that it is done")
	}
	if w.boot == nil {
		return
	}
	w.note("done")
	for range 1 + w.r.IntN(2) { // installers repeat what they were not answered
		if err := w.machine.Done(w.t.Context(), w.host, w.token()); err != nil {
			w.fatal("an installer that was let boot may not say that it is done: %v", err)
		}
	}
	w.end("done")
}

func (w *walk) arm() {
	if err := w.machine.Arm(w.t.Context(), w.host); err != nil {
		w.fatal("arm: %v", err)
	}
	w.note("arm")
	w.supersede("of before it was armed")
	w.over, w.boots = false, 0
}

func (w *walk) mark() {
	if err := w.machine.MarkInstalled(w.t.Context(), w.host); err != nil {
		w.fatal("mark: %v", err)
	}
	w.note("mark")
	w.supersede("marked")
	w.over = true
}

func (w *walk) systemUp() {
	if err := w.machine.SystemUp(w.t.Context(), w.host); err != nil {
		w.fatal("system up: %v", err)
	}
	w.note("system up")
	if !w.over && w.signals(install.SystemLease) {
		w.end("done")
	}
}

// expire: nothing becomes installed by time without a warning.
func (w *walk) expire() {
	before, warned := w.machine.Status(w.host).State, w.timeouts
	if err := w.machine.Expire(context.Background(), func(string) *lab.Host { return w.host }); err != nil {
		w.fatal("expire: %v", err)
	}
	w.note("expire")
	after := w.machine.Status(w.host)
	if due := !w.over && w.lateNow(); (after.State != before) != due || (w.timeouts > warned) != due {
		w.fatal("time-out: from %s to %+v, %d warnings, due %v", before, after, w.timeouts-warned, due)
	}
	if after.State != before {
		w.end("time-out")
	}
}
