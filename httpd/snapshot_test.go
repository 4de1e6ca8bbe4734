package httpd_test

import (
	"testing"

	"github.com/bootlab/bootlab/internal/api"
)

func TestSnapshotAPI(t *testing.T) {
	c, err := api.NewClient(newAdminServer(t).socket, "")
	if err != nil {
		t.Fatal(err)
	}
	if none, err := c.Snapshots(t.Context(), "a"); err != nil || none == nil || len(none) != 0 {
		t.Errorf("snapshots of a machine without: %+v, %v; want an empty list", none, err)
	}
	if all, err := c.Snapshot(t.Context(), "a", api.SnapshotRevert, "clean"); err != nil || len(all) != 1 || all[0].Name != "clean" {
		t.Errorf("revert: %+v, %v", all, err)
	}
	if _, err := c.Snapshot(t.Context(), "a", "merge", "clean"); err == nil {
		t.Error("an action that there is not was taken")
	}
}
