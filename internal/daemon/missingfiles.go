package daemon

import (
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/host/regular"
	"github.com/bootlab/bootlab/internal/lab"
)

// filesEvery is how often it is looked which of the lab's files exist: there may be thousands, on a network file system.
const filesEvery = 5 * time.Second

// fileWatch finds the files of a lab that were removed after the load, in the background: a file system that does not answer delays nobody.
type fileWatch struct {
	mu   sync.Mutex
	lab  *lab.Lab     // whose files were looked at last; nil: none yet
	gone lab.Problems // of that lab
	at   time.Time    // of the last look's start
	busy bool
}

// look looks at the files of a lab, unless it did so less than filesEvery ago or still does.
func (w *fileWatch) look(l *lab.Lab) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy || w.lab == l && time.Since(w.at) < filesEvery {
		return
	}
	w.busy, w.at = true, time.Now()
	go func() {
		gone := slices.DeleteFunc(slices.Clone(l.IfMissing), func(p *lab.Problem) bool {
			_, err := regular.Stat(p.Path)
			return !errors.Is(err, fs.ErrNotExist) // what cannot be known is not missing
		})
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lab, w.gone, w.busy = l, gone, false
	}()
}

// missing returns the warnings of l of files that did not exist at the last look. The caller may change the slice.
func (w *fileWatch) missing(l *lab.Lab) lab.Problems {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lab != l {
		return nil
	}
	return slices.Clone(w.gone)
}
