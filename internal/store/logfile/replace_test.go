package logfile

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// held locks a file that no store has open.
func held(t *testing.T, path string) *Held {
	t.Helper()
	h, err := Hold(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// reopened returns what a store finds in a file.
func reopened(t *testing.T, path string) map[string]string {
	t.Helper()
	s, losses, err := Open(path)
	if err != nil || len(losses) > 0 {
		t.Fatal(err, losses)
	}
	defer s.Close()
	return content(t, s, "")
}

func pairs(m map[string]string) func(func(string, []byte) bool) {
	return func(yield func(string, []byte) bool) {
		for k, v := range m {
			if !yield(k, []byte(v)) {
				return
			}
		}
	}
}

// TestKeepTwice: two restores of one second keep both files.
func TestKeepTwice(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	if err := begin(t, path, never, openFile).Close(); err != nil {
		t.Fatal(err)
	}
	h, now := held(t, path), time.Date(2026, 11, 28, 23, 0, 0, 0, time.UTC)
	for _, want := range []string{"", "-2", "-3"} {
		kept, err := h.keep(now)
		if want = path + ".before-restore-20261128-230000" + want; err != nil || kept != want {
			t.Errorf("%s, %v; want %s", kept, err, want)
		}
	}
}

// TestReplace puts another store in place of one that is closed, and keeps it.
func TestReplace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := begin(t, path, never, openFile)
	put(t, s, "a", "old")
	if h, err := Hold(path); err == nil || !strings.Contains(err.Error(), "in use by process") {
		t.Fatalf("held while a store has it open: %v, %v", h, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h := held(t, path)
	found := map[string]string{}
	if losses, err := h.Read(func(k string, v []byte) { found[k] = string(v) }); err != nil || len(losses) > 0 || !maps.Equal(found, map[string]string{"a": "old"}) {
		t.Errorf("read %v, %v, %v", found, losses, err)
	}
	if _, _, err := Open(path); err == nil {
		t.Error("a store opened it while it was held")
	}
	want := map[string]string{"b": "new", "c": ""}
	for i := range 2*fillStep + 1 {
		want[fmt.Sprintf("k%05d", i)] = "v"
	}
	kept, err := h.Replace(t.Context(), pairs(want))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if after, err := os.ReadFile(kept); err != nil || string(after) != string(before) {
		t.Errorf("the kept file %s is not the one before: %v", kept, err)
	}
	if diff := cmp.Diff(want, reopened(t, path)); diff != "" {
		t.Error(diff)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if files, _ := filepath.Glob(path + "*"); len(files) != 2 {
		t.Errorf("left behind: %v", files)
	}
}

// TestReplaceNothing makes a store where there was none.
func TestReplaceNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	h := held(t, path)
	if _, err := os.Stat(path); err == nil {
		t.Error("Hold made a file")
	}
	want := map[string]string{"a": "1"}
	if kept, err := h.Replace(t.Context(), pairs(want)); err != nil || kept != "" {
		t.Fatal(kept, err)
	}
	if diff := cmp.Diff(want, reopened(t, path)); diff != "" {
		t.Error(diff)
	}
	if kept, err := h.Replace(t.Context(), pairs(want)); err == nil {
		t.Errorf("a file that came meanwhile was replaced, kept %q", kept)
	}
}

// TestReplaceStopped: a replacement that ends early leaves the file that was there.
func TestReplaceStopped(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := begin(t, path, never, openFile)
	put(t, s, "a", "old")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h := held(t, path)
	if kept, err := h.Replace(ctx, pairs(map[string]string{"b": "1"})); err == nil {
		t.Errorf("no error, kept %q", kept)
	}
	h.Close()
	if diff := cmp.Diff(map[string]string{"a": "old"}, reopened(t, path)); diff != "" {
		t.Error(diff)
	}
	if files, _ := filepath.Glob(path + "*"); len(files) != 1 {
		t.Errorf("left behind: %v", files)
	}
}

// TestHeldChangesNothing: a file that Open would repair is read and stays as it is; one that is no store has lost everything.
func TestHeldChangesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := begin(t, path, never, openFile)
	put(t, s, "a", "1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[3] ^= 1 // of the first header
	b = append(b, "an unfinished write"...)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	h := held(t, path)
	n := 0
	if losses, err := h.Read(func(string, []byte) { n++ }); err != nil || len(losses) > 0 || n != 1 {
		t.Errorf("%d entries, losses %v, %v", n, losses, err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(b) {
		t.Errorf("the file changed: %v", err)
	}
	h.Close()
	if err := os.WriteFile(path, []byte("no state file, of some length"), 0o600); err != nil {
		t.Fatal(err)
	}
	if losses, err := held(t, path).Read(func(string, []byte) { t.Error("an entry") }); err != nil || len(losses) == 0 {
		t.Errorf("losses %v, %v", losses, err)
	}
}
