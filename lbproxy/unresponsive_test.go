package lbproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestStopped stops the server program of one of three machines, whose kernel goes on to accept connections. The machine
// is down soon, and no later client waits for it; HAProxy goes on to send it a third of them. Once the program runs again,
// it gets connections, and every client its answer.
func TestStopped(t *testing.T) {
	for i, mode := range []lab.BalanceMode{lab.ModeTCP, lab.ModeHTTP} {
		t.Run(string(mode), func(t *testing.T) {
			r := newRig(t, mode, 120+i, 3)
			stopped := r.servers[0].Process
			var before, after, peers tally
			netns.WaitFor(t, "every machine is known to answer probes", func() bool {
				before.request(t, r.ours)
				return r.answerProbes()
			})
			if err := stopped.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			resume := sync.OnceFunc(func() { _ = stopped.Signal(syscall.SIGCONT) })
			t.Cleanup(resume)
			start := time.Now()
			netns.WaitFor(t, "the stopped machine is down", func() bool {
				before.tasks.Go(func() { before.request(t, r.ours) })
				return len(r.recorder.of(event.BackendDown)) > 0
			})
			took := time.Since(start)
			down := r.recorder.of(event.BackendDown)[0]
			if down.Addr != r.backends[0].Addr() || !strings.Contains(down.Err, "answers none") {
				t.Errorf("event %+v, want one of %s that says what is wrong", down, r.backends[0])
			}
			var ours, others atomic.Int64
			for range 30 {
				after.tasks.Go(func() { after.request(t, r.ours); ours.Add(1) })
				peers.tasks.Go(func() { peers.request(t, r.peers); others.Add(1) })
			}
			netns.WaitFor(t, "30 clients answered while the machine is stopped", func() bool { return ours.Load() == 30 })
			t.Logf("%s: down after %s; then 30 of 30 clients answered, HAProxy: %d of 30", mode, took.Round(10*time.Millisecond), others.Load())
			resume()
			r.waitHealth(t, r.backends[0], Up)
			before.tasks.Wait()
			after.tasks.Wait()
			peers.tasks.Wait()
			if before.failed.Load()+after.failed.Load() > 0 {
				t.Errorf("before: %s, after: %s", &before, &after)
			}
		})
	}
}

// TestCutOff: a machine that is cut off is down as soon as it does not acknowledge what a connection sends, long before its next check.
func TestCutOff(t *testing.T) {
	netns.Need(t, "root")
	check := lab.Check{Kind: lab.CheckTCP, Interval: time.Hour, Timeout: time.Second, Rise: 1, Fall: 100}
	r := newRigWith(t, lab.ModeTCP, 140, 2, check, "")
	var conns []*net.TCPConn
	for range 2 { // one of each machine
		c := dial(t, r.ours)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		readLine(t, c)
		conns = append(conns, c)
	}
	netns.WaitFor(t, "every machine is known to answer probes", r.answerProbes)
	netns.Run(t, "ip", "link", "set", r.machines[1].NIC, "down")
	start := time.Now()
	for _, c := range conns {
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	netns.WaitFor(t, "the machine is down", func() bool { return len(r.recorder.of(event.BackendDown)) > 0 })
	down := r.recorder.of(event.BackendDown)[0]
	t.Logf("down after %s: %s", time.Since(start).Round(time.Millisecond), down.Err)
	if down.Addr != r.backends[1].Addr() || !strings.Contains(down.Err, "acknowledges nothing") {
		t.Errorf("event %+v, want one of %s that acknowledges nothing", down, r.backends[1])
	}
	netns.Run(t, "ip", "link", "set", r.machines[1].NIC, "up")
	r.waitHealth(t, r.backends[1], Up)
}

// answerProbes reports whether every backend of the first balancer is known to answer probes.
func (r *testServer) answerProbes() bool {
	for _, e := range r.active.Load().frontends[0].backends {
		if !e.state.answers.Load() {
			return false
		}
	}
	return true
}

// TestSilenceIsNormal has backends that are silent on some connections and healthy. None is ejected.
func TestSilenceIsNormal(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		handle func(net.Conn)
		send   string // of each of five clients
	}{
		{"the client is silent", func(c net.Conn) { _, _ = io.Copy(c, c) }, ""},
		{"a log server", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, "<14>line\n"},
		{"a slow answer", func(c net.Conn) {
			b := make([]byte, 16)
			if n, _ := c.Read(b); n == 1 {
				_, _ = c.Write(b)
			} else if n > 0 {
				_, _ = c.Read(b) // the request takes until the client gives up
			}
		}, "GET"},
		{"no answer at all", func(c net.Conn) {
			b := make([]byte, 1)
			_, _ = c.Read(b)
			for { // nor does it close
				if _, err := c.Write(nil); err != nil {
					return
				}
				if _, err := c.Read(b); err != nil {
					time.Sleep(10 * time.Millisecond)
				}
			}
		}, "GET"},
	}
	for _, kind := range []lab.CheckKind{lab.CheckTCP, lab.CheckNone} {
		for _, test := range tests {
			if kind == lab.CheckNone && test.name == "a slow answer" {
				continue
			}
			t.Run(test.name+"/"+string(kind), func(t *testing.T) {
				t.Parallel()
				back := serveTCP(t, test.handle)
				netns.Tries(t, 3, func(int) string { // a process that is stopped for a second answers no probe, this one too
					b := with(balancer("b", addr(t), back), func(b *lab.Balancer) { b.Check.Kind = kind })
					r := newTestServer(t, Config{Silence: 100 * time.Millisecond}, b)
					defer r.stop()
					if kind != lab.CheckNone {
						r.waitHealth(t, back, Up)
					}
					if test.name == "a slow answer" {
						c := dial(t, b.Listen)
						_, _ = io.WriteString(c, "f")
						_, _ = io.ReadFull(c, make([]byte, 1))
					}
					for range 5 {
						c := dial(t, b.Listen)
						_, _ = io.WriteString(c, test.send)
					}
					time.Sleep(4 * time.Second) // something must not happen
					if down := r.recorder.of(event.BackendDown); len(down) > 0 {
						return fmt.Sprintf("ejected: %+v", down)
					}
					return ""
				})
			})
		}
	}
}

// TestSilentButServing has a backend that never answers some clients, nor probes, and serves others.
func TestSilentButServing(t *testing.T) {
	t.Parallel()
	netns.WaitFor(t, "no pause as long as Silence", func() bool { return silentButServing(t, time.Second) })
}

// silentButServing reports whether the test was not so slow that the backend served nobody for as long as Config.Silence, and was ejected.
func silentButServing(t *testing.T, silence time.Duration) bool {
	t.Helper()
	var stuck atomic.Bool
	quit := make(chan struct{})
	back := serveTCP(t, func(c net.Conn) {
		b := make([]byte, 1)
		if n, _ := c.Read(b); n == 1 && b[0] == 's' {
			_, _ = c.Write(b)
			_, _ = io.Copy(c, c)
			return
		}
		if stuck.Load() {
			<-quit
		}
	})
	t.Cleanup(func() { close(quit) })
	b := with(balancer("b", addr(t), back), func(b *lab.Balancer) { b.Check.Kind = lab.CheckTCP })
	r := newTestServer(t, Config{Silence: silence}, b)
	first := dial(t, b.Listen)
	_, _ = io.WriteString(first, "s\n")
	readLine(t, first)
	netns.WaitFor(t, "the backend is known to answer probes", r.answerProbes)
	stuck.Store(true)
	served := dial(t, b.Listen)
	last, longest := time.Now(), time.Duration(0) // when the last line was sent, and the longest that an answer came after the line before
	_, _ = io.WriteString(served, "s\n")
	readLine(t, served)
	waiting := dial(t, b.Listen)
	_, _ = io.WriteString(waiting, "x")
	for end := last.Add(5 * silence); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		now := time.Now()
		_, _ = io.WriteString(served, "more\n")
		readLine(t, served)
		last, longest = now, max(longest, time.Since(last))
	}
	if down := r.recorder.of(event.BackendDown); len(down) > 0 {
		if max(longest, time.Since(last)) < silence {
			t.Fatalf("ejected while it serves: %+v", down)
		}
		return false
	}
	// Now it serves nobody. The only backend is down, and still used.
	netns.WaitFor(t, "the backend is down", func() bool { return len(r.recorder.of(event.BackendDown)) > 0 })
	again := dial(t, b.Listen)
	_, _ = io.WriteString(again, "s\n")
	readLine(t, again)
	r.waitHealth(t, back, Up) // its answer ends the ejection
	return true
}

// TestStoppedWithoutProbes has a backend that is not checked and answers no probes. It is ejected once several clients wait
// for longer than others did.
func TestStoppedWithoutProbes(t *testing.T) {
	t.Parallel()
	var stuck atomic.Bool
	handle := func(c net.Conn) {
		b := make([]byte, 1)
		for n, _ := c.Read(b); n == 1; n, _ = c.Read(b) {
			if !stuck.Load() {
				_, _ = c.Write(b)
			}
		}
	}
	back, other := serveTCP(t, handle), serveTCP(t, nameServer("other"))
	b := balancer("b", addr(t), back, other)
	r := newTestServer(t, Config{Silence: 100 * time.Millisecond}, b)
	say := func() (conns []net.Conn) {
		for range 8 {
			c := dial(t, b.Listen)
			_, _ = io.WriteString(c, "x\n")
			conns = append(conns, c)
		}
		return conns
	}
	for _, c := range say() {
		readLine(t, c.(*net.TCPConn))
	}
	stuck.Store(true)
	say()
	netns.WaitFor(t, "the backend is ejected", func() bool { return len(r.recorder.of(event.BackendDown)) > 0 })
	if down := r.recorder.of(event.BackendDown)[0]; netip.AddrPortFrom(down.Addr, back.Port()) != back {
		t.Errorf("ejected %s, want %s", down.Addr, back)
	}
	for range 8 {
		if got := readLine(t, dial(t, b.Listen)); got != "other" {
			t.Errorf("a new client got %q", got)
		}
	}
}

// TestNeverAnswers has a backend that never answers anybody, beside one that does, whether it is checked or not. New clients get the other
// one, once several wait.
func TestNeverAnswers(t *testing.T) {
	t.Parallel()
	for _, mode := range []lab.BalanceMode{lab.ModeTCP, lab.ModeHTTP} {
		for _, kind := range []lab.CheckKind{lab.CheckTCP, lab.CheckNone} {
			t.Run(string(mode)+"/"+string(kind), func(t *testing.T) {
				t.Parallel()
				quit := make(chan struct{})
				hung := serveTCP(t, func(c net.Conn) {
					if mode == lab.ModeHTTP { // it answers probes
						_, _ = io.Copy(io.Discard, c)
						return
					}
					<-quit
				})
				t.Cleanup(func() { close(quit) })
				good := serveHTTP(t, respond("good"))
				b := with(balancer("b", addr(t), hung, good), func(b *lab.Balancer) { b.Mode, b.Check.Kind, b.Timeouts.Server = mode, kind, time.Hour })
				r := newTestServer(t, Config{}, b)
				for range 12 {
					_, _ = io.WriteString(dial(t, b.Listen), "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				}
				netns.WaitFor(t, "the backend is ejected", func() bool { return len(r.recorder.of(event.BackendDown)) > 0 })
				if down := r.recorder.of(event.BackendDown)[0]; down.Addr != hung.Addr() || !strings.Contains(down.Err, "answers none") {
					t.Errorf("ejected %+v, want %s", down, hung)
				}
				for range 8 {
					if got := ask(t, b.Listen, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(got, "good") {
						t.Errorf("a new client got %q", got)
					}
				}
			})
		}
	}
}

// TestSilenceOff: with check.silence off, no backend is ejected for its silence.
func TestSilenceOff(t *testing.T) {
	t.Parallel()
	only := serveStoppable(t, "ok")
	b := with(httpBalancer("web", addr(t), only.at()), func(b *lab.Balancer) {
		b.Check = lab.Check{Kind: lab.CheckTCP, Silence: lab.SilenceOff}
		b.Timeouts.Server = time.Hour
	})
	r := newTestServer(t, Config{}, b)
	const get = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	_ = ask(t, b.Listen, get)
	only.stopped.Store(true)
	answer := make(chan string, 1)
	go func() { answer <- ask(t, b.Listen, get) }()
	time.Sleep(4 * time.Second) // something must not happen
	only.stopped.Store(false)
	if got := <-answer; !strings.HasSuffix(got, "ok") || len(r.recorder.of(event.BackendDown)) > 0 || r.answerProbes() {
		t.Errorf("got %q, events %+v, probed: %v", got, r.recorder.of(event.BackendDown), r.answerProbes())
	}
}

// TestStoppedSoleBackend: a request that waits for the only backend, which is found to answer nothing, gets its answer once the backend runs
// again, also with on_down: close. In HTTP/1 and in HTTP/2 to the backend.
func TestStoppedSoleBackend(t *testing.T) {
	t.Parallel()
	for _, protocol := range []lab.BackendProtocol{lab.BackendHTTP1, lab.BackendH2C} {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			only := serveStoppable(t, "ok")
			b := with(httpBalancer("web", addr(t), only.at()), func(b *lab.Balancer) {
				b.Check = lab.Check{Kind: lab.CheckTCP, Interval: 100 * time.Millisecond, Timeout: time.Minute}
				b.OnDown, b.Protocol, b.Timeouts.Server = lab.OnDownClose, protocol, time.Hour
			})
			r := newTestServer(t, Config{}, b)
			netns.WaitFor(t, "the backend is known to answer probes", func() bool {
				return strings.HasSuffix(say(t, b.Listen, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), "ok") && r.answerProbes()
			})
			only.stopped.Store(true)
			answer := make(chan string, 1)
			go func() { answer <- ask(t, b.Listen, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") }()
			netns.WaitFor(t, "the backend is down", func() bool { return len(r.recorder.of(event.BackendDown)) > 0 })
			if downs := r.recorder.of(event.BackendDown); !strings.Contains(downs[0].Err, "answers none: 1 client waits") {
				t.Errorf("events %+v", downs)
			}
			only.stopped.Store(false)
			if got := <-answer; !strings.HasSuffix(got, "ok") {
				t.Errorf("the request that waited got %q", got)
			}
		})
	}
}

// TestOutlivesStopped: when a backend is found to answer nothing, later requests go to the other one, and those that wait for it wait on. In
// HTTP/1 and in HTTP/2 to the backends.
func TestOutlivesStopped(t *testing.T) {
	t.Parallel()
	for _, protocol := range []lab.BackendProtocol{lab.BackendHTTP1, lab.BackendH2C} {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			first, second := serveStoppable(t, "first"), serveStoppable(t, "second")
			b := with(httpBalancer("web", addr(t), first.at(), second.at()), func(b *lab.Balancer) {
				b.Check = lab.Check{Kind: lab.CheckTCP, Interval: 100 * time.Millisecond, Timeout: time.Minute}
				b.Protocol, b.Timeouts.Server = protocol, time.Hour
			})
			r := newTestServer(t, Config{}, b)
			const get = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
			netns.WaitFor(t, "both backends are known to answer probes", func() bool {
				_ = ask(t, b.Listen, get)
				return r.answerProbes()
			})
			first.stopped.Store(true)
			early := make(chan string, 4)
			for _, request := range []string{get, get, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nConnection: close\r\n\r\n1"} {
				go func() { early <- ask(t, b.Listen, request) }()
			}
			netns.WaitFor(t, "the stopped backend is down", func() bool {
				return len(r.recorder.of(event.BackendDown)) > 0
			})
			for range 4 {
				if got := ask(t, b.Listen, get); !strings.HasSuffix(got, "second") {
					t.Errorf("a request got %q", got)
				}
			}
			first.stopped.Store(false)
			for range 3 {
				if got := <-early; !strings.Contains(got, " 200 ") {
					t.Errorf("an early request got %q", got)
				}
			}
			if got := testutil.ToFloat64(r.metrics.retries.WithLabelValues("web")); got != 0 {
				t.Errorf("%v requests were repeated", got)
			}
		})
	}
}

// TestBusyBackends: backends that do one thing at a time, and take long for it, get each request once, and no connection to them is cut. They
// answer no probe meanwhile, as one that is stopped.
func TestBusyBackends(t *testing.T) {
	t.Parallel()
	for _, mode := range []lab.BalanceMode{lab.ModeTCP, lab.ModeHTTP} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			var slow atomic.Int64
			first, second := serveSerially(t, &slow), serveSerially(t, &slow)
			b := with(balancer("web", addr(t), first, second), func(b *lab.Balancer) {
				b.Mode, b.Check.Kind, b.OnDown = mode, lab.CheckTCP, lab.OnDownClose
			})
			r := newTestServer(t, Config{}, b)
			netns.WaitFor(t, "both backends are known to answer probes", func() bool {
				_ = ask(t, b.Listen, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
				return r.answerProbes()
			})
			var tasks sync.WaitGroup
			for range 2 {
				tasks.Go(func() {
					if got := ask(t, b.Listen, "GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(got, "done") {
						t.Errorf("got %q", got)
					}
				})
			}
			tasks.Wait()
			if got := slow.Load(); got != 2 {
				t.Errorf("the backends got %d requests, want 2", got)
			}
		})
	}
}

// serveSerially answers one request at a time, those for /slow, which it counts, after four seconds.
func serveSerially(t *testing.T, slow *atomic.Int64) netip.AddrPort {
	t.Helper()
	at := addr(t)
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	done, end := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				if r.URL.Path == "/slow" {
					slow.Add(1)
					select {
					case <-time.After(4 * time.Second):
					case <-end:
					}
				}
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\ndone")
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { close(end); _ = l.Close(); <-done })
	return at
}

// TestStoppedLater: a backend that is stopped when its connections have got responses before is noticed by what they send next, and by none
// that is idle, or whose client was silent since.
func TestStoppedLater(t *testing.T) {
	t.Parallel()
	var stopped atomic.Bool
	back := serveTCP(t, func(c net.Conn) {
		b := make([]byte, 1)
		for {
			_, err := c.Read(b)
			for stopped.Load() {
				time.Sleep(10 * time.Millisecond)
			}
			if _, werr := c.Write(b); err != nil || werr != nil {
				return
			}
		}
	})
	t.Cleanup(func() { stopped.Store(false) })
	b := with(balancer("b", addr(t), back, serveTCP(t, nameServer("other"))), func(b *lab.Balancer) { b.Check.Kind = lab.CheckTCP })
	r := newTestServer(t, Config{}, b)
	var conns []*net.TCPConn
	for range 4 {
		c := dial(t, b.Listen)
		for range 2 {
			_, _ = io.WriteString(c, "x\n")
			readLine(t, c)
		}
		conns = append(conns, c)
	}
	netns.WaitFor(t, "every machine is known to answer probes", r.answerProbes)
	stopped.Store(true)
	time.Sleep(3 * time.Second) // something must not happen
	if n := len(r.recorder.of(event.BackendDown)); n > 0 {
		t.Fatalf("%d events: idle connections show nothing", n)
	}
	start := time.Now()
	for _, c := range conns {
		_, _ = io.WriteString(c, "x\n")
	}
	netns.WaitFor(t, "the backend is ejected", func() bool { return len(r.recorder.of(event.BackendDown)) > 0 })
	t.Logf("down %s after what a client sent", time.Since(start).Round(time.Millisecond))
	if got := readLine(t, dial(t, b.Listen)); got != "other" {
		t.Errorf("a new client got %q", got)
	}
	stopped.Store(false)
	r.waitHealth(t, back, Up)
}

// TestAwaitsReturn: a request waits for timeouts.queue while the last backend has just gone down, and no longer if it is gone for good.
func TestAwaitsReturn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		queue time.Duration
		want  string
	}{{time.Hour, "200"}, {time.Millisecond, "503"}} {
		t.Run(test.want, func(t *testing.T) {
			t.Parallel()
			var broken atomic.Bool
			back := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
				if broken.Load() {
					w.WriteHeader(http.StatusInternalServerError)
				}
			})
			b := with(httpBalancer("web", addr(t), back), func(b *lab.Balancer) {
				b.Check = lab.Check{Kind: lab.CheckHTTP, Interval: 50 * time.Millisecond, Rise: 1, Fall: 1}
				b.Queue, b.Timeouts.Queue = 10, test.queue
			})
			r := newTestServer(t, Config{}, b)
			r.waitHealth(t, back, Up)
			broken.Store(true)
			r.waitHealth(t, back, Down)
			time.AfterFunc(time.Second, func() { broken.Store(false) })
			if got := ask(t, b.Listen, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 "+test.want+" ") {
				t.Errorf("queue %s: %q, want %s", test.queue, got, test.want)
			}
		})
	}
}

// TestClientsAwaitRestart: clients of mode tcp wait while the only backend is down for a moment, as one that restarts. They are reset at once
// if it never was up.
func TestClientsAwaitRestart(t *testing.T) {
	t.Parallel()
	back := addr(t)
	stop := serveTCPAt(t, back, nameServer("first"))
	check := lab.Check{Kind: lab.CheckTCP, Interval: 50 * time.Millisecond, Rise: 1, Fall: 1}
	b := with(balancer("b", addr(t), back), func(b *lab.Balancer) { b.Check, b.Queue = check, 100 })
	never := with(balancer("never", addr(t), addr(t)), func(b *lab.Balancer) { b.Check, b.Queue = check, 100 })
	r := newTestServer(t, Config{}, b, never)
	r.waitHealth(t, back, Up)
	r.waitHealth(t, never.Backends[0].Addr, Down)
	stop()
	r.waitHealth(t, back, Down)
	var clients []*net.TCPConn
	for range 20 {
		clients = append(clients, dial(t, b.Listen))
	}
	netns.WaitFor(t, "20 clients wait", func() bool { return r.Status()[0].Queued == 20 })
	serveTCPAt(t, back, nameServer("second"))
	for _, c := range clients {
		if got := readLine(t, c); got != "second" {
			t.Errorf("a client that waited got %q", got)
		}
	}
	if got, err := readAll(never.Listen); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a client of a backend that never was up got %q, %v, want a reset", got, err)
	}
}

// serveStoppable serves a text in HTTP/1.1 and h2c.
func serveStoppable(t *testing.T, text string) *stoppable {
	t.Helper()
	l, err := net.Listen("tcp", addr(t).String())
	if err != nil {
		t.Fatal(err)
	}
	s := &stoppable{Listener: l, end: make(chan struct{})}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })}
	go func() { _ = server.Serve(s) }()
	t.Cleanup(func() { close(s.end); _ = server.Close() })
	return s
}

func (s *stoppable) at() netip.AddrPort { return s.Addr().(*net.TCPAddr).AddrPort() }

// A stoppable listener accepts connections whose reads return nothing while it is stopped, as those of a program that was sent SIGSTOP.
type stoppable struct {
	net.Listener
	stopped atomic.Bool
	end     chan struct{}
}

// Accept implements net.Listener.
func (s *stoppable) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	return &stoppableConn{c, s}, err
}

type stoppableConn struct {
	net.Conn
	of *stoppable
}

// Read implements io.Reader.
func (c *stoppableConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for c.of.stopped.Load() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-c.of.end:
			return 0, net.ErrClosed
		}
	}
	return n, err
}
