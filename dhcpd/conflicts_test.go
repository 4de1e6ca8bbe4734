package dhcpd

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/host/link/arp"
	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"

	"golang.org/x/sys/unix"
)

const bindOnly = `[ "$1" = bound ] && echo "ip=$ip"; exit 0`

// seen waits for an event.
func (l *live) seen(t *testing.T, k event.Kind) (found event.Event) {
	t.Helper()
	netns.WaitFor(t, k.String(), func() bool {
		for _, e := range l.events.take() {
			if e.Kind == k {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// TestPoolConflicts: addresses of a pool that machines use without a lease are given to no client; a reservation does not
// wait for a probe.
func TestPoolConflicts(t *testing.T) {
	netns.Need(t, "root", "udhcpc")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	user := seg.NewClient(t, "02:00:00:00:00:99")
	for _, addr := range []string{"10.77.0.201/24", "10.77.0.202/24"} {
		user.Run(t, "ip", "addr", "add", addr, "dev", "eth0")
	}
	l := startLive(t, seg)
	// The machine uses its address: after ten seconds, in a pool that is full, the lease of one that does not answer ARP is ended.
	const bind = `[ "$1" = bound ] && echo "ip=$ip" && ip addr add $ip/24 dev eth0; exit 0`
	ask := func(mac, tries string) (string, error) {
		client := seg.NewClient(t, mac)
		out, err := client.Command(t.Context(), "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", tries, "-T", "1", "-s", script(t, bind)).CombinedOutput()
		return string(out), err
	}
	if out, err := ask(other, "30"); err != nil || !strings.Contains(out, "ip=10.77.0.203") {
		t.Fatalf("want the one address that is not in use, got %v:\n%s", err, out)
	}
	if out, err := ask("02:00:00:00:00:08", "6"); err == nil {
		t.Errorf("the pool has no address left, got:\n%s", out)
	}
	l.agree(t, PoolUse{Usable: 3, Leased: 1, Quarantined: 2}, "of its 3 addresses 1 are leased, 2 in quarantine; held by ", func() { _, _ = ask("02:00:00:00:00:09", "6") })
	if e := l.seen(t, event.DHCPPoolConflict); e.MAC != mac(t, "02:00:00:00:00:99") || !strings.Contains(e.Err, "10.77.0.20") {
		t.Errorf("conflict %+v, want the MAC of the machine and its address", e)
	}
	if out, err := ask(master0, "30"); err != nil || !strings.Contains(out, "ip=10.77.0.21") {
		t.Errorf("a reservation: %v\n%s", err, out)
	}
	for _, a := range []string{"10.77.0.201", "10.77.0.202"} {
		if lease, ok := l.deps.Book.ByAddr(ip(a)); ok {
			t.Errorf("%s was leased to %s", a, lease.MAC)
		}
	}
}

// TestReservedAddressInUse: another machine that uses a reserved address is reported when it announces it, once, and when the host leases the
// address; the host itself is not.
func TestReservedAddressInUse(t *testing.T) {
	netns.Need(t, "root", "udhcpc", "arping")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	l := startLive(t, seg)
	user, host := seg.NewClient(t, "02:00:00:00:00:99"), seg.NewClient(t, master0)
	user.Run(t, "ip", "addr", "add", "10.77.0.21/24", "dev", "eth0")
	lease := func() {
		host.Run(t, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "30", "-T", "1", "-s", "/bin/true")
		host.Run(t, "ip", "addr", "replace", "10.77.0.21/24", "dev", "eth0")
		host.Run(t, "arping", "-U", "-c", "1", "-I", "eth0", "-s", "10.77.0.21", "10.77.0.21")
	}
	conflicts := func() (n int) {
		for _, e := range l.events.take() {
			if e.Kind == event.AddressConflict {
				n++
			}
		}
		return n
	}
	lease()
	for range 2 {
		user.Run(t, "arping", "-U", "-c", "1", "-I", "eth0", "-s", "10.77.0.21", "10.77.0.21")
	}
	e := l.seen(t, event.AddressConflict)
	if e.Addr != ip("10.77.0.21") || e.MAC != mac(t, master0) || e.Host != "master-0" || !e.Claimed || e.Reason != event.OtherMachine || !strings.HasPrefix(e.Err, "02:00:00:00:00:99 uses 10.77.0.21") {
		t.Errorf("%+v", e)
	}
	if all := l.AddressConflicts(); len(all) != 1 || all[0].Addr != ip("10.77.0.21") || all[0].MAC != mac(t, "02:00:00:00:00:99") || all[0].Owner != (Owner{"master-0", mac(t, master0), true}) {
		t.Errorf("%+v", all)
	}
	lease()
	netns.WaitFor(t, "a conflict with the DHCPACK", func() bool { return conflicts() > 0 })
	if n := conflicts(); n > 0 {
		t.Errorf("%d conflicts more", n)
	}
}

// TestLeasedAddressInUse: another machine that uses an address leased from a pool is reported, the machine that has the lease is not, and
// no event is left once its lease has ended.
func TestLeasedAddressInUse(t *testing.T) {
	netns.Need(t, "root", "udhcpc", "arping")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	l := startLive(t, seg)
	owner, user := seg.NewClient(t, other), seg.NewClient(t, "02:00:00:00:00:99")
	owner.Run(t, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "30", "-T", "1", "-s", "/bin/true")
	lease, ok := l.deps.Book.ByMAC(mac(t, other))
	if !ok {
		t.Fatal("no lease")
	}
	announce := func(c *netns.Client) {
		c.Run(t, "ip", "addr", "replace", lease.Addr.String()+"/24", "dev", "eth0")
		c.Run(t, "arping", "-U", "-c", "1", "-I", "eth0", "-s", lease.Addr.String(), lease.Addr.String())
	}
	announce(owner)
	if all := l.AddressConflicts(); len(all) != 0 {
		t.Fatalf("the machine itself: %+v", all)
	}
	announce(user)
	e := l.seen(t, event.AddressConflict)
	if e.Addr != lease.Addr || e.MAC != mac(t, other) || e.Host != "" || e.Err != "02:00:00:00:00:99 uses "+lease.Addr.String()+", which is leased to "+other+": switch that machine off" {
		t.Errorf("%+v", e)
	}
	if all := l.AddressConflicts(); len(all) != 1 || all[0].MAC != mac(t, "02:00:00:00:00:99") || all[0].Owner != (Owner{MAC: mac(t, other)}) {
		t.Errorf("%+v", all)
	}
}

// TestAddressIsFreeAgain: the other machine at a reserved address is gone without a word: it is not reported any more, and is not new when it
// comes back.
func TestAddressIsFreeAgain(t *testing.T) {
	netns.Need(t, "root", "arping")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	l := startLive(t, seg)
	user := seg.NewClient(t, "02:00:00:00:00:99")
	use := func() {
		user.Run(t, "ip", "addr", "replace", "10.77.0.21/24", "dev", "eth0")
		user.Run(t, "arping", "-U", "-c", "1", "-I", "eth0", "-s", "10.77.0.21", "10.77.0.21")
	}
	conflicts := func(want int) {
		t.Helper()
		netns.WaitFor(t, fmt.Sprintf("%d address conflicts", want), func() bool { return len(l.AddressConflicts()) == want })
	}
	use()
	l.seen(t, event.AddressConflict)
	conflicts(1)
	netns.WaitFor(t, "it was asked and answered", func() bool {
		all := l.AddressConflicts()
		return len(all) == 1 && all[0].Last.Sub(all[0].Since) >= recheckAfter
	})
	user.Run(t, "ip", "addr", "flush", "dev", "eth0")
	conflicts(0)
	use()
	conflicts(1)
	for _, e := range l.events.take() {
		if e.Kind == event.AddressConflict {
			t.Errorf("%+v", e)
		}
	}
}

// TestConflictsEnd: one machine answered ARP at the addresses of a pool, and is gone. It is reported, and once the pool is full its addresses are
// given again.
func TestConflictsEnd(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	b, table := smallPoolOn(t, seg, "10.77.0.220")
	s := newServer(t, table, b.store, b.events)
	serve(t, s)
	p := table().byIface[seg.Bridge][0].poolFor(&lab.Client{MAC: mac(t, other)})
	user := seg.NewClient(t, "02:00:00:00:00:99")
	for n := range 20 {
		addr := ip(fmt.Sprint("10.77.0.", 201+n))
		user.Run(t, "ip", "addr", "add", addr.String()+"/24", "dev", "eth0")
		s.deps.Book.Conflict(addr, mac(t, "02:00:00:00:00:99"), s.deps.Now().Add(conflictTime))
	}
	full := fullPool{p, segment.Path{Interface: seg.Bridge}}
	left := func(want int) {
		t.Helper()
		netns.WaitFor(t, fmt.Sprintf("%d conflicts", want), func() bool {
			s.endConflicts(full)
			return len(s.deps.Book.Conflicts(p.addrs, s.deps.Now(), 100)) == want
		})
	}
	netns.WaitFor(t, "the machine is reported", func() bool { s.endConflicts(full); return len(b.kinds(event.DHCPFlood)) == 1 })
	left(20)
	user.Run(t, "ip", "addr", "flush", "dev", "eth0")
	user.Run(t, "ip", "addr", "add", "10.77.0.203/24", "dev", "eth0")
	left(1)
}

// agree checks that the numbers of the guests' pool, which status, metrics and the API show, are those of the last refusal. again makes
// another one: at the time of the last, an address may still have been probed.
func (l *live) agree(t *testing.T, want PoolUse, refusal string, again func()) {
	t.Helper()
	said := func() string {
		l.floods.mu.Lock()
		defer l.floods.mu.Unlock()
		return l.floods.texts[floodedPool{"main", "guests"}].text
	}
	for range 5 {
		if strings.Contains(said(), refusal) {
			break
		}
		again()
	}
	for _, p := range l.Pools(l.deps.Table()) {
		if p.Network != "main" || p.Name != "guests" {
			continue
		}
		want.Network, want.Name, want.Range = p.Network, p.Name, p.Range
		if p != want || !strings.Contains(said(), refusal) {
			t.Errorf("pool %+v\nwant %+v\nrefusal %q\nwant %q", p, want, said(), refusal)
		}
		return
	}
	t.Errorf("no such pool in %+v", l.Pools(l.deps.Table()))
}

// TestLastHolderIsNotFree: an address whose lease was ended while its machine uses it is not free: no new client gets it, and all numbers say so.
func TestLastHolderIsNotFree(t *testing.T) {
	netns.Need(t, "root", "udhcpc")
	const holder = "02:00:00:00:00:07"
	seg := netns.NewSegment(t, "10.77.0.1/24")
	user := seg.NewClient(t, "02:00:00:00:00:99")
	user.Run(t, "ip", "addr", "add", "10.77.0.201/24", "dev", "eth0")
	user.Run(t, "ip", "addr", "add", "10.77.0.203/24", "dev", "eth0")
	l := startLive(t, seg)
	client := seg.NewClient(t, holder)
	if out := client.Run(t, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "30", "-T", "1", "-s", script(t, bindOnly)); !strings.Contains(out, "ip=10.77.0.202") {
		t.Fatalf("got:\n%s", out)
	}
	client.Run(t, "ip", "addr", "replace", "10.77.0.202/24", "dev", "eth0")
	if _, err := l.Release(t.Context(), ip("10.77.0.202")); err != nil {
		t.Fatal(err)
	}
	l.prober.Forget(ip("10.77.0.202"))
	l.prober.Probe(segment.Path{Interface: seg.Bridge}, ip("10.77.0.202"), lab.MAC{}, func(segment.Result) {})
	netns.WaitFor(t, "the machine's reply", func() bool { return l.prober.Known(ip("10.77.0.202")).Answered })
	l.nextAddresses(l.deps.Table())
	late := seg.NewClient(t, "02:00:00:00:00:08")
	ask := func() {
		if out, err := late.Command(t.Context(), "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "2", "-T", "1", "-s", script(t, bindOnly)).CombinedOutput(); err == nil {
			t.Errorf("a second machine got an address in use:\n%s", out)
		}
	}
	ask()
	l.agree(t, PoolUse{Usable: 3, Quarantined: 3}, "of its 3 addresses 0 are leased, 3 in quarantine", ask)
	if out := client.Run(t, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "30", "-T", "1", "-s", script(t, bindOnly)); !strings.Contains(out, "ip=10.77.0.202") {
		t.Errorf("its own machine got:\n%s", out)
	}
}

// TestMovedMachineIsNoConflict: a machine that moves from its pool's address to a reserved one has used the old address with a
// lease. If it uses that address later, it does so without one.
func TestMovedMachineIsNoConflict(t *testing.T) {
	netns.Need(t, "root", "udhcpc")
	const moved, old = "02:00:00:00:00:07", "10.77.0.202"
	seg := netns.NewSegment(t, "10.77.0.1/24")
	l := startLive(t, seg)
	client := seg.NewClient(t, moved)
	lease := func(want string) {
		t.Helper()
		out := client.Run(t, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "30", "-T", "1", "-s", script(t, bindOnly))
		if !strings.Contains(out, "ip="+want) {
			t.Fatalf("want %s, got:\n%s", want, out)
		}
	}
	use := func() {
		t.Helper()
		client.Run(t, "ip", "addr", "add", old+"/24", "dev", "eth0")
		l.prober.Forget(ip(old)) // it was free
		l.prober.Probe(segment.Path{Interface: seg.Bridge}, ip(old), lab.MAC{}, func(segment.Result) {})
		netns.WaitFor(t, "the machine's reply", func() bool { return l.prober.Known(ip(old)).Answered })
		client.Run(t, "ip", "addr", "flush", "dev", "eth0")
	}
	conflict := func() bool {
		l.nextAddresses(l.deps.Table())
		return slices.ContainsFunc(l.events.take(), func(e event.Event) bool { return e.Kind == event.DHCPPoolConflict && e.MAC == mac(t, moved) })
	}
	lease(old)
	use()
	adopted := onBridge(labWith(t, "  moved: {mac: \""+moved+"\", ip: 10.77.0.22}\n"), seg.Bridge)
	adopted.Networks[1].Address = netip.Addr{} // as in testLab
	table := Compile(adopted)
	staged, err := l.Stage(table)
	if err != nil {
		t.Fatal(err)
	}
	l.setTable(table)
	staged.Commit()
	lease("10.77.0.22")
	if conflict() {
		t.Errorf("%s is in conflict, which its machine has not used since it has another", old)
	}
	use()
	if !conflict() {
		t.Errorf("%s is in use without a lease, and no conflict", old)
	}
}

// TestRogue: a dnsmasq on the same segment is reported, with its address and MAC.
func TestRogue(t *testing.T) {
	netns.Need(t, "root", "dnsmasq", "udhcpc")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	l := startLive(t, seg)
	theirs := seg.NewClient(t, "02:00:00:00:00:66")
	theirs.Run(t, "ip", "addr", "add", "10.77.0.66/24", "dev", "eth0")
	dir := t.TempDir()
	cmd := theirs.Command(t.Context(), "dnsmasq", "-k", "--conf-file=/dev/null", "--port=0", "--interface=eth0", "--bind-interfaces",
		"--dhcp-range=10.77.0.70,10.77.0.80", "--no-ping", "--dhcp-broadcast", "--user=root", "--group=root",
		"--pid-file="+dir+"/pid", "--dhcp-leasefile="+dir+"/leases", "--log-facility="+dir+"/log")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	client := seg.NewClient(t, "02:00:00:00:00:07")
	// It asks until the other server is up, too.
	ask := client.Command(t.Context(), "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do udhcpc -i eth0 -f -n -q -t 1 -T 1 -B -s /bin/true; sleep 0.5; done")
	ask.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with sh ends the udhcpc that it waits for: it would be a client of the next test
	if err := ask.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-ask.Process.Pid, syscall.SIGKILL); _ = ask.Wait() })
	e := l.seen(t, event.DHCPRogue)
	if e.Addr != ip("10.77.0.66") || !strings.Contains(e.Detail, "02:00:00:00:00:66") {
		t.Errorf("rogue %+v, want 10.77.0.66 with its MAC", e)
	}
	if all := l.RogueServers(); len(all) != 1 || all[0].Addr != ip("10.77.0.66") || all[0].MAC != mac(t, "02:00:00:00:00:66") || all[0].Interface != seg.Bridge || all[0].Since.IsZero() {
		t.Errorf("other servers: %+v", all)
	}
}

// TestVLAN: a VLAN interface is an interface like any other.
func TestVLAN(t *testing.T) {
	netns.Need(t, "root", "udhcpc")
	seg := netns.NewSegment(t, "192.0.2.1/24")
	client := seg.NewClient(t, master0)
	if out, err := exec.Command("ip", "link", "add", "link", seg.Bridge, "name", "lab.100", "type", "vlan", "id", "100").CombinedOutput(); err != nil {
		t.Skipf("this kernel has no VLAN interfaces, and no installed program adds them: %s", out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "lab.100").Run() })
	netns.Run(t, "ip", "addr", "add", "10.77.0.1/24", "dev", "lab.100")
	netns.Run(t, "ip", "link", "set", "lab.100", "up")
	b := newBench(t)
	b.lab.Networks[2].Interface, b.lab.Networks[0].Interface = "lab.100", ""
	startServer(t, b.lab, b.store)
	client.Run(t, "ip", "link", "add", "link", "eth0", "name", "eth0.100", "type", "vlan", "id", "100")
	client.Run(t, "ip", "link", "set", "eth0.100", "address", master0, "up")
	out := client.Run(t, "udhcpc", "-i", "eth0.100", "-n", "-q", "-f", "-t", "30", "-T", "1", "-s", script(t, bindOnly))
	if !strings.Contains(out, "ip=10.77.0.21") {
		t.Errorf("got:\n%s", out)
	}
}

// TestAnnouncedPool: every address of a pool is announced by ARP, again and again, and no request for it answered. New machines get addresses, no
// address counts as used, and one machine that announces them all is reported.
func TestAnnouncedPool(t *testing.T) {
	for _, tt := range []struct {
		name   string
		sender func(n int) lab.MAC
		floods int
	}{
		{"by one machine", func(int) lab.MAC { return madeUp(99) }, 1},
		{"by many", madeUp, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			netns.Need(t, "root", "udhcpc")
			seg := netns.NewSegment(t, "10.77.0.1/24")
			b, table := smallPoolOn(t, seg, "10.77.0.240")
			s := newServer(t, table, b.store, b.events)
			serve(t, s)
			joinHere(t, seg)
			announce := func() {
				for n := range 40 {
					addr := ip(fmt.Sprint("10.77.0.", 201+n))
					f := arp.Request(tt.sender(n), addr, arp.Broadcast, addr)
					sendFrame(t, "vcl", f[:])
				}
			}
			netns.WaitFor(t, "the announcements to be received", func() bool {
				announce()
				received := 0 // on a slow machine not all, before the sender of unanswered ones is ignored
				for n := range 40 {
					if s.prober.Known(ip(fmt.Sprint("10.77.0.", 201+n))).MAC == tt.sender(n) {
						received++
					}
				}
				return received > 0
			})
			var wg sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			wg.Go(func() {
				for pause.For(ctx, 300*time.Millisecond) == nil {
					announce()
				}
			})
			defer wg.Wait()
			defer cancel()
			for range 2 {
				out := seg.NewClient(t).Run(t, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "30", "-T", "1", "-s", script(t, bindOnly))
				if !strings.Contains(out, "ip=10.77.0.2") {
					t.Errorf("a new machine gets no address:\n%s", out)
				}
			}
			found := map[event.Kind]int{}
			netns.WaitFor(t, "the flood to be reported, if there is one", func() bool {
				for _, e := range b.events.take() {
					found[e.Kind]++
				}
				return found[event.DHCPFlood] >= tt.floods
			})
			if found[event.DHCPPoolConflict] != 0 || found[event.DHCPFlood] != tt.floods {
				t.Errorf("events %v, want %d floods and no conflict", found, tt.floods)
			}
		})
	}
}

// sendFrame sends an Ethernet frame.
func sendFrame(t *testing.T, iface string, frame []byte) {
	t.Helper()
	dev, err := net.InterfaceByName(iface)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: dev.Index}); err != nil {
		t.Fatal(err)
	}
}
