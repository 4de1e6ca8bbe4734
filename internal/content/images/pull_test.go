package images_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/content/images"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

// noise is content that cannot be guessed, so that a byte out of place shows.
func noise(seed string, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8(sha256.Sum256([]byte(seed)))
	_, _ = r.Read(b)
	return b
}

func sumOf(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

// pull fetches and returns what became of each path, "path outcome", in the order of the items.
func pull(t *testing.T, dir string, items []images.Item) (lines []string, results map[string]images.Result, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	results = map[string]images.Result{}
	cfg := images.Config{Dir: dir, Retry: time.Millisecond, Idle: 5 * time.Second}
	err = images.Pull(ctx, cfg, items, &images.Progress{}, func(r images.Result) { results[r.Path] = r })
	for _, i := range items {
		lines = append(lines, i.Path+" "+string(results[i.Path].Outcome))
	}
	return lines, results, err
}

func want(t *testing.T, what string, got, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func holds(t *testing.T, name string, body []byte) {
	t.Helper()
	if b, err := os.ReadFile(name); err != nil || !bytes.Equal(b, body) {
		t.Errorf("%s: %d bytes, %v", name, len(b), err)
	}
}

// TestPullFromNginx fetches several files at once from a real web server whose connections break again and again.
func TestPullFromNginx(t *testing.T) {
	t.Parallel()
	files, dir := t.TempDir(), t.TempDir()
	var items []images.Item
	bodies := map[string][]byte{}
	for _, name := range []string{"vmlinuz", "initrd.img", "rootfs.img"} {
		bodies[name] = noise(name, 3<<20)
		if err := os.WriteFile(filepath.Join(files, name), bodies[name], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cut := netns.NewCutter(t, netns.NewNginx(t, files))
	cut.After.Store(700_000)
	for name, body := range bodies {
		items = append(items, images.Item{Path: "images/" + name, Image: "images/" + name, URLs: []string{"http://" + cut.Addr + "/" + name}, SHA256: sumOf(body)})
	}
	_, results, err := pull(t, dir, items)
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range bodies {
		holds(t, filepath.Join(dir, "images", name), body)
		if r := results["images/"+name]; r.Fetched != int64(len(body)) {
			t.Errorf("%s: %d bytes came for %d", name, r.Fetched, len(body))
		}
	}
	if cut.Cuts.Load() < 9 {
		t.Errorf("%d connections were cut", cut.Cuts.Load())
	}
	if left, err := filepath.Glob(filepath.Join(dir, "images", ".*")); len(left) > 0 || err != nil {
		t.Errorf("left behind: %q %v", left, err)
	}
	for _, s := range images.Check(t.Context(), dir, items) {
		if s.State != images.Present {
			t.Errorf("%s is %s", s.Path, s.State)
		}
	}
}

// TestNextPullGoesOn: what a pull that was stopped has fetched is not fetched again.
func TestNextPullGoesOn(t *testing.T) {
	t.Parallel()
	body := noise("x", 1<<20)
	files, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "x"), body, 0o644); err != nil {
		t.Fatal(err)
	}
	cut := netns.NewCutter(t, netns.NewNginx(t, files))
	item := images.Item{Path: "x", Image: "x", URLs: []string{"http://" + cut.Addr + "/x"}, SHA256: sumOf(body)}
	cut.After.Store(300_000)
	ctx, stop := context.WithCancel(t.Context())
	p := &images.Progress{}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for p.Of("x").Have.Load() < 250_000 && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		stop()
	}()
	err := images.Pull(ctx, images.Config{Dir: dir, Retry: time.Hour}, []images.Item{item}, p, func(images.Result) {})
	<-stopped
	if err == nil {
		t.Fatal("it was not stopped")
	}
	if s := images.Check(t.Context(), dir, []images.Item{item})[0]; s.State != images.Partial || s.Size < 250_000 {
		t.Errorf("after the stop: %+v", s)
	}
	cut.After.Store(0)
	lines, results, err := pull(t, dir, []images.Item{item})
	want(t, "outcomes", lines, []string{"x resumed"})
	if got := results["x"].Fetched; err != nil || got == 0 || got > int64(len(body))-250_000 {
		t.Errorf("%d bytes came, %v", got, err)
	}
	holds(t, filepath.Join(dir, "x"), body)
	lines, _, err = pull(t, dir, []images.Item{item})
	want(t, "once more", lines, []string{"x kept"})
	if err != nil {
		t.Error(err)
	}
}

// TestBadUpstreams: nothing is seen under its name unless its checksum is right.
func TestBadUpstreams(t *testing.T) {
	t.Parallel()
	body := noise("x", 200_000)
	serve := func(b []byte, etag string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Etag", etag)
			http.ServeContent(w, r, "", time.Unix(1700000000, 0), bytes.NewReader(b))
		}
	}
	var once sync.Once
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		err    string // of the result; empty: it works
	}{
		{"another file", serve(noise("y", 200_000), `"1"`), "the checksum is wrong"},
		{"not there", http.NotFound, "404 Not Found"},
		{"broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "500 Internal Server Error"},
		{"changes in the middle", func(w http.ResponseWriter, r *http.Request) {
			first := false
			once.Do(func() { first = true })
			if first {
				w.Header().Set("Etag", `"old"`)
				w.Header().Set("Content-Length", "200000")
				_, _ = w.Write(noise("y", 100_000))
				panic(http.ErrAbortHandler)
			}
			serve(body, `"new"`)(w, r)
		}, ""},
		{"ranges from elsewhere", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") != "" {
				w.Header().Set("Content-Range", "bytes 7-199999/200000")
				w.WriteHeader(http.StatusPartialContent)
				return
			}
			w.Header().Set("Etag", `"1"`)
			w.Header().Set("Content-Length", "200000")
			_, _ = w.Write(body[:100_000])
			panic(http.ErrAbortHandler)
		}, "http://127.0.0.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			up := httptest.NewServer(tt.answer)
			t.Cleanup(up.Close)
			dir := t.TempDir()
			item := images.Item{Path: "a/x", Image: "a/x", URLs: []string{up.URL}, SHA256: sumOf(body)}
			_, results, err := pull(t, dir, []images.Item{item})
			if (err != nil) != (tt.err != "") || !strings.Contains(results["a/x"].Err, tt.err) {
				t.Errorf("%v: %q, want %q", err, results["a/x"].Err, tt.err)
			}
			if tt.err == "" {
				holds(t, filepath.Join(dir, "a/x"), body)
			} else if _, err := os.Stat(filepath.Join(dir, "a/x")); err == nil {
				t.Error("it is there all the same")
			}
		})
	}
}

// TestSecondURL is used where the first does not answer, or has another file.
func TestSecondURL(t *testing.T) {
	t.Parallel()
	body := noise("x", 10_000)
	bad := httptest.NewServer(http.NotFoundHandler())
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("other")) }))
	good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
	for _, s := range []*httptest.Server{bad, other, good} {
		t.Cleanup(s.Close)
	}
	dir := t.TempDir()
	lines, _, err := pull(t, dir, []images.Item{{Path: "x", Image: "x", URLs: []string{bad.URL, other.URL, good.URL}, SHA256: sumOf(body)}})
	want(t, "outcomes", lines, []string{"x fetched"})
	if err != nil {
		t.Error(err)
	}
	holds(t, filepath.Join(dir, "x"), body)
}

// TestTwoPulls: the second does not write into what the first fetches.
func TestTwoPulls(t *testing.T) {
	t.Parallel()
	body := noise("x", 10_000)
	arrived, gate := make(chan struct{}, 10), make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-gate
		_, _ = w.Write(body)
	}))
	t.Cleanup(up.Close)
	dir := t.TempDir()
	items := []images.Item{{Path: "x", Image: "x", URLs: []string{up.URL}, SHA256: sumOf(body)}}
	first := make(chan error)
	go func() {
		first <- images.Pull(t.Context(), images.Config{Dir: dir}, items, &images.Progress{}, func(images.Result) {})
	}()
	<-arrived
	_, results, err := pull(t, dir, items)
	if err == nil || !strings.Contains(results["x"].Err, "another pull") {
		t.Errorf("%v: %q", err, results["x"].Err)
	}
	// Nor is the file read that is to be replaced, which may take minutes.
	old := noise("old", 10_000)
	if err := os.WriteFile(filepath.Join(dir, "x"), old, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, results, err := pull(t, dir, []images.Item{{Path: "x", Image: "x", URLs: []string{up.URL}, SHA256: sumOf(old)}}); err == nil || !strings.Contains(results["x"].Err, "another pull") {
		t.Errorf("%v: %q", err, results["x"].Err)
	}
	close(gate)
	if err := <-first; err != nil {
		t.Error(err)
	}
	holds(t, filepath.Join(dir, "x"), body)
}

const stream = `{"stream":"stable","architectures":{"x86_64":{"artifacts":{"metal":{"release":"43.1","formats":{
 "pxe":{"kernel":{"location":"%[1]s/kernel","signature":"%[1]s/kernel.sig","sha256":"%[2]s"},
        "initramfs":{"location":"%[1]s/initramfs","sha256":"%[3]s"},
        "rootfs":{"location":"%[1]s/rootfs","sha256":"%[4]s"}},
 "raw.xz":{"disk":{"location":"%[1]s/disk","sha256":"%[2]s","uncompressed-sha256":"%[3]s"}}}}}}}}`

// TestStream: the files of a stream's artifact appear together or not at all, and the next pull brings what the stream
// has by then.
func TestStream(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	generation, broken := "1", "rootfs"
	body := func(name string) []byte { return noise(generation+name, 50_000) }
	var up *httptest.Server
	up = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch name := strings.TrimPrefix(r.URL.Path, "/"); name {
		case "stable.json":
			fmt.Fprintf(w, stream, up.URL, sumOf(body("kernel")), sumOf(body("initramfs")), sumOf(body("rootfs")))
		case broken:
			w.WriteHeader(http.StatusForbidden)
		default:
			_, _ = w.Write(body(name))
		}
	}))
	t.Cleanup(up.Close)
	dir := t.TempDir()
	l := &lab.Lab{Appliance: lab.Appliance{Files: dir}, Images: []*lab.Image{{
		Path: "images/fcos", Stream: up.URL + "/stable.json", Arch: "x86_64", Artifact: "metal", Format: "pxe",
	}}}
	items := func() []images.Item {
		items, wrong := images.Items(t.Context(), l, images.Fetch(http.DefaultClient))
		if len(wrong) > 0 {
			t.Fatal(wrong[0])
		}
		return items
	}
	there := func() (names []string) {
		entries, _ := os.ReadDir(filepath.Join(dir, "images/fcos"))
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".") {
				names = append(names, e.Name())
			}
		}
		return names
	}
	if _, wrong := images.Items(t.Context(), l, images.Saved); len(wrong) == 0 {
		t.Error("a document is there before the pull")
	}
	if _, _, err := pull(t, dir, items()); err == nil {
		t.Error("a missing rootfs is no error")
	}
	want(t, "there after a half", there(), nil)
	mu.Lock()
	broken = ""
	mu.Unlock()
	if _, _, err := pull(t, dir, items()); err != nil {
		t.Fatal(err)
	}
	want(t, "there", there(), []string{"initramfs", "kernel", "rootfs", "stream.json"})
	mu.Lock()
	old := body("kernel")
	generation = "2"
	mu.Unlock()
	holds(t, filepath.Join(dir, "images/fcos/kernel"), old)
	saved, wrong := images.Items(t.Context(), l, images.Saved)
	if len(wrong) > 0 || len(saved) != 3 {
		t.Fatalf("saved: %v, %v", saved, wrong)
	}
	for _, s := range images.Check(t.Context(), dir, saved) {
		if s.State != images.Present {
			t.Errorf("%s is %s", s.Path, s.State)
		}
	}
	lines, _, err := pull(t, dir, items())
	want(t, "the next release", lines, []string{"images/fcos/initramfs fetched", "images/fcos/kernel fetched", "images/fcos/rootfs fetched"})
	if err != nil {
		t.Error(err)
	}
	holds(t, filepath.Join(dir, "images/fcos/kernel"), body("kernel"))
}

// TestPullWithUmask wants what a careful root pulled to be there for the daemon's user. It is not parallel: a umask is the
// whole process's.
func TestPullWithUmask(t *testing.T) {
	body := noise("umask", 100)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(body) }))
	defer up.Close()
	top := t.TempDir()
	if err := os.Mkdir(filepath.Join(top, "own"), 0o700); err != nil {
		t.Fatal(err)
	}
	defer syscall.Umask(syscall.Umask(0o077))
	item := func(path string) images.Item {
		return images.Item{Path: path, Image: path, URLs: []string{up.URL}, SHA256: sumOf(body)}
	}
	if _, _, err := pull(t, filepath.Join(top, "files"), []images.Item{item("a/b/c")}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := pull(t, top, []images.Item{item("own/d")}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"files": 0o755, "files/a": 0o755, "files/a/b": 0o755, "files/a/b/c": 0o644, "own": 0o700, "own/d": 0o644} {
		if info, err := os.Stat(filepath.Join(top, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %o", name, info.Mode().Perm(), err, want)
		}
	}
}
