package mirror_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/content/mirror"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

const (
	deb   = "pool/main/h/hello/hello_2.10_amd64.deb"
	index = "dists/stable/InRelease"
)

// TestPackageIsFetchedOnce: the content of a package belongs to its name, so upstream is asked once, also after a restart
// and when upstream is gone.
func TestPackageIsFetchedOnce(t *testing.T) {
	t.Parallel()
	body := noise(3 << 20)
	up := newArchive(t, content(body, `"v1"`))
	w := newWorld(t, t.TempDir(), lab.Mirror{URLs: []string{up.URL + "/debian"}})
	w.want(t, deb, body, mirror.Miss)
	w.settle(t, 1)
	w.clock.Advance(1000 * time.Hour)
	w.want(t, deb, body, mirror.Hit)
	w.stop()
	revalidated := newWorld(t, w.dir, lab.Mirror{URLs: []string{up.URL + "/debian"}})
	revalidated.want(t, deb, body, mirror.Hit)
	up.Close()
	revalidated.want(t, deb, body, mirror.Hit)
	if diff := cmp.Diff([]string{"GET /debian/" + deb}, up.questions()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// TestIndexIsAskedForAgain: an index is believed for a while, then upstream says whether it changed.
func TestIndexIsAskedForAgain(t *testing.T) {
	t.Parallel()
	up := newArchive(t, content([]byte("one"), `"v1"`))
	w := newWorld(t, t.TempDir(), lab.Mirror{URLs: []string{up.URL}, Fresh: time.Minute})
	w.want(t, index, []byte("one"), mirror.Miss)
	w.settle(t, 1)
	w.want(t, index, []byte("one"), mirror.Hit)
	w.clock.Advance(2 * time.Minute)
	w.want(t, index, []byte("one"), mirror.Revalidated)
	w.want(t, index, []byte("one"), mirror.Hit)
	up.becomes(content([]byte("second"), `"v2"`))
	w.clock.Advance(2 * time.Minute)
	w.want(t, index, []byte("second"), mirror.Miss)
	conditions := " If-None-Match: \"v1\" If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT"
	want := []string{"GET /" + index, "GET /" + index + conditions, "GET /" + index + conditions}
	if diff := cmp.Diff(want, up.questions()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// TestStale: while upstream is down, what is kept is given out, and the rest is 503: ask again.
func TestStale(t *testing.T) {
	t.Parallel()
	up := newArchive(t, content([]byte("one"), `"v1"`))
	w := newWorld(t, t.TempDir(), lab.Mirror{URLs: []string{up.URL}})
	w.want(t, index, []byte("one"), mirror.Miss)
	w.settle(t, 1)
	broken := func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusBadGateway) }
	up.becomes(broken)
	w.clock.Advance(time.Hour)
	w.want(t, index, []byte("one"), mirror.Stale)
	w.want(t, index, []byte("one"), mirror.Stale)
	if _, _, err := w.get(t, deb); statusOf(err) != http.StatusServiceUnavailable {
		t.Errorf("what is not kept: %v", err)
	}
	// The second question for the index was not asked: upstream was known to be down.
	if n := len(up.questions()); n != 3 {
		t.Errorf("%d questions", n)
	}
	if down := w.cache.Outages(); len(down) != 1 || down[0].Mirror != "debian" || !down[0].Since.Equal(w.clock.Now()) || !strings.Contains(down[0].Err, "502") {
		t.Errorf("outages %+v", down)
	}
	up.becomes(content([]byte("second"), `"v2"`))
	w.clock.Advance(time.Hour)
	w.want(t, index, []byte("second"), mirror.Miss)
	if down := w.cache.Outages(); len(down) > 0 {
		t.Errorf("outages %+v after an answer", down)
	}
	if diff := cmp.Diff([]string{"mirror_down debian", "mirror_up debian"}, w.events.answered()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestOneFetchForMany: many readers, one question, and all of them read while it comes.
func TestOneFetchForMany(t *testing.T) {
	t.Parallel()
	body := noise(1 << 20)
	answer, open := gated(body, len(body)/2)
	up := newArchive(t, answer)
	w := newWorld(t, t.TempDir(), lab.Mirror{URLs: []string{up.URL}})
	var readers sync.WaitGroup
	begun := make(chan struct{}, 50)
	for range cap(begun) {
		readers.Go(func() {
			f, err := w.cache.Open(t.Context(), w.mirror, deb, http.MethodGet)
			if err != nil {
				t.Error(err)
				begun <- struct{}{}
				return
			}
			defer f.Close()
			got := make([]byte, len(body))
			_, err = io.ReadFull(f.Content, got[:len(body)/2])
			begun <- struct{}{} // while upstream still waits
			if err == nil {
				_, err = io.ReadFull(f.Content, got[len(body)/2:])
			}
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("the bytes differ, %v", err)
			}
		})
	}
	for range cap(begun) {
		<-begun
	}
	open()
	readers.Wait()
	if asked := up.questions(); len(asked) != 1 {
		t.Errorf("asked %q", asked)
	}
	if misses, joined := w.metric(t, mirror.MetricRequests, "result=miss"), w.metric(t, mirror.MetricRequests, "result=joined"); misses != 1 || joined != 49 {
		t.Errorf("%v misses, %v joined", misses, joined)
	}
}

// dying sends n bytes of each answer and then closes the connection.
func dying(body []byte, etag string, n int) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		at := 0
		status := "200 OK"
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &at); err == nil {
			status = "206 Partial Content"
		}
		conn, w, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(w, "HTTP/1.1 %s\r\nContent-Length: %d\r\n", status, len(body)-at)
		if etag != "" {
			fmt.Fprintf(w, "ETag: %s\r\n", etag)
		}
		if at > 0 {
			fmt.Fprintf(w, "Content-Range: bytes %d-%d/%d\r\n", at, len(body)-1, len(body))
		}
		fmt.Fprint(w, "\r\n")
		_, _ = w.Write(body[at:min(at+n, len(body))])
		_ = w.Flush()
	}
}

// versions sends the first bytes of a file, and of another one of its size when it is asked for the rest, with these ETags.
func versions(body []byte, first, second string) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" {
			dying(slices.Repeat([]byte("x"), len(body)), second, len(body))(rw, r)
			return
		}
		dying(body, first, 300_000)(rw, r)
	}
}

// TestUpstreamDiesInTheMiddle: what broke off is resumed where that can be done, and else never given out as a whole.
func TestUpstreamDiesInTheMiddle(t *testing.T) {
	t.Parallel()
	body := noise(1 << 20)
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		whole  bool
	}{
		{"resumed", dying(body, `"v1"`, 300_000), true},
		{"no ETag, no date: nothing to resume by", dying(body, "", 300_000), false},
		{"a weak ETag is no ground to resume on", dying(body, `W/"v1"`, 300_000), false},
		{"another file meanwhile", func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") != "" {
				content(noise(2<<20), `"v2"`)(rw, r)
				return
			}
			dying(body, `"v1"`, 300_000)(rw, r)
		}, false},
		{"another file of that size meanwhile, by an upstream that ignores If-Range", versions(body, `"v1"`, `"v2"`), false},
		{"the same by date", versions(body, "W/\"v1\"\r\nLast-Modified: Tue, 14 Nov 2023 22:13:20 GMT", "W/\"v1\"\r\nLast-Modified: Wed, 15 Nov 2023 22:13:20 GMT"), false},
		{"another place than asked for", func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") != "" {
				r.Header.Set("Range", "bytes=100-")
				r.Header.Del("If-Range")
				content(body, `"v1"`)(rw, r)
				return
			}
			dying(body, `"v1"`, 300_000)(rw, r)
		}, false},
		{"more than the rest", func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") != "" {
				rw.Header().Set("Content-Range", "bytes 300000-1048575/1048576")
				rw.Header().Set("Content-Length", "3000000")
				rw.WriteHeader(http.StatusPartialContent)
				_, _ = rw.Write(body[300_000:])
				_, _ = rw.Write(noise(3_000_000 - len(body) + 300_000))
				return
			}
			dying(body, `"v1"`, 300_000)(rw, r)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			up := newArchive(t, tt.answer)
			w := newWorld(t, t.TempDir(), lab.Mirror{URLs: []string{up.URL}})
			got, _, err := w.get(t, deb)
			if tt.name == "more than the rest" && (err == nil || !strings.Contains(err.Error(), "longer than its Content-Length")) {
				t.Errorf("%v", err)
			}
			switch {
			case tt.whole && (err != nil || !bytes.Equal(got, body)):
				t.Errorf("%d bytes, %v", len(got), err)
			case !tt.whole && (err == nil || !bytes.HasPrefix(body, got) || len(got) >= len(body)):
				t.Errorf("%d bytes, %v: want a part and an error", len(got), err)
			}
			if tt.whole {
				w.settle(t, 1)
				w.want(t, deb, body, mirror.Hit)
				return
			}
			w.settle(t, 0)
			up.becomes(content(body, `"v3"`))
			w.want(t, deb, body, mirror.Miss)
		})
	}
}

// TestLies: what is not as long as told, or has a wrong checksum, is not kept, and no reader takes it for whole.
func TestLies(t *testing.T) {
	t.Parallel()
	body := noise(600_000)
	sum := sha256.Sum256(body)
	wrong := sha256.Sum256(nil)
	other := slices.Clone(body)
	other[len(other)-1]++
	raw := func(header string, b []byte) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			conn, w, err := rw.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			fmt.Fprintf(w, "%s\r\n", header)
			_, _ = w.Write(b)
			_ = w.Flush()
		}
	}
	digest := func(field string, sum []byte) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set(field, "sha-256=:"+base64.StdEncoding.EncodeToString(sum)+":")
			content(body, `"v1"`)(rw, r)
		}
	}
	for _, tt := range []struct {
		name, path string
		answer     http.HandlerFunc
		whole      bool
		cached     int
	}{
		{"shorter than told", deb, raw("HTTP/1.1 200 OK\r\nContent-Length: 600000\r\n", body[:500_000]), false, 0},
		{"longer than told", deb, raw("HTTP/1.1 200 OK\r\nContent-Length: 600000\r\n", append(slices.Clone(body), "more"...)), true, 1},
		{"chunks that end too early", deb, raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", []byte("6\r\nabcdef\r\n")), false, 0},
		{"no length at all is served, not kept", deb, raw("HTTP/1.0 200 OK\r\n", body), true, 0},
		{"by hash, right", fmt.Sprintf("dists/x/by-hash/SHA256/%x", sum), content(body, `"v1"`), true, 1},
		{"by hash, wrong", fmt.Sprintf("dists/x/by-hash/SHA256/%x", sum), content(other, `"v1"`), false, 0},
		{"repodata, right", fmt.Sprintf("repodata/%x-primary.xml.gz", sum), content(body, `"v1"`), true, 1},
		{"repodata, wrong", fmt.Sprintf("repodata/%x-primary.xml.gz", sum), content(other, `"v1"`), false, 0},
		{"Repr-Digest, right", deb, digest("Repr-Digest", sum[:]), true, 1},
		{"Content-Digest, wrong", deb, digest("Content-Digest", wrong[:]), false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			up := newArchive(t, tt.answer)
			w := newWorld(t, t.TempDir(), lab.Mirror{URLs: []string{up.URL}})
			got, _, err := w.get(t, tt.path)
			if tt.whole && (err != nil || !bytes.Equal(got, body)) || !tt.whole && (err == nil || len(got) >= len(body)) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			w.settle(t, tt.cached)
			answered := func() bool { return slices.Contains(w.events.answered(), "mirror_corrupt debian/"+tt.path) }
			if strings.HasSuffix(tt.name, "wrong") {
				netns.WaitFor(t, "the word that it is corrupt", answered) // the reader may hear of it first
			} else if answered() {
				t.Errorf("events %q", w.events.answered())
			}
		})
	}
}

// TestStalledUpstream: an upstream that stops sending is given up, and asked for the rest.
func TestStalledUpstream(t *testing.T) {
	t.Parallel()
	body := noise(500_000)
	answer, _ := gated(body, 100_000)
	up := newArchive(t, answer)
	w := newPatientWorld(t, t.TempDir(), time.Second, lab.Mirror{URLs: []string{up.URL}})
	w.want(t, deb, body, mirror.Miss)
}

// TestSecondUpstream: the first that answers is used, for a missing file too.
func TestSecondUpstream(t *testing.T) {
	t.Parallel()
	const gone = "http://127.0.0.1:1"
	first := newArchive(t, http.NotFound)
	second := newArchive(t, content([]byte("there"), `"v1"`))
	w := newWorld(t, t.TempDir(), lab.Mirror{URLs: []string{gone, first.URL, second.URL}})
	w.want(t, deb, []byte("there"), mirror.Miss)
	second.becomes(http.NotFound)
	if _, _, err := w.get(t, index); statusOf(err) != http.StatusNotFound {
		t.Errorf("nobody has it: %v", err)
	}
	if len(w.events.answered()) > 0 {
		t.Errorf("events %q", w.events.answered())
	}
}
