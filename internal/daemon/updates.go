package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/records"
)

// updatePrefix is below which the RRsets of dynamic updates are in the store, by zone, name and type.
const updatePrefix = "dnsupdate/"

// dnsUpdates are what dynamic updates have put into zones. A disk that hangs delays updates, and no reload.
type dnsUpdates struct {
	store    store.Store
	changing sync.Mutex // held while a change is planned and stored

	mu    sync.Mutex
	zones map[string][]dnsd.RRSet // by origin, sorted by name and type. A list is replaced, not changed
	over  map[string]int          // RRsets that the store has beyond the limits, by origin: only the store has them
}

// openDNSUpdates reads them from the store.
func openDNSUpdates(ctx context.Context, s store.Store, log *slog.Logger) (*dnsUpdates, error) {
	u := &dnsUpdates{store: s}
	return u, u.read(ctx, log)
}

// read reads what the store has. What is more than updates may make stays there and is not served.
func (u *dnsUpdates) read(ctx context.Context, log *slog.Logger) error {
	zones, over := map[string][]dnsd.RRSet{}, map[string]int{}
	room := dnsd.NewUpdateRoom()
	err := records.Read(ctx, u.store, updatePrefix, func(key string, set dnsd.RRSet) error {
		switch err := set.Check(); {
		case err != nil:
			return err
		case updateKey(set) != updatePrefix+key:
			return fmt.Errorf("the record is that of %s", updateKey(set))
		case room.Take(&set):
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
		log.Error("the state has more dynamic updates than a zone or all zones may have: some are not served; bootlab dns updates delete removes them",
			"zone", origin, "rrsets", over[origin])
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.zones, u.over = zones, over
	return err
}

func updateKey(s dnsd.RRSet) string { return updatePrefix + s.Zone + "|" + s.Name + "|" + s.Type }

// updateOfKey is the opposite of updateKey. A name may hold a |, a zone of the lab file and a type do not.
func updateOfKey(key string) (dnsd.RRSet, bool) {
	rest, ours := strings.CutPrefix(key, updatePrefix)
	zone, rest, _ := strings.Cut(rest, "|")
	at := strings.LastIndexByte(rest, '|')
	if !ours || at < 0 {
		return dnsd.RRSet{}, false
	}
	return dnsd.RRSet{Zone: zone, Name: rest[:at], Type: rest[at+1:]}, true
}

// warnings returns what is wrong with the updates that the store has.
func (u *dnsUpdates) warnings() (all []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, origin := range slices.Sorted(maps.Keys(u.over)) {
		all = append(all, fmt.Sprintf("dns.zones.%s: %d RRsets of dynamic updates are not served: the state has more than a zone, or all zones, may have; bootlab dns updates delete removes them",
			strings.TrimSuffix(origin, "."), u.over[origin]))
	}
	return all
}

// list returns all RRsets, sorted by zone, name and type.
func (u *dnsUpdates) list() (all []dnsd.RRSet) {
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

// of returns the RRsets of a zone, sorted. The caller must not change them.
func (u *dnsUpdates) of(origin string) []dnsd.RRSet {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.zones[origin]
}

// keep stores RRsets. Those without data are deleted. The caller holds changing.
func (u *dnsUpdates) keep(ctx context.Context, changed []dnsd.RRSet) error {
	var txn store.Txn
	for _, set := range changed {
		if len(set.Data) == 0 {
			txn.Then = append(txn.Then, store.Op{Key: updateKey(set), Delete: true})
			continue
		}
		value, err := json.Marshal(set)
		if err != nil {
			return err
		}
		txn.Then = append(txn.Then, store.Op{Key: updateKey(set), Value: value})
	}
	if err := u.store.Commit(ctx, txn); err != nil {
		return fmt.Errorf("store a dynamic update: %w", err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for origin, sets := range byZone(changed) {
		u.zones[origin] = merged(u.zones[origin], sets)
	}
	return nil
}

// byZone groups RRsets by their zone, sorted.
func byZone(sets []dnsd.RRSet) map[string][]dnsd.RRSet {
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

// updater does dynamic updates for dnsd.
type updater struct{ d *Daemon }

// Update implements dnsd.Updates.
func (u updater) Update(ctx context.Context, plan func(*dnsd.Table) ([]dnsd.RRSet, error)) error {
	u.d.updates.changing.Lock()
	defer u.d.updates.changing.Unlock()
	changed, err := plan(u.d.current.Load().DNS)
	if err != nil || len(changed) == 0 {
		return err
	}
	if err := u.d.updates.keep(ctx, changed); err != nil {
		return err
	}
	return u.d.useUpdates(changed)
}

// useUpdates makes dnsd answer with what dynamic updates have stored. Only the zones that have changed are compiled again.
func (d *Daemon) useUpdates(changed []dnsd.RRSet) error {
	d.reloads.running.Lock()
	defer d.reloads.running.Unlock()
	snap := *d.current.Load()
	for origin := range byZone(changed) {
		learned := dnsd.Learned{Usable: d.usableBackends(snap.Lab)}
		if snap.DNS.TransfersLeasesOf(origin) {
			learned.Leases, learned.Leased = leaseNames{d}, d.leasedAddrs
		}
		snap.DNS = snap.DNS.WithUpdates(origin, d.updates.of(origin), learned)
	}
	snap.DNS = d.serials.assign(snap.DNS)
	d.current.Store(&snap)
	return nil
}

// DNSUpdates implements httpd.Backend.
func (c *adminBackend) DNSUpdates(context.Context) []api.DNSUpdate {
	all := c.updates.list()
	out := []api.DNSUpdate{}
	table := c.current.Load().DNS
	for _, set := range all {
		out = append(out, api.DNSUpdate{Zone: set.Zone, Name: set.Name, Type: set.Type, TTL: set.TTL, Records: set.Records(),
			Key: strings.TrimSuffix(set.Key, "."), At: set.At, Served: table.Serves(set)})
	}
	return out
}

// CompileUpdated returns the snapshot of a lab with what the API of a daemon lists of dynamic updates.
func CompileUpdated(l *lab.Lab, all []api.DNSUpdate) (*snapshot.Snapshot, error) {
	sets := make([]dnsd.RRSet, len(all))
	for i, u := range all {
		sets[i] = dnsd.RRSet{Zone: u.Zone, Name: u.Name, Type: u.Type, TTL: u.TTL, Key: u.Key, At: u.At}
		if err := sets[i].ParseRecords(u.Records); err != nil {
			return nil, fmt.Errorf("read dynamic updates: %w", err)
		}
	}
	return snapshot.Compile(l, sets...)
}
