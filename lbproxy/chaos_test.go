package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

var rigConfig = Config{Drain: 5 * time.Second}

// A rig is one balancer of ours and one of HAProxy over the same machines, each in a namespace of its own.
type rig struct {
	*testServer
	machines    []*netns.Client
	servers     []*exec.Cmd
	backends    []netip.AddrPort
	ours, peers netip.AddrPort
	mode        lab.BalanceMode
	balancer    *lab.Balancer // changed by apply
	deps        Deps
	clients     *http.Client // of mode http; they keep their connections
}

// newRig makes the network 10.net.0.0/24 with that many machines, which serve "ok" and are checked by TCP.
func newRig(t *testing.T, mode lab.BalanceMode, net, machines int) *rig {
	t.Helper()
	return newRigWith(t, mode, net, machines, lab.Check{Kind: lab.CheckTCP, Interval: 5 * time.Second, Timeout: 5 * time.Second}, "")
}

// newRigWith is newRig with that check, and that of HAProxy in lines of its own.
func newRigWith(t *testing.T, mode lab.BalanceMode, net, machines int, check lab.Check, options string) *rig {
	t.Helper()
	netns.Need(t, "root", "nginx", "ip", "nft", "haproxy")
	segment := netns.NewSegment(t, fmt.Sprintf("10.%d.0.1/24", net))
	own := netip.AddrFrom4([4]byte{10, byte(net), 0, 1})
	r := &rig{mode: mode, ours: netip.AddrPortFrom(own, 80), peers: netip.AddrPortFrom(own, 81)}
	servers := ""
	for k := range machines {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(net), 0, byte(2 + k)}), 80)
		c := segment.NewClient(t)
		netns.Run(t, "ip", "-n", c.Name, "addr", "add", at.Addr().String()+"/24", "dev", "eth0")
		r.machines, r.backends, r.servers = append(r.machines, c), append(r.backends, at), append(r.servers, nil)
		r.serve(t, k)
		servers += fmt.Sprintf("  server m%d %s check inter %dms\n", k, at, check.Interval.Milliseconds())
	}
	r.balancer = with(balancer("web", r.ours, r.backends...), func(b *lab.Balancer) {
		b.Check = check
		b.Mode, b.Timeouts.Connect = mode, 20*time.Second // as HAProxy's, in startHAProxy
	})
	r.deps = keptSocket(t, r.ours)
	r.testServer = newTestServerWith(t, rigConfig, r.deps, r.balancer)
	for _, m := range r.backends {
		r.waitHealth(t, m, Up)
	}
	startHAProxy(t, r.peers, fmt.Sprintf("listen l\n  mode %s\n  option redispatch\n%s  bind %s\n%s", r.balancer.Mode, options, r.peers, servers))
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	r.clients = &http.Client{Transport: transport, Timeout: time.Minute}
	return r
}

// serve starts the server of a machine.
func (r *rig) serve(t *testing.T, k int) {
	t.Helper()
	args := nginx(t, fmt.Sprintf(`listen %s backlog=4096; location / { return 200 "ok"; }`, r.backends[k]))
	r.servers[k] = start(t, r.machines[k].Command(context.Background(), "nginx", args...), r.backends[k])
}

// kill ends the server of a machine.
func (r *rig) kill(t *testing.T, k int) {
	t.Helper()
	_ = r.servers[k].Process.Kill()
	netns.WaitFor(t, "connection refused", func() bool {
		_, err := readAll(r.backends[k])
		return errors.Is(err, syscall.ECONNREFUSED)
	})
}

// lose drops that part of what is sent to every machine until restore is called.
func (r *rig) lose(t *testing.T, percent int) (restore func()) {
	t.Helper()
	table := fmt.Sprint("loss", r.ours.Addr().As4()[1])
	rules := fmt.Sprintf("table ip %s { chain out { type filter hook output priority 0;", table)
	for _, m := range r.backends {
		rules += fmt.Sprintf(" ip daddr %s numgen random mod 100 <= %d drop;", m.Addr(), percent-1)
	}
	netns.Run(t, "nft", rules+" };}")
	restore = sync.OnceFunc(func() { netns.Run(t, "nft", "delete table ip "+table) })
	t.Cleanup(restore)
	return restore
}

// request makes one request on a new connection, for a minute at most.
func request(ctx context.Context, at netip.AddrPort) error {
	var d net.Dialer
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c, err := d.DialContext(ctx, "tcp", at.String())
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		return err
	}
	body, err := io.ReadAll(c)
	if err == nil && len(body) < 100 {
		err = fmt.Errorf("a response of %d bytes", len(body))
	}
	return err
}

// A tally counts the requests that failed.
type tally struct {
	tasks        sync.WaitGroup
	made, failed atomic.Int64
	mu           sync.Mutex
	first        error
}

func (l *tally) request(t *testing.T, at netip.AddrPort) {
	l.note(request(t.Context(), at))
}

// request makes one request: in mode tcp on a new connection, in mode http on one that is kept.
func (r *rig) request(t *testing.T, at netip.AddrPort) error {
	if r.mode == lab.ModeTCP {
		return request(t.Context(), at)
	}
	return getOK(r.clients, "http://"+at.String()+"/")
}

// inModes runs a test of both modes beside each other.
func inModes(t *testing.T, name string, test func(t *testing.T, mode lab.BalanceMode, net int)) {
	for i, mode := range []lab.BalanceMode{lab.ModeTCP, lab.ModeHTTP} {
		t.Run(string(mode)+name, func(t *testing.T) {
			t.Parallel()
			test(t, mode, 20*i)
		})
	}
}

func (l *tally) note(err error) {
	l.made.Add(1)
	if err == nil {
		return
	}
	l.failed.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = err
	}
}

func (l *tally) String() string {
	return fmt.Sprintf("%d of %d failed (first: %v)", l.failed.Load(), l.made.Load(), l.first)
}

// TestBlip cuts every machine for 0.3 s while clients connect. All must get their answer, as through HAProxy.
func TestBlip(t *testing.T) {
	for i, machines := range []int{1, 3} {
		inModes(t, fmt.Sprintf(", %d backends", machines), func(t *testing.T, mode lab.BalanceMode, net int) {
			r := newRig(t, mode, 90+i+net, machines)
			var ours, peers tally
			restore := func() {}
			for n := range 150 { // three seconds at 50 connections a second
				switch n {
				case 50:
					restore = r.lose(t, 100)
				case 65:
					restore()
				}
				ours.tasks.Go(func() { ours.note(r.request(t, r.ours)) })
				peers.tasks.Go(func() { peers.note(r.request(t, r.peers)) })
				time.Sleep(20 * time.Millisecond)
			}
			ours.tasks.Wait()
			peers.tasks.Wait()
			t.Logf("HAProxy: %s", &peers)
			if ours.failed.Load() > 0 {
				t.Errorf("a cut of 0.3 s: %s; HAProxy: %s", &ours, &peers)
			}
		})
	}
}

// TestChaos goes through all that may happen to machines, and a reload and a restart of the balancer, while clients connect to it and to HAProxy. No client
// of ours sees an error. No request is in progress when a machine fails: those of a server that is killed are lost in any balancer.
func TestChaos(t *testing.T) { inModes(t, "", chaos) }

func chaos(t *testing.T, mode lab.BalanceMode, net int) {
	r := newRig(t, mode, 98+net, 3)
	table := fmt.Sprint("reset", 98+net)
	cut := r.machines[2]
	reset := fmt.Sprintf("table ip %s { chain out { type filter hook output priority 0; ip daddr %s tcp dport 80 reject with tcp reset; };}", table, r.backends[0].Addr())
	var restore func()
	nothing := func() {}
	for _, event := range []struct {
		name               string
		begin, during, end func()
	}{
		{"nothing", nothing, nothing, nothing},
		{"killed", func() { r.kill(t, 0) }, nothing, func() { r.serve(t, 0) }},
		{"stopped", func() { _ = r.servers[1].Process.Signal(syscall.SIGSTOP) }, nothing, func() { _ = r.servers[1].Process.Signal(syscall.SIGCONT) }},
		{"cut", func() { netns.Run(t, "ip", "link", "set", cut.NIC, "down") }, nothing, func() { netns.Run(t, "ip", "link", "set", cut.NIC, "up") }},
		{"blip of 0.3 s", nothing, func() { restore = r.lose(t, 100); time.Sleep(300 * time.Millisecond); restore() }, nothing},
		{"15 % loss", func() { restore = r.lose(t, 15) }, nothing, func() { restore() }},
		{"reset", func() { netns.Run(t, "nft", reset) }, nothing, func() { netns.Run(t, "nft", "delete table ip "+table) }},
		{"slow", nothing, func() {
			for range 6 {
				_ = r.servers[1].Process.Signal(syscall.SIGSTOP)
				time.Sleep(200 * time.Millisecond)
				_ = r.servers[1].Process.Signal(syscall.SIGCONT)
				time.Sleep(100 * time.Millisecond)
			}
		}, nothing},
		{"reload", nothing, func() {
			for range 10 {
				r.apply(t, r.balancer, balancer("other", netip.AddrPortFrom(r.ours.Addr(), 82), r.backends...))
				time.Sleep(50 * time.Millisecond)
				r.apply(t, r.balancer)
				time.Sleep(50 * time.Millisecond)
			}
		}, nothing},
		{"restart", nothing, func() { r.stop(); r.testServer = newTestServerWith(t, rigConfig, r.deps, r.balancer) }, nothing},
	} {
		var ours, peers, load tally
		event.begin()
		load.tasks.Go(func() {
			for range 100 { // two seconds at 50 connections a second
				ours.tasks.Go(func() { ours.note(r.request(t, r.ours)) })
				peers.tasks.Go(func() { peers.note(r.request(t, r.peers)) })
				time.Sleep(20 * time.Millisecond)
			}
		})
		event.during()
		load.tasks.Wait()
		event.end()
		ours.tasks.Wait()
		peers.tasks.Wait()
		t.Logf("%s: %s; HAProxy: %s", event.name, &ours, &peers)
		if ours.failed.Load() > 0 {
			t.Errorf("%s: %s; HAProxy: %s", event.name, &ours, &peers)
		}
		for _, m := range r.backends {
			r.waitHealth(t, m, Up)
		}
	}
}

// TestLoss loses part of all packets to the machines. No client is reset, as none is by HAProxy.
func TestLoss(t *testing.T) {
	for i, test := range []struct{ percent, machines int }{{15, 1}, {10, 3}} {
		inModes(t, fmt.Sprintf(", %d %% to %d backends", test.percent, test.machines), func(t *testing.T, mode lab.BalanceMode, net int) {
			r := newRig(t, mode, 94+i+net, test.machines)
			r.lose(t, test.percent)
			const requests, parallel = 1000, 50
			var ours, peers tally
			for _, side := range []struct {
				*tally
				at netip.AddrPort
			}{{&ours, r.ours}, {&peers, r.peers}} {
				for range parallel {
					side.tasks.Go(func() {
						for range requests / parallel {
							side.note(r.request(t, side.at))
						}
					})
				}
			}
			ours.tasks.Wait()
			peers.tasks.Wait()
			t.Logf("HAProxy: %s", &peers)
			if ours.failed.Load() > 0 {
				t.Errorf("%d %% loss: %s; HAProxy: %s", test.percent, &ours, &peers)
			}
		})
	}
}

// TestFrozen stops the server programs of the machines in turn, for nine seconds in all, while clients of mode http send requests that may be
// repeated. No more of them fail than through HAProxy: they outlive a stopped machine, and wait while the others are found to work again.
func TestFrozen(t *testing.T) {
	quick := lab.Check{Kind: lab.CheckHTTP, Interval: 300 * time.Millisecond, Timeout: 300 * time.Millisecond, Rise: 2, Fall: 3}
	for i, test := range []struct {
		name     string
		machines int
		check    lab.Check
		options  string
	}{
		{"2 machines, tcp check", 2, lab.Check{Kind: lab.CheckTCP, Interval: time.Second, Timeout: time.Second}, ""},
		{"3 machines, tcp check", 3, lab.Check{Kind: lab.CheckTCP, Interval: time.Second, Timeout: time.Second}, ""},
		{"2 machines, http check", 2, quick, "  option httpchk GET /\n  timeout check 300ms\n"},
		{"3 machines, http check", 3, quick, "  option httpchk GET /\n  timeout check 300ms\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newRigWith(t, lab.ModeHTTP, 130+i, test.machines, test.check, test.options)
			r.clients.Timeout = 3 * time.Second
			netns.WaitFor(t, "every machine is known to answer probes", func() bool {
				return r.request(t, r.ours) == nil && r.answerProbes()
			})
			var ours, peers tally
			var over atomic.Bool
			for range 4 {
				for at, side := range map[netip.AddrPort]*tally{r.ours: &ours, r.peers: &peers} {
					side.tasks.Go(func() {
						for !over.Load() {
							side.note(r.request(t, at))
							time.Sleep(50 * time.Millisecond)
						}
					})
				}
			}
			for _, server := range r.servers {
				_ = server.Process.Signal(syscall.SIGSTOP)
				time.Sleep(9 * time.Second / time.Duration(test.machines))
				_ = server.Process.Signal(syscall.SIGCONT)
			}
			over.Store(true)
			ours.tasks.Wait()
			peers.tasks.Wait()
			t.Logf("%s; HAProxy: %s", &ours, &peers)
			if ours.failed.Load() > peers.failed.Load() {
				t.Errorf("%s; HAProxy: %s", &ours, &peers)
			}
		})
	}
}
