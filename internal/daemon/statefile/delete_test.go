package statefile

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/internal/daemon/serverstate"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/logfile"
)

// TestDeleteStoredUpdates: what dynamic updates have made is deleted while no daemon runs, and nothing else is.
func TestDeleteStoredUpdates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	appliance := lab.Appliance{State: dir}
	db, _, err := logfile.Open(Path(appliance))
	must(t, err)
	var txn store.Txn
	for _, set := range []dnsd.RRSet{
		{Zone: "a.test.", Name: "n1.a.test.", Type: "A", Data: [][]byte{{192, 0, 2, 1}}},
		{Zone: "a.test.", Name: "n2.a.test.", Type: "A", Data: [][]byte{{192, 0, 2, 1}}},
		{Zone: "b.test.", Name: "x|y.b.test.", Type: "TXT", Data: [][]byte{[]byte("\x01x")}},
	} {
		value, err := json.Marshal(set)
		must(t, err)
		txn.Then = append(txn.Then, store.Op{Key: serverstate.Key(set), Value: value})
	}
	must(t, db.Commit(t.Context(), txn))
	must(t, db.Close())

	state, err := Hold(appliance)
	must(t, err)
	deleted, err := state.DeleteDNSUpdates(t.Context(), "n2.a.test", "")
	must(t, err)
	must(t, state.Close())
	if deleted.Deleted != 1 || filepath.Dir(deleted.Kept) != dir {
		t.Errorf("deleted while stopped: %+v", deleted)
	}
	state, err = Hold(appliance)
	must(t, err)
	defer state.Close()
	if _, gone := state.Entries["dnsupdate/a.test.|n2.a.test.|A"]; gone || len(state.Entries) != 2 {
		t.Errorf("left: %q", slices.Sorted(maps.Keys(state.Entries)))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
