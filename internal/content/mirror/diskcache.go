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
	metadataSuffix = ".json"
	partPrefix     = "part-"
	block          = 4096        // allocation unit of the file system
	touchInterval  = time.Minute // precision of the last use after a restart
)

// A diskCache is the cached files of one mirror: below its folder, each file as HH/HASH with its metadata in HH/HASH.json, where
// HASH is of the path. A file's modification time is its last use, so that a restart keeps the order of eviction.
type diskCache struct {
	name, dir string
	metrics   *mirrorMetrics
	now       func() time.Time
	ready     chan struct{} // closed when the files of an earlier run are loaded

	mu        sync.Mutex
	entries   map[string]*entry // by key
	used      list.List         // of *entry, the most recently used first
	size      int64             // of all entries, and reserved by downloads
	max       int64
	downloads map[string]*download
	down      Outage    // zero: an upstream answered the last request
	warned    time.Time // when MirrorBypassed was last emitted
}

// An entry is one cached file.
type entry struct {
	key      string
	metadata metadata
	readers  int
	touched  time.Time
	element  *list.Element
}

// keyOf returns the file name for a path: of fixed length, whatever the path contains.
func keyOf(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:])
}

func newDiskCache(name, dir string, now func() time.Time, m *mirrorMetrics) *diskCache {
	s := &diskCache{
		name: name, dir: dir, now: now, metrics: m, ready: make(chan struct{}), entries: map[string]*entry{}, downloads: map[string]*download{},
	}
	s.used.Init()
	return s
}

func (s *diskCache) file(key string) string { return filepath.Join(s.dir, key[:2], key) }

// diskSize returns the space that a file of that size takes on disk with its metadata.
func diskSize(size int64) int64 { return (size+block-1)/block*block + block }

// load indexes the cached files, and removes what a crash left incomplete.
func (s *diskCache) load() error {
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
		if key, isLabel := strings.CutSuffix(name, metadataSuffix); isLabel {
			if e, used := s.find(key, path); e != nil {
				all = append(all, found{e, used})
			}
			return nil
		}
		if _, err := os.Stat(path + metadataSuffix); err != nil || len(name) != hex.EncodedLen(sha256.Size) {
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

// find returns the entry for a metadata file, and removes both files if the data is missing or incomplete.
func (s *diskCache) find(key, name string) (*entry, time.Time) {
	l, err := readMetadata(name)
	file := strings.TrimSuffix(name, metadataSuffix)
	info, missing := os.Stat(file)
	if err == nil && missing == nil && keyOf(l.Path) == key && info.Size() == l.Size && info.Mode().IsRegular() {
		return &entry{key: key, metadata: l, touched: info.ModTime()}, info.ModTime()
	}
	_ = os.Remove(name)
	_ = os.Remove(file)
	return nil, time.Time{}
}

func (s *diskCache) addLocked(e *entry) {
	s.dropLocked(e.key)
	s.entries[e.key] = e
	e.element = s.used.PushFront(e)
	s.growLocked(diskSize(e.metadata.Size))
}

func (s *diskCache) growLocked(n int64) {
	s.size += n
	s.metrics.bytes.Set(float64(s.size))
}

// dropLocked removes an entry from the index. The caller replaces or removes its file.
func (s *diskCache) dropLocked(key string) {
	e := s.entries[key]
	if e == nil {
		return
	}
	delete(s.entries, key)
	s.used.Remove(e.element)
	s.growLocked(-diskSize(e.metadata.Size))
}

// removeLocked deletes an entry from the disk. Its readers still have the file open.
func (s *diskCache) removeLocked(e *entry) {
	s.dropLocked(e.key)
	_ = os.Remove(s.file(e.key) + metadataSuffix) // first: a file without metadata is ignored
	_ = os.Remove(s.file(e.key))
}

// reserveLocked reserves n bytes, and evicts the least recently used files without readers for them. If that cannot free
// enough, it deletes nothing and reports false.
func (s *diskCache) reserveLocked(n int64) bool {
	if need := s.size + n - s.max; need > 0 && !s.evictableLocked(need) {
		return false
	}
	for s.size+n > s.max {
		s.evictLocked()
	}
	s.growLocked(n)
	return true
}

// evictableLocked reports whether files without readers take n bytes.
func (s *diskCache) evictableLocked(n int64) bool {
	for at := s.used.Back(); at != nil && n > 0; at = at.Prev() {
		if e := at.Value.(*entry); e.readers == 0 {
			n -= diskSize(e.metadata.Size)
		}
	}
	return n <= 0
}

// evictLocked deletes the least recently used file without readers, if there is one.
func (s *diskCache) evictLocked() bool {
	for at := s.used.Back(); at != nil; at = at.Prev() {
		if e := at.Value.(*entry); e.readers == 0 {
			s.removeLocked(e)
			s.metrics.evictions.Inc()
			return true
		}
	}
	return false
}

// openLocked opens the file of an entry and counts its reader. An entry whose file is missing or changed is removed.
func (s *diskCache) openLocked(e *entry) (*os.File, error) {
	f, err := os.Open(s.file(e.key))
	if err == nil {
		var info fs.FileInfo
		if info, err = f.Stat(); err == nil && info.Size() != e.metadata.Size {
			err = fmt.Errorf("%s has %d bytes, not %d", f.Name(), info.Size(), e.metadata.Size)
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
	s.used.MoveToFront(e.element)
	if now := s.now(); now.Sub(e.touched) > touchInterval {
		e.touched = now
		_ = os.Chtimes(f.Name(), now, now)
	}
	return f, nil
}

func (s *diskCache) closeEntry(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.readers--
}

// part creates the file for a download.
func (s *diskCache) part(key string) (*os.File, error) {
	dir := filepath.Dir(s.file(key))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	return os.CreateTemp(dir, partPrefix)
}

// commitLocked adds a complete download to the cache.
func (s *diskCache) commitLocked(part string, l metadata) (*entry, error) {
	key := keyOf(l.Path)
	name := s.file(key)
	// The old metadata must not stand beside the new file, not even after a crash.
	if err := os.Remove(name + metadataSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s.dropLocked(key)
	if err := os.Rename(part, name); err != nil {
		return nil, err
	}
	if err := l.write(name + metadataSuffix); err != nil {
		_ = os.Remove(name)
		return nil, err
	}
	e := &entry{key: key, metadata: l, touched: s.now()}
	s.addLocked(e)
	return e, nil
}

// checkedLocked saves that upstream confirmed an entry.
func (s *diskCache) checkedLocked(e *entry, at time.Time) {
	e.metadata.Checked = at
	_ = e.metadata.write(s.file(e.key) + metadataSuffix) // without it the file is revalidated once more after a restart
}
