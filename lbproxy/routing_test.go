package lbproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
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

// wasReset is what firstLineTLS returns for a connection that was turned away.
const wasReset = "reset"

// firstLineTLS sends a ClientHello and returns what the backend, a nameServer, respond first.
func firstLineTLS(t testing.TB, at netip.AddrPort, name string, cut int) string {
	t.Helper()
	c, err := net.Dial("tcp", at.String())
	if errors.Is(err, syscall.ECONNRESET) {
		return wasReset // so soon that it was not even seen to be made
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
			return wasReset // the error is told once only; a read would see an end
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
	r := newRig(t, Config{}, bs...)
	tests := []struct {
		name, sni string
		cut       int
		want      string
	}{
		{"exact", "api.east.lab", 5000, "east"},
		{"upper case", "API.West.Lab", 5000, "west"},
		{"wildcard", "console.apps.west.lab", 5000, "west"},
		{"byte by byte", "api.west.lab", 7, "west"},
		{"nobody's", "api.north.lab", 5000, wasReset},
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
	t.Run("with a rest", func(t *testing.T) {
		r.apply(t, append(bs, balancer("rest", at, serveTCP(t, nameServer("rest"))))...)
		for _, name := range []string{"api.north.lab", ""} {
			if got := firstLineTLS(t, at, name, 5000); got != "rest" {
				t.Errorf("%q for %q, want the balancer without a match", got, name)
			}
		}
		c := dial(t, at)
		_, _ = io.WriteString(c, "SSH-2.0-x\r\n")
		if got := line(t, c); got != "rest" {
			t.Errorf("%q for what is neither TLS nor HTTP, want rest", got)
		}
	})
}

func TestSlowFirstBytesTimeOut(t *testing.T) {
	t.Parallel()
	const slow = 200
	at := addr(t)
	r := newRig(t, Config{Peek: 3 * time.Second, Pending: slow}, sharing(t, at)...)
	start := hello(t, &tls.Config{ServerName: "api.east.lab"})
	var tasks sync.WaitGroup
	for range slow {
		c := dial(t, at)
		tasks.Go(func() {
			for i := range start {
				if _, err := c.Write(start[i : i+1]); err != nil {
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
			t.Error("a client may take for ever over its first bytes")
		})
	}
	netns.WaitFor(t, "all wait", func() bool { return r.pending.Load() == slow })
	if got := firstLineTLS(t, at, "api.east.lab", 5000); got != wasReset {
		t.Errorf("%q while as many wait as may, want a reset", got)
	}
	tasks.Wait()
	if got := firstLineTLS(t, at, "api.east.lab", 5000); got != "east" {
		t.Errorf("%q once they are gone, want east", got)
	}
	if got := testutil.ToFloat64(r.metrics.rejected.WithLabelValues("", string(rejectTimeout))); got != slow {
		t.Errorf("%v rejected as slow, want %d", got, slow)
	}
}

func TestSharedAddressLimitRejects(t *testing.T) {
	t.Parallel()
	at := addr(t)
	bs := sharing(t, at)
	bs[0].MaxConnections = 1
	newRig(t, Config{}, bs...)
	c := dial(t, at)
	_, _ = c.Write(hello(t, &tls.Config{ServerName: "api.east.lab"}))
	line(t, c)
	if got := firstLineTLS(t, at, "api.east.lab", 5000); got != wasReset {
		t.Errorf("%q beyond the limit, want a reset", got)
	}
	if got := firstLineTLS(t, at, "api.west.lab", 5000); got != "west" {
		t.Errorf("%q, want west: its neighbour's limit is not its own", got)
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
		{"of a stranger", []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\nhi\n", "PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := with(balancer("b", addr(t), serveTCP(t, func(c net.Conn) { _, _ = io.Copy(c, c) })), func(b *lab.Balancer) {
				b.AcceptProxy, b.SendProxy = test.peers, 1
			})
			newRig(t, Config{}, b)
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
			if got := line(t, c); got != "PROXY TCP4 "+src+"\r" {
				t.Errorf("the backend was told %q, want %q", got, src)
			}
			if got := line(t, c); got != test.want {
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
	newRig(t, Config{Peek: 50 * time.Millisecond}, b)
	if got := line(t, dial(t, b.Listen)); got != "220 mail" {
		t.Errorf("a peer that waits for the server got %q", got)
	}
}

func TestHTTPBehindProxy(t *testing.T) {
	t.Parallel()
	b := with(httpBalancer("web", addr(t), serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("X-Forwarded-For")+"\n")
	})), func(b *lab.Balancer) { b.AcceptProxy = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	newRig(t, Config{}, b)
	c := dial(t, b.Listen)
	_, _ = io.WriteString(c, "PROXY TCP4 203.0.113.9 198.51.100.1 4711 443\r\nGET / HTTP/1.0\r\n\r\n")
	body, _ := io.ReadAll(c)
	if !strings.HasSuffix(string(body), "\r\n\r\n203.0.113.9\n") {
		t.Errorf("answer %q, want X-Forwarded-For of the header's client", body)
	}
}

// drainStore is a store of drains.
type drainStore struct {
	mu  sync.Mutex
	all map[Drain]bool
	err error
}

func (k *drainStore) Load(context.Context) ([]Drain, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []Drain
	for d := range k.all {
		out = append(out, d)
	}
	return out, k.err
}

func (k *drainStore) Put(_ context.Context, d Drain) error    { return k.set(d, true) }
func (k *drainStore) Delete(_ context.Context, d Drain) error { return k.set(d, false) }

func (k *drainStore) set(d Drain, in bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return k.err
	}
	delete(k.all, d)
	if in {
		k.all[d] = true
	}
	return nil
}

func TestDrainSurvivesRestart(t *testing.T) {
	t.Parallel()
	a, b := serveTCP(t, nameServer("a")), serveTCP(t, nameServer("b"))
	frontend := addr(t)
	store := &drainStore{all: make(map[Drain]bool)}
	make1 := func() *lab.Balancer {
		return with(balancer("web", frontend, a, b), func(b *lab.Balancer) { b.Backends[0].Name = "worker-0" })
	}
	r := newRigWith(t, Config{}, Deps{Drains: store}, make1())
	open := dial(t, frontend)
	for line(t, open) != "a" {
		open = dial(t, frontend)
	}
	if err := r.Drain(t.Context(), "web", "worker-0"); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(open, "still\n")
	if got := line(t, open); got != "still" {
		t.Errorf("an open connection of a drained member read %q", got)
	}
	only := func(r *rig, want string) {
		t.Helper()
		for range 6 {
			if got := line(t, dial(t, frontend)); got != want {
				t.Errorf("a new connection went to %q, want %q", got, want)
			}
		}
	}
	only(r, "b")
	r.stop()

	r = newRigWith(t, Config{}, Deps{Drains: store}, make1())
	netns.WaitFor(t, "drain loaded", func() bool { return r.States()[0].Backends[0].Drained })
	only(r, "b")
	if err := r.Drain(t.Context(), "web", b.String()); err != nil {
		t.Fatal(err)
	}
	if err := r.Ready(t.Context(), "web", "worker-0"); err != nil {
		t.Fatal(err)
	}
	only(r, "a")
	if got := len(r.recorder.of(event.BackendDrained)) + len(r.recorder.of(event.BackendReady)); got != 2 {
		t.Errorf("%d events of drains, want 2", got)
	}
	for _, wrong := range [][2]string{{"web", "worker-9"}, {"nowhere", "worker-0"}} {
		if err := r.Drain(t.Context(), wrong[0], wrong[1]); !errors.Is(err, ErrUnknown) {
			t.Errorf("Drain%q = %v, want ErrUnknown", wrong, err)
		}
	}
	store.mu.Lock()
	store.err = errors.New("disk full")
	store.mu.Unlock()
	if err := r.Drain(t.Context(), "web", "worker-0"); !errors.Is(err, store.err) || r.States()[0].Backends[0].Drained {
		t.Errorf("Drain = %v with a full disk, want its error and nothing drained", err)
	}
}
