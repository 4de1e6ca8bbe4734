package diskhealth

import (
	"slices"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/lab"
)

// filesEvery is how often it is looked which of the lab's files exist: there may be thousands, on a network file system.
const filesEvery = 5 * time.Second

// Files finds the files of a lab that were removed after the load, in the background: a file system that does not answer delays nobody. The
// zero value has looked at none. It is safe for concurrent use.
type Files struct {
	mu   sync.Mutex
	lab  *lab.Lab     // whose files were looked at last; nil: none yet
	gone lab.Problems // of that lab
	at   time.Time    // of the last look's start
	busy bool
}

// Look looks at the files of a lab, whose warnings are ifMissing, unless it did so less than filesEvery ago or still does.
func (f *Files) Look(l *lab.Lab, ifMissing func() lab.Problems) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy || f.lab == l && time.Since(f.at) < filesEvery {
		return
	}
	f.busy, f.at = true, time.Now()
	go func() {
		gone := slices.DeleteFunc(slices.Clone(ifMissing()), func(p *lab.Problem) bool { return !regular.Missing(p.Path) })
		f.mu.Lock()
		defer f.mu.Unlock()
		f.lab, f.gone, f.busy = l, gone, false
	}()
}

// Missing returns the warnings of l of files that did not exist at the last look. The caller may change the slice.
func (f *Files) Missing(l *lab.Lab) lab.Problems {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lab != l {
		return nil
	}
	return slices.Clone(f.gone)
}
