package tftpd

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A line is a transfer's way to its client: a port of its own, or the one that all share.
type line interface {
	// send sends b as packets of size bytes, the last of which may be shorter.
	send(b []byte, size int) error
	// ask sends one packet. It may hold it back until receive is called, which must be what comes next.
	ask(b []byte) error
	// receive returns the client's next reply. The error is os.ErrDeadlineExceeded, the cause of ctx, errGone, or what the
	// network said.
	receive(ctx context.Context, deadline time.Time) (reply, error)
	close()
}

// errDoubtful says that a port is closed, of a stranger or of the client.
var errDoubtful = errors.New("a port is closed, and it may be a stranger's")

// maxSegments and maxBatch bound one UDP_SEGMENT send: the kernel takes 64 segments (UDP_MAX_SEGMENTS of older kernels)
// and no more bytes than fit a UDP datagram.
const (
	maxSegments = 64
	maxBatch    = 65000
)

// A writer makes one system call. segment is where the kernel is to cut b apart; 0: b is one packet.
type writer interface {
	write(b []byte, segment int) error
}

// A batcher sends runs of equally long packets, in one system call where the kernel can cut them apart (UDP_SEGMENT).
type batcher struct {
	to    writer
	whole bool // the kernel or the interface cannot: one call for each packet
}

// send sends b as packets of size bytes, the last of which may be shorter.
func (s *batcher) send(b []byte, size int) error {
	if !s.whole && len(b) > size {
		err := s.to.write(b, size)
		if err == nil || !cannotSegment(err) {
			return err
		}
		s.whole = true
	}
	for {
		n := min(size, len(b))
		if err := s.to.write(b[:n], 0); err != nil {
			return err
		}
		if b = b[n:]; len(b) == 0 {
			return nil
		}
	}
}

// cannotSegment reports whether err says that segments are not to be had: an old kernel, an interface without checksum
// offload, packets larger than the MTU.
func cannotSegment(err error) bool {
	for _, no := range []error{unix.EIO, unix.EINVAL, unix.EMSGSIZE, unix.ENOPROTOOPT, unix.EOPNOTSUPP} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// appendMessage appends room for a control message with n bytes of data, and returns that too.
func appendMessage(b []byte, level, kind int32, n int) (all, data []byte) {
	at := len(b)
	b = append(b, make([]byte, unix.CmsgSpace(n))...)
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[at]))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(n))
	return b, b[at+unix.CmsgLen(0) : at+unix.CmsgLen(n)]
}

// appendSegment appends the control message that tells the kernel where to cut.
func appendSegment(b []byte, size int) []byte {
	b, data := appendMessage(b, unix.SOL_UDP, unix.UDP_SEGMENT, 2)
	binary.NativeEndian.PutUint16(data, uint16(size))
	return b
}

// appendSource appends the control message that chooses the address that a packet leaves from.
func appendSource(b []byte, from netip.Addr) []byte {
	switch {
	case from.Is4():
		all, data := appendMessage(b, unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
		a := from.As4()
		copy(data[4:8], a[:]) // ipi_spec_dst
		return all
	case from.Is6():
		all, data := appendMessage(b, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
		a := from.As16()
		copy(data[:16], a[:])
		return all
	}
	return b
}
