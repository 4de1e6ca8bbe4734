package install

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
)

// LostKey holds the Loss that no admin has accepted yet. It is not below keyPrefix.
const LostKey = "install-lost"

// A Loss says that install states were lost. Until it is accepted, a host without a state of its own is Unknown.
type Loss struct {
	Since time.Time `json:"since"` // it was noticed
	Why   string    `json:"why"`
}

// readLoss reads the loss that is not accepted yet.
func (m *Machine) readLoss(ctx context.Context) error {
	value, err := m.deps.Store.Get(ctx, LostKey)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var l Loss
	if err := json.Unmarshal(value, &l); err != nil {
		l = Loss{Since: m.deps.Wall(m.deps.Now()), Why: "states were lost before, and the record of that cannot be decoded: " + err.Error()}
	}
	m.lost = &l
	return nil
}

// Lose notes that install states were lost: the store is not the one that was used before, so that only an installed host can be
// believed. All other states are forgotten. A loss that is noted already stays as it is. After an error it is noted until a restart.
func (m *Machine) Lose(ctx context.Context, why string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost != nil {
		return nil
	}
	l := Loss{Since: m.deps.Wall(m.deps.Now()), Why: why}
	value, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode the loss of install states: %w", err)
	}
	t := store.Put(LostKey, value)
	for host, s := range m.states.of {
		if s.State != Installed {
			t.Then = append(t.Then, store.Op{Key: keyPrefix + host, Delete: true})
		}
	}
	for _, op := range t.Then[1:] {
		m.dropLocked(strings.TrimPrefix(op.Key, keyPrefix))
	}
	m.lost = &l
	if err := m.deps.Store.Commit(ctx, t); err != nil {
		return fmt.Errorf("keep that install states were lost: %w", err)
	}
	return nil
}

// Lost returns the loss that is not accepted yet, or nil.
func (m *Machine) Lost() *Loss {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return cmp.Or(m.lost, m.damage)
}

// IsKey reports whether a key of the store is that of an install state.
func IsKey(key string) bool { return strings.HasPrefix(key, keyPrefix) }

// Accept forgets the loss, because an admin says so: hosts that were Unknown are armed. commit makes it durable, with the writes that
// it is given.
func (m *Machine) Accept(ctx context.Context, commit func(ctx context.Context, with ...store.Op) error) error {
	if err := commit(ctx, store.Op{Key: LostKey, Delete: true}); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost, m.damage = nil, nil
	return nil
}

// Runs is called when h was seen to run a system. If its state is Unknown, it counts as installed from now on, and an accepted loss does
// not arm it.
func (m *Machine) Runs(ctx context.Context, h *lab.Host, evidence string) error {
	if m.status(h).State != Unknown {
		return nil
	}
	return m.transition(ctx, h, func(s Status) error {
		if s.State != Unknown {
			return nil
		}
		return m.finish(ctx, h, s, m.installed(s, bySignal, "its install state was lost, but it runs: it "+evidence), bySignal)
	})
}

// unknownText says since when the install state of a host is unknown, and what to do; empty: it is known.
func (s Status) unknownText(host string) string {
	if s.State != Unknown {
		return ""
	}
	return fmt.Sprintf("install state unknown since %s: %s", s.Since.Format(time.DateTime), doneOrInstall(host))
}

// doneOrInstall returns the two commands for a host that may have a system. The one that overwrites a disk comes last, and says so.
func doneOrInstall(host string) string { return doneOrElse(host, "else ") }

func doneOrElse(host, otherwise string) string {
	return fmt.Sprintf("bootlab install %s --done if it has a system, %sbootlab install %[1]s, which overwrites its disk", host, otherwise)
}

// Advice returns what an admin does about a host that starts from its own disk because its state is unknown or it is held, the safe steps
// first.
func (s Status) Advice(host string) []string {
	switch {
	case s.State == Unknown && s.Other == "":
		return []string{"put the state back first, if it or a backup exists (bootlab restore FILE; bootlab state says more)", doneOrInstall(host)}
	case s.State == Unknown, s.HeldByRestore():
		return []string{doneOrInstall(host)}
	case s.Held:
		return []string{doneOrElse(host, "else fix its profile, then ")}
	}
	return nil
}

// Note returns what people should know of the status of a host: why it counts as installed without a callback, or why its state is
// unknown or a restore holds it, and what to do. Empty: nothing.
func (s Status) Note(host string) string {
	if s.State == Unknown {
		return s.unknownText(host) + " (" + s.Why + ")"
	}
	return s.Why
}

// WouldInstall reports whether the next network boot of h begins an install, or another attempt, once a loss is accepted; without a loss
// whether it does now.
func (m *Machine) WouldInstall(h *lab.Host) bool {
	s := m.status(h)
	return installs(h) == nil && !m.nextBoot(h, s).disk || s.State == Unknown
}
