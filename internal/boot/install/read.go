package install

import (
	"context"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// Authorize returns nil if token may read the config document of h now, else ErrState, ErrToken or ErrReads. reads is how many complete
// reads one boot may make; 0 is any number.
func (m *Machine) Authorize(h *lab.Host, token string, reads int) error {
	return m.authorize(m.status(h), token, reads)
}

func (m *Machine) authorize(s Status, token string, reads int) error {
	switch {
	case len(s.Tokens) == 0 || !s.underWay():
		return ErrState
	case !s.knows(token):
		return ErrToken
	case m.deps.Now().Sub(s.Minted) > tokenLife:
		return ErrState
	case reads > 0 && s.Reads >= reads:
		return ErrReads
	}
	return nil
}

// Knows reports whether token is of the boot of h that is under way, or of one that it requested.
func (m *Machine) Knows(h *lab.Host, token string) bool {
	s := m.status(h)
	return s.knows(token) || s.Requested.knows(token)
}

// Read is Authorize for a read that counts. It reserves the read until release is called, after ConfigRead if the read was complete:
// of two readers at the same time only one can be the last. It also returns ErrBusy, which is temporary.
func (m *Machine) Read(h *lab.Host, token string, reads int) (release func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.statusLocked(h)
	if err := m.authorize(s, token, reads); err != nil || reads == 0 {
		return func() {}, err
	}
	boot := s.Tokens[0]
	if s.Reads+m.reading[boot] >= reads {
		return nil, ErrBusy
	}
	m.reading[boot]++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.reading[boot]--; m.reading[boot] == 0 {
			delete(m.reading, boot)
		}
	}, nil
}

// ConfigRead is called after a complete read of the config document: the install has begun.
func (m *Machine) ConfigRead(ctx context.Context, h *lab.Host, token string) error {
	return m.transition(ctx, h, func(s Status) error {
		switch {
		case !s.underWay():
			return ErrState
		case !s.knows(token):
			return ErrToken
		}
		next := s
		next.Reads++
		if s.State == Booting {
			next.State, next.Since = Installing, m.deps.Now()
			next.Deadline = deadline(h, next.Since)
		}
		if err := m.put(ctx, h, s, next, tokens{boot: token, requested: m.plainOf(h).requested}); err != nil {
			return err
		}
		if s.State == Booting {
			m.emit(event.InstallStarted, h, h.Profile.Name)
		}
		return nil
	})
}
