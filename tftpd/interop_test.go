package tftpd_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	pin "github.com/pin/tftp/v3"

	bootfiles "github.com/bootlab/bootlab/internal/boot/files"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/tftpd"
)

// An otherClient is a TFTP client of another project. Its arguments fetch name from addr into file.
type otherClient struct {
	name string
	need string
	argv func(addr netip.AddrPort, name, file string) []string
}

func atftp(block, window int) otherClient {
	return otherClient{fmt.Sprintf("atftp blksize %d windowsize %d", block, window), "atftp",
		func(a netip.AddrPort, name, file string) []string {
			argv := []string{"atftp", "--get", "-r", name, "-l", file, "--option", "blksize " + strconv.Itoa(block), "--option", "tsize 0"}
			if window > 1 {
				argv = append(argv, "--option", "windowsize "+strconv.Itoa(window))
			}
			return append(argv, "--tftp-timeout", "1", a.Addr().String(), strconv.Itoa(int(a.Port())))
		}}
}

func curl(block int) otherClient {
	return otherClient{fmt.Sprintf("curl blksize %d", block), "curl",
		func(a netip.AddrPort, name, file string) []string {
			return []string{"curl", "-sS", "--tftp-blksize", strconv.Itoa(block), "-o", file, "tftp://" + a.String() + "/" + name}
		}}
}

var otherClients = []otherClient{
	atftp(512, 1), atftp(1428, 1), atftp(1428, 4), atftp(1428, 16), atftp(1428, 64), atftp(8192, 16), atftp(512, 33),
	curl(512), curl(1468), curl(8192),
	tftpHPA,
}

var tftpHPA = otherClient{"tftp-hpa", "tftp", func(a netip.AddrPort, name, file string) []string {
	return []string{"tftp", "-m", "octet", a.Addr().String(), strconv.Itoa(int(a.Port())), "-c", "get", name, file}
}}

func (c otherClient) fetch(t testing.TB, addr netip.AddrPort, name string) ([]byte, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "got")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	argv := c.argv(addr, name, file)
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return os.ReadFile(file)
}

func TestOtherClients(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, testConfig{})
	for _, c := range otherClients {
		t.Run(c.name, func(t *testing.T) {
			netns.Need(t, c.need)
			for _, name := range []string{"images/kernel", "images/whole", "images/one", "images/window", "boot/52-54-00-00-02-01/ipxe.efi"} {
				got, err := c.fetch(t, s.addr, name)
				if err != nil || !bytes.Equal(got, s.files[name]) {
					t.Errorf("%s: %d bytes, want %d: %v", name, len(got), len(s.files[name]), err)
				}
				if e := s.events.next(t); e.Kind != event.TFTPServed || e.Bytes != int64(len(s.files[name])) {
					t.Errorf("%s: event %+v", name, e)
				}
			}
			if got, err := c.fetch(t, s.addr, "images/missing"); err == nil && len(got) > 0 {
				t.Errorf("a missing file gave %q", got)
			}
			if e := s.events.next(t); e.Kind != event.TFTPRefused {
				t.Errorf("missing file: event %+v", e)
			}
		})
	}
}

// TestLoss fetches through a wire that loses a tenth of the packets, both ways, and doubles some. The server's timer is
// short for the sake of the test; curl asks for one of a second, so it gets little to fetch.
func TestLoss(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, testConfig{Config: tftpd.Config{Timeout: 20 * time.Millisecond, Retries: 12}})
	clients := []otherClient{atftp(1428, 1), atftp(1428, 4), atftp(1428, 16), atftp(512, 33), atftp(512, 64), curl(2048), tftpHPA}
	for i, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			netns.Need(t, c.need)
			name := "images/kernel"
			if c.need == "curl" {
				name = "images/window"
			}
			wire := newLossyWire(t, s.addr, uint64(i))
			got, err := c.fetch(t, wire.addr, name)
			if err != nil || !bytes.Equal(got, s.files[name]) {
				t.Errorf("%d bytes, want %d: %v", len(got), len(s.files[name]), err)
			}
			if wire.dropped() == 0 && c.need != "curl" {
				t.Error("nothing was lost: the test showed nothing")
			}
		})
	}
	t.Run("pin", func(t *testing.T) {
		t.Parallel()
		wire := newLossyWire(t, s.addr, 99)
		lossy := &testServer{addr: wire.addr}
		got, err := lossy.fetch(t, "images/kernel", "octet", func(c *pin.Client) {
			c.SetBlockSize(1400)
			c.SetTimeout(100 * time.Millisecond)
			c.SetBackoff(func(int) time.Duration { return 0 })
			c.SetRetries(50)
		})
		if err != nil || !bytes.Equal(got, s.files["images/kernel"]) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
}

// A lossyWire stands between clients and a server.
type lossyWire struct {
	addr   netip.AddrPort
	server netip.AddrPort

	mu   sync.Mutex
	rand *rand.Rand
	lost int
}

func newLossyWire(t testing.TB, server netip.AddrPort, seed uint64) *lossyWire {
	t.Helper()
	conn := listen(t)
	w := &lossyWire{addr: conn.LocalAddr().(*net.UDPAddr).AddrPort(), server: server, rand: rand.New(rand.NewPCG(seed, 7))}
	b := make([]byte, 65536)
	go func() {
		for {
			n, client, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			w.join(t, client, bytes.Clone(b[:n]))
		}
	}()
	return w
}

func listen(t testing.TB) *net.UDPConn {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// join gives a client its own lossy link. The request itself is not lost: clients wait seconds before they repeat it.
func (w *lossyWire) join(t testing.TB, client netip.AddrPort, request []byte) {
	inMemory, far := listen(t), listen(t)
	if inMemory == nil || far == nil {
		return
	}
	if _, err := far.WriteToUDPAddrPort(request, w.server); err != nil {
		t.Error(err)
	}
	var mu sync.Mutex
	transfer := w.server
	go w.carry(far, inMemory, func(from netip.AddrPort) netip.AddrPort {
		mu.Lock()
		defer mu.Unlock()
		transfer = from
		return client
	})
	go w.carry(inMemory, far, func(netip.AddrPort) netip.AddrPort {
		mu.Lock()
		defer mu.Unlock()
		return transfer
	})
}

// carry moves packets from one socket to another until they are closed.
func (w *lossyWire) carry(from, to *net.UDPConn, where func(netip.AddrPort) netip.AddrPort) {
	b, begun := make([]byte, 65536), false
	for {
		n, sender, err := from.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		dest := where(sender)
		copies := 1
		switch {
		case !opening(b[:n]):
			copies = w.copies()
		case b[1] == 6 && begun:
			copies = 0
		case b[1] == 6:
			begun = true
		}
		for range copies {
			if _, err := to.WriteToUDPAddrPort(b[:n], dest); err != nil {
				return
			}
		}
	}
}

// opening reports whether a packet is an OACK or the answer to it. They are not lost, and an OACK comes once: atftp ends where
// one comes again, as it does where that answer is lost, or late.
func opening(b []byte) bool {
	return len(b) >= 4 && (b[1] == 6 || b[1] == 4 && b[2] == 0 && b[3] == 0)
}

// copies says how often the next packet arrives: one in ten never does, one in fifty twice.
func (w *lossyWire) copies() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch p := w.rand.Float64(); {
	case p < 0.10:
		w.lost++
		return 0
	case p < 0.12:
		return 2
	}
	return 1
}

func (w *lossyWire) dropped() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// TestManyAtOnce lets 100 machines fetch at the same time.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, testConfig{})
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			got, err := s.fetch(t, "images/kernel", "octet", func(c *pin.Client) { c.SetBlockSize(1400) })
			if err != nil || !bytes.Equal(got, s.files["images/kernel"]) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	wg.Wait()
}

// BenchmarkAtftp measures transfers to atftp over loopback.
func BenchmarkAtftp(b *testing.B) {
	netns.Need(b, "atftp")
	s := newTestServer(b, testConfig{big: 32 << 20})
	for _, c := range []otherClient{atftp(512, 1), atftp(1468, 1), atftp(1468, 4), atftp(1468, 16), atftp(1468, 64)} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(32 << 20)
			for b.Loop() {
				if _, err := c.fetch(b, s.addr, "images/big"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWindowed measures the sender with a client that does nothing but count.
func BenchmarkWindowed(b *testing.B) {
	s := newTestServer(b, testConfig{big: 32 << 20})
	for _, window := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprintf("windowsize=%d", window), func(b *testing.B) {
			b.SetBytes(32 << 20)
			for b.Loop() {
				if _, err := windowedGet(b, newClient(b, s.addr), "images/big", 1468, window, habits{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCompile measures 10,000 hosts.
func BenchmarkCompile(b *testing.B) {
	l := manyHosts(10_000)
	b.ReportAllocs()
	for b.Loop() {
		allowed, err := bootfiles.Compile(l)
		if err != nil {
			b.Fatal(err)
		}
		tftpd.Compile(l, allowed)
	}
}
