package tftpd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// maxNetworkErrors is how many network errors a transfer survives.
const maxNetworkErrors = 256

// A transfer sends one file to one client.
type transfer struct {
	key      string // the packet that asked for it, to know a duplicate
	client   netip.AddrPort
	occasion occasion
	started  time.Time
	cancel   context.CancelCauseFunc
	heard    atomic.Int64 // when the client answered last, in nanoseconds since started; 0: not yet
	asked    atomic.Bool  // it sent its request again meanwhile

	transport transport
	shared    *sharedPort // the line, if the port is shared
	readAhead readAhead
	terms     terms
	retries   int
	stats     *metrics

	base          int64 // the first block that is not acknowledged; blocks count from 1
	sent          int64 // how many blocks from base on are on their way
	highest       int64 // the highest block that was ever sent
	rtt           time.Duration
	networkErrors int   // network errors that did not end the transfer
	lastError     error // the last of them
}

// Why a transfer ended early.
var (
	errProbe    = errors.New("the client wanted to know the size only")
	errSilent   = errors.New("the client stopped answering")
	errGone     = errors.New("the client closed its port")
	errReplaced = errors.New("the client started over")
	errEvicted  = errors.New("the client never answered, and others want its place")
	errStopping = errors.New("the server is stopping")
)

// A clientError is an ERROR packet from the client.
type clientError struct {
	code ErrorCode
	text string
}

// Error tells the code (RFC 1350 section 5, RFC 2347) and the text as the client sent them, made printable.
func (e *clientError) Error() string {
	return fmt.Sprintf("the client gave up: error %d %q", e.code, e.text)
}

// acked returns how many bytes the client has acknowledged.
func (t *transfer) acked() int64 {
	return min((t.base-1)*int64(t.terms.block), t.readAhead.content.size)
}

// hear takes note that the client has answered what was sent at that time.
func (t *transfer) hear(sent time.Time) { t.heard.Store(max(1, int64(sent.Sub(t.started)))) }

// touched reports whether the client ever answered.
func (t *transfer) answered() bool { return t.heard.Load() > 0 }

// silence returns for how long the client has not answered.
func (t *transfer) silence() time.Duration {
	return time.Since(t.started) - time.Duration(t.heard.Load())
}

// run sends the file. It returns nil once the last block is acknowledged, or when only that acknowledgement is missing and the
// client has closed its port, or asks for another file: many do not wait to see whether their last packet arrived.
func (t *transfer) run(ctx context.Context) error {
	t.base = 1
	t.readAhead.block, t.readAhead.window, t.readAhead.roll = t.terms.block, t.terms.window, t.terms.roll
	if err := t.sendOACK(ctx); err != nil {
		return err
	}
	for last := t.readAhead.last(); t.base <= last; {
		if err := t.sendWindow(ctx); err != nil {
			if t.base == last && (errors.Is(err, errGone) || errors.Is(err, errSilent) || errors.Is(err, errReplaced)) {
				return nil
			}
			return err
		}
	}
	return nil
}

// agree sends the OACK, if there is anything to acknowledge, and waits for the client's consent: ACK 0.
func (t *transfer) sendOACK(ctx context.Context) error {
	if len(t.terms.oack) == 0 {
		return nil
	}
	oack := appendOACK(nil, t.terms.oack)
	for try := range t.retries + 1 {
		if err := t.sendResult(t.transport.ask(oack)); err != nil {
			return err
		}
		sent := time.Now()
		deadline := sent.Add(t.wait(try))
		for {
			r, err := t.read(ctx, deadline)
			switch {
			case errors.Is(err, os.ErrDeadlineExceeded):
			case err != nil:
				return err
			case r.block != 0:
				continue
			default:
				t.hear(sent)
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

// minWait is the least that a client has for its answer, however quick it was so far: it may be writing to a disk.
const minWait = 200 * time.Millisecond

// early returns how long to wait for the first answer. RFC 1123 section 4.2.3.2 wants the time-out to follow the round trips: a
// client that has always answered within a millisecond need not wait a second for a block that was lost. Where the client has
// named its time-out that holds, and where it has not answered yet the default does.
func (t *transfer) firstWait() time.Duration {
	if t.terms.exact || t.rtt == 0 {
		return t.wait(0)
	}
	return min(t.wait(0), max(minWait, 8*t.rtt))
}

// sendWindow sends the window that starts at base until the client acknowledges some of it, and moves base there.
//
// In lock-step nothing but the timer makes it send again: an answer to every duplicate ACK would double all that follows
// (the sorcerer's apprentice, RFC 1123 section 4.2.3.1). With a window, an ACK of the block before it is how a client
// says that the first block is missing (RFC 7440 section 4). That shortens the timer to two round trips, in which the
// ACK of the window arrives if it was just a duplicate.
func (t *transfer) sendWindow(ctx context.Context) error {
	first := true
	for try, gaps := 0, 0; try <= t.retries; first = false {
		at := time.Now()
		if err := t.sendBlocks(); err != nil {
			return err
		}
		wait := t.wait(try)
		if first {
			wait = t.firstWait()
		}
		err := t.await(ctx, at.Add(wait), gaps)
		switch {
		case err == nil:
			t.hear(at)
			if first && t.toMeasure() {
				t.measure(time.Since(at))
			}
			return nil
		case first && wait < t.wait(0) && errors.Is(err, os.ErrDeadlineExceeded):
			// An early one more: the retries and their waits are the same as without.
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
func (t *transfer) await(ctx context.Context, deadline time.Time, gaps int) error {
	gap := false
	for {
		r, err := t.read(ctx, deadline)
		switch {
		case gap && errors.Is(err, os.ErrDeadlineExceeded):
			return errGap
		case err != nil:
			return err
		}
		n := t.terms.roll.after(t.base-1, r.block)
		switch {
		case n >= 1 && n <= t.sent:
			t.base += n
			return nil
		case n == 0 && t.terms.window > 1 && !gap:
			if hint := time.Now().Add(t.gapWait(gaps)); hint.Before(deadline) {
				gap, deadline = true, hint
			}
		}
	}
}

// toMeasure reports whether to look at the clock: always at first, now and then later.
func (t *transfer) toMeasure() bool { return t.base < 64 || t.base&15 == 0 || t.terms.window > 1 }

// measure takes in how long the client took to acknowledge a window.
func (t *transfer) measure(d time.Duration) {
	if t.rtt == 0 {
		t.rtt = d
		return
	}
	t.rtt += (d - t.rtt) / 8
}

// patience is how long a hint of a lost packet may turn out to be a duplicate. It doubles with each gap in the same window: a
// client that is slow, and has less room than the window needs, is still busy with what it was sent before.
func (t *transfer) gapWait(gaps int) time.Duration {
	return max(2*t.rtt, 2*time.Millisecond) << min(gaps, 8)
}

// sendBlocks sends the window from base on.
func (t *transfer) sendBlocks() error {
	end := min(t.base+int64(t.terms.window), t.readAhead.last()+1)
	again := t.highest - t.base + 1
	if again > 0 {
		t.stats.resent.Add(float64(min(again, end-t.base)))
	}
	for first := t.base; first < end; {
		packets, n, err := t.readAhead.take(first, int(min(end-first, maxSegments)))
		if err != nil {
			return err
		}
		if t.terms.window == 1 && again <= 0 {
			// Nothing that matters can be on its way to us before this packet has left.
			err = t.transport.ask(packets)
		} else {
			err = t.transport.send(packets, headerLen+t.terms.block)
		}
		if err := t.sendResult(err); err != nil {
			return err
		}
		first += int64(n)
	}
	t.sent = end - t.base
	t.highest = max(t.highest, end-1)
	return nil
}

// read returns the next reply of the client before the deadline.
func (t *transfer) read(ctx context.Context, deadline time.Time) (reply, error) {
	for {
		r, err := t.transport.receive(ctx, deadline)
		switch {
		case err != nil && t.temporary(err):
			continue
		case err == nil && r.op == opERROR:
			return reply{}, t.clientError(r)
		}
		return r, err
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

// sendResult returns the error that ends the transfer. What the network could not take for now counts as lost.
func (t *transfer) sendResult(err error) error {
	if err != nil && t.temporary(err) {
		return nil
	}
	return err
}

// passing takes note of an error that may go away, as while a machine that restarts answers no ARP; the timer decides.
func (t *transfer) temporary(err error) bool {
	var no syscall.Errno
	if !errors.Is(err, errPortClosed) && (!errors.As(err, &no) || no == syscall.EBADF) {
		return false
	}
	t.networkErrors++
	t.lastError = err
	return t.networkErrors <= maxNetworkErrors
}

// silent returns errSilent, with the lastError there was with the network.
func (t *transfer) silent() error {
	if t.lastError != nil {
		return fmt.Errorf("%w (%w)", errSilent, t.lastError)
	}
	return errSilent
}
