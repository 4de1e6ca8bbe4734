package lbproxy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	http2frame "golang.org/x/net/http2"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

// idleBalancer returns a balancer of mode http whose connections may be idle for long.
func idleBalancer(t testing.TB, name string, change func(*lab.Balancer)) *lab.Balancer {
	t.Helper()
	web := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	return with(httpBalancer(name, addr(t), web), func(b *lab.Balancer) {
		b.Timeouts.KeepAlive, b.Timeouts.Request = time.Hour, time.Hour
		change(b)
	})
}

// askHTTP1 makes one request on a connection that stays open.
func askHTTP1(t testing.TB, c net.Conn) {
	t.Helper()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	got := make([]byte, 0, 1024)
	for !slices.Equal(got[max(len(got)-2, 0):], []byte("ok")) {
		n, err := c.Read(got[len(got):cap(got)])
		if err != nil {
			t.Fatal(err)
		}
		got = got[:len(got)+n]
	}
}

// askHTTP2 is askHTTP1 in HTTP/2, on a new connection.
func askHTTP2(t testing.TB, c net.Conn) {
	t.Helper()
	_, _ = io.WriteString(c, http2frame.ClientPreface)
	f := &framer{Framer: http2frame.NewFramer(c, c), conn: c}
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	f.request(t, 1, "/")
	for {
		if head := f.next(t).Header(); head.StreamID == 1 && head.Flags.Has(http2frame.FlagDataEndStream) {
			return
		}
	}
}

// TestIdleHTTP2Goroutines: 100 idle connections in HTTP/2 have two goroutines each, which are of net/http. Not parallel: those of other
// tests would count.
func TestIdleHTTP2Goroutines(t *testing.T) {
	const clients, others = 100, 50
	b := idleBalancer(t, "web", func(*lab.Balancer) {})
	newTestServer(t, Config{}, b)
	before := runtime.NumGoroutine()
	for range clients {
		askHTTP2(t, dial(t, b.Listen))
	}
	netns.WaitFor(t, "two goroutines for each connection", func() bool { return runtime.NumGoroutine() < before+2*clients+others })
}

// TestHTTPSharedMemory: connections that take turns with the memory for requests get their own bodies back, whatever the length of a
// request's head, how it is cut into parts, and what follows it.
func TestHTTPSharedMemory(t *testing.T) {
	t.Parallel()
	echo := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("X-Id")+" ")
		_, _ = io.Copy(w, r.Body)
	})
	b := httpBalancer("web", addr(t), echo)
	newTestServer(t, Config{}, b)
	var conns []*net.TCPConn
	var readers []*bufio.Reader
	for range 4 {
		conns = append(conns, dial(t, b.Listen))
		readers = append(readers, bufio.NewReader(conns[len(conns)-1]))
	}
	for i, length := range []int{100, firstBytes - 1, firstBytes, firstBytes + 1, 5000, 200} {
		for _, cut := range []int{1, 90, length - 1, length, length + 1, length + 5} {
			for k, c := range conns {
				id := fmt.Sprintf("%d-%d-%d", i, cut, k)
				head := func(n int) string {
					start := fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nX-Id: %s\r\nContent-Length: %d\r\nX-Fill: ", id, len(id))
					return start + strings.Repeat("f", max(n-len(start)-4, 0)) + "\r\n\r\n" + id
				}
				send := head(length) + head(0)
				_, _ = io.WriteString(c, send[:cut])
				runtime.Gosched()
				_, _ = io.WriteString(c, send[cut:])
				for range 2 {
					resp, err := http.ReadResponse(readers[k], nil)
					if err != nil {
						t.Fatalf("head of %d bytes, cut at %d: %v", length, cut, err)
					}
					if body, err := io.ReadAll(resp.Body); string(body) != id+" "+id {
						t.Fatalf("head of %d bytes, cut at %d: %q, %v", length, cut, body, err)
					}
				}
			}
		}
	}
}

// BenchmarkIdleConnections prints what a connection costs that is idle after a request: in B/conn, without what the kernel has, and
// with some 600 bytes of its client here. Run it with -benchtime=2000x.
func BenchmarkIdleConnections(b *testing.B) {
	netns.Need(b, "openssl")
	cert := filepath.Join(b.TempDir(), "cert.pem")
	writeCertificate(b, cert, "x", false)
	plain := func(*lab.Balancer) {}
	secure := func(b *lab.Balancer) { b.Certificates = []string{cert} }
	handshake := func(c net.Conn, protocol string) net.Conn {
		// The client's side of TLS is garbage afterwards.
		s := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
		if err := s.Handshake(); err != nil {
			b.Fatal(err)
		}
		return s
	}
	for _, kind := range []struct {
		name   string
		change func(*lab.Balancer)
		ask    func(net.Conn)
	}{
		{"http1", plain, func(c net.Conn) { askHTTP1(b, c) }},
		{"http2", plain, func(c net.Conn) { askHTTP2(b, c) }},
		{"https1", secure, func(c net.Conn) { askHTTP1(b, handshake(c, "http/1.1")) }},
		{"https2", secure, func(c net.Conn) { askHTTP2(b, handshake(c, "h2")) }},
	} {
		b.Run(kind.name, func(b *testing.B) {
			to := idleBalancer(b, "web", kind.change)
			newTestServer(b, Config{}, to)
			kind.ask(dial(b, to.Listen))
			before, n := memoryInUse(), 0
			for b.Loop() {
				kind.ask(dial(b, to.Listen))
				n++
			}
			b.ReportMetric(float64(memoryInUse()-before)/float64(n), "B/conn")
		})
	}
}

// memoryInUse returns the bytes of heap and stacks.
func memoryInUse() int64 {
	var m runtime.MemStats
	for range 3 { // stacks shrink by half each time
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
