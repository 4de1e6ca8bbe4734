package lbproxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
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

// openCounter counts what is open now, and was at most.
type openCounter struct{ now, most atomic.Int64 }

func (n *openCounter) opened() {
	now := n.now.Add(1)
	for most := n.most.Load(); now > most && !n.most.CompareAndSwap(most, now); most = n.most.Load() {
	}
}

func (n *openCounter) closed() { n.now.Add(-1) }

// slowServer serves HTTP/1. It answers no request for /slow.
func slowServer(t testing.TB, n *openCounter) netip.AddrPort {
	return serveTCP(t, func(c net.Conn) {
		n.opened()
		defer n.closed()
		for in := bufio.NewReader(c); ; {
			switch head := readHead(in); {
			case head == "":
				return
			case strings.Contains(head, " /slow "):
				_, _ = io.Copy(io.Discard, in)
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
}

// waitNoSlots waits until no slot is taken, and no connection to a backend is open in HTTP mode.
func (r *testServer) waitNoSlots(t testing.TB) {
	t.Helper()
	netns.WaitFor(t, "the end of all connections to backends", func() bool {
		r.http.h2.transport.CloseIdleConnections()
		r.slots.mu.Lock()
		defer r.slots.mu.Unlock()
		return r.slots.taken.Taken() == 0 && len(r.slots.waiters) == 0 && r.http.backends.Load() == 0
	})
}

// TestHTTP2StreamsLimit: slow requests of HTTP/2 clients have no more connections to backends than the limit, and one for each client
// connection. Requests beyond wait, and get 503. Other clients are served, and another address gets its part of the slots.
func TestHTTP2StreamsLimit(t *testing.T) {
	t.Parallel()
	const attackers, limit = 3, 4
	var conns openCounter
	back := slowServer(t, &conns)
	web := with(httpBalancer("web", addr(t), back), func(b *lab.Balancer) { b.Timeouts.Queue = 200 * time.Millisecond })
	tcp := balancer("tcp", addr(t), serveTCP(t, nameServer("tcp")))
	r := newTestServer(t, Config{Connections: 32, BackendConnections: limit, Hedge: time.Minute}, web, tcp)
	var floods []*framer
	for range attackers {
		f := rawHTTP2(t, web.Listen)
		for i := range uint32(maxStreams) {
			f.request(t, 2*i+1, "/slow")
		}
		floods = append(floods, f)
	}
	const open = attackers + limit/2 // of one address: it leaves as many slots
	rejected := r.metrics.rejected.WithLabelValues("web", string(rejectLimit))
	netns.WaitFor(t, "503 for the other requests", func() bool { return testutil.ToFloat64(rejected) == attackers*maxStreams-open })
	if now, most := conns.now.Load(), conns.most.Load(); now != open || most != open {
		t.Errorf("%d connections to the backend, up to %d, want %d", now, most, open)
	}
	for i := range 4 {
		if got := readLine(t, dial(t, tcp.Listen)); got != "tcp" {
			t.Errorf("client %d in mode tcp got %q", i, got)
		}
		if status, _ := fetch(t, httpClient(t), web.Listen, "a.test"); status != http.StatusOK {
			t.Errorf("client %d in HTTP/1: status %d", i, status)
		}
		if status, _ := fetch(t, h2cClient(t), web.Listen, "a.test"); status != http.StatusOK {
			t.Errorf("client %d in HTTP/2: status %d", i, status)
		}
	}
	other := dialFrom(t, "127.0.0.30", listenOf(web))
	_, _ = io.WriteString(other, http2frame.ClientPreface)
	f := &framer{Framer: http2frame.NewFramer(other, other), conn: other}
	_ = f.WriteSettings()
	before := conns.now.Load()
	for i := range uint32(3) {
		f.request(t, 2*i+1, "/slow")
	}
	netns.WaitFor(t, "two connections for the requests of another address", func() bool { return conns.now.Load() >= before+1+limit/4 || conns.now.Load() == open+1+limit/4 })
	for _, f := range append(floods, f) {
		_ = f.conn.Close()
	}
	r.waitNoSlots(t)
}

// TestHTTP2LimitAnswer: a request beyond the limit gets 503 with Retry-After, and one that waits gets the slot of one that ends.
func TestHTTP2LimitAnswer(t *testing.T) {
	t.Parallel()
	var conns openCounter
	web := with(httpBalancer("web", addr(t), slowServer(t, &conns)), func(b *lab.Balancer) { b.Timeouts.Queue = time.Minute })
	soon := with(httpBalancer("soon", addr(t), slowServer(t, new(openCounter))), func(b *lab.Balancer) { b.Timeouts.Queue = 50 * time.Millisecond })
	r := newTestServer(t, Config{BackendConnections: 1}, web, soon)
	f := rawHTTP2(t, web.Listen)
	f.request(t, 1, "/slow")
	f.request(t, 3, "/slow")
	netns.WaitFor(t, "two connections", func() bool { return conns.now.Load() == 2 })
	f.request(t, 5, "/slow")
	f.request(t, 7, "/")
	netns.WaitFor(t, "two requests that wait", func() bool { return testutil.ToFloat64(r.metrics.queued.WithLabelValues("web")) == 2 })
	_ = f.WriteRSTStream(5, http2frame.ErrCodeCancel)
	netns.WaitFor(t, "one that waits", func() bool { return testutil.ToFloat64(r.metrics.queued.WithLabelValues("web")) == 1 })
	_ = f.WriteRSTStream(1, http2frame.ErrCodeCancel)
	if got := f.status(t); got != "200" {
		t.Errorf("a request that has waited: %s", got)
	}
	_ = f.conn.Close()
	r.waitNoSlots(t)

	full := rawHTTP2(t, soon.Listen)
	full.request(t, 1, "/slow")
	full.request(t, 3, "/slow")
	netns.WaitFor(t, "two requests at the backend", func() bool { return r.http.backends.Load() == 2 })
	full.request(t, 5, "/")
	full.ReadMetaHeaders = newDecoder()
	for {
		if frame, ok := full.next(t).(*http2frame.MetaHeadersFrame); ok {
			after := ""
			for _, field := range frame.RegularFields() {
				if field.Name == "retry-after" {
					after = field.Value
				}
			}
			if status := frame.PseudoValue("status"); frame.StreamID != 5 || status != "503" || after == "" {
				t.Errorf("stream %d: status %s, Retry-After %q", frame.StreamID, status, after)
			}
			break
		}
	}
	_ = full.conn.Close()
	r.waitNoSlots(t)
}

// A trackedConn is open until it is closed.
type trackedConn struct {
	net.Conn
	close func()
}

func (c *trackedConn) Close() error {
	err := c.Conn.Close()
	c.close()
	return err
}

// TestHTTP2ResetsLimit: requests that are reset at once have no more dials and connections to backends than the limit, although a dial may go
// on after its request, and its backends do not answer.
func TestHTTP2ResetsLimit(t *testing.T) {
	t.Parallel()
	for _, protocol := range []lab.BackendProtocol{"", lab.BackendH2C} {
		t.Run("backend "+string(protocol), func(t *testing.T) {
			t.Parallel()
			const limit, waiting = 8, 2
			var sockets openCounter
			dial := func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
				sockets.opened()
				if to.Addr().Is6() { // it never answers
					<-ctx.Done()
					time.Sleep(5 * time.Millisecond) // until the socket is closed
					sockets.closed()
					return nil, ctx.Err()
				}
				conn, err := dialTCP(context.WithoutCancel(ctx), to)
				if err != nil {
					sockets.closed()
					return nil, err
				}
				return &trackedConn{conn, sync.OnceFunc(sockets.closed)}, nil
			}
			back := h2cServer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			b := with(httpBalancer("web", addr(t), back, netip.MustParseAddrPort("[::1]:9")), func(b *lab.Balancer) { b.Protocol = protocol })
			r := newTestServerWith(t, Config{BackendConnections: limit, Waiting: waiting, Hedge: 20 * time.Millisecond}, Deps{Dial: dial}, b)
			f := rawHTTP2(t, b.Listen)
			go func() { _, _ = io.Copy(io.Discard, f.conn) }()
			for i := range uint32(2000) {
				h := http2frame.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: block("/"), EndHeaders: true, EndStream: true}
				if f.WriteHeaders(h) != nil || f.WriteRSTStream(h.StreamID, http2frame.ErrCodeCancel) != nil {
					break // net/http has enough
				}
			}
			netns.WaitFor(t, "a connection", func() bool { return sockets.most.Load() > 0 })
			_ = f.conn.Close()
			r.waitEnded(t, "web")
			if most := sockets.most.Load(); most > 1+limit/2+waiting*(maxDials-1) {
				t.Errorf("%d sockets to backends, want at most one for the client, %d for the address, and %d for each of %d that wait", most, limit/2, maxDials-1, waiting)
			}
			netns.WaitFor(t, "the end of all sockets and slots", func() bool { // a dial may begin after its request has ended
				r.waitNoSlots(t)
				return sockets.now.Load() == 0
			})
		})
	}
}

// TestHTTP2BackendBurst: requests that come at once share the connections to an HTTP/2 backend that there are slots for.
func TestHTTP2BackendBurst(t *testing.T) {
	t.Parallel()
	const limit, requests = 4, 50
	var conns openCounter
	dial := func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		time.Sleep(20 * time.Millisecond) // so that all requests find no connection
		conn, err := dialTCP(ctx, to)
		if err != nil {
			return nil, err
		}
		conns.opened()
		return &trackedConn{conn, sync.OnceFunc(conns.closed)}, nil
	}
	var seen sync.WaitGroup
	seen.Add(requests)
	back := h2cServer(t, func(w http.ResponseWriter, _ *http.Request) {
		seen.Done()
		seen.Wait()
		_, _ = io.WriteString(w, "ok")
	})
	b := with(httpBalancer("web", addr(t), back), func(b *lab.Balancer) { b.Protocol, b.Timeouts.Queue = lab.BackendH2C, time.Minute })
	r := newTestServerWith(t, Config{BackendConnections: limit}, Deps{Dial: dial}, b)
	client := h2cClient(t)
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			resp, err := client.Get("http://" + b.Listen.String() + "/")
			if err != nil {
				t.Error(err)
				return
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if string(body) != "ok" || err != nil {
				t.Errorf("%s %q, %v", resp.Status, body, err)
			}
		})
	}
	all.Wait()
	if most, clients := conns.most.Load(), r.http.clients.Load(); most > clients+limit/2 {
		t.Errorf("%d connections to the backend, want at most one for each of %d client connections and %d for their address", most, clients, limit/2)
	}
	r.waitNoSlots(t)
}

// TestIdleBackendConnections: connections to backends that are idle are closed where there are too many for the clients and the slots.
func TestIdleBackendConnections(t *testing.T) {
	t.Parallel()
	const limit = 4
	var conns openCounter
	b := httpBalancer("web", addr(t), slowServer(t, &conns))
	r := newTestServer(t, Config{BackendConnections: limit}, b)
	for i := range 50 { // none is repeatable, so each has a new connection
		client := httpClient(t)
		resp, err := client.Post("http://"+b.Listen.String()+"/", "text/plain", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		client.CloseIdleConnections()
		netns.WaitFor(t, fmt.Sprintf("at most %d idle connections after client %d", limit, i), func() bool {
			return r.http.clients.Load() == 0 && r.http.backends.Load() <= limit
		})
	}
	if most := conns.most.Load(); most > limit+2 {
		t.Errorf("%d connections to the backend, want at most %d that are idle, one in use, and one that is being closed", most, limit)
	}
	r.waitNoSlots(t)
}

// TestIdleHTTP2Backends: an idle HTTP/2 connection to a backend gives its slot to a request that waits for one.
func TestIdleHTTP2Backends(t *testing.T) {
	t.Parallel()
	const limit = 2
	serve := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }
	var all []*lab.Balancer
	for i := range 6 {
		all = append(all, with(httpBalancer(fmt.Sprint("web", i), addr(t), h2cServer(t, serve)), func(b *lab.Balancer) {
			b.Protocol, b.Timeouts.Queue = lab.BackendH2C, time.Minute
		}))
	}
	r := newTestServer(t, Config{BackendConnections: limit}, all...)
	for _, b := range all {
		for _, client := range []*http.Client{httpClient(t), h2cClient(t)} {
			if status, body := fetch(t, client, b.Listen, "a.test"); status != http.StatusOK {
				t.Errorf("%s: status %d, %s", b.Name, status, body)
			}
			client.CloseIdleConnections()
		}
	}
	r.waitNoSlots(t)
}
