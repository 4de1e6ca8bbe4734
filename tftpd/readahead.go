package tftpd

import (
	"errors"
	"fmt"
	"io"
)

// How many bytes of packets a transfer keeps ready once its client has answered: in lock-step, so that not every block has to be
// read by itself; in windows, some of them.
const (
	readAheadLockstep = 16 << 10
	readAheadWindows  = 64 << 10
)

// A readAhead keeps a run of packets ready, read ahead of what is sent.
type readAhead struct {
	content content
	block   int // bytes of the file in a packet
	window  int
	roll    rollover

	buf   []byte
	first int64 // the block in front; they count from 1
	n     int   // blocks
}

// last returns the number of the last block, the first that is not full (RFC 1350 section 6).
func (s *readAhead) last() int64 { return s.content.size/int64(s.block) + 1 }

// take returns packets from block first on, at least one and at most n, and how many they are. They are good until the next take.
func (s *readAhead) take(first int64, n int) (packets []byte, count int, err error) {
	if first < s.first || first >= s.first+int64(s.n) {
		if err := s.fill(first); err != nil {
			return nil, 0, err
		}
	}
	size := headerLen + s.block
	skip := int(first - s.first)
	n = min(n, s.n-skip)
	return s.buf[skip*size : min((skip+n)*size, len(s.buf))], n, nil
}

// room returns how many blocks fit. Before the client has acknowledged anything that is one window: there may be no client.
func (s *readAhead) room(first int64) int64 {
	size := headerLen + s.block
	most := max(1, maxBatch/size)
	n := min(s.window, most, maxSegments)
	if first > 1 && !s.content.inMemory {
		want := readAheadWindows
		if s.window == 1 {
			want = readAheadLockstep
		}
		n *= max(1, want/(n*size)) // whole windows
	}
	return int64(n)
}

// fill makes packets from block first on. It reads their bytes in one call, to the end of the space that they will need, and
// moves each forward to behind its header.
func (s *readAhead) fill(first int64) error {
	n := int(min(s.room(first), s.last()-first+1))
	size := headerLen + s.block
	at := (first - 1) * int64(s.block)
	want := int(min(int64(n*s.block), s.content.size-at))
	s.n = 0
	if cap(s.buf) < n*size {
		s.buf = make([]byte, n*size)
	}
	s.buf = s.buf[:n*headerLen+want]
	raw := s.buf[n*headerLen:]
	if got, err := s.content.ReadAt(raw, at); got < want {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return &refusal{code: CodeUndefined, message: "cannot read file", err: fmt.Errorf("read block %d: %w", first, err)}
	}
	for i := range n {
		packet := s.buf[i*size:]
		copy(packet[headerLen:], raw[min(i*s.block, want):min((i+1)*s.block, want)])
		putHeader(packet, s.roll.number(first+int64(i)))
	}
	s.first, s.n = first, n
	return nil
}

// A rollover says which number comes after 65535: 0, as nearly everybody expects, or 1, which the few that do ask for with an
// option of tftp-hpa.
type rollover int64

// number returns the number that block n goes under.
func (r rollover) number(n int64) uint16 {
	if r == 0 || n == 0 {
		return uint16(n)
	}
	return uint16((n-1)%65535 + 1)
}

// after returns how many blocks behind block n the one is that goes under a number. The window is far smaller than the numbers are.
func (r rollover) after(n int64, number uint16) int64 {
	if r == 0 {
		return int64(number - uint16(n))
	}
	d := (int64(number) - int64(r.number(n))) % 65535
	if d < 0 {
		d += 65535
	}
	return d
}
