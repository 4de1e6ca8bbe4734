package tftpd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	pin "github.com/pin/tftp/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"bootlab/internal/event"
	"bootlab/internal/lab"
	"bootlab/tftpd"
)

var mac = lab.MAC{0x52, 0x54, 0, 0, 2, 1}

// notes is an event.Recorder that keeps what it is told.
type notes struct{ events chan event.Event }

func (n notes) Record(e event.Event) { n.events <- e }

// next returns the next event without its duration.
func (n notes) next(t testing.TB) event.Event {
	t.Helper()
	select {
	case e := <-n.events:
		e.Dur = 0
		return e
	case <-time.After(20 * time.Second):
		t.Fatal("no event")
		panic("unreachable")
	}
}

// none fails if there is an event.
func (n notes) none(t testing.TB) {
	t.Helper()
	select {
	case e := <-n.events:
		t.Errorf("event %+v, want none", e)
	default:
	}
}

type desk struct{}

type statusError int

func (e statusError) Error() string   { return fmt.Sprintf("status %d", int(e)) }
func (e statusError) HTTPStatus() int { return int(e) }

func (desk) Script(_ context.Context, m lab.MAC, from netip.Addr, name string) ([]byte, error) {
	switch m[5] {
	case 0xee:
		return nil, statusError(404)
	case 0xef:
		return nil, statusError(403)
	case 0xfe:
		panic("a bug of the desk")
	}
	return []byte("#!ipxe\n# " + name + " for " + m.String() + " at " + from.String() + "\n"), nil
}

type leases map[netip.Addr]lab.MAC

func (l leases) MAC(a netip.Addr) (lab.MAC, bool) {
	m, ok := l[a]
	return m, ok
}

// noise returns n bytes that no two blocks of are alike.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), 7})
	_, _ = r.Read(b)
	return b
}

// A site is a running server and what it serves.
type site struct {
	addr     netip.AddrPort
	dir      string // of the files
	files    map[string][]byte
	notes    notes
	registry *prometheus.Registry
	stop     func() error // cancels and waits for Serve
}

// eachPort runs a test with a port for each transfer, and with one that all share.
func eachPort(t *testing.T, test func(t *testing.T, single bool)) {
	t.Parallel()
	for name, single := range map[string]bool{"own port": false, "single port": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, single)
		})
	}
}

type siteConfig struct {
	tftpd.Config
	single bool // all transfers share the port
	listen string
	leases leases
	big    int // size of images/big
}

func newSite(t testing.TB, c siteConfig) *site {
	t.Helper()
	c.SinglePort = c.single
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second // no timer interferes with a test that is not about timers, on a busy machine either
	}
	if c.Drain == 0 {
		c.Drain = 100 * time.Millisecond // transfers that a test leaves in the middle are not waited for
	}
	files := map[string][]byte{
		"images/kernel": noise(300_001), "images/empty": {}, "images/whole": noise(512 * 4), "images/one": {1},
		"images/window": noise(512 * 64), "public/text": []byte("one\ntwo\r\nthree\r"),
	}
	if c.big > 0 {
		files["images/big"] = noise(c.big)
	}
	dir := t.TempDir()
	for name, b := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	firmware := noise(80_000)
	files["boot/52-54-00-00-02-01/ipxe.efi"] = firmware
	l := &lab.Lab{Appliance: lab.Appliance{Files: dir}, Profiles: []*lab.Profile{{Name: "p", Kernel: "images/kernel",
		Initrd: []string{"images/empty", "images/whole", "images/one", "images/window", "images/big", "images/missing"}, Config: "ignition/x.ign"}}}
	table, err := tftpd.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{dir: dir, files: files, notes: notes{make(chan event.Event, 10_000)}, registry: prometheus.NewRegistry()}
	server, err := tftpd.New(c.Config, tftpd.Deps{
		Table: func() *tftpd.Table { return table }, Firmware: fstest.MapFS{"ipxe.efi": {Data: firmware}},
		Scripts: desk{}, Leases: c.leases, Events: s.notes, Log: slog.New(slog.DiscardHandler), Metrics: s.registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.listen == "" {
		c.listen = "127.0.0.1:0"
	}
	addr, err := net.ResolveUDPAddr("udp", c.listen)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenUDP("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s.addr = conn.LocalAddr().(*net.UDPAddr).AddrPort()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, conn) }()
	s.stop = sync.OnceValue(func() error {
		cancel()
		defer conn.Close()
		return <-served
	})
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s
}

// fetch reads a file with pin's client.
func (s *site) fetch(t testing.TB, name, mode string, set func(*pin.Client)) ([]byte, error) {
	t.Helper()
	c, err := pin.NewClient(s.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	c.SetTimeout(2 * time.Second)
	if set != nil {
		set(c)
	}
	w, err := c.Receive(name, mode)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err = w.WriteTo(&b)
	return b.Bytes(), err
}

func TestPinClient(t *testing.T) { eachPort(t, testPinClient) }

func testPinClient(t *testing.T, single bool) {
	s := newSite(t, siteConfig{single: single})
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
			if diff := cmp.Diff(e, s.notes.next(t), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		}
	}
}

func TestNetascii(t *testing.T) { eachPort(t, testNetascii) }

func testNetascii(t *testing.T, single bool) {
	s := newSite(t, siteConfig{single: single})
	c := newClient(t, s.addr)
	c.send(request("public/text", "NetASCII", "tsize", "0"))
	if got, want := c.data(1), "one\r\ntwo\r\x00\r\nthree\r\x00"; got != want {
		t.Errorf("data = %q, want %q", got, want)
	}
	c.ack(1)
}

func TestScripts(t *testing.T) { eachPort(t, testScripts) }

func testScripts(t *testing.T, single bool) {
	s := newSite(t, siteConfig{single: single, leases: leases{netip.MustParseAddr("127.0.0.1"): mac}})
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
		if e := s.notes.next(t); e.Kind != event.TFTPServed {
			t.Errorf("%s: event %+v", name, e)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteConfig{})
	tests := []struct {
		name, file, mode string
		write            bool
		want             string // code and message
		event            string // Err of the event; empty: no event
	}{
		{name: "not there", file: "images/missing", want: "1 file not found", event: "serve images/missing: file does not exist"},
		{name: "not to be served", file: "ignition/x.ign", want: "2 access violation", event: "serve ignition/x.ign: permission denied"},
		{name: "outside", file: "../etc/passwd", want: "2 access violation", event: "no such path"},
		{name: "folder", file: "public", want: "2 access violation", event: "serve public: permission denied"},
		{name: "no such firmware", file: "boot/52-54-00-00-02-01/grubx64.efi", want: "1 file not found", event: "open grubx64.efi: file does not exist"},
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
		if e := s.notes.next(t); e.Kind != event.TFTPRefused || e.Err != tt.event || e.Detail != tt.file {
			t.Errorf("%s: event %+v, want refused with %q", tt.name, e, tt.event)
		}
	}
	s.notes.none(t)
	if n := testutil.ToFloat64(counter(t, s, tftpd.MetricTransfers, "refused")); n != float64(len(tests)) {
		t.Errorf("%v refused transfers counted, want %d", n, len(tests))
	}
}

// counter reads one counter out of the registry, as a scrape would.
func counter(t *testing.T, s *site, name, label string) prometheus.Collector {
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
func gauge(t *testing.T, s *site, name string) prometheus.Collector {
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
	s := newSite(t, siteConfig{single: single})
	newClient(t, s.addr).send(request("boot/52-54-00-00-02-fe/boot.ipxe", "octet"))
	if got, err := s.fetch(t, "images/one", "octet", nil); err != nil || len(got) != 1 {
		t.Errorf("after a panic: %q, %v", got, err)
	}
}

// A client is a TFTP client that does exactly what a test tells it.
type client struct {
	t      testing.TB
	conn   *net.UDPConn
	server netip.AddrPort // first the listening port, then the transfer's
}

func newClient(t testing.TB, server netip.AddrPort) *client {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{t: t, conn: conn, server: server}
}

// request makes a read request; options are names and values in turn.
func request(name, mode string, options ...string) []byte {
	r := tftpd.Request{Name: name, Mode: mode}
	for i := 0; i < len(options); i += 2 {
		r.Options = append(r.Options, tftpd.Option{Name: options[i], Value: options[i+1]})
	}
	return r.Append(nil)
}

func (c *client) send(b []byte) {
	c.t.Helper()
	if _, err := c.conn.WriteToUDPAddrPort(b, c.server); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) ack(block int) {
	c.t.Helper()
	c.send(binary.BigEndian.AppendUint16([]byte{0, 4}, uint16(block)))
}

// receive returns the next packet, or nil after d.
func (c *client) receive(d time.Duration) []byte {
	c.t.Helper()
	b := make([]byte, 65536)
	if err := c.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		c.t.Fatal(err)
	}
	n, from, err := c.conn.ReadFromUDPAddrPort(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.server = from
	return b[:n]
}

// data returns the bytes of the next packet, which must be that block.
func (c *client) data(block int) string {
	c.t.Helper()
	b := c.receive(5 * time.Second)
	if len(b) < 4 || b[1] != 3 || binary.BigEndian.Uint16(b[2:]) != uint16(block) {
		c.t.Fatalf("got %.20q, want block %d", b, block)
	}
	return string(b[4:])
}

// dataAtLast takes blocks until the one that is wanted comes; those before it were sent again.
func (c *client) dataAtLast(block int) {
	c.t.Helper()
	for {
		b := c.receive(5 * time.Second)
		if len(b) < 4 || b[1] != 3 || binary.BigEndian.Uint16(b[2:]) > uint16(block) {
			c.t.Fatalf("got %.20q, want block %d", b, block)
		}
		if binary.BigEndian.Uint16(b[2:]) == uint16(block) {
			return
		}
	}
}

// dataInTheEnd takes blocks, of the transfer before too, until the one that is wanted comes, and returns its bytes.
func (c *client) dataInTheEnd(block int) string {
	c.t.Helper()
	for {
		b := c.receive(5 * time.Second)
		if len(b) < 4 || b[1] != 3 {
			c.t.Fatalf("got %.20q, want block %d", b, block)
		}
		if binary.BigEndian.Uint16(b[2:]) == uint16(block) {
			return string(b[4:])
		}
	}
}

// oack returns the options of the next packet, which must be an OACK.
func (c *client) oack() string {
	c.t.Helper()
	b := c.receive(5 * time.Second)
	if len(b) < 2 || b[1] != 6 {
		c.t.Fatalf("got %.20q, want an option acknowledgement", b)
	}
	return strings.ReplaceAll(string(b[2:]), "\x00", " ")
}

func (c *client) errorPacket() string {
	c.t.Helper()
	b := c.receive(5 * time.Second)
	if len(b) < 5 || b[1] != 5 {
		c.t.Fatalf("got %.20q, want an error", b)
	}
	return fmt.Sprintf("%d %s", binary.BigEndian.Uint16(b[2:]), strings.TrimRight(string(b[4:]), "\x00"))
}

func TestWholeBlocksEndWithAnEmptyOne(t *testing.T) { eachPort(t, testWholeBlocksEndWithAnEmptyOne) }

func testWholeBlocksEndWithAnEmptyOne(t *testing.T, single bool) {
	s := newSite(t, siteConfig{single: single})
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
	s.notes.none(t)
	c.ack(5)
	if e := s.notes.next(t); e.Kind != event.TFTPServed || e.Bytes != 2048 {
		t.Errorf("event %+v", e)
	}
}

func TestSizeProbe(t *testing.T) { eachPort(t, testSizeProbe) }

func testSizeProbe(t *testing.T, single bool) {
	s := newSite(t, siteConfig{single: single})
	c := newClient(t, s.addr)
	c.send(request("boot/52-54-00-00-02-01/ipxe.efi", "octet", "tsize", "0", "blksize", "1468", "windowsize", "4"))
	if got, want := c.oack(), "tsize 80000 blksize 1468 windowsize 4 "; got != want {
		t.Errorf("oack = %q, want %q", got, want)
	}
	c.send([]byte("\x00\x05\x00\x08User aborted the transfer\x00"))
	want := event.Event{Kind: event.TFTPProbe, MAC: mac, Addr: netip.MustParseAddr("127.0.0.1"), Detail: "boot/52-54-00-00-02-01/ipxe.efi"}
	if diff := cmp.Diff(want, s.notes.next(t), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}

func TestClientGivesUp(t *testing.T) { eachPort(t, testClientGivesUp) }

func testClientGivesUp(t *testing.T, single bool) {
	s := newSite(t, siteConfig{single: single})
	c := newClient(t, s.addr)
	c.send(request("images/kernel", "octet"))
	c.data(1)
	c.ack(1)
	c.data(2)
	c.send([]byte("\x00\x05\x00\x03disk\x01full\x00"))
	e := s.notes.next(t)
	if e.Kind != event.TFTPFailed || e.Bytes != 512 || e.Err != `the client gave up: error 3 "disk?full"` {
		t.Errorf("event %+v", e)
	}
}

func TestRetransmission(t *testing.T) { eachPort(t, testRetransmission) }

func testRetransmission(t *testing.T, single bool) {
	const base = 40 * time.Millisecond
	s := newSite(t, siteConfig{single: single, Config: tftpd.Config{Timeout: base, Retries: 3}})
	c := newClient(t, s.addr)
	c.send(request("images/kernel", "octet"))
	first := c.data(1)
	at := time.Now()
	for try := range 3 {
		if again := c.data(1); again != first {
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
	if e := s.notes.next(t); e.Kind != event.TFTPFailed || e.Err != "the client stopped answering" {
		t.Errorf("event %+v", e)
	}
	if n := testutil.ToFloat64(counter(t, s, tftpd.MetricResent, "")); n != 3 {
		t.Errorf("%v blocks counted as sent again, want 3", n)
	}
}

func TestTimeoutOptionIsHonoured(t *testing.T) { eachPort(t, testTimeoutOptionIsHonoured) }

func testTimeoutOptionIsHonoured(t *testing.T, single bool) {
	s := newSite(t, siteConfig{single: single, Config: tftpd.Config{Timeout: 10 * time.Millisecond}})
	c := newClient(t, s.addr)
	c.send(request("images/kernel", "octet", "timeout", "1"))
	if got := c.oack(); got != "timeout 1 " {
		t.Fatalf("oack = %q", got)
	}
	if b := c.receive(700 * time.Millisecond); b != nil {
		t.Errorf("got %.20q before the timeout that was agreed on", b)
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
		s := newSite(t, siteConfig{single: single})
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
		if e := s.notes.next(t); e.Kind != event.TFTPServed {
			t.Errorf("window %d: event %+v", window, e)
		}
		if n := testutil.ToFloat64(counter(t, s, tftpd.MetricResent, "")); n > most {
			t.Errorf("window %d: %v of 65 blocks came twice, want at most %v", window, n, most)
		}
	}
}

func TestWindowRewindsToTheGap(t *testing.T) { eachPort(t, testWindowRewindsToTheGap) }

func testWindowRewindsToTheGap(t *testing.T, single bool) {
	s := newSite(t, siteConfig{single: single})
	c := newClient(t, s.addr)
	c.send(request("images/window", "octet", "windowsize", "8"))
	c.oack()
	c.ack(0)
	for block := 1; block <= 8; block++ {
		c.data(block)
	}
	c.ack(3) // block 4 got lost
	for block := 4; block <= 11; block++ {
		c.data(block)
	}
	c.ack(11)
	at := time.Now()
	for block := 12; block <= 19; block++ {
		c.data(block)
	}
	c.ack(11) // block 12, the first, got lost
	for block := 12; block <= 19; block++ {
		c.data(block)
	}
	if took := time.Since(at); took > 5*time.Second {
		t.Errorf("the first block of a window came again after %v, want sooner than by the timer", took)
	}
}

func TestStrangerIsTurnedAway(t *testing.T) { eachPort(t, testStrangerIsTurnedAway) }

func testStrangerIsTurnedAway(t *testing.T, single bool) {
	s := newSite(t, siteConfig{single: single})
	c := newClient(t, s.addr)
	c.send(request("images/one", "octet"))
	c.data(1)
	stranger := newClient(t, c.server)
	stranger.ack(1)
	if got := stranger.errorPacket(); got != "5 unknown transfer" {
		t.Errorf("error %q", got)
	}
	s.notes.none(t)
	c.ack(1)
	if e := s.notes.next(t); e.Kind != event.TFTPServed {
		t.Errorf("event %+v", e)
	}
}

// TestDuplicateRequest is about requests that come again: because the answer was late, because they were on their way for long,
// or because a machine has started over with the same port.
func TestDuplicateRequest(t *testing.T) { eachPort(t, testDuplicateRequest) }

func testDuplicateRequest(t *testing.T, single bool) {
	s := newSite(t, siteConfig{single: single, Config: tftpd.Config{Timeout: 300 * time.Millisecond, Retries: 9}})
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
	c.data(2)
	ask("images/window") // it was on its way for long
	c.ack(2)
	c.dataAtLast(3)
	s.notes.none(t)
	time.Sleep(time.Second) // what a machine needs at least to start over
	ask("images/window")
	if e := s.notes.next(t); e.Kind != event.TFTPFailed || e.Err != "the client started over" {
		t.Errorf("event %+v", e)
	}
	c.dataInTheEnd(1)
	ask("images/one") // one port fetches one file at a time
	if e := s.notes.next(t); e.Kind != event.TFTPFailed || e.Err != "the client started over" {
		t.Errorf("event %+v", e)
	}
	c.dataInTheEnd(1)
}

func TestGoneClient(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteConfig{Config: tftpd.Config{Timeout: 20 * time.Millisecond}})
	c := newClient(t, s.addr)
	c.send(request("images/window", "octet"))
	c.data(1)
	c.conn.Close()
	if e := s.notes.next(t); e.Kind != event.TFTPFailed || e.Err != "the client closed its port" {
		t.Errorf("event %+v", e)
	}
}

func TestLastAckMissing(t *testing.T) { eachPort(t, testLastAckMissing) }

func testLastAckMissing(t *testing.T, single bool) {
	s := newSite(t, siteConfig{single: single, Config: tftpd.Config{Timeout: 20 * time.Millisecond}})
	c := newClient(t, s.addr)
	c.send(request("images/one", "octet"))
	c.data(1)
	c.conn.Close() // it has the file, and its ACK got lost
	if e := s.notes.next(t); e.Kind != event.TFTPServed || e.Bytes != 1 {
		t.Errorf("event %+v", e)
	}
}

func TestTooManyTransfers(t *testing.T) { eachPort(t, testTooManyTransfers) }

func testTooManyTransfers(t *testing.T, single bool) {
	s := newSite(t, siteConfig{single: single, Config: tftpd.Config{MaxTransfers: 2, Drain: time.Millisecond}})
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
	if n := testutil.ToFloat64(counter(t, s, tftpd.MetricDropped, "busy")); n != 1 {
		t.Errorf("%v requests counted as dropped, want 1", n)
	}
}

// TestSilentClientsMakeRoom is about a flood of requests that nobody waits for the answers to.
func TestSilentClientsMakeRoom(t *testing.T) { eachPort(t, testSilentClientsMakeRoom) }

func testSilentClientsMakeRoom(t *testing.T, single bool) {
	s := newSite(t, siteConfig{single: single, Config: tftpd.Config{MaxTransfers: 2, Timeout: 50 * time.Millisecond, Retries: 100, Drain: time.Millisecond}})
	busy := newClient(t, s.addr)
	busy.send(request("images/whole", "octet"))
	busy.data(1)
	busy.ack(1)
	busy.data(2)
	silent := newClient(t, s.addr)
	silent.send(request("images/window", "octet"))
	silent.data(1)
	c := newClient(t, s.addr)
	for deadline := time.Now().Add(5 * time.Second); ; {
		c.send(request("images/one", "octet"))
		if b := c.receive(60 * time.Millisecond); b != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a client that does not answer keeps others out")
		}
	}
	c.ack(1)
	e := s.notes.next(t)
	if e.Kind == event.TFTPServed { // to c, which may be told first
		e = s.notes.next(t)
	}
	if !strings.Contains(e.Err, "never answered") {
		t.Errorf("event %+v, want why the silent one was ended", e)
	}
	busy.ack(2)
	for {
		b := busy.receive(5 * time.Second) // block 2 may come again first
		if b == nil {
			t.Fatal("a transfer under way was ended")
		}
		if binary.BigEndian.Uint16(b[2:]) == 3 {
			break
		}
	}
}

// TestTokensAreNotTold is about a machine that takes the URL of its document for a TFTP name.
func TestTokensAreNotTold(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteConfig{})
	c := newClient(t, s.addr)
	c.send(request("config/52-54-00-00-00-01/TSABOVZ2BFSNHX3QTQAMRH2CUE/worker.ign", "octet"))
	c.errorPacket()
	if e := s.notes.next(t); e.Detail != "config/52-54-00-00-00-01/…/worker.ign" || strings.Contains(e.Err, "TSABO") || e.Err == "" {
		t.Errorf("event %+v", e)
	}
}

func TestStrayPacketsGetNoAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteConfig{})
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
	s := newSite(t, siteConfig{single: single, Config: tftpd.Config{Drain: 20 * time.Second}})
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
	if e := s.notes.next(t); e.Kind != event.TFTPServed {
		t.Errorf("event %+v", e)
	}
}

func TestStopAbortsWhatTakesTooLong(t *testing.T) { eachPort(t, testStopAbortsWhatTakesTooLong) }

func testStopAbortsWhatTakesTooLong(t *testing.T, single bool) {
	s := newSite(t, siteConfig{single: single, Config: tftpd.Config{Drain: 50 * time.Millisecond}})
	c := newClient(t, s.addr)
	c.send(request("images/whole", "octet"))
	c.data(1)
	if err := s.stop(); err != nil {
		t.Errorf("serve = %v", err)
	}
	if got := c.errorPacket(); got != "0 transfer aborted" {
		t.Errorf("error %q", got)
	}
	if e := s.notes.next(t); e.Kind != event.TFTPFailed || e.Err != "the server is stopping" {
		t.Errorf("event %+v", e)
	}
}

// TestAnswersFromTheAddressAsked asks a wildcard socket by each of several addresses.
func TestAnswersFromTheAddressAsked(t *testing.T) { eachPort(t, testAnswersFromTheAddressAsked) }

func testAnswersFromTheAddressAsked(t *testing.T, single bool) {
	for _, listen := range []string{"0.0.0.0:0", "[::]:0"} {
		s := newSite(t, siteConfig{single: single, listen: listen})
		for _, addr := range []string{"127.0.0.1", "127.0.0.2", "127.9.8.7"} {
			asked := netip.AddrPortFrom(netip.MustParseAddr(addr), s.addr.Port())
			c := newClient(t, asked)
			c.send(request("images/one", "octet"))
			c.data(1)
			if c.server.Addr() != asked.Addr() {
				t.Errorf("on %s, asked %s, answered from %s", listen, asked.Addr(), c.server.Addr())
			}
			c.ack(1)
			s.notes.next(t)
		}
	}
}

func TestIPv6(t *testing.T) { eachPort(t, testIPv6) }

func testIPv6(t *testing.T, single bool) {
	s := newSite(t, siteConfig{single: single, listen: "[::1]:0"})
	got, err := s.fetch(t, "images/kernel", "octet", func(c *pin.Client) { c.SetBlockSize(1400) })
	if err != nil || !bytes.Equal(got, s.files["images/kernel"]) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestRollover fetches more than 65535 blocks.
func TestRollover(t *testing.T) { eachPort(t, testRollover) }

func testRollover(t *testing.T, single bool) {
	s := newSite(t, siteConfig{single: single, big: 65536*512 + 700})
	got, err := windowedGet(t, s.addr, "images/big", 512, 64)
	if err != nil || !bytes.Equal(got, s.files["images/big"]) {
		t.Errorf("%d bytes, %v, want %d", len(got), err, len(s.files["images/big"]))
	}
}

// windowedGet is a plain RFC 7440 client.
func windowedGet(t testing.TB, server netip.AddrPort, name string, block, window int) ([]byte, error) {
	t.Helper()
	c := newClient(t, server)
	if err := c.conn.SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	c.send(request(name, "octet", "blksize", fmt.Sprint(block), "windowsize", fmt.Sprint(window)))
	c.oack()
	c.ack(0)
	var out bytes.Buffer
	b := make([]byte, 65536)
	for expect, inWindow := 1, 0; ; {
		if err := c.conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return nil, err
		}
		n, _, err := c.conn.ReadFromUDPAddrPort(b)
		if err != nil {
			return out.Bytes(), err
		}
		if n < 4 || b[1] != 3 {
			return out.Bytes(), fmt.Errorf("got %.20q", b[:n])
		}
		if binary.BigEndian.Uint16(b[2:]) != uint16(expect) {
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
