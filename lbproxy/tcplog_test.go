package lbproxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// A connLog has the lines of the access log of mode tcp.
type connLog struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (l *connLog) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(writerFunc(func(p []byte) (int, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.lines.Write(p)
	}), nil))
}

// of returns the lines of a balancer.
func (l *connLog) of(balancer string) (found []map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(l.lines.Bytes()) {
		var v map[string]any
		if json.Unmarshal(line, &v) == nil && v["msg"] == "connection" && v["balancer"] == balancer {
			found = append(found, v)
		}
	}
	return found
}

// first returns the first line of a balancer, once it is written.
func (l *connLog) first(t *testing.T, balancer string) map[string]any {
	t.Helper()
	netns.WaitFor(t, "a line of "+balancer, func() bool { return len(l.of(balancer)) > 0 })
	return l.of(balancer)[0]
}

// resetServer greets, echoes, and resets the connection after "reset".
func resetServer(c net.Conn) {
	_, _ = io.WriteString(c, "b\n")
	for b := make([]byte, 100); ; {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		if string(b[:n]) == "reset\n" {
			abort(c)
			return
		}
		_, _ = c.Write(b[:n])
	}
}

// haproxyLine matches a line of option tcplog: frontend, server, Tw/Tc, bytes and termination state.
var haproxyLine = regexp.MustCompile(`\S+:\d+ \[[^]]+\] (\S+) [^/ ]+/(\S+) (-?\d+)/(-?\d+)/\+?\d+ \+?(\d+) (..) `)

// haproxyLog receives the lines of an HAProxy at a socket. line returns one of a frontend: its name, server, Tc, bytes and termination state.
func haproxyLog(t *testing.T) (socket string, line func(frontend string) []string) {
	socket = filepath.Join(t.TempDir(), "log")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var lines [][]string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := make([]byte, 4096); ; {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			if m := haproxyLine.FindSubmatch(b[:n]); m != nil {
				mu.Lock()
				lines = append(lines, []string{string(m[1]), string(m[2]), string(m[4]), string(m[5]), string(m[6])})
				mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() { _ = c.Close(); <-done })
	return socket, func(frontend string) (found []string) {
		t.Helper()
		netns.WaitFor(t, "HAProxy's line of "+frontend, func() bool {
			mu.Lock()
			defer mu.Unlock()
			for _, l := range lines {
				if l[0] == frontend {
					found = l
				}
			}
			return found != nil
		})
		return found
	}
}

// TestTCPAccessLog has the same connections through HAProxy with option tcplog.
func TestTCPAccessLog(t *testing.T) {
	t.Parallel()
	netns.Need(t, "haproxy")
	socket, peerLine := haproxyLog(t)
	back, closed := serveTCP(t, resetServer), addr(t)
	end := func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }
	rejected := func(at netip.AddrPort) { _, _ = readAll(at) }
	var bs []*lab.Balancer
	sections := ""
	tests := []struct {
		name    string
		backend netip.AddrPort
		change  func(*lab.Balancer)
		peer    string // options of HAProxy's server
		use     func(at netip.AddrPort)
		end     string
		state   string
		in, out float64
	}{
		{name: "complete", backend: back, use: func(at netip.AddrPort) {
			c := dial(t, at)
			readLine(t, c)
			_, _ = io.WriteString(c, "hello\n")
			readLine(t, c)
			_ = c.CloseWrite()
			end(c)
		}, end: "complete", state: "--", in: 6, out: 8},
		{name: "client", backend: back, use: func(at netip.AddrPort) {
			c := dial(t, at)
			readLine(t, c)
			_ = c.SetLinger(0)
			_ = c.Close()
		}, end: "client_closed", state: "CD", out: 2},
		{name: "server", backend: back, use: func(at netip.AddrPort) {
			c := dial(t, at)
			readLine(t, c)
			_, _ = io.WriteString(c, "reset\n")
			end(c)
		}, end: "server_broken", state: "SD", in: 6, out: 2},
		{name: "refused", backend: closed, change: func(b *lab.Balancer) { b.Timeouts.Connect = 500 * time.Millisecond },
			use: rejected, end: "connect", state: "SC"},
		{name: "none", backend: back, change: func(b *lab.Balancer) { b.Backends = nil }, peer: "disabled", use: rejected, end: "no_backend", state: "SC"},
		{name: "queue", backend: back, change: func(b *lab.Balancer) {
			b.Backends[0].MaxConnections, b.Queue, b.Timeouts.Queue = 1, 10, 200*time.Millisecond
		}, peer: "maxconn 1", use: func(at netip.AddrPort) {
			readLine(t, dial(t, at)) // the only place
			rejected(at)
		}, end: "queue_timeout", state: "sQ"},
	}
	for _, test := range tests {
		b := with(balancer(test.name, addr(t), test.backend), func(b *lab.Balancer) {
			b.Log = lab.LogRequests
			if test.change != nil {
				test.change(b)
			}
		})
		bs = append(bs, b)
		sections += fmt.Sprintf("listen %s\n  mode tcp\n  option tcplog\n  log %s local0\n  retries 0\n  timeout queue 200ms\n  bind %s\n  server %s %s %s\n",
			test.name, socket, netip.AddrPortFrom(listenOf(b).Addr(), 8001), test.backend, test.backend, test.peer)
	}
	var log connLog
	newTestServerLogging(t, log.logger(), bs...)
	ready := addr(t)
	startHAProxy(t, ready, sections+fmt.Sprintf("listen ready\n  mode tcp\n  bind %s\n", ready))
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ours, peers := listenOf(bs[i]), netip.AddrPortFrom(listenOf(bs[i]).Addr(), 8001)
			test.use(ours)
			test.use(peers)
			line, peer := log.first(t, test.name), peerLine(test.name)
			for key, want := range map[string]any{"end": test.end, "state": test.state, "bytes_in": test.in, "bytes_out": test.out} {
				if line[key] != want {
					t.Errorf("%s: %v, want %v", key, line[key], want)
				}
			}
			backend := peer[1]
			if peer[2] == "-1" {
				backend = "" // HAProxy names the one that it has tried
			}
			if line["backend"] != backend || (line["connect_ms"] == -1.0) != (peer[2] == "-1") || line["state"] != peer[4] || fmt.Sprint(line["bytes_out"]) != peer[3] {
				t.Errorf("%v\nHAProxy: %v", line, peer)
			}
			if line["total_ms"].(float64) < line["connect_ms"].(float64) {
				t.Errorf("times of %v", line)
			}
		})
	}
}

// TestTCPAccessLogEnds has the ends that bootlab itself brings about. A balancer with log: errors leaves complete connections out; one
// without a log has no line.
func TestTCPAccessLogEnds(t *testing.T) {
	t.Parallel()
	back, fails := serveTCP(t, nameServer("b")), serveTCP(t, nameServer("b"))
	status := netip.AddrPortFrom(fails.Addr(), 1936)
	stop := serveTCPAt(t, status, nameServer("status"))
	logging := func(name string, to netip.AddrPort, change func(*lab.Balancer)) *lab.Balancer {
		return with(balancer(name, addr(t), to), func(b *lab.Balancer) { b.Log = lab.LogErrors; change(b) })
	}
	idle := logging("idle", back, func(b *lab.Balancer) { b.Timeouts.Idle = 100 * time.Millisecond })
	errors := logging("errors", back, func(*lab.Balancer) {})
	none := logging("none", back, func(b *lab.Balancer) { b.Log = lab.LogNone })
	down := logging("down", fails, func(b *lab.Balancer) {
		b.OnDown = lab.OnDownClose
		b.Check = lab.Check{Kind: lab.CheckTCP, Port: status.Port(), Interval: 50 * time.Millisecond, Rise: 1, Fall: 2}
	})
	var log connLog
	r := newTestServerWith(t, Config{Sweep: 20 * time.Millisecond}, Deps{Log: log.logger()}, idle, errors, none, down)
	r.waitHealth(t, fails, Up)
	ends := map[string]string{"idle": "idle cD", "errors": "shutdown KD", "down": "backend_down DD"}
	clients := map[string]*net.TCPConn{}
	for _, b := range []*lab.Balancer{idle, errors, none, down} {
		clients[b.Name] = dial(t, listenOf(b))
		readLine(t, clients[b.Name])
	}
	complete := dial(t, listenOf(errors))
	readLine(t, complete)
	_ = complete.CloseWrite()
	_, _ = io.Copy(io.Discard, complete)
	stop()
	log.first(t, "idle")
	log.first(t, "down")
	r.stop() // every line is written
	for name, want := range ends {
		line := log.first(t, name)
		if line["addr"] != clients[name].LocalAddr().String() {
			t.Errorf("%s: %v is not of the client %s", name, line, clients[name].LocalAddr())
		}
		if got := fmt.Sprint(line["end"], " ", line["state"]); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := len(log.of("errors")); got != 1 {
		t.Errorf("%d lines with log: errors, want that of the shutdown alone", got)
	}
	if got := log.of("none"); len(got) > 0 {
		t.Errorf("lines without a log: %v", got)
	}
}

// TestTCPBackendMetrics counts connections, their connect times and what failed, for each backend.
func TestTCPBackendMetrics(t *testing.T) {
	t.Parallel()
	back, closed := serveTCP(t, resetServer), addr(t)
	b := with(balancer("b", addr(t), back), func(b *lab.Balancer) {
		b.Backends = append(b.Backends, lab.Backend{Name: "closed", Addr: closed, Weight: 1})
	})
	r := newTestServer(t, Config{}, b)
	series := func() int {
		return testutil.CollectAndCount(r.metrics.backendConns) + testutil.CollectAndCount(r.metrics.backendErrors) + testutil.CollectAndCount(r.metrics.backendConnect)
	}
	if got := series(); got != 2*(1+3+1) {
		t.Errorf("%d series of two backends before the first connection", got)
	}
	for range 2 { // one of them tries the closed backend first
		c := dial(t, listenOf(b))
		readLine(t, c)
		_, _ = io.WriteString(c, "reset\n")
		_, _ = io.Copy(io.Discard, c)
	}
	for _, want := range []struct {
		got  float64
		want float64
		what string
	}{
		{testutil.ToFloat64(r.metrics.backendConns.WithLabelValues("b", back.String())), 2, "connections"},
		{testutil.ToFloat64(r.metrics.backendErrors.WithLabelValues("b", back.String(), "server_broken")), 2, "connections that the backend reset"},
		{testutil.ToFloat64(r.metrics.backendConns.WithLabelValues("b", "closed")), 0, "connections of the closed backend"},
		{testutil.ToFloat64(r.metrics.backendErrors.WithLabelValues("b", "closed", "connect")), 1, "failed connects"},
	} {
		if want.got != want.want {
			t.Errorf("%v %s, want %v", want.got, want.what, want.want)
		}
	}
	metrics, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	observed := uint64(0)
	for _, m := range metrics {
		for _, one := range m.Metric {
			if m.GetName() == MetricBackendConnect {
				observed += one.GetHistogram().GetSampleCount()
			}
		}
	}
	if observed != 2 {
		t.Errorf("%d connect times, want 2", observed)
	}
	b.Backends = b.Backends[:1]
	r.apply(t, b)
	if got := series(); got != 1+3+1 {
		t.Errorf("%d series after a backend has left the lab, want 5", got)
	}
}

// TestTCPAccessLogSendProxy has a connection that no event loop connects.
func TestTCPAccessLogSendProxy(t *testing.T) {
	t.Parallel()
	b := with(balancer("b", addr(t), serveTCP(t, nameServer("b"))), func(b *lab.Balancer) { b.Log, b.SendProxy = lab.LogRequests, 1 })
	var log connLog
	newTestServerLogging(t, log.logger(), b)
	c := dial(t, listenOf(b))
	readLine(t, c)
	_ = c.CloseWrite()
	_, _ = io.Copy(io.Discard, c)
	line := log.first(t, "b")
	if connect, total := line["connect_ms"].(float64), line["total_ms"].(float64); connect < 0 || total < connect || line["end"] != "complete" {
		t.Errorf("%v", line)
	}
}
