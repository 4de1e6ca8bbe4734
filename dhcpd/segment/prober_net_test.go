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

	"github.com/bootlab/bootlab/internal/host/link/arp"
	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/test/support/netns"

	"golang.org/x/sys/unix"
)

// liveProber serves a prober on sockets until the test ends.
func liveProber(t *testing.T, wait time.Duration, socks ...*Socket) *Prober {
	t.Helper()
	p := NewProber(ProberDeps{Now: time.Now, Relevant: netip.MustParsePrefix("10.64.0.0/10").Contains})
	p.wait = wait
	background(t, p.Run)
	for _, s := range socks {
		background(t, func(ctx context.Context) { p.Serve(ctx, s) })
	}
	netns.WaitFor(t, "the senders", func() bool {
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

// probeNow probes an address and waits for the result.
func probeNow(t *testing.T, p *Prober, path Path, addr string) Result {
	t.Helper()
	got := make(chan Result, 1)
	p.Probe(path, ip(addr), alice, func(r Result) { got <- r })
	select {
	case r := <-got:
		return r
	case <-time.After(30 * time.Second):
		t.Fatal("no result")
		return Result{}
	}
}

// TestARPProbe: a host that has the address is found although it ignores ping. TestProbe in virtual time has the durations.
func TestARPProbe(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	host := seg.NewClient(t, "02:00:00:00:00:09")
	host.Run(t, "ip", "addr", "add", "10.77.0.50/24", "dev", "eth0")
	host.Run(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/icmp_echo_ignore_all")
	p, path := liveProber(t, probeWait, open(t, seg.Bridge)), Path{Interface: seg.Bridge}
	r := probeNow(t, p, path, "10.77.0.50")
	if !r.Blocks(alice) || r.MAC != mac(t, "02:00:00:00:00:09") {
		t.Errorf("taken address: %+v", r)
	}
	if r.Blocks(r.MAC) {
		t.Error("the machine's own reply blocks it")
	}
	if r = probeNow(t, p, path, "10.77.0.51"); r.Use != Free {
		t.Errorf("free address: %+v", r)
	}
	r = probeNow(t, p, path, "10.77.0.1") // the appliance's own: no other machine has it
	if r.Use != Free {
		t.Errorf("our own address: %+v", r)
	}
	t.Logf("neighbours: %s", host.Run(t, "ip", "neigh"))
	if n := host.Run(t, "ip", "neigh"); strings.Contains(n, "10.77.0.1 ") {
		t.Errorf("the probe taught the host an address: %s", n)
	}
}

// TestSlowARP: a machine that takes 50 ms to reply is found, and one that loses the first probe.
func TestSlowARP(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	pair(t, seg, "slow0")
	ifi, err := net.InterfaceByName("slow0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := packet.OpenOn(ifi.Index, unix.ETH_P_ARP, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := liveProber(t, 3*time.Second, open(t, seg.Bridge))
	background(t, func(ctx context.Context) {
		context.AfterFunc(ctx, listener.Close)
		slowStack(listener, ifi.Index)
	})
	for _, tens := range []int{5, 6} { // replies late; replies to the second probe
		netns.Tries(t, 9, func(i int) string {
			addr := fmt.Sprintf("10.77.0.%d%d", tens, i)
			if r := probeNow(t, p, Path{Interface: seg.Bridge}, addr); !r.Blocks(alice) || r.MAC != bob {
				return fmt.Sprintf("%s: %+v, want in use", addr, r)
			}
			return ""
		})
	}
}

// slowStack replies for 10.77.0.50 to 59 after 50 ms, and for 10.77.0.60 to 69 only to the second probe.
func slowStack(listener *packet.Socket, index int) {
	buf := make([]byte, 128)
	asked := map[netip.Addr]int{}
	for {
		n, err := listener.Read(buf)
		if err != nil {
			return
		}
		if n < arp.Size || buf[21] != 1 {
			continue
		}
		target := netip.AddrFrom4([4]byte(buf[38:]))
		asked[target]++
		f := arp.Request(bob, netip.Addr{}, arp.Broadcast, netip.AddrFrom4([4]byte{}))
		copy(f[0:], buf[6:12])
		f[21] = 2
		copy(f[28:], buf[38:42])
		answer := func() {
			_ = listener.Send(index, f[:])
		}
		switch ten := target.As4()[3] / 10; {
		case ten == 5 && asked[target] == 1:
			time.AfterFunc(50*time.Millisecond, answer)
		case ten == 6 && asked[target] == 2:
			answer()
		}
	}
}

// TestPassiveLearning: a machine that sends ARP is known without a probe.
func TestPassiveLearning(t *testing.T) {
	netns.Need(t, "root", "arping", "bash")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	p := liveProber(t, probeWait, open(t, seg.Bridge))
	host := seg.NewClient(t, "02:00:00:00:00:09")
	host.Run(t, "ip", "addr", "add", "10.77.0.50/24", "dev", "eth0")
	host.Run(t, "ip", "addr", "add", "10.77.0.51/24", "dev", "eth0")
	host.Run(t, "arping", "-U", "-c", "1", "-I", "eth0", "-s", "10.77.0.50", "10.77.0.50")
	known := func(a string) func() bool {
		return func() bool { return p.Known(ip(a)).Use == InUse }
	}
	netns.WaitFor(t, "the announced address", known("10.77.0.50"))
	if r := p.Known(ip("10.77.0.50")); r.MAC != mac(t, "02:00:00:00:00:09") {
		t.Errorf("announced: %+v", r)
	}
	if known("10.77.0.51")() {
		t.Error("an address is known that no machine has used")
	}
	host.Run(t, "ip", "route", "add", "10.77.0.200/32", "dev", "eth0", "src", "10.77.0.51")
	host.Run(t, "bash", "-c", "echo > /dev/udp/10.77.0.200/9") // looks for a neighbour
	netns.WaitFor(t, "the address that looks for a neighbour", known("10.77.0.51"))
	if s := p.Stats(); s.Probed != 0 {
		t.Errorf("%d probes", s.Probed)
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
		NewProber(ProberDeps{Now: time.Now, Relevant: netip.Addr.IsValid}).Serve(ended, s) // an earlier one
		p, path := liveProber(t, probeWait, s), Path{Interface: iface, Relay: true}
		if r := probeNow(t, p, path, "10.78.0.9"); r.Use != InUse {
			t.Errorf("on %q: %+v", iface, r)
		}
		if r := probeNow(t, p, path, "10.78.0.10"); r.Use != Free {
			t.Errorf("on %q: free address: %+v", iface, r)
		}
		if r := probeNow(t, p, path, "10.99.0.1"); r.Use != Unknown {
			t.Errorf("on %q: no route: %+v, want unknown", iface, r)
		}
		_ = s.Close() // one for any interface and one for this cannot be at the same time
	}
}

// TestARPFlood: a flood costs bounded memory and processor time, and no address in use is taken for free.
func TestARPFlood(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/16")
	pair(t, seg, "flood0")
	host := seg.NewClient(t)
	host.Run(t, "ip", "addr", "add", "10.77.99.9/16", "dev", "eth0")
	p := liveProber(t, probeWait, open(t, seg.Bridge))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	start, done := time.Now(), make(chan int)
	go func() { done <- flood(ctx, t, "flood0") }()
	path, results := Path{Interface: seg.Bridge}, map[Use]int{}
	for ctx.Err() == nil {
		r := probeNow(t, p, path, "10.77.99.9")
		results[r.Use]++
		p.Forget(r.Addr)
	}
	sent, s := <-done, p.Stats()
	took := time.Since(start) // after the count: a machine may stand still between the two
	if s.Observations == 0 || float64(s.Observations) > maxARP*(took.Seconds()+0.3) {
		t.Errorf("received %d of %d in %s, want some, and no more than %d a second", s.Observations, sent, took, maxARP)
	}
	p.mu.Lock()
	if n := len(p.observed.young) + len(p.observed.old); n > maxKnown {
		t.Errorf("%d addresses are remembered", n)
	}
	p.mu.Unlock()
	t.Logf("%d frames in %s, %d read; unknown %d, free %d, in use %d", sent, took, s.Observations, results[Unknown], results[Free], results[InUse])
	if results[Free] != 0 {
		t.Errorf("an address in use was free %d times, because frames were dropped", results[Free])
	}
	netns.WaitFor(t, "the flood's end", func() bool {
		r := probeNow(t, p, path, "10.77.99.9")
		return r.Use == InUse
	})
}

// flood announces many addresses, and returns how many frames it sent.
func flood(ctx context.Context, t *testing.T, iface string) (sent int) {
	ifi, err := net.InterfaceByName(iface)
	if err != nil {
		t.Error(err)
		return 0
	}
	gun, err := packet.OpenOn(ifi.Index, 0, nil)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer gun.Close()
	for ; ctx.Err() == nil; sent++ {
		f := arp.Request(bob, netip.Addr{}, arp.Broadcast, ip("10.77.0.1"))
		copy(f[28:], []byte{10, 64 + byte(sent>>16&7), byte(sent >> 8), byte(sent)})
		_ = gun.Send(ifi.Index, f[:])
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
		NewProber(ProberDeps{Now: time.Now, Relevant: netip.Addr.IsValid}).Serve(ctx, s) // returns
		Watch(ctx, s, netip.Addr.IsValid, func(ServerReply) {})
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
