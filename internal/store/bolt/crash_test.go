package bolt

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bootlab/internal/store"
)

// writerFile, set to a path, makes the test binary the writer of TestKill.
const writerFile = "BOOTLAB_TEST_WRITER"

// writeForever commits from several goroutines and prints each key that was acknowledged.
func writeForever(path string) {
	l := small()
	if rand.IntN(2) == 0 {
		l = defaultLimits()
	}
	s, err := openWith(path, l, openDisk)
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

// TestKill kills a writer at random moments: what it acknowledged is there afterwards.
func TestKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	var acked []string
	for round := range 8 {
		before := len(acked)
		acked = append(acked, runAndKill(t, path)...)
		if len(acked) == before {
			t.Error("no commit was acknowledged: the round showed nothing")
		}
		s, err := Open(path)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
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
