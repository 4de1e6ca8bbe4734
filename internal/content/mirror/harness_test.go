package mirror_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/bootlab/bootlab/internal/content/mirror"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/clock"
)

const patience = time.Minute // for what happens at once unless the machine is busy

// An archive is an upstream that answers as a test wants, and remembers what it was asked.
type archive struct {
	*httptest.Server
	mu     sync.Mutex
	answer http.HandlerFunc
	asked  []string // "METHOD path [range] [conditions]"
}

func newArchive(t testing.TB, answer http.HandlerFunc) *archive {
	t.Helper()
	a := &archive{answer: answer}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		line := r.Method + " " + r.URL.Path
		for _, h := range []string{"Range", "If-Range", "If-None-Match", "If-Modified-Since"} {
			if v := r.Header.Get(h); v != "" {
				line += " " + h + ": " + v
			}
		}
		a.asked = append(a.asked, line)
		answer := a.answer
		a.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(func() { a.CloseClientConnections(); a.Close() })
	return a
}

func (a *archive) becomes(answer http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = answer
}

// questions returns what was asked since the last call.
func (a *archive) questions() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked := a.asked
	a.asked = nil
	return asked
}

// content serves one file under every path, with ETag and date, ranges and conditions.
func content(b []byte, etag string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", etag)
		w.Header().Set("Content-Type", "application/x-test")
		http.ServeContent(w, r, "", time.Unix(1700000000, 0), bytes.NewReader(b))
	}
}

// gated sends the first n bytes of a file and keeps the rest until open is called, or the client goes away. A request for a
// range is answered at once.
func gated(body []byte, n int) (answer http.HandlerFunc, open func()) {
	gate := make(chan struct{})
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" {
			content(body, `"v1"`)(w, r)
			return
		}
		w.Header().Set("Etag", `"v1"`)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body[:n])
		w.(http.Flusher).Flush()
		select {
		case <-gate:
			_, _ = w.Write(body[n:])
		case <-r.Context().Done():
		}
	}, func() { close(gate) }
}

// noise is content that cannot be guessed, so that a byte out of place shows.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8(sha256.Sum256([]byte("noise")))
	_, _ = r.Read(b)
	return b
}

// A tape keeps events.
type tape struct {
	mu     sync.Mutex
	events []string
}

func (t *tape) Record(e event.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, e.Kind.String()+" "+e.Text())
}

func (t *tape) answered() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.events)
}

// A world is a cache with one mirror, and the time.
type world struct {
	dir    string
	clock  *clock.Clock
	events *tape
	reg    *prometheus.Registry
	cache  *mirror.Cache
	mirror *lab.Mirror
	admin  []netip.AddrPort
	stop   func()
}

// resolvesToLoopback connects to a name server for which every name is 127.0.0.1.
func resolvesToLoopback(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe() // no packets: messages have their length before them
	go func() {
		defer server.Close()
		for {
			var size [2]byte
			if _, err := io.ReadFull(server, size[:]); err != nil {
				return
			}
			b := make([]byte, binary.BigEndian.Uint16(size[:]))
			var m dnsmessage.Message
			if _, err := io.ReadFull(server, b); err != nil || m.Unpack(b) != nil {
				return
			}
			m.Response, m.Additionals = true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
			}
			b, err := m.AppendPack(make([]byte, 2))
			if err != nil {
				return
			}
			binary.BigEndian.PutUint16(b, uint16(len(b)-2))
			if _, err := server.Write(b); err != nil {
				return
			}
		}
	}()
	return client, nil
}

func newWorld(t testing.TB, dir string, m lab.Mirror) *world {
	t.Helper()
	return newPatientWorld(t, dir, patience, m)
}

// newPatientWorld makes a world that waits so long for an upstream that sends nothing.
func newPatientWorld(t testing.TB, dir string, idle time.Duration, m lab.Mirror) *world {
	t.Helper()
	m.Name = "debian"
	if m.MaxSize == 0 {
		m.MaxSize = 1 << 30
	}
	if m.Fresh == 0 {
		m.Fresh = 30 * time.Second
	}
	w := &world{dir: dir, clock: clock.New(time.Now()), events: &tape{}, reg: prometheus.NewRegistry(), mirror: &m}
	c, err := mirror.New(mirror.Config{Dir: dir, Idle: idle, Resolver: &net.Resolver{PreferGo: true, Dial: resolvesToLoopback}}, mirror.Deps{
		Mirrors: func() []*lab.Mirror { return []*lab.Mirror{&m} }, Events: w.events, Registerer: w.reg,
		Log: slog.New(slog.DiscardHandler), Now: w.clock.Now, Own: func(netip.Addr) bool { return false }, Admin: func() []netip.AddrPort { return w.admin },
	})
	if err != nil {
		t.Fatal(err)
	}
	w.cache = c
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			t.Error("Run does not end")
		}
	})
	t.Cleanup(w.stop)
	return w
}

// get reads a whole file and returns it with how it was answered.
func (w *world) get(t testing.TB, path string) ([]byte, mirror.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	f, err := w.cache.Open(ctx, w.mirror, path, http.MethodGet)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f.Content)
	if err == nil && int64(len(b)) != f.Size {
		t.Errorf("%s: %d bytes, told %d", path, len(b), f.Size)
	}
	return b, f.Result, err
}

// want gets a file and fails the test unless it is that.
func (w *world) want(t testing.TB, path string, body []byte, how mirror.Result) {
	t.Helper()
	got, result, err := w.get(t, path)
	if err != nil || result != how || !bytes.Equal(got, body) {
		t.Errorf("%s: %d bytes (the right ones: %t), %s, %v; want %d bytes, %s", path, len(got), bytes.Equal(got, body), result, err, len(body), how)
	}
}

// settle waits until fetches are over and n files are kept.
func (w *world) settle(t testing.TB, n int) {
	t.Helper()
	for end := time.Now().Add(patience); w.cache.Fetching() > 0 || len(w.onDisk()) != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("on disk: %q, want %d files; %d fetches under way", w.onDisk(), n, w.cache.Fetching())
		}
	}
}

// onDisk returns the files below the cache's folder, without metadata.
func (w *world) onDisk() (names []string) {
	_ = filepath.WalkDir(w.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasSuffix(path, ".json") && !strings.HasPrefix(d.Name(), ".") {
			names = append(names, filepath.Base(path))
		}
		return nil
	})
	return names
}

// metric returns the sum of a metric, over those of its labels that are given as "name=value".
func (w *world) metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if has(m, labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func has(m *dto.Metric, labels []string) bool {
	for _, want := range labels {
		if !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return fmt.Sprintf("%s=%s", l.GetName(), l.GetValue()) == want }) {
			return false
		}
	}
	return true
}

func statusOf(err error) int {
	var s interface{ HTTPStatus() int }
	if e, ok := err.(interface{ HTTPStatus() int }); ok {
		s = e
	}
	if s == nil {
		return 0
	}
	return s.HTTPStatus()
}
