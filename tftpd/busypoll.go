package tftpd

import (
	"runtime"
	"time"
)

// A busyPoll decides whether a transfer polls its socket before it sleeps. In lock-step on a LAN the ACK arrives sooner than a
// thread can be suspended and woken, which would be half the time that a block takes.
//
// It polls only while there is one transfer, since others would have to wait, and stops where clients are slower.
type busyPoll struct {
	active func() int    // transfers in progress
	misses int           // in a row
	skip   int           // receives that do not poll
	polled time.Duration // since the thread slept
}

const (
	pollLimit    = 50 * time.Microsecond  // for one reply
	pollShare    = 500 * time.Microsecond // of polling, then the rest of a process with one CPU has its turn
	maxMisses    = 8                      // in a row, then polling stops for skipReceives
	skipReceives = 1000
)

// worthwhile reports whether to poll for the next packet.
func (p *busyPoll) worthwhile() bool {
	if p.skip > 0 {
		p.skip--
		return false
	}
	if p.polled > pollShare && runtime.GOMAXPROCS(0) == 1 {
		p.polled = 0
		return false
	}
	return p.active() == 1
}

// poll calls receive until it returns a packet or an error, or the limit has passed.
func (p *busyPoll) poll(receive func() (bool, error)) (received bool, err error) {
	start := time.Now()
	for {
		received, err = receive()
		took := time.Since(start)
		if received || err != nil || took >= pollLimit {
			p.record(received, took)
			return received, err
		}
	}
}

func (p *busyPoll) record(found bool, took time.Duration) {
	p.polled += took
	if found {
		p.misses = 0
	} else if p.misses++; p.misses >= maxMisses {
		p.misses, p.skip = 0, skipReceives
	}
}
