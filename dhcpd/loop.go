package dhcpd

import (
	"sync"
	"time"

	"bootlab/internal/lab"
)

// A machine whose iPXE gets its script again and again does not boot: its script chains to itself, its ROM holds an iPXE
// that cannot do what the script asks, or nothing behind the script starts. Real firmware needs half a minute from one
// iPXE to the next, a virtual machine that finds no disk some six seconds, a script that fails at once less than one.
const (
	loopCount  = 8
	loopWindow = 2 * time.Minute
	loopHold   = 5 * time.Minute // how long it gets no boot file: then somebody may have mended it
	maxLoops   = 4096            // machines watched
)

// A loopGuard finds machines that go round in circles. It is safe for concurrent use.
type loopGuard struct {
	now func() time.Time

	mu       sync.Mutex
	machines map[lab.MAC]*circle
}

// A circle is what is known of one machine's iPXE.
type circle struct {
	xid   [4]byte // of the last one, since a retransmission is no new round
	count int
	since time.Time
	held  time.Time // until when it gets no boot file
}

func newLoopGuard(now func() time.Time) *loopGuard {
	return &loopGuard{now: now, machines: map[lab.MAC]*circle{}}
}

// round is told of every acknowledgement to an iPXE. It reports whether this one closes a loop.
func (g *loopGuard) round(m lab.MAC, xid [4]byte) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	c := g.machines[m]
	if c == nil {
		g.sweepLocked(now)
		c = &circle{}
		g.machines[m] = c
	}
	if c.xid == xid && c.count > 0 {
		return false
	}
	if now.Sub(c.since) > loopWindow {
		c.since, c.count = now, 0
	}
	c.xid = xid
	c.count++
	if c.count < loopCount {
		return false
	}
	c.count, c.held = 0, now.Add(loopHold)
	return true
}

// held reports whether the machine gets no boot file for now.
func (g *loopGuard) held(m lab.MAC) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.machines[m]
	return c != nil && g.now().Before(c.held)
}

// progress is told that the machine's operating system speaks.
func (g *loopGuard) progress(m lab.MAC) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.machines) > 0 {
		delete(g.machines, m)
	}
}

// sweepLocked makes room: machines that are quiet go, and if all are busy, all.
func (g *loopGuard) sweepLocked(now time.Time) {
	if len(g.machines) < maxLoops {
		return
	}
	for m, c := range g.machines {
		if now.Sub(c.since) > loopWindow && now.After(c.held) {
			delete(g.machines, m)
		}
	}
	if len(g.machines) >= maxLoops {
		clear(g.machines)
	}
}
