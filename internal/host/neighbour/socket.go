package neighbour

import (
	"errors"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/arp"
	"github.com/bootlab/bootlab/internal/lab"
)

// An arpSocket is a packet socket for ARP on all interfaces, those that are made later too.
type arpSocket struct {
	file *os.File
	raw  syscall.RawConn
	wg   sync.WaitGroup
}

// An arpSender is who asks: this machine, on one of its interfaces.
type arpSender struct {
	mac  lab.MAC
	addr netip.Addr
}

// openARP opens a socket and calls heard for each reply to this machine until the socket is closed.
func openARP(heard func(link int, addr netip.Addr, mac lab.MAC)) (*arpSocket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) // no protocol: nothing is received yet
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &arpSocket{file: os.NewFile(uintptr(fd), "arp")}
	if err = bindARP(fd); err == nil {
		s.raw, err = s.file.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	s.wg.Go(func() { s.receive(heard) })
	return s, nil
}

func bindARP(fd int) error {
	filter := make([]unix.SockFilter, 0, 10)
	for _, i := range arp.Filter() {
		filter = append(filter, unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	return os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ARP)}))
}

func bigEndian(n uint16) uint16 { return n<<8 | n>>8 } // of all machines that Go runs this on

// receive ends when the socket is closed. Other errors, such as that of an interface that goes down, are of one packet.
func (s *arpSocket) receive(heard func(link int, addr netip.Addr, mac lab.MAC)) {
	frame := make([]byte, arp.Size)
	for {
		var n int
		var from unix.Sockaddr
		var err error
		closed := s.raw.Read(func(fd uintptr) bool {
			n, from, err = unix.Recvfrom(int(fd), frame, 0)
			return !errors.Is(err, unix.EAGAIN)
		})
		if closed != nil {
			return
		}
		at, ok := from.(*unix.SockaddrLinklayer)
		if err != nil || !ok || at.Pkttype != unix.PACKET_HOST {
			continue
		}
		if addr, mac, op, ok := arp.Parse(frame[:n]); ok && op == arp.OpReply {
			heard(at.Ifindex, addr, mac)
		}
	}
}

// send sends a request to a MAC.
func (s *arpSocket) send(a ask, from arpSender, to lab.MAC) error {
	frame := arp.Request(from.mac, from.addr, to, a.addr)
	dest := &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ARP), Ifindex: a.link, Halen: uint8(len(to))}
	copy(dest.Addr[:], to[:])
	var err error
	if closed := s.raw.Control(func(fd uintptr) { err = unix.Sendto(int(fd), frame[:], unix.MSG_DONTWAIT, dest) }); closed != nil {
		return closed
	}
	return err
}

func (s *arpSocket) close() {
	_ = s.file.Close()
	s.wg.Wait()
}
