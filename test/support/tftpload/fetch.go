package tftpload

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"
)

// A fetch is one client: what it has of the file, and what it waits for. It does no I/O.
type fetch struct {
	cfg           *Config
	block, window int    // as agreed
	next          int64  // the block that it waits for; they count from 1
	inWindow      int    // blocks since the last ACK
	gap           bool   // a block is missing, and that was said
	lose          int64  // a block to be lost; 0: none, or no more
	last          []byte // the packet to send again when there is silence
	ack           []byte
	done          bool

	repeated int // blocks that came again
}

func newFetch(cfg *Config) *fetch {
	return &fetch{cfg: cfg, block: 512, window: 1, next: 1, lose: cfg.Lose, last: cfg.request(), ack: make([]byte, 0, headerLen)}
}

// take reads a packet and returns what to answer, nothing where there is nothing to say. The error ends the transfer.
func (f *fetch) take(b []byte) ([]byte, error) {
	if len(b) < 2 {
		return nil, fmt.Errorf("packet of %d bytes", len(b))
	}
	switch op := binary.BigEndian.Uint16(b); {
	case op == opOACK:
		return f.agree(b[2:])
	case op == opData && len(b) >= headerLen:
		return f.data(binary.BigEndian.Uint16(b[2:]), b[headerLen:])
	case op == opError && len(b) >= headerLen:
		return nil, fmt.Errorf("error %d %q", binary.BigEndian.Uint16(b[2:]), bytes.TrimRight(b[headerLen:], "\x00"))
	default:
		return nil, fmt.Errorf("opcode %d in %d bytes", op, len(b))
	}
}

func (f *fetch) agree(b []byte) ([]byte, error) {
	if f.next > 1 {
		return nil, nil // it crossed our ACK
	}
	for name, n := range options(b) {
		switch {
		case name == "blksize" && n >= 8 && n <= f.cfg.Block:
			f.block = n
		case name == "windowsize" && n >= 1 && n <= f.cfg.Window:
			f.window = n
		default:
			return nil, fmt.Errorf("option %s=%d was not asked for", name, n)
		}
	}
	return f.acknowledge(0), nil
}

func (f *fetch) acknowledge(block int64) []byte {
	f.inWindow = 0
	f.ack = putACK(f.ack, block)
	f.last = f.ack
	return f.ack
}

// data takes a block. Of those that came before only the last is answered, of those that come too early only the first.
func (f *fetch) data(number uint16, b []byte) ([]byte, error) {
	switch ahead := int16(number - uint16(f.next)); {
	case ahead < 0:
		f.repeated++
		if ahead == -1 && f.next > 1 {
			return f.acknowledge(f.next - 1), nil
		}
		return nil, nil
	case ahead > 0 && f.gap:
		return nil, nil
	case ahead > 0:
		f.gap = true
		return f.acknowledge(f.next - 1), nil
	case f.next == f.lose:
		f.lose = 0
		return nil, nil
	}
	return f.expected(b)
}

func (f *fetch) expected(b []byte) ([]byte, error) {
	at := (f.next - 1) * int64(f.block)
	want := f.cfg.Want[min(at, int64(len(f.cfg.Want))):]
	if want = want[:min(len(want), f.block)]; !bytes.Equal(b, want) {
		return nil, fmt.Errorf("block %d has %d bytes and not what the file has there", f.next, len(b))
	}
	f.gap = false
	f.inWindow++
	f.next++
	if f.done = len(b) < f.block; f.done || f.inWindow == f.window {
		return f.acknowledge(f.next - 1), nil
	}
	return nil, nil
}

// A client is a fetch with its socket.
type client struct {
	*fetch
	socket
	sends    int       // of the packet that waits for an answer
	heard    time.Time // or sent: silence begins here
	progress time.Time // a block came that was waited for
}
