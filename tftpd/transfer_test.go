package tftpd

import (
	"context"
	"encoding/binary"
	"math"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/host/client/connlimit"
)

// A fakeTransport is a transport whose client sends the replies of a list, and then nothing more. It checks everything that is sent.
type fakeTransport struct {
	t       *testing.T
	replies []byte // silence (0), an ERROR (255), or an ACK of the block that many minus 128 behind base-1
	tr      *transfer
	sent    int // packets
	waits   int // calls of receive
}

func (s *fakeTransport) close() {}

func (s *fakeTransport) send(b []byte, size int) error {
	for len(b) > 0 {
		n := min(size, len(b))
		s.packet(b[:n])
		b = b[n:]
	}
	return nil
}

// packet wants a DATA packet to be a block of the window, with what the file has there.
func (s *fakeTransport) packet(b []byte) {
	s.sent++
	if b[1] != opDATA {
		return
	}
	number := binary.BigEndian.Uint16(b[2:])
	ahead := s.tr.negotiated.roll.after(s.tr.base-1, number)
	if ahead < 1 || ahead > int64(s.tr.negotiated.window) {
		s.t.Fatalf("sent block %d, %d blocks behind %d: the window is %d", number, ahead, s.tr.base-1, s.tr.negotiated.window)
	}
	block := s.tr.base - 1 + ahead
	at := (block - 1) * int64(s.tr.negotiated.block)
	want := make([]byte, min(int64(s.tr.negotiated.block), s.tr.readAhead.content.size-at))
	if _, err := s.tr.readAhead.content.ReadAt(want, at); err != nil && len(want) > 0 {
		s.t.Fatal(err)
	}
	if string(b[headerLen:]) != string(want) {
		s.t.Fatalf("block %d has %d bytes, and not what the file has there", block, len(b)-headerLen)
	}
}

func (s *fakeTransport) receive(_ context.Context, deadline time.Time) (reply, error) {
	if len(s.replies) == 0 || s.replies[0] == 0 {
		s.waits++
		s.replies = s.replies[min(1, len(s.replies)):]
		time.Sleep(time.Until(deadline)) // in a bubble
		return reply{}, os.ErrDeadlineExceeded
	}
	answer := s.replies[0]
	s.replies = s.replies[1:]
	s.waits++
	if answer == 255 {
		return reply{op: opERROR, block: uint16(CodeUndefined)}, nil
	}
	return reply{op: opACK, block: s.tr.negotiated.roll.number(max(0, s.tr.base-1)) + uint16(answer) - 128}, nil
}

// FuzzTransfer has a client say anything in any order. What is sent is always a block of the window; one answer brings no more than one
// window, so that the server cannot be used to flood a client; and it ends in bounded time.
func FuzzTransfer(f *testing.F) {
	f.Add(uint8(8), uint8(1), uint16(100), false, []byte{129, 129, 129})
	f.Add(uint8(8), uint8(4), uint16(100), true, []byte{128, 132, 128, 128, 130, 0, 0, 132})
	f.Add(uint8(9), uint8(64), uint16(65535), false, []byte{128, 192, 0, 255})
	f.Add(uint8(200), uint8(2), uint16(0), true, []byte{1, 254, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, block, window uint8, size uint16, one bool, replies []byte) {
		if len(replies) > 200 {
			return
		}
		synctest.Test(t, func(t *testing.T) { runTransfer(t, block, window, size, one, replies) })
	})
}

func runTransfer(t *testing.T, block, window uint8, size uint16, one bool, replies []byte) {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * 7)
	}
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	place := connlimit.New(connlimit.Config{Max: 1}).Add(netip.Addr{}, nil)
	tr := &transfer{started: time.Now(), retries: 5, stats: m, slot: place}
	tr.readAhead.content = inMemory(data)
	tr.negotiated = negotiated{block: max(minBlock, int(block)), window: max(1, min(int(window), maxSegments)), timeout: time.Second}
	if one {
		tr.negotiated.roll = 1
	}
	if len(replies)%2 == 0 {
		tr.negotiated.oack = []Option{{"blksize", "8"}}
	}
	s := &fakeTransport{t: t, tr: tr, replies: replies}
	tr.transport = s
	err = tr.run(t.Context())
	if most := (s.waits + 1) * tr.negotiated.window; s.sent > most {
		t.Errorf("%d packets were sent for %d answers or silences in windows of %d", s.sent, s.waits, tr.negotiated.window)
	}
	if took := time.Since(tr.started); took > time.Duration(len(replies)+1)*time.Minute {
		t.Errorf("it took %v", took)
	}
	if err == nil && tr.base <= tr.readAhead.last()-1 {
		t.Errorf("it says that all was sent, and block %d of %d was never acknowledged", tr.base, tr.readAhead.last())
	}
}

// TestRolloverNumbers has the numbers where they begin again, in both ways.
func TestRolloverNumbers(t *testing.T) {
	t.Parallel()
	for roll, want := range map[rollover][]uint16{0: {65534, 65535, 0, 1, 2}, 1: {65534, 65535, 1, 2, 3}} {
		for i, w := range want {
			n := int64(65534 + i)
			if got := roll.number(n); got != w {
				t.Errorf("rollover to %d: block %d has number %d, want %d", roll, n, got, w)
			}
			for ahead := range int64(maxSegments + 1) {
				if got := roll.after(n, roll.number(n+ahead)); got != ahead {
					t.Errorf("rollover to %d: %d blocks after %d are taken for %d", roll, ahead, n, got)
				}
			}
			if got := roll.after(n, roll.number(n-1)); got < math.MaxUint16/2 {
				t.Errorf("rollover to %d: the block before %d is taken for one %d later", roll, n, got)
			}
		}
	}
}

// TestWaits: 1, 2, 4, 8 s and no more, one that is early where the client was quick, and exactly what the client asks for.
func TestWaits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		tr    *transfer
		early time.Duration
		waits []time.Duration
	}{
		{"default", &transfer{negotiated: negotiated{timeout: time.Second}}, time.Second, []time.Duration{1e9, 2e9, 4e9, 8e9, 8e9}},
		{"quick client", &transfer{negotiated: negotiated{timeout: time.Second}, rtt: time.Millisecond}, 200 * time.Millisecond, []time.Duration{1e9, 2e9, 4e9, 8e9, 8e9}},
		{"far client", &transfer{negotiated: negotiated{timeout: time.Second}, rtt: 80 * time.Millisecond}, 640 * time.Millisecond, []time.Duration{1e9}},
		{"slow client", &transfer{negotiated: negotiated{timeout: time.Second}, rtt: time.Second}, time.Second, []time.Duration{1e9}},
		{"client's own", &transfer{negotiated: negotiated{timeout: 30 * time.Second, exact: true}, rtt: time.Millisecond}, 30 * time.Second, []time.Duration{3e10, 3e10}},
	} {
		if got := tt.tr.firstWait(); got != tt.early {
			t.Errorf("%s: early %v, want %v", tt.name, got, tt.early)
		}
		for try, want := range tt.waits {
			if got := tt.tr.wait(try); got != want {
				t.Errorf("%s: wait %d is %v, want %v", tt.name, try, got, want)
			}
		}
	}
}

// TestGapWait: a client that asks for the same window again and again is given twice the time with each.
func TestGapWait(t *testing.T) {
	t.Parallel()
	tr := &transfer{rtt: time.Millisecond}
	for gaps, want := range map[int]time.Duration{0: 2e6, 1: 4e6, 4: 32e6, 8: 512e6, 31: 512e6} {
		if got := tr.gapWait(gaps); got != want {
			t.Errorf("after %d gaps %v, want %v", gaps, got, want)
		}
	}
}
