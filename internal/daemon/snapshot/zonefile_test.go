package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/lab"
)

// TestZoneFilesThatAreNone: a FIFO, a device, a folder or a huge file in place of a zone file neither holds up a reload nor fills the memory.
func TestZoneFilesThatAreNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo, huge := filepath.Join(dir, "fifo"), filepath.Join(dir, "huge")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(huge)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(maxDNSFile + 1); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	for path, want := range map[string]string{fifo: "is no regular file", "/dev/zero": "is no regular file", dir: "is no regular file", huge: "more than 33554432"} {
		done := make(chan *Snapshot, 1)
		go func() {
			s, err := Compile(&lab.Lab{Zones: []*lab.Zone{{Origin: "z.test.", File: path}}})
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			done <- s
		}()
		select {
		case s := <-done:
			if got := s.DNS.Warnings().Error(); !strings.Contains(got, want) || !strings.Contains(got, "zone z.test. answers SERVFAIL") {
				t.Errorf("%s: warnings %q, want %q", path, got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s holds up a reload", path)
		}
	}
}
