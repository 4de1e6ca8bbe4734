package mirror_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/content/mirror"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestNginx has a real web server for an archive: packages whose connections break, an index that changes, a server that goes.
func TestNginx(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write := func(name string, b []byte, at time.Time) {
		file := filepath.Join(root, "debian", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, b, 0o644), os.Chtimes(file, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	body := noise(5 << 20)
	write(deb, body, time.Unix(1700000000, 0))
	write(index, []byte("one"), time.Unix(1700000000, 0))
	cut := netns.NewCutter(t, netns.NewNginx(t, root))
	w := newWorld(t, t.TempDir(), lab.Mirror{URLs: []string{"http://" + cut.Addr + "/debian"}, Fresh: time.Minute})

	cut.After.Store(1_500_000)
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			if got, _, err := w.get(t, deb); err != nil || !bytes.Equal(got, body) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	readers.Wait()
	if cut.Cuts.Load() < 3 || w.metric(t, mirror.MetricFetched) != float64(len(body)) {
		t.Errorf("%d cuts, %v bytes fetched for %d", cut.Cuts.Load(), w.metric(t, mirror.MetricFetched), len(body))
	}
	w.settle(t, 1)

	w.want(t, index, []byte("one"), mirror.Miss)
	w.settle(t, 2)
	w.clock.Advance(2 * time.Minute)
	w.want(t, index, []byte("one"), mirror.Revalidated)
	write(index, []byte("second"), time.Unix(1700000100, 0))
	w.clock.Advance(2 * time.Minute)
	w.want(t, index, []byte("second"), mirror.Miss)
	w.settle(t, 2)

	// A folder is no file: nginx redirects to one with a slash, and has no listing.
	if _, _, err := w.get(t, "dists/stable"); statusOf(err) != http.StatusNotFound {
		t.Errorf("a folder: %v", err)
	}
	cut.Close()
	w.clock.Advance(2 * time.Minute)
	w.want(t, index, []byte("second"), mirror.Stale)
	w.want(t, deb, body, mirror.Hit)
}

// TestFullDisk: what the disk has no room for is passed through, from the byte on where it was full, and reported; room that
// comes back is used again.
func TestFullDisk(t *testing.T) {
	netns.Need(t, "root")
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("no tmpfs to fill: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	body := noise(1 << 20)
	up := newArchive(t, content(body, `"v1"`))
	w := newWorld(t, dir, lab.Mirror{URLs: []string{up.URL}})
	w.want(t, "pool/a.deb", body, mirror.Miss)
	w.settle(t, 1)
	// What nobody reads makes way.
	w.want(t, "pool/b.deb", body, mirror.Miss)
	w.settle(t, 1)
	held, err := w.cache.Open(t.Context(), w.mirror, "pool/b.deb", http.MethodGet)
	if err != nil {
		t.Fatal(err)
	}
	// What is read does not: this one is fetched until the disk is full, and its rest comes from upstream.
	up.questions()
	w.want(t, "pool/c.deb", body, mirror.Miss)
	w.settle(t, 1)
	asked := up.questions()
	if len(asked) != 2 || !strings.Contains(asked[1], "Range: bytes=") {
		t.Errorf("asked %q", asked)
	}
	if answered := w.events.answered(); !slices.Contains(answered, "mirror_bypassed debian/pool/c.deb") {
		t.Errorf("events %q", answered)
	}
	if got, err := io.ReadAll(held.Content); err != nil || !bytes.Equal(got, body) {
		t.Errorf("what was read meanwhile: %d bytes, %v", len(got), err)
	}
	held.Close()
	w.want(t, "pool/c.deb", body, mirror.Miss)
	w.settle(t, 1)
	w.want(t, "pool/c.deb", body, mirror.Hit)
}

// TestNoRoomToWrite: a folder that cannot be written passes everything through.
func TestNoRoomToWrite(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "mirrors") // a file where a folder should be
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	body := noise(100_000)
	up := newArchive(t, content(body, `"v1"`))
	w := newWorld(t, file, lab.Mirror{URLs: []string{up.URL}})
	for range 2 {
		w.want(t, deb, body, mirror.Passed)
	}
	if answered := fmt.Sprint(w.events.answered()); answered != "[mirror_bypassed debian/"+deb+"]" { // once
		t.Errorf("events %s", answered)
	}
}
