package segment

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/host/pause"

	"golang.org/x/net/bpf"
)

// assemble encodes a filter of this package. They are constant, so an error is our bug.
func assemble(program []bpf.Instruction) []bpf.RawInstruction {
	raw, err := bpf.Assemble(program)
	if err != nil {
		panic(err)
	}
	return raw
}

// interruptReads makes reads fail when ctx ends, until the returned function is called.
func interruptReads(ctx context.Context, c interface{ SetReadDeadline(time.Time) error }) (stop func()) {
	_ = c.SetReadDeadline(time.Time{}) // an earlier reader may have ended by a deadline
	done := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = c.SetReadDeadline(time.Unix(1, 0))
	})
	return func() {
		if !cancel() {
			<-done // else it might interrupt the next reader
		}
	}
}

const (
	// maxARP and maxReplies bound the cost of a flood: so many frames are read a second, and the kernel drops the others.
	maxARP     = 4000
	maxReplies = 1000 // of other DHCP servers
)

// readFrames calls f for each frame of a packet socket until ctx ends or the socket is closed, at most perSecond times a
// second. After a pause, in which the kernel may have dropped frames, it calls paused.
func readFrames(ctx context.Context, t *packet.Socket, buf []byte, perSecond int, f func(n int), paused func()) {
	budget, wait := perSecond/10, minWait
	for since := time.Now(); ctx.Err() == nil; {
		n, err := t.Read(buf)
		if err != nil {
			// The interface went down, or ctx ended, which pause reports.
			if errors.Is(err, os.ErrClosed) || pause.For(ctx, wait) != nil {
				return
			}
			wait = min(2*wait, maxWait)
			continue
		}
		wait = minWait
		f(n)
		if budget--; budget > 0 {
			continue
		}
		budget = perSecond / 10
		if early := time.Second/10 - time.Since(since); early > 0 {
			_ = pause.For(ctx, early)
			paused()
		}
		since = time.Now()
	}
}
