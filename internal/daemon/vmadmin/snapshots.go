package vmadmin

import (
	"context"
	"net/http"

	"github.com/bootlab/bootlab/internal/api"
)

// Snapshots implements httpd.Backend.
func (m *Machines) Snapshots(ctx context.Context, host string) (all []api.Snapshot, err error) {
	snapshots, err := m.deps.Virt.Snapshots(ctx, host)
	if err != nil {
		return nil, m.vmError(err, http.StatusConflict, host)
	}
	for _, s := range snapshots {
		all = append(all, api.Snapshot(s))
	}
	return all, nil
}

// Snapshot implements httpd.Backend.
func (m *Machines) Snapshot(ctx context.Context, host string, action api.SnapshotAction, name string) ([]api.Snapshot, error) {
	v := m.deps.Virt
	var err error
	switch action {
	case api.SnapshotCreate:
		err = v.CreateSnapshot(ctx, host, name)
	case api.SnapshotRevert:
		err = v.Revert(ctx, host, name)
	case api.SnapshotDelete:
		err = v.DeleteSnapshot(ctx, host, name)
	}
	if err != nil {
		return nil, m.vmError(err, http.StatusConflict, host)
	}
	return m.Snapshots(ctx, host)
}
