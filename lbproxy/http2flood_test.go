package lbproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/host/client/connlimit"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/prometheus/client_golang/prometheus/testutil"
	http2frame "golang.org/x/net/http2"
)

// TestHTTP2Floods holds that a client that sends frames which cost it nothing is sent ENHANCE_YOUR_CALM, and that others are not affected.
func TestHTTP2Floods(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(f *framer, n uint32) error{
		"SETTINGS": func(f *framer, _ uint32) error { return f.WriteSettings() },
		"PING":     func(f *framer, _ uint32) error { return f.WritePing(false, [8]byte{1}) },
		"RST_STREAM": func(f *framer, n uint32) error {
			h := http2frame.HeadersFrameParam{StreamID: 2*n + 1, BlockFragment: block("/slow"), EndHeaders: true, EndStream: true}
			return errors.Join(f.WriteHeaders(h), f.WriteRSTStream(h.StreamID, http2frame.ErrCodeCancel))
		},
		"CONTINUATION": func(f *framer, n uint32) error {
			if n == 0 {
				return f.WriteHeaders(http2frame.HeadersFrameParam{StreamID: 1, BlockFragment: block("/")})
			}
			return f.WriteContinuation(1, false, nil)
		},
		"empty DATA": func(f *framer, n uint32) error {
			if n == 0 {
				return f.WriteHeaders(http2frame.HeadersFrameParam{StreamID: 1, BlockFragment: block("/"), EndHeaders: true})
			}
			return f.WriteData(1, false, nil)
		},
		"padded DATA without content": func(f *framer, n uint32) error {
			if n == 0 {
				return f.WriteHeaders(http2frame.HeadersFrameParam{StreamID: 1, BlockFragment: block("/"), EndHeaders: true})
			}
			return f.WriteDataPadded(1, false, nil, make([]byte, 1))
		},
		"WINDOW_UPDATE": func(f *framer, _ uint32) error { return f.WriteWindowUpdate(0, 1) },
		"unknown frame": func(f *framer, _ uint32) error { return f.WriteRawFrame(0xfa, 0, 0, nil) },
		"PRIORITY": func(f *framer, _ uint32) error {
			return f.WritePriority(1, http2frame.PriorityParam{Weight: 1, StreamDep: 3})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			back := serveHTTP(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
			b := httpBalancer("web", addr(t), back)
			s := newTestServer(t, Config{}, b)
			netns.Tries(t, 3, func(int) string { // a client that does not read for two seconds sees a reset instead of GOAWAY
				f := rawHTTP2(t, b.Listen)
				defer func() { _ = f.conn.Close() }()
				away := make(chan bool, 1)
				go func() { away <- f.awaitGoAway() }()
				end := time.Now().Add(30 * time.Second)
				for n := uint32(0); len(away) == 0 && time.Now().Before(end) && send(f, n) == nil; n++ {
				}
				if !<-away {
					return "no GOAWAY with ENHANCE_YOUR_CALM"
				}
				return ""
			})
			if got := s.metrics.rejected.WithLabelValues("", string(rejectFlood)); name != "RST_STREAM" && testutil.ToFloat64(got) == 0 {
				t.Error("the flood was not counted")
			}
			if status, _ := fetch(t, httpClient(t), b.Listen, "a.test"); status != http.StatusOK {
				t.Errorf("another connection of the client: status %d", status)
			}
		})
	}
}

// TestHTTP2ManyWindowUpdates holds that a client that answers each small DATA frame of a long stream with two WINDOW_UPDATE frames is
// no flood.
func TestHTTP2ManyWindowUpdates(t *testing.T) {
	t.Parallel()
	back := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, "message\n")
			_ = http.NewResponseController(w).Flush()
		}
	})
	b := httpBalancer("web", addr(t), back)
	newTestServer(t, Config{}, b)
	f := rawHTTP2(t, b.Listen)
	if err := f.WriteHeaders(http2frame.HeadersFrameParam{StreamID: 1, BlockFragment: block("/"), EndHeaders: true, EndStream: true}); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(10 * time.Second) // a slower machine sends too few to be taken for a flood
	for updates := 0; updates < 2*controlBurst && time.Now().Before(end); {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("after %d WINDOW_UPDATE frames: %v", updates, err)
		}
		switch frame := frame.(type) {
		case *http2frame.GoAwayFrame:
			t.Fatalf("GOAWAY after %d WINDOW_UPDATE frames: %v", updates, frame.ErrCode)
		case *http2frame.DataFrame:
			_ = f.WriteWindowUpdate(0, frame.Length)
			_ = f.WriteWindowUpdate(1, frame.Length)
			updates += 2
		}
	}
}

// awaitGoAway reads up to GOAWAY with ENHANCE_YOUR_CALM, and reports whether it came before the end.
func (f *framer) awaitGoAway() bool {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return false
		}
		if away, ok := frame.(*http2frame.GoAwayFrame); ok && away.ErrCode == http2frame.ErrCodeEnhanceYourCalm {
			return true
		}
	}
}

// TestHTTP2Framing holds that a request whose length or host can be read in two ways reaches no backend.
func TestHTTP2Framing(t *testing.T) {
	t.Parallel()
	reached := make(chan string, 100)
	back := serveHTTP(t, func(_ http.ResponseWriter, r *http.Request) { reached <- r.URL.Path })
	b := httpBalancer("web", addr(t), back)
	newTestServer(t, Config{}, b)
	for _, test := range []struct {
		name   string
		fields []string
		body   bool
		want   string
	}{
		{"plain", nil, false, "200"},
		{"length of the body", []string{"content-length", "3"}, true, "200"},
		{"no body, length 0", []string{"content-length", "0"}, false, "200"},
		{"host is the authority", []string{"host", "A.test"}, false, "200"},
		{"two lengths", []string{"content-length", "3", "content-length", "30"}, true, "400"},
		{"the same length twice", []string{"content-length", "3", "content-length", "3"}, true, "400"},
		{"a length without a body", []string{"content-length", "3"}, false, "400"},
		{"a signed length", []string{"content-length", "+3"}, true, "400 or RST"},
		{"two lengths in one field", []string{"content-length", "3, 3"}, true, "400 or RST"},
		{"another host", []string{"host", "b.test"}, false, "400"},
		{"two hosts", []string{"host", "a.test", "host", "a.test"}, false, "400"},
	} {
		f := rawHTTP2(t, b.Listen)
		_ = f.WriteHeaders(http2frame.HeadersFrameParam{StreamID: 1, BlockFragment: block("/"+test.name[:1], test.fields...), EndHeaders: true, EndStream: !test.body})
		if test.body {
			_ = f.WriteData(1, true, []byte("abc"))
		}
		if got := f.status(t); !strings.Contains(test.want, got) {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
		_ = f.conn.Close()
	}
	if n := len(reached); n != 4 {
		t.Errorf("%d requests reached the backend, want 4", n)
	}
}

// status returns the status of the response on stream 1; RST: it was reset.
func (f *framer) status(t testing.TB) string {
	t.Helper()
	f.ReadMetaHeaders = newDecoder()
	for {
		switch frame := f.next(t).(type) {
		case *http2frame.MetaHeadersFrame:
			return frame.PseudoValue("status")
		case *http2frame.RSTStreamFrame:
			return "RST"
		}
	}
}

// FuzzFrameScanner holds that frames are found wherever the octets are cut.
func FuzzFrameScanner(f *testing.F) {
	var seed bytes.Buffer
	framer := http2frame.NewFramer(&seed, nil)
	_ = framer.WritePing(false, [8]byte{})
	_ = framer.WriteData(1, true, []byte(strings.Repeat("x", 300)))
	_ = framer.WriteSettings()
	f.Add(seed.Bytes(), uint8(5))
	f.Fuzz(func(t *testing.T, data []byte, step uint8) {
		scan := func(step int) (frames []int, between bool) {
			var s frameScanner
			for p := range slices.Chunk(data, step) {
				s.scan(p, func(kind, flags byte, length int) { frames = append(frames, int(flags)<<32|int(kind)<<24|length) })
			}
			return frames, s.between()
		}
		whole, ended := scan(max(len(data), 1))
		cut, cutEnded := scan(max(int(step), 1))
		if !slices.Equal(whole, cut) || ended != cutEnded {
			t.Fatalf("whole: %v %v, in parts of %d: %v %v", whole, ended, step, cut, cutEnded)
		}
	})
}

// TestHTTP2KeepAlive: timeouts.keepalive ends an HTTP/2 connection without a request by GOAWAY, which names the last request. It ends none
// that has one, and PING does not prolong it.
func TestHTTP2KeepAlive(t *testing.T) {
	t.Parallel()
	back := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) { time.Sleep(time.Second) })
	for _, test := range []struct {
		name string
		path string // of a request; empty: none
		last uint32
	}{{"after a request", "/", 1}, {"without a request", "", 0}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := with(httpBalancer("web", addr(t), back), func(b *lab.Balancer) { b.Timeouts.KeepAlive = 300 * time.Millisecond })
			newTestServer(t, Config{}, b)
			f := rawHTTP2(t, b.Listen)
			if test.path != "" {
				f.request(t, 1, test.path)
			}
			answered := test.path == ""
			for {
				switch frame := f.next(t).(type) {
				case *http2frame.MetaHeadersFrame, *http2frame.HeadersFrame:
					answered = true
				case *http2frame.SettingsFrame, *http2frame.DataFrame:
					_ = f.WritePing(false, [8]byte{1})
				case *http2frame.GoAwayFrame:
					if !answered || frame.LastStreamID != test.last || frame.ErrCode != http2frame.ErrCodeNo {
						t.Errorf("answered: %t, GOAWAY with stream %d and %s, want %d and NO_ERROR", answered, frame.LastStreamID, frame.ErrCode, test.last)
					}
					if _, err := f.ReadFrame(); err == nil {
						t.Error("a frame after GOAWAY")
					}
					return
				}
			}
		})
	}
}

// TestHTTP2ManyRequests: a request above the limit gets an answer that needs no window of its client, and so keeps no memory.
func TestHTTP2ManyRequests(t *testing.T) {
	t.Parallel()
	b := httpBalancer("web", addr(t), serveHTTP(t, func(http.ResponseWriter, *http.Request) {}))
	s := newTestServer(t, Config{}, b).Server
	s.http.h2.streams = connlimit.NewCounter(0)
	f := rawHTTP2(t, b.Listen)
	if err := f.WriteSettings(http2frame.Setting{ID: http2frame.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	f.request(t, 1, "/")
	f.ReadMetaHeaders = newDecoder()
	for {
		if h, ok := f.next(t).(*http2frame.MetaHeadersFrame); ok {
			if h.PseudoValue("status") != "503" || !h.StreamEnded() {
				t.Errorf("status %s, ended %v", h.PseudoValue("status"), h.StreamEnded())
			}
			return
		}
	}
}

// TestHTTP2FloodOfOneNetwork: the addresses of one /64 network are one client.
func TestHTTP2FloodOfOneNetwork(t *testing.T) {
	t.Parallel()
	var b controlBudgets
	var conns [3]http2Conn
	for i, client := range []string{"2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"} {
		b.add(netip.MustParseAddr(client), &conns[i])
	}
	if conns[0].budget != conns[1].budget || conns[0].budget == conns[2].budget {
		t.Error("a client is not counted by its /64 network")
	}
	for i := range conns {
		b.remove(&conns[i])
	}
	if b.expire(time.Now().Add(time.Hour)); len(b.clients) != 0 {
		t.Errorf("%d clients are left", len(b.clients))
	}
}

// TestHTTP2GreedyClients: where clients came one after the other, and each took all the requests that it got, a new client gets some.
func TestHTTP2GreedyClients(t *testing.T) {
	t.Parallel()
	const memory = 32 << 20
	b := httpBalancer("web", addr(t), serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	s := newTestServer(t, Config{Memory: memory, BackendConnections: 1000}, b)
	from := func(client string) *framer {
		c := dialFrom(t, client, listenOf(b))
		_, _ = io.WriteString(c, http2frame.ClientPreface)
		f := &framer{Framer: http2frame.NewFramer(c, c), conn: c}
		_ = f.WriteSettings()
		return f
	}
	for n := range 9 {
		f := from(fmt.Sprintf("127.0.0.%d", 50+n))
		refused := testutil.ToFloat64(s.metrics.rejected.WithLabelValues("", string(rejectLimit)))
		for i := uint32(1); s.http.h2.streams.Taken() < newHTTP2Limits(memory).requests; i += 2 {
			f.request(t, i, "/slow")
			netns.WaitFor(t, "a request in progress, or refused", func() bool {
				return s.http.h2.streams.Of(netip.MustParseAddr(fmt.Sprintf("127.0.0.%d", 50+n))) == int(i+1)/2 || testutil.ToFloat64(s.metrics.rejected.WithLabelValues("", string(rejectLimit))) > refused
			})
			if testutil.ToFloat64(s.metrics.rejected.WithLabelValues("", string(rejectLimit))) > refused {
				break
			}
		}
	}
	if !s.http.h2.streams.Full() {
		t.Errorf("%d requests in progress, want as many as there may be", s.http.h2.streams.Taken())
	}
	f := from("127.0.0.99")
	f.request(t, 1, "/")
	if got := f.status(t); got != "204" {
		t.Errorf("a new client: %s", got)
	}
	if got := testutil.ToFloat64(s.metrics.evicted); got != 1 {
		t.Errorf("%v connections were evicted, want one", got)
	}
}

// A blockedListener accepts connections. What is written to those from 127.0.0.1 waits for their end, as if their client read nothing.
type blockedListener struct{ net.Listener }

func (l blockedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil || addrPort(c.RemoteAddr()).Addr() != netip.MustParseAddr("127.0.0.1") {
		return c, err
	}
	return &blockedConn{Conn: c, closed: make(chan struct{})}, nil
}

type blockedConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *blockedConn) Write([]byte) (int, error) { <-c.closed; return 0, net.ErrClosed }
func (c *blockedConn) Close() error              { c.once.Do(func() { close(c.closed) }); return c.Conn.Close() }

// TestHTTP2Blocked: a client that reads nothing at all has no more requests open than its share, also those whose handlers have ended and those
// that get 503: each has a goroutine and its head until the client has taken the response. A further one ends its connection.
func TestHTTP2Blocked(t *testing.T) {
	t.Parallel()
	const memory, conns = 32 << 20, 8
	limits := newHTTP2Limits(memory)
	b := httpBalancer("web", addr(t), serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	s := newTestServerWith(t, Config{Memory: memory}, Deps{Listen: func(ctx context.Context, at netip.AddrPort) (net.Listener, error) {
		l, err := ListenFree(ctx, at)
		return blockedListener{l}, err
	}}, b)
	most := 0
	for range conns {
		f := rawHTTP2(t, b.Listen)
		for i := range uint32(maxStreams) {
			if f.WriteHeaders(http2frame.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: block("/"), EndHeaders: true, EndStream: true}) != nil {
				break
			}
		}
		most = max(most, s.http.h2.open.Taken())
	}
	flood := s.metrics.rejected.WithLabelValues("", string(rejectFlood))
	netns.WaitFor(t, "the end of all connections but the one with the client's share", func() bool {
		most = max(most, s.http.h2.open.Taken())
		return testutil.ToFloat64(flood) > 0 && s.http.clients.Load() <= 1
	})
	if most > limits.open/2 {
		t.Errorf("%d requests of one client are open, want at most %d", most, limits.open/2)
	}
	other := dialFrom(t, "127.0.0.40", listenOf(b))
	_, _ = io.WriteString(other, http2frame.ClientPreface)
	f := &framer{Framer: http2frame.NewFramer(other, other), conn: other}
	_ = f.WriteSettings()
	f.request(t, 1, "/")
	if got := f.status(t); got != "204" {
		t.Errorf("another client: %s", got)
	}
	_ = other.Close()
	s.http.h2.close() // the others
	netns.WaitFor(t, "no open request", func() bool { return s.http.h2.open.Taken() == 0 })
}

// TestHTTP2ResetsCount: a request that its client resets counts until its handler has ended, so that resets do not make room for more than
// the share of open requests.
func TestHTTP2ResetsCount(t *testing.T) {
	t.Parallel()
	const memory = 32 << 20
	b := httpBalancer("web", addr(t), serveHTTP(t, func(http.ResponseWriter, *http.Request) {}))
	s := newTestServer(t, Config{Memory: memory}, b)
	h := &http2Conn{c: &httpConn{proxy: s.http, x: exchange{src: netip.MustParseAddrPort("192.0.2.1:1")}}, open: map[uint32]struct{}{}}
	share := newHTTP2Limits(memory).open / 2
	for i := range uint32(share) {
		if !h.begin(2*i + 1) {
			t.Fatalf("request %d of %d is refused", i, share)
		}
		h.use(1)
		h.end(2*i+1, 1)
	}
	if next := uint32(2*share + 1); h.begin(next) {
		t.Errorf("one request more than %d", share)
	}
	h.use(-1)
	if next := uint32(2*share + 3); !h.begin(next) {
		t.Error("after one has ended, no other may begin")
	}
	h.endAll()
	if n := s.http.h2.open.Taken(); n != 0 {
		t.Errorf("%d are open after the end of the connection", n)
	}
}

// TestHTTP2Uploads: bodies that their backend does not read take no more memory than there is, however many connections they come on.
func TestHTTP2Uploads(t *testing.T) {
	t.Parallel()
	for _, memory := range []int64{32 << 20, 256 << 20, 1 << 30, 16 << 30, math.MaxInt64} {
		l := newHTTP2Limits(memory)
		if bodies := int64(l.open) * int64(l.window); memory >= 256<<20 && memory < math.MaxInt64 && bodies > memory/4 || l.requests < 64 || l.window < 64<<10 {
			t.Errorf("%d MiB of memory: %+v, up to %d MiB of bodies", memory>>20, l, bodies>>20)
		}
	}
}
