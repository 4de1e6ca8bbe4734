package lbproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// serveHTTP runs a handler on a new address until the test ends.
func serveHTTP(t testing.TB, h http.HandlerFunc) netip.AddrPort {
	t.Helper()
	at := addr(t)
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return at
}

func respond(what string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, what) }
}

func httpBalancer(name string, listen netip.AddrPort, backends ...netip.AddrPort) *lab.Balancer {
	return with(balancer(name, listen, backends...), func(b *lab.Balancer) { b.Mode = lab.ModeHTTP })
}

// httpClient returns a client that shares no connections with others.
func httpClient(t testing.TB) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

func fetch(t testing.TB, c *http.Client, at fmt.Stringer, host string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+at.String()+"/path?q=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestHTTPForwards(t *testing.T) {
	t.Parallel()
	seen := make(chan *http.Request, 1)
	back := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) { seen <- r.Clone(context.Background()) })
	b := httpBalancer("web", addr(t), back)
	newTestServer(t, Config{}, b)
	r, _ := http.NewRequest(http.MethodGet, "http://"+b.Listen.String()+"/a%2Fb?q=1;2", nil)
	r.Host = "shop.lab"
	r.Header.Set("X-Forwarded-For", "6.6.6.6") // forged
	resp, err := httpClient(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	got := <-seen
	want := map[string]string{
		"host": "shop.lab", "uri": "/a%2Fb?q=1;2", "for": "127.0.0.1", "proto": "http", "fhost": "shop.lab",
	}
	h := got.Header
	if diff := cmp.Diff(want, map[string]string{
		"host": got.Host, "uri": got.RequestURI, "for": h.Get("X-Forwarded-For"), "proto": h.Get("X-Forwarded-Proto"), "fhost": h.Get("X-Forwarded-Host"),
	}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHTTPBalancesRequestsAndKeepsConnections(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	conns := make(map[string]bool)
	one := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			conns[name+r.RemoteAddr] = true
			mu.Unlock()
			_, _ = io.WriteString(w, name)
		}
	}
	b := httpBalancer("web", addr(t), serveHTTP(t, one("a")), serveHTTP(t, one("b")))
	r := newTestServer(t, Config{Hedge: time.Minute}, b)
	count := make(map[string]int)
	c := httpClient(t)
	for range 20 {
		_, body := fetch(t, c, b.Listen, "x")
		count[body]++
		r.waitEnded(t, "web")
	}
	if diff := cmp.Diff(map[string]int{"a": 10, "b": 10}, count); diff != "" {
		t.Errorf("requests of one connection (-want +got):\n%s", diff)
	}
	if len(conns) > 4 {
		t.Errorf("%d connections to backends for 20 requests in turn, want about 2", len(conns))
	}
	if got := testutil.ToFloat64(r.metrics.connections.WithLabelValues("web")); got != 1 {
		t.Errorf("%v connections counted, want 1", got)
	}
	netns.WaitFor(t, "20 requests counted", func() bool {
		return testutil.ToFloat64(r.metrics.requests.WithLabelValues("web", "2xx")) == 20
	})
}

func TestHTTPByHost(t *testing.T) {
	t.Parallel()
	at := addr(t)
	host := func(name string, back netip.AddrPort, patterns ...string) *lab.Balancer {
		return with(httpBalancer(name, at, back), func(b *lab.Balancer) { b.Match.Host = patterns })
	}
	bs := []*lab.Balancer{
		host("apps", serveHTTP(t, respond("apps")), "*.apps.lab"),
		host("one", serveHTTP(t, respond("one")), "one.apps.lab"),
	}
	r := newTestServer(t, Config{}, bs...)
	c := httpClient(t)
	tests := []struct {
		host, want string
		status     int
	}{
		{"one.apps.lab", "one", 200},
		{"TWO.apps.lab:80", "apps", 200},
		{"other.lab", "no balancer of this address matches this host\n", 503},
		{"three.apps.lab", "apps", 200},
	}
	for _, test := range tests {
		if status, body := fetch(t, c, at, test.host); body != test.want || status != test.status {
			t.Errorf("%s: %d %q, want %d %q", test.host, status, body, test.status, test.want)
		}
	}
	r.apply(t, append(bs, host("rest", serveHTTP(t, respond("rest"))))...)
	if _, body := fetch(t, c, at, "other.lab"); body != "rest" {
		t.Errorf("after a reload: %q, want the balancer without a match", body)
	}
}

func TestHTTPByPath(t *testing.T) {
	t.Parallel()
	at := addr(t)
	match := func(name, host string, paths ...string) *lab.Balancer {
		return with(httpBalancer(name, at, serveHTTP(t, respond(name))), func(b *lab.Balancer) {
			if b.Match.Path = paths; host != "" {
				b.Match.Host = []string{host}
			}
		})
	}
	newTestServer(t, Config{}, match("rest", ""), match("api", "", "/api", "/v2"), match("deep", "", "/api/deep"), match("shop", "shop.lab"),
		match("shop-cart", "shop.lab", "/cart"), match("wild-api", "*.lab", "/api"), match("only", "only.other", "/x"))
	for _, test := range []struct{ host, target, want string }{
		{"a.test", "/", "rest"},
		{"a.test", "/api", "api"},
		{"a.test", "/api?x=/api/deep", "api"},
		{"a.test", "/api/", "api"},
		{"a.test", "/apix", "rest"},
		{"a.test", "/v2/x", "api"},
		{"a.test", "/api/deep", "deep"},
		{"a.test", "/api/deep/er", "deep"},
		{"a.test", "/API", "rest"},
		{"a.test", "/%61pi", "rest"}, // as it is written
		{"a.test", "http://a.test/api/x", "api"},
		{"shop.lab", "/api", "shop"}, // the host decides first
		{"shop.lab", "/cart/1", "shop-cart"},
		{"b.lab", "/api", "wild-api"},
		{"b.lab", "/api/deep", "wild-api"},
		{"b.lab", "/other", "rest"}, // no path of the host matches
		{"only.other", "/x", "only"},
		{"only.other", "/api", "api"},
	} {
		got := say(t, at, "GET "+test.target+" HTTP/1.1\r\nHost: "+test.host+"\r\nConnection: close\r\n\r\n")
		if _, body, _ := strings.Cut(got, "\r\n\r\n"); body != test.want {
			t.Errorf("%s%s: %q, want %s", test.host, test.target, body, test.want)
		}
	}
}

func TestHTTPWithoutBackend(t *testing.T) {
	t.Parallel()
	gone, alive := addr(t), serveHTTP(t, respond("alive"))
	b := with(httpBalancer("web", addr(t), gone), func(b *lab.Balancer) { b.Timeouts.Connect = 300 * time.Millisecond })
	r := newTestServer(t, Config{Ejection: time.Hour}, b)
	for range 3 {
		if status, body := fetch(t, httpClient(t), b.Listen, "x"); status != 503 || !strings.Contains(body, "balancer web") {
			t.Errorf("%d %q, want 503 that names the balancer", status, body)
		}
	}
	r.apply(t, httpBalancer("web", listenOf(b), gone, alive))
	for range 4 {
		if status, body := fetch(t, httpClient(t), b.Listen, "x"); status != 200 || body != "alive" {
			t.Errorf("%d %q, want alive", status, body)
		}
	}
}

func TestHTTPRetryKeepsBody(t *testing.T) {
	t.Parallel()
	alive := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.Copy(w, r.Body)
	})
	b := httpBalancer("web", addr(t), addr(t), addr(t), alive)
	newTestServer(t, Config{Ejection: time.Hour}, b)
	body := strings.Repeat("0123456789", 100_000)
	for range 3 {
		resp, err := httpClient(t).Post("http://"+b.Listen.String()+"/", "text/plain", io.MultiReader(strings.NewReader(body)))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(got) != body {
			t.Errorf("%d bytes came back, want %d", len(got), len(body))
		}
	}
}

// TestHTTPRepeatedOnce: a request whose connection ends without an answer, though the backend had it, is sent to one other backend: one
// that makes backends fail does not visit all of them.
func TestHTTPRepeatedOnce(t *testing.T) {
	t.Parallel()
	var failing atomic.Bool
	var asked atomic.Int64
	var reached [8]atomic.Bool
	var backends []netip.AddrPort
	for i := range reached {
		backends = append(backends, serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
			reached[i].Store(true)
			if asked.Add(1); failing.Load() {
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, "ok")
		}))
	}
	b := httpBalancer("web", addr(t), backends...)
	r := newTestServer(t, Config{}, b)
	client := httpClient(t)
	netns.WaitFor(t, "a connection to each backend", func() bool {
		fetch(t, client, b.Listen, "x")
		for i := range reached {
			if !reached[i].Load() {
				return false
			}
		}
		return true
	})
	netns.WaitFor(t, "all connections are idle", func() bool {
		return !slices.ContainsFunc(r.Status()[0].Backends, func(s BackendStatus) bool { return s.Connections > 0 })
	})
	failing.Store(true)
	before := asked.Load()
	status, _ := fetch(t, client, b.Listen, "x")
	if n := asked.Load() - before; n != 2 || status != http.StatusBadGateway {
		t.Errorf("a request that no backend answers was sent %d times and answered %d, want twice and 502", n, status)
	}
}

func TestHTTPSilentBackendIsSkipped(t *testing.T) {
	t.Parallel()
	silent, alive := addr(t), serveHTTP(t, respond("alive"))
	deps := Deps{Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		if to == silent {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return dialTCP(ctx, to)
	}}
	b := httpBalancer("web", addr(t), silent, alive)
	b.Timeouts.Connect = time.Hour // without the hedge a request would wait for it
	newTestServerWith(t, Config{Hedge: 20 * time.Millisecond}, deps, b)
	for range 6 {
		if _, body := fetch(t, httpClient(t), b.Listen, "x"); body != "alive" {
			t.Errorf("body %q", body)
		}
	}
}

func TestHTTPStreams(t *testing.T) {
	t.Parallel()
	next := make(chan string)
	back := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		for s := range next {
			_, _ = io.WriteString(w, s+"\n")
			_ = http.NewResponseController(w).Flush()
		}
	})
	b := httpBalancer("web", addr(t), back)
	newTestServer(t, Config{}, b)
	go func() { next <- "0" }()
	resp, err := httpClient(t).Get("http://" + b.Listen.String() + "/watch")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for i := range 3 {
		if i > 0 {
			next <- fmt.Sprint(i) // only once the line before has arrived
		}
		if !lines.Scan() || lines.Text() != fmt.Sprint(i) {
			t.Fatalf("line %d did not come while the response was open", i)
		}
	}
	close(next)
}

// serveUpgrade serves a backend that sends back what it gets in the other protocol.
func serveUpgrade(t *testing.T) netip.AddrPort {
	t.Helper()
	return serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			http.Error(w, "upgrade", http.StatusUpgradeRequired)
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		_, _ = io.Copy(c, rw)
	})
}

const upgradeRequest = "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"

// TestHTTPUpgradeBehindProxy: what a client sends behind its upgrade, and was read with the PROXY header, reaches the backend.
func TestHTTPUpgradeBehindProxy(t *testing.T) {
	t.Parallel()
	b := with(httpBalancer("web", addr(t), serveUpgrade(t)), func(b *lab.Balancer) {
		b.AcceptProxy = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	newTestServer(t, Config{}, b)
	c := dial(t, b.Listen)
	early := strings.Repeat("early, ", 1500) + "end"
	_, _ = io.WriteString(c, "PROXY TCP4 203.0.113.9 198.51.100.1 4711 443\r\n"+upgradeRequest+early)
	for got := ""; got != "\r"; {
		got = readLine(t, c)
	}
	got := make([]byte, len(early))
	if n, err := io.ReadFull(c, got); string(got) != early {
		t.Errorf("%d of %d bytes came back: %v", n, len(early), err)
	}
}

func TestHTTPUpgrade(t *testing.T) {
	t.Parallel()
	b := httpBalancer("web", addr(t), serveUpgrade(t))
	r := newTestServer(t, Config{Drain: 200 * time.Millisecond}, b)
	c := dial(t, b.Listen)
	_, _ = io.WriteString(c, upgradeRequest)
	if got := readLine(t, c); got != "HTTP/1.1 101 Switching Protocols\r" {
		t.Fatalf("status %q", got)
	}
	for got := ""; got != "\r"; {
		got = readLine(t, c)
	}
	for _, word := range []string{"one", "two"} {
		_, _ = io.WriteString(c, word+"\n")
		if got := readLine(t, c); got != word {
			t.Errorf("echoed %q, want %q", got, word)
		}
	}
	if got := r.Status()[0].Backends[0].Connections; got != 1 {
		t.Errorf("%d requests in progress, want the upgraded one", got)
	}
	began := time.Now()
	r.stop() // an upgraded connection is drained like any other
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("stopped after %s, want at least the drain of 200ms", took)
	}
}

func TestHTTPIdleUpgradeEnds(t *testing.T) {
	t.Parallel()
	back := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // a watch without events
	})
	b := with(httpBalancer("web", addr(t), back), func(b *lab.Balancer) { b.Timeouts.Idle = 2 * time.Second })
	r := newTestServer(t, Config{Sweep: 20 * time.Millisecond}, b)
	var resp *http.Response
	netns.WaitFor(t, "a response within the idle timeout", func() (ok bool) {
		var err error
		resp, err = httpClient(t).Get("http://" + b.Listen.String() + "/")
		return err == nil
	})
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("an idle watch ended like a complete response")
	}
	netns.WaitFor(t, "request gone", func() bool { return r.Status()[0].Backends[0].Connections == 0 })
}

func TestHTTPBackendClosesEarly(t *testing.T) {
	t.Parallel()
	back := serveTCP(t, func(c net.Conn) { _, _ = http.ReadRequest(bufio.NewReader(c)) })
	b := httpBalancer("web", addr(t), back)
	newTestServer(t, Config{}, b)
	if status, body := fetch(t, httpClient(t), b.Listen, "x"); status != 502 {
		t.Errorf("%d %q, want 502", status, body)
	}
}

func TestHTTPSendsProxyHeader(t *testing.T) {
	t.Parallel()
	first := make(chan string, 8)
	back := serveTCP(t, func(c net.Conn) {
		first <- readLine(t, c)
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	})
	b := with(httpBalancer("web", addr(t), back), func(b *lab.Balancer) { b.SendProxy = 1 })
	newTestServer(t, Config{}, b)
	for range 2 { // two clients never share a connection whose header names one of them
		c := dial(t, b.Listen)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		_, _ = io.ReadAll(c)
		want := fmt.Sprintf("PROXY TCP4 127.0.0.1 %s %d 8000\r", listenOf(b).Addr(), addrPort(c.LocalAddr()).Port())
		if got := <-first; got != want {
			t.Errorf("header %q, want %q", got, want)
		}
	}
}

func TestHTTPRetiredListenerClosesKeepAlive(t *testing.T) {
	t.Parallel()
	b := httpBalancer("web", addr(t), serveHTTP(t, respond("web")))
	r := newTestServer(t, Config{}, b)
	c := dial(t, b.Listen)
	in := bufio.NewReader(c)
	for _, want := range []bool{false, true} {
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if string(body) != "web" || resp.Close != want {
			t.Errorf("body %q, close %t, want web and %t", body, resp.Close, want)
		}
		r.apply(t)
	}
	if _, err := net.Dial("tcp", b.Listen.String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial = %v, want refused", err)
	}
}
