package dnsd

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/bootlab/bootlab/internal/host/client/connlimit"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/panics"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/prometheus/client_golang/prometheus"
	"log/slog"
)

// frame returns a query for an A record with that ID, as it goes over TCP.
func frame(t testing.TB, id uint16, owner string) []byte {
	t.Helper()
	m := new(dns.Msg).SetQuestion(owner, dns.TypeA)
	m.Id = id
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(packed))), packed...)
}

func readFrame(conn net.Conn) (*dns.Msg, error) {
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(conn, b); err != nil {
		return nil, err
	}
	m := new(dns.Msg)
	return m, m.Unpack(b)
}

func dial(t testing.TB, ap netip.AddrPort) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", ap.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// dialFrom is dial from the address 127.0.0.n.
func dialFrom(t testing.TB, n byte, ap netip.AddrPort) *net.TCPConn {
	t.Helper()
	conn, err := net.DialTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, n)}, net.TCPAddrFromAddrPort(ap))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestPipeline sends questions without waiting: what the table answers does not wait for what the forwarder is asked.
func TestPipeline(t *testing.T) {
	t.Parallel()
	up, release := heldUpstream(t)
	ap := serve(t, newServer(t, compile(t, forwardingLab(up.addr)), nil), "127.0.0.1")
	conn := dial(t, ap)
	all := append(frame(t, 1, "www.example.org."), frame(t, 2, "api.mycluster.example.com.")...)
	all = append(all, frame(t, 3, "master.mycluster.example.com.")...)
	for _, part := range [][]byte{all[:1], all[1:20], all[20:]} { // as the wind blows
		if _, err := conn.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []uint16{2, 3, 1} {
		m, err := readFrame(conn)
		if err != nil || m.Id != want || len(m.Answer) != 1 {
			t.Fatalf("got %v, %v; want the reply to %d", m, err, want)
		}
		if want == 3 {
			release()
		}
	}
}

// TestTCPConnectionLimit: when all connections are taken, the one on which nothing was asked for longest makes room.
func TestTCPConnectionLimit(t *testing.T) {
	t.Parallel()
	s := newServer(t, compile(t, openshift()), nil)
	s.conns, s.cfg.IdleTimeout = connlimit.New(connlimit.Config{Max: 2}), time.Minute
	ap := serve(t, s, "127.0.0.1")
	asks := func(id uint16, conn net.Conn) {
		t.Helper()
		_, _ = conn.Write(frame(t, id, "api.mycluster.example.com."))
		if m, err := readFrame(conn); err != nil || m.Id != id || len(m.Answer) != 1 {
			t.Fatalf("question %d: %v, %v", id, m, err)
		}
	}
	one, two := dial(t, ap), dial(t, ap)
	asks(1, one)
	asks(2, two)
	asks(3, one)
	three := dial(t, ap)
	asks(4, three)
	if _, err := readFrame(two); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the silent one of two, when a third came: %v, want it closed", err)
	}
	asks(5, one)
	asks(6, three)
	if n := testutil.ToFloat64(s.metrics.evicted); n != 1 {
		t.Errorf("%v were counted, want 1", n)
	}
}

// TestTCPConnectionsInUse: a client with as many transfers as there may be connections, which it does not read, gets no other
// connection, ends nothing, and another client gets one.
func TestTCPConnectionsInUse(t *testing.T) {
	t.Parallel()
	l := &lab.Lab{Zones: []*lab.Zone{zoneOfLines("z.test.", "$GENERATE 1-10000 h$ TXT"+strings.Repeat(" "+strings.Repeat("x", 250), 4))}} // 10 MB: more than the buffers hold
	l.DNS.Transfer = []lab.Access{{From: netip.MustParsePrefix("127.0.0.0/8")}}
	s := newServer(t, compile(t, l), nil)
	s.conns, s.cfg.IdleTimeout = connlimit.New(connlimit.Config{Max: 2}), time.Minute
	ap := serve(t, s, "127.0.0.1")
	for range 2 {
		conn := &dns.Conn{Conn: dialFrom(t, 2, ap)}
		if err := conn.WriteMsg(new(dns.Msg).SetAxfr("z.test.")); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ReadMsg(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := readFrame(dialFrom(t, 2, ap)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the third connection of the client: %v, want it closed", err)
	}
	other := dialFrom(t, 3, ap)
	_, _ = other.Write(frame(t, 1, "h1.z.test."))
	if m, err := readFrame(other); err != nil || m.Id != 1 {
		t.Errorf("another client: %v, %v", m, err)
	}
}

// TestTCPLimits: no connection that idles, none that sends rubbish.
func TestTCPLimits(t *testing.T) {
	t.Parallel()
	s := newServer(t, compile(t, openshift()), nil)
	s.cfg.IdleTimeout = 500 * time.Millisecond
	ap := serve(t, s, "127.0.0.1")
	if _, err := readFrame(dial(t, ap)); !errors.Is(err, io.EOF) {
		t.Errorf("idle connection: %v, want it closed", err)
	}
	rubbish := dial(t, ap)
	_, _ = rubbish.Write([]byte{0, 3, 1, 2, 3})
	if _, err := readFrame(rubbish); !errors.Is(err, io.EOF) {
		t.Errorf("after rubbish: %v, want the connection closed", err)
	}
}

// TestBusy: with all places taken by questions that wait, others for the forwarder are dropped, and the table still answers.
func TestBusy(t *testing.T) {
	t.Parallel()
	up, release := heldUpstream(t)
	s := newServer(t, compile(t, forwardingLab(up.addr)), nil)
	s.forwards = connlimit.NewCounter(1)
	ap := serve(t, s, "127.0.0.1")
	conn, err := net.Dial("udp", ap.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ids := []struct {
		id    uint16
		owner string
	}{{1, "one.example.org."}, {2, "two.example.org."}, {3, "api.mycluster.example.com."}}
	for i, q := range ids {
		_, _ = conn.Write(frame(t, q.id, q.owner)[2:])
		if i == 0 {
			<-up.asked
		}
	}
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	b := make([]byte, 512)
	for _, want := range []byte{3, 1} {
		n, err := conn.Read(b)
		if err != nil || n < headerLen || b[1] != want {
			t.Fatalf("got %x, %v; want the reply to %d", b[:n], err, want)
		}
		if want == 3 {
			release()
		}
	}
	if n := testutil.ToFloat64(s.metrics.dropped[dropBusy]); n != 1 {
		t.Errorf("%v messages dropped, want 1", n)
	}
}

// TestServeEnds: nil when ctx ends, with a question under way; an error when a socket is taken away.
func TestServeEnds(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, func(*dns.Msg, string) *dns.Msg { return nil })
	s := newServer(t, compile(t, forwardingLab(up.addr)), nil)
	listen := func() (*net.UDPConn, *net.TCPListener) {
		udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		return udp, tcp
	}
	udp, tcp := listen()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, []*net.UDPConn{udp}, []*net.TCPListener{tcp}) }()
	conn, err := net.Dial("udp", udp.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write(frame(t, 9, "www.example.org.")[2:])
	<-up.asked
	cancel()
	if err := <-done; err != nil {
		t.Errorf("after ctx: %v", err)
	}
	udp, tcp = listen()
	_ = udp.Close()
	if err := s.Serve(t.Context(), []*net.UDPConn{udp}, []*net.TCPListener{tcp}); err == nil {
		t.Error("a closed socket is no error")
	}
}

// panickyLeases panic once.
type panickyLeases struct {
	leaseBook
	once sync.Once
}

func (l *panickyLeases) ByName(name string) (Lease, bool) {
	l.once.Do(func() { panic("bug") })
	return l.leaseBook.ByName(name)
}

// TestPanic: a bug of ours costs one reply, not the process.
func TestPanic(t *testing.T) {
	t.Parallel()
	s := newServer(t, compile(t, openshift()), &panickyLeases{leaseBook: clients(map[string]string{"laptop": "192.168.131.77"})})
	all, err := panics.New(prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.panics = all.Server("dnsd")
	ap := serve(t, s, "127.0.0.1")
	c := &dns.Client{Timeout: 300 * time.Millisecond}
	q := new(dns.Msg).SetQuestion("laptop.example.com.", dns.TypeA)
	if m, _, err := c.Exchange(q, ap.String()); err == nil {
		t.Errorf("a panic was answered: %v", m)
	}
	netns.WaitFor(t, "the panic to be counted", func() bool { return all.Counts()["dnsd"].N > 0 })
	c.Timeout = 30 * time.Second
	if m, _, err := c.Exchange(q, ap.String()); err != nil || len(m.Answer) != 1 {
		t.Errorf("after a panic: %v %v", m, err)
	}
}

// TestEmptyConnectionsCutNoTransfer: idle TCP connections, more than there may be in all, end no transfer, not even one to the client that
// opens them and however slowly it reads, and not the only connection of a third client.
func TestEmptyConnectionsCutNoTransfer(t *testing.T) {
	t.Parallel()
	l := &lab.Lab{Zones: []*lab.Zone{zoneOfLines("z.test.", "$GENERATE 1-10000 h$ TXT"+strings.Repeat(" "+strings.Repeat("x", 250), 4))}} // 10 MB: more than the buffers hold
	l.DNS.Transfer = []lab.Access{{From: netip.MustParsePrefix("127.0.0.0/8")}}
	s := newServer(t, compile(t, l), nil)
	s.cfg.IdleTimeout = time.Minute
	ap := serve(t, s, "127.0.0.1")
	slow, other := dialFrom(t, 2, ap), dialFrom(t, 3, ap)
	_ = slow.SetReadBuffer(64 << 10)
	conn := &dns.Conn{Conn: slow}
	if err := conn.WriteMsg(new(dns.Msg).SetAxfr("z.test.")); err != nil {
		t.Fatal(err)
	}
	for got, first := 0, true; got < 10000+3; first = false {
		m, err := conn.ReadMsg()
		if err != nil {
			t.Fatalf("after %d records: %v", got, err)
		}
		if got += len(m.Answer); first {
			for range 2 * s.cfg.MaxTCP {
				dialFrom(t, 1, ap)
				dialFrom(t, 2, ap)
			}
			netns.WaitFor(t, "all connections to be accepted", func() bool {
				return testutil.ToFloat64(s.metrics.evicted) == float64(2+4*s.cfg.MaxTCP-s.cfg.MaxTCP)
			})
		}
	}
	_, _ = other.Write(frame(t, 1, "h1.z.test."))
	if m, err := readFrame(other); err != nil || m.Id != 1 {
		t.Errorf("the third client: %v, %v", m, err)
	}
}

// TestLargestFrame sends the longest message that TCP can carry.
func TestLargestFrame(t *testing.T) {
	t.Parallel()
	ap := serve(t, newServer(t, compile(t, wireLab()), nil), "127.0.0.1")
	conn, err := net.Dial("tcp", ap.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	packed, _ := new(dns.Msg).SetQuestion("www.z.test.", dns.TypeA).Pack()
	frame := append([]byte{0xff, 0xff}, packed...)
	if _, err := conn.Write(append(frame, make([]byte, 65535-len(packed))...)); err != nil {
		t.Fatal(err)
	}
	c := &dns.Conn{Conn: conn}
	m, err := c.ReadMsg()
	if err != nil || m.Rcode != dns.RcodeFormatError {
		t.Errorf("%v, %v; want FORMERR", m, err)
	}
	question := new(dns.Msg).SetQuestion("www.z.test.", dns.TypeA)
	if err := c.WriteMsg(question); err != nil {
		t.Fatal(err)
	}
	if m, err := c.ReadMsg(); err != nil || m.Id != question.Id || m.Rcode != dns.RcodeSuccess {
		t.Errorf("the next question: %v, %v", m, err)
	}
}

// TestClientThatDoesNotRead: a client that asks for more than the buffers between hold, and reads none of it, does not keep its connection.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	l := &lab.Lab{Zones: []*lab.Zone{zoneOfLines("z.test.", "$GENERATE 1-60000 h$ A 192.0.2.1")}}
	l.DNS.Transfer = []lab.Access{{From: netip.MustParsePrefix("127.0.0.0/8")}}
	s := newServer(t, compile(t, l), nil)
	s.cfg.IdleTimeout = 500 * time.Millisecond
	c := &dns.Conn{Conn: dial(t, serve(t, s, "127.0.0.1"))}
	for range 8 {
		if err := c.WriteMsg(new(dns.Msg).SetAxfr("z.test.")); err != nil {
			t.Fatal(err)
		}
	}
	netns.WaitFor(t, "a transfer to begin", func() bool { return testutil.ToFloat64(s.metrics.sent) > 0 })
	netns.WaitFor(t, "the connection to be closed", func() bool { return testutil.ToFloat64(s.metrics.tcp) == 0 })
	if n := testutil.ToFloat64(s.metrics.sent); n == 8 {
		t.Error("the buffers held everything: the test shows nothing")
	}
}
