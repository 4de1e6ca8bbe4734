package tftpd_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/tftpd"
)

// holding starts a transfer, acknowledges that many blocks of 8 bytes, and then nothing more.
func holding(t *testing.T, s *testServer, addr string, blocks int) *client {
	t.Helper()
	c := newClientFrom(t, addr, s.addr)
	c.send(request("images/kernel", "octet", "blksize", "8"))
	c.oack()
	c.ack(0)
	for block := 1; block <= blocks; block++ {
		c.dataAtLast(block)
		c.ack(block)
	}
	c.dataAtLast(blocks + 1) // its last answer has arrived
	return c
}

// TestOneClientHoldsAllTransfers: a client that answers, and keeps its transfers, loses its oldest to others, and gets no more itself.
func TestOneClientHoldsAllTransfers(t *testing.T) { eachPort(t, testOneClientHoldsAllTransfers) }

func testOneClientHoldsAllTransfers(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single, Config: tftpd.Config{MaxTransfers: 8, Drain: time.Millisecond}})
	var held []*client
	for range 8 {
		held = append(held, holding(t, s, "127.0.0.2", 1))
	}
	if full, ok := s.server.Full(); ok {
		t.Errorf("nothing was dropped, and it is %+v", full)
	}
	another := newClientFrom(t, "127.0.0.2", s.addr)
	another.send(request("boot/52-54-00-00-02-01/ipxe.efi", "octet"))
	if e, want := s.events.next(t), (event.Event{
		Kind: event.TFTPRefused, MAC: mac, Addr: netip.MustParseAddr("127.0.0.2"), Detail: "boot/52-54-00-00-02-01/ipxe.efi", Reason: event.Busy, Err: "all transfers are in use", Unverified: true,
	}); e != want {
		t.Errorf("event %+v, want %+v", e, want)
	}
	full, ok := s.server.Full()
	if !ok || full.Since.IsZero() {
		t.Error("a request was dropped, and the server does not say that it is full")
	}
	full.Since = time.Time{}
	if want := (tftpd.Full{Dropped: 1, Max: 8, Client: netip.MustParseAddr("127.0.0.2"), Held: 8}); full != want {
		t.Errorf("%+v, want %+v", full, want)
	}
	asked := []*client{newClientFrom(t, "127.0.0.3", s.addr), newClientFrom(t, "127.0.0.4", s.addr)} // at once: the first has not answered yet
	for _, c := range asked {
		c.send(request("images/one", "octet"))
	}
	for _, c := range asked {
		c.data(1)
	}
	for range asked {
		if e := s.events.next(t); e.Kind != event.TFTPFailed || e.Reason != event.Busy || e.Addr.String() != "127.0.0.2" || e.Bytes != 8 {
			t.Errorf("event %+v, want the end of a transfer of the client with the most", e)
		}
	}
	if got := held[1].errorPacket(); got != "0 transfer aborted" {
		t.Errorf("the evicted client gets %q", got)
	}
	if n := testutil.ToFloat64(counter(t, s, tftpd.MetricDropped, "busy")); n != 1 {
		t.Errorf("%v requests were dropped, want that of the client with the most", n)
	}
}

// TestSlowestOfEquals: where all clients have one transfer, one that takes almost nothing loses it to another client in the end.
func TestSlowestOfEquals(t *testing.T) { eachPort(t, testSlowestOfEquals) }

func testSlowestOfEquals(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single, Config: tftpd.Config{MaxTransfers: 2, Timeout: 50 * time.Millisecond, Retries: 10_000, Drain: time.Millisecond}})
	for _, addr := range []string{"127.0.0.2", "127.0.0.3"} {
		holding(t, s, addr, 1)
	}
	c := newClientFrom(t, "127.0.0.4", s.addr)
	got := false
	netns.WaitFor(t, "a slot", func() bool {
		c.send(request("images/one", "octet"))
		got = got || c.receive(50*time.Millisecond) != nil
		return got
	})
}
