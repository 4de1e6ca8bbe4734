package tftpd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// maxStrangers is how many packets of strangers one transfer answers, maxPassing how many network errors it survives.
const (
	maxStrangers = 16
	maxPassing   = 256
)

// A transfer sends one file to one client.
type transfer struct {
	key     string // the packet that asked for it, to know a duplicate
	client  netip.AddrPort
	started time.Time
	cancel  context.CancelCauseFunc
	touched atomic.Bool // the client has answered: the same request again is a new one

	conn    *net.UDPConn
	out     batcher
	content content
	terms   terms
	retries int
	stats   *metrics

	buf       []byte // one batch of packets
	base      int64  // the first block that is not acknowledged; blocks count from 1
	sent      int64  // how many blocks from base on are on their way
	highest   int64  // the highest block that was ever sent
	rtt       time.Duration
	strangers int
	passed    int   // network errors that did not end the transfer
	trouble   error // the last of them
}

// Why a transfer ended early.
var (
	errProbe    = errors.New("the client wanted to know the size only")
	errSilent   = errors.New("the client stopped answering")
	errGone     = errors.New("the client closed its port")
	errReplaced = errors.New("the client started over")
	errCrowded  = errors.New("the client never answered, and others want its place")
	errStopping = errors.New("the server is stopping")
)

// A clientError is an ERROR packet from the client.
type clientError struct {
	code ErrorCode
	text string
}

func (e *clientError) Error() string {
	return fmt.Sprintf("the client gave up: error %d %q", e.code, e.text)
}

// last returns the number of the last block, the first that is not full (RFC 1350 section 6).
func (t *transfer) last() int64 { return t.content.size/int64(t.terms.block) + 1 }

// acked returns how many bytes the client has acknowledged.
func (t *transfer) acked() int64 { return min((t.base-1)*int64(t.terms.block), t.content.size) }

// run sends the file. It returns nil once the last block is acknowledged, or when only that acknowledgement is missing
// and the client has closed its port: many do not wait to see whether their last packet arrived.
func (t *transfer) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { t.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	t.base, t.out = 1, batcher{conn: t.conn, to: t.client}
	if err := t.agree(ctx); err != nil {
		return err
	}
	t.buf = make([]byte, t.batch()*(headerLen+t.terms.block))
	for t.base <= t.last() {
		if err := t.sendWindow(ctx); err != nil {
			if t.base == t.last() && (errors.Is(err, errGone) || errors.Is(err, errSilent)) {
				return nil
			}
			return err
		}
	}
	return nil
}

// batch returns how many blocks are read and sent at once.
func (t *transfer) batch() int {
	n := min(t.terms.window, maxSegments, maxBatch/(headerLen+t.terms.block))
	return int(max(1, min(int64(n), t.last())))
}

// agree sends the OACK, if there is anything to acknowledge, and waits for the client's consent: ACK 0.
func (t *transfer) agree(ctx context.Context) error {
	if len(t.terms.oack) == 0 {
		return nil
	}
	oack := appendOACK(nil, t.terms.oack)
	for try := range t.retries + 1 {
		if err := t.write(oack); err != nil {
			return err
		}
		deadline := time.Now().Add(t.wait(try))
		for {
			r, err := t.read(ctx, deadline)
			switch {
			case errors.Is(err, os.ErrDeadlineExceeded):
			case err != nil:
				return err
			case r.block != 0:
				continue
			default:
				t.touched.Store(true)
				return nil
			}
			break
		}
	}
	return t.silent()
}

// maxWait is the longest wait for an answer, unless the client asks for a longer one. It is longer than the timers of
// clients that answer a block again only after they have heard nothing for a while (atftp: 5 s).
const maxWait = 8 * time.Second

// wait returns how long to wait for an answer: twice as long after each silence.
func (t *transfer) wait(try int) time.Duration {
	return max(t.terms.timeout, min(t.terms.timeout<<min(try, 16), maxWait))
}

// sendWindow sends the window that starts at base until the client acknowledges some of it, and moves base there.
//
// In lock-step nothing but the timer makes it send again: an answer to every duplicate ACK would double all that follows
// (the sorcerer's apprentice, RFC 1123 section 4.2.3.1). With a window, an ACK of the block before it is how a client
// says that the first block is missing (RFC 7440 section 4). That shortens the timer to two round trips, in which the
// ACK of the window arrives if it was just a duplicate.
func (t *transfer) sendWindow(ctx context.Context) error {
	for try, gaps := 0, 0; try <= t.retries; {
		at := time.Now()
		if err := t.sendBlocks(); err != nil {
			return err
		}
		err := t.await(ctx, at.Add(t.wait(try)))
		switch {
		case err == nil && try+gaps == 0:
			t.measure(time.Since(at))
			return nil
		case err == nil:
			return nil
		case errors.Is(err, errGap) && gaps < maxGaps:
			gaps++
		case errors.Is(err, errGap), errors.Is(err, os.ErrDeadlineExceeded):
			try++
		default:
			return err
		}
	}
	return t.silent()
}

// maxGaps is how often a client may ask for the same window again before that counts as silence.
const maxGaps = 32

// errGap says that the client misses the first block of the window.
var errGap = errors.New("the client misses a block")

// await reads until the client acknowledges a block of the window, and moves base behind it. The error is errGap,
// os.ErrDeadlineExceeded, or the end of the transfer.
func (t *transfer) await(ctx context.Context, deadline time.Time) error {
	gap := false
	for {
		r, err := t.read(ctx, deadline)
		switch {
		case gap && errors.Is(err, os.ErrDeadlineExceeded):
			return errGap
		case err != nil:
			return err
		}
		// Block numbers wrap; the window is far smaller than the numbers are.
		n := int64(r.block - uint16(t.base-1))
		switch {
		case n >= 1 && n <= t.sent:
			t.base += n
			t.touched.Store(true)
			return nil
		case n == 0 && t.terms.window > 1 && !gap:
			if hint := time.Now().Add(t.patience()); hint.Before(deadline) {
				gap, deadline = true, hint
			}
		}
	}
}

// measure takes in how long the client took to acknowledge a window.
func (t *transfer) measure(d time.Duration) {
	if t.rtt == 0 {
		t.rtt = d
		return
	}
	t.rtt += (d - t.rtt) / 8
}

// patience is how long a hint of a lost packet may turn out to be a duplicate.
func (t *transfer) patience() time.Duration {
	return max(2*t.rtt, 2*time.Millisecond)
}

// sendBlocks sends the window from base on.
func (t *transfer) sendBlocks() error {
	end := min(t.base+int64(t.terms.window), t.last()+1)
	if again := t.highest - t.base + 1; again > 0 {
		t.stats.resent.Add(float64(min(again, end-t.base)))
	}
	for first := t.base; first < end; {
		n := min(int64(t.batch()), end-first)
		packets, err := t.fill(first, int(n))
		if err != nil {
			return err
		}
		if err := t.sendResult(t.out.send(packets, headerLen+t.terms.block)); err != nil {
			return err
		}
		first += n
	}
	t.sent = end - t.base
	t.highest = max(t.highest, end-1)
	return nil
}

// fill makes n packets from block first on. It reads their bytes in one call, to the end of the space that they will
// need, and moves each forward to behind its header.
func (t *transfer) fill(first int64, n int) ([]byte, error) {
	block := t.terms.block
	at := (first - 1) * int64(block)
	want := int(min(int64(n*block), t.content.size-at))
	raw := t.buf[n*headerLen : n*headerLen+want]
	if got, err := t.content.ReadAt(raw, at); got < want {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, &refusal{code: CodeUndefined, message: "cannot read file", err: fmt.Errorf("read block %d: %w", first, err)}
	}
	for i := range n {
		packet := t.buf[i*(headerLen+block):]
		copy(packet[headerLen:], raw[min(i*block, want):min((i+1)*block, want)])
		putHeader(packet, first+int64(i))
	}
	return t.buf[:n*headerLen+want], nil
}

// read returns the next reply of the client before the deadline. Strangers are told that they are.
func (t *transfer) read(ctx context.Context, deadline time.Time) (reply, error) {
	if err := t.conn.SetReadDeadline(deadline); err != nil {
		return reply{}, err
	}
	var b [512]byte
	for {
		if ctx.Err() != nil { // it may have ended before the deadline was set
			return reply{}, context.Cause(ctx)
		}
		n, from, err := t.conn.ReadFromUDPAddrPort(b[:])
		switch {
		case err != nil && ctx.Err() != nil:
			return reply{}, context.Cause(ctx)
		case err != nil && t.passing(err):
			continue
		case err != nil:
			return reply{}, t.ending(err)
		case !t.isClient(from):
			t.turnAway(from)
			continue
		}
		switch r, ok := parseReply(b[:n]); {
		case ok && r.op == opERROR:
			return reply{}, t.clientError(r)
		case ok:
			return r, nil
		}
	}
}

func (t *transfer) isClient(from netip.AddrPort) bool {
	return from.Port() == t.client.Port() && from.Addr().Unmap() == t.client.Addr()
}

// turnAway answers a stranger with ERROR 5 (RFC 1350 section 4), without disturbing the transfer.
func (t *transfer) turnAway(from netip.AddrPort) {
	if t.strangers++; t.strangers <= maxStrangers {
		_, _ = t.conn.WriteToUDPAddrPort(appendError(nil, CodeUnknownTID, "unknown transfer"), from)
	}
}

// clientError tells a probe from a failure: firmware that wants a file's size, or to know whether it is there, hangs up
// before it has acknowledged any of it, with the code of RFC 2347 or with none.
func (t *transfer) clientError(r reply) error {
	err := &clientError{code: ErrorCode(r.block), text: r.text}
	if t.base == 1 && (err.code == CodeOptions || err.code == CodeUndefined) {
		return fmt.Errorf("%w (%w)", errProbe, err)
	}
	return err
}

func (t *transfer) write(b []byte) error {
	_, err := t.conn.WriteToUDPAddrPort(b, t.client)
	return t.sendResult(err)
}

// sendResult returns the error that ends the transfer. What the network could not take for now counts as lost.
func (t *transfer) sendResult(err error) error {
	if err != nil && t.passing(err) {
		return nil
	}
	return t.ending(err)
}

// passing takes note of an error that may go away, as while a machine that restarts answers no ARP; the timer decides.
func (t *transfer) passing(err error) bool {
	var no syscall.Errno
	switch {
	case !errors.As(err, &no) || no == syscall.EBADF:
		return false
	case no == syscall.ECONNREFUSED && t.strangers == 0:
		return false // else it may be a stranger's port that is closed
	}
	t.passed++
	t.trouble = no
	return t.passed <= maxPassing
}

// ending turns the kernel's word that the client's port is closed into errGone.
func (t *transfer) ending(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return errGone
	}
	return err
}

// silent returns errSilent, with the trouble there was with the network.
func (t *transfer) silent() error {
	if t.trouble != nil {
		return fmt.Errorf("%w (%w)", errSilent, t.trouble)
	}
	return errSilent
}
