// Package freshfile keeps what was read from files, such as certificates, and reads a file again when it changes.
package freshfile

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
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

func (c *Cache[K, V]) look(key K) (v V, known bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.values[key]
	if f == nil {
		f = &value[V]{}
		c.values[key] = f
	}
	if time.Since(f.checked) >= CheckEvery {
		f.checked = time.Now()
		c.refresh(key, f)
	}
	return f.v, f.known, f.err
}

// refresh reads the files of a key if they changed since, or could not be read then.
func (c *Cache[K, V]) refresh(key K, f *value[V]) {
	files := c.files(key)
	stamp := stampOf(files)
	changed := stamp != f.stamp
	if f.known && f.err == nil && !changed {
		return
	}
	f.stamp = stamp
	var v V
	if v, f.err = c.read(key); f.err == nil {
		f.v, f.known = v, true
	} else if f.known && changed {
		c.log.Warn("file cannot be read any more: what was read before is used", "file", strings.Join(files, ", "), "err", f.err)
	}
}

// stampOf changes when a file does.
func stampOf(files []string) string {
	var b strings.Builder
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			fmt.Fprint(&b, info.ModTime().UnixNano(), " ", info.Size())
		}
		b.WriteByte(';')
	}
	return b.String()
}
