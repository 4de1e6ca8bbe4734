package segment

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/host/link/arp"
	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

// reports collects what a watch reports.
type reports struct {
	mu  sync.Mutex
	got []ServerReply
}

func (r *reports) add(x ServerReply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, x)
}

func (r *reports) all() []ServerReply {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]ServerReply{}, r.got...)
}

// strangers are other servers, each a function that starts it on the eth0 of a namespace that has 10.77.0.254.
var strangers = map[string]func(*testing.T, *netns.Client){
	"dnsmasq": func(t *testing.T, c *netns.Client) {
		start(t, c, "dnsmasq", "-k", "--conf-file=/dev/null", "--port=0", "--interface=eth0", "--bind-interfaces", "--no-ping",
			"--dhcp-range=10.77.0.100,10.77.0.150", "--dhcp-broadcast", "--user=root", "--group=root",
			"--pid-file="+filepath.Join(t.TempDir(), "pid"), "--dhcp-leasefile="+filepath.Join(t.TempDir(), "leases"))
	},
	"kea-dhcp4": func(t *testing.T, c *netns.Client) {
		dir := t.TempDir()
		conf := filepath.Join(dir, "kea.conf")
		text := `{"Dhcp4": {"interfaces-config": {"interfaces": ["eth0"]},
			"lease-database": {"type": "memfile", "persist": false},
			"loggers": [{"name": "kea-dhcp4", "severity": "INFO", "output_options": [{"output": "stdout"}]}],
			"subnet4": [{"subnet": "10.77.0.0/24", "pools": [{"pool": "10.77.0.100-10.77.0.150"}]}]}}`
		if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		start(t, c, "env", "KEA_PIDFILE_DIR="+dir, "KEA_LOCKFILE_DIR=none", "kea-dhcp4", "-c", conf)
	},
	"dhcpd": func(t *testing.T, c *netns.Client) {
		dir := t.TempDir()
		conf, leases := filepath.Join(dir, "conf"), filepath.Join(dir, "leases")
		text := "authoritative; always-broadcast on; ping-check off; subnet 10.77.0.0 netmask 255.255.255.0 { range 10.77.0.100 10.77.0.150; }\n"
		for path, content := range map[string]string{conf: text, leases: ""} {
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		start(t, c, "dhcpd", "-4", "-f", "-d", "-cf", conf, "-lf", leases, "-pf", filepath.Join(dir, "pid"), "eth0")
	},
}

// TestRogue: real servers on the segment are seen when they answer anybody, and by asking them.
func TestRogue(t *testing.T) {
	for name, begin := range strangers {
		t.Run(name, func(t *testing.T) {
			netns.Need(t, "root", name)
			seg := netns.NewSegment(t, "10.77.0.1/24")
			s := open(t, seg.Bridge)
			var seen reports
			background(t, func(ctx context.Context) {
				Watch(ctx, s, func(a netip.Addr) bool { return false }, seen.add)
			})
			rogue := seg.NewClient(t, "02:00:00:00:00:66")
			rogue.Run(t, "ip", "addr", "add", "10.77.0.254/24", "dev", "eth0")
			begin(t, rogue)
			found := discoverUntil(t, seg.Bridge)
			want := ServerReply{
				Interface: seg.Bridge, ServerID: ip("10.77.0.254"), SourceIP: ip("10.77.0.254"),
				SourceMAC: mac(t, "02:00:00:00:00:66"), Kind: Offer,
			}
			check := func(how string, got ServerReply) {
				t.Logf("%s %s: %+v", name, how, got)
				if got.ClientMAC[0]&3 != 2 || !netip.MustParsePrefix("10.77.0.0/24").Contains(got.YIAddr) {
					t.Errorf("%s: client %s, address %s", how, got.ClientMAC, got.YIAddr)
				}
				got.ClientMAC, got.YIAddr, got.Suppressed = lab.MAC{}, netip.Addr{}, 0
				if got != want {
					t.Errorf("%s: got %+v, want %+v", how, got, want)
				}
			}
			if len(found) != 1 {
				t.Fatalf("discovered %+v, want one", found)
			}
			check("discovered", found[0])
			netns.WaitFor(t, "the report", func() bool { return len(seen.all()) > 0 })
			check("watched", seen.all()[0])
			if n := len(seen.all()); n != 1 {
				t.Errorf("%d reports within seconds, want 1", n)
			}
		})
	}
}

// discoverUntil asks until somebody answers: the server may still be starting.
func discoverUntil(t *testing.T, iface string) (found []ServerReply) {
	t.Helper()
	netns.WaitFor(t, "a server", func() bool {
		var err error
		if found, err = Discover(t.Context(), iface, 500*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		return len(found) > 0
	})
	return found
}

// TestOwnAnswersAreNoRogue: neither what we send, nor what a relay brings of ours.
func TestOwnAnswersAreNoRogue(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	pair(t, seg, "relay0")
	s := open(t, seg.Bridge)
	var seen reports
	background(t, func(ctx context.Context) {
		Watch(ctx, s, func(a netip.Addr) bool { return a == ip("10.77.0.1") }, seen.add)
	})
	ifi, err := net.InterfaceByName("relay0")
	if err != nil {
		t.Fatal(err)
	}
	relay, err := packet.OpenOn(ifi.Index, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	ours, theirs := reply(53, 1, 2, 54, 4, 10, 77, 0, 1, 255), reply(53, 1, 2, 54, 4, 10, 77, 0, 254, 255)
	for _, f := range [][]byte{ours, theirs} {
		d := Dest{Source: ip("10.77.0.253"), Port: PortServer, To: netip.AddrPortFrom(broadcastIP, PortClient), MAC: arp.Broadcast}
		out := NewSender(1, func(_ *Socket, _ Dest, err error) { t.Error(err) })
		out.Queue(s, d, append([]byte{}, f...)) // our own, also with another server's identifier
		out.Flush()
		putHeaders(f, bob, &d)
		if err := relay.Send(ifi.Index, f); err != nil {
			t.Fatal(err)
		}
	}
	netns.WaitFor(t, "the other server", func() bool { return len(seen.all()) > 0 })
	if got := seen.all(); len(got) != 1 || got[0].ServerID != ip("10.77.0.254") || got[0].SourceMAC != bob {
		t.Errorf("reported %+v, want that server alone", got)
	}
}

// TestReflectedAnswersAreNoRogue: a loop or a switch may bring back what we sent.
func TestReflectedAnswersAreNoRogue(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	pair(t, seg, "refl0")
	netns.Run(t, "ip", "link", "set", "refl0p", "nomaster")
	s := open(t, "refl0")
	ifi, err := net.InterfaceByName("refl0p")
	if err != nil {
		t.Fatal(err)
	}
	mirror, err := packet.OpenOn(ifi.Index, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer mirror.Close()
	var seen reports
	background(t, func(ctx context.Context) { Watch(ctx, s, func(netip.Addr) bool { return false }, seen.add) })
	for _, from := range []lab.MAC{s.MAC(), bob} {
		f := reply(53, 1, 2, 255)
		d := Dest{Source: ip("10.77.0.253"), Port: PortServer, To: netip.AddrPortFrom(broadcastIP, PortClient), MAC: arp.Broadcast}
		putHeaders(f, from, &d)
		if err := mirror.Send(ifi.Index, f); err != nil {
			t.Fatal(err)
		}
	}
	netns.WaitFor(t, "the other server", func() bool { return len(seen.all()) > 0 })
	if got := seen.all(); len(got) != 1 || got[0].SourceMAC != bob {
		t.Errorf("reported %+v, want that server alone", got)
	}
}

// TestReportsAreLimited: one server is reported every ten seconds, and a crowd not at all.
func TestReportsAreLimited(t *testing.T) {
	t.Parallel()
	w, now := reportLimiter{seen: map[serverKey]*server{}}, time.Unix(1e9, 0)
	var got []int
	for i := range 100 { // every half second
		r := ServerReply{ServerID: ip("10.77.0.254")}
		if w.due(&r, now.Add(time.Duration(i)*time.Second/2)) {
			got = append(got, r.Suppressed)
		}
	}
	if fmt.Sprint(got) != "[0 19 19 19 19]" {
		t.Errorf("missed before each report: %v", got)
	}
	crowd := 0
	for i := range 10000 {
		r := ServerReply{ServerID: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})}
		if w.due(&r, now.Add(50*time.Second)) {
			crowd++
		}
	}
	if crowd > maxServers || len(w.seen) > maxServers {
		t.Errorf("%d of a crowd are reported, %d remembered", crowd, len(w.seen))
	}
}

// TestBulkDoesNotWake: what the appliance serves and is sent does not reach either ear.
func TestBulkDoesNotWake(t *testing.T) {
	netns.Need(t, "root", "bash")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	s := open(t, seg.Bridge)
	client := seg.NewClient(t)
	client.Run(t, "ip", "addr", "add", "10.77.0.9/24", "dev", "eth0")
	l, err := net.Listen("tcp4", "10.77.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	const size = 200 << 20
	start(t, client, "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/%s/%s; cat <&3 >/dev/null & head -c %d /dev/zero >&3; wait", host, port, size))
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() { _, _ = io.Copy(conn, io.LimitReader(zeros{}, size)) }()
	n, err := io.CopyN(io.Discard, conn, size)
	if err != nil || n != size {
		t.Fatalf("received %d, %v", n, err)
	}
	// UDP that looks nearly right: another port, and port 68 without a server's message.
	for _, to := range []string{"69", "68"} {
		client.Run(t, "bash", "-c", "head -c 300 /dev/zero > /dev/udp/10.77.0.1/"+to)
	}
	stats, err := s.replies.Stats()
	if err != nil {
		t.Fatal(err)
	}
	arp, err := s.arp.Stats()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MiB in, and as much out: %d packets for the watch, %d for ARP", size>>20, stats.Packets, arp.Packets)
	if stats.Packets != 0 || arp.Packets > 10 {
		t.Errorf("%d packets passed the filter for DHCP and %d that for ARP", stats.Packets, arp.Packets)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }
