package memory

import (
	"runtime/debug"
	"runtime/metrics"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// releaseFrom is how much memory that is not in use, in bytes, is worth giving back; with a large heap, a quarter of it.
	releaseFrom = 8 << 20
	// releaseEvery is the least time between two releases.
	releaseEvery = 10 * time.Second
	// A process is quiet while it uses less than a tenth of a processor.
	quietShare = 10
)

// A Releaser gives memory that is not in use back to the system while the process is quiet: the garbage of a reload, or what many
// connections needed to be made. The Go runtime itself keeps it for minutes. To give back 30 MiB takes the kernel 20 to 35 ms, in which a
// process with one processor does nothing else (seen with Linux 6.18), so that it does not happen while clients wait.
//
// A Releaser belongs to one goroutine.
type Releaser struct {
	at, released time.Time
	used         time.Duration // processor time of the process at the last look
	processor    func() time.Duration
	samples      []metrics.Sample
}

// NewReleaser returns one that has released nothing.
func NewReleaser() *Releaser {
	return &Releaser{processor: processorTime, samples: []metrics.Sample{
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"},
	}}
}

// Look releases memory if the process was quiet since the last call and there is enough of it. It is to be called about once a second.
func (r *Releaser) Look(now time.Time) {
	elapsed := now.Sub(r.at)
	if elapsed < time.Second/2 {
		return // too short for a measurement
	}
	used := r.processor()
	quiet := !r.at.IsZero() && (used-r.used)*quietShare < elapsed
	r.at, r.used = now, used
	if quiet && now.Sub(r.released) >= releaseEvery && r.worth() {
		debug.FreeOSMemory()
		r.released = now
	}
}

// worth reports whether there is much to give back: memory without objects, and objects that the last collection did not find in use.
func (r *Releaser) worth() bool {
	metrics.Read(r.samples)
	free, objects, live := r.samples[0].Value.Uint64(), r.samples[1].Value.Uint64(), r.samples[2].Value.Uint64()
	garbage := objects - min(live, objects)
	return free+garbage >= max(releaseFrom, live/4)
}

// processorTime returns what all threads of the process have used.
func processorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // fails for a bad pointer only
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
