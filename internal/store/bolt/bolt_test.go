package bolt_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/bolt"
	"github.com/bootlab/bootlab/test/support/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) storetest.Open {
		path := filepath.Join(t.TempDir(), "store.db")
		return func() (store.Store, error) { return bolt.Open(path) }
	})
}

func mustOpen(t testing.TB, path string) *bolt.Store {
	t.Helper()
	s, err := bolt.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestFileIsPrivate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	mustOpen(t, path)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, %v, want 0600", info.Mode(), err)
	}
}

func TestLockedFileNamesItsHolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	mustOpen(t, path)
	_, err := bolt.Open(path)
	if err == nil {
		t.Fatal("a second open succeeded")
	}
	for _, want := range []string{path, strconv.Itoa(os.Getpid()), "another bootlab"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}

// damaged returns the path of a store of several levels that spoil has been at.
func damaged(t *testing.T, spoil func([]byte) []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := bolt.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var txn store.Txn
	for i := range 2000 {
		txn.Then = append(txn.Then, store.Op{Key: fmt.Sprintf("key/%05d", i), Value: bytes.Repeat([]byte{'v'}, 100)})
	}
	if err := s.Commit(t.Context(), txn); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, spoil(b), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDamagedFile(t *testing.T) {
	t.Parallel()
	const page = 4096
	tests := []struct {
		name  string
		spoil func([]byte) []byte
	}{
		{"text", func([]byte) []byte { return bytes.Repeat([]byte("not a store\n"), 1000) }},
		{"short", func(b []byte) []byte { return b[:100] }},
		{"cut in the middle", func(b []byte) []byte { return b[:len(b)/2/page*page] }},
		{"cut after the first pages", func(b []byte) []byte { return b[:4*page] }},
		{"both meta pages zero", func(b []byte) []byte { clear(b[:2*page]); return b }},
		{"all but meta pages zero", func(b []byte) []byte { clear(b[2*page:]); return b }},
		{"all but meta pages noise", func(b []byte) []byte {
			r := rand.New(rand.NewPCG(1, 2))
			for i := 2 * page; i < len(b); i++ {
				b[i] = byte(r.Uint32())
			}
			return b
		}},
		{"page bodies 0xff", func(b []byte) []byte {
			for at := 2 * page; at < len(b); at += page {
				for i := at + 16; i < at+page; i++ {
					b[i] = 0xff
				}
			}
			return b
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := damaged(t, tt.spoil)
			s, err := bolt.Open(path)
			if err == nil {
				s.Close()
				t.Fatal("open succeeded")
			}
			for _, want := range []string{path, "move the file away"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestEmptyFileIsAFreshStore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, path)
}

func TestOpenInNoFolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "none", "store.db")
	if _, err := bolt.Open(path); !os.IsNotExist(err) && (err == nil || !strings.Contains(err.Error(), path)) {
		t.Errorf("open = %v, want an error that names %s", err, path)
	}
}
