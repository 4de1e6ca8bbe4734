package interop

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/link/packet"
)

// patience bounds every wait. It only ends what hangs.
const patience = 2 * time.Minute

// A wire is a packet socket on a machine's NIC. It sends with any MAC and any address, and receives all frames, those of the machine's
// own programs included.
type wire struct {
	t    testing.TB
	m    *machine
	conn *packet.Socket
	link int
	hw   net.HardwareAddr
	done chan struct{} // closed with the socket

	mu       sync.Mutex
	captured []captured
	grown    chan struct{} // closed and renewed with every packet
	owns     map[netip.Addr]arpOwner
}

// A captured is one captured DHCP message.
type captured struct {
	*dhcpv4.DHCPv4
	At       time.Time
	Eth      net.HardwareAddr // where the frame was sent to
	From, To netip.AddrPort
	Size     int // of the message
	raw      []byte
}

func (h captured) String() string {
	if h.DHCPv4 == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s %s > %s (%s) chaddr %s ciaddr %s yiaddr %s giaddr %s asks %s names %s", h.MessageType(), h.From, h.To, h.Eth,
		h.ClientHWAddr, h.ClientIPAddr, h.YourIPAddr, h.GatewayIPAddr, h.RequestedIPAddress(), h.ServerIdentifier())
}

// An arpOwner answers ARP requests for an address.
type arpOwner struct {
	mac net.HardwareAddr
	to  net.HardwareAddr // only this MAC is answered; nil: all
}

// wire opens one, in the machine or, if it is nil, on iface of the test's own namespace.
func newWire(t testing.TB, m *machine, iface string) *wire {
	t.Helper()
	w := &wire{t: t, m: m, grown: make(chan struct{}), done: make(chan struct{}), owns: map[netip.Addr]arpOwner{}}
	open := func() error {
		ifi, err := net.InterfaceByName(iface)
		if err != nil {
			return err
		}
		w.hw, w.link = ifi.HardwareAddr, ifi.Index
		w.conn, err = packet.OpenOn(ifi.Index, unix.ETH_P_ALL, nil)
		return err
	}
	var err error
	if m == nil {
		err = open()
	} else {
		err = m.inside(open)
	}
	if err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(w.read)
	t.Cleanup(func() {
		close(w.done)
		w.conn.Close()
		reading.Wait()
		if t.Failed() {
			t.Logf("%s captured:\n%s", iface, w.tail())
		}
	})
	return w
}

func (m *machine) wire(t testing.TB) *wire { t.Helper(); return newWire(t, m, "eth0") }

func (w *wire) tail() string {
	var b strings.Builder
	all := w.all()
	for _, h := range all[max(0, len(all)-20):] {
		fmt.Fprintf(&b, "%s %s\n", h.At.Format("05.000"), h)
	}
	return b.String()
}

func (w *wire) read() {
	buf := make([]byte, 65536)
	for {
		n, err := w.conn.Read(buf)
		if err != nil {
			select {
			case <-w.done:
				return
			case <-time.After(time.Millisecond):
				continue // the card goes down and comes up
			}
		}
		w.frame(buf[:n])
	}
}

const ethernet = 14 // bytes of an untagged header

func (w *wire) frame(b []byte) {
	if len(b) < ethernet+20 {
		return
	}
	switch binary.BigEndian.Uint16(b[12:]) {
	case unix.ETH_P_ARP:
		w.arp(b)
	case unix.ETH_P_IP:
		w.ip(b)
	}
}

// ip captures a DHCP message.
func (w *wire) ip(b []byte) {
	ip := b[ethernet:]
	head := int(ip[0]&0xf) * 4
	if ip[9] != unix.IPPROTO_UDP || len(ip) < head+8 {
		return
	}
	udp := ip[head:]
	length := int(binary.BigEndian.Uint16(udp[4:]))
	if length < 8 || length > len(udp) {
		return
	}
	raw := slices.Clone(udp[8:length])
	p, err := dhcpv4.FromBytes(raw)
	if err != nil {
		return
	}
	at := func(addr []byte, port []byte) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(addr)), binary.BigEndian.Uint16(port))
	}
	h := captured{DHCPv4: p, At: time.Now(), Eth: slices.Clone(b[:6]), From: at(ip[12:16], udp), To: at(ip[16:20], udp[2:]), Size: length - 8, raw: raw}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.captured = append(w.captured, h)
	close(w.grown)
	w.grown = make(chan struct{})
}

// arp answers requests for an address of this socket.
func (w *wire) arp(b []byte) {
	a := b[ethernet:]
	if len(a) < 28 || binary.BigEndian.Uint16(a[6:]) != 1 {
		return
	}
	target := netip.AddrFrom4([4]byte(a[24:28]))
	w.mu.Lock()
	r, ok := w.owns[target]
	w.mu.Unlock()
	if !ok || (r.to != nil && !slices.Equal(r.to, a[8:14])) {
		return
	}
	out := slices.Concat(b[6:12], r.mac, []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, 2}, r.mac, a[24:28], a[8:14], a[14:18], make([]byte, 18))
	w.raw(out)
}

// own adds an address to this socket. ARP requests for it are answered with mac; with to, only those of that MAC.
func (w *wire) own(addr string, mac, to net.HardwareAddr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owns[netip.MustParseAddr(addr)] = arpOwner{mac, to}
}

// leave removes an address from this socket.
func (w *wire) leave(addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.owns, netip.MustParseAddr(addr))
}

func (w *wire) raw(frame []byte) {
	// An error is an interface that is being removed; the caller notices the missing answer.
	_ = w.conn.Send(w.link, frame)
}

var (
	broadcastMAC = net.HardwareAddr{255, 255, 255, 255, 255, 255}
	newClient    = netip.MustParseAddrPort("0.0.0.0:68")
	toServers    = netip.MustParseAddrPort("255.255.255.255:67")
)

// send broadcasts a message with the client's MAC as the frame's source.
func (w *wire) send(p *dhcpv4.DHCPv4, from, to netip.AddrPort) {
	w.sendBytes(p.ClientHWAddr, from, to, p.ToBytes())
}

func (w *wire) sendBytes(src net.HardwareAddr, from, to netip.AddrPort, payload []byte) {
	udp := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(udp, from.Port())
	binary.BigEndian.PutUint16(udp[2:], to.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(8+len(payload)))
	ip := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
	binary.BigEndian.PutUint16(ip[2:], uint16(28+len(payload)))
	f, d := from.Addr().As4(), to.Addr().As4()
	ip = slices.Concat(ip, f[:], d[:])
	var sum uint32
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	w.raw(slices.Concat(broadcastMAC, src[:6], []byte{8, 0}, ip, udp, payload))
}

func (w *wire) all() []captured { w.mu.Lock(); defer w.mu.Unlock(); return slices.Clone(w.captured) }

// mark returns the number of captured messages, for since.
func (w *wire) mark() int { w.mu.Lock(); defer w.mu.Unlock(); return len(w.captured) }

// since waits for a message after that mark that ok accepts, and returns it and the mark behind it.
func (w *wire) since(mark int, within time.Duration, ok func(captured) bool) (captured, int, bool) {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for {
		w.mu.Lock()
		fresh, grown := w.captured[mark:], w.grown
		w.mu.Unlock()
		for i, h := range fresh {
			if ok(h) {
				return h, mark + i + 1, true
			}
		}
		select {
		case <-grown:
		case <-deadline.C:
			return captured{}, mark, false
		}
	}
}

// await is since for a message without which the test fails.
func (w *wire) await(what string, mark int, within time.Duration, ok func(captured) bool) (captured, int) {
	w.t.Helper()
	h, next, found := w.since(mark, within, ok)
	if !found {
		w.t.Fatalf("%s: not within %v; captured\n%s", what, within, w.tail())
	}
	return h, next
}

func answers(p *dhcpv4.DHCPv4) func(captured) bool {
	return func(h captured) bool {
		return h.OpCode == dhcpv4.OpcodeBootReply && h.TransactionID == p.TransactionID && slices.Equal(h.ClientHWAddr, p.ClientHWAddr)
	}
}

// ask broadcasts a message as a client without an address does, and returns the answer.
func (w *wire) ask(p *dhcpv4.DHCPv4) captured {
	w.t.Helper()
	return w.askFrom(p, newClient, toServers)
}

// askFrom asks, and asks again as clients do: an interface that just came up may lose the first frame.
func (w *wire) askFrom(p *dhcpv4.DHCPv4, from, to netip.AddrPort) captured {
	w.t.Helper()
	const tries = 12
	for range tries {
		if h, ok := w.tryFrom(p, from, to, patience/tries); ok {
			return h
		}
	}
	w.t.Fatalf("no answer to %s", captured{DHCPv4: p, From: from, To: to})
	return captured{}
}

func (w *wire) tryFrom(p *dhcpv4.DHCPv4, from, to netip.AddrPort, within time.Duration) (captured, bool) {
	mark := w.mark()
	w.send(p, from, to)
	h, _, ok := w.since(mark, within, answers(p))
	return h, ok
}

// silent wants no answer: the server answers requests in their order, so once it has answered probe, which it must, it has dropped p.
func (w *wire) silent(p, probe *dhcpv4.DHCPv4) {
	w.t.Helper()
	mark := w.mark()
	w.send(p, newClient, toServers)
	w.ask(probe)
	if h, _, ok := w.since(mark, 50*time.Millisecond, answers(p)); ok {
		w.t.Errorf("want no answer to %s of %s, got %s", p.MessageType(), p.ClientHWAddr, h)
	}
}

// bind leases an address for a machine in SELECTING, and fails the test without one. mods is added to both messages.
func (w *wire) bind(mac net.HardwareAddr, mods ...dhcpv4.Modifier) captured {
	w.t.Helper()
	offer := w.ask(discover(mac, mods...))
	if offer.MessageType() != dhcpv4.MessageTypeOffer {
		w.t.Fatalf("want an offer for %s, got %s", mac, offer)
	}
	ack := w.ask(selecting(offer, mods...))
	if ack.MessageType() != dhcpv4.MessageTypeAck || !ack.YourIPAddr.Equal(offer.YourIPAddr) {
		w.t.Fatalf("want %s for %s, got %s", offer.YourIPAddr, mac, ack)
	}
	return ack
}

func mac(s string) net.HardwareAddr {
	m, err := net.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return m
}

// message builds one from a client, with a transaction id of its own.
func message(kind dhcpv4.MessageType, mac net.HardwareAddr, mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	p, err := dhcpv4.New(append([]dhcpv4.Modifier{dhcpv4.WithHwAddr(mac), dhcpv4.WithMessageType(kind)}, mods...)...)
	if err != nil {
		panic(err) // there is no entropy
	}
	return p
}

func discover(mac net.HardwareAddr, mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	return message(dhcpv4.MessageTypeDiscover, mac, mods...)
}

// selecting is the request that takes an offer (RFC 2131 section 4.3.2).
func selecting(offer captured, mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	return message(dhcpv4.MessageTypeRequest, offer.ClientHWAddr, append([]dhcpv4.Modifier{
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr)), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(offer.ServerIdentifier())),
	}, mods...)...)
}

// rebooting is the request of a machine that remembers its address.
func rebooting(mac net.HardwareAddr, addr string, mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	return message(dhcpv4.MessageTypeRequest, mac, append([]dhcpv4.Modifier{dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.ParseIP(addr)))}, mods...)...)
}

// with adds an option by number.
func with(code uint8, value string) dhcpv4.Modifier {
	return dhcpv4.WithGeneric(dhcpv4.GenericOptionCode(code), []byte(value))
}
