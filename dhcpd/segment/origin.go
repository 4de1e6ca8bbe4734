package segment

import (
	"errors"
	"net/netip"
	"slices"
	"sync"

	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/lab"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Anybody can send a DHCPRELEASE or DHCPDECLINE in the name of another machine; the source MAC of its frame shows the sender. A UDP socket
// does not have it, so a packet socket receives the same messages. It is one for all protocols (ETH_P_ALL): the kernel gives those a frame
// before it gives it to IP, so that a message which Receive has returned is there already.

const (
	// originSpace is how much of a frame is read: up to the client's MAC, whatever the length of the IP header.
	originSpace = ethernetHeader + 60 + udpHeader + 34
	// maxOrigins is how many frames are kept until Receive returns their message. Those that the kernel drops later, such as by a firewall,
	// stay until then.
	maxOrigins = 256
	// optionsBeforeType is how many options a message may have in front of its type. All known clients send the type first.
	optionsBeforeType = 6
)

// An Origin identifies a DHCPRELEASE or DHCPDECLINE, and has the MAC that sent its frame.
type Origin struct {
	XID    [4]byte
	Client lab.MAC    // chaddr
	IP     netip.Addr // source of the packet
	Sender lab.MAC    // source of the frame
}

// origins are those of messages that Receive has not returned yet, or whose origin was not asked for.
type origins struct {
	mu   sync.Mutex
	seen []Origin
	buf  [originSpace]byte
}

// Sender returns the MAC that sent the frame of a DHCPRELEASE or DHCPDECLINE, which Receive has returned, to port 67. ok is false where its
// frame was not received: the packet socket was full in a flood, or the type of the message comes after other options.
func (s *Socket) Sender(xid [4]byte, client lab.MAC, from netip.Addr) (sender lab.MAC, ok bool) {
	if s.releases == nil {
		return sender, false
	}
	o := &s.origins
	o.mu.Lock()
	defer o.mu.Unlock()
	for range maxOrigins {
		n, more := s.releases.ReadNow(o.buf[:])
		if !more {
			break
		}
		if seen, ok := parseOrigin(o.buf[:n]); ok {
			o.seen = append(o.seen, seen)
		}
	}
	o.seen = o.seen[max(0, len(o.seen)-maxOrigins):]
	i := slices.IndexFunc(o.seen, func(a Origin) bool { return a.XID == xid && a.Client == client && a.IP == from })
	if i < 0 {
		return sender, false
	}
	sender = o.seen[i].Sender
	o.seen = slices.Delete(o.seen, i, i+1)
	return sender, true
}

// ignoreOutgoing keeps frames that this machine sends from a packet socket for all protocols, before they are copied for it. Kernels before
// 4.20 cannot: the filter drops them there.
func ignoreOutgoing(t *packet.Socket) error {
	return control(t.Conn(), func(fd int) error {
		err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
		if errors.Is(err, unix.ENOPROTOOPT) {
			return nil
		}
		return err
	})
}

// parseOrigin reads a frame that passed the filter.
func parseOrigin(frame []byte) (o Origin, ok bool) {
	if len(frame) < ethernetHeader+ipv4Header {
		return o, false
	}
	ip := frame[ethernetHeader:]
	header := int(ip[0]&0xf) * 4
	if header < ipv4Header || len(ip) < header+udpHeader+34 {
		return o, false
	}
	m := ip[header+udpHeader:]
	return Origin{
		XID: [4]byte(m[4:]), Client: lab.MAC(m[28:34]), IP: netip.AddrFrom4([4]byte(ip[12:])), Sender: lab.MAC(frame[6:12]),
	}, true
}

// releaseFilter passes DHCPRELEASE and DHCPDECLINE to this machine's port 67, received and not sent.
func releaseFilter() []bpf.RawInstruction {
	const (
		ip      = ethernetHeader
		message = ip + udpHeader
		options = message + bootpFixed + 4
		perStep = 6
		decline = 4
		release = 7
	)
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IP, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.LoadAbsolute{Off: ip + 9, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_UDP, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.LoadMemShift{Off: ip},
		bpf.LoadIndirect{Off: ip + 2, Size: 2}, // destination port
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: PortServer, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.LoadAbsolute{Off: ip + 6, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: 0x1fff, SkipTrue: 1}, // the first fragment, or all
		bpf.RetConstant{Val: 0},
		bpf.LoadIndirect{Off: message, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 1, SkipTrue: 1}, // a request
		bpf.RetConstant{Val: 0},
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: unix.PACKET_OTHERHOST, SkipTrue: 1}, // to this machine, or to all
		bpf.RetConstant{Val: 0},
	}
	for i := range optionsBeforeType { // X is how far the next option is from the first, and the length of the IP header
		program = append(program,
			bpf.LoadIndirect{Off: options, Size: 1},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: 53, SkipTrue: uint8(perStep*(optionsBeforeType-i) - 1)},
			bpf.LoadIndirect{Off: options + 1, Size: 1},
			bpf.ALUOpX{Op: bpf.ALUOpAdd},
			bpf.ALUOpConstant{Op: bpf.ALUOpAdd, Val: 2},
			bpf.TAX{},
		)
	}
	return assemble(append(program,
		bpf.RetConstant{Val: 0}, // its type comes later
		bpf.LoadIndirect{Off: options + 2, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: decline, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: release, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: originSpace},
	))
}
