package segment

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"
)

// interruptReads lets reads fail from the end of ctx on, until the returned function is called.
func interruptReads(ctx context.Context, c interface{ SetReadDeadline(time.Time) error }) (stop func()) {
	_ = c.SetReadDeadline(time.Time{}) // a reader before this one may have ended by it
	done := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = c.SetReadDeadline(time.Unix(1, 0))
	})
	return func() {
		if !cancel() {
			<-done // else it might end the next reader
		}
	}
}

const (
	// maxARP bounds what a flood costs: so many frames are read a second, the kernel drops the rest.
	maxARP     = 4000
	maxReplies = 1000 // the same for other servers' answers
)

// readFrames calls f for each frame of a tap until ctx ends or the tap is closed, at most perSecond times a second: after a
// pause, in which the kernel may have dropped frames, it calls paused.
func readFrames(ctx context.Context, t *packetSocket, buf []byte, perSecond int, f func(n int), paused func()) {
	budget, wait := perSecond/10, minWait
	for since := time.Now(); ctx.Err() == nil; {
		n, err := t.read(buf)
		if err != nil {
			// The interface flaps, or ctx ended, which the pause notices.
			if errors.Is(err, net.ErrClosed) || pause.For(ctx, wait) != nil {
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
