package install_test

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/logfile"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// A rig is a machine over a real store with its own clock.
type rig struct {
	t      *testing.T
	now    time.Time
	events []event.Kind
	last   event.Event
	store  store.Store
	killed bool // the daemon, after every request
	*install.Machine
}

func (r *rig) Record(e event.Event) { r.events, r.last = append(r.events, e.Kind), e }

func newRig(t *testing.T) *rig {
	t.Helper()
	s, _, err := logfile.Open(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	r := &rig{t: t, now: time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC), store: s}
	r.reopen()
	return r
}

// reopen forgets all memory, as a killed daemon does.
func (r *rig) reopen() {
	r.t.Helper()
	var damage *install.Loss
	if s, ok := r.store.(*logfile.Store); ok && len(s.Losses()) > 0 { // as the daemon does
		damage = &install.Loss{Since: r.now, Why: "the state file was damaged"}
	}
	m, err := install.Open(r.t.Context(), install.Config{Attempts: 3}, install.Deps{
		Store: r.store, Events: r, Now: func() time.Time { return r.now }, Damage: damage,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.Machine = m
}

func (r *rig) boot(h *lab.Host) install.Decision { r.t.Helper(); return r.bootBy(h, install.Callback) }

// bootBy requests a script and receives it. The daemon may be killed between the two.
func (r *rig) bootBy(h *lab.Host, s install.Signals) install.Decision {
	r.t.Helper()
	t := r.request(h, s)
	if r.killed {
		r.reopen()
	}
	if err := r.Received(r.t.Context(), h, t); err != nil {
		r.t.Fatal(err)
	}
	return t
}

// request requests a script and does not receive it.
func (r *rig) request(h *lab.Host, s install.Signals) install.Decision {
	r.t.Helper()
	t, err := r.Boot(r.t.Context(), h, install.Request{Prepare: by(s)})
	if err != nil {
		r.t.Fatal(err)
	}
	return t
}

// by prepares a boot whose install will be known to be over by these signals.
func by(s install.Signals) func() (install.Signals, error) {
	return func() (install.Signals, error) { return s, nil }
}

func (r *rig) want(h *lab.Host, s install.State) {
	r.t.Helper()
	if got := r.Status(h).State; got != s {
		r.t.Fatalf("state of %s is %s, want %s", h.Name, got, s)
	}
}

func host(mode lab.InstallMode) *lab.Host {
	return &lab.Host{Name: "worker-0", Profile: &lab.Profile{Name: "rhcos", Install: mode}}
}

// TestOnce walks a host through its install, with the daemon killed after every step.
func TestOnce(t *testing.T) {
	t.Parallel()
	r, h, ctx := newRig(t), host(lab.InstallOnce), context.Background()
	r.killed = true
	r.want(h, install.Armed)
	decision := r.boot(h)
	r.reopen()
	r.want(h, install.Booting)
	if err := r.Authorize(h, "guess", 1); !errors.Is(err, install.ErrToken) {
		t.Errorf("a guessed token: %v, want ErrToken", err)
	}
	if err := r.Authorize(h, decision.Token, 1); err != nil {
		t.Errorf("the right token: %v", err)
	}
	if err := r.ConfigRead(ctx, h, decision.Token); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	r.want(h, install.Installing)
	if err := r.Authorize(h, decision.Token, 1); !errors.Is(err, install.ErrReads) {
		t.Errorf("a second read: %v, want ErrReads", err)
	}
	if err := r.Done(ctx, h, "guess"); !errors.Is(err, install.ErrToken) {
		t.Errorf("done with a guessed token: %v, want ErrToken", err)
	}
	for range 2 { // a repeated call is no error
		if err := r.Done(ctx, h, decision.Token); err != nil {
			t.Fatal(err)
		}
	}
	if r.last.Kind != event.InstallDone || r.last.Detail != "callback" {
		t.Errorf("event %+v, want install_done by callback", r.last)
	}
	r.reopen()
	r.want(h, install.Installed)
	if err := r.Authorize(h, decision.Token, 0); !errors.Is(err, install.ErrState) {
		t.Errorf("a read after the install: %v, want ErrState", err)
	}
	if !r.boot(h).LocalBoot {
		t.Error("an installed host does not start from its disk")
	}
	if err := r.Arm(ctx, h); err != nil {
		t.Fatal(err)
	}
	if r.boot(h).LocalBoot {
		t.Error("an armed host starts from its disk")
	}
}

func TestSameBoot(t *testing.T) {
	t.Parallel()
	r, h := newRig(t), host(lab.InstallOnce)
	first := r.boot(h)
	if again := r.boot(h); again != first {
		t.Errorf("a script fetched twice in a boot gives %v, want %v", again, first)
	}
	r.now = r.now.Add(time.Minute)
	if again := r.boot(h); again == first {
		t.Error("a script fetched a minute later has the token of the boot before")
	}
}

// TestRequestChangesNothing requests scripts, as anybody can in a host's name, while the host is in each of its states: neither its state
// nor its token changes, and the machine goes on.
func TestRequestChangesNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range []lab.InstallMode{lab.InstallOnce, lab.InstallAlways, lab.InstallNever} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r, h, ctx := newRig(t), host(mode), context.Background()
			disturb := func() {
				t.Helper()
				before, events := r.Status(h), len(r.events)
				for range 8 { // more than the loop detector allows
					r.request(h, install.NextBoot)
					r.now = r.now.Add(30 * time.Second)
				}
				r.reopen()
				if after := r.Status(h); !reflect.DeepEqual(after, before) {
					t.Fatalf("requests changed the status from %+v to %+v", before, after)
				}
				if len(r.events) > events {
					t.Fatalf("requests made the events %v", r.events[events:])
				}
			}
			disturb()
			token := r.bootBy(h, install.NextBoot).Token
			disturb()
			if err := r.ConfigRead(ctx, h, token); err != nil {
				t.Fatal(err)
			}
			disturb()
			if err := r.Done(ctx, h, token); err != nil {
				t.Fatal(err)
			}
			disturb()
		})
	}
}

// TestConfirm: the last acknowledgement of a script may be lost. The machine shows by its token that it has the script.
func TestConfirm(t *testing.T) {
	t.Parallel()
	r, h, ctx := newRig(t), host(lab.InstallOnce), context.Background()
	slow := r.request(h, install.Callback) // and receives it after the next request
	r.now = r.now.Add(25 * time.Second)
	other := r.request(h, install.Callback)
	if slow == other {
		t.Fatal("requests of two boots get one token")
	}
	r.reopen()
	if err := errors.Join(r.Confirm(ctx, h, "guess"), r.Confirm(ctx, h, "")); err != nil {
		t.Fatal(err)
	}
	r.want(h, install.Armed)
	for range 2 {
		if err := r.Confirm(ctx, h, slow.Token); err != nil {
			t.Fatal(err)
		}
	}
	r.want(h, install.Booting)
	if err := r.Authorize(h, slow.Token, 1); err != nil {
		t.Error(err)
	}
	if err := r.Authorize(h, other.Token, 1); !errors.Is(err, install.ErrToken) {
		t.Errorf("a token whose script was not received: %v, want ErrToken", err)
	}
	if s := r.Status(h); s.Attempts != 1 {
		t.Errorf("%d attempts, want 1", s.Attempts)
	}
	if err := r.MarkInstalled(ctx, h); err != nil {
		t.Fatal(err)
	}
	if err := r.Confirm(ctx, h, other.Token); err != nil {
		t.Fatal(err)
	}
	r.want(h, install.Installed) // what an admin says stands
}

func TestLoop(t *testing.T) {
	t.Parallel()
	r, h := newRig(t), host(lab.InstallOnce)
	for range 3 {
		if r.boot(h).LocalBoot {
			t.Fatal("held too early")
		}
		r.now = r.now.Add(5 * time.Minute)
	}
	if decision := r.boot(h); !decision.Held || !decision.LocalBoot {
		t.Errorf("after 3 boots without an end: %+v, want held", decision)
	}
	if last := r.events[len(r.events)-1]; last != event.InstallLoop {
		t.Errorf("last event is %v, want %v", last, event.InstallLoop)
	}
	if err := r.Arm(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if r.boot(h).Held {
		t.Error("still held after it was armed")
	}
}

// TestComesBack is about installers that cannot call back: coming back for a script long after the config document was
// read means done, soon after it means a failed attempt.
func TestComesBack(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		after time.Duration
		local bool
	}{{"soon", 30 * time.Second, false}, {"late", 2 * time.Minute, true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, h := newRig(t), host(lab.InstallOnce)
			decision := r.bootBy(h, install.NextBoot)
			if err := r.ConfigRead(t.Context(), h, decision.Token); err != nil {
				t.Fatal(err)
			}
			r.now = r.now.Add(tt.after)
			if got := r.request(h, install.NextBoot); got.LocalBoot != tt.local {
				t.Errorf("Boot after %v = %+v; want local boot %v", tt.after, got, tt.local)
			}
			r.want(h, install.Installing) // a request alone ends nothing
			r.bootBy(h, install.NextBoot)
			r.want(h, map[bool]install.State{false: install.Booting, true: install.Installed}[tt.local])
		})
	}
}

func TestModes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mode  lab.InstallMode
		state install.State // after a whole install
		local bool          // at the boot after it
	}{
		{lab.InstallOnce, install.Installed, true},
		{lab.InstallAlways, install.Installed, false},
		{lab.InstallNever, install.Live, false},
	} {
		t.Run(string(tt.mode), func(t *testing.T) {
			t.Parallel()
			r, h, ctx := newRig(t), host(tt.mode), context.Background()
			for range 7 { // more often than the loop detector allows without an end
				token := r.boot(h).Token
				if err := errors.Join(r.Authorize(h, token, 1), r.ConfigRead(ctx, h, token), r.Done(ctx, h, token)); err != nil {
					t.Fatal(err)
				}
				r.want(h, tt.state)
				if got := r.boot(h).LocalBoot; got != tt.local {
					t.Fatalf("local boot %v, want %v", got, tt.local)
				}
				if tt.local {
					return
				}
				r.now = r.now.Add(time.Minute)
			}
		})
	}
}

func TestArmRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, h := range []*lab.Host{{Name: "switch"}, host(lab.InstallNever)} {
		if err := r.Arm(t.Context(), h); err == nil {
			t.Errorf("%s was armed, with nothing to install", h.Name)
		}
	}
}

// TestTokensAreNotStored checks that the store holds no token, and that a boot goes on after a restart of the daemon.
func TestTokensAreNotStored(t *testing.T) {
	t.Parallel()
	r, h, ctx := newRig(t), host(lab.InstallOnce), context.Background()
	token := r.boot(h).Token
	r.reopen()
	if err := errors.Join(r.Authorize(h, token, 1), r.ConfigRead(ctx, h, token)); err != nil {
		t.Fatal(err)
	}
	kept, err := r.store.Get(ctx, "install/worker-0")
	if err != nil || strings.Contains(string(kept), token) {
		t.Errorf("kept: %s, %v", kept, err)
	}
	r.reopen()
	if err := r.Done(ctx, h, token); err != nil {
		t.Error(err)
	}
	r.want(h, install.Installed)
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	r, h, ctx := newRig(t), host(lab.InstallOnce), context.Background()
	h.Profile.InstallTimeout = 2 * time.Hour
	expire := func() {
		t.Helper()
		if err := r.Expire(ctx, func(string) *lab.Host { return h }); err != nil {
			t.Fatal(err)
		}
	}
	token := r.boot(h).Token
	if err := r.ConfigRead(ctx, h, token); err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(2*time.Hour - time.Second)
	expire()
	r.want(h, install.Installing)
	r.now = r.now.Add(time.Second)
	r.reopen()
	expire()
	if s := r.Status(h); s.State != install.Installed || !s.Assumed || !strings.Contains(s.Why, "no callback from the installer for 2h0m0s: taken as installed, though its document calls back") {
		t.Errorf("after two hours: %+v", s)
	}
	if last := r.events[len(r.events)-1]; last != event.InstallTimeout {
		t.Errorf("last event is %v, want %v", last, event.InstallTimeout)
	}
	n := len(r.events)
	expire() // reports it once
	if len(r.events) != n || !r.boot(h).LocalBoot {
		t.Errorf("reported again, or installed again: %v", r.events)
	}
	if err := r.Done(ctx, h, token); err != nil {
		t.Fatal(err)
	}
	if s := r.Status(h); s.Assumed || s.Why != "" {
		t.Errorf("after a late call: %+v", s)
	}
}

// TestNoDocument: of a profile without a document, the script is the last that is seen before the install is over.
func TestNoDocument(t *testing.T) {
	t.Parallel()
	r, h := newRig(t), host(lab.InstallOnce)
	boot := func() install.Decision { t.Helper(); return r.bootBy(h, install.NextBoot) }
	boot()
	r.now = r.now.Add(30 * time.Second)
	if boot().LocalBoot {
		t.Error("installed within 30 seconds")
	}
	r.now = r.now.Add(5 * time.Minute)
	if !boot().LocalBoot {
		t.Error("installs again")
	}
}

func TestMarkInstalled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := host(lab.InstallOnce)
	if err := r.MarkInstalled(t.Context(), h); err != nil || !r.boot(h).LocalBoot || !r.FromDisk(h, lab.MAC{}) {
		t.Errorf("a machine that was there before: %v", err)
	}
	for _, h := range []*lab.Host{{Name: "switch"}, host(lab.InstallNever)} {
		if err := r.MarkInstalled(t.Context(), h); err == nil {
			t.Errorf("%s was marked, with nothing to install", h.Name)
		}
	}
}

// TestLiveIsForgotten: a live system leaves nothing behind once its token is worth nothing; an installed host stays known.
func TestLiveIsForgotten(t *testing.T) {
	t.Parallel()
	r, ctx := newRig(t), context.Background()
	live, once := host(lab.InstallNever), host(lab.InstallOnce)
	live.Name = "52-54-00-00-00-09"
	token := r.boot(live).Token
	if err := r.MarkInstalled(ctx, once); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		after time.Duration
		known int
	}{{23 * time.Hour, 2}, {2 * time.Hour, 1}} {
		r.now = r.now.Add(tt.after)
		if err := r.Expire(ctx, func(string) *lab.Host { return nil }); err != nil {
			t.Fatal(err)
		}
		r.reopen()
		if got := len(r.All()); got != tt.known {
			t.Errorf("%v later %d are known, want %d", tt.after, got, tt.known)
		}
	}
	if err := r.Authorize(live, token, 0); !errors.Is(err, install.ErrState) {
		t.Errorf("its token: %v", err)
	}
	r.want(once, install.Installed)
	if r.boot(live).LocalBoot {
		t.Error("it does not boot any more")
	}
}

// TestAcknowledged: a script that may have been acknowledged by anybody ends no install, counts as no boot, and holds no host. The boot begins
// when its token is used; where none will be, it begins unless one is under way.
func TestAcknowledged(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		config     string
		signals    install.Signals
		takesToken bool
		begins     bool
	}{
		{"a document", "worker.ign", install.NextBoot, true, false},
		{"a callback", "", install.Callback, true, false},
		{"neither", "", install.NextBoot, true, true},
		{"an installer that cannot be given a token", "answer.toml", install.Callback, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, h := newRig(t), host(lab.InstallOnce)
			h.Profile.Config = tt.config
			decision := r.request(h, tt.signals)
			if err := r.Acknowledged(t.Context(), h, decision, tt.takesToken); err != nil {
				t.Fatal(err)
			}
			if began := r.Status(h).State == install.Booting; began != tt.begins {
				t.Errorf("%+v, want a boot: %t", r.Status(h), tt.begins)
			}
			if err := r.Confirm(t.Context(), h, decision.Token); err != nil {
				t.Fatal(err)
			}
			r.want(h, install.Booting)
			for range 5 {
				r.now = r.now.Add(time.Hour)
				decision, err := r.Boot(t.Context(), h, install.Request{Prepare: by(tt.signals)})
				if err == nil {
					err = r.Acknowledged(t.Context(), h, decision, tt.takesToken)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if s := r.Status(h); s.State != install.Booting || s.Attempts != 1 || s.Held {
				t.Errorf("after acknowledgements: %+v", s)
			}
		})
	}
}

// TestReadWhileArmed reads the document while the host is armed again: a read belongs to the boot that was current, or is refused.
func TestReadWhileArmed(t *testing.T) {
	t.Parallel()
	m, err := install.Open(t.Context(), install.Config{}, install.Deps{Store: storetest.Memory(), Events: discard{}, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	h := host(lab.InstallOnce)
	var token atomic.Value
	token.Store("")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2000 {
			decision, err := m.Boot(t.Context(), h, install.Request{})
			if err != nil {
				t.Error(err)
				return
			}
			token.Store(decision.Token)
			if err := m.Received(t.Context(), h, decision); err != nil {
				t.Error(err)
				return
			}
			if err := m.Arm(t.Context(), h); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for {
		select {
		case <-done:
			return
		default:
		}
		if release, err := m.Read(h, token.Load().(string), 1); err == nil {
			release()
		}
	}
}

type discard struct{}

func (discard) Record(event.Event) {}

// stuck is a store whose commits to one key do not end before release is closed.
type stuck struct {
	store.Store
	key              string
	reached, release chan struct{}
}

func (s *stuck) Commit(ctx context.Context, t store.Txn) error {
	if t.Then[0].Key == s.key {
		close(s.reached)
		<-s.release
	}
	return s.Store.Commit(ctx, t)
}

// TestSlowCommitDelaysNoOther: while the state of one host is not on disk yet, another host boots, and both states can be read. A second
// request of the same host waits, as long as its client does.
func TestSlowCommitDelaysNoOther(t *testing.T) {
	t.Parallel()
	s := &stuck{Store: storetest.Memory(), key: "install/slow", reached: make(chan struct{}), release: make(chan struct{})}
	m, err := install.Open(t.Context(), install.Config{}, install.Deps{Store: s, Events: discard{}, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	slow, quick := host(lab.InstallOnce), host(lab.InstallOnce)
	slow.Name, quick.Name = "slow", "quick"
	booted := make(chan error, 1)
	go func() {
		_, err := m.Boot(t.Context(), slow, install.Request{})
		booted <- err
	}()
	<-s.reached
	decision, err := m.Boot(t.Context(), quick, install.Request{})
	if err != nil || decision.Token == "" {
		t.Errorf("the other host: %+v, %v", decision, err)
	}
	if err := m.Received(t.Context(), quick, decision); err != nil {
		t.Error(err)
	}
	if got := m.Status(slow).State; got != install.Armed {
		t.Errorf("state %s is visible before it is durable", got)
	}
	if got := m.Status(quick).State; got != install.Booting || len(m.All()) != 1 {
		t.Errorf("the other host is %s; known are %v", got, m.All())
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := m.Boot(gone, slow, install.Request{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that left: %v", err)
	}
	close(s.release)
	if err := <-booted; err != nil || len(m.All()) != 2 {
		t.Errorf("at last: %v, %v", err, m.All())
	}
}

// TestNextBoot: DHCP, the list of hosts that install themselves and the script decide alike about the next boot.
func TestNextBoot(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		mode  lab.InstallMode
		do    func(r *rig, h *lab.Host) error
		after time.Duration
		disk  bool // it starts from its own disk
		held  bool
	}{
		{"armed", lab.InstallOnce, nil, 0, false, false},
		{"soon after its document", lab.InstallOnce, begun(install.NextBoot), 30 * time.Second, false, false},
		{"long after its document", lab.InstallOnce, begun(install.NextBoot), 2 * time.Minute, true, false},
		{"long after its document, which calls back", lab.InstallOnce, begun(install.Callback), 2 * time.Minute, false, false},
		{"long after its document, installed always", lab.InstallAlways, begun(install.NextBoot), 2 * time.Minute, false, false},
		{"after its time-out", lab.InstallOnce, begun(install.Callback), 3 * time.Hour, true, false},
		{"installed", lab.InstallOnce, func(r *rig, h *lab.Host) error { return r.MarkInstalled(t.Context(), h) }, 0, true, false},
		{"in its last attempt, firmware that asks twice", lab.InstallOnce, attempts(3), 0, false, false},
		{"after its last attempt", lab.InstallOnce, attempts(3), time.Minute, true, true},
		{"held", lab.InstallOnce, attempts(4), time.Minute, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, h := newRig(t), host(tt.mode)
			h.Profile.Config, h.Profile.InstallTimeout, h.Local = "c", 2*time.Hour, lab.LocalBootNone
			h.MACs = []lab.MAC{{2, 0, 0, 0, 0, 1}}
			if tt.do != nil {
				if err := tt.do(r, h); err != nil {
					t.Fatal(err)
				}
			}
			r.now = r.now.Add(tt.after)
			if got := r.FromDisk(h, h.MACs[0]); got != tt.disk {
				t.Errorf("FromDisk = %v, want %v", got, tt.disk)
			}
			if got, want := r.WouldInstall(h), !tt.disk && !strings.Contains(tt.name, "last attempt"); got != want {
				t.Errorf("WouldInstall = %v, want %v", got, want)
			}
			if got := r.bootOf(h, install.NextBoot, h.MACs[0]); got.LocalBoot != tt.disk || got.Held != tt.held {
				t.Errorf("Boot = %+v, want local boot %v, held %v", got, tt.disk, tt.held)
			}
		})
	}
}

// begun returns a step in which a host reads its document.
func begun(s install.Signals) func(*rig, *lab.Host) error {
	return func(r *rig, h *lab.Host) error {
		d := r.bootOf(h, s, h.MACs[0])
		return errors.Join(r.Received(context.Background(), h, d), r.ConfigRead(context.Background(), h, d.Token))
	}
}

// attempts returns a step in which a host boots n times.
func attempts(n int) func(*rig, *lab.Host) error {
	return func(r *rig, h *lab.Host) error {
		for i := range n {
			if i > 0 {
				r.now = r.now.Add(5 * time.Minute)
			}
			if err := r.Received(context.Background(), h, r.bootOf(h, install.Callback, h.MACs[0])); err != nil {
				return err
			}
		}
		return nil
	}
}

// bootOf requests a script by a NIC.
func (r *rig) bootOf(h *lab.Host, s install.Signals, nic lab.MAC) install.Decision {
	r.t.Helper()
	d, err := r.Boot(context.Background(), h, install.Request{NIC: nic, Prepare: by(s)})
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

// TestFirmwareUp: DHCP gives a host with local_boot: none no boot file where its script would say that its install is over, or that it is held. The request of
// its firmware then is what changes its state.
func TestFirmwareUp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		local lab.LocalBoot
		do    func(*rig, *lab.Host) error
		after time.Duration
		state install.State
		held  bool
	}{
		{"too soon", lab.LocalBootNone, begun(install.NextBoot), 30 * time.Second, install.Installing, false},
		{"the next boot", lab.LocalBootNone, begun(install.NextBoot), 2 * time.Minute, install.Installed, false},
		{"the next boot of one that fetches its script", lab.LocalBootAuto, begun(install.NextBoot), 2 * time.Minute, install.Installing, false},
		{"its document calls back", lab.LocalBootNone, begun(install.Callback), 2 * time.Minute, install.Installing, false},
		{"in its last attempt", lab.LocalBootNone, attempts(3), 0, install.Booting, false},
		{"after its last attempt", lab.LocalBootNone, attempts(3), 2 * time.Minute, install.Booting, true},
		{"installed", lab.LocalBootNone, func(r *rig, h *lab.Host) error { return r.MarkInstalled(context.Background(), h) }, time.Minute, install.Installed, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, h := newRig(t), host(lab.InstallOnce)
			h.Profile.Config, h.Local = "c", tt.local
			h.MACs = []lab.MAC{{2, 0, 0, 0, 0, 1}}
			if err := tt.do(r, h); err != nil {
				t.Fatal(err)
			}
			r.now = r.now.Add(tt.after)
			if err := errors.Join(r.FirmwareUp(t.Context(), h, lab.MAC{2, 0, 0, 0, 0, 9}), r.FirmwareUp(t.Context(), h, h.MACs[0])); err != nil {
				t.Fatal(err)
			}
			if s := r.Status(h); s.State != tt.state || s.Held != tt.held {
				t.Errorf("%s, held %v; want %s, held %v", s.State, s.Held, tt.state, tt.held)
			}
		})
	}
}
