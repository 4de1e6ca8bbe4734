package tftpd

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// A fileCache holds the files that a crowd fetches, each once, for as long as somebody does. Two hundred machines that are switched on
// together want the same megabyte: read for each of them alone, it would be out of the CPU's cache whenever it is sent.
type fileCache struct {
	mu    sync.Mutex
	files map[fileID]*cachedFile
	used  int64
}

// What a fileCache holds at most, of one file and of all.
const (
	fileCacheMaxFile = 4 << 20
	fileCacheMax     = 12 << 20
)

// A fileID changes whenever a file does.
type fileID struct {
	device, inode uint64
	size          int64
	changed       syscall.Timespec
}

// A shared is the content of one file. users and its place in the fileCache belong to the fileCache's mutex.
type cachedFile struct {
	users int
	load  sync.Once
	bytes []byte // nil: could not be read
}

// share returns the content of a file from memory, and closes the file; or the file itself, where it is too large, there is no room, or it
// cannot be read, which is for the transfer to find out.
func (c *fileCache) share(f *os.File, info fs.FileInfo) content {
	plain := content{ReaderAt: f, size: info.Size(), close: f.Close}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Size() > fileCacheMaxFile {
		return plain
	}
	id := fileID{uint64(st.Dev), st.Ino, st.Size, st.Mtim}
	s := c.take(id)
	if s == nil {
		return plain
	}
	s.load.Do(func() {
		b := make([]byte, id.size)
		if _, err := io.ReadFull(io.NewSectionReader(f, 0, id.size), b); err == nil {
			s.bytes = b
		}
	})
	if s.bytes == nil {
		c.put(id, s)
		return plain
	}
	_ = f.Close()
	return content{ReaderAt: bytes.NewReader(s.bytes), size: id.size, inMemory: true, close: func() error { c.put(id, s); return nil }}
}

// take returns the place of a file, or nil if there is no room for it.
func (c *fileCache) take(id fileID) *cachedFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.files[id]
	if s == nil {
		if c.used+id.size > fileCacheMax {
			return nil
		}
		s = &cachedFile{}
		c.files[id] = s
		c.used += id.size
	}
	s.users++
	return s
}

// put says that a user needs it no more.
func (c *fileCache) put(id fileID, s *cachedFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(c.files, id)
		c.used -= id.size
	}
}
