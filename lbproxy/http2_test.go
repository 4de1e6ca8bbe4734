package lbproxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	http2frame "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/bootlab/bootlab/internal/host/file/freshfile"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// writeCertificate makes a certificate for a name at a path: with its key, or with the key in path.key.
func writeCertificate(t testing.TB, path, name string, separate bool) {
	t.Helper()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	run(t, "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
		"-subj", "/CN="+name, "-addext", "subjectAltName=DNS:"+name, "-keyout", key, "-out", cert)
	c, _ := os.ReadFile(cert)
	k, _ := os.ReadFile(key)
	if separate {
		if err := os.WriteFile(path+".key", k, 0o600); err != nil {
			t.Fatal(err)
		}
	} else {
		c = append(c, k...)
	}
	if err := os.WriteFile(path+".new", c, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestTLSTermination(t *testing.T) {
	t.Parallel()
	netns.Need(t, "openssl", "curl")
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.pem"), filepath.Join(dir, "two.pem")
	writeCertificate(t, one, "one.lab", false)
	writeCertificate(t, two, "two.lab", true)
	back := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Proto, r.Header.Get("X-Forwarded-Proto"), r.Host)
	})
	b := with(httpBalancer("web", addr(t), back), func(b *lab.Balancer) { b.Certificates = []string{one, two} })
	newTestServer(t, Config{}, b)
	subject := func(name string) string {
		cmd := exec.CommandContext(t.Context(), "openssl", "s_client", "-connect", b.Listen.String(), "-servername", name, "-alpn", "h2,http/1.1")
		out, _ := cmd.CombinedOutput()
		_, line, _ := strings.Cut(string(out), "subject=CN = ")
		line, _, _ = strings.Cut(line, "\n")
		if !strings.Contains(string(out), "ALPN protocol: h2") {
			t.Errorf("openssl negotiated no h2:\n%s", out)
		}
		return line
	}
	for _, name := range []string{"one.lab", "two.lab"} {
		if got := subject(name); got != name {
			t.Errorf("certificate of %q for %s", got, name)
		}
	}
	for flag, version := range map[string]string{"--http1.1": "1.1", "--http2": "2"} {
		got := run(t, "curl", "-sk", flag, "-w", " %{http_version}", "--connect-to", "one.lab:443:"+b.Listen.String(), "https://one.lab/")
		if want := "HTTP/1.1 https one.lab " + version; got != want {
			t.Errorf("curl %s: %q, want %q", flag, got, want)
		}
	}
	writeCertificate(t, one, "renewed.lab", false)
	netns.WaitFor(t, "the renewed certificate", func() bool { return subject("renewed.lab") == "renewed.lab" })
	_ = os.WriteFile(one, []byte("broken"), 0o600)
	time.Sleep(2 * freshfile.CheckEvery)
	if got := subject("renewed.lab"); got != "renewed.lab" {
		t.Errorf("a broken file replaced the certificate: %q", got)
	}
}

// h2cServer serves HTTP/2 without TLS, and HTTP/1.
func h2cServer(t testing.TB, h http.HandlerFunc) netip.AddrPort {
	t.Helper()
	at := addr(t)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	protocols.SetHTTP1(true)
	l, err := ListenFree(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, Protocols: protocols}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return at
}

func h2cClient(t testing.TB) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: protocols}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

// TestHTTP2NoBody: a request without a body has no length in HTTP/1.1 if it had none in HTTP/2, but where servers want one.
func TestHTTP2NoBody(t *testing.T) {
	t.Parallel()
	b := httpBalancer("web", addr(t), serveTCP(t, func(c net.Conn) {
		head := readHead(bufio.NewReader(c))
		has := strings.Contains(strings.ToLower(head), "content-length: 0\r\n")
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%t", has)
	}))
	newTestServer(t, Config{}, b)
	client := h2cClient(t)
	for _, test := range []struct {
		method string
		want   string
	}{{"GET", "false"}, {"HEAD", ""}, {"DELETE", "false"}, {"POST", "true"}} {
		r, err := http.NewRequestWithContext(t.Context(), test.method, "http://"+b.Listen.String()+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(got) != test.want {
			t.Errorf("%s: Content-Length: 0 %s, want %s", test.method, got, test.want)
		}
	}
}

// TestHTTP2Versions sends requests in both versions to backends of both.
func TestHTTP2Versions(t *testing.T) {
	t.Parallel()
	handler := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set("X-Seen", fmt.Sprintf("%s %s %s te=%q trailer=%q", r.Proto, r.RequestURI, r.Host, r.Header.Get("Te"), r.Trailer.Get("X-Client")))
		_, _ = w.Write(body)
		w.Header().Set("X-Sum", fmt.Sprint(len(body)))
	}
	h1 := httpBalancer("h1", addr(t), h2cServer(t, handler))
	h2 := with(httpBalancer("h2", addr(t), h2cServer(t, handler)), func(b *lab.Balancer) { b.Protocol = lab.BackendH2C })
	newTestServer(t, Config{}, h1, h2)
	for _, client := range []struct {
		name string
		*http.Client
	}{{"HTTP/1.1", httpClient(t)}, {"HTTP/2", h2cClient(t)}} {
		for _, b := range []*lab.Balancer{h1, h2} {
			for _, size := range []int{0, 5, 100_000, 2 << 20} {
				for _, known := range []bool{true, false} {
					t.Run(fmt.Sprintf("%s to %s, %d bytes, length known %t", client.name, b.Name, size, known), func(t *testing.T) {
						want := strings.Repeat("x", size)
						var body io.Reader = strings.NewReader(want)
						if !known {
							body = io.MultiReader(body)
						}
						r, _ := http.NewRequest(http.MethodPost, "http://"+b.Listen.String()+"/a%2Fb?q=1;2", body)
						r.Host = "x.lab"
						r.Header.Set("Te", "trailers")
						trailer := ""
						if !known {
							r.Trailer, trailer = http.Header{"X-Client": {"7"}}, "7"
						}
						resp, err := client.Do(r)
						if err != nil {
							t.Fatal(err)
						}
						got, err := io.ReadAll(resp.Body)
						_ = resp.Body.Close()
						if string(got) != want || err != nil || resp.Trailer.Get("X-Sum") != fmt.Sprint(size) {
							t.Errorf("%d bytes, %v, trailer %q", len(got), err, resp.Trailer)
						}
						proto, te := "HTTP/1.1", ""
						if b == h2 {
							proto, te = "HTTP/2.0", "trailers"
						}
						if seen, want := resp.Header.Get("X-Seen"), fmt.Sprintf("%s /a%%2Fb?q=1;2 x.lab te=%q trailer=%q", proto, te, trailer); seen != want {
							t.Errorf("the backend saw %s, want %s", seen, want)
						}
					})
				}
			}
		}
	}
}

// TestHTTP2Streams sends both ways at the same time, as gRPC does, and ends with trailers only.
func TestHTTP2Streams(t *testing.T) {
	t.Parallel()
	handler := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		if r.URL.Path == "/status" {
			w.Header().Set("Grpc-Status", "12")
			return
		}
		w.Header().Set("Trailer", "Grpc-Status")
		_ = http.NewResponseController(w).Flush()
		for buf := make([]byte, 1); ; {
			if _, err := io.ReadFull(r.Body, buf); err != nil {
				break
			}
			_, _ = w.Write(buf)
			_ = http.NewResponseController(w).Flush()
		}
		w.Header().Set("Grpc-Status", "0")
	}
	b := with(httpBalancer("grpc", addr(t), h2cServer(t, handler)), func(b *lab.Balancer) { b.Protocol = lab.BackendH2C })
	newTestServer(t, Config{}, b)
	client := h2cClient(t)
	in, out := io.Pipe()
	r, _ := http.NewRequest(http.MethodPost, "http://"+b.Listen.String()+"/echo", in)
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range "abc" {
		if _, err := out.Write([]byte{byte(c)}); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 1)
		if _, err := io.ReadFull(resp.Body, got); err != nil || got[0] != byte(c) {
			t.Fatalf("echo of %c: %q, %v", c, got, err)
		}
	}
	_ = out.Close()
	if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil || resp.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("end: %q, %v, trailers %v", rest, err, resp.Trailer)
	}
	resp, err = client.Post("http://"+b.Listen.String()+"/status", "application/grpc", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil || resp.Header.Get("Grpc-Status") != "12" {
		t.Errorf("trailers only: %q, %v, %v", rest, err, resp.Header)
	}
}

// TestHTTP2ResponseFields holds that a client gets every field of an HTTP/2 backend's response, cookies included, and that a
// response without a body ends with its head, as the errors of gRPC do.
func TestHTTP2ResponseFields(t *testing.T) {
	t.Parallel()
	back := h2cServer(t, func(w http.ResponseWriter, _ *http.Request) {
		header := w.Header()
		header["Set-Cookie"] = []string{"a=1", "b=2"}
		header["Content-Length"] = nil // the server makes none up
		header.Set("Forwarded", "for=1.2.3.4")
		header.Set("Grpc-Status", "5")
	})
	b := with(httpBalancer("web", addr(t), back), func(b *lab.Balancer) { b.Protocol = lab.BackendH2C })
	newTestServer(t, Config{}, b)
	for name, client := range map[string]*http.Client{"HTTP/1.1": httpClient(t), "HTTP/2": h2cClient(t)} {
		resp, err := client.Get("http://" + b.Listen.String() + "/")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := fmt.Sprintf("%v %s %s %d", resp.Header["Set-Cookie"], resp.Header.Get("Forwarded"), resp.Header.Get("Grpc-Status"), resp.ContentLength); got != "[a=1 b=2] for=1.2.3.4 5 0" {
			t.Errorf("%s: %s", name, got)
		}
	}
	frames := rawHTTP2(t, b.Listen)
	frames.request(t, 1, "/")
	for {
		f := frames.next(t)
		if head, ok := f.(*http2frame.HeadersFrame); ok {
			if !head.StreamEnded() {
				t.Error("the head of a response without a body does not end the stream")
			}
			return
		}
	}
}

// A framer is an HTTP/2 client that sends frames as the test wants them.
type framer struct {
	*http2frame.Framer
	conn net.Conn
}

// rawHTTP2 connects in HTTP/2 without TLS.
func rawHTTP2(t testing.TB, at fmt.Stringer) *framer {
	t.Helper()
	c := dial(t, at)
	if _, err := io.WriteString(c, http2frame.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := &framer{Framer: http2frame.NewFramer(c, c), conn: c}
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return f
}

// request sends a GET without a body, with more fields as pairs of name and value.
func (f *framer) request(t testing.TB, stream uint32, path string, fields ...string) {
	t.Helper()
	if err := f.WriteHeaders(http2frame.HeadersFrameParam{StreamID: stream, BlockFragment: block(path, fields...), EndHeaders: true, EndStream: true}); err != nil {
		t.Fatal(err)
	}
}

// block returns the fields of a request, encoded. A field may replace a pseudo header field.
func block(path string, fields ...string) []byte {
	var out bytes.Buffer
	e := hpack.NewEncoder(&out)
	all := append([]string{":method", "GET", ":scheme", "http", ":path", path, ":authority", "a.test"}, fields...)
	for i := 0; i < len(all); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]})
	}
	return out.Bytes()
}

func newDecoder() *hpack.Decoder { return hpack.NewDecoder(4096, nil) }

// next reads a frame.
func (f *framer) next(t testing.TB) http2frame.Frame {
	t.Helper()
	frame, err := f.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

// TestHTTP2TrailersAnnounced: a response with a length and trailers of an HTTP/2 backend keeps its Trailer field, and its length where
// the client's version has a place for both.
func TestHTTP2TrailersAnnounced(t *testing.T) {
	t.Parallel()
	b := with(httpBalancer("web", addr(t), h2cServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set("Content-Length", "5")
		_, _ = io.WriteString(w, "hello")
		w.Header().Set("X-Sum", "7")
	})), func(b *lab.Balancer) { b.Protocol = lab.BackendH2C })
	newTestServer(t, Config{}, b)
	for length, client := range map[int64]*http.Client{-1: httpClient(t), 5: h2cClient(t)} {
		resp, err := client.Get("http://" + b.Listen.String() + "/")
		if err != nil {
			t.Fatal(err)
		}
		_, announced := resp.Trailer["X-Sum"]
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(body) != "hello" || err != nil || !announced || resp.ContentLength != length || resp.Trailer.Get("X-Sum") != "7" || len(resp.Trailer["X-Sum"]) != 1 {
			t.Errorf("%s: %q, %v, announced %t, length %d, trailer %q", resp.Proto, body, err, announced, resp.ContentLength, resp.Trailer)
		}
	}
}

// TestHTTP2Failures has backends that are not there, never answer, and end within a response.
func TestHTTP2Failures(t *testing.T) {
	t.Parallel()
	broken := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "part")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	hang := h2cServer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	refused := func(b *lab.Balancer) { b.Timeouts.Connect = 300 * time.Millisecond }
	late := func(b *lab.Balancer) { b.Timeouts.Server = time.Second }
	gone := with(httpBalancer("gone", addr(t), addr(t)), refused)
	silent := with(httpBalancer("silent", addr(t), hang), late)
	silent2 := with(httpBalancer("silent2", addr(t), hang), func(b *lab.Balancer) { late(b); b.Protocol = lab.BackendH2C })
	gone2 := with(httpBalancer("gone2", addr(t), addr(t)), func(b *lab.Balancer) { refused(b); b.Protocol = lab.BackendH2C })
	part := httpBalancer("part", addr(t), broken)
	newTestServer(t, Config{}, gone, gone2, silent, silent2, part)
	for b, want := range map[*lab.Balancer]int{gone: 503, gone2: 503, silent: 504, silent2: 504} {
		for name, client := range map[string]*http.Client{"HTTP/1.1": httpClient(t), "HTTP/2": h2cClient(t)} {
			resp, err := client.Get("http://" + b.Listen.String() + "/")
			if err != nil {
				t.Fatalf("%s %s: %v", name, b.Name, err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s %s: status %d, want %d", name, b.Name, resp.StatusCode, want)
			}
		}
	}
	resp, err := h2cClient(t).Get("http://" + part.Listen.String() + "/")
	if err == nil {
		_, err = io.ReadAll(resp.Body)
	}
	if err == nil {
		t.Error("a part of a response looks complete")
	}
}

// TestHTTP2Retries: a backend that refuses HTTP/2 connections is skipped, and the retry is counted.
func TestHTTP2Retries(t *testing.T) {
	t.Parallel()
	alive := h2cServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "alive") })
	b := with(httpBalancer("web", addr(t), addr(t), alive), func(b *lab.Balancer) { b.Protocol = lab.BackendH2C })
	r := newTestServer(t, Config{Ejection: time.Hour, Hedge: time.Minute}, b)
	for range 2 * ejectRefused {
		if status, got := fetch(t, httpClient(t), b.Listen, "x"); status != http.StatusOK || got != "alive" {
			t.Errorf("%d %q", status, got)
		}
	}
	if got := testutil.ToFloat64(r.metrics.retries.WithLabelValues("web")); got != ejectRefused {
		t.Errorf("%v retries, want %d: the backend is ejected after that", got, ejectRefused)
	}
}

// TestHTTP2Connect: a request waits for the only backend of HTTP/2, which refuses its first connections, as in the other modes, until
// timeouts.connect ends.
func TestHTTP2Connect(t *testing.T) {
	t.Parallel()
	var dials atomic.Int64
	refuses := func(n int64) Deps {
		return Deps{Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			if dials.Add(1) <= n {
				return nil, syscall.ECONNREFUSED
			}
			return dialTCP(ctx, to)
		}}
	}
	back := h2cServer(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	b := with(httpBalancer("web", addr(t), back), func(b *lab.Balancer) { b.Protocol = lab.BackendH2C })
	r := newTestServerWith(t, Config{}, refuses(3), b)
	resp, err := httpClient(t).Post("http://"+b.Listen.String(), "text/plain", strings.NewReader("all of it"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || string(body) != "all of it" {
		t.Errorf("%s %q, %v", resp.Status, body, err)
	}
	r.waitEnded(t, "web")

	never := with(httpBalancer("never", addr(t), back), func(b *lab.Balancer) {
		b.Protocol, b.Timeouts.Connect = lab.BackendH2C, 300*time.Millisecond
	})
	dials.Store(0)
	r = newTestServerWith(t, Config{}, refuses(math.MaxInt64), never)
	if resp, err = httpClient(t).Get("http://" + never.Listen.String()); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if n := dials.Load(); resp.StatusCode != http.StatusServiceUnavailable || n < 2 {
		t.Errorf("%s after %d connects", resp.Status, n)
	}
	r.waitEnded(t, "never")
}

// TestHTTP2ConnectInParallel: a backend of HTTP/2 that does not answer delays a request no longer than in the other modes.
func TestHTTP2ConnectInParallel(t *testing.T) {
	t.Parallel()
	silent := addr(t)
	deps := Deps{Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		if to == silent {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return dialTCP(ctx, to)
	}}
	back := h2cServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	b := with(httpBalancer("web", addr(t), silent, back), func(b *lab.Balancer) {
		b.Protocol, b.Timeouts.Connect = lab.BackendH2C, time.Hour
	})
	r := newTestServerWith(t, Config{}, deps, b)
	client := httpClient(t)
	for range 4 {
		resp, err := client.Get("http://" + b.Listen.String())
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s", resp.Status)
		}
	}
	r.waitEnded(t, "web")
}

// TestHTTP2BackendDown has a backend in HTTP/2 that keeps a request waiting when its checks fail: the request goes to another.
func TestHTTP2BackendDown(t *testing.T) {
	t.Parallel()
	first, hung := addr(t), make(chan struct{})
	l, err := net.Listen("tcp", first.String())
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(hung)
		<-r.Context().Done()
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	alive := h2cServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "alive") })
	b := with(httpBalancer("web", addr(t), first, alive), func(b *lab.Balancer) {
		b.Protocol, b.Backends[1].Backup, b.Timeouts.Server = lab.BackendH2C, true, time.Hour
		b.Check = lab.Check{Kind: lab.CheckTCP, Interval: 100 * time.Millisecond, Fall: 1}
	})
	r := newTestServer(t, Config{}, b)
	r.waitHealth(t, first, Up)
	waiting := make(chan string, 1)
	go func() { waiting <- ask(t, b.Listen, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") }()
	<-hung
	_ = l.Close() // its connections stay open
	r.waitHealth(t, first, Down)
	if got := <-waiting; !strings.Contains(got, "alive") {
		t.Errorf("the waiting request got %q, want the answer of the other backend", got)
	}
}

// TestHTTP2ClientGone has a client that resets its stream.
func TestHTTP2ClientGone(t *testing.T) {
	t.Parallel()
	for _, protocol := range []lab.BackendProtocol{lab.BackendHTTP1, lab.BackendH2C} {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			started, ended := make(chan struct{}), make(chan struct{})
			back := h2cServer(t, func(_ http.ResponseWriter, r *http.Request) {
				close(started)
				<-r.Context().Done()
				close(ended)
			})
			b := with(httpBalancer("web", addr(t), back), func(b *lab.Balancer) { b.Protocol = protocol })
			newTestServer(t, Config{}, b)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-started; cancel() }()
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.Listen.String()+"/", nil)
			if _, err := h2cClient(t).Do(r); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			select {
			case <-ended:
			case <-time.After(30 * time.Second):
				t.Error("the backend's request goes on after its client has gone")
			}
		})
	}
}

func TestH2load(t *testing.T) {
	netns.Need(t, "h2load", "nginx", "openssl")
	if netns.Inside() { // getaddrinfo with AI_ADDRCONFIG, as h2load calls it, finds nothing where there is only 127.0.0.1
		netns.Run(t, "ip", "addr", "replace", "10.99.99.99/32", "dev", "lo")
	}
	pem := filepath.Join(t.TempDir(), "pem")
	writeCertificate(t, pem, "x.lab", false)
	back := addr(t)
	startNginx(t, back, fmt.Sprintf(`listen %s backlog=4096; location / { return 200 "%01024d"; }`, back, 0))
	plain := httpBalancer("plain", addr(t), back)
	secure := with(httpBalancer("secure", addr(t), back), func(b *lab.Balancer) { b.Certificates = []string{pem} })
	r := newTestServer(t, Config{}, plain, secure)
	for _, args := range [][]string{{"http://" + plain.Listen.String() + "/"}, {"https://" + secure.Listen.String() + "/"}, {"--h1", "http://" + plain.Listen.String() + "/"}} {
		out := run(t, "h2load", append([]string{"-n2000", "-c10", "-m20"}, args...)...)
		if !strings.Contains(out, "2000 succeeded, 0 failed, 0 errored") {
			t.Errorf("h2load %s:\n%s", args, out)
		}
	}
	netns.WaitFor(t, "all connections gone", func() bool { return r.Status()[0].Connections == 0 && r.Status()[1].Connections == 0 })
}

// TestHTTP2Stalled: clients that open streams and read nothing get no more than their share, lose it after timeouts.body, and leave the
// requests of others alone. What they held is given back.
func TestHTTP2Stalled(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	b := with(httpBalancer("web", addr(t), serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			_, _ = io.WriteString(w, "ok")
			return
		}
		_, _ = io.WriteString(w, long)
	})), func(b *lab.Balancer) { b.Timeouts.Body = 10 * time.Second }) // in which hundreds of requests begin
	s := newTestServer(t, Config{}, b)
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/long"}, {":authority", "x.lab"}, {"x", strings.Repeat("y", 500)}} {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true})
	}
	for range 20 {
		c := dial(t, b.Listen)
		go func() { _, _ = io.Copy(io.Discard, c) }()
		_, _ = io.WriteString(c, preface)
		f := http2frame.NewFramer(c, nil)
		_ = f.WriteSettings(http2frame.Setting{ID: http2frame.SettingInitialWindowSize, Val: 0})
		for i := range maxStreams {
			if f.WriteHeaders(http2frame.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true}) != nil {
				break
			}
		}
	}
	most, share := 0, newHTTP2Limits(math.MaxInt64).requests/2
	inProgress := s.http.h2.streams.Taken
	netns.WaitFor(t, "requests in progress", func() bool { most = inProgress(); return most > share/2 })
	client := httpClient(t) // in HTTP/1
	resp, err := client.Get("http://" + b.Listen.String() + "/")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("another client: %v %v", resp, err)
	}
	netns.WaitFor(t, "the stalled requests to end", func() bool { most = max(most, inProgress()); return inProgress() == 0 })
	if most > share {
		t.Errorf("%d requests of one client at one time, want %d at most", most, share)
	}
}
