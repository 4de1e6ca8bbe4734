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

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store/logfile"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestStorm: perfdhcp, as a relay for thousands of machines, gets a lease for each from a book on disk. Without
// BOOTLAB_PERFDHCP_RATE it offers a rate that a busy machine can follow; with it, that rate, and the rest is logged.
func TestStorm(t *testing.T) {
	netns.Need(t, "root", "perfdhcp")
	seg := netns.NewSegment(t, "10.76.0.1/16")
	network := &lab.Network{
		Name: "storm", Subnet: netip.MustParsePrefix("10.76.0.0/16"), Interface: seg.Bridge, Address: ip("10.76.0.1"),
		Router: ip("10.76.0.254"), DNS: []netip.Addr{ip("10.76.0.1")}, Lease: time.Hour, DHCP: lab.DHCPServer,
	}
	network.Pools = []*lab.Pool{{Name: "all", Network: network, Range: lab.Range{First: ip("10.76.1.0"), Last: ip("10.76.250.255")}}}
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
	sent, got := perfdhcp(t, client, "-l", "10.76.0.9", "-r", strconv.Itoa(rate), "-R", strconv.Itoa(machines), "-p", "2", "-W", "2000000", "-d", "20", "10.76.0.1")
	if sent < rate || (os.Getenv("BOOTLAB_PERFDHCP_RATE") == "" && got < sent*99/100) {
		t.Errorf("%d of %d requests acknowledged at %d a second", got, sent, rate)
	}
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
			pool := &lab.Pool{Name: "all", Network: network, Range: tt.pool}
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
			// Each machine once, in order: none asks again, so each lost answer is seen.
			n := strconv.Itoa(tt.machines)
			args := append([]string{"-l", "10.76.0.9", "-r", "300", "-R", n, "-n", n, "-W", "2000000", "-d", "20"}, tt.args...)
			_, got := perfdhcp(t, client, append(args, "10.76.0.1")...)
			if have := len(srv.deps.Book.All()); got < tt.machines*99/100 || have < min(got, tt.machines) { // a busy perfdhcp begins again with the first ones
				t.Errorf("%d of %d machines were acknowledged, %d leases", got, tt.machines, have)
			}
		})
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

// TestAnyInterface: a lab that is all behind relays is served on whatever interface the relay reaches, under the address
// that it reached.
func TestAnyInterface(t *testing.T) {
	netns.Need(t, "root", "perfdhcp")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	network := &lab.Network{
		Name: "far", Subnet: netip.MustParsePrefix("10.76.0.0/16"), Router: ip("10.76.0.254"), Lease: time.Hour, DHCP: lab.DHCPServer,
	}
	network.Pools = []*lab.Pool{{Name: "all", Network: network, Range: lab.Range{First: ip("10.76.1.0"), Last: ip("10.76.1.255")}}}
	startServer(t, &lab.Lab{Domain: "lab.test", Networks: []*lab.Network{network}}, newMemStore())
	client := seg.NewClient(t)
	client.Run(t, "ip", "addr", "add", "10.77.0.9/24", "dev", "eth0")
	client.Run(t, "ip", "addr", "add", "10.76.0.9/32", "dev", "eth0") // the relay's foot in the far network
	netns.Run(t, "ip", "route", "add", "10.76.0.9/32", "via", "10.77.0.9")
	// The kernel repeats an ARP request that is lost after a second: until then no client gets a reply.
	sent, got := perfdhcp(t, client, "-l", "10.76.0.9", "-r", "50", "-n", "150", "-R", "20", "-W", "2000000", "-d", "20", "10.77.0.1")
	if sent < 50 || got < sent*9/10 {
		t.Errorf("%d of %d requests acknowledged", got, sent)
	}
}
