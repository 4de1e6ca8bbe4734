package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
)

// updatePrefix is below which the RRsets of dynamic updates are in the store, by zone, name and type.
const updatePrefix = "dnsupdate/"

// dnsUpdates are what dynamic updates have put into zones. A disk that hangs delays updates, and no reload.
type dnsUpdates struct {
	store    store.Store
	changing sync.Mutex // held while a change is planned and stored

	mu   sync.Mutex
	sets map[string]dnsd.RRSet // by key in the store
}

// openDNSUpdates reads them from the store.
func openDNSUpdates(ctx context.Context, s store.Store) (*dnsUpdates, error) {
	u := &dnsUpdates{store: s, sets: map[string]dnsd.RRSet{}}
	err := readRecords(ctx, s, updatePrefix, func(key string, value []byte) error {
		var set dnsd.RRSet
		err := json.Unmarshal(value, &set)
		if err == nil {
			u.sets[updatePrefix+key] = set
		}
		return err
	})
	return u, err
}

func updateKey(s dnsd.RRSet) string { return updatePrefix + s.Zone + "|" + s.Name + "|" + s.Type }

// list returns all RRsets, sorted by zone, name and type.
func (u *dnsUpdates) list() []dnsd.RRSet {
	if u == nil {
		return nil // before the store is open
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make([]dnsd.RRSet, 0, len(u.sets))
	for _, set := range u.sets {
		all = append(all, set)
	}
	slices.SortFunc(all, func(a, b dnsd.RRSet) int {
		return cmp.Or(strings.Compare(a.Zone, b.Zone), strings.Compare(a.Name, b.Name), strings.Compare(a.Type, b.Type))
	})
	return all
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
	for _, set := range changed {
		if len(set.Data) == 0 {
			delete(u.sets, updateKey(set))
		} else {
			u.sets[updateKey(set)] = set
		}
	}
	return nil
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
	return u.d.useUpdates()
}

// useUpdates makes dnsd answer with what dynamic updates have stored.
func (d *Daemon) useUpdates() error {
	d.reloads.running.Lock()
	defer d.reloads.running.Unlock()
	snap := *d.current.Load()
	table, err := dnsd.CompileUpdated(snap.Lab, os.ReadFile, d.updates.list())
	if err != nil {
		return err
	}
	snap.DNS = d.dnsTable(snap.Lab, table)
	d.current.Store(&snap)
	return nil
}

// DNSUpdates implements httpd.Names.
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

// DeleteDNSUpdate implements httpd.Names. The type may be empty: then all types of the name.
func (c *adminBackend) DeleteDNSUpdate(ctx context.Context, name, rtype string) (api.DNSUpdatesDeleted, error) {
	if name == "" {
		return api.DNSUpdatesDeleted{}, &api.Error{Status: http.StatusBadRequest, Message: "name is missing", Hint: "bootlab dns updates lists the names"}
	}
	c.updates.changing.Lock()
	defer c.updates.changing.Unlock()
	var gone []dnsd.RRSet
	name = strings.ToLower(strings.TrimSuffix(name, ".")) + "."
	for _, set := range c.updates.list() {
		if set.Name == name && (rtype == "" || strings.EqualFold(set.Type, rtype)) {
			set.Data = nil
			gone = append(gone, set)
		}
	}
	if len(gone) == 0 {
		return api.DNSUpdatesDeleted{}, &api.Error{Status: http.StatusNotFound, Message: "no dynamic update made " + strings.TrimSpace(name+" "+rtype), Hint: "bootlab dns updates lists them"}
	}
	if err := c.updates.keep(ctx, gone); err != nil {
		return api.DNSUpdatesDeleted{}, err
	}
	c.log.Info("records of dynamic updates deleted by the admin", "name", name, "rrsets", len(gone))
	return api.DNSUpdatesDeleted{Deleted: len(gone)}, c.useUpdates()
}
