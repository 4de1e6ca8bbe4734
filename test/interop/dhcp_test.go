package interop

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"
)

// A relay asks for leases in the name of many machines, as a relay agent does.
type relay struct {
	conn   *net.UDPConn
	self   net.IP
	server *net.UDPAddr
	gone   chan struct{} // closed by serverGone

	mu      sync.Mutex
	waiting map[dhcpv4.TransactionID]chan *dhcpv4.DHCPv4
}

// inside runs do in the machine's network namespace. Sockets that it opens stay there.
func (m *machine) inside(do func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer func() { _ = home.Close() }()
	away, err := os.Open("/run/netns/" + m.Name)
	if err != nil {
		return err
	}
	defer func() { _ = away.Close() }()
	if err := unix.Setns(int(away.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	err = do()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		panic(back) // the thread would do other tests' work in the wrong place
	}
	runtime.UnlockOSThread()
	return err
}

// relay opens a relay at an address of the machine.
func (m *machine) relay(t *testing.T, addr string) *relay {
	t.Helper()
	r := &relay{self: net.ParseIP(addr).To4(), server: &net.UDPAddr{IP: net.ParseIP(m.d.addr), Port: 67}, waiting: map[dhcpv4.TransactionID]chan *dhcpv4.DHCPv4{}, gone: make(chan struct{})}
	err := m.inside(func() (err error) {
		r.conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: r.self, Port: 67})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(r.read)
	t.Cleanup(func() { _ = r.conn.Close(); reading.Wait() })
	return r
}

func (r *relay) read() {
	buf := make([]byte, 4096)
	for {
		n, err := r.conn.Read(buf)
		if err != nil {
			return
		}
		p, err := dhcpv4.FromBytes(buf[:n])
		if err != nil {
			continue
		}
		r.mu.Lock()
		if c := r.waiting[p.TransactionID]; c != nil {
			select {
			case c <- p:
			default:
			}
		}
		r.mu.Unlock()
	}
}

// serverGone ends all that wait for an answer of a daemon that has ended, once they have what it had sent before: the relay sends a
// packet to itself, which is received after those.
func (r *relay) serverGone(t *testing.T) {
	t.Helper()
	last, err := dhcpv4.New(dhcpv4.WithMessageType(dhcpv4.MessageTypeOffer))
	if err != nil {
		t.Fatal(err)
	}
	received := make(chan *dhcpv4.DHCPv4, 1)
	r.mu.Lock()
	r.waiting[last.TransactionID] = received
	r.mu.Unlock()
	for arrived := false; !arrived; {
		if _, err := r.conn.WriteTo(last.ToBytes(), r.conn.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-received:
			arrived = true
		case <-time.After(time.Second): // the socket's queue was full
		}
	}
	r.mu.Lock()
	delete(r.waiting, last.TransactionID)
	r.mu.Unlock()
	close(r.gone)
}

// ask sends p once and waits for the answer.
func (r *relay) ask(p *dhcpv4.DHCPv4, within time.Duration) (*dhcpv4.DHCPv4, error) {
	answer := make(chan *dhcpv4.DHCPv4, 1)
	r.mu.Lock()
	r.waiting[p.TransactionID] = answer
	r.mu.Unlock()
	defer func() { r.mu.Lock(); delete(r.waiting, p.TransactionID); r.mu.Unlock() }()
	p.GatewayIPAddr = r.self
	if _, err := r.conn.WriteTo(p.ToBytes(), r.server); err != nil {
		return nil, err
	}
	select {
	case a := <-answer:
		return a, nil
	case <-r.gone:
		select {
		case a := <-answer: // it was sent before
			return a, nil
		default:
			return nil, fmt.Errorf("%s of %s: the daemon is gone", p.MessageType(), p.ClientHWAddr)
		}
	case <-time.After(within):
		return nil, fmt.Errorf("%s of %s: no answer within %v", p.MessageType(), p.ClientHWAddr, within)
	}
}

// lease gets an address for the machine with that MAC, each packet sent once.
func (r *relay) lease(mac net.HardwareAddr, within time.Duration) (string, error) {
	discover, err := dhcpv4.NewDiscovery(mac)
	if err != nil {
		return "", err
	}
	offer, err := r.ask(discover, within)
	if err != nil {
		return "", err
	}
	request, err := dhcpv4.NewRequestFromOffer(offer)
	if err != nil {
		return "", err
	}
	ack, err := r.ask(request, within)
	if err != nil {
		return "", err
	}
	if ack.MessageType() != dhcpv4.MessageTypeAck {
		return "", fmt.Errorf("request of %s: %s", mac, ack.MessageType())
	}
	return ack.YourIPAddr.String(), nil
}

// numbered returns the MAC of the n-th of many machines.
func numbered(n int) net.HardwareAddr {
	return net.HardwareAddr{0x52, 0x54, 0xaa, byte(n >> 16), byte(n >> 8), byte(n)}
}
