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

	"github.com/bootlab/bootlab/internal/host/client/connlimit"
	"github.com/bootlab/bootlab/internal/lab"
)

// A transfer sends one file to one client.
type transfer struct {
	request    string // the packet that asked for it, to recognize a duplicate
	client     netip.AddrPort
	table      *Table  // in force when the request arrived
	mac        lab.MAC // in the name, else of the NIC that had the address then; zero: none
	origin     origin
	started    time.Time
	cancel     context.CancelCauseFunc
	slot       *connlimit.Conn // in use once the client has answered
	taken      atomic.Int64    // bytes that the client has acknowledged, for slot
	answeredAt atomic.Int64    // when the client answered last, in nanoseconds since started; 0: never
	repeated   atomic.Bool     // the same request came again meanwhile
	lastSent   atomic.Bool     // the last block was sent
	transport  transport
	shared     *sharedPort // the transport, if the port is shared

	script     bool // a script was asked for
	disowned   bool // another machine may have asked for it, and acknowledged it
	readAhead  readAhead
	negotiated negotiated
	retries    int
	unanswered int // retries while the client has never answered
	stats      *metrics

	base     int64 // the first block that is not acknowledged; blocks count from 1
	inFlight int64 // blocks sent from base on
	highest  int64 // the highest block that was ever sent
	rtt      time.Duration

	networkErrors int
	lastError     error // the last of them
}

// Why a transfer ended early.
var (
	errProbe    = errors.New("the client only asked for the size")
	errSilent   = errors.New("the client stopped answering")
	errGone     = errors.New("the client closed its port")
	errReplaced = errors.New("the client started over")
	errEvicted  = errors.New("evicted by another client's request: the client never answered")
	errShared   = errors.New("evicted by another client's request: all transfers were in use, and this client had the most, or was too slow")
	errStopping = errors.New("the server is stopping")
)

// A clientError is an ERROR packet from the client.
type clientError struct {
	code ErrorCode
	text string
}

// Error returns the code (RFC 1350 section 5, RFC 2347) and the text that the client sent, made printable.
func (e *clientError) Error() string {
	return fmt.Sprintf("the client sent error %d %q", e.code, e.text)
}

// acked returns how many bytes the client has acknowledged.
func (t *transfer) acked() int64 {
	return min((t.base-1)*int64(t.negotiated.block), t.readAhead.content.size)
}

// noteAnswer notes that the client has answered what was sent at that time.
func (t *transfer) noteAnswer(sent time.Time) {
	t.taken.Store(t.acked())
	if t.answeredAt.Swap(max(1, int64(sent.Sub(t.started)))) == 0 {
		t.slot.Begin()
	}
}

// evict ends the transfer, since another one gets its slot.
func (t *transfer) evict() {
	if t.answered() {
		t.cancel(errShared)
		return
	}
	t.cancel(errEvicted)
}

// answered reports whether the client ever answered.
func (t *transfer) answered() bool { return t.answeredAt.Load() > 0 }

// silence returns for how long the client has not answered.
func (t *transfer) silence() time.Duration {
	return time.Since(t.started) - time.Duration(t.answeredAt.Load())
}

// run sends the file. It returns nil once the last block is acknowledged, or when only that acknowledgement is missing and the
// client has closed its port or asks for another file: many clients do not wait to see whether their last packet arrived. Of a
// script, which begins a boot, at least one block must be acknowledged: anybody can send a request in the machine's name.
func (t *transfer) run(ctx context.Context) error {
	t.base = 1
	t.readAhead.block, t.readAhead.window, t.readAhead.roll = t.negotiated.block, t.negotiated.window, t.negotiated.roll
	if err := t.sendOACK(ctx); err != nil {
		return err
	}
	for last := t.readAhead.last(); t.base <= last; {
		if err := t.sendWindow(ctx); err != nil {
			if t.base == last && (t.received() || t.readAhead.content.received == nil) && (errors.Is(err, errGone) || errors.Is(err, errSilent) || errors.Is(err, errReplaced)) {
				return nil
			}
			return err
		}
	}
	return nil
}

// received reports whether the client has shown that it received the file, once run has returned nil: it has acknowledged the last block,
// or all others. To acknowledge the OACK only is no sign.
func (t *transfer) received() bool { return t.base > 1 }

// sendOACK sends the OACK, if there is an option to acknowledge, and waits for ACK 0 (RFC 2347).
func (t *transfer) sendOACK(ctx context.Context) error {
	if len(t.negotiated.oack) == 0 {
		return nil
	}
	oack := appendOptions([]byte{0, opOACK}, t.negotiated.oack) // RFC 2347
	for try := range t.mayRetry() + 1 {
		if err := t.send(oack, len(oack)); err != nil {
			return err
		}
		sent := time.Now()
		err := t.awaitACK0(ctx, sent.Add(t.wait(try)))
		if err == nil {
			t.noteAnswer(sent)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
	return t.silent()
}

// mayRetry returns how often a packet may be retransmitted. A client that never answered may be one that never asked; if it did, it repeats
// its request.
func (t *transfer) mayRetry() int {
	if t.answered() {
		return t.retries
	}
	return t.unanswered
}

func (t *transfer) awaitACK0(ctx context.Context, deadline time.Time) error {
	for {
		if r, err := t.receive(ctx, deadline); err != nil || r.block == 0 {
			return err
		}
	}
}

// maxWait is the longest wait for an answer, unless the client asks for a longer one. It is longer than the timers of clients
// that repeat their ACK only after they have received nothing for a while (atftp: 5 s).
const maxWait = 8 * time.Second

// wait returns how long to wait for an answer: twice as long with each try.
func (t *transfer) wait(try int) time.Duration {
	return max(t.negotiated.timeout, min(t.negotiated.timeout<<min(try, 16), maxWait))
}

// minWait is the shortest wait for an answer, however quick the client was so far: it may be writing to a disk.
const minWait = 200 * time.Millisecond

// firstWait returns how long to wait for the first answer. RFC 1123 section 4.2.3.2 wants the timeout to follow the round
// trips: a client that has always answered within a millisecond need not wait a second for a lost block. Where the client has
// asked for a timeout that holds, and where it has not answered yet the default does.
func (t *transfer) firstWait() time.Duration {
	if t.negotiated.exact || t.rtt == 0 {
		return t.wait(0)
	}
	return min(t.wait(0), max(minWait, 8*t.rtt))
}

// sendWindow sends the window that starts at base until the client acknowledges some of it, and moves base there.
//
// In lock-step only the timer makes it send again: an answer to every duplicate ACK would double all that follows (the
// sorcerer's apprentice syndrome, RFC 1123 section 4.2.3.1). With a window, an ACK of the block before it is how a client
// reports that the first block is missing (RFC 7440 section 4). That shortens the timer to two round trips, in which the ACK
// of the window arrives if it was just a duplicate.
func (t *transfer) sendWindow(ctx context.Context) error {
	first := true
	for try, gaps := 0, 0; try <= t.mayRetry(); first = false {
		at := time.Now()
		if err := t.sendBlocks(); err != nil {
			return err
		}
		wait := t.wait(try)
		if first {
			wait = t.firstWait()
		}
		err := t.awaitACK(ctx, at.Add(wait), gaps)
		switch {
		case err == nil:
			t.noteAnswer(at)
			if first && t.toMeasure() {
				t.measure(time.Since(at))
			}
			return nil
		case first && wait < t.wait(0) && errors.Is(err, os.ErrDeadlineExceeded):
			// One more than t.retries: the retries and their waits are the same as without it.
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

// maxGaps is how often a client may ask for the same window again before that counts as a timeout.
const maxGaps = 32

// errGap is returned when the client misses the first block of the window.
var errGap = errors.New("the client misses a block")

// awaitACK receives until the client acknowledges a block of the window, and moves base behind it. The error is errGap,
// os.ErrDeadlineExceeded, or the end of the transfer.
func (t *transfer) awaitACK(ctx context.Context, deadline time.Time, gaps int) error {
	gap := false
	for {
		r, err := t.receive(ctx, deadline)
		switch {
		case gap && errors.Is(err, os.ErrDeadlineExceeded):
			return errGap
		case err != nil:
			return err
		}
		n := t.negotiated.roll.after(t.base-1, r.block)
		switch {
		case n >= 1 && n <= t.inFlight:
			t.base += n
			return nil
		case n == 0 && t.negotiated.window > 1 && !gap:
			if end := time.Now().Add(t.gapWait(gaps)); end.Before(deadline) {
				gap, deadline = true, end
			}
		}
	}
}

// toMeasure reports whether to read the clock: for each block at first, seldom later.
func (t *transfer) toMeasure() bool { return t.base < 64 || t.base&15 == 0 || t.negotiated.window > 1 }

// measure adds the time that the client took to acknowledge a window to the average round trip.
func (t *transfer) measure(d time.Duration) {
	if t.rtt == 0 {
		t.rtt = d
		return
	}
	t.rtt += (d - t.rtt) / 8
}

// gapWait is how long an ACK that may report a lost block may turn out to be a duplicate. It doubles with each gap in the same
// window: a slow client whose buffer is smaller than the window is still busy with what it was sent before.
func (t *transfer) gapWait(gaps int) time.Duration {
	return max(2*t.rtt, 2*time.Millisecond) << min(gaps, 8)
}

// sendBlocks sends the window from base on.
func (t *transfer) sendBlocks() error {
	end := min(t.base+int64(t.negotiated.window), t.readAhead.last()+1)
	if again := t.highest - t.base + 1; again > 0 {
		t.stats.resent.Add(float64(min(again, end-t.base)))
	}
	if end > t.readAhead.last() { // before: the client may send its next request as soon as it has the block
		t.lastSent.Store(true)
	}
	for first := t.base; first < end; {
		packets, n, err := t.readAhead.packets(first, int(min(end-first, maxSegments)))
		if err != nil {
			return err
		}
		if err := t.send(packets, headerLen+t.negotiated.block); err != nil {
			return err
		}
		first += int64(n)
	}
	t.inFlight = end - t.base
	t.highest = max(t.highest, end-1)
	return nil
}

// receive returns the next reply of the client before the deadline.
func (t *transfer) receive(ctx context.Context, deadline time.Time) (reply, error) {
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

// clientError distinguishes a probe from a failure: firmware that wants a file's size, or to know whether it exists, sends an ERROR
// before it has acknowledged a block, with the code of RFC 2347 or with 0.
func (t *transfer) clientError(r reply) error {
	err := &clientError{code: ErrorCode(r.block), text: r.text}
	if t.base == 1 && (err.code == CodeOptions || err.code == CodeUndefined) {
		return fmt.Errorf("%w (%w)", errProbe, err)
	}
	return err
}

// send sends b as packets of that size. The error ends the transfer; packets that the network does not take for now count as
// lost.
func (t *transfer) send(b []byte, size int) error {
	err := t.transport.send(b, size)
	if err != nil && t.temporary(err) {
		return nil
	}
	return err
}

// maxNetworkErrors is how many network errors a transfer survives.
const maxNetworkErrors = 256

// temporary counts a network error that may go away, such as that of a machine that restarts and answers no ARP: the timer
// decides.
func (t *transfer) temporary(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	if !errors.Is(err, errPortClosed) && (!ok || errno == syscall.EBADF) {
		return false
	}
	t.networkErrors++
	t.lastError = err
	return t.networkErrors <= maxNetworkErrors
}

// silent returns errSilent, with the last network error.
func (t *transfer) silent() error {
	if t.lastError != nil {
		return fmt.Errorf("%w (%w)", errSilent, t.lastError)
	}
	return errSilent
}
