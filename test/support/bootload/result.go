package bootload

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Result is what the machines met.
type Result struct {
	Machines int
	Done     int                // machines that finished the whole chain
	Failed   map[string]Failure // by stage
	Again    int                // messages of DHCP and TFTP that were sent again, by the machines
	Bytes    int64              // of program, kernel and initrd
	CPU      time.Duration      // that the machines used themselves: near the time that it took, they are the limit
	Spread                      // of the whole boot
	Stages   []Stage            // each with the time since the start
}

// A Failure is what went wrong in one stage.
type Failure struct {
	Count   int
	Example string
}

// A Stage is when machines had passed a step of their boot.
type Stage struct {
	Name string
	Spread
}

// A Spread is how long machines took since they were switched on.
type Spread struct{ First, P50, P99, Last time.Duration }

// Fairness is how much longer the last took than the machine in the middle; 1 is perfectly fair.
func (s Spread) Fairness() float64 {
	if s.P50 == 0 {
		return 0
	}
	return float64(s.Last) / float64(s.P50)
}

// String returns one line with the number of finished machines and times, and one for each error.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d done; first %s, p50 %s, p99 %s, last %s; sent again %d", r.Done, r.Machines,
		r.First.Round(time.Millisecond), r.P50.Round(time.Millisecond), r.P99.Round(time.Millisecond), r.Last.Round(time.Millisecond), r.Again)
	for name, f := range r.Failed {
		fmt.Fprintf(&b, "\n%s: %d failed, as: %s", name, f.Count, f.Example)
	}
	return b.String()
}

func sum(walks []*walk) Result {
	r := Result{Machines: len(walks), Failed: map[string]Failure{}}
	for _, w := range walks {
		r.Again += w.again
		r.Bytes += w.bytes
		if w.err == nil {
			r.Done++
			continue
		}
		f := r.Failed[w.failed]
		f.Count++
		if f.Example == "" {
			f.Example = fmt.Sprintf("%s: %v", w.mac, w.err)
		}
		r.Failed[w.failed] = f
	}
	for i, s := range stages() {
		var took []time.Duration
		for _, w := range walks {
			if i < len(w.reached) {
				took = append(took, w.reached[i])
			}
		}
		r.Stages = append(r.Stages, Stage{s.name, spread(took)})
	}
	r.Spread = r.Stages[len(r.Stages)-1].Spread
	return r
}

// spread sorts took. Of nothing all is 0.
func spread(took []time.Duration) Spread {
	n := len(took)
	if n == 0 {
		return Spread{}
	}
	slices.Sort(took)
	return Spread{First: took[0], P50: took[n/2], P99: took[min(n-1, n*99/100)], Last: took[n-1]}
}
