package datagram_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/host/socket/datagram"
)

// listen opens a socket that reports destinations.
func listen(tb testing.TB, network, address string) (*net.UDPConn, syscall.RawConn) {
	tb.Helper()
	addr, err := net.ResolveUDPAddr(network, address)
	if err != nil {
		tb.Fatal(err)
	}
	conn, err := net.ListenUDP(network, addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	raw, err := conn.SyscallConn()
	if err != nil {
		tb.Fatal(err)
	}
	if err := datagram.Prepare(raw); err != nil {
		tb.Fatal(err)
	}
	return conn, raw
}

func dial(tb testing.TB, to string, server *net.UDPConn) net.Conn {
	tb.Helper()
	conn, err := net.Dial("udp", net.JoinHostPort(to, fmt.Sprint(port(server))))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

func port(c *net.UDPConn) uint16 { return c.LocalAddr().(*net.UDPAddr).AddrPort().Port() }

// TestReplyFromDestination sends to an address that routing would not choose as the source of the reply. A connected client
// hears a reply from that address alone.
func TestReplyFromDestination(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, network, listen, to string }{
		{"IPv4", "udp4", ":0", "127.0.0.2"},
		{"IPv4 on a dual-stack socket", "udp", ":0", "127.0.0.2"},
		{"IPv6", "udp6", "[::]:0", "::1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server, raw := listen(t, c.network, c.listen)
			client := dial(t, c.to, server)
			in, out := datagram.NewReceiver(4, 64), datagram.NewSender(4)
			if _, err := client.Write([]byte("ping")); err != nil {
				t.Fatal(err)
			}
			n, err := in.Receive(raw)
			if err != nil || n != 1 {
				t.Fatalf("received %d, %v", n, err)
			}
			m := in.Message(0)
			from := netip.AddrPortFrom(m.From.Addr().Unmap(), m.From.Port())
			if string(m.Data) != "ping" || from.String() != client.LocalAddr().String() || m.Local != netip.MustParseAddr(c.to) || m.Interface == 0 {
				t.Fatalf("%q from %s to %s on interface %d", m.Data, m.From, m.Local, m.Interface)
			}
			out.Add([]byte("pong"), m.From, m.Local)
			out.Send(raw, func(i int, err error) { t.Errorf("message %d: %v", i, err) })
			b := make([]byte, 64)
			if n, err := client.Read(b); err != nil || string(b[:n]) != "pong" {
				t.Errorf("reply %q, %v", b[:n], err)
			}
		})
	}
}

// TestBatches: what has arrived is received at once and in order; a datagram that is too long has no data.
func TestBatches(t *testing.T) {
	t.Parallel()
	server, raw := listen(t, "udp4", "127.0.0.1:0")
	client := dial(t, "127.0.0.1", server)
	for _, m := range []string{"a", "bb", strings.Repeat("c", 65), "", "dd"} {
		if _, err := client.Write([]byte(m)); err != nil {
			t.Fatal(err)
		}
	}
	in := datagram.NewReceiver(4, 64)
	var got []string
	for _, want := range []int{4, 1} {
		n, err := in.Receive(raw)
		if err != nil || n != want {
			t.Fatalf("received %d, %v, want %d", n, err, want)
		}
		for i := range n {
			m := in.Message(i)
			if got = append(got, string(m.Data)); cap(m.Data) != 64 && m.Data != nil {
				t.Errorf("capacity %d", cap(m.Data))
			}
		}
	}
	if strings.Join(got, ",") != "a,bb,,,dd" {
		t.Errorf("received %q", got)
	}
	_ = server.SetReadDeadline(time.Unix(1, 0))
	if _, err := in.Receive(raw); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	_ = server.Close()
	if _, err := in.Receive(raw); !errors.Is(err, net.ErrClosed) {
		t.Errorf("from a closed socket: %v", err)
	}
}

// TestFailuresStaySingle: a datagram that cannot be sent is reported, and the others leave.
func TestFailuresStaySingle(t *testing.T) {
	t.Parallel()
	server, raw := listen(t, "udp4", ":0")
	client := dial(t, "127.0.0.1", server)
	to := client.LocalAddr().(*net.UDPAddr).AddrPort()
	closed := netip.AddrPortFrom(to.Addr(), 0) // no such port
	out := datagram.NewSender(5)
	for i, dst := range []netip.AddrPort{closed, to, closed, to, closed} {
		out.Add(fmt.Append(nil, i), dst, netip.Addr{})
	}
	if out.Len() != 5 {
		t.Errorf("%d queued, want 5", out.Len())
	}
	var failed []int
	out.Send(raw, func(i int, err error) {
		if failed = append(failed, i); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("message %d: %v", i, err)
		}
	})
	if fmt.Sprint(failed) != "[0 2 4]" || out.Len() != 0 {
		t.Errorf("failed %v, %d left", failed, out.Len())
	}
	for _, want := range []string{"1", "3"} {
		b := make([]byte, 9)
		if n, err := client.Read(b); err != nil || string(b[:n]) != want {
			t.Errorf("got %q, %v, want %q", b[:n], err, want)
		}
	}
	_ = server.Close()
	out.Add(nil, to, netip.Addr{})
	out.Send(raw, func(_ int, err error) {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("to a closed socket: %v", err)
		}
	})
}

func TestSingle(t *testing.T) {
	t.Parallel()
	server, raw := listen(t, "udp", ":0")
	client, _ := listen(t, "udp6", "[::1]:0")
	to := client.LocalAddr().(*net.UDPAddr).AddrPort()
	s := datagram.NewSingle(raw, to, 4)
	if received, err := s.Poll(); received || err != nil {
		t.Errorf("polled %t, %v, want nothing", received, err)
	}
	if err := s.Send([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	n, from, err := client.ReadFromUDPAddrPort(b)
	if err != nil || string(b[:n]) != "ping" {
		t.Fatalf("got %q, %v", b[:n], err)
	}
	for range 2 {
		if _, err := client.WriteToUDPAddrPort([]byte("pong and more"), from); err != nil {
			t.Fatal(err)
		}
		if err := s.Receive(); err != nil || string(s.Data()) != "pong" || s.From() != to {
			t.Errorf("received %q from %s, %v", s.Data(), s.From(), err)
		}
	}
	if err := s.Connect(); err != nil {
		t.Fatal(err)
	}
	other, _ := listen(t, "udp6", "[::1]:0")
	_, _ = other.WriteToUDPAddrPort([]byte("other"), from)
	if _, err := client.WriteToUDPAddrPort([]byte("peer"), from); err != nil {
		t.Fatal(err)
	}
	if err := s.Receive(); err != nil || string(s.Data()) != "peer" || s.From() != to {
		t.Errorf("connected: received %q from %s, %v", s.Data(), s.From(), err)
	}
	if err := s.Send([]byte("last")); err != nil {
		t.Error(err)
	}
	_ = server.SetReadDeadline(time.Unix(1, 0))
	if err := s.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
}

// TestSegments: the kernel splits what AddSegments queues.
func TestSegments(t *testing.T) {
	t.Parallel()
	server, raw := listen(t, "udp4", ":0")
	client := dial(t, "127.0.0.1", server)
	out := datagram.NewSender(1)
	out.AddSegments([]byte("aabbc"), 2, client.LocalAddr().(*net.UDPAddr).AddrPort(), netip.MustParseAddr("127.0.0.1"))
	out.Send(raw, func(_ int, err error) { t.Error(err) })
	for _, want := range []string{"aa", "bb", "c"} {
		b := make([]byte, 9)
		if n, err := client.Read(b); err != nil || string(b[:n]) != want {
			t.Errorf("got %q, %v, want %q", b[:n], err, want)
		}
	}
}

func BenchmarkReceiveAndSend(b *testing.B) {
	for _, size := range []int{1, 8, 32} {
		b.Run(fmt.Sprint("batch=", size), func(b *testing.B) {
			server, raw := listen(b, "udp", ":0") // dual-stack: the longest control messages
			client, rawClient := listen(b, "udp4", "127.0.0.1:0")
			to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port(server))
			in, out := datagram.NewReceiver(size, 512), datagram.NewSender(size)
			replies, requests := datagram.NewReceiver(size, 512), datagram.NewSender(size)
			fail := func(_ int, err error) { b.Error(err) }
			_ = client.SetDeadline(time.Now().Add(time.Hour))
			payload := make([]byte, 300)
			b.ReportAllocs()
			for left := b.N; left > 0; {
				n := min(size, left)
				for range n {
					requests.Add(payload, to, netip.Addr{})
				}
				requests.Send(rawClient, fail)
				for got := 0; got < n; {
					k, err := in.Receive(raw)
					if err != nil {
						b.Fatal(err)
					}
					for i := range k {
						m := in.Message(i)
						out.Add(m.Data, m.From, m.Local)
					}
					out.Send(raw, fail)
					got += k
				}
				for got := 0; got < n; {
					k, err := replies.Receive(rawClient)
					if err != nil {
						b.Fatal(err)
					}
					got += k
				}
				left -= n
			}
		})
	}
}
