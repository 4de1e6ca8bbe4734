package mirror

import (
	"container/list"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	labelSuffix = ".json"
	freshPart   = "part-"
	block       = 4096        // what the smallest file takes on disk
	touchEvery  = time.Minute // how exact it is known what was used last, after a restart
)

// A shelf is what is kept of one mirror: below its folder, for each file HH/HASH and its label HH/HASH.json, where HASH is
// of the path. The time of the file is when it was used last, so that a restart knows whose turn it is to go.
type shelf struct {
	name, dir string
	metrics   *shelfMetrics
	now       func() time.Time
	ready     chan struct{} // closed when entries holds what an earlier daemon left

	mu      sync.Mutex
	entries map[string]*entry // by key
	used    list.List         // of *entry, what was used last in front
	size    int64             // of all entries, and of what is being fetched
	max     int64
	flights map[string]*flight
	down    bool      // no upstream answered the last question
	said    time.Time // when it was last told that something cannot be kept
}

// An entry is one file that is kept.
type entry struct {
	key     string
	label   label
	readers int
	gone    bool // replaced or thrown away: its readers have the file still
	touched time.Time
	place   *list.Element
}

// keyOf makes a file name of a path: of one length, without characters of its own.
func keyOf(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:])
}

func newShelf(name, dir string, now func() time.Time, m *shelfMetrics) *shelf {
	s := &shelf{
		name: name, dir: dir, now: now, metrics: m, ready: make(chan struct{}), entries: map[string]*entry{}, flights: map[string]*flight{},
	}
	s.used.Init()
	return s
}

func (s *shelf) file(key string) string { return filepath.Join(s.dir, key[:2], key) }

// room is what a file takes on disk with its label.
func room(size int64) int64 { return (size+block-1)/block*block + block }

// load reads what is there, and clears away what an end in the middle of something left behind.
func (s *shelf) load() error {
	defer close(s.ready)
	type found struct {
		entry *entry
		used  time.Time
	}
	var all []found
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.IsDir():
			return nil
		}
		name := d.Name()
		if key, isLabel := strings.CutSuffix(name, labelSuffix); isLabel {
			if e, used := s.find(key, path); e != nil {
				all = append(all, found{e, used})
			}
			return nil
		}
		if _, err := os.Stat(path + labelSuffix); err != nil || len(name) != hex.EncodedLen(sha256.Size) {
			_ = os.Remove(path)
		}
		return nil
	})
	slices.SortFunc(all, func(a, b found) int { return a.used.Compare(b.used) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range all {
		s.addLocked(f.entry)
	}
	if err != nil {
		return fmt.Errorf("read the cache of mirror %s: %w", s.name, err)
	}
	return nil
}

// find returns the entry of a label whose file is there whole, and takes away one whose is not.
func (s *shelf) find(key, name string) (*entry, time.Time) {
	l, err := readLabel(name)
	file := strings.TrimSuffix(name, labelSuffix)
	info, missing := os.Stat(file)
	if err == nil && missing == nil && keyOf(l.Path) == key && info.Size() == l.Size && info.Mode().IsRegular() {
		return &entry{key: key, label: l, touched: info.ModTime()}, info.ModTime()
	}
	_ = os.Remove(name)
	_ = os.Remove(file)
	return nil, time.Time{}
}

func (s *shelf) addLocked(e *entry) {
	s.dropLocked(e.key)
	s.entries[e.key] = e
	e.place = s.used.PushFront(e)
	s.growLocked(room(e.label.Size))
}

func (s *shelf) growLocked(n int64) {
	s.size += n
	s.metrics.bytes.Set(float64(s.size))
}

// dropLocked forgets an entry. Its file is the caller's to replace or remove.
func (s *shelf) dropLocked(key string) {
	e := s.entries[key]
	if e == nil {
		return
	}
	e.gone = true
	delete(s.entries, key)
	s.used.Remove(e.place)
	s.growLocked(-room(e.label.Size))
}

// removeLocked takes an entry off the disk. Who reads it goes on reading.
func (s *shelf) removeLocked(e *entry) {
	s.dropLocked(e.key)
	_ = os.Remove(s.file(e.key) + labelSuffix) // first: a file without a label is nothing
	_ = os.Remove(s.file(e.key))
}

// reserveLocked makes room for n bytes by throwing away what was used longest ago and is not read now. Where that would
// not do, it throws nothing away and reports false.
func (s *shelf) reserveLocked(n int64) bool {
	if need := s.size + n - s.max; need > 0 && !s.evictableLocked(need) {
		return false
	}
	for s.size+n > s.max {
		s.evictLocked()
	}
	s.growLocked(n)
	return true
}

// evictableLocked reports whether n bytes are in files that nobody reads.
func (s *shelf) evictableLocked(n int64) bool {
	for at := s.used.Back(); at != nil && n > 0; at = at.Prev() {
		if e := at.Value.(*entry); e.readers == 0 {
			n -= room(e.label.Size)
		}
	}
	return n <= 0
}

// evictLocked throws one file away, if there is one that nobody reads.
func (s *shelf) evictLocked() bool {
	for at := s.used.Back(); at != nil; at = at.Prev() {
		if e := at.Value.(*entry); e.readers == 0 {
			s.removeLocked(e)
			s.metrics.evictions.Inc()
			return true
		}
	}
	return false
}

// openLocked opens the file of an entry and counts its reader. An entry whose file somebody took away is forgotten.
func (s *shelf) openLocked(e *entry) (*os.File, error) {
	f, err := os.Open(s.file(e.key))
	if err == nil {
		var info fs.FileInfo
		if info, err = f.Stat(); err == nil && info.Size() != e.label.Size {
			err = fmt.Errorf("%s has %d bytes, not %d", f.Name(), info.Size(), e.label.Size)
		}
		if err != nil {
			_ = f.Close()
		}
	}
	if err != nil {
		s.removeLocked(e)
		return nil, err
	}
	e.readers++
	s.used.MoveToFront(e.place)
	if now := s.now(); now.Sub(e.touched) > touchEvery {
		e.touched = now
		_ = os.Chtimes(f.Name(), now, now)
	}
	return f, nil
}

func (s *shelf) closeEntry(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.readers--
}

// part makes a file to fetch into.
func (s *shelf) part(key string) (*os.File, error) {
	dir := filepath.Dir(s.file(key))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	return os.CreateTemp(dir, freshPart)
}

// keepLocked makes part the file of a label.
func (s *shelf) keepLocked(part string, l label) (*entry, error) {
	key := keyOf(l.Path)
	name := s.file(key)
	// The old label must not stand beside the new file, not even after a crash.
	if err := os.Remove(name + labelSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s.dropLocked(key)
	if err := os.Rename(part, name); err != nil {
		return nil, err
	}
	if err := l.write(name + labelSuffix); err != nil {
		_ = os.Remove(name)
		return nil, err
	}
	e := &entry{key: key, label: l, touched: s.now()}
	s.addLocked(e)
	return e, nil
}

// checkedLocked writes down that upstream said of an entry that it is so.
func (s *shelf) checkedLocked(e *entry, at time.Time) {
	e.label.Checked = at
	_ = e.label.write(s.file(e.key) + labelSuffix) // else it is asked for once more after a restart
}
