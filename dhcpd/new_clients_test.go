package dhcpd

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// smallPool makes the pool "guests" as small as a test needs, and compiles the lab again.
func (b *bench) smallPool(t *testing.T, last string) *pool {
	t.Helper()
	for _, n := range b.lab.Networks {
		for _, p := range n.Pools {
			if p.Name == "guests" {
				p.Range.Last = ip(last)
			}
		}
	}
	b.table = Compile(b.lab).WithNames(inLabTest)
	p := b.table.byIface["lab0"][0].poolFor(&lab.Client{MAC: mac(t, other)})
	if p == nil || p.Name != "guests" {
		t.Fatal("the lab has no pool guests for unknown machines")
	}
	return p
}

func madeUp(n int) lab.MAC {
	m := lab.MAC{2, 0xbe, 0xef}
	binary.BigEndian.PutUint16(m[4:], uint16(n))
	return m
}

// smallPoolOn returns a bench with smallPool's lab, and the table of that lab on a segment.
func smallPoolOn(t *testing.T, seg *netns.Segment, last string) (*bench, func() *Table) {
	t.Helper()
	b := newBench(t)
	b.smallPool(t, last)
	table := Compile(onBridge(b.lab, seg.Bridge))
	return b, func() *Table { return table }
}

func (b *bench) ask(t *testing.T, m lab.MAC) (offered string) {
	t.Helper()
	out := b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeDiscover, m, udhcpc))
	if len(out) == 0 {
		return ""
	}
	return decode(t, out[0].data).YourIPAddr.String()
}

func (b *bench) take(t *testing.T, m lab.MAC) (leased string) {
	t.Helper()
	addr := b.ask(t, m)
	if addr == "" {
		return ""
	}
	out := b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeRequest, m, udhcpc, withRequested(addr), withServer("10.77.0.1")))
	if len(out) != 1 || decode(t, out[0].data).MessageType() != dhcpv4.MessageTypeAck {
		t.Fatalf("%s was offered %s and does not get it", m, addr)
	}
	return addr
}

func (b *bench) kinds(k event.Kind) (found []event.Event) {
	for _, e := range b.events.take() {
		if e.Kind == k {
			found = append(found, e)
		}
	}
	return found
}

func TestFullPoolNamesItsHolders(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pool := b.smallPool(t, "10.77.0.211")
	for i := range pool.addrs.Usable() {
		if b.take(t, madeUp(i)) == "" {
			t.Fatalf("machine %d of %d gets no address", i, pool.addrs.Usable())
		}
		b.clock.Advance(time.Minute) // slower than any limit
	}
	b.events.take()
	if got := b.ask(t, madeUp(999)); got != "" {
		t.Fatalf("one more than fits got %s", got)
	}
	refused := b.kinds(event.DHCPRefused)
	if len(refused) != 1 {
		t.Fatalf("%d refusals, want 1", len(refused))
	}
	if refused[0].Network != "main" {
		t.Errorf("the refusal is of network %q", refused[0].Network)
	}
	for _, want := range []string{"guests", "full", fmt.Sprint(pool.addrs.Usable()), madeUp(0).String(), "more"} {
		if !strings.Contains(refused[0].Err, want) {
			t.Errorf("the refusal does not say %q: %s", want, refused[0].Err)
		}
	}
	b.clock.Advance(7 * time.Second)
	b.ask(t, madeUp(999))
	if again := b.kinds(event.DHCPRefused); len(again) != 1 || again[0].Err != refused[0].Err {
		t.Errorf("the text differs, so that it is no repetition:\n%s\n%v", refused[0].Err, again)
	}
}

// withBus puts the daemon's bus behind the server, and returns where it counts every event.
func (b *bench) withBus() *events {
	all := &events{}
	b.Server.deps.Events = event.NewBus(event.BusConfig{Now: b.clock.Now, Recorders: []event.Recorder{b.events}, Counters: []event.Recorder{all}})
	return all
}

// Made-up machines that request an address they cannot have are all refused and counted, and events name some of them.
func TestEventsOfAFloodAreLimited(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	counted := b.withBus()
	const machines, most = 500, 129 // see package event
	for i := range machines {
		out := b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeRequest, madeUp(i), udhcpc, withRequested("192.168.99.9")))
		if len(out) != 1 || decode(t, out[0].data).MessageType() != dhcpv4.MessageTypeNak {
			t.Fatalf("machine %d is not refused", i)
		}
	}
	if n := len(b.kinds(event.DHCPNak)); n == 0 || n > most {
		t.Errorf("%d of %d are recorded, want 1 to %d", n, machines, most)
	}
	if n := len(counted.take()); n != machines {
		t.Errorf("%d of %d are counted", n, machines)
	}
}

// A flood of DHCPDISCOVERs from made-up MACs holds every address of a pool for offers that no client takes. A real client
// gets one at its first attempt, however many ask before it requests it.
func TestDiscoverFloodLeavesAddresses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pool := b.smallPool(t, "10.77.0.250")
	n := 0
	flood := func(times int) {
		for range times {
			n++
			b.ask(t, madeUp(n))
		}
	}
	flood(1000)
	if _, held, _ := b.deps.Book.Usage(pool.addrs); held > pool.addrs.Usable() {
		t.Errorf("%d offers are kept of a pool of %d", held, pool.addrs.Usable())
	}
	real := mac(t, "52:5f:00:00:00:01")
	addr := b.ask(t, real)
	flood(1000)
	b.clock.Advance(4 * time.Second)
	flood(1000)
	out := b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeRequest, real, udhcpc, withRequested(addr), withServer("10.77.0.1")))
	if len(out) != 1 || decode(t, out[0].data).MessageType() != dhcpv4.MessageTypeAck {
		t.Errorf("a real machine was offered %q and does not get it", addr)
	}
	if b.ask(t, mac(t, master0)) != "10.77.0.21" {
		t.Error("a reservation is not served")
	}
}

// TestRackFillsItsPool: how many real machines there are limits nothing, on a segment or behind one port of a relay.
func TestRackFillsItsPool(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.lab.Networks[1].Pools[0].Range.Last = ip("10.78.1.200")
	b.table = Compile(b.lab).WithNames(inLabTest)
	ask := func(m lab.MAC, port string) bool {
		behind := []dhcpv4.Modifier{withGiaddr("10.78.0.254"), raw(82, "\x01\x02"+port)}
		out := b.exchange("lab0", 67, "10.78.0.254:67", message(t, dhcpv4.MessageTypeDiscover, m, udhcpc, behind...))
		if len(out) == 0 {
			return false
		}
		addr := decode(t, out[0].data).YourIPAddr.String()
		behind = append(behind, withRequested(addr), withServer("10.77.0.1"))
		out = b.exchange("lab0", 67, "10.78.0.254:67", message(t, dhcpv4.MessageTypeRequest, m, udhcpc, behind...))
		return len(out) == 1 && decode(t, out[0].data).MessageType() == dhcpv4.MessageTypeAck
	}
	for i := range 200 {
		if !ask(madeUp(i), "p7") {
			t.Fatalf("machine %d of 200 behind one relay port gets no address of a pool of 200", i)
		}
	}
	if ask(madeUp(200), "p8") {
		t.Error("one more than fits gets an address")
	}
	pool := b.smallPool(t, "10.77.0.254").addrs
	for i := range pool.Usable() {
		if b.take(t, madeUp(1000+i)) == "" {
			t.Fatalf("machine %d of %d on a segment gets no address", i, pool.Usable())
		}
	}
}

func TestBootLoop(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := mac(t, master0)
	const script = "http://10.77.0.1:8080/boot/52-54-00-00-02-01/boot.ipxe"
	received := false
	round := func(n byte) string {
		if received {
			b.deps.Loops.ProgramReceived(m)
		}
		out := b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeRequest, m, ipxe, withRequested("10.77.0.21"), withServer("10.77.0.1"),
			dhcpv4.WithTransactionID(dhcpv4.TransactionID{1, 2, 3, n})))
		b.clock.Advance(time.Second)
		return decode(t, out[0].data).BootFileName
	}
	loop := func(first byte, want string) {
		t.Helper()
		for i := range byte(bootloop.MaxLeases) {
			if got := round(first + i); got != script {
				t.Fatalf("round %d gets %q", i, got)
			}
		}
		if found := b.kinds(event.DHCPLoop); len(found) != 1 {
			t.Errorf("%d loops reported, want 1", len(found))
		}
		for i := range byte(3) { // the boot program that it gets is not received
			if got := round(first + 50 + i); got != want {
				t.Errorf("the loop goes on with %q, want %q", got, want)
			}
		}
		b.clock.Advance(bootloop.RemedyTime)
		if got := round(first + 60); got != script {
			t.Errorf("after the hold it gets %q", got)
		}
		b.clock.Advance(bootloop.Window + time.Second)
		b.kinds(event.DHCPLoop)
	}
	// Nobody knows that it is the machine: it gets the boot program, which has HTTP.
	loop(0, "boot/52-54-00-00-02-01/undionly.kpxe")
	// The machine has received that each time, and fetches no script with it either.
	received = true
	loop(100, "")
}

// TestBootLoopWithProxy: a proxy sees only a machine's DHCPDISCOVERs. That of its operating system, which the proxy does not
// answer, ends the loop.
func TestBootLoopWithProxy(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ask := func(n byte, who client) int {
		b.deps.Loops.ProgramReceived(mac(t, besideH))
		out := b.exchange("lab1", 67, client0, message(t, dhcpv4.MessageTypeDiscover, mac(t, besideH), who,
			dhcpv4.WithTransactionID(dhcpv4.TransactionID{1, 2, 3, n})))
		b.clock.Advance(time.Second)
		return len(out)
	}
	for i := range 3 * bootloop.MaxLeases {
		if ask(byte(i), ipxe) != 1 {
			t.Fatalf("round %d gets no answer", i)
		}
		if i%4 == 3 {
			ask(byte(i), networkd)
		}
	}
	ask(99, networkd)
	for i := range bootloop.MaxLeases {
		if ask(byte(100+i), ipxe) != 1 {
			t.Fatalf("round %d gets no answer", i)
		}
	}
	if found := b.kinds(event.DHCPLoop); len(found) != 1 {
		t.Errorf("%d loops reported, want 1", len(found))
	}
	if ask(200, ipxe) != 0 {
		t.Error("the loop goes on")
	}
	if ask(201, ovmf) != 1 {
		t.Error("its firmware gets no answer")
	}
	b.clock.Advance(bootloop.RemedyTime)
	if ask(202, ipxe) != 1 {
		t.Error("the loop is held for ever")
	}
}

// A system that takes small packets gets the rest of its options in the fields for file and server name.
func TestOverload(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	for _, tt := range []struct {
		name string
		who  client
		want bool
	}{{"system", udhcpc, true}, {"firmware", bios, false}, {"ipxe", ipxe, false}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			for i := range 4 {
				b.lab.Networks[2].Options = append(b.lab.Networks[2].Options, lab.Option{Code: uint8(224 + i), Data: []byte(long), Force: true})
			}
			b.table = Compile(b.lab).WithNames(inLabTest)
			out := b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeDiscover, mac(t, master0), tt.who, raw(57, "\x02\x40")))
			data := out[0].data
			if len(data) > 576-28 {
				t.Errorf("%d bytes, more than the client takes", len(data))
			}
			p := decode(t, data)
			overloaded := len(p.Options[52]) == 1
			if overloaded != tt.want {
				t.Fatalf("overloaded: %v, want %v", overloaded, tt.want)
			}
			inside := 0
			for i := range 4 {
				if string(p.Options[uint8(224+i)]) == long {
					inside++
				}
			}
			if found := strings.Count(string(data), long); (found > inside) != tt.want {
				t.Errorf("%d of the long options arrive, %d of them in the options field", found, inside)
			}
		})
	}
}

// IPv6-only (RFC 8925) goes to systems that request it, and to no client that it would cut off.
func TestV6OnlyIsForSystems(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		who  client
		more []dhcpv4.Modifier
		want bool
	}{
		{"system that asks", networkd, []dhcpv4.Modifier{raw(55, "\x01\x03\x6c")}, true},
		{"system that does not", networkd, nil, false},
		{"system without a list", networkd, []dhcpv4.Modifier{raw(55, "")}, false},
		{"iPXE that asks", ipxe, []dhcpv4.Modifier{raw(55, "\x01\x03\x6c")}, false},
	} {
		b := newBench(t)
		b.lab.Networks[2].Options = append(b.lab.Networks[2].Options, lab.Option{Code: 108, Data: []byte{0, 0, 1, 44}})
		b.table = Compile(b.lab).WithNames(inLabTest)
		out := b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeDiscover, mac(t, master0), tt.who, tt.more...))
		_, got := decode(t, out[0].data).Options[108]
		if got != tt.want {
			t.Errorf("%s: option 108 sent: %v, want %v", tt.name, got, tt.want)
		}
	}
}
