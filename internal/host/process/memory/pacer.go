package memory

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

const (
	// leastPercent is Go's own: a heap is collected when its garbage is as much as what is in use.
	leastPercent = 100
	// startPercent is that of a start: nearly all that is read then stays in memory, so to collect it often takes time and frees little.
	startPercent = 800
	// leastHeap is how large a heap, in bytes, is before it is worth a collection. Two of a hundred new leases met one at 24 MiB, of which 2 MiB were
	// in use: their p99 was that of a collection, 4 ms and not 2.
	leastHeap = 40 << 20
	// mostPercent is that of the smallest heap: the runtime collects none below this percent of 4 MiB.
	mostPercent = leastHeap / (4 << 20) * 100
)

// A Pacer sets how often the garbage collector runs, unless the operator has set GOGC. The memory limit holds all the same.
type Pacer struct {
	manual  bool // the operator has set GOGC
	percent int
	live    []metrics.Sample
	stopped atomic.Bool
}

// NewPacer returns a Pacer, and makes collections rare until Follow.
func NewPacer() *Pacer {
	p := &Pacer{manual: os.Getenv("GOGC") != "", live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	p.set(startPercent)
	return p
}

// Follow follows what is in use, from collection to collection, until Stop. It is called once.
//
// To look once a second is too seldom: an import of 100,000 leases grows a heap of 2 MiB by more than ten times within one.
func (p *Pacer) Follow() {
	if p.manual || p.stopped.Load() {
		return
	}
	metrics.Read(p.live)
	p.set(percentFor(p.live[0].Value.Uint64()))
	// The next collection finds this object unused.
	runtime.AddCleanup(&struct{ p *Pacer }{p}, (*Pacer).Follow, p)
}

// Stop ends Follow.
func (p *Pacer) Stop() { p.stopped.Store(true) }

// percentFor returns the GC percent for that many bytes in use: a multiple of 50, so that it seldom changes, as to set it stops the process for
// some microseconds.
func percentFor(live uint64) int {
	if live >= leastHeap {
		return leastPercent
	}
	percent := (leastHeap - live) * 100 / max(live, 1) / 50 * 50
	return int(min(max(percent, leastPercent), mostPercent))
}

func (p *Pacer) set(percent int) {
	if !p.manual && percent != p.percent {
		p.percent = percent
		debug.SetGCPercent(percent)
	}
}
