package tftpd_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	pin "github.com/pin/tftp/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/panics"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/tftpd"
	"log/slog"
)

func TestPinClient(t *testing.T) { eachPort(t, testPinClient) }

func testPinClient(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single})
	for name, want := range s.files {
		if strings.Contains(name, "text") {
			continue
		}
		for _, block := range []int{0, 8192, 1400} {
			got, err := s.fetch(t, name, "octet", func(c *pin.Client) {
				if block > 0 {
					c.SetBlockSize(block)
				}
				c.RequestTSize(true)
			})
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s with blksize %d: %d bytes, %v, want %d", name, block, len(got), err, len(want))
			}
			e := event.Event{Kind: event.TFTPServed, Addr: netip.MustParseAddr("127.0.0.1"), Detail: name, Bytes: int64(len(want))}
			if strings.HasPrefix(name, "boot/") {
				e.MAC = mac
			}
			if diff := cmp.Diff(e, s.events.next(t), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		}
	}
}

func TestNetascii(t *testing.T) { eachPort(t, testNetascii) }

func testNetascii(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single})
	c := newClient(t, s.addr)
	c.send(request("public/text", "NetASCII", "tsize", "0"))
	if got, want := c.data(1), "one\r\ntwo\r\x00\r\nthree\r\x00"; got != want {
		t.Errorf("data = %q, want %q", got, want)
	}
	c.ack(1)
}

func TestScripts(t *testing.T) { eachPort(t, testScripts) }

func testScripts(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single, leases: leases{netip.MustParseAddr("127.0.0.1"): mac}})
	for name, want := range map[string]string{
		"boot/52-54-00-00-02-02/boot.ipxe":     "#!ipxe\n# boot.ipxe for 52:54:00:00:02:02 at 127.0.0.1\n",
		"boot/52-54-00-00-02-02/autoexec.ipxe": "#!ipxe\n# autoexec.ipxe for 52:54:00:00:02:02 at 127.0.0.1\n",
		"autoexec.ipxe":                        "#!ipxe\n# autoexec.ipxe for 52:54:00:00:02:01 at 127.0.0.1\n",
		"/boot.ipxe":                           "#!ipxe\n# boot.ipxe for 52:54:00:00:02:01 at 127.0.0.1\n",
	} {
		got, err := s.fetch(t, name, "octet", nil)
		if err != nil || string(got) != want {
			t.Errorf("%s = %q, %v, want %q", name, got, err, want)
		}
		if e := s.events.next(t); e.Kind != event.TFTPServed {
			t.Errorf("%s: event %+v", name, e)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, testConfig{})
	tests := []struct {
		name, file, mode string
		write            bool
		want             string // code and message
		event            string // Err of the event; empty: no event
	}{
		{name: "not there", file: "images/missing", want: "1 file not found", event: "file not found"},
		{name: "not to be served", file: "ignition/x.ign", want: "2 access violation", event: "not to be served: a config document, a template or a secret of the lab"},
		{name: "outside", file: "../etc/passwd", want: "2 access violation", event: "no such path"},
		{name: "named by no profile", file: "nosuch", want: "1 file not found", event: "not to be served: no profile names it, and it is not below public/: name it in a profile, or put it below files/public/"},
		{name: "there, and named by no profile", file: "public", want: "1 file not found", event: "not to be served: no profile names it, and it is not below public/: name it in a profile, or put it below files/public/"},
		{name: "no such firmware", file: "boot/52-54-00-00-02-01/grubx64.efi", want: "1 file not found", event: "file not found"},
		{name: "unknown address", file: "autoexec.ipxe", want: "1 file not found", event: "the address is leased to no machine"},
		{name: "no script", file: "boot/52-54-00-00-02-ee/boot.ipxe", want: "1 no boot script"},
		{name: "forbidden script", file: "boot/52-54-00-00-02-ef/boot.ipxe", want: "2 no boot script"},
		{name: "write", file: "images/kernel", write: true, want: "2 read-only server", event: "a write request: the server is read-only"},
		{name: "mail", file: "images/kernel", mode: "mail", want: "4 unknown mode", event: `mode "mail": want octet or netascii`},
	}
	for _, tt := range tests {
		c := newClient(t, s.addr)
		r := tftpd.Request{Write: tt.write, Name: tt.file, Mode: tt.mode}
		if r.Mode == "" {
			r.Mode = "octet"
		}
		c.send(r.Append(nil))
		if got := c.errorPacket(); got != tt.want {
			t.Errorf("%s: error %q, want %q", tt.name, got, tt.want)
		}
		if tt.event == "" {
			continue
		}
		if e := s.events.next(t); e.Kind != event.TFTPRefused || e.Err != tt.event || e.Detail != tt.file {
			t.Errorf("%s: event %+v, want refused with %q", tt.name, e, tt.event)
		}
	}
	s.events.none(t)
	if n := testutil.ToFloat64(counter(t, s, tftpd.MetricTransfers, "refused")); n != float64(len(tests)) {
		t.Errorf("%v refused transfers counted, want %d", n, len(tests))
	}
}

// counter reads one counter out of the registry, as a scrape would.
func counter(t *testing.T, s *testServer, name, label string) prometheus.Collector {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "x"})
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == label) {
				g.Set(m.GetCounter().GetValue())
				return g
			}
		}
	}
	t.Fatalf("no metric %s{%s}", name, label)
	return nil
}

// gauge reads one gauge out of the registry.
func gauge(t *testing.T, s *testServer, name string) prometheus.Collector {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "x"})
	for _, f := range families {
		if f.GetName() == name {
			g.Set(f.GetMetric()[0].GetGauge().GetValue())
			return g
		}
	}
	t.Fatalf("no metric %s", name)
	return nil
}

func TestHandlerPanicEndsNothing(t *testing.T) { eachPort(t, testHandlerPanicEndsNothing) }

func testHandlerPanicEndsNothing(t *testing.T, single bool) {
	all, err := panics.New(prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := newTestServer(t, testConfig{single: single, panics: all.Server("tftpd")})
	newClient(t, s.addr).send(request("boot/52-54-00-00-02-fe/boot.ipxe", "octet"))
	defer netns.WaitFor(t, "the panic to be counted", func() bool { return all.Counts()["tftpd"].N == 1 })
	if got, err := s.fetch(t, "images/one", "octet", nil); err != nil || len(got) != 1 {
		t.Errorf("after a panic: %q, %v", got, err)
	}
}

func TestWholeBlocksEndWithAnEmptyOne(t *testing.T) { eachPort(t, testWholeBlocksEndWithAnEmptyOne) }

func testWholeBlocksEndWithAnEmptyOne(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single})
	c := newClient(t, s.addr)
	c.send(request("images/whole", "octet"))
	for block := 1; block <= 4; block++ {
		if n := len(c.data(block)); n != 512 {
			t.Errorf("block %d has %d bytes", block, n)
		}
		c.ack(block)
	}
	if got := c.data(5); got != "" {
		t.Errorf("last block = %q, want an empty one", got)
	}
	s.events.none(t)
	c.ack(5)
	if e := s.events.next(t); e.Kind != event.TFTPServed || e.Bytes != 2048 {
		t.Errorf("event %+v", e)
	}
}

func TestSizeProbe(t *testing.T) { eachPort(t, testSizeProbe) }

func testSizeProbe(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single})
	c := newClient(t, s.addr)
	c.send(request("boot/52-54-00-00-02-01/ipxe.efi", "octet", "tsize", "0", "blksize", "1468", "windowsize", "4"))
	if got, want := c.oack(), "tsize 80000 blksize 1468 windowsize 4 "; got != want {
		t.Errorf("oack = %q, want %q", got, want)
	}
	c.send([]byte("\x00\x05\x00\x08User aborted the transfer\x00"))
	want := event.Event{Kind: event.TFTPProbe, MAC: mac, Addr: netip.MustParseAddr("127.0.0.1"), Detail: "boot/52-54-00-00-02-01/ipxe.efi", Unverified: true}
	if diff := cmp.Diff(want, s.events.next(t), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}

func TestClientGivesUp(t *testing.T) { eachPort(t, testClientGivesUp) }

func testClientGivesUp(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single})
	c := newClient(t, s.addr)
	c.send(request("images/kernel", "octet"))
	c.data(1)
	c.ack(1)
	c.data(2)
	c.send([]byte("\x00\x05\x00\x03disk\x01full\x00"))
	e := s.events.next(t)
	if e.Kind != event.TFTPFailed || e.Bytes != 512 || e.Err != "the client sent error 3 \"disk\uFFFDfull\"" {
		t.Errorf("event %+v", e)
	}
}

func TestRetransmission(t *testing.T) { eachPort(t, testRetransmission) }

func testRetransmission(t *testing.T, single bool) {
	const base = 40 * time.Millisecond
	s := newTestServer(t, testConfig{single: single, Config: tftpd.Config{Timeout: base, Retries: 3}})
	c := newClient(t, s.addr)
	c.send(request("images/kernel", "octet"))
	c.data(1)
	at := time.Now()
	c.ack(1)                   // it has answered once
	first := c.dataInTheEnd(2) // a machine that stands still gets block 1 again
	for try := range 3 {
		if again := c.data(2); again != first {
			t.Errorf("retransmission %d differs", try)
		}
	}
	// 1, 2 and 4 times the first wait.
	if took := time.Since(at); took < 6*base {
		t.Errorf("three retransmissions within %v, want the waits to double", took)
	}
	if got := c.errorPacket(); got != "0 transfer aborted" {
		t.Errorf("error %q", got)
	}
	if e := s.events.next(t); e.Kind != event.TFTPFailed || e.Err != "the client stopped answering" || e.Reason != event.Stalled || e.Size == 0 || e.Bytes >= e.Size {
		t.Errorf("event %+v", e)
	}
	if n := testutil.ToFloat64(counter(t, s, tftpd.MetricResent, "")); n < 3 {
		t.Errorf("%v blocks counted as sent again, want 3", n)
	}
}

// TestClientThatNeverAnswers: its address may be forged, so it gets fewer retransmissions than one that has answered.
func TestClientThatNeverAnswers(t *testing.T) { eachPort(t, testClientThatNeverAnswers) }

func testClientThatNeverAnswers(t *testing.T, single bool) {
	for name, options := range map[string][]string{"a block": nil, "an OACK": {"blksize", "1024"}} {
		s := newTestServer(t, testConfig{single: single, Config: tftpd.Config{Timeout: 10 * time.Millisecond}})
		c := newClient(t, s.addr)
		c.send(request("images/kernel", "octet", options...))
		packets := 0
		for b := c.receive(maxWait); b[1] != 5; b = c.receive(maxWait) {
			packets++
		}
		if packets != 3 {
			t.Errorf("%s was sent %d times to a client that never answered, want 3", name, packets)
		}
	}
}

func TestTimeoutOptionIsHonoured(t *testing.T) { eachPort(t, testTimeoutOptionIsHonoured) }

func testTimeoutOptionIsHonoured(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single, Config: tftpd.Config{Timeout: 10 * time.Millisecond}})
	c := newClient(t, s.addr)
	at := time.Now()
	c.send(request("images/kernel", "octet", "timeout", "1"))
	if got := c.oack(); got != "timeout 1 " {
		t.Fatalf("oack = %q", got)
	}
	if b := c.receive(700 * time.Millisecond); b != nil && time.Since(at) < time.Second {
		t.Errorf("got %.20q before the timeout that was agreed on", b)
	} else if b != nil {
		return // it is late, and so is this test
	}
	if got := c.oack(); got != "timeout 1 " {
		t.Errorf("second oack = %q", got)
	}
}

// TestSorcerersApprentice doubles every ACK. In lock-step no block may come twice. In windows a doubled ACK can also mean
// that a block was lost, so that a machine too busy to answer in time may see a window again, but not every window.
func TestSorcerersApprentice(t *testing.T) { eachPort(t, testSorcerersApprentice) }

func testSorcerersApprentice(t *testing.T, single bool) {
	for window, most := range map[int]float64{1: 0, 4: 20} {
		netns.Tries(t, 3, func(int) string { // a stalled client or server retransmits
			s := newTestServer(t, testConfig{single: single})
			c := newClient(t, s.addr)
			c.send(request("images/window", "octet", "windowsize", fmt.Sprint(window)))
			c.oack()
			c.ack(0)
			for block := 1; block <= 65; block++ {
				c.dataAtLast(block)
				if block%window == 0 || block == 65 {
					c.ack(block)
					c.ack(block)
				}
			}
			if e := s.events.next(t); e.Kind != event.TFTPServed {
				t.Errorf("window %d: event %+v", window, e)
			}
			if n := testutil.ToFloat64(counter(t, s, tftpd.MetricResent, "")); n > most {
				return fmt.Sprintf("window %d: %v of 65 blocks came twice, want at most %v", window, n, most)
			}
			return ""
		})
	}
}

func TestWindowRewindsToTheGap(t *testing.T) { eachPort(t, testWindowRewindsToTheGap) }

func testWindowRewindsToTheGap(t *testing.T, single bool) {
	// A retransmission by the timer would come too late for the client.
	s := newTestServer(t, testConfig{single: single, Config: tftpd.Config{Timeout: 5 * maxWait}})
	c := newClient(t, s.addr)
	c.send(request("images/window", "octet", "windowsize", "8"))
	c.oack()
	c.ack(0)
	for block := 1; block <= 8; block++ {
		c.dataAtLast(block)
	}
	c.ack(3) // block 4 got lost
	for block := 4; block <= 11; block++ {
		c.dataAtLast(block)
	}
	c.ack(11)
	for block := 12; block <= 19; block++ {
		c.dataAtLast(block)
	}
	c.ack(11) // block 12, the first, got lost
	for block := 12; block <= 19; block++ {
		c.dataAtLast(block)
	}
}

func TestUnknownTIDGetsError5(t *testing.T) { eachPort(t, testUnknownTIDGetsError5) }

func testUnknownTIDGetsError5(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single})
	c := newClient(t, s.addr)
	c.send(request("images/one", "octet"))
	c.data(1)
	other := newClient(t, c.server)
	other.ack(1)
	if got := other.errorPacket(); got != "5 unknown transfer" {
		t.Errorf("error %q", got)
	}
	s.events.none(t)
	c.ack(1)
	if e := s.events.next(t); e.Kind != event.TFTPServed {
		t.Errorf("event %+v", e)
	}
}

// TestDuplicateRequest is about requests that come again: because the answer was late, because they were on their way for long,
// or because a machine has started over with the same port.
func TestDuplicateRequest(t *testing.T) { eachPort(t, testDuplicateRequest) }

func testDuplicateRequest(t *testing.T, single bool) {
	const timeout = time.Second
	s := newTestServer(t, testConfig{single: single, Config: tftpd.Config{Timeout: timeout, Retries: 9}})
	c := newClient(t, s.addr)
	ask := func(name string) {
		t.Helper()
		if _, err := c.conn.WriteToUDPAddrPort(request(name, "octet"), s.addr); err != nil {
			t.Fatal(err)
		}
	}
	ask("images/window")
	ask("images/window")
	c.data(1)
	if b := c.receive(50 * time.Millisecond); b != nil {
		t.Errorf("the same request again was answered with %.20q", b)
	}
	c.ack(1)
	c.dataAtLast(2)
	ask("images/window") // it was on its way for long
	c.ack(2)
	c.dataAtLast(3)
	s.events.none(t)
	time.Sleep(3*timeout + timeout/10) // a request after this silence is a restarted client
	ask("images/window")
	if e := s.events.next(t); e.Kind != event.TFTPFailed || e.Err != "the client started over" {
		t.Errorf("event %+v", e)
	}
	c.dataInTheEnd(1)
	ask("images/one") // one port fetches one file at a time
	if e := s.events.next(t); e.Kind != event.TFTPFailed || e.Err != "the client started over" {
		t.Errorf("event %+v", e)
	}
	c.dataInTheEnd(1)
}

func TestGoneClient(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, testConfig{Config: tftpd.Config{Timeout: 500 * time.Millisecond}}) // in which the port is closed
	c := newClient(t, s.addr)
	c.send(request("images/window", "octet"))
	c.data(1)
	c.conn.Close()
	if e := s.events.next(t); e.Kind != event.TFTPFailed || e.Err != "the client closed its port" {
		t.Errorf("event %+v", e)
	}
}

func TestLastAckMissing(t *testing.T) { eachPort(t, testLastAckMissing) }

func testLastAckMissing(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single, Config: tftpd.Config{Timeout: 500 * time.Millisecond}}) // in which the port is closed
	c := newClient(t, s.addr)
	c.send(request("images/one", "octet"))
	c.data(1)
	c.conn.Close() // it has the file, and its ACK got lost
	if e := s.events.next(t); e.Kind != event.TFTPServed || e.Bytes != 1 {
		t.Errorf("event %+v", e)
	}
}

func TestTooManyTransfers(t *testing.T) { eachPort(t, testTooManyTransfers) }

func testTooManyTransfers(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single, Config: tftpd.Config{MaxTransfers: 2, Drain: time.Millisecond}})
	for range 2 {
		c := newClient(t, s.addr)
		c.send(request("images/window", "octet"))
		c.data(1)
	}
	c := newClient(t, s.addr)
	c.send(request("images/one", "octet"))
	if b := c.receive(200 * time.Millisecond); b != nil {
		t.Errorf("a transfer too many was answered with %.20q", b)
	}
	netns.WaitFor(t, "a request counted as dropped", func() bool {
		return testutil.ToFloat64(counter(t, s, tftpd.MetricDropped, "busy")) == 1
	})
}

// TestSilentClientsAreEvicted is about a flood of requests whose clients never answer.
func TestSilentClientsAreEvicted(t *testing.T) { eachPort(t, testSilentClientsAreEvicted) }

func testSilentClientsAreEvicted(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single, Config: tftpd.Config{MaxTransfers: 2, Timeout: 50 * time.Millisecond, Retries: 100, Drain: time.Millisecond}})
	busy := newClient(t, s.addr)
	busy.send(request("images/whole", "octet"))
	busy.dataAtLast(1)
	busy.ack(1)
	busy.dataAtLast(2)
	silent := newClient(t, s.addr)
	silent.send(request("images/window", "octet"))
	silent.data(1)
	c := newClient(t, s.addr)
	for deadline := time.Now().Add(maxWait); ; {
		c.send(request("images/one", "octet"))
		if b := c.receive(60 * time.Millisecond); b != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a client that does not answer keeps others out")
		}
	}
	c.ack(1)
	e := s.events.next(t)
	for e.Kind == event.TFTPServed || e.Kind == event.TFTPRefused { // to c, whose events may come first
		e = s.events.next(t)
	}
	if !strings.Contains(e.Err, "never answered") {
		t.Errorf("event %+v, want why the silent one was ended", e)
	}
	busy.ack(2)
	for {
		b := busy.receive(maxWait) // block 2 may come again first
		if b == nil {
			t.Fatal("a transfer under way was ended")
		}
		if binary.BigEndian.Uint16(b[2:]) == 3 {
			break
		}
	}
}
