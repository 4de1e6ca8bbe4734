package dhcpd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"
)

// A live is a server on real interfaces.
type live struct {
	*bench
	stop     func()
	setTable func(*Table)
}

// startLive serves the test lab with network main on the segment's bridge.
func startLive(t *testing.T, seg *netns.Segment) *live {
	t.Helper()
	b := newBench(t)
	b.table = Compile(onBridge(b.lab, seg.Bridge))
	var table atomic.Pointer[Table]
	table.Store(b.table)
	b.Server = newServer(t, table.Load, b.store, b.events)
	return &live{bench: b, setTable: table.Store, stop: serve(t, b.Server)}
}

// onBridge makes a bridge the interface of network main. The proxied network is elsewhere.
func onBridge(l *lab.Lab, bridge string) *lab.Lab {
	l.Networks[2].Interface, l.Networks[0].Interface = bridge, ""
	return l
}

// startServer serves a lab from a store.
func startServer(t *testing.T, l *lab.Lab, s store.Store) *Server {
	t.Helper()
	table := Compile(l)
	srv := newServer(t, func() *Table { return table }, s, &events{})
	serve(t, srv)
	return srv
}

func newServer(t *testing.T, table func() *Table, s store.Store, ev *events) *Server {
	t.Helper()
	return newServerAt(t, table, s, ev, slog.New(slog.NewTextHandler(io.Discard, nil)), time.Now)
}

func newServerAt(t *testing.T, table func() *Table, s store.Store, ev *events, log *slog.Logger, now func() time.Time) *Server {
	t.Helper()
	book, err := leases.Open(t.Context(), s, now)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := New(Deps{
		Table: table, Book: book, Events: ev,
		Log: log, Registerer: prometheus.NewRegistry(), Now: now, Listen: segment.Listen,
		Loops: bootloop.New(now), Report: func(string, error) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return srv
}

// serve opens the sockets and serves until the test ends, or the returned function is called.
func serve(t *testing.T, s *Server) (stop func()) {
	t.Helper()
	st, err := s.Stage(s.deps.Table())
	if err != nil {
		t.Fatal(err)
	}
	st.Commit()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("Serve has not ended a minute after its context")
		}
	})
	t.Cleanup(stop)
	return stop
}

func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestUdhcpc: BusyBox sends no broadcast flag and receives the raw unicast reply.
func TestUdhcpc(t *testing.T) {
	netns.Need(t, "root", "udhcpc")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	l := startLive(t, seg)
	client := seg.NewClient(t, pooled)
	out := client.Run(t, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-O", "staticroutes", "-O", "search", "-s",
		script(t, `[ "$1" = bound ] && echo "ip=$ip mask=$mask router=$router dns=$dns routes=$staticroutes search=$search lease=$lease"; exit 0`))
	re := regexp.MustCompile(`ip=10\.77\.0\.13[0-5] mask=24 router=10\.77\.0\.254 dns=10\.77\.0\.1 ` +
		`routes=10\.0\.0\.0/19 10\.77\.0\.101 0\.0\.0\.0/0 10\.77\.0\.254 search=c1\.lab\.test lab\.test lease=3600`)
	if !re.MatchString(out) {
		t.Errorf("udhcpc got:\n%s\nwant a line matching %s", out, re)
	}
	if _, ok := l.deps.Book.ByMAC(mac(t, pooled)); !ok {
		t.Error("no lease in the book")
	}
}

// TestDhclient gets a lease, and gives it back.
func TestDhclient(t *testing.T) {
	netns.Need(t, "root", "dhclient")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	l := startLive(t, seg)
	client := seg.NewClient(t, master0)
	dir := t.TempDir()
	log := filepath.Join(dir, "env")
	hook := script(t, `env >> `+log+`; [ -n "$new_ip_address" ] && ip addr replace $new_ip_address/24 dev eth0; exit 0`)
	args := []string{"-4", "-v", "-sf", hook, "-lf", filepath.Join(dir, "leases"), "-pf", filepath.Join(dir, "pid"), "-cf", "/dev/null"}
	client.Run(t, "dhclient", append(args, "-1", "eth0")...)
	env, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"new_ip_address=10.77.0.21", "new_host_name=master-0", "new_domain_name=c1.lab.test", "new_routers=10.77.0.254",
		"new_dhcp_lease_time=43200",
	} {
		if !strings.Contains(string(env), want) {
			t.Errorf("dhclient did not get %s", want)
		}
	}
	client.Run(t, "dhclient", append(args, "-r", "eth0")...)
	netns.WaitFor(t, "the release", func() bool {
		_, ok := l.deps.Book.ByAddr(ip("10.77.0.21"))
		return !ok
	})
}

// TestRenewUnicast: a client with its address renews by unicast, and one whose reservation has changed is refused at once.
func TestRenewUnicast(t *testing.T) {
	netns.Need(t, "root", "udhcpc", "tcpdump")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	l := startLive(t, seg)
	client := seg.NewClient(t, master0)
	log := filepath.Join(t.TempDir(), "log")
	hook := script(t, `echo "$1 $ip" >> `+log+`; [ "$1" = bound ] && ip addr replace $ip/24 dev eth0; exit 0`)
	cmd := client.Command(t.Context(), "udhcpc", "-i", "eth0", "-f", "-s", hook)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	logged := func(line string) func() bool {
		return func() bool {
			b, _ := os.ReadFile(log)
			return strings.Contains(string(b), line)
		}
	}
	netns.WaitFor(t, "the lease", logged("bound 10.77.0.21"))
	_ = cmd.Process.Signal(syscall.SIGUSR1)
	netns.WaitFor(t, "the renewal", logged("renew 10.77.0.21"))
	moved := *l.lab.Host("master-0")
	moved.IP = ip("10.77.0.22")
	changed := *l.lab
	changed.Hosts = []*lab.Host{&moved}
	l.setTable(Compile(&changed))
	_ = cmd.Process.Signal(syscall.SIGUSR1)
	netns.WaitFor(t, "the new address", logged("bound 10.77.0.22"))
}

// joinHere makes vcl, a NIC for a client that lives in the server's namespace: a veth pair whose other end is on the bridge.
func joinHere(t *testing.T, seg *netns.Segment) {
	t.Helper()
	netns.Run(t, "ip", "link", "add", "vcl", "type", "veth", "peer", "name", "vbr")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "vcl").Run() })
	netns.Run(t, "ip", "link", "set", "vcl", "address", other, "up")
	netns.Run(t, "ip", "link", "set", "vbr", "master", seg.Bridge, "up")
}

// TestNclient4 runs the codec's own client on a NIC without an address, and declines what it got.
func TestNclient4(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	l := startLive(t, seg)
	joinHere(t, seg)
	for _, broadcast := range []bool{false, true} {
		c, err := nclient4.New("vcl", nclient4.WithTimeout(5*time.Second), nclient4.WithRetry(6))
		if err != nil {
			t.Fatal(err)
		}
		lease, err := c.Request(t.Context(), dhcpv4.WithBroadcast(broadcast))
		_ = c.Close()
		if err != nil {
			t.Fatalf("broadcast %v: %v", broadcast, err)
		}
		if a, ok := l.deps.Book.ByMAC(mac(t, other)); !ok || a.Addr.String() != lease.ACK.YourIPAddr.String() {
			t.Errorf("broadcast %v: book has %v, the client %s", broadcast, a, lease.ACK.YourIPAddr)
		}
	}
}

// TestPortInUse: a second server on the same interface fails and says why; on another interface it does not.
func TestPortInUse(t *testing.T) {
	netns.Need(t, "root")
	one, two := netns.NewSegment(t, "10.77.0.1/24"), netns.NewSegment(t, "10.78.0.1/24")
	l := startLive(t, one)
	if _, err := segment.Listen(one.Bridge); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("second server on the same interface: got %v, want EADDRINUSE", err)
	}
	s, err := segment.Listen(two.Bridge)
	if err != nil {
		t.Fatalf("second server on another interface: %v", err)
	}
	_ = s.Close()
	l.stop()
	s, err = segment.Listen(one.Bridge)
	if err != nil {
		t.Fatalf("after the first server stopped: %v", err)
	}
	_ = s.Close()
	if _, err := segment.Listen("nosuch0"); !errors.Is(err, unix.ENODEV) {
		t.Errorf("an interface that is not there: got %v, want ENODEV", err)
	}
}

// TestBesideDnsmasq: a dnsmasq on another bridge, started as libvirt does, is no conflict, in either order of start.
func TestBesideDnsmasq(t *testing.T) {
	netns.Need(t, "root", "dnsmasq", "udhcpc")
	for _, first := range []string{"we", "they"} {
		t.Run(first+" start first", func(t *testing.T) {
			ours, theirs := netns.NewSegment(t, "10.77.0.1/24"), netns.NewSegment(t, "192.168.122.1/24")
			if first == "we" {
				startLive(t, ours)
			}
			netns.LibvirtDnsmasq(t, theirs.Bridge)
			hook := script(t, `[ "$1" = bound ] && echo "ip=$ip"; exit 0`)
			ask := func(seg *netns.Segment, want string) {
				client := seg.NewClient(t, other)
				out := client.Run(t, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "30", "-T", "1", "-s", hook)
				if !strings.Contains(out, want) {
					t.Errorf("want %s…, got:\n%s", want, out)
				}
			}
			ask(theirs, "ip=192.168.122.")
			if first == "they" {
				startLive(t, ours)
			}
			ask(ours, "ip=10.77.0.")
		})
	}
}

// TestStageFollowsTheLab: interfaces come and go with reloads, and a stage that fails leaves everything as it was.
func TestStageFollowsTheLab(t *testing.T) {
	netns.Need(t, "root", "udhcpc")
	one, two := netns.NewSegment(t, "10.77.0.1/24"), netns.NewSegment(t, "10.79.0.1/24")
	l := startLive(t, one)
	client := one.NewClient(t, master0)
	ask := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return client.Command(ctx, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "15", "-T", "2", "-s", "/bin/true").Run()
	}
	both := *l.lab.Networks[0]
	both.Interface = two.Bridge
	more := *l.lab
	more.Networks = []*lab.Network{&both, l.lab.Networks[1], l.lab.Networks[2], l.lab.Networks[3]}
	more.Hosts = []*lab.Host{l.lab.Host("master-0")}
	table := Compile(&more)
	blocker, err := segment.Listen(two.Bridge)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Stage(table); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "interface "+two.Bridge) {
		t.Fatalf("stage beside a blocker: got %v, want EADDRINUSE", err)
	}
	_ = blocker.Close()
	if err := ask(); err != nil {
		t.Fatalf("after a failed stage: %v", err)
	}
	st, err := l.Stage(table)
	if err != nil {
		t.Fatal(err)
	}
	st.Discard()
	if st, err = l.Stage(table); err != nil {
		t.Fatalf("after a discarded stage: %v", err)
	}
	st.Commit()
	if _, err := segment.Listen(two.Bridge); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("the new interface is not served: %v", err)
	}
	if st, err = l.Stage(l.table); err != nil {
		t.Fatal(err)
	}
	st.Commit()
	netns.WaitFor(t, "the retired interface", func() bool {
		s, err := segment.Listen(two.Bridge)
		if err == nil {
			_ = s.Close()
		}
		return err == nil
	})
	if err := ask(); err != nil {
		t.Errorf("the interface that stayed is not served: %v", err)
	}
}

// TestFlappingInterface: down and up, and away and back, do not end the service.
func TestFlappingInterface(t *testing.T) {
	netns.Need(t, "root", "udhcpc")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	startLive(t, seg)
	netns.Run(t, "ip", "link", "set", seg.Bridge, "down")
	netns.Run(t, "ip", "link", "set", seg.Bridge, "up")
	client := seg.NewClient(t, master0)
	client.Run(t, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "30", "-T", "1", "-s", "/bin/true")
	netns.Run(t, "ip", "link", "del", seg.Bridge)
	netns.Run(t, "ip", "link", "add", seg.Bridge, "type", "bridge", "stp_state", "0", "forward_delay", "0")
	netns.Run(t, "ip", "addr", "add", "10.77.0.1/24", "dev", seg.Bridge)
	netns.Run(t, "ip", "link", "set", seg.Bridge, "up")
	netns.Run(t, "ip", "link", "set", client.NIC, "master", seg.Bridge)
	client.Run(t, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "30", "-T", "1", "-s", "/bin/true")
}

// TestInterfaceComesLater starts the server before another program, such as libvirt, has made the bridge.
func TestInterfaceComesLater(t *testing.T) {
	netns.Need(t, "root", "ip", "udhcpc")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	netns.Run(t, "ip", "link", "del", seg.Bridge)
	l := startLive(t, seg)
	netns.Run(t, "ip", "link", "add", seg.Bridge, "type", "bridge", "stp_state", "0", "forward_delay", "0")
	netns.Run(t, "ip", "addr", "add", "10.77.0.1/24", "dev", seg.Bridge)
	netns.Run(t, "ip", "link", "set", seg.Bridge, "up")
	seg.NewClient(t, master0).Run(t, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "30", "-T", "1", "-s", "/bin/true")
	if lease, ok := l.deps.Book.ByMAC(mac(t, master0)); !ok || lease.Addr.String() != "10.77.0.21" {
		t.Errorf("lease %+v, want 10.77.0.21", lease)
	}
}

// TestRouterSolicitation: a router solicitation is answered with an advertisement without a router.
func TestRouterSolicitation(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	l := startLive(t, seg)
	joinHere(t, seg)
	got := netns.SolicitRouter(t, "vcl")
	if len(got) != 24 || got[0] != 134 || got[5] != 0 || got[6] != 0 || got[7] != 0 || got[16] != 1 {
		t.Errorf("advertisement % x: want type 134 without flags and lifetime, and our link address", got)
	}
	// It is counted after it was sent.
	netns.WaitFor(t, MetricRA+" to count it", func() bool { return testutil.ToFloat64(l.m.advertisements) >= 1 })
}
