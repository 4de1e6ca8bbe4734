package lbproxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/prometheus/client_golang/prometheus/testutil"
	http2frame "golang.org/x/net/http2"
)

// echoHead answers each request with its own head as the body. A target that starts with /trailers gets trailers.
func echoHead(c net.Conn) {
	in := bufio.NewReader(c)
	for {
		var head strings.Builder
		length := 0
		chunked := false
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = fmt.Sscanf(strings.ToLower(line), "content-length: %d", &length)
			chunked = chunked || strings.HasPrefix(strings.ToLower(line), "transfer-encoding: chunked")
			head.WriteString(line)
			if line == "\r\n" {
				break
			}
		}
		for tail := ""; chunked && tail != "0\r\n"; {
			tail, _ = in.ReadString('\n')
		}
		if chunked {
			_, _ = in.ReadString('\n')
		}
		_, _ = in.Discard(length)
		body := head.String()
		answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: X-Named\r\nX-Named: kept\r\n\r\n%s", len(body), body)
		if strings.Contains(body, " /trailers") {
			answer = fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n%x\r\n%s\r\n0\r\nX-Sum: 42\r\n\r\n", len(body), body)
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

// say sends bytes and returns everything that comes back. The client has closed its direction.
func say(t testing.TB, at fmt.Stringer, send string) string {
	t.Helper()
	c := dial(t, at)
	go func() {
		_, _ = io.WriteString(c, send)
		_ = c.CloseWrite()
	}()
	got, _ := io.ReadAll(c)
	return string(got)
}

// ask is say by a client that keeps its direction open.
func ask(t testing.TB, at fmt.Stringer, send string) string {
	t.Helper()
	c := dial(t, at)
	_, _ = io.WriteString(c, send)
	got, _ := io.ReadAll(c)
	return string(got)
}

// TestHTTPLikeHAProxy compares what an origin gets and a client gets back, without what both may choose: the case of names,
// X-Forwarded fields, the order, Connection.
func TestHTTPLikeHAProxy(t *testing.T) {
	t.Parallel()
	netns.Need(t, "haproxy")
	b, hap, origin := httpBalancer("web", addr(t), serveTCP(t, echoHead)), addr(t), serveTCP(t, echoHead)
	newTestServer(t, Config{}, b)
	startHAProxy(t, hap, fmt.Sprintf("listen l\n  mode http\n  bind %s\n  server s %s\n", hap, origin))
	choice := regexp.MustCompile(`(?mi)^(x-forwarded-[a-z]*|connection|content-length|transfer-encoding|keep-alive|proxy-connection):.*\r\n|^[0-9a-f]+\r\n`)
	plain := func(s string) string { return strings.ToLower(choice.ReplaceAllString(s, "")) }
	for name, send := range map[string]string{
		"HTTP/1.0":                   "GET /a HTTP/1.0\r\n\r\n",
		"HTTP/1.0 with Host":         "GET /a HTTP/1.0\r\nHost: x\r\n\r\n",
		"HTTP/1.0 keep-alive":        "GET /a HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\nGET /b HTTP/1.0\r\nHost: x\r\n\r\n",
		"leading CRLF":               "\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n",
		"CRLF between requests":      "GET /a HTTP/1.1\r\nHost: x\r\n\r\n\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
		"OPTIONS *":                  "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
		"odd URI":                    "GET /%zz?[a]|{}^`\"<>\\;=%2F HTTP/1.1\r\nHost: x\r\n\r\n",
		"dots and slashes":           "GET //a/../b/./c//d HTTP/1.1\r\nHost: x\r\n\r\n",
		"Connection names a field":   "GET /a HTTP/1.1\r\nHost: x\r\nConnection: X-Foo\r\nX-Foo: bar\r\n\r\n",
		"half-close":                 "GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
		"many fields of one name":    "GET /a HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nX-B: 2\r\nX-A: 3\r\nCookie: a=b\r\nCookie: c=d\r\n\r\n",
		"trailers of the response":   "GET /trailers HTTP/1.1\r\nHost: x\r\n\r\n",
		"empty and odd values":       "GET /a HTTP/1.1\r\nHost: x\r\nX-Empty:\r\nX-High: \xe9\xff\r\nX_Under: 1\r\n\r\n",
		"method of another standard": "PROPFIND /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			talk := say
			if name != "half-close" { // HAProxy may drop what follows the first request of a client that has closed
				end := strings.LastIndex(send, "\r\n\r\n")
				send, talk = send[:end]+"\r\nConnection: close"+send[end:], ask
			}
			ours, theirs := talk(t, b.Listen, send), talk(t, hap, send)
			if plain(ours) != plain(theirs) {
				t.Errorf("we answer\n%q\nHAProxy\n%q", plain(ours), plain(theirs))
			}
			if !strings.HasPrefix(ours, "HTTP/1.1 200 OK\r\n") {
				t.Errorf("answer %q", ours)
			}
		})
	}
}

func TestHTTPTrailers(t *testing.T) {
	t.Parallel()
	seen := make(chan http.Header, 1)
	back := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		seen <- r.Trailer
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-Sum", "42")
	})
	b := httpBalancer("web", addr(t), back)
	newTestServer(t, Config{}, b)
	r, _ := http.NewRequest(http.MethodPost, "http://"+b.Listen.String()+"/", io.MultiReader(strings.NewReader("body")))
	r.Trailer = http.Header{"X-Client": {"7"}}
	resp, err := httpClient(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if got := (<-seen).Get("X-Client"); got != "7" {
		t.Errorf("the backend got the trailer %q, want 7", got)
	}
	if got := resp.Trailer.Get("X-Sum"); got != "42" {
		t.Errorf("the client got the trailer %q, want 42", got)
	}
}

// TestHTTPTimeouts has a backend that accepts and never answers, a client that stops within a head, one that stops within a
// body, and one that is idle.
func TestHTTPTimeouts(t *testing.T) {
	t.Parallel()
	silent := serveTCP(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	short := func(name string, back netip.AddrPort, change func(*lab.Timeouts)) *lab.Balancer {
		return with(httpBalancer(name, addr(t), back), func(b *lab.Balancer) { change(&b.Timeouts) })
	}
	server := short("server", silent, func(t *lab.Timeouts) { t.Server = time.Second })
	request := short("request", silent, func(t *lab.Timeouts) { t.Request = time.Second })
	body := short("body", silent, func(t *lab.Timeouts) { t.Body = time.Second })
	idle := short("idle", serveHTTP(t, respond("ok")), func(t *lab.Timeouts) { t.KeepAlive = time.Second })
	r := newTestServer(t, Config{}, server, request, body, idle)
	for _, test := range []struct {
		b          *lab.Balancer
		send, want string
		why        reason
	}{
		{server, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 504 Gateway Timeout\r\n", rejectServerTimeout},
		{server, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 504 Gateway Timeout\r\n", rejectServerTimeout},
		{request, "GET / HTTP/1.1\r\nHost", "HTTP/1.1 408 Request Timeout\r\n", rejectTimeout},
		{body, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc", "HTTP/1.1 408 Request Timeout\r\n", rejectTimeout},
		{idle, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK\r\n", ""},
	} {
		t.Run(test.b.Name, func(t *testing.T) {
			t.Parallel()
			netns.Tries(t, 3, func(int) string { // a connection without a first byte within its timeout ends without an answer
				c := dial(t, test.b.Listen)
				_, _ = io.WriteString(c, test.send)
				got, err := io.ReadAll(c)
				if !strings.HasPrefix(string(got), test.want) || strings.Contains(string(got), "i/o timeout") || err != nil {
					return fmt.Sprintf("got %q, %v; want %q and the end of the connection", got, err, test.want)
				}
				return ""
			})
			if test.why != "" && testutil.ToFloat64(r.metrics.rejected.WithLabelValues(test.b.Name, string(test.why))) == 0 {
				t.Errorf("no rejection counted for %s", test.why)
			}
		})
	}
}

func TestHTTPHeadLimits(t *testing.T) {
	t.Parallel()
	b := httpBalancer("web", addr(t), serveHTTP(t, respond("ok")))
	newTestServer(t, Config{}, b)
	head := func(bytes, fields int) string {
		s := "GET / HTTP/1.1\r\nHost: x\r\n"
		for i := 1; i < fields; i++ {
			s += fmt.Sprintf("X-%d: 1\r\n", i)
		}
		if pad := bytes - len(s) - len("X: \r\n\r\n"); pad > 0 {
			s += "X: " + strings.Repeat("a", pad) + "\r\n"
		}
		return s + "\r\n"
	}
	for _, test := range []struct {
		bytes, fields int
		want          string
	}{{0, 100, "200"}, {0, 101, "431"}, {16 << 10, 1, "200"}, {16<<10 + 1, 1, "431"}, {1 << 20, 1, "431"}} {
		got := converse(t, b.Listen, head(test.bytes, test.fields))
		if got != test.want {
			t.Errorf("%d bytes, %d fields: %q, want %s", test.bytes, test.fields, got, test.want)
		}
	}
}

// TestHTTPHeaderBomb sends 1 MB of header fields on each of 100 connections, and never ends them. A client that is too slow to read sees
// a reset instead of its 431.
func TestHTTPHeaderBomb(t *testing.T) {
	b := httpBalancer("web", addr(t), serveHTTP(t, respond("ok")))
	r := newTestServer(t, Config{}, b)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var tasks sync.WaitGroup
	line := []byte("X-Bomb: " + strings.Repeat("a", 1000) + "\r\n")
	for range 100 {
		c := dial(t, b.Listen)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n")
		tasks.Go(func() {
			for range 1000 {
				if _, err := c.Write(line); err != nil {
					break
				}
			}
			_ = c.CloseWrite()
			if got, _ := io.ReadAll(c); len(got) > 0 && !bytes.HasPrefix(got, []byte("HTTP/1.1 431 ")) {
				t.Errorf("a client got %q, want 431", got)
			}
		})
	}
	tasks.Wait()
	runtime.ReadMemStats(&after)
	netns.WaitFor(t, "100 refused requests", func() bool {
		return testutil.ToFloat64(r.metrics.rejected.WithLabelValues("web", string(rejectHead))) == 100
	})
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 64<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

// TestHTTPBackendDown loses a backend that keeps a request waiting and has idle connections. Responses that have begun end where on_down is close.
func TestHTTPBackendDown(t *testing.T) {
	t.Parallel()
	for _, onDown := range []lab.OnDown{lab.OnDownKeep, lab.OnDownClose} {
		t.Run(string(onDown), func(t *testing.T) {
			t.Parallel()
			loseHTTPBackend(t, onDown)
		})
	}
}

func loseHTTPBackend(t *testing.T, onDown lab.OnDown) {
	hung, alive := make(chan struct{}), serveHTTP(t, respond("alive"))
	first, stop := addr(t), make(chan struct{})
	handler := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hang":
			close(hung)
			select {
			case <-stop:
			case <-r.Context().Done():
			}
		case "/stream":
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			_, _ = io.WriteString(w, "first")
		}
	}
	l, err := net.Listen("tcp", first.String())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(handler)}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { close(stop); _ = server.Close() })
	b := with(httpBalancer("web", addr(t), first, alive), func(b *lab.Balancer) {
		b.Backends[1].Backup = true
		b.Check = lab.Check{Kind: lab.CheckTCP, Interval: 100 * time.Millisecond, Fall: 1}
		b.OnDown = onDown
	})
	r := newTestServer(t, Config{}, b)
	r.waitHealth(t, first, Up)
	r.waitHealth(t, alive, Up)
	stream := dial(t, b.Listen)
	_, _ = io.WriteString(stream, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
	if got := readLine(t, stream); got != "HTTP/1.1 200 OK\r" {
		t.Fatalf("stream: %q", got)
	}
	waiting := make(chan string, 1)
	go func() { waiting <- say(t, b.Listen, "GET /hang HTTP/1.1\r\nHost: x\r\n\r\n") }()
	<-hung
	_ = l.Close() // its connections stay open, as those of a machine that lost its cable
	r.waitHealth(t, first, Down)
	if got := <-waiting; !strings.HasSuffix(got, "alive") {
		t.Errorf("the waiting request got %q, want the answer of the other backend", got)
	}
	if onDown == lab.OnDownKeep {
		_ = stream.SetReadDeadline(time.Now().Add(time.Second))
	}
	if _, err := io.ReadAll(stream); err == nil || errors.Is(err, os.ErrDeadlineExceeded) != (onDown == lab.OnDownKeep) {
		t.Errorf("the stream of a backend that went down: %v", err)
	}
}

// TestHTTPReusedConnectionClosed has a backend that closes its idle connection as the next request comes, and at a POST any.
func TestHTTPReusedConnectionClosed(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	back := serveTCP(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		for n := 0; ; n++ {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			requests.Add(1)
			if n == 1 || r.Method == http.MethodPost {
				return // without an answer
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	b := httpBalancer("web", addr(t), back)
	newTestServer(t, Config{}, b)
	if got := converse(t, b.Listen, strings.Repeat("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 2)); got != "200 200" {
		t.Errorf("GET: %q, want 200 200", got)
	}
	if got := converse(t, b.Listen, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"); got != "502" {
		t.Errorf("POST: %q, want 502: it must not be sent twice", got)
	}
	if got := requests.Load(); got != 4 {
		t.Errorf("%d requests reached the backend, want 4", got)
	}
}

// TestHTTPNotRepeated: a request is not sent again on another connection if its idle one got a part of an answer, or none in time.
func TestHTTPNotRepeated(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ second, want string }{
		"a part of an answer": {"HTTP/1.1 2", "200 502"},
		"no answer in time":   {"", "200 504"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			back := serveTCP(t, func(c net.Conn) {
				in := bufio.NewReader(c)
				for n := 0; ; n++ {
					if _, err := http.ReadRequest(in); err != nil {
						return
					}
					if n == 0 {
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
						continue
					}
					if _, _ = io.WriteString(c, tt.second); tt.second != "" {
						return
					}
				}
			})
			b := with(httpBalancer("web", addr(t), back), func(b *lab.Balancer) { b.Timeouts.Server = 5 * time.Second })
			newTestServer(t, Config{}, b)
			if got := converse(t, b.Listen, strings.Repeat("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 2)); got != tt.want {
				t.Errorf("%q, want %s", got, tt.want)
			}
		})
	}
}

// TestHTTPEjectedLosesIdle: a backend that is ejected loses its idle connections at once.
func TestHTTPEjectedLosesIdle(t *testing.T) {
	t.Parallel()
	b := httpBalancer("web", addr(t), serveHTTP(t, respond("ok")))
	r := newTestServer(t, Config{Ejection: time.Hour}, b)
	client := httpClient(t)
	e := &r.active.Load().frontends[0].backends[0]
	idle := func() int {
		e.state.pool.mu.Lock()
		defer e.state.pool.mu.Unlock()
		return len(e.state.pool.idle)
	}
	netns.WaitFor(t, "an idle connection", func() bool { fetch(t, client, b.Listen, "x"); return idle() > 0 })
	for range ejectRefused {
		r.connectFailed(e, syscall.ECONNREFUSED)
	}
	if n := idle(); n > 0 {
		t.Errorf("%d idle connections of an ejected backend", n)
	}
}

func TestHTTPAccessLog(t *testing.T) {
	t.Parallel()
	silent := serveTCP(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	good := with(httpBalancer("good", addr(t), serveHTTP(t, respond("ok"))), func(b *lab.Balancer) { b.Log = lab.LogRequests })
	bad := with(httpBalancer("bad", addr(t), silent), func(b *lab.Balancer) { b.Log, b.Timeouts.Server = lab.LogErrors, time.Second })
	var mu sync.Mutex
	var lines bytes.Buffer
	r := newTestServerLogging(t, slog.New(slog.NewJSONHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return lines.Write(p)
	}), nil)), good, bad)
	const head = "POST /path HTTP/1.1\r\nHost: shop.lab\r\nContent-Length: 10\r\nConnection: close\r\n\r\n"
	_ = ask(t, good.Listen, head+"0123456789")
	fetch(t, httpClient(t), bad.Listen, "x")
	find := func(balancer string) (found map[string]any) {
		mu.Lock()
		defer mu.Unlock()
		for line := range bytes.Lines(lines.Bytes()) {
			var v map[string]any
			if json.Unmarshal(line, &v) == nil && v["msg"] == "request" && v["balancer"] == balancer {
				found = v
			}
		}
		return found
	}
	netns.WaitFor(t, "two lines", func() bool { return find("good") != nil && find("bad") != nil })
	line := find("good")
	for key, want := range map[string]any{"method": "POST", "path": "/path", "host": "shop.lab", "status": 200.0, "bytes_in": float64(len(head) + 10), "end": "complete", "retries": 0.0} {
		if line[key] != want {
			t.Errorf("%s: %v, want %v", key, line[key], want)
		}
	}
	if line["total_ms"].(float64) < line["response_ms"].(float64) || line["bytes_out"].(float64) < 2 {
		t.Errorf("times or bytes of %v", line)
	}
	if line := find("bad"); line["end"] != "server_timeout" || line["status"] != 504.0 || line["response_ms"] != -1.0 {
		t.Errorf("failed request: %v", line)
	}
	label := bad.Backends[0].Addr.String()
	if got := testutil.ToFloat64(r.metrics.backendErrors.WithLabelValues("bad", label, string(rejectServerTimeout))); got != 1 {
		t.Errorf("%v errors of the backend counted, want 1", got)
	}
	if got := testutil.ToFloat64(r.metrics.backendRequests.WithLabelValues("bad", label, "5xx")); got != 1 {
		t.Errorf("%v requests of the backend counted, want 1", got)
	}
}

// TestHTTPAccessLogRefused: requests that no balancer gets have a line, too, as any balancer of their address wants it.
func TestHTTPAccessLogRefused(t *testing.T) {
	t.Parallel()
	b := with(httpBalancer("a", addr(t), serveTCP(t, echoHead)), func(b *lab.Balancer) {
		b.Log, b.Match = lab.LogErrors, lab.Match{Host: []string{"a.lab"}}
	})
	var mu sync.Mutex
	var lines bytes.Buffer
	newTestServerWith(t, Config{}, Deps{AccessLog: slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return lines.Write(p)
	}), nil))}, b)
	for send, want := range map[string]string{
		"GET /1 HTTP/1.1\r\nHost: b.lab\r\n\r\n":                            "method=GET host=b.lab path=/1 status=503 .* end=no_match",
		"GET /2 HTTP/1.1\r\n\r\n":                                           "path=/2 status=400 .* end=syntax err=\"Host is missing\"",
		"GET /3 HTTP/1.1\r\nX: " + strings.Repeat("x", 17<<10) + "\r\n\r\n": "status=431 .* end=head_too_large",
	} {
		ask(t, b.Listen, send)
		netns.WaitFor(t, want, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return regexp.MustCompile("msg=request .*" + want).Match(lines.Bytes())
		})
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func newTestServerLogging(t testing.TB, log *slog.Logger, bs ...*lab.Balancer) *testServer {
	return newTestServerWith(t, Config{}, Deps{Log: log}, bs...)
}

// TestHTTPClientGone has a client that is reset while a backend works.
func TestHTTPClientGone(t *testing.T) {
	t.Parallel()
	started, ended := make(chan struct{}), make(chan struct{})
	back := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
		close(ended)
	})
	b := httpBalancer("web", addr(t), back)
	newTestServer(t, Config{Sweep: 50 * time.Millisecond}, b)
	c := dial(t, b.Listen)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-started
	_ = c.SetLinger(0)
	_ = c.Close()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the backend's request goes on after its client was reset")
	}
}

// TestHTTPClientGoneIsNoError: a client that leaves while its backend is silent is noticed, and the backend is not blamed.
func TestHTTPClientGoneIsNoError(t *testing.T) {
	t.Parallel()
	silent := serveTCP(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	half := serveTCP(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
	})
	halfHTTP2 := h2cServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/half" {
			w.WriteHeader(200)
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	})
	h2c := func(b *lab.Balancer) { b.Protocol = lab.BackendH2C }
	for name, test := range map[string]struct {
		b            *lab.Balancer
		http2, waits bool // waits: for the head
		path         string
	}{
		"no head":                    {httpBalancer("web", addr(t), silent), false, false, "/"},
		"a head":                     {httpBalancer("web", addr(t), half), false, true, "/"},
		"no head, HTTP/2":            {httpBalancer("web", addr(t), silent), true, false, "/"},
		"a head, HTTP/2":             {httpBalancer("web", addr(t), half), true, true, "/"},
		"no head, to HTTP/2":         {with(httpBalancer("web", addr(t), halfHTTP2), h2c), false, false, "/"},
		"a head, to HTTP/2":          {with(httpBalancer("web", addr(t), halfHTTP2), h2c), false, true, "/half"},
		"no head, HTTP/2 in and out": {with(httpBalancer("web", addr(t), halfHTTP2), h2c), true, false, "/"},
		"a head, HTTP/2 in and out":  {with(httpBalancer("web", addr(t), halfHTTP2), h2c), true, true, "/half"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var line atomic.Pointer[string]
			b := with(test.b, func(b *lab.Balancer) { b.Log, b.Timeouts.Server = lab.LogRequests, 20*time.Second })
			r := newTestServerWith(t, Config{}, Deps{AccessLog: slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
				text := string(p)
				line.Store(&text)
				return len(p), nil
			}), nil))}, b)
			inProgress := func() bool { return r.Status()[0].Backends[0].Connections > 0 }
			if test.http2 {
				f := rawHTTP2(t, b.Listen)
				f.request(t, 1, test.path)
				netns.WaitFor(t, "the request", inProgress)
				for test.waits {
					if _, ok := f.next(t).(*http2frame.HeadersFrame); ok {
						break
					}
				}
				_ = f.WriteRSTStream(1, http2frame.ErrCodeCancel)
			} else {
				c := dial(t, b.Listen)
				_, _ = io.WriteString(c, "GET "+test.path+" HTTP/1.1\r\nHost: x\r\n\r\n")
				netns.WaitFor(t, "the request", inProgress)
				if test.waits {
					readLine(t, c)
				}
				_ = c.SetLinger(0)
				_ = c.Close()
			}
			netns.WaitFor(t, "a line", func() bool { return line.Load() != nil })
			if got := *line.Load(); !strings.Contains(got, " end=client_closed ") {
				t.Error(got)
			}
			label := b.Backends[0].Addr.String()
			for _, why := range []reason{rejectClosed, rejectBroken, rejectServerTimeout} {
				if n := testutil.ToFloat64(r.metrics.backendErrors.WithLabelValues("web", label, string(why))); n != 0 {
					t.Errorf("%v errors %s of the backend", n, why)
				}
			}
		})
	}
}

// TestHTTPEarlyAnswer has a backend that refuses a large upload before it has read it.
func TestHTTPEarlyAnswer(t *testing.T) {
	t.Parallel()
	back := serveTCP(t, func(c net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n")
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	})
	b := httpBalancer("web", addr(t), back)
	newTestServer(t, Config{}, b)
	c := dial(t, b.Listen)
	go func() {
		_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", 1<<20)
		_, _ = c.Write(make([]byte, 512<<10))
	}()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 413 || string(body) != "no\n" || !resp.Close {
		t.Errorf("%d %q, close %t; want 413, no and close", resp.StatusCode, body, resp.Close)
	}
}

// TestHTTPTruncated has a backend that ends within a response. The client must see it.
func TestHTTPTruncated(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"length": "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
		"chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"splice": "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nabc",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			back := serveTCP(t, func(c net.Conn) {
				_, _ = http.ReadRequest(bufio.NewReader(c))
				_, _ = io.WriteString(c, answer)
			})
			b := httpBalancer("web", addr(t), back)
			newTestServer(t, Config{}, b)
			resp, err := httpClient(t).Get("http://" + b.Listen.String() + "/")
			if err != nil {
				return
			}
			defer func() { _ = resp.Body.Close() }()
			if got, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("%q looks complete", got)
			}
		})
	}
}

// TestHTTPSlowUpload sends a large body to a backend that reads nothing for longer than it may leave data unacknowledged: its kernel
// says so by a window of zero, which is no sign that it is gone.
func TestHTTPSlowUpload(t *testing.T) {
	t.Parallel()
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	back := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(3 * time.Second)
		got, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprint(w, len(got), err)
	})
	b := httpBalancer("web", addr(t), back)
	newTestServer(t, Config{Unacked: time.Second}, b)
	for range 2 { // the second on the same connection
		resp, err := httpClient(t).Post("http://"+b.Listen.String()+"/", "application/octet-stream", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if want := fmt.Sprint(len(body), nil); string(got) != want {
			t.Errorf("%s: %q, want %q", resp.Status, got, want)
		}
	}
}

// TestHTTPLargeBodies sends and gets bodies of several framings and lengths.
func TestHTTPLargeBodies(t *testing.T) {
	t.Parallel()
	back := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("X-Length") != "" {
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		}
		_, _ = w.Write(body)
	})
	b := httpBalancer("web", addr(t), back)
	newTestServer(t, Config{}, b)
	client := httpClient(t)
	for _, size := range []int{0, 1, 4095, 4096, 4097, 40_000, 70_000, 3 << 20} {
		for _, chunked := range []bool{false, true} {
			want := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
			var body io.Reader = bytes.NewReader(want)
			if chunked {
				body = io.MultiReader(body)
			}
			r, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+b.Listen.String()+"/", body)
			if !chunked {
				r.Header.Set("X-Length", "1")
			}
			resp, err := client.Do(r)
			if err != nil {
				t.Fatalf("%d bytes, chunked %t: %v", size, chunked, err)
			}
			got, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, chunked %t: %d came back, %v", size, chunked, len(got), err)
			}
		}
	}
}

func TestHTTPRedirect(t *testing.T) {
	t.Parallel()
	b := with(httpBalancer("web", addr(t)), func(b *lab.Balancer) {
		b.Redirect = lab.RedirectHTTPS
		b.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	newTestServer(t, Config{}, b)
	for send, want := range map[string]string{
		"GET /a?b=c HTTP/1.1\r\nHost: shop.lab:8000\r\n\r\n": "HTTP/1.1 301 Moved Permanently\r\n|Location: https://shop.lab/a?b=c\r\n",
		"POST / HTTP/1.1\r\nHost: [fd00::1]:80\r\n\r\n":      "HTTP/1.1 308 Permanent Redirect\r\n|Location: https://[fd00::1]/\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: a.b\r\n\r\n":            "HTTP/1.1 308 Permanent Redirect\r\n|Location: https://a.b\r\n", // RFC 9110 section 7.1
		// A proxy before us has ended TLS: no redirect, and there is no backend.
		"GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-Proto: https\r\n\r\n": "HTTP/1.1 503 Service Unavailable\r\n|",
	} {
		status, location, _ := strings.Cut(want, "|")
		if got := say(t, b.Listen, send); !strings.HasPrefix(got, status) || !strings.Contains(got, location) {
			t.Errorf("%q: %q, want %q", send, got, want)
		}
	}
}

func TestHTTPTrustedProxies(t *testing.T) {
	t.Parallel()
	back := serveTCP(t, echoHead)
	trusting := with(httpBalancer("trusting", addr(t), back), func(b *lab.Balancer) {
		b.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	other := httpBalancer("other", addr(t), back)
	newTestServer(t, Config{}, trusting, other)
	send := "GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: shop\r\nX-Forwarded-Port: 443\r\nForwarded: for=192.0.2.7;proto=https\r\n\r\n"
	for b, want := range map[*lab.Balancer]string{
		trusting: "X-Forwarded-Port: 443\r\nX-Forwarded-For: 192.0.2.7, 127.0.0.1\r\nX-Forwarded-Host: shop\r\nX-Forwarded-Proto: https\r\nForwarded: for=192.0.2.7;proto=https, for=127.0.0.1;proto=http\r\n\r\n",
		other:    "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: x\r\nX-Forwarded-Proto: http\r\n\r\n",
	} {
		if got := say(t, b.Listen, send); !strings.HasSuffix(got, "GET / HTTP/1.1\r\nHost: x\r\n"+want) {
			t.Errorf("%s: the backend got %q, want %q at the end", b.Name, got, want)
		}
	}
}

func TestHTTPSticky(t *testing.T) {
	t.Parallel()
	one, two := serveHTTP(t, respond("one")), serveHTTP(t, respond("two"))
	b := with(httpBalancer("web", addr(t), one, two), func(b *lab.Balancer) { b.Sticky = "BACKEND" })
	r := newTestServer(t, Config{}, b)
	get := func(cookie string) (body, set string) {
		request, _ := http.NewRequest(http.MethodGet, "http://"+b.Listen.String()+"/", nil)
		if cookie != "" {
			request.Header.Set("Cookie", "a=b; "+cookie)
		}
		resp, err := httpClient(t).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		set, _, _ = strings.Cut(resp.Header.Get("Set-Cookie"), ";")
		return string(got), set
	}
	first, cookie := get("")
	if !strings.HasPrefix(cookie, "BACKEND=") {
		t.Fatalf("cookie %q", cookie)
	}
	for range 6 {
		if body, set := get(cookie); body != first || set != "" {
			t.Errorf("%q with cookie %q, want %q without another", body, set, first)
		}
	}
	gone := one
	if first == "two" {
		gone = two
	}
	if _, err := r.Drain(t.Context(), "web", gone.String()); err != nil {
		t.Fatal(err)
	}
	if body, set := get(cookie); body == first || set == "" || set == cookie {
		t.Errorf("%q with cookie %q after the drain of its backend", body, set)
	}
}

// TestBodyStalls: a backend that sends nothing more of a body whose length it has said ends after timeouts.server, and one that sends slowly, or
// a stream, does not.
func TestBodyStalls(t *testing.T) {
	t.Parallel()
	quit := make(chan struct{})
	t.Cleanup(func() { close(quit) })
	back := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/stream" {
			w.Header().Set("Content-Length", r.URL.Path[1:])
		}
		for range 4 {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			if r.URL.Path == "/4" {
				time.Sleep(200 * time.Millisecond)
			}
		}
		if r.URL.Path == "/4" {
			return
		}
		select {
		case <-quit:
		case <-r.Context().Done():
		}
	})
	b := with(httpBalancer("web", addr(t), back), func(b *lab.Balancer) { b.Timeouts.Server, b.Timeouts.Idle = 600*time.Millisecond, time.Hour })
	newTestServer(t, Config{}, b)
	for _, path := range []string{"/100", "/1000000"} {
		c := dial(t, b.Listen)
		_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.ReadAll(c); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a response of %s bytes that stalls: %v, want a reset", path[1:], err)
		}
	}
	if got := ask(t, b.Listen, "GET /4 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(got, "xxxx") {
		t.Errorf("a slow response: %q", got)
	}
	c := dial(t, b.Listen)
	_, _ = io.WriteString(c, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Second)) // something must not happen
	if _, err := io.ReadAll(c); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a silent stream: %v, want nothing", err)
	}
}
