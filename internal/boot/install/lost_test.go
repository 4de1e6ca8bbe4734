package install_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/store"
)

// named returns a host that installs once.
func named(name string) *lab.Host {
	h := host(lab.InstallOnce)
	h.Name = name
	return h
}

// TestLost: after a loss no host with install: once installs before an admin says so, over restarts; one that is known to be installed
// stays so.
func TestLost(t *testing.T) {
	t.Parallel()
	r, ctx := newRig(t), context.Background()
	fresh, begun, installed := named("fresh"), named("begun"), named("installed")
	token := r.boot(begun).Token
	if err := r.MarkInstalled(ctx, installed); err != nil {
		t.Fatal(err)
	}
	if err := r.Lose(ctx, "the disk was replaced"); err != nil {
		t.Fatal(err)
	}
	since := r.now
	for range 2 {
		r.now = r.now.Add(time.Minute)
		if err := r.Lose(ctx, "another reason"); err != nil { // the first stays
			t.Fatal(err)
		}
		for _, h := range []*lab.Host{fresh, begun} {
			r.want(h, install.Unknown)
			s := r.Status(h)
			if note := s.Note(h.Name); !s.Since.Equal(since) || note != "install state unknown since 2026-11-21 09:00:00: bootlab install "+h.Name+" --done if it has a system, else bootlab install "+h.Name+", which overwrites its disk (the disk was replaced)" {
				t.Errorf("%s: since %s, note %q", h.Name, s.Since, note)
			}
			if do := s.Advice(h.Name); len(do) != 2 || !strings.HasPrefix(do[0], "put the state back first") || !strings.HasPrefix(do[1], "bootlab install "+h.Name+" --done if") {
				t.Errorf("%s: advice %q: the safe steps come first", h.Name, do)
			}
			if decision := r.boot(h); !decision.LocalBoot || decision.Token != "" || !strings.HasPrefix(decision.Unknown, "install state unknown since ") || !r.FromDisk(h, lab.MAC{}) {
				t.Errorf("%s gets %+v", h.Name, decision)
			}
			if last := r.events[len(r.events)-1]; last != event.InstallUnknown {
				t.Errorf("the event is %v", last)
			}
			if !r.WouldInstall(h) {
				t.Errorf("%s would install itself, and is not listed", h.Name)
			}
		}
		for what, err := range map[string]error{
			"a document": r.Authorize(begun, token, 0), "a read": r.ConfigRead(ctx, begun, token), "done": r.Done(ctx, begun, token),
		} {
			if !errors.Is(err, install.ErrState) {
				t.Errorf("%s with the token of a boot whose state was lost: %v", what, err)
			}
		}
		r.want(installed, install.Installed)
		if decision := r.boot(installed); !decision.LocalBoot || decision.Unknown != "" || r.WouldInstall(installed) {
			t.Errorf("an installed host gets %+v", decision)
		}
		r.reopen()
	}
	always, live := host(lab.InstallAlways), host(lab.InstallNever)
	always.Name, live.Name = "always", "live"
	for _, h := range []*lab.Host{always, live} {
		if decision := r.boot(h); decision.LocalBoot || decision.Token == "" {
			t.Errorf("%s does not depend on a state, and gets %+v", h.Name, decision)
		}
	}
}

// TestUndecodable: a host whose stored state cannot be decoded is unknown, over restarts, until an admin says what it is. So are all if
// the record of a loss cannot be decoded. The others keep their states.
func TestUndecodable(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"", "{", `{"state":"formatted"}`, `{}`, `{"state":"unknown"}`} {
		r, ctx := newRig(t), context.Background()
		broken, fine := named("broken"), named("fine")
		if err := r.MarkInstalled(ctx, fine); err != nil {
			t.Fatal(err)
		}
		if err := r.store.Commit(ctx, store.Put("install/broken", []byte(value))); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			r.reopen()
			r.want(broken, install.Unknown)
			r.want(fine, install.Installed)
			if !r.boot(broken).LocalBoot {
				t.Errorf("%q: it would be installed", value)
			}
		}
		if err := r.Arm(ctx, broken); err != nil {
			t.Fatal(err)
		}
		r.reopen()
		r.want(broken, install.Armed)

		if err := r.store.Commit(ctx, store.Put(install.LostKey, []byte(value+"}"))); err != nil {
			t.Fatal(err)
		}
		r.reopen()
		r.want(named("another"), install.Unknown)
		r.want(fine, install.Installed)
	}
}

// TestAfterLoss: what ends that a state is unknown.
func TestAfterLoss(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		do    func(r *rig, h *lab.Host) error
		state install.State
		after install.State // once the loss is accepted
	}{
		{"nothing", func(*rig, *lab.Host) error { return nil }, install.Unknown, install.Armed},
		{"an admin arms it", func(r *rig, h *lab.Host) error { return r.Arm(context.Background(), h) }, install.Armed, install.Armed},
		{"an admin marks it", func(r *rig, h *lab.Host) error { return r.MarkInstalled(context.Background(), h) }, install.Installed, install.Installed},
		{"it runs", func(r *rig, h *lab.Host) error { return r.Runs(context.Background(), h, "renewed its lease") }, install.Installed, install.Installed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, h := newRig(t), named("h")
			if err := errors.Join(r.Lose(t.Context(), "why"), tt.do(r, h)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				r.want(h, tt.state)
				r.reopen()
			}
			if err := r.Accept(t.Context(), func(ctx context.Context, with ...store.Op) error { return r.store.Commit(ctx, store.Txn{Then: with}) }); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				r.want(h, tt.after)
				if r.Lost() != nil || r.WouldInstall(h) != (tt.after == install.Armed) {
					t.Errorf("lost %+v, would install %v", r.Lost(), r.WouldInstall(h))
				}
				r.reopen()
			}
		})
	}
}

// TestRunsChangesNothingElse: evidence that a host runs is only for a host whose state is unknown.
func TestRunsChangesNothingElse(t *testing.T) {
	t.Parallel()
	r, h := newRig(t), named("h")
	if err := r.Arm(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	events := len(r.events)
	if err := r.Runs(t.Context(), h, "renewed its lease"); err != nil || len(r.events) != events {
		t.Errorf("%v, %v", err, r.events)
	}
	r.want(h, install.Armed)
}

// TestLostOnAFullDisk: a loss that cannot be stored holds until a restart, which notices it again.
func TestLostOnAFullDisk(t *testing.T) {
	t.Parallel()
	r, h := newRig(t), named("h")
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Lose(t.Context(), "why"); err == nil {
		t.Error("the error is missing")
	}
	r.want(h, install.Unknown)
}

// TestAcceptIsDurable: a loss whose acceptance is not on disk is not accepted.
func TestAcceptIsDurable(t *testing.T) {
	t.Parallel()
	r, h, full := newRig(t), named("h"), errors.New("no space left on device")
	if err := r.Lose(t.Context(), "why"); err != nil {
		t.Fatal(err)
	}
	if err := r.Accept(t.Context(), func(context.Context, ...store.Op) error { return full }); !errors.Is(err, full) {
		t.Error(err)
	}
	r.want(h, install.Unknown)
}

// damaged is a store that may have lost the last change of some keys.
type damaged struct {
	store.Store
	doubtful map[string]bool
}

func (d *damaged) Doubtful(key string) bool { return d.doubtful[key] }

func (d *damaged) Commit(ctx context.Context, t store.Txn) error {
	for _, op := range t.Then {
		delete(d.doubtful, op.Key) // it was written since
	}
	return d.Store.Commit(ctx, t)
}

// TestDamage: where a damaged store may have lost the last change of a host's state, the host is unknown, whatever the store has for it,
// unless it is installed.
func TestDamage(t *testing.T) {
	t.Parallel()
	r, ctx := newRig(t), t.Context()
	begun, gone, installed, sound := named("begun"), named("gone"), named("installed"), named("sound")
	r.boot(begun)
	r.boot(sound)
	if err := r.MarkInstalled(ctx, installed); err != nil {
		t.Fatal(err)
	}
	d := &damaged{r.store, map[string]bool{"install/begun": true, "install/gone": true, "install/installed": true}}
	m, err := install.Open(ctx, install.Config{}, install.Deps{Store: d, Events: r, Now: time.Now, Damage: &install.Loss{Since: r.now, Why: "a bad disk"}})
	if err != nil {
		t.Fatal(err)
	}
	want := func(when string, states map[*lab.Host]install.State) {
		t.Helper()
		for h, state := range states {
			if got := m.Status(h).State; got != state {
				t.Errorf("%s: %s is %s, want %s", when, h.Name, got, state)
			}
		}
	}
	want("after the damage", map[*lab.Host]install.State{begun: install.Unknown, gone: install.Unknown, installed: install.Installed, sound: install.Booting})
	if m.Lost() == nil {
		t.Error("nobody says that states were lost")
	}
	if err := m.Arm(ctx, gone); err != nil {
		t.Fatal(err)
	}
	want("one was armed", map[*lab.Host]install.State{begun: install.Unknown, gone: install.Armed})
	if err := m.Accept(ctx, func(context.Context, ...store.Op) error { d.doubtful = nil; return nil }); err != nil {
		t.Fatal(err)
	}
	want("accepted", map[*lab.Host]install.State{begun: install.Booting, installed: install.Installed})
	if m.Lost() != nil {
		t.Error("the loss is not forgotten")
	}
}
