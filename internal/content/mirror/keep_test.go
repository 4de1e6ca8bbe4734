package mirror_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/content/mirror"
	"github.com/bootlab/bootlab/internal/lab"
)

// TestBounded: what was used longest ago goes first, what is read stays, and what does not fit is passed through.
func TestBounded(t *testing.T) {
	t.Parallel()
	body := noise(100_000)
	up := newArchive(t, content(body, `"v1"`))
	w := newWorld(t, t.TempDir(), lab.Mirror{URLs: []string{up.URL}, MaxSize: 400_000})
	name := func(i int) string { return fmt.Sprintf("pool/%d.deb", i) }
	for i := range 3 {
		w.want(t, name(i), body, mirror.Miss)
		w.settle(t, i+1)
	}
	held, err := w.cache.Open(t.Context(), w.mirror, name(1), http.MethodGet)
	if err != nil {
		t.Fatal(err)
	}
	w.want(t, name(2), body, mirror.Hit)
	w.want(t, name(0), body, mirror.Hit)
	w.want(t, name(3), body, mirror.Miss) // 2 has to go: 1 was used before it, but is read
	w.settle(t, 3)
	w.want(t, name(1), body, mirror.Hit)
	w.want(t, name(0), body, mirror.Hit)
	w.want(t, name(2), body, mirror.Miss)
	if got, err := io.ReadAll(held.Content); err != nil || !bytes.Equal(got, body) {
		t.Errorf("what was read meanwhile: %d bytes, %v", len(got), err)
	}
	held.Close()
	w.settle(t, 3)
	if used := w.metric(t, mirror.MetricBytes); used > 400_000 || used < 300_000 {
		t.Errorf("%v bytes are booked", used)
	}
	if n := w.metric(t, mirror.MetricEvicted); n != 2 {
		t.Errorf("%v evictions", n)
	}
	up.becomes(content(noise(500_000), `"big"`))
	w.want(t, "pool/big.deb", noise(500_000), mirror.Passed)
	if answered := w.events.answered(); !slices.Contains(answered, "mirror_bypassed debian/pool/big.deb") {
		t.Errorf("events %q", answered)
	}
	if len(w.onDisk()) != 3 {
		t.Errorf("on disk %q", w.onDisk())
	}
}

// TestRestartClearsAway: what an end in the middle left behind is not given out and takes no room.
func TestRestartClearsAway(t *testing.T) {
	t.Parallel()
	body := noise(50_000)
	up := newArchive(t, content(body, `"v1"`))
	w := newWorld(t, t.TempDir(), lab.Mirror{URLs: []string{up.URL}})
	for _, p := range []string{"pool/a.deb", "pool/b.deb", "pool/c.deb"} {
		w.want(t, p, body, mirror.Miss)
	}
	w.settle(t, 3)
	w.stop()
	names := w.onDisk()
	at := func(i int) string { return filepath.Join(w.dir, "debian", names[i][:2], names[i]) }
	for _, err := range []error{
		os.Truncate(at(0), 10),
		os.WriteFile(at(1)+".json", []byte(`{"size":50`), 0o600),
		os.WriteFile(filepath.Join(w.dir, "debian", names[2][:2], "part-1"), body, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	revalidated := newWorld(t, w.dir, lab.Mirror{URLs: []string{up.URL}})
	revalidated.settle(t, 1)
	up.questions()
	for _, p := range []string{"pool/a.deb", "pool/b.deb", "pool/c.deb"} {
		if got, _, err := revalidated.get(t, p); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%s: %d bytes, %v", p, len(got), err)
		}
	}
	if n := len(up.questions()); n != 2 {
		t.Errorf("%d questions, want 2: one file was whole", n)
	}
}

// TestAnotherArchive: what came from an upstream that is no longer the mirror's is not given out.
func TestAnotherArchive(t *testing.T) {
	t.Parallel()
	one, two := newArchive(t, content([]byte("debian"), `"v1"`)), newArchive(t, content([]byte("ubuntu"), `"v1"`))
	w := newWorld(t, t.TempDir(), lab.Mirror{URLs: []string{one.URL}})
	w.want(t, deb, []byte("debian"), mirror.Miss)
	w.settle(t, 1)
	w.mirror.URLs = []string{two.URL}
	w.want(t, deb, []byte("ubuntu"), mirror.Miss)
}

// TestAnotherArchiveMeanwhile: nobody joins a download from an upstream that is no longer the mirror's. Who reads it already gets all of it, and it
// does not replace what the new upstream has.
func TestAnotherArchiveMeanwhile(t *testing.T) {
	t.Parallel()
	body := noise(1 << 20)
	answer, open := gated(body, len(body)/2)
	one, two := newArchive(t, answer), newArchive(t, content([]byte("ubuntu"), `"v1"`))
	w := newWorld(t, t.TempDir(), lab.Mirror{URLs: []string{one.URL}})
	f, err := w.cache.Open(t.Context(), w.mirror, deb, http.MethodGet)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, len(body))
	if _, err := io.ReadFull(f.Content, got[:1000]); err != nil {
		t.Fatal(err)
	}
	w.mirror = &lab.Mirror{Name: w.mirror.Name, URLs: []string{two.URL}, MaxSize: w.mirror.MaxSize, Fresh: w.mirror.Fresh}
	w.want(t, deb, []byte("ubuntu"), mirror.Miss)
	open()
	if _, err := io.ReadFull(f.Content, got[1000:]); err != nil || !bytes.Equal(got, body) {
		t.Errorf("the download that was replaced: %v", err)
	}
	w.settle(t, 1)
	w.want(t, deb, []byte("ubuntu"), mirror.Hit)
	if events := w.events.answered(); len(events) > 0 {
		t.Errorf("events %q", events)
	}
}

// TestHeadFetchesNothing, and a range far ahead does not wait for what is before it.
func TestHeadFetchesNothing(t *testing.T) {
	t.Parallel()
	body := noise(1000)
	up := newArchive(t, content(body, `"v1"`))
	w := newWorld(t, t.TempDir(), lab.Mirror{URLs: []string{up.URL}})
	f, err := w.cache.Open(t.Context(), w.mirror, deb, http.MethodHead)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if f.Size != 1000 || f.ETag != `"v1"` || f.Type != "application/x-test" || f.ModTime.Unix() != 1700000000 {
		t.Errorf("%+v", f)
	}
	if diff := cmp.Diff([]string{"HEAD /" + deb}, up.questions()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

func TestRangeFarAhead(t *testing.T) {
	t.Parallel()
	body := noise(12 << 20)
	answer, open := gated(body, 1000)
	up := newArchive(t, answer)
	w := newWorld(t, t.TempDir(), lab.Mirror{URLs: []string{up.URL}})
	f, err := w.cache.Open(t.Context(), w.mirror, deb, http.MethodGet)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Content.Seek(-100, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(f.Content); err != nil || !bytes.Equal(got, body[len(body)-100:]) {
		t.Errorf("the end: %d bytes, %v", len(got), err)
	}
	open()
	w.settle(t, 1)
	w.want(t, deb, body, mirror.Hit)
}

// TestReaderLeaves: who hangs up takes nothing from the others, and the file is kept all the same.
func TestReaderLeaves(t *testing.T) {
	t.Parallel()
	body := noise(1 << 20)
	answer, open := gated(body, 1000)
	up := newArchive(t, answer)
	w := newWorld(t, t.TempDir(), lab.Mirror{URLs: []string{up.URL}})
	ctx, passing := context.WithCancel(t.Context())
	f, err := w.cache.Open(ctx, w.mirror, deb, http.MethodGet)
	if err != nil {
		t.Fatal(err)
	}
	passing()
	if _, err := io.Copy(io.Discard, f.Content); err == nil {
		t.Error("its reads go on")
	}
	f.Close()
	open()
	w.settle(t, 1)
	w.want(t, deb, body, mirror.Hit)
}

// TestAllow: only what the lab names is asked for.
func TestAllow(t *testing.T) {
	t.Parallel()
	pool, err := lab.ParsePattern("pool/*")
	if err != nil {
		t.Fatal(err)
	}
	up := newArchive(t, content([]byte("x"), `"v1"`))
	w := newWorld(t, t.TempDir(), lab.Mirror{URLs: []string{up.URL}, Allow: []lab.Pattern{pool}})
	w.want(t, deb, []byte("x"), mirror.Miss)
	if _, _, err := w.get(t, index); statusOf(err) != http.StatusForbidden {
		t.Errorf("%v", err)
	}
	if asked := up.questions(); len(asked) != 1 {
		t.Errorf("asked %q", asked)
	}
}

// TestRedirects are followed, to http and https elsewhere, never to a listing, another scheme, or this machine.
func TestRedirects(t *testing.T) {
	t.Parallel()
	target := newArchive(t, content([]byte("there"), `"v1"`))
	up := newArchive(t, nil)
	w := newWorld(t, t.TempDir(), lab.Mirror{URLs: []string{up.URL}})
	for i, tt := range []struct {
		to     string
		status int // 0: the file
	}{
		{target.URL + "/x.deb", 0},
		{"/elsewhere.deb", 0},
		{"/pool/", http.StatusNotFound},
		{"ftp://127.0.0.1/x.deb", http.StatusServiceUnavailable},
		{"file:///etc/passwd", http.StatusServiceUnavailable},
	} {
		p := fmt.Sprintf("pool/%d.deb", i)
		up.becomes(func(rw http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "elsewhere.deb") {
				content([]byte("there"), `"v1"`)(rw, r)
				return
			}
			rw.Header().Set("Location", tt.to)
			rw.WriteHeader(http.StatusFound)
		})
		got, _, err := w.get(t, p)
		if statusOf(err) != tt.status || tt.status == 0 && (err != nil || string(got) != "there") {
			t.Errorf("to %s: %q, %v", tt.to, got, err)
		}
	}
}

// TestNoWayToThisMachine: neither a redirect nor a name that resolves to this machine lets an upstream lead there, where only programs of this
// machine are served, unless the lab file has that very upstream.
func TestNoWayToThisMachine(t *testing.T) {
	t.Parallel()
	here := newArchive(t, content([]byte("of this machine"), `"v1"`))
	_, port, err := net.SplitHostPort(here.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	redirect := newArchive(t, nil)
	for i, tt := range []struct {
		name, url, to string
		want          string // of the error; empty: the file
	}{
		{"the upstream's own address", here.URL, "", ""},
		{"its name for this machine", "http://localhost:" + port, "", ""},
		{"a name that leads here (DNS rebinding)", "http://archive.example:" + port, "", "is this machine"},
		{"a redirect to such a name", redirect.URL, "http://archive.example:" + port + "/x.deb", "is this machine"},
		{"a redirect of an upstream that is here", redirect.URL, here.URL + "/x.deb", ""},
		{"a redirect to the admin API", redirect.URL, "http://127.0.0.1:9680/metrics", "is the admin API"},
		{"another spelling of it", redirect.URL, "http://[::ffff:127.0.0.1]:9680/metrics", "is the admin API"},
		{"a metadata service", redirect.URL, "http://metadata.example:" + port + "/", "listing"},
	} {
		redirect.becomes(func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, tt.to, http.StatusFound) })
		here.questions()
		w := newWorld(t, t.TempDir(), lab.Mirror{URLs: []string{tt.url}})
		w.admin = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:9680")}
		got, _, err := w.get(t, fmt.Sprintf("pool/%d.deb", i))
		switch {
		case tt.want == "" && (err != nil || string(got) != "of this machine"):
			t.Errorf("%s: %q, %v", tt.name, got, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %q, %v, want an error: %s", tt.name, got, err, tt.want)
		case tt.want != "" && len(here.questions()) > 0:
			t.Errorf("%s: it was asked", tt.name)
		}
	}
}

// TestStopEndsFetches: a daemon that stops waits for no upstream.
func TestStopEndsFetches(t *testing.T) {
	t.Parallel()
	up := newArchive(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Length", "1000")
		rw.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	w := newWorld(t, t.TempDir(), lab.Mirror{URLs: []string{up.URL}})
	f, err := w.cache.Open(t.Context(), w.mirror, deb, http.MethodGet)
	if err != nil {
		t.Fatal(err)
	}
	w.stop()
	if _, err := io.ReadAll(f.Content); err == nil {
		t.Error("a part passes for the whole")
	}
	f.Close()
	if _, _, err := w.get(t, "pool/other.deb"); statusOf(err) != http.StatusServiceUnavailable {
		t.Errorf("after the stop: %v", err)
	}
	w.settle(t, 0)
}
