package lbproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// wasReset is the result of firstLineTLS for a connection that was reset.
const wasReset = "reset"

// firstLineTLS sends a ClientHello in segments of cut bytes and returns the first line of the backend, a nameServer.
func firstLineTLS(t testing.TB, at netip.AddrPort, name string, cut int) string {
	t.Helper()
	c, err := net.Dial("tcp", at.String())
	if errors.Is(err, syscall.ECONNRESET) {
		return wasReset // before connect returned
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	b := hello(t, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	for len(b) > 0 {
		n := min(cut, len(b))
		if _, err := c.Write(b[:n]); err != nil {
			return wasReset // the error is reported once; a read would see EOF
		}
		b = b[n:]
		if cut < 1000 {
			time.Sleep(time.Millisecond)
		}
	}
	first := make([]byte, 64)
	n, err := c.Read(first)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return wasReset
	}
	if err != nil {
		t.Fatal(err)
	}
	word, _, _ := strings.Cut(string(first[:n]), "\n")
	return word
}

// sharing returns two balancers of one address.
func sharing(t testing.TB, at netip.AddrPort) []*lab.Balancer {
	match := func(name string, m lab.Match) *lab.Balancer {
		return with(balancer(name, at, serveTCP(t, nameServer(name))), func(b *lab.Balancer) { b.Match = m })
	}
	return []*lab.Balancer{
		match("east", lab.Match{SNI: []string{"api.east.lab", "*.apps.east.lab"}}),
		match("west", lab.Match{SNI: []string{"api.west.lab", "*.apps.west.lab"}}),
	}
}

func TestRouteByServerName(t *testing.T) {
	t.Parallel()
	at := addr(t)
	bs := sharing(t, at)
	r := newTestServer(t, Config{}, bs...)
	tests := []struct {
		name, sni string
		cut       int
		want      string
	}{
		{"exact", "api.east.lab", 5000, "east"},
		{"upper case", "API.West.Lab", 5000, "west"},
		{"wildcard", "console.apps.west.lab", 5000, "west"},
		{"in small segments", "api.west.lab", 7, "west"},
		{"no match", "api.north.lab", 5000, wasReset},
		{"no name", "", 5000, wasReset},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := firstLineTLS(t, at, test.sni, test.cut); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
	t.Run("the backend gets every byte once", func(t *testing.T) {
		c := dial(t, at)
		sent := append(hello(t, &tls.Config{ServerName: "api.east.lab"}), "and more"...)
		_, _ = c.Write(sent)
		_ = c.CloseWrite()
		got, err := io.ReadAll(c)
		if err != nil || string(got) != "east\n"+string(sent) {
			t.Errorf("echoed %d bytes, %v, want %d", len(got), err, len(sent)+5)
		}
	})
	t.Run("with a balancer without a match", func(t *testing.T) {
		r.apply(t, append(bs, balancer("rest", at, serveTCP(t, nameServer("rest"))))...)
		for _, name := range []string{"api.north.lab", ""} {
			if got := firstLineTLS(t, at, name, 5000); got != "rest" {
				t.Errorf("%q for %q, want the balancer without a match", got, name)
			}
		}
		c := dial(t, at)
		_, _ = io.WriteString(c, "SSH-2.0-x\r\n")
		if got := readLine(t, c); got != "rest" {
			t.Errorf("%q for SSH, want rest", got)
		}
		c = dial(t, at)
		long := hello(t, &tls.Config{ServerName: "api.east.lab", NextProtos: slices.Repeat([]string{strings.Repeat("x", 250)}, 100)})
		go func() { _, _ = c.Write(long) }()
		if got := readLine(t, c); got != "rest" || len(long) < maxPeek {
			t.Errorf("%q for a hello of %d bytes, want rest", got, len(long))
		}
		for reason, want := range map[string]float64{"no_name": 2, "no_tls": 1, "too_long": 1} {
			if got := testutil.ToFloat64(r.metrics.withoutSNI.WithLabelValues(reason)); got != want {
				t.Errorf("%v connections counted as %s, want %v", got, reason, want)
			}
		}
	})
}

// TestSlowFirstBytesTimeOut: the time limit is for all first bytes together, not for each read.
func TestSlowFirstBytesTimeOut(t *testing.T) {
	t.Parallel()
	const slow, limit, interval = 20, 500 * time.Millisecond, 20 * time.Millisecond
	at := addr(t)
	r := newTestServer(t, Config{Peek: limit}, sharing(t, at)...)
	start := hello(t, &tls.Config{ServerName: "api.east.lab", CurvePreferences: []tls.CurveID{tls.X25519}})
	var tasks sync.WaitGroup
	for range slow {
		c := dial(t, at)
		tasks.Go(func() {
			for i := range start {
				if _, err := c.Write(start[i : i+1]); err != nil {
					return
				}
				time.Sleep(interval)
			}
			t.Errorf("a client took %s for its first bytes, want a reset after %s", time.Duration(len(start))*interval, limit)
		})
	}
	tasks.Wait()
	netns.WaitFor(t, "rejections counted", func() bool {
		return testutil.ToFloat64(r.metrics.rejected.WithLabelValues("", string(rejectTimeout))) == slow
	})
}

// TestSilentClientLosesItsOwn: a client with as many silent connections as may wait blocks nobody; its oldest are reset.
func TestSilentClientLosesItsOwn(t *testing.T) {
	t.Parallel()
	const pending = 200
	at := addr(t)
	r := newTestServer(t, Config{Peek: time.Hour, Pending: pending}, sharing(t, at)...)
	var silent []net.Conn
	for i := range pending {
		silent = append(silent, dialFrom(t, "127.0.0.66", at))
		netns.WaitFor(t, "pending", func() bool { return r.pending.Len() == i+1 })
	}
	if got := firstLineTLS(t, at, "api.east.lab", 5000); got != "east" {
		t.Errorf("%q for another client while one has all pending connections, want east", got)
	}
	if _, err := silent[0].Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the oldest silent connection: %v, want a reset", err)
	}
	netns.WaitFor(t, "one rejected", func() bool {
		return testutil.ToFloat64(r.metrics.rejected.WithLabelValues("", string(rejectPending))) == 1
	})
	for _, c := range silent {
		_ = c.Close()
	}
	netns.WaitFor(t, "none pending", func() bool { return r.pending.Len() == 0 })
}

// TestPendingFromManyClients: clients that send nothing, of which each has one of the connections that may wait, keep no other client out: the
// oldest is reset.
func TestPendingFromManyClients(t *testing.T) {
	t.Parallel()
	const pending = 16
	at := addr(t)
	r := newTestServer(t, Config{Peek: time.Hour, Pending: pending}, sharing(t, at)...)
	var silent []net.Conn
	for i := range pending {
		silent = append(silent, dialFrom(t, fmt.Sprintf("127.0.0.%d", 70+i), at))
		netns.WaitFor(t, "pending", func() bool { return r.pending.Len() == i+1 })
	}
	if got := firstLineTLS(t, at, "api.east.lab", 5000); got != "east" {
		t.Errorf("%q for one client more, want east", got)
	}
	if _, err := silent[0].Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the oldest silent connection: %v, want a reset", err)
	}
}

func TestSharedAddressLimitRejects(t *testing.T) {
	t.Parallel()
	at := addr(t)
	bs := sharing(t, at)
	bs[0].MaxConnections = 1
	newTestServer(t, Config{}, bs...)
	c := dial(t, at)
	_, _ = c.Write(hello(t, &tls.Config{ServerName: "api.east.lab"}))
	readLine(t, c)
	if got := firstLineTLS(t, at, "api.east.lab", 5000); got != wasReset {
		t.Errorf("%q beyond the limit, want a reset", got)
	}
	if got := firstLineTLS(t, at, "api.west.lab", 5000); got != "west" {
		t.Errorf("%q, want west: the limit is of the other balancer", got)
	}
}

func TestProxyHeaderOfTrustedPeersOnly(t *testing.T) {
	t.Parallel()
	src, dst := netip.MustParseAddrPort("203.0.113.9:4711"), netip.MustParseAddrPort("198.51.100.1:443")
	tests := []struct {
		name  string
		peers []netip.Prefix
		send  string
		want  string // what reaches the backend after its own PROXY header; empty: a reset
		src   string // of the PROXY header that the backend gets; empty: our client's own
	}{
		{"v1 of a peer", []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, proxyHeaderOf(t, 1, src, dst) + "hi\n", "hi", "203.0.113.9 198.51.100.1 4711 443"},
		{"v2 of a peer", []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, proxyHeaderOf(t, 2, src, dst) + "hi\n", "hi", "203.0.113.9 198.51.100.1 4711 443"},
		{"local of a peer", []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, proxyHeaderOf(t, 2, netip.AddrPort{}, netip.AddrPort{}) + "hi\n", "hi", ""},
		{"none of a peer", []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, "hi\n", "hi", ""},
		{"broken of a peer", []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, "PROXY TCP4 nonsense\r\nhi\n", "", ""},
		{"of an untrusted peer", []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\nhi\n", "PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := with(balancer("b", addr(t), serveTCP(t, func(c net.Conn) { _, _ = io.Copy(c, c) })), func(b *lab.Balancer) {
				b.AcceptProxy, b.SendProxy = test.peers, 1
			})
			newTestServer(t, Config{}, b)
			c := dial(t, b.Listen)
			_, _ = io.WriteString(c, test.send)
			if test.want == "" {
				if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("client saw %v, want a reset", err)
				}
				return
			}
			src := test.src
			if src == "" {
				src = proxyHeaderOf(t, 1, addrPort(c.LocalAddr()), addrPort(c.RemoteAddr()))
				src = src[len("PROXY TCP4 ") : len(src)-2]
			}
			if got := readLine(t, c); got != "PROXY TCP4 "+src+"\r" {
				t.Errorf("the backend got the PROXY header %q, want %q", got, src)
			}
			if got := readLine(t, c); got != test.want {
				t.Errorf("then it got %q, want %q", got, test.want)
			}
		})
	}
}

func TestTrustedPeerOfServerFirstProtocol(t *testing.T) {
	t.Parallel()
	b := with(balancer("b", addr(t), serveTCP(t, nameServer("220 mail"))), func(b *lab.Balancer) {
		b.AcceptProxy = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	newTestServer(t, Config{Peek: 50 * time.Millisecond}, b)
	if got := readLine(t, dial(t, b.Listen)); got != "220 mail" {
		t.Errorf("a peer that waits for the server got %q", got)
	}
}

func TestHTTPBehindProxy(t *testing.T) {
	t.Parallel()
	b := with(httpBalancer("web", addr(t), serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("X-Forwarded-For")+"\n")
	})), func(b *lab.Balancer) { b.AcceptProxy = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	newTestServer(t, Config{}, b)
	c := dial(t, b.Listen)
	_, _ = io.WriteString(c, "PROXY TCP4 203.0.113.9 198.51.100.1 4711 443\r\nGET / HTTP/1.0\r\n\r\n")
	body, _ := io.ReadAll(c)
	if !strings.HasSuffix(string(body), "\r\n\r\n203.0.113.9\n") {
		t.Errorf("answer %q, want X-Forwarded-For of the header's client", body)
	}
}

// A drainStore keeps drains in memory.
type drainStore struct {
	mu  sync.Mutex
	all map[Drain]time.Time
	err error
}

func (s *drainStore) Load(context.Context) ([]Drain, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Drain
	for d, since := range s.all {
		d.Since = since
		out = append(out, d)
	}
	return out, s.err
}

func (s *drainStore) Put(_ context.Context, d Drain) error    { return s.set(d, true) }
func (s *drainStore) Delete(_ context.Context, d Drain) error { return s.set(d, false) }

func (s *drainStore) set(d Drain, in bool) error {
	if in && d.Since.IsZero() {
		return errors.New("a drain without a time")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	since := d.Since
	d.Since = time.Time{}
	delete(s.all, d)
	if in {
		s.all[d] = since
	}
	return nil
}

func TestDrainSurvivesRestart(t *testing.T) {
	t.Parallel()
	a, b := serveTCP(t, nameServer("a")), serveTCP(t, nameServer("b"))
	frontend := addr(t)
	store := &drainStore{all: make(map[Drain]time.Time)}
	newBalancer := func() *lab.Balancer {
		return with(balancer("web", frontend, a, b), func(b *lab.Balancer) { b.Backends[0].Name = "worker-0" })
	}
	r := newTestServerWith(t, Config{}, Deps{Drains: store}, newBalancer())
	open := dial(t, frontend)
	for readLine(t, open) != "a" {
		open = dial(t, frontend)
	}
	if _, err := r.Drain(t.Context(), "web", "worker-0"); err != nil {
		t.Fatal(err)
	}
	since := r.Status()[0].Backends[0].DrainedSince
	if since.IsZero() {
		t.Error("it is not known since when the backend is drained")
	}
	_, _ = io.WriteString(open, "still\n")
	if got := readLine(t, open); got != "still" {
		t.Errorf("an open connection of a drained backend read %q", got)
	}
	only := func(r *testServer, want string) {
		t.Helper()
		for range 6 {
			if got := readLine(t, dial(t, frontend)); got != want {
				t.Errorf("a new connection went to %q, want %q", got, want)
			}
		}
	}
	only(r, "b")
	r.stop()

	r = newTestServerWith(t, Config{}, Deps{Drains: store}, newBalancer())
	netns.WaitFor(t, "drain loaded", func() bool { return r.Status()[0].Backends[0].DrainedSince.Equal(since) })
	only(r, "b")
	if _, err := r.Drain(t.Context(), "web", b.String()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Ready(t.Context(), "web", "worker-0"); err != nil {
		t.Fatal(err)
	}
	only(r, "a")
	for range 2 { // again: nothing changes, and the answer is the same
		drained, err := r.Drain(t.Context(), "web", b.String())
		ready, err2 := r.Ready(t.Context(), "web", "worker-0")
		if err := errors.Join(err, err2); err != nil || len(drained) != 1 || !drained[0].Drained || len(ready) != 1 || ready[0].Drained {
			t.Errorf("again: %+v, %+v, %v", drained, ready, err)
		}
	}
	if got := len(r.recorder.of(event.BackendDrained)) + len(r.recorder.of(event.BackendReady)); got != 2 {
		t.Errorf("%d events of drains, want 2", got)
	}
	for _, wrong := range [][2]string{{"web", "worker-9"}, {"nowhere", "worker-0"}} {
		if _, err := r.Drain(t.Context(), wrong[0], wrong[1]); !errors.Is(err, ErrUnknown) {
			t.Errorf("Drain%q = %v, want ErrUnknown", wrong, err)
		}
	}
	store.mu.Lock()
	store.err = errors.New("disk full")
	store.mu.Unlock()
	if _, err := r.Drain(t.Context(), "web", "worker-0"); !errors.Is(err, store.err) || r.Status()[0].Backends[0].Drained {
		t.Errorf("Drain = %v with a full disk, want its error and nothing drained", err)
	}
}
