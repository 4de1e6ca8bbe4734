package daemon

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// What is asked of the kernel about a watched folder.
const notified = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE

// A notification is a change of a file in a watched folder.
type notification struct {
	name string // with the folder's; empty: the queue overflowed
	what uint32 // a mask of inotify(7)
}

// A folderWatch sends the changes of files in folders, in their order.
type folderWatch struct {
	fd      int
	file    *os.File // of fd; it makes reads end when it is closed
	events  chan notification
	closed  chan struct{}
	reading sync.WaitGroup

	mu      sync.Mutex
	folders map[int32]string // by watch descriptor
}

func newFolderWatch() (*folderWatch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify_init: %w", err)
	}
	f := &folderWatch{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), events: make(chan notification), closed: make(chan struct{}), folders: map[int32]string{}}
	f.reading.Go(f.read)
	return f, nil
}

// add watches a folder, in the place of what had its name before.
func (f *folderWatch) add(folder string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	wd, err := unix.InotifyAddWatch(f.fd, folder, notified|unix.IN_ONLYDIR)
	if err != nil {
		return os.NewSyscallError("inotify_add_watch", err)
	}
	for old, name := range f.folders {
		if name == folder && old != int32(wd) {
			_, _ = unix.InotifyRmWatch(f.fd, uint32(old)) // it may be gone already
			delete(f.folders, old)
		}
	}
	f.folders[int32(wd)] = folder
	return nil
}

func (f *folderWatch) close() {
	close(f.closed)
	_ = f.file.Close()
	f.reading.Wait()
}

// read sends notifications until close.
func (f *folderWatch) read() {
	buf := make([]byte, 16<<10)
	for {
		n, err := f.file.Read(buf)
		if err != nil {
			return
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			wd, what := int32(binary.NativeEndian.Uint32(rest)), binary.NativeEndian.Uint32(rest[4:])
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
			name, _, _ := bytes.Cut(rest[unix.SizeofInotifyEvent:end], []byte{0})
			rest = rest[end:]
			e := notification{what: what}
			if what&unix.IN_Q_OVERFLOW == 0 {
				f.mu.Lock()
				folder, watched := f.folders[wd]
				f.mu.Unlock()
				if !watched || len(name) == 0 {
					continue
				}
				e.name = filepath.Join(folder, string(name))
			}
			select {
			case f.events <- e:
			case <-f.closed:
				return
			}
		}
	}
}
