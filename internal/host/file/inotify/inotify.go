package inotify

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

// An Event is a change of a file in a watched folder.
type Event struct {
	Name string // with the folder's; empty: the queue overflowed
	What uint32 // a mask of inotify(7)
}

// A Watch sends the changes of files in folders, in their order.
type Watch struct {
	fd      int
	file    *os.File // of fd; it makes reads end when it is closed
	events  chan Event
	closed  chan struct{}
	reading sync.WaitGroup

	mu      sync.Mutex
	folders map[int32]string // by watch descriptor
}

// Open returns a watch of no folder yet. The caller closes it.
func Open() (*Watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify_init: %w", err)
	}
	w := &Watch{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), events: make(chan Event), closed: make(chan struct{}), folders: map[int32]string{}}
	w.reading.Go(w.read)
	return w, nil
}

// Add watches a folder, in the place of what had its name before.
func (w *Watch) Add(folder string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	wd, err := unix.InotifyAddWatch(w.fd, folder, notified|unix.IN_ONLYDIR)
	if err != nil {
		return os.NewSyscallError("inotify_add_watch", err)
	}
	for old, name := range w.folders {
		if name == folder && old != int32(wd) {
			_, _ = unix.InotifyRmWatch(w.fd, uint32(old)) // it may be gone already
			delete(w.folders, old)
		}
	}
	w.folders[int32(wd)] = folder
	return nil
}

// Events is where changes are sent; it is never closed. Until one is received, the kernel queues those that follow.
func (w *Watch) Events() <-chan Event { return w.events }

// Close ends the watch.
func (w *Watch) Close() {
	close(w.closed)
	_ = w.file.Close()
	w.reading.Wait()
}

// read sends notifications until Close.
func (w *Watch) read() {
	buf := make([]byte, 16<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			wd, what := int32(binary.NativeEndian.Uint32(rest)), binary.NativeEndian.Uint32(rest[4:])
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
			name, _, _ := bytes.Cut(rest[unix.SizeofInotifyEvent:end], []byte{0})
			rest = rest[end:]
			e := Event{What: what}
			if what&unix.IN_Q_OVERFLOW == 0 {
				w.mu.Lock()
				folder, watched := w.folders[wd]
				w.mu.Unlock()
				if !watched || len(name) == 0 {
					continue
				}
				e.Name = filepath.Join(folder, string(name))
			}
			select {
			case w.events <- e:
			case <-w.closed:
				return
			}
		}
	}
}
