package bolt_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"bootlab/internal/store"
	"bootlab/internal/store/bolt"
	"bootlab/internal/store/storetest"
)

// writerFile, set to a path, makes the test binary the writer of TestKill.
const writerFile = "BOOTLAB_TEST_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(writerFile); path != "" {
		writeForever(path)
	}
	os.Exit(m.Run())
}

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

// writeForever commits from several goroutines and prints each key that was acknowledged.
func writeForever(path string) {
	s, err := bolt.Open(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for g := range 16 {
		go func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("%d/%d/%d", os.Getpid(), g, i)
				if err := s.Commit(context.Background(), store.Put(key, []byte(key))); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(2)
				}
				os.Stdout.WriteString(key + "\n") // one write(2): what the parent reads whole was acknowledged
			}
		}()
	}
	select {}
}

// TestKill kills a writer at random moments: what it acknowledged is there afterwards.
func TestKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	total := 0
	for round := range 5 {
		acked := runAndKill(t, path)
		total += len(acked)
		s, err := bolt.Open(path)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for _, key := range acked {
			if v, err := s.Get(t.Context(), key); err != nil || string(v) != key {
				t.Errorf("round %d: acknowledged %s: %q, %v", round, key, v, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if total == 0 {
		t.Error("no commit was acknowledged: the test showed nothing")
	}
}

// runAndKill lets a writer acknowledge some keys, kills it, and returns them.
func runAndKill(t *testing.T, path string) (acked []string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), writerFile+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// From the first line on, so that the writer is at work when the time comes.
	kill := 1 + rand.IntN(200)
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // an unfinished line was never acknowledged to anybody
		}
		if acked = append(acked, strings.TrimSpace(line)); len(acked) == 1 {
			time.AfterFunc(time.Duration(kill)*time.Millisecond, func() { cmd.Process.Kill() })
		}
	}
	cmd.Wait()
	return acked
}

// BenchmarkCommit tells what grouping buys: one caller pays a sync for each commit, many share it.
func BenchmarkCommit(b *testing.B) {
	for _, callers := range []int{1, 16, 256, 1024} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s := mustOpen(b, filepath.Join(b.TempDir(), "store.db"))
			value := make([]byte, 200)
			var next atomic.Int64
			done := make(chan error)
			b.ReportAllocs()
			b.ResetTimer()
			for range callers {
				go func() {
					for {
						n := next.Add(1)
						if n > int64(b.N) {
							done <- nil
							return
						}
						if err := s.Commit(context.Background(), store.Put(strconv.FormatInt(n%20_000, 10), value)); err != nil {
							done <- err
							return
						}
					}
				}()
			}
			for range callers {
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
		})
	}
}

func BenchmarkGet(b *testing.B) {
	s := mustOpen(b, filepath.Join(b.TempDir(), "store.db"))
	if err := s.Commit(b.Context(), store.Put("a", make([]byte, 200))); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Get(b.Context(), "a"); err != nil {
			b.Fatal(err)
		}
	}
}
