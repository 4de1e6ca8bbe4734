package dhcpd

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store/logfile"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestStorm: perfdhcp, as a relay for thousands of machines, asks for leases from a book on disk, and each packet that reaches
// the server is answered. How many do not reach it, or are lost on the way back, is a matter of the machine: perfdhcp sends what
// it is late with at once and overflows buffers. BOOTLAB_PERFDHCP_RATE sets the rate.
func TestStorm(t *testing.T) {
	netns.Need(t, "root", "perfdhcp")
	seg := netns.NewSegment(t, "10.76.0.1/16")
	network := &lab.Network{
		Name: "storm", Subnet: netip.MustParsePrefix("10.76.0.0/16"), Interface: seg.Bridge, Address: ip("10.76.0.1"),
		Router: ip("10.76.0.254"), DNS: []netip.Addr{ip("10.76.0.1")}, Lease: time.Hour, DHCP: lab.DHCPServer,
	}
	network.Pools = []*lab.Pool{{Name: "all", Network: network, Lease: time.Hour, Range: lab.Range{First: ip("10.76.1.0"), Last: ip("10.76.250.255")}}}
	s, _, err := logfile.Open(filepath.Join(t.TempDir(), "book.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	srv := startServer(t, &lab.Lab{Domain: "lab.test", Networks: []*lab.Network{network}}, s)
	client := seg.NewClient(t)
	client.Run(t, "ip", "addr", "add", "10.76.0.9/16", "dev", "eth0")
	rate, machines := 300, 600
	if v := os.Getenv("BOOTLAB_PERFDHCP_RATE"); v != "" {
		if rate, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
		machines = 20_000
	}
	_, got := perfdhcp(t, client, "-l", "10.76.0.9", "-r", strconv.Itoa(rate), "-R", strconv.Itoa(machines), "-p", "2", "-W", "2000000", "-d", "20", "10.76.0.1")
	if got == 0 {
		t.Error("no request was acknowledged")
	}
	netns.WaitFor(t, "an answer to each packet", func() bool {
		return counted(srv.m.sent[wire.Offer]) == counted(srv.m.received[wire.Discover]) && counted(srv.m.sent[wire.Ack]) == counted(srv.m.received[wire.Request])
	})
	wantNoDrops(t, srv)
	if stored := len(srv.deps.Book.All()); stored < got/2 || stored > machines {
		t.Errorf("%d leases in the book after %d acknowledgements", stored, got)
	}
}

// TestRackAtOnce: machines that are switched on together all get an address of a pool as large as their number, on one relay
// port too, and beside machines that ask for addresses and never take them.
func TestRackAtOnce(t *testing.T) {
	netns.Need(t, "root", "perfdhcp")
	for _, tt := range []struct {
		name     string
		machines int
		pool     lab.Range
		args     []string
		flood    bool
	}{
		{"1000 machines", 1000, lab.Range{First: ip("10.76.1.0"), Last: ip("10.76.4.231")}, nil, false},
		{"200 behind one relay port", 200, lab.Range{First: ip("10.76.1.0"), Last: ip("10.76.1.199")}, []string{"-o", "82,0106706f72742037"}, false},
		{"beside a flood", 300, lab.Range{First: ip("10.76.1.0"), Last: ip("10.76.2.143")}, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seg := netns.NewSegment(t, "10.76.0.1/16")
			network := &lab.Network{
				Name: "rack", Subnet: netip.MustParsePrefix("10.76.0.0/16"), Interface: seg.Bridge, Address: ip("10.76.0.1"), Lease: time.Hour, DHCP: lab.DHCPServer,
			}
			pool := &lab.Pool{Name: "all", Network: network, Lease: time.Hour, Range: tt.pool}
			network.Pools = []*lab.Pool{pool}
			srv := startServer(t, &lab.Lab{Domain: "lab.test", Networks: []*lab.Network{network}}, newMemStore())
			client := seg.NewClient(t)
			client.Run(t, "ip", "addr", "add", "10.76.0.9/16", "dev", "eth0")
			if tt.flood {
				stop := discoverFlood(t, seg.NewClient(t))
				defer stop()
				netns.WaitFor(t, "a flood that has all addresses", func() bool {
					_, offered, free := srv.deps.Book.Usage(srv.deps.Table().scopes[0].pools[0].addrs)
					return free == 0 && offered > 0
				})
			}
			// Each machine once, in order, as often as a busy machine needs: perfdhcp does not repeat what is lost.
			n := strconv.Itoa(tt.machines)
			args := append([]string{"-l", "10.76.0.9", "-r", "300", "-R", n, "-n", n, "-W", "2000000", "-d", "20"}, tt.args...)
			have := 0
			for try := 0; try < 10 && have < tt.machines; try++ {
				perfdhcp(t, client, append(args, "10.76.0.1")...)
				have = len(srv.deps.Book.All())
			}
			if have < tt.machines {
				t.Errorf("%d of %d machines have leases", have, tt.machines)
			}
			if !tt.flood {
				wantNoDrops(t, srv)
			}
		})
	}
}

func counted(c prometheus.Counter) int { return int(testutil.ToFloat64(c)) }

// wantNoDrops reports packets that the server left without an answer, by reason.
func wantNoDrops(t *testing.T, srv *Server) {
	t.Helper()
	for reason := dropNone + 1; reason < dropReasons; reason++ {
		if n := counted(srv.m.dropped[reason]); n > 0 {
			t.Errorf("%d packets were dropped as %s", n, reason)
		}
	}
}

// discoverFlood sends DISCOVERs of ever new machines from a namespace, until the returned function is called.
func discoverFlood(t *testing.T, c *netns.Client) (stop func()) {
	t.Helper()
	c.Run(t, "ip", "addr", "add", "10.76.0.8/16", "dev", "eth0")
	cmd := c.Command(t.Context(), "perfdhcp", "-4", "-i", "-l", "10.76.0.8", "-r", "500", "-R", "10000000", "-p", "600",
		"-b", "mac=02:f1:00:00:00:00", "10.76.0.1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// perfdhcp asks as many machines do, and returns how many requests it sent and how many were acknowledged.
func perfdhcp(t *testing.T, c *netns.Client, args ...string) (sent, got int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := c.Command(ctx, "perfdhcp", append([]string{"-4", "-g", "single"}, args...)...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 3) { // 3: something was not answered
		t.Fatalf("perfdhcp: %v\n%s", err, out)
	}
	t.Logf("%s", out)
	m := regexp.MustCompile(`(?s)REQUEST-ACK.*?sent packets: (\d+)\s+received packets: (\d+)`).FindSubmatch(out)
	if m == nil {
		t.Fatal("perfdhcp says nothing about acknowledgements")
	}
	sent, _ = strconv.Atoi(string(m[1]))
	got, _ = strconv.Atoi(string(m[2]))
	return sent, got
}

// TestAnyInterface: a lab that is all behind relays is served on whatever interface the relay reaches.
func TestAnyInterface(t *testing.T) {
	netns.Need(t, "root", "perfdhcp")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	network := &lab.Network{
		Name: "far", Subnet: netip.MustParsePrefix("10.76.0.0/16"), Address: ip("10.77.0.1"), Router: ip("10.76.0.254"), Lease: time.Hour, DHCP: lab.DHCPServer,
	}
	network.Pools = []*lab.Pool{{Name: "all", Network: network, Lease: time.Hour, Range: lab.Range{First: ip("10.76.1.0"), Last: ip("10.76.1.255")}}}
	srv := startServer(t, &lab.Lab{Domain: "lab.test", Networks: []*lab.Network{network}}, newMemStore())
	client := seg.NewClient(t)
	client.Run(t, "ip", "addr", "add", "10.77.0.9/24", "dev", "eth0")
	client.Run(t, "ip", "addr", "add", "10.76.0.9/32", "dev", "eth0") // the relay's foot in the far network
	netns.Run(t, "ip", "route", "add", "10.76.0.9/32", "via", "10.77.0.9")
	// The kernel repeats an ARP request that is lost after a second: until then no client gets a reply.
	const machines = 20
	for try := 0; try < 10 && len(srv.deps.Book.All()) < machines; try++ {
		perfdhcp(t, client, "-l", "10.76.0.9", "-r", "50", "-n", "150", "-R", strconv.Itoa(machines), "-W", "2000000", "-d", "20", "10.77.0.1")
	}
	if have := len(srv.deps.Book.All()); have < machines {
		t.Errorf("%d of %d machines have leases", have, machines)
	}
	wantNoDrops(t, srv)
}
