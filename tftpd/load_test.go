package tftpd_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/tftpload"
	"github.com/bootlab/bootlab/tftpd"
)

// load runs tftpload against a site.
func (s *testServer) load(t testing.TB, cfg tftpload.Config) tftpload.Result {
	t.Helper()
	cfg.Server, cfg.Want = s.addr, s.files[cfg.Name]
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	got, err := tftpload.Load(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestStorm lets 200 machines ask at the same moment, in lock-step and in windows.
func TestStorm(t *testing.T) { eachPort(t, testStorm) }

func testStorm(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single, Config: tftpd.Config{Timeout: time.Second}})
	for _, cfg := range []tftpload.Config{{Block: 1468}, {Block: 1468, Window: 8}, {}} {
		cfg.Name, cfg.Clients, cfg.Wait, cfg.Timeout = "images/window", 200, tftpload.Sleep, maxWait // a request that comes late again would start a second transfer
		if got := s.load(t, cfg); got.Done != 200 {
			t.Errorf("blksize %d, window %d: %d done, %d failed: %s", cfg.Block, cfg.Window, got.Done, got.Failed, got.Why)
		}
		for range 200 {
			if e := s.events.next(t); e.Kind != event.TFTPServed {
				t.Errorf("event %+v", e)
			}
		}
	}
}

// TestHalfOpenTransfers has 10,000 clients ask and never answer. Memory stays bounded, and later clients are served.
func TestHalfOpenTransfers(t *testing.T) {
	for name, single := range map[string]bool{"own port": false, "single port": true} {
		t.Run(name, func(t *testing.T) { testHalfOpenTransfers(t, single) }) // one after the other: memory is measured
	}
}

func testHalfOpenTransfers(t *testing.T, single bool) {
	const asking, most = 10_000, 24 << 20
	s := newTestServer(t, testConfig{single: single, Config: tftpd.Config{Timeout: 500 * time.Millisecond, Drain: time.Millisecond}})
	clients := make([]*net.UDPConn, 0, asking)
	defer func() {
		for _, c := range clients {
			_ = c.Close()
		}
	}()
	for i := range asking {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 1, byte(i>>8), byte(i))})
		if err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
		clients = append(clients, c)
	}
	packets := [][]byte{
		request("images/kernel", "octet"), request("images/kernel", "octet", "blksize", "65464", "windowsize", "64"),
		request("boot/52-54-00-00-02-01/ipxe.efi", "octet", "tsize", "0"),
	}
	before, routines := memory(), runtime.NumGoroutine()
	for i, c := range clients {
		if _, err := c.WriteToUDPAddrPort(packets[i%len(packets)], s.addr); err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			time.Sleep(time.Millisecond) // the kernel keeps only so many requests
		}
	}
	grown := memory() - before
	active := testutil.ToFloat64(gauge(t, s, tftpd.MetricActive))
	t.Logf("%v transfers half open: %d KiB, %d goroutines", active, grown>>10, runtime.NumGoroutine()-routines)
	if grown > most {
		t.Errorf("memory grew by %d MiB, want at most %d", grown>>20, most>>20)
	}
	if active == 0 || active > 1280 {
		t.Errorf("%v transfers are under way, want a bound", active)
	}
	// A long timeout: under the race detector, a thousand retransmissions take some seconds on a busy machine.
	got := s.load(t, tftpload.Config{Name: "images/window", Block: 1468, Clients: 20, Wait: tftpload.Sleep, Timeout: 3 * time.Second})
	if got.Failed > 0 {
		t.Errorf("among the silent %d of 20 clients failed: %s", got.Failed, got.Why)
	}
}

// TestUnknownTIDsDisturbNoTransfer: packets of another sender to many transfers, over IPv4 and IPv6.
func TestUnknownTIDsDisturbNoTransfer(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0"} {
		s := newTestServer(t, testConfig{listen: listen})
		ip := net.UDPAddrFromAddrPort(s.addr).IP
		clients := make([]*client, 20)
		for i := range clients {
			conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: ip})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			clients[i] = &client{t: t, conn: conn, server: s.addr}
			clients[i].send(request("images/window", "octet"))
			clients[i].dataAtLast(1)
		}
		other, err := net.ListenUDP("udp", &net.UDPAddr{IP: ip})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { other.Close() })
		for block := 1; block <= 64; block++ {
			for _, c := range clients {
				if _, err := other.WriteToUDPAddrPort([]byte("\x00\x05\x00\x00stop\x00"), c.server); err != nil && block == 1 {
					t.Fatal(err)
				}
				c.ack(block)
			}
			for _, c := range clients {
				c.dataAtLast(block + 1)
			}
		}
		for _, c := range clients {
			c.ack(65)
		}
		for range clients {
			if e := s.events.next(t); e.Kind != event.TFTPServed {
				t.Errorf("on %s: event %+v", listen, e)
			}
		}
	}
}

func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// TestClientsVanishAtAnyBlock: no client that is gone, at whatever point, leaves anything behind.
func TestClientsVanishAtAnyBlock(t *testing.T) { eachPort(t, testClientsVanishAtAnyBlock) }

func testClientsVanishAtAnyBlock(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single, Config: tftpd.Config{Timeout: 10 * time.Millisecond, Retries: 2}})
	for _, window := range []int{0, 4} {
		for _, leave := range []string{"silent", "closed"} {
			for at := range 7 {
				vanish(t, s, window, at, leave)
			}
		}
	}
	netns.WaitFor(t, "the end of transfers whose clients are gone", func() bool { return testutil.ToFloat64(gauge(t, s, tftpd.MetricActive)) == 0 })
	if err := s.stop(); err != nil { // waits for every goroutine
		t.Error(err)
	}
}

// vanish fetches a file of 5 blocks and is gone after that many ACKs, the first of which is of the options if there are any.
func vanish(t *testing.T, s *testServer, window, acks int, leave string) {
	t.Helper()
	c := newClient(t, s.addr)
	ask := request("images/whole", "octet")
	if window > 0 {
		ask = request("images/whole", "octet", "windowsize", fmt.Sprint(window))
	}
	c.send(ask)
	for range acks {
		b := c.receive(maxWait)
		if len(b) < 4 || b[1] == 5 {
			break
		}
		if b[1] == 6 {
			c.ack(0)
			continue
		}
		c.ack(int(b[2])<<8 | int(b[3]))
		if len(b) < 4+512 { // the last
			break
		}
	}
	if leave == "closed" {
		_ = c.conn.Close()
	}
	e := s.events.next(t)
	if e.Kind != event.TFTPFailed && e.Kind != event.TFTPServed {
		t.Errorf("window %d, %s after %d: event %+v", window, leave, acks, e)
	}
	if e.Kind == event.TFTPFailed && !strings.HasPrefix(e.Err, "the client ") {
		t.Errorf("window %d, %s after %d: error %q", window, leave, acks, e.Err)
	}
}

// TestNothingIsAllocatedForABlock compares a long transfer with a short one.
func TestNothingIsAllocatedForABlock(t *testing.T) {
	for _, single := range []bool{false, true} {
		s := newTestServer(t, testConfig{single: single, big: 8 << 20})
		for _, cfg := range []tftpload.Config{{}, {Block: 1468, Window: 16}} {
			cfg.Wait = tftpload.Sleep
			cfg.Name = "images/window"
			short := mallocs(func() { s.load(t, cfg) })
			cfg.Name = "images/big"
			long := mallocs(func() { s.load(t, cfg) })
			blocks := float64((8 << 20) / max(cfg.Block, 512))
			if each := (long - short) / blocks; each > 0.05 {
				t.Errorf("single port %t, window %d: %.2f allocations a block", single, cfg.Window, each)
			}
		}
	}
}

func mallocs(do func()) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs - before.Mallocs)
}
