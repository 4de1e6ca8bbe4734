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

// TestIncludeThroughLink: a link may lead to another file in the folder of the zone file, but not out of it: who may write there could
// publish any file that the daemon can read.
func TestIncludeThroughLink(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	zones := filepath.Join(top, "zones")
	for _, dir := range []string{filepath.Join(top, "secrets"), filepath.Join(zones, "sub")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range map[string]string{"secrets/key": "key A 192.0.2.66\n", "zones/sub/hosts": "www A 192.0.2.1\n"} {
		if err := os.WriteFile(filepath.Join(top, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"inside": "sub/hosts", "folder": "sub", "out": "../secrets/key", "absolute": filepath.Join(top, "secrets/key"), "up": "../secrets", "sub/twice": "../out",
	} {
		if err := os.Symlink(target, filepath.Join(zones, link)); err != nil {
			t.Fatal(err)
		}
	}
	for included, served := range map[string]bool{
		"inside": true, "folder/hosts": true, "sub/../inside": true, "out": false, "absolute": false, "up/key": false, "sub/twice": false,
	} {
		path := filepath.Join(zones, "z")
		if err := os.WriteFile(path, []byte("@ NS ns\nns A 192.0.2.2\n$INCLUDE "+included+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Compile(&lab.Lab{Zones: []*lab.Zone{{Origin: "z.test.", File: path}}})
		if err != nil {
			t.Fatal(err)
		}
		text := s.DNS.ZoneFiles()[0].Text
		if bad := s.DNS.BadFiles(); served != strings.Contains(text, "192.0.2.1\n") || served != (len(bad) == 0) || strings.Contains(text, "192.0.2.66") {
			t.Errorf("$INCLUDE %s: problems %v, zone\n%s", included, bad, text)
		} else if !served {
			t.Log(bad)
			if got := bad.Error(); !strings.Contains(got, "outside the folder of the zone file") {
				t.Errorf("$INCLUDE %s: %s", included, got)
			}
		}
	}
}
