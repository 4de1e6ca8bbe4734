package lbproxy

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestHealthCountsRiseAndFall(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		results string // + check passed, - check failed, r connection refused, s no answer, l lost a race, c connected, . a second passed
		want    string // u up, d down, e ejected, ? unchecked, after each
	}{
		{"the first result counts at once", "+", "u"},
		{"also a failure", "-", "d"},
		{"fall 3", "+---", "uuud"},
		{"a pass resets the count to fall", "+--+---", "uuuuuud"},
		{"rise 2", "-++", "ddu"},
		{"a failure resets the count to rise", "-+-++", "ddddu"},
		{"two refused connections eject", "+rr", "uue"},
		{"not two with a connection in between", "+rcr", "uuuu"},
		{"unchecked backends are ejected too", "rr", "?e"},
		{"one passed check ends an ejection", "+rr.+", "uueeu"},
		{"so does a connection", "+rr.c", "uueeu"},
		{"but not at once", "+rr+c", "uueee"},
		{"failed checks make it down", "+rr---.+.+", "uueeedddd" + "u"},
		{"to lose a race is no failure", "+llllllll.llllllll", "uuuuuuuuuuuuuuuuuu"},
		{"nor is silence for a moment", "+ssssssss", "uuuuuuuuu"},
		{"five in a row for a second eject", "+ssss.s", "uuuuuue"},
		{"but not four", "+sss.s", "uuuuuu"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var now time.Time
			s := &Server{deps: Deps{Now: func() time.Time { return now }}}
			s.active.Store(&activeTable{})
			h := newHealth(healthKey{check: withDefaults(lab.Check{})}, now)
			e := &backend{Backend: &Backend{}, state: &backendState{}, health: h}
			var got strings.Builder
			for _, r := range test.results {
				switch r {
				case '+':
					s.checked(h, nil, 0)
				case '-':
					s.checked(h, errors.New("bad"), 0)
				case 'r':
					s.connectFailed(e, syscall.ECONNREFUSED)
				case 's':
					s.connectFailed(e, context.DeadlineExceeded)
				case 'l':
					s.connectFailed(e, context.Canceled)
				case 'c':
					s.dialed(&frontend{Frontend: &Frontend{}}, e, 0)
				case '.':
					now = now.Add(time.Second)
				}
				health, _, _ := e.currentHealth()
				sign := map[Health]string{Up: "u", Down: "d", Unchecked: "?"}[health]
				if health == Down && e.allowed() {
					sign = "e"
				}
				got.WriteString(sign)
				if e.usable() == (health == Down) {
					t.Errorf("health %s, usable %t", health, e.usable())
				}
			}
			if got.String() != test.want {
				t.Errorf("%s became %s, want %s", test.results, got.String(), test.want)
			}
		})
	}
}

// TestOwnTimeoutIsSilence: that our time to connect is over says nothing of the backend, whichever timer ends it.
func TestOwnTimeoutIsSilence(t *testing.T) {
	t.Parallel()
	_, dialer := (&net.Dialer{Timeout: time.Nanosecond}).Dial("tcp", "127.0.0.1:1")
	for _, err := range []error{dialer, context.DeadlineExceeded, context.Canceled, os.ErrDeadlineExceeded, fmt.Errorf("dial: %w", syscall.ETIMEDOUT)} {
		if !isSilence(err) {
			t.Errorf("%v counts as refused", err)
		}
	}
	for _, err := range []error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, &net.OpError{Op: "dial", Err: syscall.ENETUNREACH}} {
		if isSilence(err) {
			t.Errorf("%v counts as silence", err)
		}
	}
}

// TestEjectionIsOfOneBalancer: what connections of one balancer meet is no matter of another with the same backend.
func TestEjectionIsOfOneBalancer(t *testing.T) {
	t.Parallel()
	back := serveTCP(t, nameServer("b"))
	r := newTestServer(t, Config{}, balancer("one", addr(t), back), balancer("other", addr(t), back))
	for range ejectRefused {
		r.connectFailed(&r.active.Load().frontends[0].backends[0], syscall.ECONNREFUSED)
	}
	if one, other := r.Status()[0].Backends[0], r.Status()[1].Backends[0]; one.Health != Down || other.Health != Unchecked {
		t.Errorf("health %s and %s, want down and unchecked", one.Health, other.Health)
	}
}

// A dialer answers checks without a network, for synctest.
type dialer struct {
	mu   sync.Mutex
	err  error
	hang bool
	lost int // so many connects get no answer before one does
	at   []time.Time
}

func (d *dialer) set(hang bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hang, d.lost, d.err = hang, 0, err
}

// dialed returns how many connects were tried.
func (d *dialer) dialed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.at)
}

func (d *dialer) Dial(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
	d.mu.Lock()
	hang, err := d.hang || d.lost > 0 && (len(d.at)+1)%(d.lost+1) != 0, d.err
	d.at = append(d.at, time.Now())
	d.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	a, b := net.Pipe()
	_ = b.Close()
	return a, nil
}

func noListener(context.Context, netip.AddrPort) (net.Listener, error) {
	return &connListener{conns: make(chan net.Conn), done: make(chan struct{})}, nil
}

// TestCheckSurvivesLostPackets: two connects of each check get no answer, as if their first packet was lost, which the kernel repeats only
// after a second. No check fails. The first refusal fails one.
func TestCheckSurvivesLostPackets(t *testing.T) {
	for _, timeout := range []time.Duration{300 * time.Millisecond, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			d := &dialer{lost: 2}
			b := with(balancer("api", netip.MustParseAddrPort("10.0.0.1:6443"), netip.MustParseAddrPort("10.0.0.2:6443")), func(b *lab.Balancer) {
				b.Check = lab.Check{Kind: lab.CheckTCP, Interval: 20 * time.Second, Timeout: timeout, Rise: 1, Fall: 1}
			})
			r := newTestServerWith(t, Config{}, Deps{Dial: d.Dial, Listen: noListener}, b)
			time.Sleep(5 * time.Minute)
			if n := len(r.recorder.of(event.BackendUp)) + len(r.recorder.of(event.BackendDown)); n != 1 {
				t.Errorf("time-out %s: %d events, want one: the backend is up", timeout, n)
			}
			d.set(false, syscall.ECONNREFUSED)
			before := d.dialed()
			time.Sleep(25 * time.Second)
			r.stop()
			if n, downs := d.dialed()-before, len(r.recorder.of(event.BackendDown)); n < 1 || n > 2 || downs != 1 {
				t.Errorf("time-out %s: %d connects to a backend that refuses, down %d times, want one for each check", timeout, n, downs)
			}
		})
	}
}

// TestWaitingClient of a sole backend that is found down while it connects waits on, and is served as soon as the backend accepts.
func TestWaitingClient(t *testing.T) {
	t.Parallel()
	for _, mode := range []lab.BalanceMode{lab.ModeTCP, lab.ModeHTTP} {
		back := serveHTTP(t, respond("served"))
		var cut atomic.Bool
		dialer := func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			if cut.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return dialTCP(ctx, to)
		}
		b := with(balancer("b", addr(t), back), func(b *lab.Balancer) {
			b.Mode = mode
			b.Check = lab.Check{Kind: lab.CheckTCP, Interval: 50 * time.Millisecond, Timeout: 50 * time.Millisecond, Rise: 1, Fall: 1}
		})
		r := newTestServerWith(t, Config{}, Deps{Dial: dialer}, b)
		r.waitHealth(t, back, Up)
		cut.Store(true)
		c := dial(t, b.Listen)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		r.waitHealth(t, back, Down)
		time.Sleep(time.Second) // something must not happen
		cut.Store(false)
		if got, err := io.ReadAll(c); !strings.HasSuffix(string(got), "served") {
			t.Errorf("mode %s: the client that waited got %q, %v", mode, got, err)
		}
	}
}

// TestNeverUp: a backend that fails its checks and was never healthy is no warning, and says so; one that was is, also where that was before a restart.
func TestNeverUp(t *testing.T) {
	for name, tt := range map[string]struct {
		before bool // it was healthy before a restart
		want   []event.Kind
	}{
		"never healthy":            {false, []event.Kind{event.BackendNew, event.BackendUp, event.BackendDown}},
		"healthy before a restart": {true, []event.Kind{event.BackendDown, event.BackendUp, event.BackendDown}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &dialer{}
				d.set(true, nil)
				back := netip.MustParseAddrPort("10.0.0.2:6443")
				b := with(balancer("api", netip.MustParseAddrPort("10.0.0.1:6443"), back), func(b *lab.Balancer) {
					b.Check = lab.Check{Kind: lab.CheckTCP, Interval: 10 * time.Second, Timeout: 2 * time.Second, Rise: 2, Fall: 3}
				})
				wasUp := func(balancer, key string) bool {
					return tt.before && balancer == "api" && key == back.String()
				}
				r := newTestServerWith(t, Config{}, Deps{Dial: d.Dial, Listen: noListener, WasUp: wasUp}, b)
				for _, silent := range []bool{true, false, true} {
					d.set(silent, nil)
					time.Sleep(time.Minute)
				}
				r.stop()
				var kinds []event.Kind
				for _, e := range r.recorder.all {
					kinds = append(kinds, e.Kind)
					if never := strings.Contains(e.Detail, "never been healthy"); never != (e.Kind == event.BackendNew) || (e.Kind == event.BackendDown) != (e.Kind.Level() == slog.LevelWarn) {
						t.Errorf("%s at level %s: %q, %s", e.Kind, e.Kind.Level(), e.Detail, e.Err)
					}
				}
				if diff := cmp.Diff(tt.want, kinds); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestCheckIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{}
		back := netip.MustParseAddrPort("10.0.0.2:6443")
		b := with(balancer("api", netip.MustParseAddrPort("10.0.0.1:6443"), back), func(b *lab.Balancer) {
			b.Check = lab.Check{Kind: lab.CheckTCP, Interval: 10 * time.Second, Timeout: 2 * time.Second, Rise: 2, Fall: 3}
			b.Backends[0].Host = &lab.Host{Name: "master-0"}
		})
		r := newTestServerWith(t, Config{}, Deps{Dial: d.Dial, Listen: noListener}, b)
		began := time.Now()
		synctest.Wait()
		if got := r.Status()[0].Backends[0].Health; got != Up {
			t.Fatalf("health %s right after the start, want up", got)
		}
		d.set(true, nil)
		time.Sleep(15 * time.Second)
		if got := r.Status()[0].Backends[0]; got.Health != Up {
			t.Fatalf("down after one or two failed checks: %+v", got)
		}
		time.Sleep(30 * time.Second)
		got := r.Status()[0].Backends[0]
		if got.Health != Down || got.Reason != "no answer within 2s" {
			t.Fatalf("state %+v, want down because there was no answer", got)
		}
		d.set(false, nil)
		time.Sleep(35 * time.Second)
		r.stop()
		var kinds []string
		for _, e := range r.recorder.all {
			kinds = append(kinds, fmt.Sprintf("%s %s %s %s", e.Kind, e.Host, e.Addr, e.Text()))
		}
		what := " master-0 10.0.0.2 api 10.0.0.2:6443"
		if diff := cmp.Diff([]string{event.BackendUp.String() + what, event.BackendDown.String() + what, event.BackendUp.String() + what}, kinds); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if !d.at[0].Equal(began) {
			t.Errorf("first check %s after the start, want at once", d.at[0].Sub(began))
		}
		firsts := d.at[:1:1] // connects of each check
		for _, at := range d.at {
			if at.Sub(firsts[len(firsts)-1]) > 2*time.Second {
				firsts = append(firsts, at)
			}
		}
		for i := 1; i < len(firsts); i++ {
			if gap := firsts[i].Sub(firsts[i-1]); gap < 9*time.Second || gap > 13*time.Second {
				t.Errorf("check %d came %s after the one before, want 10s plus or minus a tenth, plus the timeout", i, gap)
			}
		}
	})
}

func TestFailedConnectionTriggersCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{}
		back := netip.MustParseAddrPort("10.0.0.2:80")
		b := with(balancer("web", netip.MustParseAddrPort("10.0.0.1:80"), back), func(b *lab.Balancer) {
			b.Check = lab.Check{Kind: lab.CheckTCP, Interval: time.Hour, Rise: 2}
		})
		r := newTestServerWith(t, Config{}, Deps{Dial: d.Dial, Listen: noListener}, b)
		synctest.Wait()
		e := &r.active.Load().frontends[0].backends[0]
		for range 2 {
			r.connectFailed(e, syscall.ECONNREFUSED)
		}
		if e.usable() {
			t.Fatal("still used after two failed connections")
		}
		time.Sleep(time.Second)
		d.mu.Lock()
		defer d.mu.Unlock()
		if got := len(d.at); got != 2 {
			t.Errorf("%d checks a second after connections failed, want 2: one at the start, one for both failures", got)
		}
	})
}

func TestChecks(t *testing.T) {
	t.Parallel()
	answer := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" || r.Host == "" {
				status = http.StatusTeapot
			}
			w.WriteHeader(status)
		}
	}
	secure := func(status int) netip.AddrPort {
		s := httptest.NewUnstartedServer(answer(status))
		s.TLS = &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			if h.ServerName != "" {
				return nil, fmt.Errorf("server name %q in a check", h.ServerName)
			}
			return nil, nil
		}}
		s.StartTLS()
		t.Cleanup(s.Close)
		return netip.MustParseAddrPort(s.Listener.Addr().String())
	}
	echo := serveTCP(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
	mute := serveTCP(t, func(c net.Conn) { _, _ = io.ReadAll(c) })
	alert := serveTCP(t, func(c net.Conn) {
		_, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, 112}) // unrecognized_name, as servers send that want a server name
		_, _ = io.ReadAll(c)
	})
	tests := []struct {
		name   string
		kind   lab.CheckKind
		at     netip.AddrPort
		expect lab.Statuses
		want   string // part of the error; empty: passes
	}{
		{"tcp", lab.CheckTCP, mute, "", ""},
		{"tcp refused", lab.CheckTCP, addr(t), "", "connection refused"},
		{"tls", lab.CheckTLS, secure(200), "", ""},
		{"tls refused with an alert", lab.CheckTLS, alert, "", ""},
		{"tls to a server without tls", lab.CheckTLS, echo, "", "tls handshake with"},
		{"tls without an answer", lab.CheckTLS, mute, "", "no answer within"},
		{"https", lab.CheckHTTPS, secure(200), "", ""},
		{"https redirect", lab.CheckHTTPS, secure(302), "", ""},
		{"https not ready", lab.CheckHTTPS, secure(500), "", "status 500, want 2xx or 3xx"},
		{"https against http", lab.CheckHTTPS, serveHTTP(t, answer(200)), "", "tls handshake with"},
		{"http", lab.CheckHTTP, serveHTTP(t, answer(204)), "", ""},
		{"http 404", lab.CheckHTTP, serveHTTP(t, answer(404)), "", "status 404, want 2xx or 3xx"},
		{"http expected 404", lab.CheckHTTP, serveHTTP(t, answer(404)), "404", ""},
		{"http expected 200", lab.CheckHTTP, serveHTTP(t, answer(204)), "200", "status 204, want 200"},
		{"http expected several", lab.CheckHTTP, serveHTTP(t, answer(404)), "200,401-404", ""},
		{"http expected others", lab.CheckHTTP, serveHTTP(t, answer(405)), "200,401-404", "status 405, want 200, 401-404"},
		{"http without an answer", lab.CheckHTTP, mute, "", "no answer within"},
		{"http from an echo", lab.CheckHTTP, echo, "", "not a status line"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := &Server{deps: Deps{Dial: dialTCP}}
			check := withDefaults(lab.Check{Kind: test.kind, Path: "/readyz", Expect: test.expect, Timeout: time.Minute})
			if strings.HasPrefix(test.want, "no answer") {
				check.Timeout = 300 * time.Millisecond
			}
			_, err := s.runCheck(t.Context(), healthKey{addr: test.at, check: check})
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("check = %v, want %q", err, test.want)
			}
		})
	}
}

func TestCheckPort(t *testing.T) {
	t.Parallel()
	at := addr(t)
	status := netip.AddrPortFrom(at.Addr(), 1936)
	stop := serveTCPAt(t, status, nameServer("router"))
	b := with(balancer("web", addr(t), at), func(b *lab.Balancer) {
		b.Check = lab.Check{Kind: lab.CheckTCP, Port: 1936, Interval: 20 * time.Millisecond, Rise: 1, Fall: 1}
	})
	r := newTestServer(t, Config{}, b)
	r.waitHealth(t, at, Up)
	gauge := r.metrics.up.WithLabelValues("web", at.String())
	if got := testutil.ToFloat64(gauge); got != 1 {
		t.Errorf("backend_up = %v, want 1", got)
	}
	stop()
	r.waitHealth(t, at, Down)
	netns.WaitFor(t, "backend_up 0", func() bool { return testutil.ToFloat64(gauge) == 0 })
	r.apply(t)
	if got := testutil.CollectAndCount(r.metrics.up); got != 0 {
		t.Errorf("%d series of backends, want none once the balancer is gone", got)
	}
}

// TestCheckWithoutLogin: an API server that refuses anonymous requests, as Talos' does, is healthy for the balancer of a Kubernetes cluster; one
// that is not ready, and any other server that wants a login, is not.
func TestCheckWithoutLogin(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status  int
		expect  lab.Statuses
		healthy bool
	}{{200, "200,401", true}, {401, "200,401", true}, {401, "200", false}, {403, "200,401", false}, {500, "200,401", false}} {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(tt.status) }))
		check := withDefaults(lab.Check{Kind: lab.CheckHTTPS, Path: "/readyz", Expect: tt.expect, Timeout: time.Minute})
		_, err := (&Server{deps: Deps{Dial: dialTCP}}).runCheck(t.Context(), healthKey{addr: netip.MustParseAddrPort(s.Listener.Addr().String()), check: check})
		if (err == nil) != tt.healthy {
			t.Errorf("status %d, expected %s: %v", tt.status, tt.expect, err)
		}
		s.Close()
	}
}

// TestCheckNames checks servers that know only some names, with certificates of an authority of their own.
func TestCheckNames(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "www.lab.example:8443" {
			w.WriteHeader(http.StatusMisdirectedRequest)
		}
	}))
	server.TLS = &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		if h.ServerName != "" && h.ServerName != "example.com" {
			return nil, errors.New("no such name")
		}
		return nil, nil
	}}
	server.StartTLS()
	t.Cleanup(server.Close)
	at := netip.MustParseAddrPort(server.Listener.Addr().String())
	file := func(name, blockType string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	own := file("ca.pem", "CERTIFICATE", server.Certificate().Raw) // valid for example.com and 127.0.0.1
	tests := []struct {
		name  string
		check lab.Check
		want  string // part of the error; empty: passes
	}{
		{"the wrong host", lab.Check{Kind: lab.CheckHTTPS}, "status 421"},
		{"its host", lab.Check{Kind: lab.CheckHTTPS, Host: "www.lab.example:8443"}, ""},
		{"its server name", lab.Check{Kind: lab.CheckHTTPS, Host: "www.lab.example:8443", SNI: "example.com"}, ""},
		{"the wrong server name", lab.Check{Kind: lab.CheckHTTPS, SNI: "other.example"}, "tls handshake"},
		{"verified by server name", lab.Check{Kind: lab.CheckTLS, SNI: "example.com", CAFile: own}, ""},
		{"verified by address", lab.Check{Kind: lab.CheckTLS, CAFile: own}, ""},
		{"verified by host", lab.Check{Kind: lab.CheckHTTPS, Host: "www.lab.example:8443", CAFile: own}, "not www.lab.example"},
		{"no such file", lab.Check{Kind: lab.CheckTLS, CAFile: own + "x"}, "read ca_file"},
		{"no certificate", lab.Check{Kind: lab.CheckTLS, CAFile: file("key.pem", "PRIVATE KEY", []byte{1})}, "has no certificate"},
		{"another authority", lab.Check{Kind: lab.CheckTLS, CAFile: file("other.pem", "CERTIFICATE", otherAuthority(t))}, "unknown authority"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := &Server{deps: Deps{Dial: dialTCP}}
			_, err := s.runCheck(t.Context(), healthKey{addr: at, check: withDefaults(test.check)})
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("check = %v, want %q", err, test.want)
			}
		})
	}
}

// otherAuthority returns the certificate of an authority that has signed nothing.
func otherAuthority(t *testing.T) []byte {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(nil, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
