package tftpd_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	pin "github.com/pin/tftp/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/boot"
	bootfiles "github.com/bootlab/bootlab/internal/boot/files"
	"github.com/bootlab/bootlab/internal/host/link/neighbour"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/panics"
	"github.com/bootlab/bootlab/tftpd"
)

var mac = lab.MAC{0x52, 0x54, 0, 0, 2, 1}

// A recorder is an event.Recorder that passes on what it is given.
type recorder struct{ events chan event.Event }

func (n recorder) Record(e event.Event) { n.events <- e }

// next returns the next event without its duration.
func (n recorder) next(t testing.TB) event.Event {
	t.Helper()
	select {
	case e := <-n.events:
		e.Dur = 0
		return e
	case <-time.After(maxWait):
		t.Fatal("no event")
		panic("unreachable")
	}
}

// none fails if there is an event.
func (n recorder) none(t testing.TB) {
	t.Helper()
	select {
	case e := <-n.events:
		t.Errorf("event %+v, want none", e)
	default:
	}
}

// scripts is a boot service.
type scripts struct{ received chan string } // names of scripts

func refusedWith(status int) error {
	return &boot.Refusal{Status: status, Text: fmt.Sprintf("status %d", status)}
}

func (s scripts) Script(_ context.Context, m lab.MAC, from netip.AddrPort, name string) (*boot.Script, error) {
	switch m[5] {
	case 0xee:
		return nil, refusedWith(404)
	case 0xef:
		return nil, refusedWith(403)
	case 0xfe:
		panic("a bug of the boot service")
	}
	body := []byte("#!ipxe\n# " + name + " for " + m.String() + " at " + from.Addr().String() + "\n")
	if m[5] == 0xda {
		body = append(body, noise(1200)...)
	}
	return boot.NewScript(body, func(context.Context) error {
		if m[5] == 0xdb {
			return refusedWith(403) // another machine's
		}
		s.received <- name
		return nil
	}), nil
}

type leases map[netip.Addr]lab.MAC

func (l leases) MACOf(in *lab.Lab, a netip.Addr) (lab.MAC, bool) {
	m, ok := l[a]
	if h := in.HostByIP(a); !ok && h != nil {
		return h.MACs[0], true
	}
	return m, ok
}

// noise returns n bytes that no two blocks of are alike.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), 7})
	_, _ = r.Read(b)
	return b
}

// A testServer is a running server and what it serves.
type testServer struct {
	server   *tftpd.Server
	addr     netip.AddrPort
	dir      string // of the files
	files    map[string][]byte
	events   recorder
	received chan string // names of scripts that were reported to the boot service
	registry *prometheus.Registry
	table    atomic.Pointer[tftpd.Table] // in force
	stop     func() error                // cancels and waits for Serve
}

// eachPort runs a test with a port for each transfer, and with a shared port.
func eachPort(t *testing.T, test func(t *testing.T, single bool)) {
	t.Parallel()
	for name, single := range map[string]bool{"own port": false, "single port": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, single)
		})
	}
}

type testConfig struct {
	tftpd.Config
	single bool // all transfers share the port
	listen string
	leases leases
	big    int    // size of images/big
	lab    string // a lab file instead of the usual lab
	panics *panics.Server
	sender senders
}

// senders say who sent every request.
type senders neighbour.User

// Requester implements tftpd.Senders.
func (s senders) Requester(netip.AddrPort, string, time.Time) (neighbour.User, error) {
	return neighbour.User(s), nil
}

func newTestServer(t testing.TB, c testConfig) *testServer {
	t.Helper()
	c.SinglePort = c.single
	if c.Timeout == 0 {
		c.Timeout = maxWait // no timer interferes with a test that is not about timers, on a busy machine either
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
	l := &lab.Lab{Appliance: lab.Appliance{Files: dir, TFTPAllow: []netip.Prefix{netip.MustParsePrefix("10.77.0.0/24")}}, Profiles: []*lab.Profile{{Name: "p", Kernel: "images/kernel",
		Initrd: []string{"images/empty", "images/whole", "images/one", "images/window", "images/big", "images/missing"}, Config: "ignition/x.ign"}}}
	if c.lab != "" {
		var err error
		if l, err = load.Parse("lab.yaml", []byte(c.lab), load.Options{FileExists: func(string) bool { return true }}); err != nil {
			t.Fatal(err)
		}
		l.Appliance.Files = dir
	}
	allowed, err := bootfiles.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	s := &testServer{dir: dir, files: files, events: recorder{make(chan event.Event, 10_000)}, received: make(chan string, 10_000), registry: prometheus.NewRegistry()}
	s.table.Store(tftpd.Compile(l, allowed))
	server, err := tftpd.New(c.Config, tftpd.Deps{
		Table: s.table.Load, Firmware: fstest.MapFS{"ipxe.efi": {Data: firmware}},
		Scripts: scripts{s.received}, Leases: c.leases, Senders: c.sender, Panics: c.panics, Events: s.events, Log: slog.New(slog.DiscardHandler), Registerer: s.registry,
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
	s.server = server
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
func (s *testServer) fetch(t testing.TB, name, mode string, set func(*pin.Client)) ([]byte, error) {
	t.Helper()
	c, err := pin.NewClient(s.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	c.SetTimeout(20 * time.Second)
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
