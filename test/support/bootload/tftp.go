package bootload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

// As OVMF reads by TFTP.
const (
	tftpBlock  = 1468
	tftpWindow = 4
	tftpWait   = 4 * time.Second
	tftpTries  = 6
)

// Opcodes (RFC 1350, 2347).
const (
	opRRQ, opData, opAck, opError, opOACK = 1, 3, 4, 5, 6
)

// program reads the network boot program: first its size alone, which OVMF then breaks off with error 8, then all of it.
func (w *walk) program(ctx context.Context) error {
	size, err := w.tftp(ctx, true)
	if err != nil {
		return fmt.Errorf("size of %s: %w", w.lease.file, err)
	}
	if size != w.sizes.Program {
		return fmt.Errorf("%s has %d bytes, want %d", w.lease.file, size, w.sizes.Program)
	}
	got, err := w.tftp(ctx, false)
	w.bytes += got
	if err == nil && got != size {
		err = fmt.Errorf("%d bytes, want %d", got, size)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", w.lease.file, err)
	}
	return nil
}

// A transfer is one read of one file, from a port of its own.
type transfer struct {
	walk   *walk
	conn   *net.UDPConn
	to     netip.AddrPort // the request goes to port 69, the rest to where the first answer came from
	last   []byte         // what is sent again
	block  int            // negotiated
	window int
	size   int64 // as announced
	next   uint16
	run    int // blocks since the last ACK
	got    int64
}

func (w *walk) tftp(ctx context.Context, sizeOnly bool) (int64, error) {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(w.addr, 0)))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	t := &transfer{walk: w, conn: conn, to: netip.AddrPortFrom(w.lease.next, 69), block: 512, window: 1, next: 1}
	t.send([]byte(fmt.Sprintf("\x00\x01%s\x00octet\x00tsize\x000\x00blksize\x00%d\x00windowsize\x00%d\x00", w.lease.file, tftpBlock, tftpWindow)))
	buf := make([]byte, 4+tftpBlock)
	for {
		n, err := t.receive(ctx, buf)
		if err != nil {
			return t.got, err
		}
		more, err := t.take(buf[:n])
		if err != nil || !more {
			return t.got, err
		}
		if sizeOnly && t.size > 0 {
			t.send([]byte("\x00\x05\x00\x08User aborted the transfer\x00"))
			return t.size, nil
		}
		if t.size > 0 && t.next == 1 && t.run == 0 && t.got == 0 {
			t.ack(0)
		}
	}
}

func (t *transfer) send(p []byte) {
	t.last = p
	_, _ = t.conn.WriteToUDPAddrPort(p, t.to) // what is lost is sent again
	_ = t.conn.SetReadDeadline(time.Now().Add(tftpWait))
}

func (t *transfer) ack(block uint16) {
	t.run = 0
	t.send(binary.BigEndian.AppendUint16([]byte{0, opAck}, block))
}

// receive waits for a packet, and sends the last one again where none comes.
func (t *transfer) receive(ctx context.Context, buf []byte) (int, error) {
	for range tftpTries {
		n, from, err := t.conn.ReadFromUDPAddrPort(buf)
		if err == nil {
			t.to = from
			return n, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, err
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		t.walk.again++
		t.send(t.last)
	}
	return 0, fmt.Errorf("silence after block %d", t.next-1)
}

// take looks at a packet and reports whether there is more to come.
func (t *transfer) take(p []byte) (more bool, err error) {
	if len(p) < 4 {
		return true, nil
	}
	switch binary.BigEndian.Uint16(p) {
	case opOACK:
		return true, t.options(p[2:])
	case opError:
		return false, fmt.Errorf("error %d: %s", binary.BigEndian.Uint16(p[2:]), strings.TrimRight(string(p[4:]), "\x00"))
	case opData:
		return t.data(binary.BigEndian.Uint16(p[2:]), len(p)-4), nil
	}
	return true, nil
}

func (t *transfer) options(p []byte) error {
	fields := strings.Split(strings.TrimRight(string(p), "\x00"), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		n, err := strconv.ParseInt(fields[i+1], 10, 64)
		if err != nil {
			return fmt.Errorf("option %s is %q", fields[i], fields[i+1])
		}
		switch strings.ToLower(fields[i]) {
		case "tsize":
			t.size = n
		case "blksize":
			t.block = int(n)
		case "windowsize":
			t.window = int(n)
		}
	}
	return nil
}

// data takes a block. One that is out of order means that some were lost: the last good one is acknowledged, once (RFC 7440).
func (t *transfer) data(block uint16, n int) (more bool) {
	if block != t.next {
		if block > t.next {
			t.ack(t.next - 1)
		}
		return true
	}
	t.next++
	t.run++
	t.got += int64(n)
	if n < t.block {
		t.ack(block)
		return false
	}
	if t.run >= t.window {
		t.ack(block)
	}
	return true
}
