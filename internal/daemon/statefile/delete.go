package statefile

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/serverstate"
	"github.com/bootlab/bootlab/internal/store"
)

// DeleteDNSUpdates is what DeleteDNSUpdate of the API does, for a daemon that does not run.
func (s *State) DeleteDNSUpdates(ctx context.Context, name, rtype string) (deleted api.DNSUpdatesDeleted, err error) {
	gone, err := serverstate.Named(slices.Collect(maps.Keys(s.Entries)), name, rtype)
	if err != nil {
		return deleted, err
	}
	for key := range s.Entries {
		if s.Damage != "" || strings.HasPrefix(key, store.OwnPrefix) {
			return deleted, errors.New("the state has lost changes, which the daemon has to deal with: start it, then delete the updates")
		}
	}
	for _, set := range gone {
		delete(s.Entries, serverstate.Key(set))
	}
	deleted.Kept, err = s.held.Replace(ctx, maps.All(s.Entries))
	deleted.Deleted = len(gone)
	return deleted, err
}
