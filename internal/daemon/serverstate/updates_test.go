package serverstate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/logfile"
)

// TestTooManyStoredUpdates: of a state with more dynamic updates than there may be, as a backup may bring, the rest stays in the store, is
// warned of, and can be deleted. What is no update at all counts as lost.
func TestTooManyStoredUpdates(t *testing.T) {
	t.Parallel()
	db, _, err := logfile.Open(filepath.Join(t.TempDir(), logfile.Name))
	must(t, err)
	const most = 10_000
	var txn store.Txn
	put := func(set dnsd.RRSet) {
		value, err := json.Marshal(set)
		must(t, err)
		txn.Then = append(txn.Then, store.Op{Key: Key(set), Value: value})
	}
	for i := range most + 1 {
		put(dnsd.RRSet{Zone: "a.test.", Name: fmt.Sprintf("n%05d.a.test.", i), Type: "A", Data: [][]byte{{192, 0, 2, 1}}})
	}
	put(dnsd.RRSet{Zone: "b.test.", Name: "x|y.b.test.", Type: "TXT", Data: [][]byte{[]byte("\x01x")}})
	put(dnsd.RRSet{Zone: "b.test.", Name: "bad.b.test.", Type: "A", Data: [][]byte{{1, 2, 3}}})
	must(t, db.Commit(t.Context(), txn))
	defer db.Close()
	var log bytes.Buffer
	u, err := OpenUpdates(t.Context(), db, slog.New(slog.NewTextHandler(&log, nil)))
	must(t, err)
	if n, m := len(u.Of("a.test.")), len(u.Of("b.test.")); n != most || m != 1 {
		t.Errorf("%d and %d RRsets, want %d and 1", n, m, most)
	}
	if got := strings.Join(u.Warnings(), "\n"); !strings.Contains(got, "dns.zones.a.test: 1 RRsets of dynamic updates are not served") || !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("warnings %q, log %q", got, log.String())
	}
	must(t, u.keep(t.Context(), []dnsd.RRSet{{Zone: "a.test.", Name: "n00001.a.test.", Type: "A"}, {Zone: "b.test.", Name: "x|y.b.test.", Type: "AAAA", Data: [][]byte{make([]byte, 16)}}}))
	again, err := OpenUpdates(t.Context(), db, slog.New(slog.DiscardHandler))
	must(t, err)
	if n, m := len(again.Of("a.test.")), len(again.Of("b.test.")); n != most || m != 2 || len(again.Warnings()) > 0 || len(u.Of("a.test.")) != most-1 {
		t.Errorf("after a deletion %d and %d RRsets, warnings %q", n, m, again.Warnings())
	}
}
