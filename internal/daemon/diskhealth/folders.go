package diskhealth

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/api"
)

// Folders measures the free space of folders. A disk that hangs delays no request: its last measurement stays, with its age. The zero value
// measures none. It is safe for concurrent use.
type Folders struct {
	mu       sync.Mutex
	folders  map[string]*measurement
	required string // existed before the first measurement
}

// Require says that a folder existed before it was measured.
func (f *Folders) Require(dir string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.required = dir
}

// A measurement is the last one of a folder.
type measurement struct {
	state Disk
	at    time.Time // of state
	busy  time.Time // since when it is being measured; zero: it is not
	had   bool      // it existed at an earlier measurement
}

// Look measures folders in the background, and forgets others. One that existed and does not any more is a condition that is not good.
func (f *Folders) Look(folders ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.folders
	f.folders = map[string]*measurement{}
	for _, dir := range folders {
		m := cmp.Or(before[dir], &measurement{})
		f.folders[dir] = m
		if !m.busy.IsZero() {
			continue
		}
		m.busy = time.Now()
		go func() {
			state := Stat(dir)
			f.mu.Lock()
			defer f.mu.Unlock()
			m.state, m.at, m.busy, m.had = state, time.Now(), time.Time{}, m.had || state.Err == nil
		}()
	}
}

// Conditions returns one condition for each folder that was measured, sorted by its name.
func (f *Folders) Conditions() (all []api.Condition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for dir, m := range f.folders {
		c := api.Condition{Kind: api.ConditionDisk, Name: dir, Since: m.at, Detail: fmt.Sprintf("%d MiB free", m.state.Bytes>>20)}
		switch s := m.state; {
		case !m.busy.IsZero() && time.Since(m.busy) > Hangs:
			c.Since, c.Problem = m.busy, CauseHangs
		case m.at.IsZero():
			continue // not measured yet
		case errors.Is(s.Err, fs.ErrNotExist) && (m.had || dir == f.required):
			c.Detail, c.Problem = "", "was removed while in use"
		case errors.Is(s.Err, fs.ErrNotExist):
			continue // the files that are missing in it are warnings
		case s.Err != nil:
			c.Detail, c.Problem = "", s.Err.Error()
		case s.Shortage() != "":
			c.Problem = s.Shortage() + ": free some"
		}
		c.OK = c.Problem == ""
		all = append(all, c)
	}
	slices.SortFunc(all, func(x, y api.Condition) int { return strings.Compare(x.Name, y.Name) })
	return all
}
