package tftpd_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	pin "github.com/pin/tftp/v3"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/tftpd"
)

// TestEventsHideTokens is about a machine that takes the URL of its document for a TFTP name.
func TestEventsHideTokens(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, testConfig{})
	c := newClient(t, s.addr)
	c.send(request("config/52-54-00-00-00-01/TSABOVZ2BFSNHX3QTQAMRH2CUE/worker.ign", "octet"))
	c.errorPacket()
	if e := s.events.next(t); e.Detail != "config/52-54-00-00-00-01/…/worker.ign" || strings.Contains(e.Err, "TSABO") || e.Err == "" {
		t.Errorf("event %+v", e)
	}
}

func TestStrayPacketsGetNoReply(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, testConfig{})
	for _, b := range []string{"", "\x00", "\x00\x04\x00\x01", "\x00\x05\x00\x00no\x00", "\x00\x03\x00\x01data", "\x00\x01", "\xff\xff\xff"} {
		c := newClient(t, s.addr)
		c.send([]byte(b))
		if got := c.receive(30 * time.Millisecond); got != nil {
			t.Errorf("%q was answered with %q", b, got)
		}
	}
}

func TestStopFinishesTransfers(t *testing.T) { eachPort(t, testStopFinishesTransfers) }

func testStopFinishesTransfers(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single, Config: tftpd.Config{Drain: 20 * time.Second}})
	c := newClient(t, s.addr)
	c.send(request("images/whole", "octet"))
	c.data(1)
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop() }()
	for block := 1; block <= 4; block++ {
		c.ack(block)
		c.dataAtLast(block + 1)
	}
	select {
	case <-stopped:
		t.Fatal("Serve returned in the middle of a transfer")
	case <-time.After(50 * time.Millisecond):
	}
	c.ack(5)
	if err := <-stopped; err != nil {
		t.Errorf("serve = %v", err)
	}
	if e := s.events.next(t); e.Kind != event.TFTPServed {
		t.Errorf("event %+v", e)
	}
}

func TestStopAbortsWhatTakesTooLong(t *testing.T) { eachPort(t, testStopAbortsWhatTakesTooLong) }

func testStopAbortsWhatTakesTooLong(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single, Config: tftpd.Config{Drain: 50 * time.Millisecond}})
	c := newClient(t, s.addr)
	c.send(request("images/whole", "octet"))
	c.data(1)
	if err := s.stop(); err != nil {
		t.Errorf("serve = %v", err)
	}
	if got := c.errorPacket(); got != "0 transfer aborted" {
		t.Errorf("error %q", got)
	}
	if e := s.events.next(t); e.Kind != event.TFTPFailed || e.Err != "the server is stopping" {
		t.Errorf("event %+v", e)
	}
}

// TestAnswersFromTheAddressAsked asks a wildcard socket by each of several addresses.
func TestAnswersFromTheAddressAsked(t *testing.T) { eachPort(t, testAnswersFromTheAddressAsked) }

func testAnswersFromTheAddressAsked(t *testing.T, single bool) {
	for _, listen := range []string{"0.0.0.0:0", "[::]:0"} {
		s := newTestServer(t, testConfig{single: single, listen: listen})
		for _, addr := range []string{"127.0.0.1", "127.0.0.2", "127.9.8.7"} {
			asked := netip.AddrPortFrom(netip.MustParseAddr(addr), s.addr.Port())
			c := newClient(t, asked)
			c.send(request("images/one", "octet"))
			c.data(1)
			if c.server.Addr() != asked.Addr() {
				t.Errorf("on %s, asked %s, answered from %s", listen, asked.Addr(), c.server.Addr())
			}
			c.ack(1)
			s.events.next(t)
		}
	}
}

func TestIPv6(t *testing.T) { eachPort(t, testIPv6) }

func testIPv6(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single, listen: "[::1]:0"})
	got, err := s.fetch(t, "images/kernel", "octet", func(c *pin.Client) { c.SetBlockSize(1400) })
	if err != nil || !bytes.Equal(got, s.files["images/kernel"]) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestRollover fetches more than 65535 blocks.
func TestRollover(t *testing.T) { eachPort(t, testRollover) }

func testRollover(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single, big: 65536*512 + 700})
	got, err := windowedGet(t, newClient(t, s.addr), "images/big", 512, 64, habits{})
	if err != nil || !bytes.Equal(got, s.files["images/big"]) {
		t.Errorf("%d bytes, %v, want %d", len(got), err, len(s.files["images/big"]))
	}
}

// TestSlowReader is a client that loses a block and takes its time over every packet that it did not expect, with a word about each.
// The block comes again behind the rest of the window; what it is sent at each of its words only makes it wait longer.
func TestSlowReader(t *testing.T) { eachPort(t, testSlowReader) }

func testSlowReader(t *testing.T, single bool) {
	const window = 64
	s := newTestServer(t, testConfig{single: single, big: 10 * window * 512, Config: tftpd.Config{Timeout: time.Second}})
	got, err := windowedGet(t, newClient(t, s.addr), "images/big", 512, window, habits{loses: 4*window + 2, pace: 3 * time.Millisecond})
	if err != nil || !bytes.Equal(got, s.files["images/big"]) {
		t.Errorf("%d bytes, %v, want %d", len(got), err, len(s.files["images/big"]))
	}
}

// habits are a client's.
type habits struct {
	loses int           // a block, once; 0: none
	pace  time.Duration // for each packet that it did not expect
}

// windowedGet is a plain RFC 7440 client.
func windowedGet(t testing.TB, c *client, name string, block, window int, h habits) ([]byte, error) {
	t.Helper()
	c.send(request(name, "octet", "blksize", fmt.Sprint(block), "windowsize", fmt.Sprint(window)))
	c.oack()
	c.ack(0)
	var out bytes.Buffer
	b := make([]byte, 65536)
	for expect, inWindow := 1, 0; ; {
		if err := c.conn.SetReadDeadline(time.Now().Add(maxWait)); err != nil {
			return nil, err
		}
		n, _, err := c.conn.ReadFromUDPAddrPort(b)
		if err != nil {
			return out.Bytes(), err
		}
		if n < 4 || b[1] != 3 {
			return out.Bytes(), fmt.Errorf("got %.20q", b[:n])
		}
		if expect == h.loses {
			h.loses = 0
			continue
		}
		if binary.BigEndian.Uint16(b[2:]) != uint16(expect) {
			time.Sleep(h.pace)
			c.ack(expect - 1)
			inWindow = 0
			continue
		}
		out.Write(b[4:n])
		expect++
		inWindow++
		last := n-4 < block
		if inWindow == window || last {
			c.ack(expect - 1)
			inWindow = 0
		}
		if last {
			return out.Bytes(), nil
		}
	}
}

// manyHosts is a lab of n hosts that boot one profile.
func manyHosts(n int) *lab.Lab {
	p := &lab.Profile{Name: "p", Kernel: "images/kernel", Config: "ignition/{{.Host.Role}}.ign"}
	l := &lab.Lab{Profiles: []*lab.Profile{p}}
	for i := range n {
		l.Hosts = append(l.Hosts, &lab.Host{Name: fmt.Sprint("h", i), Role: "worker", Profile: p})
	}
	return l
}
