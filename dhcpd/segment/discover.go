package segment

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/bootlab/bootlab/internal/host/link/arp"
	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/lab"

	"golang.org/x/sys/unix"
)

// Discover sends a DHCPDISCOVER of an unknown machine on an interface and returns the servers that send an offer before the
// timeout; a server of this machine on the same interface does not receive it. The interface is promiscuous meanwhile, so that
// a Watch on it receives the offers too. Nothing is leased, but each server holds an address for a while.
func Discover(ctx context.Context, iface string, timeout time.Duration) ([]ServerReply, error) {
	ifi, err := net.InterfaceByName(iface)
	if err != nil {
		return nil, err
	}
	t, err := packet.OpenOn(ifi.Index, unix.ETH_P_IP, replyFilter())
	if err != nil {
		return nil, err
	}
	defer t.Close()
	// Kea sends its broadcasts in a frame for the client's MAC alone, and that MAC is not ours.
	promiscuous := unix.PacketMreq{Ifindex: int32(ifi.Index), Type: unix.PACKET_MR_PROMISC}
	if err := control(t.Conn(), func(fd int) error {
		return unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &promiscuous)
	}); err != nil {
		return nil, err
	}
	me := randomMAC()
	if err := t.Send(ifi.Index, discoverFrame(me)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer interruptReads(ctx, t)()
	return collect(t, iface, me)
}

// collect reads offers for a machine until the deadline.
func collect(t *packet.Socket, iface string, me lab.MAC) (found []ServerReply, err error) {
	w := reportLimiter{seen: map[serverKey]*server{}}
	buf := make([]byte, replySpace)
	for {
		n, err := t.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		r, ok := parseReply(buf[:n])
		if ok && r.ClientMAC == me && r.Kind == Offer && w.due(&r, time.Now()) {
			r.Interface = iface
			found = append(found, r)
		}
	}
}

// randomMAC returns a locally administered unicast MAC.
func randomMAC() (m lab.MAC) {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], rand.Uint64())
	copy(m[:], b[:])
	m[0] = m[0]&^1 | 2
	return m
}

// discoverFrame is a DISCOVER that asks for a broadcast reply, which this machine receives, too.
func discoverFrame(me lab.MAC) []byte {
	const options = "\x63\x82\x53\x63" + "\x35\x01\x01" + "\x37\x03\x01\x03\x06" + "\xff"
	const shortest = 300 // RFC 1542 section 2.1
	frame := make([]byte, FrameHeadroom+shortest)
	m := frame[FrameHeadroom:]
	m[0], m[1], m[2] = 1, 1, 6
	binary.BigEndian.PutUint32(m[4:], rand.Uint32())
	m[10] = 0x80
	copy(m[28:], me[:])
	copy(m[bootpFixed:], options)
	putHeaders(frame, me, &Dest{
		Source: netip.IPv4Unspecified(), Port: PortClient, To: netip.AddrPortFrom(broadcastIP, PortServer), MAC: arp.Broadcast,
	})
	return frame
}
