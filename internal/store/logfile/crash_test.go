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
	s, _, err := openWith(path, testConfig([]int64{small, compactFrom}[rand.IntN(2)], openFile))
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
	path := filepath.Join(t.TempDir(), "store.db")
	var acked []string
	for round := range 8 {
		before := len(acked)
		acked = append(acked, storetest.Killed(t, writerFile+"="+path, atWork)...)
		if len(acked) == before {
			t.Error("no commit was acknowledged: the round showed nothing")
		}
		s, losses, err := Open(path)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for _, l := range losses {
			if l.Kind != Torn {
				t.Errorf("round %d: %v", round, l)
			}
		}
		got := content(t, s, "")
		for _, key := range acked {
			if got[key] != key || got["twin/"+key] != key {
				t.Errorf("round %d: acknowledged %s: %q, twin %q", round, key, got[key], got["twin/"+key])
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// atWork kills a writer some time after its first line, so that it is at work when the time comes.
func atWork(lines int, kill func()) {
	if lines == 1 {
		time.AfterFunc(time.Duration(1+rand.IntN(200))*time.Millisecond, kill)
	}
}
