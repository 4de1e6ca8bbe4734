package serverstate

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/records"
)

// updatePrefix is below which the RRsets of dynamic updates are in the store, by zone, name and type.
const updatePrefix = "dnsupdate/"

// Updates are what dynamic updates have put into zones. A disk that hangs delays updates, and no reload.
// They are safe for concurrent use.
type Updates struct {
	store    store.Store
	log      *slog.Logger
	changing sync.Mutex // held while a change is planned and stored

	mu    sync.Mutex
	zones map[string][]dnsd.RRSet // by origin, sorted by name and type. A list is replaced, not changed
	over  map[string]int          // RRsets that the store has beyond the limits, by origin: only the store has them
}

// OpenUpdates reads them from the store.
func OpenUpdates(ctx context.Context, s store.Store, log *slog.Logger) (*Updates, error) {
	u := &Updates{store: s, log: log}
	return u, u.read(ctx)
}

// read reads what the store has. What is more than updates may make stays there and is not served.
func (u *Updates) read(ctx context.Context) error {
	zones, over := map[string][]dnsd.RRSet{}, map[string]int{}
	quota := dnsd.NewUpdateQuota()
	err := records.Read(ctx, u.store, updatePrefix, func(key string, set dnsd.RRSet) error {
		switch err := set.Check(); {
		case err != nil:
			return err
		case Key(set) != updatePrefix+key:
			return fmt.Errorf("the record is that of %s", Key(set))
		case quota.Take(&set):
			zones[set.Zone] = append(zones[set.Zone], set)
		default:
			over[set.Zone]++
		}
		return nil
	})
	for _, sets := range zones {
		slices.SortFunc(sets, dnsd.RRSet.Compare)
	}
	for _, origin := range slices.Sorted(maps.Keys(over)) {
		u.log.Error("the state has more dynamic updates than a zone or all zones may have: some are not served; bootlab dns updates delete removes them",
			"zone", origin, "rrsets", over[origin])
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.zones, u.over = zones, over
	return err
}

// Key returns where the store has an RRset.
func Key(s dnsd.RRSet) string { return updatePrefix + s.Zone + "|" + s.Name + "|" + s.Type }

// updateOfKey is the opposite of Key. A name may hold a |, a zone of the lab file and a type do not.
func updateOfKey(key string) (dnsd.RRSet, bool) {
	rest, ours := strings.CutPrefix(key, updatePrefix)
	zone, rest, _ := strings.Cut(rest, "|")
	at := strings.LastIndexByte(rest, '|')
	if !ours || at < 0 {
		return dnsd.RRSet{}, false
	}
	return dnsd.RRSet{Zone: zone, Name: rest[:at], Type: rest[at+1:]}, true
}

// Warnings returns what is wrong with the updates that the store has.
func (u *Updates) Warnings() (all []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, origin := range slices.Sorted(maps.Keys(u.over)) {
		all = append(all, fmt.Sprintf("dns.zones.%s: %d RRsets of dynamic updates are not served: the state has more than a zone, or all zones, may have; bootlab dns updates delete removes them",
			strings.TrimSuffix(origin, "."), u.over[origin]))
	}
	return all
}

// List returns all RRsets, sorted by zone, name and type.
func (u *Updates) List() (all []dnsd.RRSet) {
	if u == nil {
		return nil // before the store is open
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, origin := range slices.Sorted(maps.Keys(u.zones)) {
		all = append(all, u.zones[origin]...)
	}
	return all
}

// Of returns the RRsets of a zone, sorted. The caller must not change them.
func (u *Updates) Of(origin string) []dnsd.RRSet {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.zones[origin]
}

// Change stores what plan returns, then calls use with it. Changes come one after the other.
func (u *Updates) Change(ctx context.Context, plan func() ([]dnsd.RRSet, error), use func(changed []dnsd.RRSet) error) error {
	u.changing.Lock()
	defer u.changing.Unlock()
	changed, err := plan()
	if err != nil || len(changed) == 0 {
		return err
	}
	if err := u.keep(ctx, changed); err != nil {
		return err
	}
	return use(changed)
}

// Delete deletes the RRsets of a name, then calls use with what has changed, and returns how many there were. The type may be empty: then all
// types of the name. It also deletes what the store has beyond the limits.
func (u *Updates) Delete(ctx context.Context, name, rtype string, use func(changed []dnsd.RRSet) error) (int, error) {
	u.changing.Lock()
	defer u.changing.Unlock()
	var keys []string
	err := u.store.Scan(ctx, updatePrefix, func(key string, _ []byte) error {
		keys = append(keys, key)
		return nil
	})
	if err != nil {
		return 0, err
	}
	gone, err := Named(keys, name, rtype)
	if err != nil {
		return 0, err
	}
	if err := u.keep(ctx, gone); err != nil {
		return 0, err
	}
	u.log.Info("records of dynamic updates deleted by the admin", "name", name, "rrsets", len(gone))
	if len(u.Warnings()) > 0 { // some of those that had no room may have it now
		if err := u.read(ctx); err != nil {
			return 0, err
		}
		return len(gone), use(append(gone, u.List()...))
	}
	return len(gone), use(gone)
}

// keep stores RRsets. Those without data are deleted. The caller holds changing.
func (u *Updates) keep(ctx context.Context, changed []dnsd.RRSet) error {
	var txn store.Txn
	for _, set := range changed {
		if len(set.Data) == 0 {
			txn.Then = append(txn.Then, store.Op{Key: Key(set), Delete: true})
			continue
		}
		value, err := json.Marshal(set)
		if err != nil {
			return err
		}
		txn.Then = append(txn.Then, store.Op{Key: Key(set), Value: value})
	}
	if err := u.store.Commit(ctx, txn); err != nil {
		return fmt.Errorf("store a dynamic update: %w", err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for origin, sets := range ByZone(changed) {
		u.zones[origin] = merged(u.zones[origin], sets)
	}
	return nil
}

// ByZone groups RRsets by their zone, sorted.
func ByZone(sets []dnsd.RRSet) map[string][]dnsd.RRSet {
	zones := map[string][]dnsd.RRSet{}
	for _, set := range sets {
		zones[set.Zone] = append(zones[set.Zone], set)
	}
	for _, sets := range zones {
		slices.SortFunc(sets, dnsd.RRSet.Compare)
	}
	return zones
}

// merged returns the RRsets of a zone with changed ones in their places. Both are sorted.
func merged(before, changed []dnsd.RRSet) []dnsd.RRSet {
	after := make([]dnsd.RRSet, 0, len(before)+len(changed))
	for len(before)+len(changed) > 0 {
		order := -1
		switch {
		case len(before) == 0:
			order = 1
		case len(changed) > 0:
			order = before[0].Compare(changed[0])
		}
		if order < 0 {
			after, before = append(after, before[0]), before[1:]
			continue
		}
		if order == 0 {
			before = before[1:]
		}
		if len(changed[0].Data) > 0 {
			after = append(after, changed[0])
		}
		changed = changed[1:]
	}
	return after
}

// Named returns the RRsets of a name, without their data, among keys of the store.
func Named(keys []string, name, rtype string) (sets []dnsd.RRSet, err error) {
	if name == "" {
		return nil, &api.Error{Status: http.StatusBadRequest, Message: "name is missing", Hint: "bootlab dns updates lists the names"}
	}
	for _, key := range keys {
		set, ok := updateOfKey(key)
		if ok && (api.DNSUpdate{Name: set.Name, Type: set.Type}).OfName(name, rtype) {
			sets = append(sets, set)
		}
	}
	if len(sets) == 0 {
		name = strings.ToLower(strings.TrimSuffix(name, ".")) + "."
		return nil, &api.Error{Status: http.StatusNotFound, Message: "no dynamic update made " + strings.TrimSpace(name+" "+rtype), Hint: "bootlab dns updates lists them"}
	}
	return sets, nil
}
