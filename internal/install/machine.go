package install

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"bootlab/internal/event"
	"bootlab/internal/lab"
	"bootlab/internal/store"
)

// keyPrefix is followed by the name of the host.
const keyPrefix = "install/"

// A Config tunes the machine; the zero Config is the documented default.
type Config struct {
	// Attempts is how many boots may fail to finish an install before the host is held (default 5).
	Attempts int
	// SameBoot is how long after its script a machine may ask for it again within one boot, as firmware that tries
	// autoexec.ipxe first does (default 20 s).
	SameBoot time.Duration
	// MinInstall is the shortest install: a host whose installer cannot call back counts as installed when it asks for
	// its script again later than that after it read its config document (default 60 s).
	MinInstall time.Duration
}

// Deps are what the machine needs; all are required.
type Deps struct {
	Store  store.Store
	Events event.Recorder
	Now    func() time.Time
}

// A Machine holds the install status of every host. It is safe for concurrent use. It owns the keys below "install/".
type Machine struct {
	cfg  Config
	deps Deps

	transition sync.Mutex // one transition at a time, commit included

	mu     sync.RWMutex
	states map[string]Status // by host name
}

// Open reads all states from the store.
func Open(ctx context.Context, cfg Config, deps Deps) (*Machine, error) {
	switch {
	case deps.Store == nil:
		panic("install: Deps.Store is nil")
	case deps.Events == nil:
		panic("install: Deps.Events is nil")
	case deps.Now == nil:
		panic("install: Deps.Now is nil")
	}
	m := &Machine{cfg: cfg.withDefaults(), deps: deps, states: map[string]Status{}}
	err := deps.Store.Scan(ctx, keyPrefix, func(key string, value []byte) error {
		host := strings.TrimPrefix(key, keyPrefix)
		s, err := decode(host, value)
		m.states[host] = s
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read install states: %w", err)
	}
	return m, nil
}

func (c Config) withDefaults() Config {
	if c.Attempts == 0 {
		c.Attempts = 5
	}
	if c.SameBoot == 0 {
		c.SameBoot = 20 * time.Second
	}
	if c.MinInstall == 0 {
		c.MinInstall = time.Minute
	}
	return c
}

// Status returns the status of h, without its token.
func (m *Machine) Status(h *lab.Host) Status {
	s := m.status(h)
	s.Token = ""
	return s
}

// All returns the status of every host that ever booted or was armed, without tokens.
func (m *Machine) All() map[string]Status {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := maps.Clone(m.states)
	for host, s := range all {
		s.Token = ""
		all[host] = s
	}
	return all
}

// status returns what is known of h, adjusted to what its profile says today.
func (m *Machine) status(h *lab.Host) Status {
	m.mu.RLock()
	s, known := m.states[h.Name]
	m.mu.RUnlock()
	if start := initial(h); !known || (start.State == Live) != (s.State == Live) {
		return start
	}
	return s
}

// A Ticket says what a boot gets.
type Ticket struct {
	LocalBoot bool   // start from the disk; there is no token
	Held      bool   // LocalBoot because the loop detector stopped the install
	Token     string // for the config document and the "done" call of this boot
}

// Boot is called when h asks for its script. It decides between installer and disk, mints the token of the boot and is
// durable when it returns. callsBack says whether the installer will call Done; one that cannot counts as done when the
// machine comes back for another script.
func (m *Machine) Boot(ctx context.Context, h *lab.Host, callsBack bool) (Ticket, error) {
	m.transition.Lock()
	defer m.transition.Unlock()
	s := m.status(h)
	if !callsBack && s.State == Installing && m.deps.Now().Sub(s.Since) >= m.cfg.MinInstall {
		var err error
		if s, err = m.finish(ctx, h, s, "it came back after its install"); err != nil {
			return Ticket{}, err
		}
	}
	if s.localBoot(h) {
		m.emit(event.InstallLocalBoot, h, "")
		return Ticket{LocalBoot: true, Held: s.Held}, nil
	}
	if m.sameBoot(s) {
		return Ticket{Token: s.Token}, nil
	}
	return m.begin(ctx, h, s)
}

// sameBoot reports whether a script asked for now belongs to the boot that s is in.
func (m *Machine) sameBoot(s Status) bool {
	underWay := s.State == Booting || s.State == Live && s.Token != ""
	return underWay && s.Reads == 0 && m.deps.Now().Sub(s.Minted) < m.cfg.SameBoot
}

// begin starts one more boot of an installer, or holds the host after too many.
func (m *Machine) begin(ctx context.Context, h *lab.Host, s Status) (Ticket, error) {
	if m.loops(s) {
		s.Held = true
		if err := m.put(ctx, h.Name, s); err != nil {
			return Ticket{}, err
		}
		m.emit(event.InstallLoop, h, fmt.Sprintf("%d boots and not installed; arm it again with: bootlab install %s", s.Attempts, h.Name))
		return Ticket{LocalBoot: true, Held: true}, nil
	}
	now := m.deps.Now()
	if s.State == Installed { // install: always
		s.Attempts = 0
	}
	next := Status{State: Booting, Since: now, Attempts: s.Attempts + 1, Token: rand.Text(), Minted: now}
	if s.State == Live {
		next.State, next.Attempts = Live, 0
	}
	if err := m.put(ctx, h.Name, next); err != nil {
		return Ticket{}, err
	}
	if next.State == Booting {
		m.emit(event.InstallBooting, h, h.Profile.Name)
	}
	return Ticket{Token: next.Token}, nil
}

// loops reports whether one more boot would only go on with an endless install. A live system boots as often as it likes.
func (m *Machine) loops(s Status) bool {
	return s.State != Installed && s.Attempts >= m.cfg.Attempts
}

// Authorize reports whether token may read the config document of h now; reads is how many complete reads one boot may
// make, 0 for any number. It returns ErrState, ErrToken or ErrReads.
func (m *Machine) Authorize(h *lab.Host, token string, reads int) error {
	s := m.status(h)
	if s.Token == "" || s.State == Armed || s.State == Installed {
		return ErrState
	}
	if !sameToken(s.Token, token) {
		return ErrToken
	}
	if reads > 0 && s.Reads >= reads {
		return ErrReads
	}
	return nil
}

// ConfigRead is called after a complete read of the config document: the install has begun.
func (m *Machine) ConfigRead(ctx context.Context, h *lab.Host, token string) error {
	m.transition.Lock()
	defer m.transition.Unlock()
	s := m.status(h)
	if !sameToken(s.Token, token) {
		return ErrToken
	}
	s.Reads++
	began := s.State == Booting
	if began {
		s.State, s.Since = Installing, m.deps.Now()
	}
	if err := m.put(ctx, h.Name, s); err != nil {
		return err
	}
	if began {
		m.emit(event.InstallStarted, h, h.Profile.Name)
	}
	return nil
}

// Done is called when the installer says that it is done. Saying it twice is no error.
func (m *Machine) Done(ctx context.Context, h *lab.Host, token string) error {
	m.transition.Lock()
	defer m.transition.Unlock()
	s := m.status(h)
	if s.Token == "" {
		return ErrState
	}
	if !sameToken(s.Token, token) {
		return ErrToken
	}
	if s.State == Installed || s.State == Live {
		return nil
	}
	_, err := m.finish(ctx, h, s, "")
	return err
}

// finish makes the host installed. Its token stays, so that a repeated call is recognised, but reads nothing any more.
func (m *Machine) finish(ctx context.Context, h *lab.Host, s Status, why string) (Status, error) {
	done := Status{State: Installed, Since: m.deps.Now(), Token: s.Token}
	if err := m.put(ctx, h.Name, done); err != nil {
		return s, err
	}
	m.emit(event.InstallDone, h, why)
	return done, nil
}

// Arm makes the next boot of h install it, whatever came before.
func (m *Machine) Arm(ctx context.Context, h *lab.Host) error {
	if h.Profile == nil {
		return fmt.Errorf("%s has no profile: nothing to install", h.Name)
	}
	if h.Profile.Install == lab.InstallNever {
		return fmt.Errorf("%s boots profile %s, which installs nothing (install: never)", h.Name, h.Profile.Name)
	}
	m.transition.Lock()
	defer m.transition.Unlock()
	if err := m.put(ctx, h.Name, Status{State: Armed, Since: m.deps.Now()}); err != nil {
		return err
	}
	m.emit(event.InstallArmed, h, h.Profile.Name)
	return nil
}

// put makes s durable, then visible.
func (m *Machine) put(ctx context.Context, host string, s Status) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode install state of %s: %w", host, err)
	}
	if err := m.deps.Store.Commit(ctx, store.Put(keyPrefix+host, b)); err != nil {
		return fmt.Errorf("keep install state of %s: %w", host, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states[host] = s
	return nil
}

func (m *Machine) emit(k event.Kind, h *lab.Host, detail string) {
	e := event.Event{Kind: k, Host: h.Name, Detail: detail}
	if len(h.MACs) > 0 {
		e.MAC = h.MACs[0]
	}
	m.deps.Events.Record(e)
}

// sameToken compares in constant time; an empty token matches nothing.
func sameToken(want, got string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(want), []byte(got)) == 1
}
