package interop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/test/support/netns"
)

// wide is a lab with a second network on the same segment, with addresses for thousands of machines.
func wide(t *testing.T, subnet string, second int) *labFile {
	t.Helper()
	l := newLab(t, subnet)
	big := fmt.Sprintf("10.%d", second)
	l.networks = fmt.Sprintf("  wide: {subnet: %[1]s.0.0/16, interface: BRIDGE, address: %[1]s.0.1, pools: {all: {range: %[1]s.16.0-%[1]s.250.255}}}\n", big)
	l.write()
	netns.Run(t, "ip", "addr", "add", big+".0.1/16", "dev", l.seg.Bridge)
	return l
}

// perfdhcp runs Kea's load generator as a relay at addr, and returns its report.
func (m *machine) perfdhcp(t *testing.T, addr, server string, args ...string) string {
	t.Helper()
	netns.Need(t, "perfdhcp")
	args = append([]string{"-4", "-l", addr, "-g", "single"}, args...)
	out, err := m.run("perfdhcp", append(args, server)...)
	if err != nil && !strings.Contains(err.Error(), "exit status 3") { // 3: some exchanges were not answered, which the report shows
		t.Fatalf("perfdhcp %v: %v\n%s", args, err, out)
	}
	return out
}

var (
	perfSection = regexp.MustCompile(`^\*\*\*(?:Statistics for: )?(.*)\*\*\*$`)
	perfCount   = regexp.MustCompile(`(?m)^(sent packets|received packets|drops|orphans|rejected leases|non unique addresses): (\d+)`)
)

// counts reads a report: section and counter, as in "DISCOVER-OFFER drops".
func counts(report string) map[string]int {
	found, section := map[string]int{}, ""
	for line := range strings.Lines(report) {
		if m := perfSection.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			section = m[1]
		}
		if m := perfCount.FindStringSubmatch(line); m != nil {
			found[section+" "+m[1]], _ = strconv.Atoi(m[2])
		}
	}
	return found
}

// TestPerfdhcp: Kea's load generator leases, renews and releases behind a relay without a failure.
func TestPerfdhcp(t *testing.T) {
	t.Parallel()
	d := start(t, wide(t, "10.105.1", 110))
	m := d.machine(t, "52:54:00:00:ff:40")
	netns.Run(t, "ip", "-n", m.Name, "addr", "add", "10.110.0.2/16", "dev", "eth0")
	for _, tt := range []struct {
		name  string
		args  []string
		least map[string]int // of what must have been received
	}{
		{"new leases", []string{"-r", "300", "-R", "600", "-n", "600"}, map[string]int{"DISCOVER-OFFER": 600, "REQUEST-ACK": 600}},
		{"again", []string{"-r", "300", "-R", "100", "-n", "300"}, map[string]int{"REQUEST-ACK": 300}},
		{"renewals and releases", []string{"-r", "200", "-f", "60", "-F", "30", "-R", "2000", "-p", "3"}, map[string]int{"REQUEST-ACK (renewal)": 50}},
		{"option 82", []string{"-r", "200", "-R", "200", "-n", "200", "-o", "82,0106706f72742037"}, map[string]int{"REQUEST-ACK": 200}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// A late answer counts: perfdhcp itself may be slow.
			report := m.perfdhcp(t, "10.110.0.2", "10.110.0.1", append(tt.args, "-W", "2000000", "-d", "20")...)
			got := counts(report)
			for name, n := range got {
				// A release has no answer; and the acknowledgement of a renewal is first looked for among those of new leases.
				excused := strings.HasPrefix(name, "RELEASE ") || name == "REQUEST-ACK orphans" || strings.HasSuffix(name, " packets")
				if !excused && n != 0 {
					t.Errorf("%s: %d", name, n)
				}
			}
			for section, least := range tt.least {
				if got[section+" received packets"] < least {
					t.Errorf("%s: %d answers, want at least %d", section, got[section+" received packets"], least)
				}
			}
			if t.Failed() {
				t.Logf("report:\n%s", report)
			}
		})
	}
}

// TestAvalanche switches a rack on at once: all machines ask, and those without an answer ask again, less and less often.
func TestAvalanche(t *testing.T) {
	t.Parallel()
	d := start(t, wide(t, "10.105.2", 111))
	m := d.machine(t, "52:54:00:00:ff:41")
	netns.Run(t, "ip", "-n", m.Name, "addr", "add", "10.111.0.2/16", "dev", "eth0")
	const machines = 200
	began := time.Now()
	report := m.perfdhcp(t, "10.111.0.2", "10.111.0.1", "--scenario", "avalanche", "-R", strconv.Itoa(machines))
	leases, err := d.client.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]bool{}
	for _, l := range leases {
		held[l.IP.String()] = true
	}
	if len(leases) != machines || len(held) != machines {
		t.Errorf("%d leases of %d addresses after an avalanche of %d\n%s", len(leases), len(held), machines, report)
	}
	t.Logf("all machines have an address after %v", time.Since(began).Round(time.Millisecond))
}

// TestFlood sends the DISCOVERs of ten thousand machines. A machine of the lab gets its address meanwhile, an unknown machine afterwards,
// and the daemon's memory stays bounded.
func TestFlood(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.105.3")
	d := start(t, l)
	w := d.machine(t, "02:00:00:00:ff:42").wire(t)
	w.bind(mac("52:54:00:00:00:10"))
	before := d.metric("process_resident_memory_bytes")
	const flood = 10_000
	for n := range flood {
		w.send(discover(numbered(n)), newClient, toServers)
		if n%1000 == 0 {
			if ack := w.bind(mac("52:54:00:00:00:11")); ack.YourIPAddr.String() != l.net+".11" {
				t.Errorf("in the flood a reserved machine gets %s", ack.YourIPAddr)
			}
		}
	}
	received := func() float64 { return d.metric(`bootlab_dhcpd_packets_received_total{type="discover"}`) }
	d.until("the flood is over", func() bool { n := received(); w.bind(mac("52:54:00:00:00:10")); return received() == n+1 })
	if n := received(); n < flood/4 {
		t.Fatalf("only %v packets arrived: the test proves nothing", n)
	}
	if grown := d.metric("process_resident_memory_bytes") - before; grown > 48<<20 {
		t.Errorf("the daemon has grown by %v MiB", grown/(1<<20))
	}
	// Offered addresses become free again.
	newcomer, began := mac("52:54:00:77:77:77"), time.Now()
	var offer captured
	for deadline := time.Now().Add(3 * time.Minute); ; {
		var ok bool
		if offer, ok = w.tryFrom(discover(newcomer), newClient, toServers, time.Second); ok {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("after the flood an unknown machine gets no address")
		}
	}
	if ack := w.ask(selecting(offer)); ack.MessageType() != dhcpv4.MessageTypeAck {
		t.Errorf("after the flood an unknown machine gets %s", ack)
	}
	t.Logf("%v of %d packets arrived; an unknown machine waited %v", received(), flood, time.Since(began).Round(time.Millisecond))
	t.Run("the log", func(t *testing.T) {
		if lines := strings.Count(d.log.String(), "level=WARN"); lines > 500 {
			t.Errorf("%d warnings for a flood", lines)
		}
	})
}

// TestPoolExhaustion: a program makes up machines and leases all addresses of a pool in their names, again and again.
// Machines with a lease keep it, reserved machines get their address, and a machine that exists gets one too: the leases of
// those that do not answer ARP are ended, which an event reports.
func TestPoolExhaustion(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.105.9")
	d := start(t, l)
	w := d.machine(t, "02:00:00:00:ff:44").wire(t)
	honest := w.bind(mac("52:54:00:77:77:01"))
	w.own(honest.YourIPAddr.String(), honest.ClientHWAddr, nil)
	quiet := w.bind(mac("52:54:00:77:77:03")) // asks once, and answers ARP
	w.own(quiet.YourIPAddr.String(), quiet.ClientHWAddr, nil)
	flood := d.machine(t, "02:00:00:00:ff:45").wire(t)
	taken, lease := 0, time.Duration(0)
	madeUp := 0
	take := func() {
		madeUp++
		if offer, ok := flood.tryFrom(discover(numbered(madeUp)), newClient, toServers, 50*time.Millisecond); ok {
			if ack, ok := flood.tryFrom(selecting(offer), newClient, toServers, time.Second); ok && ack.MessageType() == dhcpv4.MessageTypeAck {
				taken++
				lease = ack.IPAddressLeaseTime(0)
			}
		}
	}
	// Late answers are lost: what was offered becomes free again.
	for end := time.Now().Add(patience); time.Now().Before(end) && (taken < 120 || !strings.Contains(d.log.String(), "is full")); {
		take()
	}
	if taken < 120 {
		t.Errorf("%d addresses of 148 taken: the test proves nothing", taken)
	}
	if lease == 0 || lease > 10*time.Minute {
		t.Errorf("the last of them has a lease of %v", lease)
	}
	if ack := w.bind(mac("52:54:00:00:00:10")); ack.YourIPAddr.String() != l.net+".10" {
		t.Errorf("a reserved machine gets %s", ack)
	}
	from := netip.AddrPortFrom(netip.MustParseAddr(honest.YourIPAddr.String()), 68)
	if h := w.askFrom(message(dhcpv4.MessageTypeRequest, honest.ClientHWAddr, dhcpv4.WithClientIP(honest.YourIPAddr)), from, toServers); h.MessageType() != dhcpv4.MessageTypeAck {
		t.Errorf("a machine with a lease gets %s", h)
	}
	// The flood goes on while two machines boot. They ask again and again, as all do.
	ctx, stop := context.WithCancel(t.Context())
	var flooding sync.WaitGroup
	flooding.Go(func() {
		for ctx.Err() == nil {
			take()
		}
	})
	for i := range 2 {
		m, addr := d.machine(t, fmt.Sprint("52:54:00:77:77:1", i)), ""
		for range 10 {
			if addr = m.lease(t); addr != "" {
				break
			}
		}
		if addr == "" {
			t.Errorf("machine %d gets no address beside the flood", i)
		}
	}
	stop()
	flooding.Wait()
	d.logged("dhcp_flood")
	if again := w.bind(honest.ClientHWAddr); !again.YourIPAddr.Equal(honest.YourIPAddr) {
		t.Errorf("the machine with %s gets %s", honest.YourIPAddr, again.YourIPAddr)
	}
	if again := w.ask(discover(quiet.ClientHWAddr)); !again.YourIPAddr.Equal(quiet.YourIPAddr) {
		t.Errorf("the machine with %s, which asked once, is offered %s", quiet.YourIPAddr, again.YourIPAddr)
	}
	t.Logf("%d addresses taken", taken)
}

// TestKilledUnderLoad kills the daemon again and again while four relays ask for 2000 machines, until all have an address. No
// acknowledged lease is lost, and no two machines have the same address.
func TestKilledUnderLoad(t *testing.T) {
	t.Parallel()
	d := start(t, wide(t, "10.105.4", 113))
	m := d.machine(t, "52:54:00:00:ff:43")
	const machines, relays = 2000, 4
	acked := &acknowledged{leases: map[string]string{}}
	var asking []*relay
	for i := range relays {
		addr := fmt.Sprintf("10.113.0.%d", 2+i)
		netns.Run(t, "ip", "-n", m.Name, "addr", "add", addr+"/16", "dev", "eth0")
		r := m.relay(t, addr)
		r.server.IP = net.ParseIP("10.113.0.1")
		asking = append(asking, r)
	}
	count := func() (n int) { acked.do(func() { n = len(acked.leases) }); return n }
	kills := 0
	for count() < machines { // some more each time, or until fails
		ctx, cancel := context.WithCancel(t.Context())
		var load sync.WaitGroup
		want := min(machines, count()+100+rand.IntN(200))
		for i, r := range asking {
			load.Go(func() { leaseAll(ctx, r, acked, i, relays, machines, want+50) })
		}
		d.until("leases", func() bool { return count() >= want })
		d.kill()
		kills++
		cancel()
		load.Wait()
		d.start()
		acked.heldBy(t, d)
	}
	t.Logf("%d leases, %d kills", count(), kills)
	if kills < 5 {
		t.Errorf("only %d kills: the test proves little", kills)
	}
}

// leaseAll asks for every n-th machine that has no address yet, until all of them have one, or so many machines together.
func leaseAll(ctx context.Context, r *relay, acked *acknowledged, first, step, machines, most int) {
	for n, left := first, 0; ctx.Err() == nil; n += step {
		if n >= machines { // once more for those that got no answer in time
			if left == 0 {
				return
			}
			n, left = first, 0
		}
		mac := numbered(n)
		var has bool
		var enough bool
		acked.do(func() { has, enough = acked.leases[mac.String()] != "", len(acked.leases) >= most })
		if enough {
			return
		}
		if has {
			continue
		}
		if addr, err := r.lease(mac, time.Second); err == nil {
			acked.do(func() { acked.leases[mac.String()] = addr })
		} else {
			left++
		}
	}
}

// heldBy compares the lease book with what was acknowledged.
func (a *acknowledged) heldBy(t *testing.T, d *daemon) {
	t.Helper()
	leases, err := d.client.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	book, holders := map[string]string{}, map[string]string{}
	for _, l := range leases {
		book[l.MAC.String()] = l.IP.String()
		if other := holders[l.IP.String()]; other != "" {
			t.Errorf("%s belongs to %s and %s", l.IP, other, l.MAC)
		}
		holders[l.IP.String()] = l.MAC.String()
	}
	for mac, addr := range a.leases {
		if book[mac] != addr {
			t.Errorf("%s was given %s; the lease book has %q", mac, addr, book[mac])
		}
	}
}
