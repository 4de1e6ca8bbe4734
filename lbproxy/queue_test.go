package lbproxy

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/prometheus/client_golang/prometheus/testutil"
	http2frame "golang.org/x/net/http2"
)

// TestWeights gives each backend as many connections as HAProxy does for the same weights.
func TestWeights(t *testing.T) {
	t.Parallel()
	netns.Need(t, "haproxy")
	weights := []int{5, 2, 1}
	var backs []netip.AddrPort
	servers := ""
	for i, w := range weights {
		back := serveTCP(t, func(c net.Conn) { _, _ = fmt.Fprintf(c, "%d\n", i) })
		backs = append(backs, back)
		servers += fmt.Sprintf("  server s%d %s weight %d\n", i, back, w)
	}
	b := with(balancer("b", addr(t), backs...), func(b *lab.Balancer) {
		for i, w := range weights {
			b.Backends[i].Weight = w
		}
	})
	newTestServer(t, Config{Hedge: time.Minute}, b) // each client is one turn
	peer := addr(t)
	startHAProxy(t, peer, fmt.Sprintf("listen l\n  mode tcp\n  balance roundrobin\n  bind %s\n%s", peer, servers))
	const each = 50
	for _, at := range []netip.AddrPort{listenOf(b), peer} {
		var got [3]int
		for range each * 8 {
			got[readLine(t, dial(t, at))[0]-'0']++
		}
		t.Logf("%s: %v", at, got)
		for i, w := range weights {
			if math.Abs(float64(got[i]-w*each)) > 8 {
				t.Errorf("%s: backend of weight %d got %d of %d", at, w, got[i], each*8)
			}
		}
	}
}

// TestWeightedPick has every algorithm follow weights, and the source hash move few clients when a weight changes.
func TestWeightedPick(t *testing.T) {
	t.Parallel()
	const clients = 4000
	for _, algorithm := range []lab.Algorithm{lab.RoundRobin, lab.LeastConn, lab.SourceHash} {
		f := newTestFrontend(algorithm, 4)
		before, got := make([]*backend, clients), map[string]int{}
		for i := range clients {
			before[i] = f.pick(client(i), nil)
		}
		for i := range f.backends {
			f.backends[i].state.active.Store(0)
		}
		f.backends[0].Weight = 3
		moved := 0
		for i := range clients {
			e := f.pick(client(i), nil)
			got[e.Name]++
			if e != before[i] && e != &f.backends[0] {
				moved++
			}
		}
		for name, want := range map[string]float64{"a": clients / 2, "b": clients / 6, "c": clients / 6, "d": clients / 6} {
			if math.Abs(float64(got[name])-want) > clients/25 {
				t.Errorf("%s: %s got %d of %d, want some %.0f", algorithm, name, got[name], clients, want)
			}
		}
		if algorithm == lab.SourceHash && moved > 0 {
			t.Errorf("%d clients moved to backends whose weight is as before", moved)
		}
	}
}

// TestBackendLimit has six clients of a backend with max_connections 2 and a queue of three: two are served, three wait, one is
// refused (by HAProxy it would wait in a second queue, which has no limit). A connection that ends serves the client that
// has waited longest, as with HAProxy.
func TestBackendLimit(t *testing.T) {
	t.Parallel()
	netns.Need(t, "haproxy")
	back, peer := serveTCP(t, nameServer("b")), addr(t)
	b := with(balancer("b", addr(t), back), func(b *lab.Balancer) {
		b.Backends[0].MaxConnections, b.Queue = 2, 3
		b.Timeouts.Queue = time.Minute
	})
	r := newTestServer(t, Config{}, b)
	startHAProxy(t, peer, fmt.Sprintf("listen l\n  mode tcp\n  timeout queue 60s\n  bind %s\n  server s %s maxconn 2 maxqueue 3\n", peer, back))
	for name, at := range map[string]netip.AddrPort{"ours": listenOf(b), "HAProxy": peer} {
		var open []*net.TCPConn
		for range 2 {
			open = append(open, dial(t, at))
			readLine(t, open[len(open)-1])
		}
		for i := range 3 {
			open = append(open, dial(t, at))
			if name == "ours" {
				netns.WaitFor(t, "a client waits", func() bool { return testutil.ToFloat64(r.metrics.queued.WithLabelValues("b")) == float64(i+1) })
			} else {
				time.Sleep(200 * time.Millisecond) // its order
			}
		}
		if name == "ours" {
			if got, err := readAll(at); len(got) > 0 {
				t.Errorf("the sixth client got %q, %v", got, err)
			}
		}
		for i := range 3 {
			_ = open[i].Close()
			if got := readLine(t, open[i+2]); got != "b" {
				t.Errorf("%s: waiting client %d got %q", name, i, got)
			}
		}
		_, _ = open[3].Close(), open[4].Close()
	}
	if got := testutil.ToFloat64(r.metrics.rejected.WithLabelValues("b", string(rejectQueueFull))); got != 1 {
		t.Errorf("%v clients rejected for a full queue, want 1", got)
	}
	netns.WaitFor(t, "no connection is counted", func() bool { return r.Status()[0].Backends[0].Connections == 0 })
}

// TestBackendLimitHTTP has requests wait in mode http, and 503 with the reason beyond the queue and its timeout.
func TestBackendLimitHTTP(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var most, now atomic.Int64
	back := addr(t)
	l, err := net.Listen("tcp", back.String())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		<-release
		_, _ = io.WriteString(w, "done")
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	b := with(balancer("b", addr(t), back), func(b *lab.Balancer) {
		b.Mode, b.Backends[0].MaxConnections, b.Queue, b.Timeouts.Queue = lab.ModeHTTP, 2, 4, time.Minute
	})
	short := with(balancer("short", addr(t), back), func(b *lab.Balancer) {
		b.Mode, b.Backends[0].MaxConnections, b.Queue, b.Timeouts.Queue = lab.ModeHTTP, 1, 4, 100*time.Millisecond
	})
	r := newTestServer(t, Config{}, b, short)
	get := func(at netip.AddrPort) (int, string) {
		c := dial(t, at)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		body, _ := io.ReadAll(c)
		var status int
		_, _ = fmt.Sscanf(string(body), "HTTP/1.1 %d", &status)
		return status, string(body)
	}
	var tasks sync.WaitGroup
	var ok atomic.Int64
	for i := range 6 {
		tasks.Go(func() {
			if status, body := get(listenOf(b)); status != http.StatusOK {
				t.Errorf("%d %s", status, body)
			} else {
				ok.Add(1)
			}
		})
		netns.WaitFor(t, "the request is in progress or waits", func() bool {
			return r.Status()[0].Backends[0].Connections+int64(testutil.ToFloat64(r.metrics.queued.WithLabelValues("b"))) == int64(i+1)
		})
	}
	if status, body := get(listenOf(b)); status != http.StatusServiceUnavailable || !strings.Contains(body, "queue is full") {
		t.Errorf("beyond the queue: %d %q", status, body)
	}
	tasks.Go(func() { _, _ = get(listenOf(short)) })
	netns.WaitFor(t, "its backend is busy", func() bool { return r.Status()[1].Backends[0].Connections == 1 })
	if status, body := get(listenOf(short)); status != http.StatusServiceUnavailable || !strings.Contains(body, "timeouts.queue") {
		t.Errorf("beyond the queue's timeout: %d %q", status, body)
	}
	close(release)
	tasks.Wait()
	if ok.Load() != 6 || most.Load() > 3 {
		t.Errorf("%d of 6 answered, at most %d at one time", ok.Load(), most.Load())
	}
}

// TestQueueNeverExceeds has many clients come and go; the backend never serves more than its limit, and no place is lost. The clients
// count: the backend may see the end of a connection after the beginning of the next.
func TestQueueNeverExceeds(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int64
	back := serveTCP(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "x")
		_, _ = io.Copy(io.Discard, c)
	})
	b := with(balancer("b", addr(t), back), func(b *lab.Balancer) {
		b.Backends[0].MaxConnections, b.Queue, b.Timeouts.Queue = 5, 1000, time.Minute
	})
	r := newTestServer(t, Config{}, b)
	var tasks sync.WaitGroup
	for range 40 {
		tasks.Go(func() {
			for range 10 {
				c := dial(t, b.Listen)
				if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
					t.Errorf("client: %v", err)
				}
				n := now.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				time.Sleep(time.Millisecond) // so that several are served at one time
				now.Add(-1)
				_ = c.Close()
			}
		})
	}
	tasks.Wait()
	netns.WaitFor(t, "no connection is counted", func() bool { return r.Status()[0].Backends[0].Connections == 0 })
	if n := most.Load(); n > 5 || n < 2 {
		t.Errorf("%d connections at one time, want at most 5, and several", n)
	}
}

// TestQueueOfOneClient: in a full queue the address with the most waiting loses its last one to another address, which waits like the rest.
func TestQueueOfOneClient(t *testing.T) {
	t.Parallel()
	b := with(balancer("b", addr(t), serveTCP(t, nameServer("b"))), func(b *lab.Balancer) {
		b.Backends[0].MaxConnections, b.Queue, b.Timeouts.Queue = 1, 3, time.Minute
	})
	r := newTestServer(t, Config{}, b)
	queued := func(n int) { netns.WaitFor(t, "queued clients", func() bool { return r.Status()[0].Queued == n }) }
	greedy := []net.Conn{dialFrom(t, "127.0.0.66", listenOf(b))}
	readLine(t, greedy[0].(*net.TCPConn))
	for n := 1; n <= 3; n++ {
		greedy = append(greedy, dialFrom(t, "127.0.0.66", listenOf(b)))
		queued(n)
	}
	other := dialFrom(t, "127.0.0.67", listenOf(b))
	_ = greedy[3].SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := greedy[3].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the last of the address with three places in the queue got %d bytes, %v: want a reset", n, err)
	}
	_ = greedy[0].Close()
	for _, c := range []net.Conn{greedy[1], greedy[2], other} {
		if got := readLine(t, c.(*net.TCPConn)); got != "b" {
			t.Errorf("a client in the queue got %q", got)
		}
		_ = c.Close()
	}
	netns.WaitFor(t, "no connection is counted", func() bool { return r.Status()[0].Backends[0].Connections == 0 })
}

// TestQueueHangUp: a client that hangs up while it waits gives its place in the queue back; one that has closed only its sending side, as a
// client of a plain protocol may, still waits for its answer.
func TestQueueHangUp(t *testing.T) {
	t.Parallel()
	for _, mode := range []lab.BalanceMode{lab.ModeTCP, lab.ModeHTTP} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			back := serveTCP(t, func(c net.Conn) {
				<-release
				_, _ = c.Read(make([]byte, 512))
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			})
			b := with(balancer("b", addr(t), back), func(b *lab.Balancer) {
				b.Mode, b.Backends[0].MaxConnections, b.Queue, b.Timeouts.Queue = mode, 1, 4, time.Hour
			})
			r := newTestServer(t, Config{}, b)
			queued := func(n int) {
				t.Helper()
				netns.WaitFor(t, fmt.Sprintf("%d clients wait", n), func() bool { return r.Status()[0].Queued == n })
			}
			ask := func(text string) *net.TCPConn {
				c := dial(t, b.Listen)
				_, _ = io.WriteString(c, text)
				return c
			}
			const get = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
			first := ask(get)
			netns.WaitFor(t, "one is served", func() bool { return r.Status()[0].Backends[0].Connections == 1 })
			closed, reset, half := ask(""), ask(get), ask(get)
			if mode == lab.ModeHTTP {
				_, _ = io.WriteString(closed, get)
			}
			hello := ask("\x16\x03\x01") // TLS cannot be closed for sending only
			if mode == lab.ModeHTTP {
				_ = hello.Close() // no request
				queued(3)
			} else {
				queued(4)
				_ = hello.Close()
				queued(3)
			}
			_ = closed.Close()
			queued(2)
			abort(reset)
			queued(1)
			_ = half.CloseWrite()
			if mode == lab.ModeHTTP { // a request is given up with its connection, as nginx does
				queued(0)
			}
			close(release)
			for _, c := range []*net.TCPConn{first, half} {
				_ = c.SetReadDeadline(time.Now().Add(time.Minute))
				answer, err := io.ReadAll(c)
				if served := mode == lab.ModeTCP || c == first; served != strings.HasPrefix(string(answer), "HTTP/1.1 200") {
					t.Errorf("%q, %v; to be served: %v", answer, err, served)
				}
				_ = c.Close()
			}
		})
	}
}

// TestQueueHangUpHTTP2: requests of HTTP/2 clients that wait give their places back when their stream is reset, and when their connection
// ends. The others of the connection wait on.
func TestQueueHangUpHTTP2(t *testing.T) {
	t.Parallel()
	for _, protocol := range []lab.BackendProtocol{lab.BackendHTTP1, lab.BackendH2C} {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			blocked := make(chan struct{})
			release := sync.OnceFunc(func() { close(blocked) })
			back := h2cServer(t, func(http.ResponseWriter, *http.Request) { <-blocked })
			t.Cleanup(release)
			b := with(httpBalancer("b", addr(t), back), func(b *lab.Balancer) {
				b.Protocol, b.Backends[0].MaxConnections, b.Queue, b.Timeouts.Queue = protocol, 1, 4, time.Hour
			})
			r := newTestServer(t, Config{}, b)
			queued := func(n int) {
				t.Helper()
				netns.WaitFor(t, fmt.Sprintf("%d requests wait", n), func() bool { return r.Status()[0].Queued == n })
			}
			one, other := rawHTTP2(t, b.Listen), rawHTTP2(t, b.Listen)
			one.request(t, 1, "/")
			netns.WaitFor(t, "one is served", func() bool { return r.Status()[0].Backends[0].Connections == 1 })
			one.request(t, 3, "/")
			queued(1)
			one.request(t, 5, "/")
			queued(2)
			other.request(t, 1, "/")
			queued(3)
			if err := one.WriteRSTStream(3, http2frame.ErrCodeCancel); err != nil {
				t.Fatal(err)
			}
			queued(2)
			_ = other.conn.Close()
			queued(1)
			release()
			for answered := map[uint32]bool{}; !answered[1] || !answered[5]; {
				head, ok := one.next(t).(*http2frame.HeadersFrame)
				if ok && head.StreamID == 3 {
					t.Error("a stream that was reset got an answer")
				}
				if ok {
					answered[head.StreamID] = true
				}
			}
			netns.WaitFor(t, "no request is counted", func() bool { return r.Status()[0].Backends[0].Connections == 0 })
		})
	}
}

// TestQueueOfOneMachine: a machine that fills a queue from many addresses of its /64 network is one client.
func TestQueueOfOneMachine(t *testing.T) {
	t.Parallel()
	var q queue
	var last *waiter
	for i := range 3 {
		last = q.join(3, netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: byte(i)}))
	}
	if q.join(3, netip.MustParseAddr("10.0.0.1")) == nil {
		t.Error("another client has no place in the queue")
	}
	select {
	case <-last.evicted:
	default:
		t.Error("the last client of the machine has kept its place")
	}
}
