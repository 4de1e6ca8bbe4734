package logfile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// writerFile, set to a path, makes the test binary the writer of TestKill.
const writerFile = "BOOTLAB_TEST_WRITER"

// writeForever commits from several goroutines and prints each key that was acknowledged.
func writeForever(path string) {
	cfg := testConfig([]int64{small, compactFrom}[rand.IntN(2)], openFile)
	cfg.tick = 2 * time.Millisecond
	s, _, err := openWith(path, cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for g := range 16 {
		go func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("%d/%d/%d", os.Getpid(), g, i)
				twin := store.Put("twin/"+key, []byte(key))
				for _, err := range s.CommitAll(context.Background(), []store.Txn{store.Put(key, []byte(key)), twin}) {
					if err != nil {
						fmt.Fprintln(os.Stderr, err)
						os.Exit(2)
					}
				}
				os.Stdout.WriteString(key + "\n") // one write(2): what the parent reads whole was acknowledged
			}
		}()
	}
	select {}
}

// TestKill kills a writer at random moments: every acknowledged key is there afterwards.
func TestKill(t *testing.T) {
	t.Parallel()
	rounds, atWork := storetest.Rounds(8, 10_000), within(200*time.Millisecond)
	if storetest.Long() {
		atWork = within(20 * time.Millisecond)
	}
	const lives = 20 // of one store
	path, acked, total := "", []string{}, 0
	for round := range rounds {
		if round%lives == 0 {
			path, acked = filepath.Join(t.TempDir(), "store.db"), nil
		}
		more := storetest.Killed(t, writerFile+"="+path, atWork)
		if len(more) == 0 {
			t.Error("no commit was acknowledged: the round showed nothing")
		}
		acked, total = append(acked, more...), total+len(more)
		checkKilled(t, path, acked)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	t.Logf("%d kills, %d acknowledged", rounds, total)
}

func checkKilled(t *testing.T, path string, acked []string) {
	t.Helper()
	s, damage, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range damage {
		if l.Kind != Torn {
			t.Error(l)
		}
	}
	got := content(t, s, "")
	for _, key := range acked {
		if got[key] != key || got["twin/"+key] != key {
			t.Errorf("acknowledged %s: %q, twin %q", key, got[key], got["twin/"+key])
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// within kills a writer some time after its first line, so that it is at work when the time comes.
func within(d time.Duration) func(lines int, kill func()) {
	return func(lines int, kill func()) {
		if lines == 1 {
			time.AfterFunc(time.Duration(1+rand.Int64N(int64(d))), kill)
		}
	}
}
