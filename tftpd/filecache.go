package tftpd

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// A fileCache holds files that several transfers send, each once, as long as one of them does. Two hundred machines that are
// switched on together fetch the same megabyte: read by each transfer for itself, it would be out of the CPU's cache whenever
// it is sent.
type fileCache struct {
	mu    sync.Mutex
	files map[fileID]*cachedFile
	used  int64 // bytes
}

// The largest file that is cached, and the size of the cache.
const (
	maxCachedFile = 4 << 20
	maxCacheBytes = 12 << 20
)

// A fileID changes whenever the file does.
type fileID struct {
	device, inode uint64
	size          int64
	changed       syscall.Timespec
}

// A cachedFile is the content of one file. users is guarded by the cache's mutex.
type cachedFile struct {
	users int
	load  sync.Once
	bytes []byte // nil: it could not be read
}

// open returns the content of a file from memory and closes the file; or the file itself, where it is too large, the cache is
// full, or it cannot be read, which the transfer will report.
func (c *fileCache) open(f *os.File, info fs.FileInfo) content {
	uncached := content{ReaderAt: f, size: info.Size(), close: f.Close}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Size() > maxCachedFile {
		return uncached
	}
	id := fileID{uint64(st.Dev), st.Ino, st.Size, st.Mtim}
	cached := c.acquire(id)
	if cached == nil {
		return uncached
	}
	cached.load.Do(func() {
		b := make([]byte, id.size)
		if _, err := io.ReadFull(io.NewSectionReader(f, 0, id.size), b); err == nil {
			cached.bytes = b
		}
	})
	if cached.bytes == nil {
		c.release(id, cached)
		return uncached
	}
	_ = f.Close()
	return content{ReaderAt: bytes.NewReader(cached.bytes), size: id.size, inMemory: true, close: func() error { c.release(id, cached); return nil }}
}

// acquire adds a user to a file's entry, and the entry if it is missing. It returns nil if there is no room for it.
func (c *fileCache) acquire(id fileID) *cachedFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.files[id]
	if f == nil {
		if c.used+id.size > maxCacheBytes {
			return nil
		}
		f = &cachedFile{}
		c.files[id] = f
		c.used += id.size
	}
	f.users++
	return f
}

// release removes a user, and the entry with its last user.
func (c *fileCache) release(id fileID, f *cachedFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.users--; f.users == 0 {
		delete(c.files, id)
		c.used -= id.size
	}
}
