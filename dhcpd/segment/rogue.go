package segment

import (
	"context"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/internal/lab"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A Kind is the type of a DHCP server's message: the value of option 53 (RFC 2132 section 9.6).
type Kind uint8

// The messages of a server.
const (
	Offer Kind = 2
	Ack   Kind = 5
	Nak   Kind = 6
)

// String returns the name as RFC 2131 has it, without DHCP in front.
func (k Kind) String() string {
	switch k {
	case Offer:
		return "OFFER"
	case Ack:
		return "ACK"
	case Nak:
		return "NAK"
	}
	return "BOOTP"
}

// A Rogue is an answer of a DHCP server that is not this one.
type Rogue struct {
	Interface  string
	ServerID   netip.Addr // option 54; invalid where there is none
	SourceIP   netip.Addr // of the packet: the server, or a relay
	SourceMAC  lab.MAC    // of the frame; the same
	Kind       Kind       // of the answer
	ClientMAC  lab.MAC    // of the machine that was answered
	YIAddr     netip.Addr // the address that it gives; invalid: none
	Suppressed int        // answers of this server since the last report
}

const (
	maxServers  = 64 // of one segment, at a time
	reportEvery = 10 * time.Second
	// replySpace is where the options of a reply are read up to: option 54 stands near the front.
	replySpace  = 1024
	bootpFixed  = 236
	magicCookie = 0x63825363
)

// Watch calls report for each answer to a client that another DHCP server sends on the socket's segment, until ctx ends or
// the socket is closed. ours reports which server identifiers are this server's: a relay may bring our own answers to
// the segment. A server is reported at once, and then every ten seconds while it answers; of more than 64 at a time the
// rest is not reported.
//
// Broadcast answers are always seen. An answer in a frame for one machine alone, as Kea sends even its broadcasts, is seen
// only where the interface is promiscuous, as during Discover; that a client chose another server, its REQUEST tells. The kernel lets only DHCP answers through, however much else there is on the interface.
func Watch(ctx context.Context, s *Socket, ours func(netip.Addr) bool, report func(Rogue)) {
	if s.replies == nil {
		return
	}
	defer interruptReads(ctx, s.replies.conn)()
	w := reportLimiter{seen: map[rogueKey]*server{}}
	buf := make([]byte, replySpace)
	hear := func(n int) {
		r, ok := parseReply(buf[:n])
		if !ok || r.SourceMAC == s.MAC() || r.ServerID.IsValid() && ours(r.ServerID) {
			return
		}
		r.Interface = s.iface
		if w.due(&r, time.Now()) {
			report(r)
		}
	}
	readFrames(ctx, s.replies, buf, maxReplies, hear, func() {})
}

type rogueKey struct {
	id  netip.Addr
	mac lab.MAC
}

type server struct {
	last       time.Time
	suppressed int
}

// A reportLimiter limits reports.
type reportLimiter struct{ seen map[rogueKey]*server }

func (w *reportLimiter) due(r *Rogue, now time.Time) bool {
	k := rogueKey{r.ServerID, r.SourceMAC}
	s := w.seen[k]
	switch {
	case s == nil && len(w.seen) >= maxServers && !w.prune(now):
		return false
	case s == nil:
		w.seen[k] = &server{last: now}
		return true
	case now.Sub(s.last) < reportEvery:
		s.suppressed++
		return false
	}
	r.Suppressed, s.suppressed, s.last = s.suppressed, 0, now
	return true
}

// prune forgets servers that have been silent, and reports whether there were any.
func (w *reportLimiter) prune(now time.Time) bool {
	for k, s := range w.seen {
		if now.Sub(s.last) >= reportEvery {
			delete(w.seen, k)
		}
	}
	return len(w.seen) < maxServers
}

// replyFilter lets the first fragments of BOOTP replies to port 68 pass. A broadcast that counts as another host's is of
// a VLAN that is not this interface's.
func replyFilter() []bpf.RawInstruction {
	const ip = ethernetHeader
	return assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: ip + 9, Size: 1}, // first, since it sends nearly all away
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 14},
		bpf.LoadMemShift{Off: ip},
		bpf.LoadIndirect{Off: ip + 2, Size: 2}, // destination port
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: PortClient, SkipTrue: 11},
		bpf.LoadAbsolute{Off: ip + 6, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x1fff, SkipTrue: 9},
		bpf.LoadIndirect{Off: ip + udpHeader, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 2, SkipTrue: 7},
		bpf.LoadIndirect{Off: ip + udpHeader + bootpFixed, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: magicCookie, SkipTrue: 5},
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: packetOtherHost, SkipTrue: 2},
		bpf.LoadAbsolute{Off: 0, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 1, SkipTrue: 1},
		bpf.RetConstant{Val: replySpace},
		bpf.RetConstant{Val: 0},
	})
}

// parseReply reads a frame that passed the filter, and trusts it no further than that.
func parseReply(frame []byte) (r Rogue, ok bool) {
	if len(frame) < ethernetHeader+ipv4Header || frame[ethernetHeader]>>4 != 4 {
		return r, false
	}
	ip := frame[ethernetHeader:]
	header := int(ip[0]&0xf) * 4
	if header < ipv4Header || ip[9] != unix.IPPROTO_UDP || len(ip) < header+udpHeader+bootpFixed+4 {
		return r, false
	}
	r.SourceMAC, r.SourceIP = lab.MAC(frame[6:12]), netip.AddrFrom4([4]byte(ip[12:]))
	m := ip[header+udpHeader:]
	if m[0] != 2 || m[1] != 1 || m[2] != 6 || binary.BigEndian.Uint32(m[bootpFixed:]) != magicCookie {
		return r, false
	}
	r.YIAddr, r.ClientMAC = addrOrNone(m[16:]), lab.MAC(m[28:34])
	r.scan(m[bootpFixed+4:])
	return r, true
}

// scan looks for options 53 and 54. What is cut off is not there.
func (r *Rogue) scan(opts []byte) {
	for len(opts) > 1 && opts[0] != 255 {
		if opts[0] == 0 {
			opts = opts[1:]
			continue
		}
		n := int(opts[1])
		if len(opts) < 2+n {
			return
		}
		switch v := opts[2 : 2+n]; {
		case opts[0] == 53 && n == 1:
			r.Kind = Kind(v[0])
		case opts[0] == 54 && n == 4:
			r.ServerID = addrOrNone(v)
		}
		opts = opts[2+n:]
	}
}

func addrOrNone(b []byte) netip.Addr {
	a := netip.AddrFrom4([4]byte(b))
	if a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}
