package tftpd

import (
	"runtime"
	"time"
)

// A busyPoll decides whether a transfer looks again and again for the answer before it sleeps. In lock-step on a LAN the answer is
// there in less time than it takes to fall asleep and be woken, which would be half the time that a block takes.
//
// It does so only where there is one transfer, since others would have to wait, and gives it up where clients are slower.
type busyPoll struct {
	busy   func() int // transfers under way
	misses int        // in a row
	rests  int        // receives that sleep at once
	spent  time.Duration
}

const (
	pollLimit = 50 * time.Microsecond  // for one answer
	pollShare = 500 * time.Microsecond // of looking, then the rest of a process with one CPU has its turn
	maxMisses = 8
	pollPause = 1000 // receives
)

// fits reports whether it is worth to look.
func (h *busyPoll) fits() bool {
	if h.rests > 0 {
		h.rests--
		return false
	}
	if h.spent > pollShare && runtime.GOMAXPROCS(0) == 1 {
		h.spent = 0
		return false
	}
	return h.busy() == 1
}

// poll looks until there is something.
func (h *busyPoll) poll(look func() bool) bool {
	start := time.Now()
	for {
		found := look()
		took := time.Since(start)
		if found || took >= pollLimit {
			h.learn(found, took)
			return found
		}
	}
}

func (h *busyPoll) learn(found bool, took time.Duration) {
	h.spent += took
	if found {
		h.misses = 0
		return
	}
	if h.misses++; h.misses >= maxMisses {
		h.misses, h.rests = 0, pollPause
	}
}

// crowd reports whether the transfers are one.
func (h *busyPoll) crowd() bool { return crowded(h.busy()) }

// crowded reports whether there are so many transfers that what each costs matters more than the courtesies.
func crowded(transfers int) bool { return transfers > 16 }
