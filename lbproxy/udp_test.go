package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// A udpServer answers each datagram with its name, the client's bytes and the client's port, unless it is mute.
type udpServer struct {
	at   netip.AddrPort
	conn *net.UDPConn
	got  atomic.Int64
	mute atomic.Bool
}

func serveUDP(t testing.TB, name string) *udpServer {
	t.Helper()
	return serveUDPAt(t, addr(t), name)
}

func serveUDPAt(t testing.TB, at netip.AddrPort, name string) *udpServer {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	s := &udpServer{at: at, conn: conn}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := make([]byte, 65535); ; {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			s.got.Add(1)
			if !s.mute.Load() {
				_, _ = conn.WriteToUDPAddrPort(append([]byte(name+" "), b[:n]...), from)
			}
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return s
}

// udpClient returns a socket that takes answers from an address alone.
func udpClient(t testing.TB, to netip.AddrPort) *net.UDPConn {
	t.Helper()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// sendUDP sends a datagram and returns its answer; empty: none within the time.
func sendUDP(t testing.TB, c *net.UDPConn, send string, within time.Duration) string {
	t.Helper()
	if _, err := c.Write([]byte(send)); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(within))
	b := make([]byte, 65535)
	n, err := c.Read(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return string(b[:n])
}

// udpBalancer returns a balancer of mode udp without checks.
func udpBalancer(t testing.TB, responses int, backends ...*udpServer) *lab.Balancer {
	t.Helper()
	b := balancer("u", addr(t))
	for _, s := range backends {
		b.Backends = append(b.Backends, lab.Backend{Name: s.at.String(), Addr: s.at})
	}
	b.Mode, b.Responses, b.Timeouts.Idle = lab.ModeUDP, responses, time.Minute
	return b
}

// TestUDPSessions: a client stays at one backend, its datagrams of any size arrive, and sessions end when they are idle.
func TestUDPSessions(t *testing.T) {
	t.Parallel()
	one, two := serveUDP(t, "one"), serveUDP(t, "two")
	b := udpBalancer(t, lab.AnyResponses, one, two)
	r := newTestServer(t, Config{}, b)
	var first []string
	for range 4 {
		c := udpClient(t, listenOf(b))
		name, _, _ := strings.Cut(sendUDP(t, c, "x", time.Minute), " ")
		first = append(first, name)
		for _, size := range []int{0, 1, 1472, 20000} {
			want := name + " " + strings.Repeat("x", size)
			if got := sendUDP(t, c, strings.Repeat("x", size), time.Minute); got != want {
				t.Errorf("%d bytes: the answer has %d bytes and is from %.4q, want %s", size, len(got), got, name)
			}
		}
	}
	if slices.Sort(first); !slices.Equal(first, []string{"one", "one", "two", "two"}) {
		t.Errorf("four clients got %v", first)
	}
	if n := r.Status()[0].Connections; n != 4 {
		t.Errorf("%d sessions of 4 clients", n)
	}
	for _, direction := range []string{"in", "out"} { // counted once they were sent
		netns.WaitFor(t, "20 datagrams counted "+direction, func() bool {
			return testutil.ToFloat64(r.metrics.datagrams.WithLabelValues("u", direction)) == 20
		})
	}
	b.Timeouts.Idle = time.Millisecond
	r.apply(t, b)
	netns.WaitFor(t, "the end of idle sessions", func() bool { return r.Status()[0].Connections == 0 })
}

// TestUDPResponses: with one response a session ends with its answer; without any, datagrams of one client are balanced.
func TestUDPResponses(t *testing.T) {
	t.Parallel()
	one, two := serveUDP(t, "one"), serveUDP(t, "two")
	b := udpBalancer(t, 1, one, two)
	r := newTestServer(t, Config{}, b)
	c := udpClient(t, listenOf(b))
	for range 10 {
		if got := sendUDP(t, c, "x", time.Minute); got == "" {
			t.Fatal("no answer")
		}
	}
	netns.WaitFor(t, "the end of answered sessions", func() bool { return r.Status()[0].Connections == 0 })

	one.mute.Store(true)
	two.mute.Store(true)
	sent := one.got.Load() + two.got.Load()
	b.Responses = 0
	r.apply(t, b)
	for i := range 100 {
		if _, err := fmt.Fprintf(c, "<13>line %d", i); err != nil {
			t.Fatal(err)
		}
	}
	netns.WaitFor(t, "all lines", func() bool { return one.got.Load()+two.got.Load() == sent+100 })
	if n := one.got.Load() - 5; n < 40 || n > 60 {
		t.Errorf("one of two backends got %d of 100 lines", n)
	}
}

// TestUDPRefused: the answer to a datagram that a backend refuses (ICMP port unreachable) comes from another
// one; two refusals eject it, and it returns by itself.
func TestUDPRefused(t *testing.T) {
	t.Parallel()
	alive, gone := serveUDP(t, "alive"), serveUDP(t, "gone")
	_ = gone.conn.Close()
	for name, responses := range map[string]int{"sessions": lab.AnyResponses, "one answer": 1} {
		t.Run(name, func(t *testing.T) {
			b := udpBalancer(t, responses, gone, alive)
			r := newTestServer(t, Config{Ejection: 10 * time.Millisecond}, b)
			for range 6 {
				if got := sendUDP(t, udpClient(t, listenOf(b)), "x", time.Minute); got != "alive x" {
					t.Errorf("answered %q", got)
				}
			}
			if len(r.recorder.of(event.BackendDown)) == 0 {
				t.Error("the backend that refuses was not ejected")
			}
			back := serveUDPAt(t, gone.at, "back")
			netns.WaitFor(t, "the backend to be used again", func() bool {
				return sendUDP(t, udpClient(t, listenOf(b)), "x", time.Minute) == "back x"
			})
			_ = back.conn.Close()
		})
	}
}

// TestUDPSilent: a client whose datagram gets no answer reaches another backend when it sends it again.
func TestUDPSilent(t *testing.T) {
	t.Parallel()
	mute, alive := serveUDP(t, "mute"), serveUDP(t, "alive")
	mute.mute.Store(true)
	b := udpBalancer(t, 1, mute, alive)
	newTestServer(t, Config{}, b)
	for range 2 { // one of the two begins at the mute one
		c := udpClient(t, listenOf(b))
		netns.WaitFor(t, "an answer", func() bool { return sendUDP(t, c, "x", 1200*time.Millisecond) == "alive x" })
	}
	if mute.got.Load() == 0 {
		t.Error("no client began at the mute backend")
	}
}

// TestUDPNoAnswers: a backend that answers none of several clients is ejected, also if they ask again after a second, as resolvers do, and
// so reach another.
func TestUDPNoAnswers(t *testing.T) {
	t.Parallel()
	mute, alive := serveUDP(t, "mute"), serveUDP(t, "alive")
	mute.mute.Store(true)
	b := udpBalancer(t, 1, mute, alive)
	r := newTestServer(t, Config{Ejection: time.Hour}, b)
	var clients []*net.UDPConn
	for range 4 * ejectSilent {
		clients = append(clients, udpClient(t, listenOf(b)))
	}
	start := time.Now()
	for round := 0; len(r.recorder.of(event.BackendDown)) == 0; round++ {
		if round == 100 {
			t.Fatal("the backend that answers nothing is not ejected")
		}
		for _, c := range clients {
			_, _ = c.Write([]byte("x"))
		}
		for end := time.Now().Add(udpRetry + 100*time.Millisecond); time.Now().Before(end) && len(r.recorder.of(event.BackendDown)) == 0; {
			time.Sleep(10 * time.Millisecond)
		}
	}
	t.Logf("ejected after %s", time.Since(start))
}

// TestUDPUnreachable: a machine that is cut off from its segment is noticed when ARP finds it no more, without checks or expected answers.
func TestUDPUnreachable(t *testing.T) {
	segment := netns.NewSegment(t, "10.150.0.1/24")
	netns.Run(t, "sysctl", "-qw", "net.ipv4.neigh."+segment.Bridge+".retrans_time_ms=50")
	alive := serveUDP(t, "alive")
	b := udpBalancer(t, lab.AnyResponses, alive)
	gone := netip.MustParseAddrPort("10.150.0.9:8000")
	b.Backends = append(b.Backends, lab.Backend{Name: "gone", Addr: gone})
	r := newTestServer(t, Config{Ejection: time.Hour}, b)
	for range 4 {
		if got := sendUDP(t, udpClient(t, listenOf(b)), "x", 20*time.Second); got != "alive x" {
			t.Errorf("answered %q", got)
		}
	}
	if down := r.recorder.of(event.BackendDown); len(down) == 0 || !strings.Contains(down[0].Err, "no route to host") {
		t.Errorf("events of the machine that is gone: %v", down)
	}
}

// TestUDPSource: answers leave from the address that the client has sent to, on a socket of all addresses, and with the client's port
// where backends have none.
func TestUDPSource(t *testing.T) {
	t.Parallel()
	host := addr(t).Addr()
	const port = 8123
	serveUDPAt(t, netip.AddrPortFrom(host, 8124), "other port")
	b := with(udpBalancer(t, 1), func(b *lab.Balancer) {
		b.Listen = lab.Binds{{Addr: netip.IPv6Unspecified(), First: port, Last: port}, {Addr: addr(t).Addr(), First: 8124, Last: 8124}}
		b.Backends = []lab.Backend{{Name: "x", Addr: netip.AddrPortFrom(host, 0)}}
	})
	r := newTestServer(t, Config{}, b)
	if got := sendUDP(t, udpClient(t, netip.AddrPortFrom(b.Listen[1].Addr, 8124)), "x", time.Minute); got != "other port x" {
		t.Errorf("a backend without a port answers %q", got)
	}
	b.Backends[0].Addr = serveUDP(t, "back").at
	r.apply(t, b)
	for _, to := range []string{"127.78.250.1", "127.78.250.2", "::1"} {
		c := udpClient(t, netip.AddrPortFrom(netip.MustParseAddr(to), port)) // connected: it takes answers from that address alone
		if got := sendUDP(t, c, "x", time.Minute); got != "back x" {
			t.Errorf("%s answers %q", to, got)
		}
	}
}

// TestUDPFromBackend: a datagram from the address and port of a backend, which may be forged, reaches none: answers to it would be
// answered for ever.
func TestUDPFromBackend(t *testing.T) {
	t.Parallel()
	one, two := serveUDP(t, "one"), serveUDP(t, "two")
	b := udpBalancer(t, 1, one, two)
	// A backend without a port has that of the balancer.
	portless := with(udpBalancer(t, 1), func(b *lab.Balancer) {
		b.Name, b.Listen = "portless", lab.BindTo(netip.AddrPortFrom(addr(t).Addr(), two.at.Port()))
		b.Backends = []lab.Backend{{Name: "two", Addr: netip.AddrPortFrom(two.at.Addr(), 0)}}
	})
	r := newTestServer(t, Config{}, b, portless)
	for from, to := range map[*udpServer]*lab.Balancer{one: b, two: portless} {
		if _, err := from.conn.WriteToUDPAddrPort([]byte("x"), listenOf(to)); err != nil {
			t.Fatal(err)
		}
		rejected := r.metrics.rejected.WithLabelValues(to.Name, string(rejectNoBackend))
		netns.WaitFor(t, "the datagram to be refused", func() bool { return testutil.ToFloat64(rejected) == 1 })
	}
	if n := one.got.Load() + two.got.Load(); n != 0 {
		t.Errorf("%d datagrams reached the backends", n)
	}
}

// TestUDPReload: a reload keeps sessions, also one that changes other backends; one whose backend leaves goes to another.
func TestUDPReload(t *testing.T) {
	t.Parallel()
	one, two := serveUDP(t, "one"), serveUDP(t, "two")
	b := udpBalancer(t, lab.AnyResponses, one)
	r := newTestServer(t, Config{}, b)
	c := udpClient(t, listenOf(b))
	sendUDP(t, c, "x", time.Minute)
	both := udpBalancer(t, lab.AnyResponses, one, two)
	both.Listen = b.Listen
	tcp := balancer("t", listenOf(b), serveTCP(t, nameServer("tcp"))) // the same port, of TCP
	for range 3 {
		r.apply(t, both, tcp)
		if got := sendUDP(t, c, "x", time.Minute); got != "one x" {
			t.Errorf("after a reload %q", got)
		}
	}
	if n := testutil.ToFloat64(r.metrics.connections.WithLabelValues("u")); n != 1 {
		t.Errorf("%v sessions, want the first one", n)
	}
	if got := readLine(t, dial(t, tcp.Listen)); got != "tcp" {
		t.Errorf("TCP on the same port: %q", got)
	}
	both.Backends = both.Backends[1:]
	r.apply(t, both)
	if got := sendUDP(t, c, "x", time.Minute); got != "two x" {
		t.Errorf("after its backend was removed: %q", got)
	}
	r.apply(t)
	netns.WaitFor(t, "the socket to be closed", func() bool {
		l, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(listenOf(b)))
		if err == nil {
			_ = l.Close()
		}
		return err == nil
	})
}

// TestUDPLimits: at the limit the client with the most sessions loses its longest-idle one, and another client none; max_connections
// refuses new sessions.
func TestUDPLimits(t *testing.T) {
	t.Parallel()
	back := serveUDP(t, "back")
	b := udpBalancer(t, lab.AnyResponses, back)
	r := newTestServer(t, Config{Sessions: 8}, b)
	from := func(ip string) *net.UDPConn {
		c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(ip)}, net.UDPAddrFromAddrPort(listenOf(b)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	quiet := from("127.78.251.1")
	sendUDP(t, quiet, "x", time.Minute)
	for range 50 {
		sendUDP(t, from("127.78.251.2"), "x", time.Minute)
	}
	if n := r.Status()[0].Connections; n != 8 {
		t.Errorf("%d sessions, the limit is 8", n)
	}
	before := testutil.ToFloat64(r.metrics.connections.WithLabelValues("u"))
	if sendUDP(t, quiet, "x", time.Minute) == "" || testutil.ToFloat64(r.metrics.connections.WithLabelValues("u")) != before {
		t.Error("the other client lost its session")
	}
	if n := testutil.ToFloat64(r.metrics.evicted); n != 43 {
		t.Errorf("%v sessions evicted, want 43", n)
	}
	b.MaxConnections = 8
	r.apply(t, b)
	if got := sendUDP(t, from("127.78.251.3"), "x", 100*time.Millisecond); got != "" {
		t.Errorf("beyond max_connections %q", got)
	}
	netns.WaitFor(t, "a datagram that is counted as rejected", func() bool {
		return testutil.ToFloat64(r.metrics.rejected.WithLabelValues("u", string(rejectLimit))) > 0
	})
}

// TestUDPLongestIdle: at the limit a client loses the session of its own that was idle for longest, not the oldest.
func TestUDPLongestIdle(t *testing.T) {
	t.Parallel()
	b := udpBalancer(t, lab.AnyResponses, serveUDP(t, "back"))
	r := newTestServer(t, Config{Sessions: 2}, b)
	var clients []*net.UDPConn
	for range 3 {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(listenOf(b)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	begun := func(c *net.UDPConn) float64 {
		before := testutil.ToFloat64(r.metrics.connections.WithLabelValues("u"))
		sendUDP(t, c, "x", time.Minute)
		return testutil.ToFloat64(r.metrics.connections.WithLabelValues("u")) - before
	}
	oldest, idlest, another := clients[0], clients[1], clients[2]
	if begun(oldest) != 1 || begun(idlest) != 1 {
		t.Fatal("a datagram of a new client begins no session")
	}
	time.Sleep(1100 * time.Millisecond) // use is noted once a second
	if begun(oldest) != 0 || begun(another) != 1 || begun(oldest) != 0 {
		t.Error("the session in use was lost")
	}
	if begun(idlest) != 1 {
		t.Error("the longest-idle session was kept")
	}
}

// TestUDPStop: an answer that is on its way when the server stops reaches its client, and what clients send afterwards waits in the
// socket for the next process.
func TestUDPStop(t *testing.T) {
	t.Parallel()
	back, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = back.Close() }()
	b := udpBalancer(t, 1, &udpServer{at: back.LocalAddr().(*net.UDPAddr).AddrPort()})
	var kept *net.UDPConn // as systemd keeps it
	r := newTestServerWith(t, Config{}, Deps{ListenPacket: func(ctx context.Context, at netip.AddrPort) (PacketConn, error) {
		conn, err := ListenPacketFree(ctx, at)
		if err != nil {
			return nil, err
		}
		file, err := conn.File()
		if err != nil {
			return nil, err
		}
		again, err := net.FilePacketConn(file)
		_ = file.Close()
		kept, _ = again.(*net.UDPConn)
		return conn, err
	}}, b)
	c := udpClient(t, listenOf(b))
	pass := func(say string, meanwhile func()) {
		if _, err := c.Write([]byte(say)); err != nil {
			t.Fatal(err)
		}
		meanwhile()
		got := make([]byte, 100)
		_ = back.SetReadDeadline(time.Now().Add(time.Minute))
		n, from, err := back.ReadFromUDPAddrPort(got)
		if err != nil {
			t.Fatal(err)
		}
		if say == "first" {
			go r.stop()
			netns.WaitFor(t, "the end of the balancer's sockets", func() bool { return r.draining.Load() })
		}
		_, _ = back.WriteToUDPAddrPort(got[:n], from)
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := c.Read(got); err != nil || string(got[:n]) != say {
			t.Errorf("%q, %v: want %q", got[:n], err, say)
		}
	}
	pass("first", func() {})
	r.stop()
	pass("second", func() {
		newTestServerWith(t, Config{}, Deps{ListenPacket: func(context.Context, netip.AddrPort) (PacketConn, error) { return kept, nil }}, b)
	})
}

// TestCheckDNS: a server that answers is up, one that does not, or does not have the name, is down.
func TestCheckDNS(t *testing.T) {
	t.Parallel()
	mute, server := serveUDP(t, "mute"), addr(t)
	mute.mute.Store(true)
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(server))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	go func() {
		for b := make([]byte, 1500); ; {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			b[2] |= 0x80 // QR
			b[3] = 5     // REFUSED
			if strings.Contains(string(b[:n]), "known") {
				b[3] = 0
			}
			_, _ = conn.WriteToUDPAddrPort([]byte{b[0], b[1] + 1, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0}, from) // of another query
			_, _ = conn.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	check := func(name string) lab.Check {
		return lab.Check{Kind: lab.CheckDNS, Name: name, Timeout: time.Minute, Interval: time.Hour}
	}
	silent := check("")
	silent.Timeout = time.Second
	newB := func(name string, at netip.AddrPort, c lab.Check) *lab.Balancer {
		b := balancer(name, addr(t), at)
		b.Mode, b.Check = lab.ModeUDP, c
		return b
	}
	r := newTestServer(t, Config{}, newB("any", server, check("")), newB("silent", mute.at, silent), newB("known", server, check("known.test")), newB("unknown", server, check("other.test")))
	want := map[string]Health{"any": Up, "silent": Down, "known": Up, "unknown": Down}
	netns.WaitFor(t, "the checks", func() bool {
		for _, b := range r.Status() {
			if b.Backends[0].Health != want[b.Name] {
				return false
			}
		}
		return true
	})
	for _, b := range r.Status() {
		if b.Name == "unknown" && !strings.Contains(b.Backends[0].Reason, "SOA of other.test: the server answers Refused") {
			t.Errorf("reason %q", b.Backends[0].Reason)
		}
	}
}
