package api

import (
	"context"
	"net/url"
	"time"
)

// A Snapshot is what a virtual machine was at a time: its disks, and its memory if it ran.
type Snapshot struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	State   string    `json:"state"`             // of the machine then: running, off …
	Current bool      `json:"current,omitempty"` // the machine goes on from this one
	Parent  string    `json:"parent,omitempty"`  // the snapshot that the machine went on from then
}

// SnapshotAction is what can be done with a snapshot.
type SnapshotAction string

// The actions on snapshots.
const (
	SnapshotCreate SnapshotAction = "create"
	SnapshotRevert SnapshotAction = "revert" // what the machine has become since is lost
	SnapshotDelete SnapshotAction = "delete"
)

// Snapshots returns the snapshots of a host's virtual machine, the oldest first.
func (c *Client) Snapshots(ctx context.Context, host string) (all []Snapshot, err error) {
	return all, c.get(ctx, "vms/"+url.PathEscape(host)+"/snapshots", &all)
}

// Snapshot does action with the snapshot of that name, and returns all that there are afterwards.
func (c *Client) Snapshot(ctx context.Context, host string, action SnapshotAction, name string) (all []Snapshot, err error) {
	return all, c.post(ctx, "vms/"+url.PathEscape(host)+"/snapshots/"+url.PathEscape(name), url.Values{"action": {string(action)}}, &all)
}
