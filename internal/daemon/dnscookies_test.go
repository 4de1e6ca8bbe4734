package daemon

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/logfile"
	"github.com/bootlab/bootlab/internal/store/records"
)

// TestCookieSecrets: the secrets of DNS cookies are those of before the restart; what cannot be decoded is as good as none, and a store that
// does not answer is an error.
func TestCookieSecrets(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), logfile.Name)
	open := func() (cookieSecrets, store.Store) {
		db, _, err := logfile.Open(path)
		must(t, err)
		return cookieSecrets{db, records.NewSaver(db)}, db
	}
	c, db := open()
	if got, err := c.Load(t.Context()); err != nil || got != (dnsd.CookieSecrets{}) {
		t.Errorf("an empty store: %v, %v", got, err)
	}
	want := dnsd.CookieSecrets{Current: [16]byte{1, 2, 255}, Previous: [16]byte{15: 9}, Since: time.Date(2026, 11, 23, 1, 2, 3, 4, time.UTC)}
	must(t, c.Keep(t.Context(), want))
	must(t, db.Close())
	c, db = open()
	if got, err := c.Load(t.Context()); err != nil || got != want {
		t.Errorf("after a restart: %v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"", "{", `{"current": "text"}`, `{"current": [1, 2], "since": "yesterday"}`} {
		must(t, db.Commit(t.Context(), store.Put(cookieKey, []byte(bad))))
		if got, err := c.Load(t.Context()); err != nil || got != (dnsd.CookieSecrets{}) {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
	must(t, db.Close())
	if _, err := c.Load(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("load from a closed store: %v", err)
	}
	if err := c.Keep(t.Context(), want); !errors.Is(err, store.ErrClosed) {
		t.Errorf("keep in a closed store: %v", err)
	}
}
