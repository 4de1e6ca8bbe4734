package daemon

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/store"
)

// DeleteDNSUpdate implements httpd.Backend. The type may be empty: then all types of the name. It also deletes what the store has beyond the
// limits.
func (c *adminBackend) DeleteDNSUpdate(ctx context.Context, name, rtype string) (api.DNSUpdatesDeleted, error) {
	c.updates.changing.Lock()
	defer c.updates.changing.Unlock()
	var keys []string
	err := c.updates.store.Scan(ctx, updatePrefix, func(key string, _ []byte) error {
		keys = append(keys, key)
		return nil
	})
	if err != nil {
		return api.DNSUpdatesDeleted{}, err
	}
	gone, err := updatesOf(keys, name, rtype)
	if err != nil {
		return api.DNSUpdatesDeleted{}, err
	}
	if err := c.updates.keep(ctx, gone); err != nil {
		return api.DNSUpdatesDeleted{}, err
	}
	c.log.Info("records of dynamic updates deleted by the admin", "name", name, "rrsets", len(gone))
	if len(c.updates.warnings()) > 0 { // some of those that had no room may have it now
		if err := c.updates.read(ctx, c.log); err != nil {
			return api.DNSUpdatesDeleted{}, err
		}
		return api.DNSUpdatesDeleted{Deleted: len(gone)}, c.useUpdates(append(gone, c.updates.list()...))
	}
	return api.DNSUpdatesDeleted{Deleted: len(gone)}, c.useUpdates(gone)
}

// DeleteDNSUpdates is what DeleteDNSUpdate of the API does, for a daemon that does not run.
func (s *State) DeleteDNSUpdates(ctx context.Context, name, rtype string) (deleted api.DNSUpdatesDeleted, err error) {
	gone, err := updatesOf(slices.Collect(maps.Keys(s.Entries)), name, rtype)
	if err != nil {
		return deleted, err
	}
	for key := range s.Entries {
		if s.Damage != "" || strings.HasPrefix(key, store.OwnPrefix) {
			return deleted, errors.New("the state has lost changes, which the daemon has to deal with: start it, then delete the updates")
		}
	}
	for _, set := range gone {
		delete(s.Entries, updateKey(set))
	}
	deleted.Kept, err = s.held.Replace(ctx, maps.All(s.Entries))
	deleted.Deleted = len(gone)
	return deleted, err
}

// updatesOf returns the RRsets of a name, without their data, among keys of the store.
func updatesOf(keys []string, name, rtype string) (sets []dnsd.RRSet, err error) {
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
