package bootload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
)

// A relay carries DHCP for all machines, as a router between them and the server does.
type relay struct {
	conn   *net.UDPConn
	self   netip.Addr
	server *net.UDPAddr
	reader sync.WaitGroup

	mu      sync.Mutex
	waiting map[dhcpv4.TransactionID]chan *dhcpv4.DHCPv4
}

func newRelay(server, self netip.Addr) (*relay, error) {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(self, 67)))
	if err != nil {
		return nil, fmt.Errorf("bootload: be a relay: %w", err)
	}
	_ = conn.SetReadBuffer(4 << 20) // all answers may come at once; what does not fit is asked for again
	r := &relay{
		conn: conn, self: self, server: net.UDPAddrFromAddrPort(netip.AddrPortFrom(server, 67)),
		waiting: map[dhcpv4.TransactionID]chan *dhcpv4.DHCPv4{},
	}
	r.reader.Go(r.read)
	return r, nil
}

func (r *relay) close() {
	_ = r.conn.Close()
	r.reader.Wait()
}

func (r *relay) read() {
	buf := make([]byte, 4096)
	for {
		n, err := r.conn.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		p, err := dhcpv4.FromBytes(buf[:max(n, 0)])
		if err != nil {
			continue
		}
		r.mu.Lock()
		to := r.waiting[p.TransactionID]
		r.mu.Unlock()
		if to != nil {
			select {
			case to <- p:
			default: // it has one already
			}
		}
	}
}

// ask sends p until it is answered, after each of these waits once more, and returns how often that was.
func (r *relay) ask(ctx context.Context, p *dhcpv4.DHCPv4, waits []time.Duration) (answer *dhcpv4.DHCPv4, again int, err error) {
	answers := make(chan *dhcpv4.DHCPv4, 1)
	r.mu.Lock()
	r.waiting[p.TransactionID] = answers
	r.mu.Unlock()
	defer func() { r.mu.Lock(); delete(r.waiting, p.TransactionID); r.mu.Unlock() }()
	p.GatewayIPAddr, p.HopCount = r.self.AsSlice(), 1
	message := p.ToBytes()
	for i, wait := range waits {
		if _, err := r.conn.WriteTo(message, r.server); err != nil {
			return nil, i, err
		}
		select {
		case a := <-answers:
			return a, i, nil
		case <-ctx.Done():
			return nil, i, ctx.Err()
		case <-time.After(wait):
		}
	}
	return nil, len(waits), fmt.Errorf("%s: no answer to %d of them", p.MessageType(), len(waits))
}

// A lease is the content of an ACK.
type lease struct {
	file string // boot file
	next netip.Addr
}

// How firmware and iPXE wait before they ask again.
var (
	waitsOVMF = []time.Duration{4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second}
	waitsIPXE = []time.Duration{1 * time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}
)

// What OVMF and iPXE say of themselves, as seen on the wire.
func (w *walk) ovmf() []dhcpv4.Modifier {
	return []dhcpv4.Modifier{
		dhcpv4.WithBroadcast(true),
		dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient:Arch:00007:UNDI:003000")),
		dhcpv4.WithOption(dhcpv4.OptClientArch(iana.EFI_X86_64)),
		dhcpv4.WithGeneric(dhcpv4.OptionClientNetworkInterfaceIdentifier, []byte{1, 3, 0}),
		dhcpv4.WithGeneric(dhcpv4.OptionClientMachineIdentifier, w.uuid()),
		dhcpv4.WithOption(dhcpv4.OptMaxMessageSize(1472)),
		dhcpv4.WithRequestedOptions(codes(1, 2, 3, 4, 5, 6, 12, 13, 15, 17, 18, 22, 23, 28, 40, 41, 42, 43, 50, 51, 54, 58, 59, 60, 66, 67, 97, 128)...),
	}
}

func (w *walk) ipxeSays() []dhcpv4.Modifier {
	return []dhcpv4.Modifier{
		dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient:Arch:00007:UNDI:003010")),
		dhcpv4.WithOption(dhcpv4.OptClientArch(iana.EFI_X86_64)),
		dhcpv4.WithGeneric(dhcpv4.OptionUserClassInformation, []byte("iPXE")),
		dhcpv4.WithGeneric(dhcpv4.GenericOptionCode(175), []byte("\xb1\x05\x01\x1a\xf4\x10\x00\xeb\x03\x01\x15\x01\x13\x01\x01\x24\x01\x01")),
		dhcpv4.WithGeneric(dhcpv4.OptionClientIdentifier, append([]byte{1}, w.mac...)),
		dhcpv4.WithGeneric(dhcpv4.OptionClientMachineIdentifier, w.uuid()),
		dhcpv4.WithOption(dhcpv4.OptMaxMessageSize(1472)),
		dhcpv4.WithRequestedOptions(codes(1, 3, 6, 7, 12, 15, 17, 26, 43, 60, 66, 67, 119, 128, 175, 203)...),
	}
}

func codes(bytes ...byte) (cs []dhcpv4.OptionCode) {
	for _, b := range bytes {
		cs = append(cs, dhcpv4.GenericOptionCode(b))
	}
	return cs
}

// uuid is the value of option 97.
func (w *walk) uuid() []byte { return append(make([]byte, 11), w.mac...) }

func (w *walk) firmware(ctx context.Context) error { return w.dora(ctx, w.ovmf(), waitsOVMF) }
func (w *walk) ipxe(ctx context.Context) error     { return w.dora(ctx, w.ipxeSays(), waitsIPXE) }

// dora gets the lease, which must be of the machine's own address and say what to boot.
func (w *walk) dora(ctx context.Context, says []dhcpv4.Modifier, waits []time.Duration) error {
	discover, err := dhcpv4.New(append(says, dhcpv4.WithMessageType(dhcpv4.MessageTypeDiscover), dhcpv4.WithHwAddr(w.mac))...)
	if err != nil {
		return err
	}
	offer, again, err := w.relay.ask(ctx, discover, waits)
	w.again += again
	if err != nil {
		return err
	}
	request, err := dhcpv4.New(append(says, dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest), dhcpv4.WithHwAddr(w.mac),
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr)),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(offer.ServerIdentifier())))...)
	if err != nil {
		return err
	}
	ack, again, err := w.relay.ask(ctx, request, waits)
	w.again += again
	if err != nil {
		return err
	}
	return w.take(ack)
}

func (w *walk) take(ack *dhcpv4.DHCPv4) error {
	got, _ := netip.AddrFromSlice(ack.YourIPAddr.To4())
	if ack.MessageType() != dhcpv4.MessageTypeAck || got != w.addr {
		return fmt.Errorf("%s of %s, want ACK of %s", ack.MessageType(), got, w.addr)
	}
	w.lease.file = ack.BootFileNameOption()
	if w.lease.file == "" {
		w.lease.file = ack.BootFileName
	}
	w.lease.file = strings.ReplaceAll(strings.TrimRight(w.lease.file, "\x00"), "${net0/mac:hexhyp}", strings.ReplaceAll(w.mac.String(), ":", "-"))
	w.lease.next, _ = netip.AddrFromSlice(ack.ServerIPAddr.To4())
	if w.lease.file == "" {
		return errors.New("the lease names no boot file")
	}
	return nil
}
