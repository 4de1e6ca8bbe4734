package install

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/host/required"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/store"
)

// keyPrefix is followed by the name of the host.
const keyPrefix = "install/"

// A Config sets the limits of a Machine. The zero Config is the documented default.
type Config struct {
	// Attempts is how many boots may fail to finish an install before the host is held (default 5).
	Attempts int
}

const (
	// sameBoot is how long after its script a machine may request it again within one boot, as iPXE does that tries autoexec.ipxe first.
	sameBoot = 20 * time.Second
	// minInstall is the shortest install: a host whose installer cannot call back counts as installed when it requests its script
	// again, or its system an address, later than that after it read its config document.
	minInstall = time.Minute
	// tokenLife is for how long after its script a boot may read its config document.
	tokenLife = 24 * time.Hour
)

// Deps are what a Machine needs. All but Wall and Damage are required.
type Deps struct {
	Store  store.Store
	Events event.Recorder
	// Now counts the time that passes. A system clock that is set, and a restart after it, must neither end an install nor make a new
	// one of the first boot after it.
	Now func() time.Time
	// Wall returns what the system clock shows at a time of Now, for people; nil: the same.
	Wall func(time.Time) time.Time
	// Damage is what the store has lost, if changes of install states may be among it and that is not accepted yet. A host whose state is
	// store.Doubtful is then Unknown, unless it is installed.
	Damage *Loss
}

// A Machine holds the install status of every host. It is safe for concurrent use. It owns the keys below "install/".
type Machine struct {
	cfg  Config
	deps Deps

	locks hostLocks // of hosts, to make a transition

	mu      sync.RWMutex
	states  states
	plain   map[string]tokens // by host name; the store has their hashes only
	reading map[sum]int       // reads under way that count, by the first token of their boot
	lost    *Loss             // not accepted yet; nil: none
	damage  *Loss             // likewise, of the hosts whose state is doubtful
}

// tokens are those in the scripts of a host; empty: none, or one that a daemon before this one made.
type tokens struct {
	boot      string // of the boot under way
	requested string // of the requested boot
}

// Open reads all states from the store.
func Open(ctx context.Context, cfg Config, deps Deps) (*Machine, error) {
	required.Fields(deps, "Wall", "Damage")
	if deps.Wall == nil {
		deps.Wall = func(t time.Time) time.Time { return t }
	}
	m := &Machine{cfg: Config{Attempts: cmp.Or(cfg.Attempts, 5)}, deps: deps, damage: deps.Damage, states: newStates(),
		plain: map[string]tokens{}, reading: map[sum]int{}}
	var bad store.Undecodable
	err := deps.Store.Scan(ctx, keyPrefix, func(key string, value []byte) error {
		host := strings.TrimPrefix(key, keyPrefix)
		s, err := decode(host, value)
		if err != nil {
			bad.Add(key, err)
			m.damage = cmp.Or(m.damage, &Loss{Since: deps.Wall(deps.Now()), Why: "stored install states cannot be decoded: " + err.Error()})
			return nil
		}
		m.states.set(host, s) // nobody else has m yet
		return nil
	})
	if err == nil {
		err = bad.MarkLost(deps.Store)
	}
	if err == nil {
		err = m.readLoss(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("read install states: %w", err)
	}
	return m, nil
}

// Status returns the status of h, without its tokens, with times of the system clock.
func (m *Machine) Status(h *lab.Host) Status { return m.public(m.status(h)) }

// FromDisk reports whether h would be sent to its own disk if it requested its script by that NIC now.
func (m *Machine) FromDisk(h *lab.Host, nic lab.MAC) bool { return m.script(h, m.status(h), nic).disk }

// All returns the status of every host that ever booted or was armed, as Status does.
func (m *Machine) All() map[string]Status {
	all := m.all()
	for host, s := range all {
		all[host] = m.public(s)
	}
	return all
}

func (m *Machine) all() map[string]Status {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return maps.Clone(m.states.of)
}

// public returns s without its tokens, with times of the system clock. An Unknown status, which is never stored, has one already.
func (m *Machine) public(s Status) Status {
	s.Tokens, s.Requested = nil, nil
	if s.State == Unknown {
		return s
	}
	for _, t := range []*time.Time{&s.Since, &s.Deadline, &s.Minted} {
		if !t.IsZero() {
			*t = m.deps.Wall(*t)
		}
	}
	return s
}

// status returns the status of h under its profile of today.
func (m *Machine) status(h *lab.Host) Status {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.statusLocked(h)
}

func (m *Machine) statusLocked(h *lab.Host) Status {
	s, known := m.states.of[h.Name]
	start := initial(h)
	loss := m.lost
	other := ""
	if known && s.ofAnother(h) {
		known, other = false, "the machine with the MAC "+s.MACs[0].String()
		loss = &Loss{Since: m.deps.Wall(s.Since), Why: "the state of this name is that of " + other}
	} else if !known {
		if other = m.elsewhereLocked(h); other != "" {
			loss = &Loss{Since: m.deps.Wall(m.states.of[other].Since), Why: "this machine has a state as " + other}
		}
	}
	if s.State != Installed && m.doubtful(h.Name) {
		known, loss = false, m.damage // it may have been installed since
	}
	switch {
	case known && (start.State == Live) == (s.State == Live):
		return s
	case loss != nil && start.State != Live && h.Profile.Install == lab.InstallOnce:
		return Status{State: Unknown, Since: loss.Since, Why: loss.Why, Other: other}
	}
	return start
}

// deadline returns when an install of h that begins now reaches its install_timeout.
func deadline(h *lab.Host, now time.Time) time.Time {
	if h.Profile == nil || h.Profile.InstallTimeout <= 0 {
		return time.Time{}
	}
	return now.Add(h.Profile.InstallTimeout)
}

// Arm makes the next boot of h install it, whatever its state. The token of an installer that is running is revoked.
func (m *Machine) Arm(ctx context.Context, h *lab.Host) error {
	if err := installs(h); err != nil {
		return err
	}
	return m.transition(ctx, h, func(s Status) error {
		if err := m.put(ctx, h, s, Status{State: Armed, Since: m.deps.Now()}, tokens{}); err != nil {
			return err
		}
		m.emit(event.InstallArmed, h, h.Profile.Name)
		return nil
	})
}

// transition calls step with the status of h, while h makes no other transition.
func (m *Machine) transition(ctx context.Context, h *lab.Host, step func(s Status) error) error {
	end, err := m.locks.take(ctx, h.Name)
	if err != nil {
		return err
	}
	defer end()
	return step(m.status(h))
}

// installs returns an error for a host that has nothing to install.
func installs(h *lab.Host) error {
	switch {
	case h.Profile == nil:
		return fmt.Errorf("%s has no profile: nothing to install", h.Name)
	case h.Profile.MakesDisk():
		return fmt.Errorf("%s is made from the image of profile %s, and nothing installs it: bootlab vm delete --disks %[1]s, then bootlab vm create %[1]s, make it again", h.Name, h.Profile.Name)
	case h.Profile.Install == lab.InstallNever:
		return fmt.Errorf("%s boots profile %s, which installs nothing (install: never)", h.Name, h.Profile.Name)
	}
	return nil
}

// put makes the step from s to next durable, then visible. plain are the tokens of next. A step that the table of transitions does
// not have is refused with ErrState.
func (m *Machine) put(ctx context.Context, h *lab.Host, s, next Status, plain tokens) error {
	if !s.State.may(next.State) {
		return fmt.Errorf("%s cannot become %s, it is %s: %w", h.Name, next.State, s.State, ErrState)
	}
	if next.MACs = s.MACs; len(s.MACs) == 0 {
		next.MACs = h.AllMACs()
	}
	b, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("encode install state of %s: %w", h.Name, err)
	}
	if err := m.deps.Store.Commit(ctx, store.Put(keyPrefix+h.Name, b)); err != nil {
		return fmt.Errorf("keep install state of %s: %w", h.Name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states.set(h.Name, next)
	m.plain[h.Name] = plain
	if plain == (tokens{}) {
		delete(m.plain, h.Name)
	}
	return nil
}

func (m *Machine) plainOf(h *lab.Host) tokens {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.plain[h.Name]
}

func (m *Machine) emit(k event.Kind, h *lab.Host, detail string) {
	m.record(event.Event{Kind: k, Detail: detail}, h)
}

// record records e, which is about h.
func (m *Machine) record(e event.Event, h *lab.Host) {
	e.Host = h.Name
	if len(h.MACs) > 0 {
		e.MAC = h.MACs[0]
	}
	m.deps.Events.Record(e)
}
