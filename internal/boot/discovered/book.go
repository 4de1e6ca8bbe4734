package discovered

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/host/required"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
)

// keyPrefix is followed by the MAC.
const keyPrefix = "discovered/"

// A Config bounds a book. The zero Config is the documented default.
type Config struct {
	Machines int           // kept; the one with the oldest report is evicted (default 256)
	Save     time.Duration // how often an unchanged report is saved (default 1 min)
}

// Deps are what a Book needs; all are required.
type Deps struct {
	Store store.Store
	Log   *slog.Logger
	Now   func() time.Time
}

// A Machine is an unknown machine.
type Machine struct {
	MAC   lab.MAC    `json:"mac"`
	Addr  netip.Addr `json:"addr,omitzero"` // of its last report
	First time.Time  `json:"first"`         // report
	Last  time.Time  `json:"last"`          // report
	Facts Facts      `json:"facts"`
}

// A Book keeps unknown machines. It is safe for concurrent use. It owns the keys below "discovered/".
type Book struct {
	cfg  Config
	deps Deps

	changing sync.Mutex // held while a report is stored: who reads does not wait for the disk

	mu       sync.Mutex
	machines map[lab.MAC]*entry
}

type entry struct {
	Machine
	saved time.Time // Last, as the store has it
}

// Open reads the machines from the store. A key that cannot be read is logged and skipped.
func Open(ctx context.Context, cfg Config, deps Deps) (*Book, error) {
	required.Fields(deps)
	cfg.Machines, cfg.Save = cmp.Or(cfg.Machines, 256), cmp.Or(cfg.Save, time.Minute)
	b := &Book{cfg: cfg, deps: deps, machines: map[lab.MAC]*entry{}}
	err := deps.Store.Scan(ctx, keyPrefix, func(key string, value []byte) error {
		var m Machine
		if err := json.Unmarshal(value, &m); err != nil || keyPrefix+m.MAC.String() != key {
			deps.Log.Warn("report of an unknown machine not readable", "key", key, "err", err)
			return nil
		}
		b.machines[m.MAC] = &entry{m, m.Last}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read unknown machines: %w", err)
	}
	return b, nil
}

// Report keeps the report of a machine. It returns whether that is a change: the machine is new, or its report differs. A change is durable when
// Report returns.
func (b *Book) Report(ctx context.Context, mac lab.MAC, addr netip.Addr, f Facts) (changed bool, err error) {
	b.changing.Lock()
	defer b.changing.Unlock()
	now := b.deps.Now()
	next := entry{Machine: Machine{MAC: mac, Addr: addr, First: now, Last: now, Facts: f}}
	b.mu.Lock()
	before, oldest := b.machines[mac], b.oldestLocked(mac)
	b.mu.Unlock()
	if before != nil {
		next.First, next.saved = before.First, before.saved
	}
	changed = before == nil || !before.Facts.Equal(f) || before.Addr != addr
	if changed || now.Sub(next.saved) >= b.cfg.Save {
		if err := b.save(ctx, &next, oldest); err != nil {
			return false, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if oldest != nil {
		delete(b.machines, oldest.MAC)
	}
	b.machines[mac] = &next
	return changed, nil
}

// save stores a machine, in place of another where there are too many.
func (b *Book) save(ctx context.Context, e, oldest *entry) error {
	value, err := json.Marshal(e.Machine)
	if err != nil {
		return fmt.Errorf("encode unknown machine %s: %w", e.MAC, err)
	}
	txn := store.Put(keyPrefix+e.MAC.String(), value)
	if oldest != nil {
		txn.Then = append(txn.Then, store.Op{Key: keyPrefix + oldest.MAC.String(), Delete: true})
	}
	if err := b.deps.Store.Commit(ctx, txn); err != nil {
		return fmt.Errorf("keep unknown machine %s: %w", e.MAC, err)
	}
	e.saved = e.Last
	return nil
}

// oldestLocked returns the machine to evict for one with that MAC, or nil.
func (b *Book) oldestLocked(mac lab.MAC) (oldest *entry) {
	if b.machines[mac] != nil || len(b.machines) < b.cfg.Machines {
		return nil
	}
	for _, e := range b.machines {
		if oldest == nil || e.Last.Before(oldest.Last) {
			oldest = e
		}
	}
	return oldest
}

// Get returns the last report of a machine.
func (b *Book) Get(mac lab.MAC) (Machine, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.machines[mac]
	if e == nil {
		return Machine{}, false
	}
	return e.Machine, true
}

// All returns all machines, the latest report first.
func (b *Book) All() []Machine {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]Machine, 0, len(b.machines))
	for _, e := range b.machines {
		all = append(all, e.Machine)
	}
	slices.SortFunc(all, func(x, y Machine) int {
		return cmp.Or(y.Last.Compare(x.Last), x.MAC.Compare(y.MAC))
	})
	return all
}
