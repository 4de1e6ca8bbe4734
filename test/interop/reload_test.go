package interop

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"
)

// A clientLoad is clients that send until they are stopped, and their counters.
type clientLoad struct {
	t      *testing.T
	ctx    context.Context
	wg     sync.WaitGroup
	mu     sync.Mutex
	counts map[string]int
}

func newCrowd(t *testing.T) (c *clientLoad, stop func() map[string]int) {
	ctx, cancel := context.WithCancel(t.Context())
	c = &clientLoad{t: t, ctx: ctx, counts: map[string]int{}}
	stop = sync.OnceValue(func() map[string]int { cancel(); c.wg.Wait(); return c.counts })
	return c, stop
}

// join adds a client that asks again and again. An error fails the test.
func (c *clientLoad) join(who string, ask func(n int) error) {
	c.wg.Go(func() {
		for n := 0; c.ctx.Err() == nil; n++ {
			if err := ask(n); err != nil {
				c.t.Errorf("%s, time %d: %v", who, n, err)
				return
			}
			c.mu.Lock()
			c.counts[who]++
			c.mu.Unlock()
		}
	})
}

// count returns how often a client was served so far.
func (c *clientLoad) count(who string) int { c.mu.Lock(); defer c.mu.Unlock(); return c.counts[who] }

// echo is a backend: it sends back what it is sent.
func echo(t *testing.T, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { _, _ = io.Copy(c, c); _ = c.Close() })
		}
	})
	t.Cleanup(func() { _ = l.Close(); conns.Wait() })
}

// exchange sends a line and wants it back.
func exchange(c net.Conn, n int) error {
	line := fmt.Sprintf("line %d\n", n)
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, line); err != nil {
		return err
	}
	got := make([]byte, len(line))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != line {
		return fmt.Errorf("sent %q, got back %q", line, got)
	}
	return nil
}

// variant is the lab at the n-th reload: networks, hosts, balancers and interfaces are added and removed.
func (l *labFile) variant(n int, extra *netns.Segment) {
	l.networks, l.hosts, l.balancers = "", "", "  echo: {listen: \"NET.1:7000\", backends: [\"NET.1:7001\"]}\n"
	if n%2 == 1 {
		l.networks = fmt.Sprintf("  extra: {subnet: 10.91.99.0/24, interface: %s, address: 10.91.99.1, pools: {all: {range: 10.91.99.100-10.91.99.200}}}\n", extra.Bridge)
		l.balancers += "  low: {listen: \"NET.1:81\", backends: [\"NET.1:7001\"]}\n"
	}
	for i := range n % 3 {
		l.hosts += fmt.Sprintf("  x%[1]d: {mac: \"52:54:00:00:09:%02[1]x\", ip: NET.%[2]d}\n", i, 50+i)
	}
}

// TestReloadUnderLoad reloads twenty times, with invalid labs in between, while clients use every server.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "dnsperf")
	l := newLab(t, "10.91.1")
	extra := netns.NewSegment(t, "10.91.99.1/24")
	l.variant(0, extra)
	l.write()
	echo(t, "10.91.1.1:7001")
	d := start(t, l)
	m := d.machine(t, "52:54:00:00:ff:02", "10.91.1.2", "10.91.1.10")

	c, stop := newCrowd(t)
	defer stop()
	m.startClients(t, c)
	held, err := net.Listen("tcp", "10.91.1.1:82") // a port in use
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	for n := 1; n <= 20; n++ {
		time.Sleep(150 * time.Millisecond) // for the clients to get at each lab
		l.variant(n, extra)
		l.write()
		d.until("a changed lab comes into force", func() bool { return d.reload() == nil })
		switch n % 4 {
		case 1:
			l.replace(l.text() + "nonsense: [\n")
		case 2:
			l.replace(strings.Replace(l.text(), "balancers:\n", "balancers:\n  new: {listen: \"10.91.1.1:83\", backends: [\"10.91.1.1:7001\"]}\n  taken: {listen: \"10.91.1.1:82\", backends: [\"10.91.1.1:7001\"]}\n", 1))
		default:
			continue
		}
		err := d.reload()
		if err == nil {
			t.Fatalf("reload %d: a broken lab came into force", n)
		}
		if n%4 == 2 {
			d.refusedWhole(t, err)
		}
		// The daemon has read the invalid file: from here on nothing may change.
		if gen := d.status().Generation; d.reload() == nil || d.status().Generation != gen {
			t.Errorf("reload %d: generation %d after a broken lab, want %d", n, d.status().Generation, gen)
		}
	}
	servers := []string{"dns", "dhcp", "tftp", "http", "file", "stream", "connect", "admin"}
	d.until("every server was asked twice", func() bool {
		return t.Failed() || !slices.ContainsFunc(servers, func(who string) bool { return c.count(who) < 2 })
	})
	counts := stop()
	t.Logf("served: %v", counts)
}

// refusedWhole: a lab with one port in use opens none. A daemon that is no longer root cannot find the process that holds the port, and
// logs so.
func (d *daemon) refusedWhole(t *testing.T, err error) {
	t.Helper()
	if !strings.Contains(err.Error(), "balancer taken: listen on 10.91.1.1:82") || !strings.Contains(err.Error(), "sudo bootlab doctor names it") {
		t.Errorf("error %v, want the balancer, its port and how to learn who holds it", err)
	}
	if c, err := net.Dial("tcp", "10.91.1.1:83"); err == nil {
		_ = c.Close()
		t.Error("a balancer of a refused lab answers")
	}
}

// startClients starts clients of every server.
func (m *machine) startClients(t *testing.T, c *clientLoad) {
	relay := m.relay(t, "10.91.1.2")
	dial := func(port string) (conn net.Conn, err error) {
		err = m.inside(func() error {
			conn, err = (&net.Dialer{Timeout: patience}).Dial("tcp", m.d.addr+":"+port)
			return err
		})
		return conn, err
	}
	stream, err := dial("7000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Close() })
	kernel := fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Repeat("kernel\n", 1_000_000))))
	download := func(args ...string) error {
		out, err := m.run("sh", "-c", "curl -sS --fail "+strings.Join(args, " ")+" | sha256sum")
		if err != nil || !strings.HasPrefix(out, kernel) {
			return fmt.Errorf("%w: %s", errors.Join(err), out)
		}
		return nil
	}
	m.d.file("queries", []byte("w0.lab.test A\nw1.lab.test A\n10.1.91.10.in-addr.arpa PTR\nnone.lab.test A\n"))
	var mac atomic.Int64
	c.join("dns", func(int) error {
		out, err := m.run("dnsperf", "-s", m.d.addr, "-d", filepath.Join(m.d.dir, "queries"), "-l", "1", "-Q", "500", "-t", "30")
		if err != nil || !strings.Contains(out, "Queries lost:         0 ") {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	c.join("dhcp", func(int) error {
		_, err := relay.lease(numbered(int(mac.Add(1)%100)), patience)
		return err
	})
	c.join("tftp", func(int) error { return download("--tftp-blksize", "1468", "tftp://"+m.d.addr+"/files/images/k") })
	c.join("http", func(int) error { return download("--limit-rate", "7M", "http://"+m.d.addr+":8080/files/images/k") })
	c.join("file", func(int) error {
		if status, body := m.get("10.91.1.2", "files/public/motd"); status != 200 || body != "hello\n" {
			return fmt.Errorf("status %d, %q", status, body)
		}
		return nil
	})
	c.join("stream", func(n int) error { return exchange(stream, n) })
	c.join("connect", func(n int) error {
		conn, err := dial("7000")
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		return exchange(conn, n)
	})
	c.join("admin", func(int) error { _, err := m.d.client.Hosts(t.Context()); return err })
}

// TestReloadAfterPrivilegeDrop: a reload may still add what needs privileges, which is a balancer on a low port and DHCP on another
// interface.
func TestReloadAfterPrivilegeDrop(t *testing.T) {
	t.Parallel()
	netns.Need(t, "udhcpc")
	l := newLab(t, "10.91.2")
	d := start(t, l)
	echo(t, "10.91.2.1:7001")
	extra := netns.NewSegment(t, "10.91.98.1/24")
	l.networks = fmt.Sprintf("  extra: {subnet: 10.91.98.0/24, interface: %s, address: 10.91.98.1, pools: {all: {range: 10.91.98.100-10.91.98.200}}}\n", extra.Bridge)
	l.balancers = "  low: {listen: \"NET.1:81\", backends: [\"NET.1:7001\"]}\n"
	l.write()
	if err := d.reload(); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", "10.91.2.1:81")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := exchange(c, 1); err != nil {
		t.Error(err)
	}
	m := &machine{Client: extra.NewClient(t), d: d}
	if addr := m.lease(t); !strings.HasPrefix(addr, "10.91.98.") {
		t.Errorf("on the new interface a machine got %q", addr)
	}
	// An interface that is made again has another index, and the same name.
	_ = exec.Command("ip", "link", "del", extra.Bridge).Run()
	netns.Run(t, "ip", "link", "add", extra.Bridge, "type", "bridge", "stp_state", "0")
	netns.Run(t, "ip", "addr", "add", "10.91.98.1/24", "dev", extra.Bridge)
	netns.Run(t, "ip", "link", "set", extra.Bridge, "up")
	m = &machine{Client: extra.NewClient(t), d: d}
	if addr := m.lease(t); !strings.HasPrefix(addr, "10.91.98.") {
		t.Errorf("on the interface that was made again a machine got %q", addr)
	}
}

// TestWarningsAtTheStart: the warnings of a lab are logged, at the start as after a reload.
func TestWarningsAtTheStart(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.91.3")
	l.profiles = "  gone: {kernel: images/not-there}\n"
	l.write()
	d := start(t, l)
	d.logged("images/not-there: file not found")
}
