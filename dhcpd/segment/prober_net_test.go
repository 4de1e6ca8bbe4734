package segment

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"golang.org/x/sys/unix"
)

// liveProber serves a prober on sockets until the test ends.
func liveProber(t *testing.T, socks ...*Socket) *Prober {
	t.Helper()
	p := NewProber(ProberConfig{}, ProberDeps{Now: time.Now, Relevant: netip.MustParsePrefix("10.64.0.0/10").Contains})
	background(t, p.Run)
	for _, s := range socks {
		background(t, func(ctx context.Context) { p.Serve(ctx, s) })
	}
	netns.WaitFor(t, "the wires", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		n := len(socks)
		for path := range p.senders {
			if !path.Relay {
				n++
			}
		}
		return len(p.senders) == n
	})
	return p
}

// askNow asks and waits for the answer.
func askNow(t *testing.T, p *Prober, path Path, addr string, asker lab.MAC) (Result, time.Duration) {
	t.Helper()
	got, start := make(chan Result, 1), time.Now()
	p.Probe(path, ip(addr), asker, func(r Result) { got <- r })
	select {
	case r := <-got:
		return r, time.Since(start)
	case <-time.After(30 * time.Second):
		t.Fatal("no result")
		return Result{}, 0
	}
}

// askSoon asks until the answer comes as soon as it should, and returns that one.
func askSoon(t *testing.T, p *Prober, path Path, addr string, least, most time.Duration) (r Result) {
	t.Helper()
	netns.Tries(t, 20, func(int) string {
		p.Forget(ip(addr))
		var took time.Duration
		if r, took = askNow(t, p, path, addr, alice); least <= took && took <= most {
			return ""
		}
		return fmt.Sprintf("%s: %+v after %s, want that after %s to %s", addr, r, took, least, most)
	})
	return r
}

// TestARPProbe: a host that has the address is found at once, its firewall notwithstanding; a free one takes 200 ms.
func TestARPProbe(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	host := seg.NewClient(t, "02:00:00:00:00:09")
	host.Run(t, "ip", "addr", "add", "10.77.0.50/24", "dev", "eth0")
	host.Run(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/icmp_echo_ignore_all")
	p, path := liveProber(t, open(t, seg.Bridge)), Path{Interface: seg.Bridge}
	r := askSoon(t, p, path, "10.77.0.50", 0, 150*time.Millisecond)
	if !r.Blocks(alice) || r.MAC != mac(t, "02:00:00:00:00:09") {
		t.Errorf("taken address: %+v", r)
	}
	if r.Blocks(r.MAC) {
		t.Error("the machine's own answer keeps it from its address")
	}
	if r = askSoon(t, p, path, "10.77.0.51", 190*time.Millisecond, time.Second); r.State != Free {
		t.Errorf("free address: %+v", r)
	}
	r, _ = askNow(t, p, path, "10.77.0.1", alice) // the appliance's own: nobody else has it
	if r.State != Free {
		t.Errorf("our own address: %+v", r)
	}
	t.Logf("neighbours: %s", host.Run(t, "ip", "neigh"))
	if n := host.Run(t, "ip", "neigh"); strings.Contains(n, "10.77.0.1 ") {
		t.Errorf("the probe taught the host an address: %s", n)
	}
}

// TestSlowARP: a machine that takes 50 ms to answer is found, and one that loses the first question.
func TestSlowARP(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	pair(t, seg, "slow0")
	ifi, err := net.InterfaceByName("slow0")
	if err != nil {
		t.Fatal(err)
	}
	ear, err := openPacketSocket(ifi, unix.ETH_P_ARP, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := liveProber(t, open(t, seg.Bridge))
	background(t, func(ctx context.Context) {
		context.AfterFunc(ctx, func() { _ = ear.conn.Close() })
		slowStack(ear, ifi.Index)
	})
	for ten, want := range map[int][2]time.Duration{
		5: {50 * time.Millisecond, 190 * time.Millisecond}, // not only when the time is over, after 200 ms
		6: {60 * time.Millisecond, 190 * time.Millisecond}, // answers the second question
	} {
		netns.Tries(t, 9, func(i int) string {
			addr := fmt.Sprintf("10.77.0.%d%d", ten, i)
			r, took := askNow(t, p, Path{Interface: seg.Bridge}, addr, alice)
			if !r.Blocks(alice) || r.MAC != bob || took < want[0] || took > want[1] {
				return fmt.Sprintf("%s: %+v after %s, want after %s", addr, r, took, want)
			}
			return ""
		})
	}
}

// slowStack answers for 10.77.0.50 to 59 after 50 ms, and for 10.77.0.60 to 69 only if asked twice.
func slowStack(ear *packetSocket, index int) {
	buf := make([]byte, 128)
	asked := map[netip.Addr]int{}
	for {
		n, err := ear.read(buf)
		if err != nil {
			return
		}
		if n < arpSize || buf[21] != 1 {
			continue
		}
		target := netip.AddrFrom4([4]byte(buf[38:]))
		asked[target]++
		f := arpProbe(bob, netip.AddrFrom4([4]byte{}))
		copy(f[0:], buf[6:12])
		f[21] = 2
		copy(f[28:], buf[38:42])
		answer := func() {
			_ = ear.write(f[:], &unix.SockaddrLinklayer{Ifindex: index, Halen: 6, Addr: [8]byte(append([]byte{}, f[:8]...))})
		}
		switch ten := target.As4()[3] / 10; {
		case ten == 5 && asked[target] == 1:
			time.AfterFunc(50*time.Millisecond, answer)
		case ten == 6 && asked[target] == 2:
			answer()
		}
	}
}

// TestPassiveLearning: whoever speaks is known before anybody asks, and costs no question.
func TestPassiveLearning(t *testing.T) {
	netns.Need(t, "root", "arping", "bash")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	p := liveProber(t, open(t, seg.Bridge))
	host := seg.NewClient(t, "02:00:00:00:00:09")
	host.Run(t, "ip", "addr", "add", "10.77.0.50/24", "dev", "eth0")
	host.Run(t, "ip", "addr", "add", "10.77.0.51/24", "dev", "eth0")
	host.Run(t, "arping", "-U", "-c", "1", "-I", "eth0", "-s", "10.77.0.50", "10.77.0.50")
	known := func(a string) func() bool {
		return func() bool { return p.Known(ip(a)).State == InUse }
	}
	netns.WaitFor(t, "the announced address", known("10.77.0.50"))
	if r := p.Known(ip("10.77.0.50")); r.MAC != mac(t, "02:00:00:00:00:09") {
		t.Errorf("announced: %+v", r)
	}
	if known("10.77.0.51")() {
		t.Error("an address is known that nobody spoke with")
	}
	host.Run(t, "ip", "route", "add", "10.77.0.200/32", "dev", "eth0", "src", "10.77.0.51")
	host.Run(t, "bash", "-c", "echo > /dev/udp/10.77.0.200/9") // looks for a neighbour
	netns.WaitFor(t, "the address that looks for a neighbour", known("10.77.0.51"))
	if s := p.Stats(); s.Probed != 0 {
		t.Errorf("%d questions", s.Probed)
	}
}

// TestPingProbe: past a relay, machines are found by ICMP.
func TestPingProbe(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	router, host := seg.NewClient(t), seg.NewClient(t)
	netns.Run(t, "ip", "-n", host.Name, "link", "del", "eth0")
	netns.Run(t, "ip", "-n", router.Name, "link", "add", "far0", "type", "veth", "peer", "name", "eth0", "netns", host.Name)
	router.Run(t, "ip", "addr", "add", "10.77.0.254/24", "dev", "eth0")
	router.Run(t, "ip", "addr", "add", "10.78.0.1/24", "dev", "far0")
	router.Run(t, "ip", "link", "set", "far0", "up")
	router.Run(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
	host.Run(t, "ip", "addr", "add", "10.78.0.9/24", "dev", "eth0")
	host.Run(t, "ip", "link", "set", "eth0", "up")
	host.Run(t, "ip", "route", "add", "default", "via", "10.78.0.1")
	router.AwaitUp(t, "far0")
	host.AwaitUp(t, "eth0")
	netns.Run(t, "ip", "route", "add", "10.78.0.0/24", "via", "10.77.0.254")
	for _, iface := range []string{"", seg.Bridge} {
		s := open(t, iface)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		NewProber(ProberConfig{}, ProberDeps{Now: time.Now, Relevant: netip.Addr.IsValid}).Serve(ended, s) // one that served before
		p, path := liveProber(t, s), Path{Interface: iface, Relay: true}
		if r := askSoon(t, p, path, "10.78.0.9", 0, 150*time.Millisecond); r.State != InUse {
			t.Errorf("on %q: %+v", iface, r)
		}
		if r, _ := askNow(t, p, path, "10.78.0.10", alice); r.State != Free {
			t.Errorf("on %q: free address: %+v", iface, r)
		}
		if r := askSoon(t, p, path, "10.99.0.1", 0, 50*time.Millisecond); r.State != Unknown {
			t.Errorf("on %q: no route: %+v, want unknown", iface, r)
		}
		_ = s.Close() // one for any interface and one for this cannot be at the same time
	}
}

// TestARPFlood: a flood costs bounded memory and bounded time, and makes nobody's address free.
func TestARPFlood(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/16")
	pair(t, seg, "flood0")
	host := seg.NewClient(t)
	host.Run(t, "ip", "addr", "add", "10.77.99.9/16", "dev", "eth0")
	p := liveProber(t, open(t, seg.Bridge))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	start, done := time.Now(), make(chan int)
	go func() { done <- flood(ctx, t, "flood0") }()
	path, results := Path{Interface: seg.Bridge}, map[State]int{}
	for ctx.Err() == nil {
		r, _ := askNow(t, p, path, "10.77.99.9", alice)
		results[r.State]++
		p.Forget(r.Addr)
	}
	sent, s := <-done, p.Stats()
	took := time.Since(start) // after the count: a machine may stand still between the two
	if s.Observations < 100 || float64(s.Observations) > maxARP*(took.Seconds()+0.3) {
		t.Errorf("heard %d of %d in %s, want some, and no more than %d a second", s.Observations, sent, took, maxARP)
	}
	p.mu.Lock()
	if n := p.observed.len(); n > p.cfg.Addresses {
		t.Errorf("%d addresses are remembered", n)
	}
	p.mu.Unlock()
	t.Logf("%d frames in %s, %d read; unknown %d, free %d, in use %d", sent, took, s.Observations, results[Unknown], results[Free], results[InUse])
	if results[Free] != 0 {
		t.Errorf("an address in use was free %d times, because nobody could be heard", results[Free])
	}
	netns.WaitFor(t, "the flood's end", func() bool {
		r, _ := askNow(t, p, path, "10.77.99.9", alice)
		return r.State == InUse
	})
}

// flood says to have many addresses, and how often it did.
func flood(ctx context.Context, t *testing.T, iface string) (sent int) {
	ifi, err := net.InterfaceByName(iface)
	if err != nil {
		t.Error(err)
		return 0
	}
	gun, err := openPacketSocket(ifi, 0, nil)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer gun.conn.Close()
	to := &unix.SockaddrLinklayer{Ifindex: ifi.Index, Halen: 6}
	for ; ctx.Err() == nil; sent++ {
		f := arpProbe(bob, ip("10.77.0.1"))
		copy(f[28:], []byte{10, 64 + byte(sent>>16&7), byte(sent >> 8), byte(sent)})
		_ = gun.write(f[:], to)
	}
	return sent
}

// TestNothingStaysBehind: when a server ends, its descriptors do.
func TestNothingStaysBehind(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	_ = open(t, seg.Bridge).Close()
	before := count()
	for range 5 {
		s := open(t, seg.Bridge)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		NewProber(ProberConfig{}, ProberDeps{Now: time.Now, Relevant: netip.Addr.IsValid}).Serve(ctx, s) // returns
		Watch(ctx, s, netip.Addr.IsValid, func(Rogue) {})
		_ = s.Close()
	}
	if _, err := Listen("nosuch0"); err == nil {
		t.Error("opened what is not there")
	}
	if after := count(); after != before {
		out, _ := exec.Command("ls", "-l", "/proc/"+strconv.Itoa(os.Getpid())+"/fd").CombinedOutput()
		t.Errorf("%d descriptors before, %d after:\n%s", before, after, out)
	}
}
