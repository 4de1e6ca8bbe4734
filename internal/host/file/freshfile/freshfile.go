// Package freshfile keeps what was read from files, such as certificates, and reads a file again when it changes.
package freshfile

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/host/file/regular"
)

// CheckEvery is how often a file is looked at.
const CheckEvery = time.Second

// A Cache holds values that are made from files. Its methods may be called by several goroutines. No value is ever dropped:
// keys come from the lab file, and few of them change.
type Cache[K comparable, V any] struct {
	log   *slog.Logger
	files func(K) []string
	read  func(K) (V, error)

	mu     sync.Mutex
	values map[K]*value[V]
}

// A value is what was read last.
type value[V any] struct {
	reading sync.Mutex // held by the goroutine that looks at the files
	last    atomic.Pointer[result[V]]
}

// A result is what the files of a key gave. It does not change.
type result[V any] struct {
	checked time.Time
	stamp   string // of the files when they were read
	v       V
	known   bool  // v was read
	err     error // of the last read
}

// New returns an empty cache. files are those that the value of a key is made from, which need not exist; read makes it. Files that
// cannot be read any more are logged.
func New[K comparable, V any](log *slog.Logger, files func(K) []string, read func(K) (V, error)) *Cache[K, V] {
	return &Cache[K, V]{log: log, files: files, read: read, values: make(map[K]*value[V])}
}

// Get returns the value of a key. If its files cannot be read any more, as when they are being replaced, it is the last one.
func (c *Cache[K, V]) Get(key K) (V, error) {
	v, known, err := c.look(key)
	if known {
		return v, nil
	}
	return v, err
}

// Now returns the value of a key, and an error if its files cannot be read now, though Get may return the last value.
func (c *Cache[K, V]) Now(key K) (V, error) {
	v, _, err := c.look(key)
	return v, err
}

// look returns what is known of a key. Where there is a value, one caller looks at the files and no other waits for that: a file system
// may take long.
func (c *Cache[K, V]) look(key K) (v V, known bool, err error) {
	f := c.value(key)
	last := f.last.Load()
	if last == nil || !last.fresh() {
		if last != nil && last.known && !f.reading.TryLock() {
			return last.v, true, last.err
		} else if last == nil || !last.known {
			f.reading.Lock()
		}
		defer f.reading.Unlock()
		if last = f.last.Load(); last == nil || !last.fresh() {
			last = c.refresh(key, last)
			f.last.Store(last)
		}
	}
	return last.v, last.known, last.err
}

func (r *result[V]) fresh() bool { return time.Since(r.checked) < CheckEvery }

func (c *Cache[K, V]) value(key K) *value[V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.values[key]
	if f == nil {
		f = &value[V]{}
		c.values[key] = f
	}
	return f
}

// refresh reads the files of a key if they changed since the last result, or could not be read then; nil: there is none.
func (c *Cache[K, V]) refresh(key K, last *result[V]) *result[V] {
	var next result[V]
	if last != nil {
		next = *last
	}
	files := c.files(key)
	stamp := stampOf(files)
	changed := stamp != next.stamp
	if !next.known || next.err != nil || changed {
		next.stamp = stamp
		var v V
		if v, next.err = c.read(key); next.err == nil {
			next.v, next.known = v, true
		} else if next.known && changed {
			c.log.Warn("cannot read file again: using its previous content", "file", strings.Join(files, ", "), "err", next.err)
		}
	}
	next.checked = time.Now()
	return &next
}

// stampOf changes when a file does.
func stampOf(files []string) string {
	var b strings.Builder
	for _, file := range files {
		if info, err := regular.Stat(file); err == nil {
			fmt.Fprint(&b, info.ModTime().UnixNano(), " ", info.Size())
		}
		b.WriteByte(';')
	}
	return b.String()
}
