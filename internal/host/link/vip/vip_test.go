package vip_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/host/link/vip"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

var other = lab.MAC{2, 0, 0, 0, 0, 0x66}

// records are kept in memory, as a store keeps them over a crash.
type records struct {
	mu  sync.Mutex
	all map[netip.Addr]vip.Record
}

func (r *records) Load(context.Context) (all []vip.Record, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		all = append(all, one)
	}
	return all, nil
}

func (r *records) Put(_ context.Context, one vip.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[netip.Addr]vip.Record{}
	}
	r.all[one.Addr] = one
	return nil
}

func (r *records) Delete(_ context.Context, a netip.Addr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, a)
	return nil
}

// A rig is a segment with another machine and a holder.
type rig struct {
	t       *testing.T
	seg     *netns.Segment
	spy     *netns.Client
	addr    netip.Addr // 10.79.N.10
	addr6   netip.Addr // fd00:79:N::10
	log     *bytes.Buffer
	records *records
	cfg     vip.Config
	*vip.Holder
	stop func()
}

func newRig(t *testing.T, n int) *rig {
	t.Helper()
	t.Parallel()
	netns.Need(t, "root", "ip")
	r := &rig{t: t, seg: netns.NewSegment(t, fmt.Sprintf("10.79.%d.1/24", n)), log: &bytes.Buffer{}, records: &records{}}
	r.addr, r.addr6 = netip.MustParseAddr(fmt.Sprintf("10.79.%d.10", n)), netip.MustParseAddr(fmt.Sprintf("fd00:79:%x::10", n))
	r.spy = r.seg.NewClient(t, other.String())
	netns.Run(t, "ip", "addr", "add", fmt.Sprintf("fd00:79:%x::1/64", n), "dev", r.seg.Bridge, "nodad")
	r.cfg = vip.Config{Hold: true, Interval: 200 * time.Millisecond, Retry: time.Second, Check: time.Second, Defend: time.Second}
	return r
}

// start runs a holder until the test ends, or stop is called.
func (r *rig) start(wanted ...netip.Addr) {
	r.t.Helper()
	h, err := vip.Open(r.t.Context(), r.cfg, vip.Deps{Records: r.records, Log: slog.New(slog.NewTextHandler(&lockedWriter{w: r.log}, nil))})
	if err != nil {
		r.t.Fatal(err)
	}
	r.Holder = h
	r.want(wanted...)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	})
	r.t.Cleanup(r.stop)
}

type lockedWriter struct {
	mu sync.Mutex
	w  *bytes.Buffer
}

func (w *lockedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(b)
}

func (r *rig) want(addrs ...netip.Addr) {
	var wanted []vip.Wanted
	for _, a := range addrs {
		wanted = append(wanted, vip.Wanted{Addr: a, Interface: r.seg.Bridge, For: "cluster c"})
	}
	r.Want(wanted)
}

// until waits for the phase of an address.
func (r *rig) until(a netip.Addr, p vip.Phase) (s vip.Address) {
	r.t.Helper()
	netns.WaitFor(r.t, fmt.Sprintf("%s to be %s (is %+v)", a, p, r.States()), func() bool {
		for _, now := range r.States() {
			if now.Addr == a && now.Phase == p {
				s = now
				return true
			}
		}
		return false
	})
	return s
}

// on reports whether the bridge has an address, and what ip says of it.
func (r *rig) on(a netip.Addr) (string, bool) {
	r.t.Helper()
	out := netns.Run(r.t, "ip", "-d", "-o", "addr", "show", "dev", r.seg.Bridge)
	for line := range strings.Lines(out) {
		if strings.Contains(line, " "+a.String()+"/") {
			return line, true
		}
	}
	return out, false
}

// gone waits until the bridge does not have an address.
func (r *rig) gone(a netip.Addr) {
	r.t.Helper()
	netns.WaitFor(r.t, a.String()+" to be removed", func() bool { _, on := r.on(a); return !on })
}

// spyTakes adds an address to the other machine.
func (r *rig) spyTakes(a netip.Addr) {
	netns.Run(r.t, "ip", "-n", r.spy.Name, "addr", "add", fmt.Sprintf("%s/%d", a, map[bool]int{true: 24, false: 64}[a.Is4()]), "dev", "eth0", "nodad")
}

func (r *rig) spyLeaves(a netip.Addr) {
	netns.Run(r.t, "ip", "-n", r.spy.Name, "addr", "del", fmt.Sprintf("%s/%d", a, map[bool]int{true: 24, false: 64}[a.Is4()]), "dev", "eth0")
}

// neighbour returns what the other machine's neighbour table has of an address.
func (r *rig) neighbour(a netip.Addr) string {
	return netns.Run(r.t, "ip", "-n", r.spy.Name, "neigh", "show", a.String())
}

func (r *rig) bridgeMAC() string {
	r.t.Helper()
	_, rest, _ := strings.Cut(netns.Run(r.t, "ip", "-o", "link", "show", r.seg.Bridge), "link/ether ")
	mac, _, _ := strings.Cut(rest, " ")
	return mac
}

// TestHold adds addresses, answers for them, announces them, and removes them at its end, and no other.
func TestHold(t *testing.T) {
	r := newRig(t, 1)
	netns.Run(t, "ip", "-n", r.spy.Name, "addr", "add", "10.79.1.66/24", "dev", "eth0")
	netns.Run(t, "ip", "-n", r.spy.Name, "addr", "add", "fd00:79:1::66/64", "dev", "eth0", "nodad")
	// The other machine believes that somebody else has them, until they are announced.
	for _, a := range []netip.Addr{r.addr, r.addr6} {
		netns.Run(t, "ip", "-n", r.spy.Name, "neigh", "replace", a.String(), "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "stale")
	}
	r.start(r.addr, r.addr6)
	for _, a := range []netip.Addr{r.addr, r.addr6} {
		s := r.until(a, vip.Added)
		line, on := r.on(a)
		if !s.OK() || !on || !strings.Contains(line, fmt.Sprintf("%s/%d", a, a.BitLen())) {
			t.Errorf("%+v, on the bridge %v: %s", s, on, line)
		}
		netns.WaitFor(t, "the announcement of "+a.String(), func() bool { return strings.Contains(r.neighbour(a), r.bridgeMAC()) })
	}
	for _, a := range []netip.Addr{r.addr, r.addr6} {
		l, err := net.Listen("tcp", netip.AddrPortFrom(a, 6443).String())
		if err != nil {
			t.Fatal(err)
		}
		netns.Run(t, "ip", "netns", "exec", r.spy.Name, "bash", "-c", "exec 3<>/dev/tcp/"+a.String()+"/6443")
		_ = l.Close()
	}
	r.stop()
	for _, a := range []netip.Addr{r.addr, r.addr6} {
		r.gone(a)
	}
	if _, on := r.on(netip.MustParseAddr("10.79.1.1")); !on {
		t.Error("the bridge lost its own address")
	}
	if left, _ := r.records.Load(t.Context()); len(left) > 0 {
		t.Errorf("records %v are left", left)
	}
	if want := fmt.Sprintf(`msg="VIP removed" addr=%s interface=%s for="cluster c"`, r.addr, r.seg.Bridge); !strings.Contains(r.log.String(), want) {
		t.Errorf("want %s in the log:\n%s", want, r.log)
	}
}

// TestInUse does not add what another machine uses, says who that is, and adds it once that machine has left.
func TestInUse(t *testing.T) {
	r := newRig(t, 2)
	r.spyTakes(r.addr)
	r.spyTakes(r.addr6)
	r.start(r.addr, r.addr6)
	for _, a := range []netip.Addr{r.addr, r.addr6} {
		if s := r.until(a, vip.InUse); s.MAC != other || s.OK() || s.Command() != "" {
			t.Errorf("%+v, want it in use by %s", s, other)
		}
		if line, on := r.on(a); on {
			t.Errorf("it was added all the same: %s", line)
		}
	}
	for _, a := range []netip.Addr{r.addr, r.addr6} {
		r.spyLeaves(a)
		r.until(a, vip.Added)
	}
}

// TestConflict is about a machine that takes an address later: it is defended, shown, and forgotten once the other has left.
func TestConflict(t *testing.T) {
	for i, family := range []string{"IPv4", "IPv6"} {
		t.Run(family, func(t *testing.T) {
			r := newRig(t, 3+i)
			addr := []netip.Addr{r.addr, r.addr6}[i]
			r.start(addr)
			r.until(addr, vip.Added)
			r.spyTakes(addr)
			if s := r.until(addr, vip.Conflict); s.MAC != other || s.OK() {
				t.Errorf("%+v, want a conflict with %s", s, other)
			}
			if _, on := r.on(addr); !on {
				t.Error("the address was given up")
			}
			r.spyLeaves(addr)
			r.until(addr, vip.Added)
			if line, _ := r.on(addr); strings.Count(r.log.String(), "VIP removed") > 0 {
				t.Errorf("it was removed: %s\n%s", line, r.log)
			}
		})
	}
}

// TestDefended: a machine that announces our address is answered at once by an announcement, though it answers no ARP request.
func TestDefended(t *testing.T) {
	r := newRig(t, 5)
	netns.Need(t, "arping")
	r.cfg.Check, r.cfg.Retry = time.Hour, time.Hour
	r.start(r.addr)
	r.until(r.addr, vip.Added)
	third := r.seg.NewClient(t, "02:00:00:00:00:77")
	netns.Run(t, "ip", "-n", third.Name, "addr", "add", "10.79.5.77/24", "dev", "eth0")
	netns.Run(t, "ip", "-n", third.Name, "neigh", "replace", r.addr.String(), "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "stale")
	netns.Run(t, "ip", "netns", "exec", r.spy.Name, "sysctl", "-qw", "net.ipv4.ip_nonlocal_bind=1")
	// An announcement from an address that the machine does not have, as a misconfigured one sends it.
	_ = exec.Command("ip", "netns", "exec", r.spy.Name, "arping", "-U", "-c1", "-w2", "-I", "eth0", "-s", r.addr.String(), r.addr.String()).Run()
	if s := r.until(r.addr, vip.Conflict); s.MAC != other {
		t.Errorf("%+v, want a conflict with %s", s, other)
	}
	netns.WaitFor(t, "the third machine to know the holder again", func() bool {
		return strings.Contains(netns.Run(t, "ip", "-n", third.Name, "neigh", "show", r.addr.String()), r.bridgeMAC())
	})
	r.until(r.addr, vip.Added)
}

// TestPresent leaves alone what something else has added, also when it is not wanted any more.
func TestPresent(t *testing.T) {
	r := newRig(t, 6)
	netns.Run(t, "ip", "addr", "add", r.addr.String()+"/24", "dev", r.seg.Bridge)
	r.start(r.addr)
	if s := r.until(r.addr, vip.Present); !s.OK() {
		t.Errorf("%+v is not OK", s)
	}
	r.want()
	netns.WaitFor(t, "nothing to be wanted", func() bool { return len(r.States()) == 0 })
	r.want(r.addr)
	r.until(r.addr, vip.Present)
	// Its owner removes it: then it is held, until the end.
	netns.Run(t, "ip", "addr", "del", r.addr.String()+"/24", "dev", r.seg.Bridge)
	r.until(r.addr, vip.Added)
	netns.Run(t, "ip", "addr", "add", r.addr.String()+"/24", "dev", r.seg.Bridge)
	r.until(r.addr, vip.Present)
	r.stop()
	if line, on := r.on(r.addr); !on || !strings.Contains(line, r.addr.String()+"/24") {
		t.Errorf("the address of something else was removed: %s", line)
	}
	if line, on := r.on(r.addr); strings.Contains(line, r.addr.String()+"/32") {
		t.Errorf("on %v: %s", on, line)
	}
}

// TestReload removes what is not wanted any more, and adds what is new.
func TestReload(t *testing.T) {
	r := newRig(t, 7)
	second := r.addr.Next()
	r.start(r.addr)
	r.until(r.addr, vip.Added)
	r.want(second, r.addr6)
	r.gone(r.addr)
	r.until(second, vip.Added)
	r.until(r.addr6, vip.Added)
	if n := len(r.States()); n != 2 {
		t.Errorf("%d states: %+v", n, r.States())
	}
}

// TestInterfaceGoes holds an address again when its interface is back, with another index, and when somebody removes it.
func TestInterfaceGoes(t *testing.T) {
	r := newRig(t, 8)
	name := "vip8"
	add := func() { netns.Run(t, "ip", "link", "add", name, "up", "type", "bridge") }
	add()
	r.start()
	r.Want([]vip.Wanted{{Addr: r.addr, Interface: name}})
	r.until(r.addr, vip.Added)
	netns.Run(t, "ip", "link", "del", name)
	if s := r.until(r.addr, vip.Missing); s.Err != "interface vip8 does not exist: make it, or change the interface of the network" || s.Command() != "" {
		t.Errorf("%+v, %q", s, s.Command())
	}
	add()
	r.until(r.addr, vip.Added)
	netns.Run(t, "ip", "link", "set", name, "down")
	netns.Run(t, "ip", "addr", "flush", "dev", name)
	if s := r.until(r.addr, vip.Missing); s.Err != "interface vip8 is down" {
		t.Errorf("%+v", s)
	}
	netns.Run(t, "ip", "link", "set", name, "up")
	r.until(r.addr, vip.Added)
	netns.Run(t, "ip", "addr", "del", r.addr.String()+"/32", "dev", name)
	netns.WaitFor(t, "the address to be added again", func() bool {
		return strings.Contains(netns.Run(t, "ip", "addr", "show", "dev", name), r.addr.String()+"/32")
	})
	netns.Run(t, "ip", "link", "del", name)
}

// TestDown: nobody reaches an address whose interface is down, though the kernel keeps it there; it is announced when the interface is back.
func TestDown(t *testing.T) {
	r := newRig(t, 13)
	second := r.addr.Next()
	netns.Run(t, "ip", "addr", "add", second.String()+"/32", "dev", r.seg.Bridge)
	r.start(r.addr, second)
	r.until(r.addr, vip.Added)
	r.until(second, vip.Present)
	netns.Run(t, "ip", "link", "set", r.seg.Bridge, "down")
	for _, a := range []netip.Addr{r.addr, second} {
		if s := r.until(a, vip.Missing); s.OK() || s.Err != "interface "+r.seg.Bridge+" is down" || s.Command() != "ip link set "+r.seg.Bridge+" up" {
			t.Errorf("%+v, %q", s, s.Command())
		}
		if line, on := r.on(a); !on {
			t.Errorf("it was removed: %s", line)
		}
	}
	netns.Run(t, "ip", "link", "set", r.seg.Bridge, "up")
	r.until(r.addr, vip.Added)
	r.until(second, vip.Present)
	if strings.Contains(r.log.String(), "address was removed") {
		t.Error(r.log)
	}
}

// TestOnLoopback: what another interface has is not said to be on that of the network.
func TestOnLoopback(t *testing.T) {
	r := newRig(t, 14)
	netns.Run(t, "ip", "addr", "add", r.addr.String()+"/32", "dev", "lo")
	defer netns.Run(t, "ip", "addr", "del", r.addr.String()+"/32", "dev", "lo")
	second := r.addr.Next()
	r.start(r.addr, second)
	if s := r.until(r.addr, vip.Present); s.On != "lo" || !s.OK() {
		t.Errorf("%+v, want it on lo", s)
	}
	if s := r.until(second, vip.Added); s.On != r.seg.Bridge {
		t.Errorf("%+v, want it on %s", s, r.seg.Bridge)
	}
}

// TestOff probes, says what is missing, and changes nothing.
func TestOff(t *testing.T) {
	r := newRig(t, 9)
	r.cfg.Hold = false
	second := r.addr.Next()
	r.spyTakes(second)
	r.start(r.addr, second)
	if s := r.until(r.addr, vip.Missing); s.Command() != fmt.Sprintf("ip addr add %s/32 dev %s", r.addr, r.seg.Bridge) || !strings.Contains(s.Err, "off") {
		t.Errorf("%+v, %q", s, s.Command())
	}
	if s := r.until(second, vip.InUse); s.MAC != other {
		t.Errorf("%+v", s)
	}
	if line, on := r.on(r.addr); on {
		t.Errorf("it was added: %s", line)
	}
	netns.Run(t, "ip", "addr", "add", r.addr.String()+"/32", "dev", r.seg.Bridge)
	r.until(r.addr, vip.Present)
}

// TestLook says of each address what a holder would find, and adds none.
func TestLook(t *testing.T) {
	r := newRig(t, 16)
	inUse, present := r.addr.Next(), r.addr.Next().Next()
	r.spyTakes(inUse)
	netns.Run(t, "ip", "addr", "add", present.String()+"/32", "dev", r.seg.Bridge)
	var wanted []vip.Wanted
	for _, a := range []netip.Addr{inUse, r.addr, present, r.addr6} {
		wanted = append(wanted, vip.Wanted{Addr: a, Interface: r.seg.Bridge})
	}
	wanted = append(wanted, vip.Wanted{Addr: r.addr.Prev(), Interface: "none0"})
	states, err := vip.Look(t.Context(), wanted)
	if err != nil || len(states) != len(wanted) {
		t.Fatalf("%+v, %v", states, err)
	}
	for i, want := range []vip.Address{{Phase: vip.InUse, MAC: other}, {Phase: vip.Missing}, {Phase: vip.Present, On: r.seg.Bridge}, {Phase: vip.Missing}, {Phase: vip.Missing, Gone: true, Err: "interface none0 does not exist: make it, or change the interface of the network"}} {
		want.Wanted, want.Since = wanted[i], states[i].Since
		if states[i] != want {
			t.Errorf("%+v, want %+v", states[i], want)
		}
	}
	if line, on := r.on(r.addr); on {
		t.Errorf("it was added: %s", line)
	}
	if states, err := vip.Look(t.Context(), nil); err != nil || len(states) > 0 {
		t.Errorf("of no address: %+v, %v", states, err)
	}
}

// TestNoInterface is about an address in no network that this machine has an interface of.
func TestNoInterface(t *testing.T) {
	r := newRig(t, 10)
	r.start()
	r.Want([]vip.Wanted{{Addr: r.addr}})
	if s := r.until(r.addr, vip.Missing); s.Command() != "" || s.Err == "" {
		t.Errorf("%+v", s)
	}
}

// TestKilled: what a killed holder left is held by the next, and removed if that one does not want it, or at its end. What is not
// recorded, or was added in an earlier life of the machine, is another's.
func TestKilled(t *testing.T) {
	r := newRig(t, 11)
	unwanted, foreign, manual, before := r.addr.Next(), r.addr.Next().Next(), r.addr.Next().Next().Next(), netip.MustParseAddr("10.79.11.20")
	r.start(r.addr) // learns the name of this start of the machine
	r.until(r.addr, vip.Added)
	all, _ := r.records.Load(t.Context())
	r.stop()
	for _, a := range []netip.Addr{r.addr, unwanted, manual} {
		_ = r.records.Put(t.Context(), vip.Record{Addr: a, Boot: all[0].Boot})
	}
	_ = r.records.Put(t.Context(), vip.Record{Addr: before, Boot: "earlier"})
	for _, a := range []netip.Addr{r.addr, unwanted, foreign, before} {
		if err := vip.Leave(a, r.seg.Bridge); err != nil {
			t.Fatal(err)
		}
	}
	netns.Run(t, "ip", "addr", "add", manual.String()+"/32", "dev", r.seg.Bridge)
	r.start(r.addr)
	r.until(r.addr, vip.Added)
	r.gone(unwanted)
	r.stop()
	r.gone(r.addr)
	for what, a := range map[string]netip.Addr{"another daemon's": foreign, "an admin's": manual, "one of an earlier start": before} {
		if _, on := r.on(a); !on {
			t.Errorf("%s address was removed", what)
		}
	}
}

// TestKilledAndOff: what a killed holder left is removed by the next if that one holds none: before Run, which may lack the privilege.
func TestKilledAndOff(t *testing.T) {
	r := newRig(t, 15)
	manual := r.addr.Next()
	netns.Run(t, "ip", "addr", "add", manual.String()+"/32", "dev", r.seg.Bridge)
	r.start(r.addr)
	r.until(r.addr, vip.Added)
	all, _ := r.records.Load(t.Context())
	r.stop()
	_ = r.records.Put(t.Context(), all[0])
	if err := vip.Leave(r.addr, r.seg.Bridge); err != nil {
		t.Fatal(err)
	}
	r.cfg.Hold = false
	r.start(r.addr, manual)
	if line, on := r.on(r.addr); on {
		t.Errorf("it is left: %s", line)
	}
	if left, _ := r.records.Load(t.Context()); len(left) > 0 {
		t.Errorf("records %v are left", left)
	}
	r.until(r.addr, vip.Missing)
	r.until(manual, vip.Present)
}

// TestTwoHolders: of two machines that want the same address at the same time one gets it.
func TestTwoHolders(t *testing.T) {
	r := newRig(t, 12)
	r.start(r.addr)
	// The other machine probes it, too.
	netns.Need(t, "arping")
	_ = exec.Command("ip", "netns", "exec", r.spy.Name, "arping", "-D", "-c1", "-w1", "-I", "eth0", r.addr.String()).Run()
	r.until(r.addr, vip.Added)
	if err := exec.Command("ip", "netns", "exec", r.spy.Name, "arping", "-D", "-c2", "-w5", "-I", "eth0", r.addr.String()).Run(); err == nil {
		t.Error("duplicate address detection of another machine does not find the holder")
	}
	if s := r.until(r.addr, vip.Added); !s.OK() {
		t.Errorf("a probe is no conflict: %+v", s)
	}
}
