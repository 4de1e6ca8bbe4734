package regular_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/test/support/faultfs"
)

// TestWithin: a file that hangs costs one wait, its folder four, others none; once it answers it is read again.
func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		answer := make(chan struct{})
		read := func(path string, hang bool) error {
			v, err := regular.Within(path, regular.Wait, func() (int, error) {
				calls.Add(1)
				if hang {
					<-answer
				}
				return 7, nil
			})
			if err == nil && v != 7 {
				t.Errorf("%s: %d", path, v)
			}
			return err
		}
		began := time.Now()
		for range 100 {
			for n := range 20 {
				if err := read(fmt.Sprintf("/hung/%d", n), true); !errors.Is(err, regular.ErrNoAnswer) || !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("hung/%d: %v", n, err)
				}
			}
			if err := read("/else/file", false); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 4*regular.Wait || calls.Load() != 104 {
			t.Errorf("took %v, %d calls; want four waits and 104", took, calls.Load())
		}
		close(answer)
		synctest.Wait()
		for n := range 20 {
			if err := read(fmt.Sprintf("/hung/%d", n), true); err != nil {
				t.Errorf("hung/%d answers: %v", n, err)
			}
		}
	})
}

// TestHangingFile: no reader waits for a file system that does not answer, wherever it hangs.
func TestHangingFile(t *testing.T) {
	dir := t.TempDir()
	disk := faultfs.Mount(t, dir)
	for _, op := range []faultfs.Op{faultfs.Stat, faultfs.Read} {
		path := filepath.Join(dir, fmt.Sprint("file", op))
		if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
			t.Fatal(err)
		}
		answer := make(chan struct{})
		disk.Fail(func(o faultfs.Op, _ int64, _ int) syscall.Errno {
			if o == op {
				<-answer
			}
			return 0
		})
		var wg sync.WaitGroup
		for range 3 { // at the same time, and one after another
			wg.Go(func() {
				for range 50 {
					if _, err := regular.Read(path, 3); !errors.Is(err, regular.ErrNoAnswer) {
						t.Errorf("operation %d hangs: %v", op, err)
					}
				}
			})
		}
		wg.Wait()
		close(answer)
		disk.Fail(nil)
		deadline := time.Now().Add(time.Minute)
		for {
			b, err := regular.Read(path, 3)
			if err == nil && string(b) == "abc" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("it answers again: %q, %v", b, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}
