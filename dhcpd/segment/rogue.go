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

// A ServerReply is a reply of a DHCP server other than this one.
type ServerReply struct {
	Interface  string
	ServerID   netip.Addr // option 54; invalid where there is none
	SourceIP   netip.Addr // of the packet: the server, or a relay
	SourceMAC  lab.MAC    // of the frame; the same
	Kind       Kind       // of the reply
	ClientMAC  lab.MAC    // of the client
	YIAddr     netip.Addr // the address given; invalid: none
	Suppressed int        // replies of this server since the last report
}

const (
	maxServers  = 64 // of one segment, at a time
	reportEvery = 10 * time.Second
	// replySpace is how much of a frame is read: option 54 is near its beginning.
	replySpace  = 1024
	bootpFixed  = 236
	magicCookie = 0x63825363
)

// Watch calls report for replies of other DHCP servers to clients on the socket's segment, until ctx ends or the socket is
// closed. ours reports whether a server identifier is this server's: a relay may send our own replies to the segment. A
// server is reported at once, and then every ten seconds while it replies; at most 64 servers at a time are reported.
//
// Broadcast replies are always received. A reply in a frame for one machine alone, as Kea sends even its broadcasts, is
// received only where the interface is promiscuous; but a DHCPREQUEST says when a client chose another server. The kernel
// passes only DHCP replies, whatever the other traffic on the interface.
func Watch(ctx context.Context, s *Socket, ours func(netip.Addr) bool, report func(ServerReply)) {
	if s.replies == nil {
		return
	}
	defer interruptReads(ctx, s.replies)()
	w := reportLimiter{seen: map[serverKey]*server{}}
	buf := make([]byte, replySpace)
	received := func(n int) {
		r, ok := parseReply(buf[:n])
		if !ok || r.SourceMAC == s.MAC() || r.ServerID.IsValid() && ours(r.ServerID) {
			return
		}
		r.Interface = s.iface
		if w.due(&r, time.Now()) {
			report(r)
		}
	}
	readFrames(ctx, s.replies, buf, maxReplies, received, func() {})
}

type serverKey struct {
	id  netip.Addr
	mac lab.MAC
}

type server struct {
	last       time.Time
	suppressed int
}

// A reportLimiter limits the reports of each server.
type reportLimiter struct{ seen map[serverKey]*server }

func (w *reportLimiter) due(r *ServerReply, now time.Time) bool {
	k := serverKey{r.ServerID, r.SourceMAC}
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

// prune deletes servers without recent replies, and reports whether there is room.
func (w *reportLimiter) prune(now time.Time) bool {
	for k, s := range w.seen {
		if now.Sub(s.last) >= reportEvery {
			delete(w.seen, k)
		}
	}
	return len(w.seen) < maxServers
}

// replyFilter passes the first fragments of BOOTP replies to port 68. A broadcast of packet type OTHERHOST is of a VLAN that
// is not this interface's.
func replyFilter() []bpf.RawInstruction {
	const ip = ethernetHeader
	return assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: ip + 9, Size: 1}, // first, since it drops nearly all
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
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.PACKET_OTHERHOST, SkipTrue: 2},
		bpf.LoadAbsolute{Off: 0, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 1, SkipTrue: 1},
		bpf.RetConstant{Val: replySpace},
		bpf.RetConstant{Val: 0},
	})
}

// parseReply reads a frame that passed the filter. It checks all else.
func parseReply(frame []byte) (r ServerReply, ok bool) {
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

// scan reads options 53 and 54, up to the end of the frame.
func (r *ServerReply) scan(opts []byte) {
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
