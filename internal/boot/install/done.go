package install

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/store"
)

// An end is how the end of an install is known.
type end int

const (
	notEnded  end = iota
	byCall        // the installer called back
	bySignal      // another completion signal
	bySystem      // the installed system asks for an address
	byAdmin       // bootlab install HOST --done
	byTimeout     // install_timeout
)

// ended reports whether the installer of h must be done, for a host that requests its script now.
func (m *Machine) ended(h *lab.Host, s Status, now time.Time) (why string, by end) {
	switch {
	case !s.runs(h) || s.Held:
		return "", notEnded
	case late(s, now):
		return m.timeoutReason(h, s), byTimeout
	case s.Signals.Has(NextBoot) && now.Sub(s.Since) >= minInstall:
		return fmt.Sprintf("the installer cannot call back, but the machine boots again %s after the install began", now.Sub(s.Since).Round(time.Second)), bySignal
	}
	return "", notEnded
}

func late(s Status, now time.Time) bool { return !s.Deadline.IsZero() && !now.Before(s.Deadline) }

// timeoutReason is why a host counts as installed after install_timeout.
func (m *Machine) timeoutReason(h *lab.Host, s Status) string {
	text := fmt.Sprintf("no callback from the installer for %s: taken as installed", m.deps.Now().Sub(s.Since).Round(time.Second))
	if s.Signals.Has(Callback) {
		text += ", though its document calls back"
	}
	return text + "; if it is not: bootlab install " + h.Name
}

// Done is called when the installer calls back. A second call is no error.
func (m *Machine) Done(ctx context.Context, h *lab.Host, token string) error {
	return m.transition(ctx, h, func(s Status) error {
		switch {
		case len(s.Tokens) == 0:
			return ErrState
		case !s.knows(token):
			return ErrToken
		case s.State == Installed && !s.Assumed, s.State == Live:
			return nil
		}
		return m.finish(ctx, h, s, m.installed(s, byCall, ""), byCall)
	})
}

// SystemUp is called when an operating system asks for a new lease on a NIC of h. Where SystemLease is a signal, that is the installed
// system. Requests of the installer itself come before it reads its document, or soon after.
func (m *Machine) SystemUp(ctx context.Context, h *lab.Host) error {
	return m.transition(ctx, h, func(s Status) error {
		after := m.deps.Now().Sub(s.Since)
		if s.State != Installing || !s.Signals.Has(SystemLease) || s.Held || after < minInstall {
			return nil
		}
		why := fmt.Sprintf("the installer cannot call back, but a system asks for an address %s after the install began", after.Round(time.Second))
		return m.finish(ctx, h, s, m.installed(s, bySystem, why), bySystem)
	})
}

// MarkInstalled makes h installed, whatever its state: its next boot starts from its disk.
func (m *Machine) MarkInstalled(ctx context.Context, h *lab.Host) error {
	if err := installs(h); err != nil {
		return err
	}
	return m.transition(ctx, h, func(s Status) error {
		s.Tokens = nil
		return m.finish(ctx, h, s, m.installed(s, byAdmin, "marked as installed by an admin"), byAdmin)
	})
}

// maxExpiring is how many hosts Expire changes at the same time: they share a sync of the store.
const maxExpiring = 64

// Expire ends every install that has reached its install_timeout, and forgets live systems whose tokens have expired: machines of
// pools come and go. hostOf returns the host of a name, or nil for one that has left the lab. After an error it goes on, and returns
// the first.
func (m *Machine) Expire(ctx context.Context, hostOf func(name string) *lab.Host) error {
	var due errgroup.Group
	due.SetLimit(maxExpiring)
	for name, s := range m.all() {
		switch h := hostOf(name); {
		case m.stale(s):
			due.Go(func() error { return m.forget(ctx, name) })
		case h != nil && late(s, m.deps.Now()):
			due.Go(func() error { return m.expire(ctx, h) })
		}
	}
	return due.Wait()
}

func (m *Machine) stale(s Status) bool {
	last := s.Minted
	if s.Requested != nil && s.Requested.At.After(last) {
		last = s.Requested.At
	}
	return s.State == Live && m.deps.Now().Sub(last) > tokenLife
}

// forget removes a live system: it is then as one that never booted.
func (m *Machine) forget(ctx context.Context, name string) error {
	end, err := m.locks.take(ctx, name)
	if err != nil {
		return err
	}
	defer end()
	m.mu.RLock()
	s := m.states.of[name]
	m.mu.RUnlock()
	if !m.stale(s) {
		return nil // it boots again
	}
	if err := m.deps.Store.Commit(ctx, store.Delete(keyPrefix+name)); err != nil {
		return fmt.Errorf("forget the last boot of %s: %w", name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropLocked(name)
	return nil
}

func (m *Machine) expire(ctx context.Context, h *lab.Host) error {
	return m.transition(ctx, h, func(s Status) error {
		if !s.runs(h) || s.Held || !late(s, m.deps.Now()) {
			return nil
		}
		return m.finish(ctx, h, s, m.installed(s, byTimeout, m.timeoutReason(h, s)), byTimeout)
	})
}

// installed returns the status of a host whose install has ended. Its tokens stay, so that a repeated callback is recognised, but they
// read nothing. A requested boot is forgotten: its script is of the install before.
func (m *Machine) installed(s Status, by end, why string) Status {
	return Status{State: Installed, Since: m.deps.Now(), Tokens: s.Tokens, Why: why, Assumed: by == byTimeout, ByAdmin: by == byAdmin}
}

// finish makes the host installed, as done says.
func (m *Machine) finish(ctx context.Context, h *lab.Host, s, done Status, by end) error {
	if err := m.put(ctx, h, s, done, tokens{}); err != nil {
		return err
	}
	kind := event.InstallDone
	if by == byTimeout {
		kind = event.InstallTimeout
	}
	e := event.Event{Kind: kind, Detail: done.Why, ByAdmin: done.ByAdmin}
	switch by {
	case byCall:
		e.Detail = "callback"
	case bySystem:
		e.Client = event.ClientOS
	}
	m.record(e, h)
	return nil
}
