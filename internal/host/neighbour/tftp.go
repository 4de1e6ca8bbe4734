package neighbour

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/packet"
	"github.com/bootlab/bootlab/internal/lab"
)

// Anybody can send a request by TFTP with the address of another machine, and guess the port at which the transfer waits for acknowledgements.
// The source MAC of its frame shows the sender. A UDP socket does not have it, so a packet socket receives read requests too.

const (
	ethernet  = 14                     // header
	udp       = 8                      // header
	rrq       = 1                      // the operation of RFC 1350 section 5
	rrqSize   = ethernet + 60 + udp    // read of a frame, whatever the length of the IP header
	rrqKept   = 30 * time.Second       // how long a request is kept that nobody asks for
	rrqMost   = 1 << 14                // requests that are kept; a full set is emptied
	rrqWait   = 500 * time.Millisecond // how long a frame may take longer than the datagram in it
	rrqPoll   = 10 * time.Millisecond  // how often to look for it
	rrqBefore = 3 * time.Second        // how long before the answer to it began it may have been received
)

// A sentRequest is a read request that a machine sent.
type sentRequest struct {
	mac lab.MAC
	at  time.Time
}

// requests are the last read requests by the address and port that they came from.
type requests struct {
	mu   sync.Mutex
	seen map[netip.AddrPort]sentRequest
}

// Sender is who sent the TFTP read request from an address and port that was answered from that time on. Own and Foreign are by the source of
// its frame, None is that its frame was not received, as in a flood. Elsewhere is that no frame shows the sender: it is behind a router, uses
// IPv6, or there are no packet sockets.
func (r *Resolver) Sender(from netip.AddrPort, own []lab.MAC, answered time.Time) (found Found, err error) {
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	if r.tftp == nil || !from.Addr().Is4() {
		return Found{User: Elsewhere}, nil
	}
	err = r.onSegment(from.Addr(), func(k kernel, way route) error {
		_, isEthernet, err := k.hardware(way.link)
		if err == nil && isEthernet {
			found = userOf(own, lab.MAC{}, r.requests.wait(from, answered.Add(-rrqBefore)))
		}
		return err
	})
	return found, err
}

// wait returns the MAC that sent the last request from an address and port, if it is not older; zero: none was received.
func (q *requests) wait(from netip.AddrPort, since time.Time) lab.MAC {
	for end := time.Now().Add(rrqWait); ; time.Sleep(rrqPoll) {
		q.mu.Lock()
		sent, ok := q.seen[from]
		q.mu.Unlock()
		switch {
		case ok && !sent.at.Before(since):
			return sent.mac
		case time.Now().After(end):
			return lab.MAC{}
		}
	}
}

// heard is called for each frame with a read request.
func (q *requests) heard(f packet.Frame) {
	if len(f.Bytes) < ethernet+20 {
		return
	}
	ip := f.Bytes[ethernet:]
	header := int(ip[0]&0xf) * 4
	if header < 20 || len(ip) < header+udp {
		return
	}
	from := netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[12:])), binary.BigEndian.Uint16(ip[header:]))
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if len(q.seen) >= rrqMost {
		for key, sent := range q.seen {
			if now.Sub(sent.at) > rrqKept {
				delete(q.seen, key)
			}
		}
	}
	if q.seen == nil || len(q.seen) >= rrqMost {
		q.seen = map[netip.AddrPort]sentRequest{}
	}
	q.seen[from] = sentRequest{f.Source(), now}
}

// rrqFilter lets UDP over IPv4 pass whose first two bytes are those of a read request, to whatever port, for this machine.
func rrqFilter() []bpf.RawInstruction {
	raw, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: ethernet + 9, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 8},
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.PACKET_HOST, SkipTrue: 6},
		bpf.LoadAbsolute{Off: ethernet + 6, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x1fff, SkipTrue: 4}, // a later fragment
		bpf.LoadMemShift{Off: ethernet},
		bpf.LoadIndirect{Off: ethernet + udp, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: rrq, SkipTrue: 1},
		bpf.RetConstant{Val: rrqSize}, bpf.RetConstant{Val: 0},
	})
	if err != nil {
		panic(err) // the program is constant
	}
	return raw
}
