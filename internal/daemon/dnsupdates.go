package daemon

import (
	"context"
	"fmt"
	"strings"

	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/serverstate"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
)

// updater does dynamic updates for dnsd.
type updater struct{ d *Daemon }

// Update implements dnsd.Updates.
func (u updater) Update(ctx context.Context, plan func(*dnsd.Table) ([]dnsd.RRSet, error)) error {
	return u.d.updates.Change(ctx, func() ([]dnsd.RRSet, error) { return plan(u.d.current.Load().DNS) }, u.d.useUpdates)
}

// useUpdates makes dnsd answer with what dynamic updates have stored. Only the zones that have changed are compiled again.
func (d *Daemon) useUpdates(changed []dnsd.RRSet) error {
	d.reloads.running.Lock()
	defer d.reloads.running.Unlock()
	snap := *d.current.Load()
	table := snap.DNS
	for origin := range serverstate.ByZone(changed) {
		learned := dnsd.Learned{Usable: d.usableBackends(snap.Lab)}
		if table.TransfersLeasesOf(origin) {
			learned.Leases, learned.Leased = leaseNames{d}, d.leasedAddrs
		}
		table = table.WithUpdates(origin, d.updates.Of(origin), learned)
	}
	snap.UseDNS(d.serials.Assign(table))
	d.current.Store(&snap)
	return nil
}

// DNSUpdates implements httpd.Backend.
func (b *adminBackend) DNSUpdates(context.Context) []api.DNSUpdate {
	all := b.updates.List()
	out := []api.DNSUpdate{}
	table := b.current.Load().DNS
	for _, set := range all {
		out = append(out, api.DNSUpdate{Zone: set.Zone, Name: set.Name, Type: set.Type, TTL: set.TTL, Records: set.Records(),
			Key: strings.TrimSuffix(set.Key, "."), At: set.At, Served: table.Serves(set)})
	}
	return out
}

// DeleteDNSUpdate implements httpd.Backend. The type may be empty: then all types of the name.
func (b *adminBackend) DeleteDNSUpdate(ctx context.Context, name, rtype string) (api.DNSUpdatesDeleted, error) {
	n, err := storingResult(ctx, b.Daemon, func(ctx context.Context) (int, error) { return b.updates.Delete(ctx, name, rtype, b.useUpdates) })
	return api.DNSUpdatesDeleted{Deleted: n}, err
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
