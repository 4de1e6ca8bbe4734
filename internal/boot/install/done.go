package install

import (
	"context"
	"fmt"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/store"
)

// An end is what an install is known to be over by.
type end int

const (
	goesOn  end = iota
	byCall      // its installer said so
	bySigns     // it did what only an installed system does
	byHand      // somebody said so
	byTime      // nobody said anything for too long
)

// over reports whether the installer of h must be done, for a host that asks for its script now.
func (m *Machine) over(h *lab.Host, s Status, now time.Time) (why string, by end) {
	switch {
	case !s.runs(h) || s.Held:
		return "", goesOn
	case late(s, now):
		return m.silence(h, s), byTime
	case s.Signs.has(NextBoot) && now.Sub(s.Since) >= m.cfg.MinInstall:
		return fmt.Sprintf("its installer cannot say so, but it boots again %s after it began", now.Sub(s.Since).Round(time.Second)), bySigns
	}
	return "", goesOn
}

func late(s Status, now time.Time) bool { return !s.Deadline.IsZero() && !now.Before(s.Deadline) }

// silence says why the time-out says what it says.
func (m *Machine) silence(h *lab.Host, s Status) string {
	text := fmt.Sprintf("no word from its installer for %s: taken as installed", m.deps.Now().Sub(s.Since).Round(time.Second))
	if s.Signs.has(Call) {
		text += ", though it could have called"
	}
	return text + "; if it is not: bootlab install " + h.Name
}

// Done is called when the installer says that it is done. Saying it twice is no error.
func (m *Machine) Done(ctx context.Context, h *lab.Host, token string) error {
	m.transition.Lock()
	defer m.transition.Unlock()
	s := m.status(h)
	switch {
	case len(s.Tokens) == 0:
		return ErrState
	case !s.knows(token):
		return ErrToken
	case s.State == Installed && !s.Assumed, s.State == Live:
		return nil
	}
	_, err := m.finish(ctx, h, s, byCall, "")
	return err
}

// SystemUp is called when an operating system asks for an address anew on a NIC of h. Of a host whose install SystemLease
// is a sign of, that is the installed system's first word, if it is not the installer's own: those ask before they read
// their document, or soon after.
func (m *Machine) SystemUp(ctx context.Context, h *lab.Host) error {
	m.transition.Lock()
	defer m.transition.Unlock()
	s := m.status(h)
	after := m.deps.Now().Sub(s.Since)
	if s.State != Installing || !s.Signs.has(SystemLease) || s.Held || after < m.cfg.MinInstall {
		return nil
	}
	_, err := m.finish(ctx, h, s, bySigns, fmt.Sprintf("its installer cannot say so, but a system asks for an address %s after it began", after.Round(time.Second)))
	return err
}

// MarkInstalled makes h installed because somebody says so, whatever came before: its next boot starts from its disk.
func (m *Machine) MarkInstalled(ctx context.Context, h *lab.Host) error {
	if err := installs(h); err != nil {
		return err
	}
	m.transition.Lock()
	defer m.transition.Unlock()
	s := m.status(h)
	s.Tokens = nil
	_, err := m.finish(ctx, h, s, byHand, "somebody said so")
	return err
}

// Expire ends every install whose installer has said nothing for longer than its profile allows, and forgets live systems
// whose tokens are too old to be worth anything: guests of pools come and go. hostOf returns the host of a name, nil for
// one that is not in the lab any more. It returns the first error, and goes on after it.
func (m *Machine) Expire(ctx context.Context, hostOf func(name string) *lab.Host) (first error) {
	for name, s := range m.All() {
		var err error
		switch h := hostOf(name); {
		case m.stale(s):
			err = m.forget(ctx, name)
		case h != nil && late(s, m.deps.Now()):
			err = m.expire(ctx, h)
		}
		if err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (m *Machine) stale(s Status) bool {
	return s.State == Live && m.deps.Now().Sub(s.Minted) > m.cfg.TokenLife
}

// forget leaves of a live system what is known of one that never booted.
func (m *Machine) forget(ctx context.Context, name string) error {
	m.transition.Lock()
	defer m.transition.Unlock()
	m.mu.RLock()
	s := m.states[name]
	m.mu.RUnlock()
	if !m.stale(s) {
		return nil // it boots, just now
	}
	if err := m.deps.Store.Commit(ctx, store.Delete(keyPrefix+name)); err != nil {
		return fmt.Errorf("forget the last boot of %s: %w", name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.states, name)
	delete(m.clear, name)
	return nil
}

func (m *Machine) expire(ctx context.Context, h *lab.Host) error {
	m.transition.Lock()
	defer m.transition.Unlock()
	s := m.status(h)
	if !s.runs(h) || s.Held || !late(s, m.deps.Now()) {
		return nil
	}
	_, err := m.finish(ctx, h, s, byTime, m.silence(h, s))
	return err
}

// finish makes the host installed. Its tokens stay, so that a repeated call is recognised, but read nothing any more.
func (m *Machine) finish(ctx context.Context, h *lab.Host, s Status, by end, why string) (Status, error) {
	done := Status{State: Installed, Since: m.deps.Now(), Tokens: s.Tokens, Why: why, Assumed: by == byTime}
	if err := m.put(ctx, h, s, done, ""); err != nil {
		return s, err
	}
	kind := event.InstallDone
	if by == byTime {
		kind = event.InstallTimeout
	}
	m.emit(kind, h, why)
	return done, nil
}
