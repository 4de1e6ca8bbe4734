package tftpd

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// A line is a transfer's way to its client: a port of its own, or the one that all share.
type transport interface {
	// send sends b as packets of size bytes, the last of which may be shorter.
	send(b []byte, size int) error
	// ask sends one packet. It may hold it back until receive is called, which must be what comes next.
	ask(b []byte) error
	// receive returns the client's next reply. The error is os.ErrDeadlineExceeded, the cause of ctx, errGone, or what the
	// network said.
	receive(ctx context.Context, deadline time.Time) (reply, error)
	close()
}

// errPortClosed says that a port is closed, of a stranger or of the client.
var errPortClosed = errors.New("a port is closed, and it may be a stranger's")

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
