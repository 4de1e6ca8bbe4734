package tftpd

import (
	"errors"
	"fmt"
	"io"

	"github.com/bootlab/bootlab/internal/observe/event"
)

// readAheadBytes is how many bytes of packets a transfer reads at once when its client has answered.
const readAheadBytes = 32 << 10

// A readAhead turns content into DATA packets, and holds those that are sent next.
type readAhead struct {
	content content
	block   int // bytes of the file in a packet
	window  int
	roll    rollover

	buf   []byte
	first int64 // the first block in buf; blocks count from 1
	n     int   // blocks in buf
}

// last returns the number of the last block, the first that is not full (RFC 1350 section 6).
func (r *readAhead) last() int64 { return r.content.size/int64(r.block) + 1 }

// packets returns the packets from block first on, at least one and at most n, and their number. They hold until the next
// call.
func (r *readAhead) packets(first int64, n int) (packets []byte, count int, err error) {
	if first < r.first || first >= r.first+int64(r.n) {
		if err := r.fill(first); err != nil {
			return nil, 0, err
		}
	}
	size := headerLen + r.block
	skip := int(first - r.first)
	n = min(n, r.n-skip)
	return r.buf[skip*size : min((skip+n)*size, len(r.buf))], n, nil
}

// capacity returns how many blocks to read from block first on. Before the client has acknowledged a block that is one window,
// since the request may be forged; of content in memory too, since reading it ahead would gain nothing.
func (r *readAhead) capacity(first int64) int64 {
	size := headerLen + r.block
	n := min(r.window, max(1, maxSegmentBytes/size), maxSegments)
	if first > 1 && !r.content.inMemory {
		n *= max(1, readAheadBytes/(n*size)) // whole windows
	}
	return int64(n)
}

// fill makes packets from block first on. It reads their data in one call, to the end of the space that they will need, and
// moves each block forward to behind its header.
func (r *readAhead) fill(first int64) error {
	n := int(min(r.capacity(first), r.last()-first+1))
	size := headerLen + r.block
	at := (first - 1) * int64(r.block)
	want := int(min(int64(n*r.block), r.content.size-at))
	r.n = 0
	if cap(r.buf) < n*size {
		r.buf = make([]byte, n*size)
	}
	r.buf = r.buf[:n*headerLen+want]
	data := r.buf[n*headerLen:]
	if got, err := r.content.ReadAt(data, at); got < want {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return &refusal{code: CodeUndefined, reason: event.Unreadable, message: "cannot read file", err: fmt.Errorf("read block %d: %w", first, err)}
	}
	for i := range n {
		packet := r.buf[i*size:]
		copy(packet[headerLen:], data[min(i*r.block, want):min((i+1)*r.block, want)])
		putHeader(packet, r.roll.number(first+int64(i)))
	}
	r.first, r.n = first, n
	return nil
}
