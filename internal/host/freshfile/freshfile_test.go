package freshfile

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestChanges: a file that changes is read again, one that cannot be read any more leaves what was read before, and one that comes later
// ends its error.
func TestChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "value")
	var log strings.Builder
	reads := 0
	c := New(slog.New(slog.NewTextHandler(&log, nil)), func(p string) []string { return []string{p} }, func(p string) (string, error) {
		reads++
		b, err := os.ReadFile(p)
		return string(b), err
	})
	get := func() (string, error) {
		c.mu.Lock()
		if v := c.values[path]; v != nil {
			v.checked = time.Time{}
		}
		c.mu.Unlock()
		return c.Get(path)
	}
	if _, err := get(); err == nil {
		t.Error("a missing file has no error")
	}
	for _, text := range []string{"one", "second"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := get(); got != text || err != nil {
			t.Errorf("%q, %v; want %q", got, err, text)
		}
	}
	before := reads
	if got, err := get(); got != "second" || err != nil || reads != before {
		t.Errorf("unchanged: %q, %v after %d reads; want none", got, err, reads-before)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := get(); got != "second" || err != nil {
			t.Errorf("removed: %q, %v; want what was read before", got, err)
		}
	}
	if got := strings.Count(log.String(), "file cannot be read any more"); got < 1 {
		t.Errorf("logged %d times:\n%s", got, log.String())
	}
}
