package freshfile

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
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
		if v := c.value(path); v.last.Load() != nil {
			old := *v.last.Load()
			old.checked = time.Time{}
			v.last.Store(&old)
		}
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
	if got := strings.Count(log.String(), "cannot read file again"); got < 1 {
		t.Errorf("logged %d times:\n%s", got, log.String())
	}
}

// TestHangingRead: who asks for a value that is known does not wait for one that reads its files, nor does who asks for another one.
func TestHangingRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		var reads atomic.Int64
		c := New(slog.New(slog.DiscardHandler), func(string) []string { return nil }, func(p string) (string, error) {
			if reads.Add(1); p == "bad" && reads.Load() > 1 {
				<-hang
			}
			return p, nil
		})
		c.value("bad").last.Store(&result[string]{v: "old", known: true, err: errors.New("read again")})
		go func() { _, _ = c.Get("bad") }()
		_, _ = c.Get("other")
		synctest.Wait()
		time.Sleep(2 * CheckEvery)
		go func() { _, _ = c.Get("bad") }()
		synctest.Wait()
		began := time.Now()
		for range 10 {
			if v, err := c.Get("bad"); v != "old" || err != nil {
				t.Errorf("bad: %q, %v", v, err)
			}
			if v, err := c.Get("other"); v != "other" || err != nil {
				t.Errorf("other: %q, %v", v, err)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("waited %v", took)
		}
		close(hang)
	})
}
