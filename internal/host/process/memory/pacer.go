package memory

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// defaultPercent is Go's own: a heap is collected when its garbage is as much as what is in use.
	defaultPercent = 100
	// mostPercent is that of a small heap, and of a start: nearly all that is read then stays in memory, so to collect it often takes time and
	// frees little.
	mostPercent = 800
	// leastGarbage is how much garbage, in bytes, is worth a collection. The daemon of a small lab has 2 MiB in use: collected for each 4 MiB of
	// garbage, eleven times a second while one processor serves 9,000 requests, a fourteenth of these meets a collection.
	leastGarbage = 12 << 20
)

// A Pacer sets how often the garbage collector runs, unless the operator has set GOGC. The memory limit holds all the same.
//
// A Pacer belongs to one goroutine.
type Pacer struct {
	manual  bool // the operator has set GOGC
	percent int
	live    []metrics.Sample
}

// NewPacer returns a Pacer, and makes collections rare until the first Look.
func NewPacer() *Pacer {
	p := &Pacer{manual: os.Getenv("GOGC") != "", live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	p.set(mostPercent)
	return p
}

// Look follows the size of the heap.
func (p *Pacer) Look() {
	metrics.Read(p.live)
	p.set(percentFor(p.live[0].Value.Uint64()))
}

// percentFor returns the GC percent for that many bytes in use. It is doubled or halved, so that it seldom changes: to set it stops the process
// for some microseconds.
func percentFor(live uint64) int {
	percent := defaultPercent
	for percent < mostPercent && live*uint64(percent)/100 < leastGarbage {
		percent *= 2
	}
	return percent
}

func (p *Pacer) set(percent int) {
	if !p.manual && percent != p.percent {
		p.percent = percent
		debug.SetGCPercent(percent)
	}
}
