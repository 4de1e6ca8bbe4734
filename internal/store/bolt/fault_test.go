package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/bootlab/bootlab/internal/store"
)

// TestDiskErrors: what the disk refuses is nowhere, not even after a kill, and service goes on once it no longer does.
func TestDiskErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		on   func(*faults)
		want string
	}{
		{"write", func(f *faults) { f.write = true }, "write the journal"},
		{"sync", func(f *faults) { f.sync = true }, "sync the journal"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := &faults{}
			s := begin(t, filepath.Join(t.TempDir(), "store.db"), idle(), f.disk)
			put(t, s, "a", "1")
			f.set(tt.on)
			for range 2 { // the second may find the journal broken
				err := s.Commit(t.Context(), store.Put("a", []byte("2")))
				if !errors.Is(err, errDisk) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), s.db.Path()) {
					t.Errorf("commit = %v, want %q, %v", err, tt.want, errDisk)
				}
				wantContent(t, s, map[string]string{"a": "1"})
				wantContent(t, begin(t, crashed(t, s), idle(), openDisk), map[string]string{"a": "1"})
			}
			f.set(func(f *faults) { f.write, f.sync = false, false })
			put(t, s, "b", "3")
			want := map[string]string{"a": "1", "b": "3"}
			wantContent(t, s, want)
			wantContent(t, begin(t, crashed(t, s), idle(), openDisk), want)
		})
	}
}

// TestFailedSyncIsNotRepeated: the kernel forgets what it could not write, so the file is not used again.
func TestFailedSyncIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprintf("cutting fails too: %v", cut), func(t *testing.T) {
			t.Parallel()
			f := &faults{}
			s := begin(t, filepath.Join(t.TempDir(), "store.db"), idle(), f.disk)
			put(t, s, "a", "1")
			failed := journalPath(s.db.Path(), int(s.journal.epoch%2))
			f.set(func(f *faults) { f.sync, f.cut = true, cut })
			if err := s.Commit(t.Context(), store.Put("b", []byte("2"))); !errors.Is(err, errDisk) {
				t.Fatalf("commit = %v, want %v", err, errDisk)
			}
			f.set(func(f *faults) { f.sync, f.cut = false, false })
			put(t, s, "c", "3")
			if _, err := os.Stat(failed); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file whose sync failed: %v, want none", err)
			}
			want := map[string]string{"a": "1", "c": "3"}
			wantContent(t, s, want)
			wantContent(t, begin(t, crashed(t, s), idle(), openDisk), want)
		})
	}
}

// TestDatasync: a pipe cannot be synced, and says so.
func TestDatasync(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if err := (journalDisk{w}).Datasync(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("sync of a pipe = %v, want %v", err, syscall.EINVAL)
	}
}

// TestHealsAlone: nobody needs to commit for it.
func TestHealsAlone(t *testing.T) {
	t.Parallel()
	f := &faults{}
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), small(), f.disk)
	f.set(func(f *faults) { f.sync = true })
	if err := s.Commit(t.Context(), store.Put("a", nil)); err == nil {
		t.Fatal("commit succeeded")
	}
	for {
		s.writing.Lock()
		healed := s.journal.broken == nil
		s.writing.Unlock()
		if healed {
			return // or the test binary's time is up
		}
	}
}

// TestOlderVersion: a database without a journal's epoch opens, and keeps what it has.
func TestOlderVersion(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket(bucketName)
		if err != nil {
			return err
		}
		return b.Put([]byte("lease"), []byte("1"))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	s := begin(t, path, idle(), openDisk)
	wantContent(t, s, map[string]string{"lease": "1"})
	put(t, s, "lease", "2")
	wantContent(t, begin(t, crashed(t, s), idle(), openDisk), map[string]string{"lease": "2"})
}

// TestDamagedJournal: the error says what is to be done, and nothing was deleted.
func TestDamagedJournal(t *testing.T) {
	t.Parallel()
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), idle(), openDisk)
	put(t, s, "a", "1")
	put(t, s, "b", "2")
	path := crashed(t, s)
	file := journalPath(path, int(s.journal.epoch%2))
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[headerSize+recordSize]++
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err = Open(path)
		if err == nil {
			t.Fatal("open succeeded")
		}
		for _, want := range []string{path, file, "newer ones follow", "move the files"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not say %q", err, want)
			}
		}
	}
}

// TestNotAnotherDatabasesJournal: a new database beside an old journal is a mistake that somebody made.
func TestNotAnotherDatabasesJournal(t *testing.T) {
	t.Parallel()
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), idle(), openDisk)
	put(t, s, "a", "1")
	path := crashed(t, s)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "do not belong together") {
		t.Errorf("open = %v, want an error", err)
	}
}

// TestFiles: private, and gone after Close.
func TestFiles(t *testing.T) {
	t.Parallel()
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), idle(), openDisk)
	journals := func() []string {
		found, err := filepath.Glob(s.db.Path() + "-journal*")
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := journals(); len(found) > 0 {
		t.Errorf("before the first commit there are %q", found)
	}
	put(t, s, "a", "1")
	found := journals()
	if len(found) != 1 {
		t.Fatalf("journals = %q, want one", found)
	}
	info, err := os.Stat(found[0])
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() > 2*minGrowth {
		t.Errorf("%s: %v, %d bytes, %v", found[0], info.Mode(), info.Size(), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if found := journals(); len(found) > 0 {
		t.Errorf("after Close there are %q", found)
	}
}
