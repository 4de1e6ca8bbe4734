package neighbour

import (
	"encoding/binary"
	"hash/maphash"
	"maps"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/lab"
)

// Anybody can send a request by TFTP with the address of another machine, and guess the port at which the transfer waits for acknowledgements.
// The source MAC of its frame shows the sender. A UDP socket does not have it, so a packet socket receives read requests too.

const (
	ethernet  = 14                     // header
	udp       = 8                      // header
	rrq       = 1                      // the operation of RFC 1350 section 5
	rrqSize   = 1 << 11                // read of a frame, whatever the length of the IP header: more than Ethernet carries
	rrqKept   = 30 * time.Second       // how long a request is kept that nobody asks for
	rrqMost   = 1 << 14                // requests that are kept; a full set is emptied
	rrqWait   = 500 * time.Millisecond // how long a frame may take longer than the datagram in it
	rrqPoll   = 10 * time.Millisecond  // how often to look for it
	rrqBefore = 3 * time.Second        // how long before the answer to it began it may have been received
	ownWait   = 50 * time.Millisecond  // how long the machine's own frame may take longer than another's with the same request
)

// A sentRequest is a read request that a machine sent.
type sentRequest struct {
	mac lab.MAC
	at  time.Time
}

// A copyOf is a read request as one machine sent it from an address and port. Without a MAC it is as any machine did.
type copyOf struct {
	from netip.AddrPort
	sum  uint64 // of what was sent
	mac  lab.MAC
}

// requests are the last read requests by the address and port that they came from, and when each of them was sent last.
type requests struct {
	mu   sync.Mutex
	seen map[netip.AddrPort]sentRequest
	sent map[copyOf]time.Time
}

// seed is of the sums of requests: nobody else can make two with the same sum.
var seed = maphash.MakeSeed()

// Requester is who sent this TFTP read request from an address and port, after the time since. Own is the machine that the kernel sends to
// at that address, even if others have sent the same; Foreign is another machine alone, which gets no answer. None and Elsewhere are as of
// Sender, and None is also that the kernel sends to nobody there.
func (r *Resolver) Requester(from netip.AddrPort, request string, since time.Time) (user User, err error) {
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	if r.tftp == nil || !from.Addr().Is4() {
		return Elsewhere, nil
	}
	var own lab.MAC
	err = r.onSegment(from.Addr(), func(k kernel, way route) error {
		_, isEthernet, err := k.hardware(way.link)
		if err == nil && isEthernet {
			user, own = None, k.neighbour(way.link, from.Addr())
		}
		return err
	})
	if own.IsZero() || err != nil {
		return user, err
	}
	return r.requests.sender(copyOf{from, maphash.String(seed, request), own}, since), nil
}

// sender returns whether the machine with that MAC sent a request, after the time since, or another one did. Either frame may be read later
// than the datagram in it.
func (q *requests) sender(own copyOf, since time.Time) User {
	anybody := own
	anybody.mac = lab.MAC{}
	for start := time.Now(); ; time.Sleep(rrqPoll) {
		q.mu.Lock()
		byOwn, byAny := q.sent[own].After(since), q.sent[anybody].After(since)
		q.mu.Unlock()
		switch waited := time.Since(start); {
		case byOwn:
			return Own
		case byAny && waited > ownWait:
			return Foreign
		case waited > rrqWait:
			return None
		}
	}
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

// received is called for each frame with a read request.
func (q *requests) received(f packet.Frame) {
	if len(f.Bytes) < ethernet+20 {
		return
	}
	ip := f.Bytes[ethernet:]
	header := int(ip[0]&0xf) * 4
	if header < 20 || len(ip) < header+udp {
		return
	}
	length := int(binary.BigEndian.Uint16(ip[header+4:])) // of the datagram; a short frame is padded
	if length < udp || len(ip) < header+length {
		length = len(ip) - header
	}
	sum := maphash.Bytes(seed, ip[header+udp:header+length])
	from := netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[12:])), binary.BigEndian.Uint16(ip[header:]))
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.makeRoom(now)
	q.seen[from] = sentRequest{f.Source(), now}
	q.sent[copyOf{from, sum, f.Source()}], q.sent[copyOf{from, sum, lab.MAC{}}] = now, now
}

// makeRoom forgets old requests, or all of them, where there are too many.
func (q *requests) makeRoom(now time.Time) {
	if len(q.seen) >= rrqMost || len(q.sent) >= 2*rrqMost {
		maps.DeleteFunc(q.seen, func(_ netip.AddrPort, sent sentRequest) bool { return now.Sub(sent.at) > rrqKept })
		maps.DeleteFunc(q.sent, func(_ copyOf, at time.Time) bool { return now.Sub(at) > rrqKept })
	}
	if q.seen == nil || len(q.seen) >= rrqMost {
		q.seen = map[netip.AddrPort]sentRequest{}
	}
	if q.sent == nil || len(q.sent) >= 2*rrqMost {
		q.sent = map[copyOf]time.Time{}
	}
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
