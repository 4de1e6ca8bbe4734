package watch

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/file/inotify"
	"github.com/bootlab/bootlab/internal/host/file/regular"
)

const (
	// settle is how long a lab file must be left alone before it is read: editors write in several steps.
	settle = 200 * time.Millisecond

	// maxOpen is for how long after the last write a file that is not closed may still be half written.
	maxOpen = 10 * time.Second
)

// A Watcher reports when the lab may have changed: a file was written, or SIGHUP came.
type Watcher struct {
	path    string
	others  func() []string // files that belong to the lab beside the lab file: zone files
	targets []string        // of those of them that are links: a resolv.conf is often one, and its target is what changes
	files   *inotify.Watch
	written map[string]time.Time // files that are open and were written, and when last
	hup     chan os.Signal
	dirs    map[string]os.FileInfo // what is watched
	ofLab   func(name string) bool // whether a file is the lab file, or one of its folder
	log     *slog.Logger
}

// New watches the folder of the lab file, or the lab's folder itself, and the folders of the other files that belong to the
// lab: folders, not files, because editors replace files by renaming.
func New(path string, others func() []string, log *slog.Logger) (*Watcher, error) {
	path, err := filepath.Abs(path) // then all notifications have absolute names
	if err != nil {
		return nil, fmt.Errorf("watch the lab file: %w", err)
	}
	files, err := inotify.Open()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", path, err)
	}
	w := &Watcher{path: path, others: others, files: files, written: map[string]time.Time{}, hup: make(chan os.Signal, 1), log: log}
	signal.Notify(w.hup, syscall.SIGHUP)
	if err := w.watch(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// watch begins to watch the folders that the lab is in now. A folder of other files that cannot be watched is no error: SIGHUP and a
// change of the lab file read them too.
func (w *Watcher) watch() error {
	var labDirs []string
	labDirs, w.ofLab = where(w.path)
	w.dirs = map[string]os.FileInfo{}
	for i, dir := range w.folders(labDirs) {
		info, err := regular.Stat(dir)
		if err == nil {
			err = w.files.Add(dir)
		}
		w.dirs[dir] = info
		switch {
		case err == nil:
		case i < len(labDirs):
			w.dirs[dir] = nil // replaced tries again
			return fmt.Errorf("watch %s: %w", dir, err)
		default:
			w.log.Warn("changes of the files in this folder are noticed at the next reload only", "folder", dir, "err", err)
		}
	}
	return nil
}

// folders adds the folders of other files that exist, and of what those that are links point to.
func (w *Watcher) folders(dirs []string) []string {
	others := w.others()
	w.targets = w.targets[:0]
	for _, name := range others {
		if real, err := regular.EvalSymlinks(name); err == nil && real != name {
			w.targets = append(w.targets, real)
		}
	}
	for _, name := range slices.Concat(others, w.targets) {
		dir := filepath.Dir(name)
		if _, err := regular.Stat(dir); err == nil && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// changed reports whether a file belongs to the lab. It asks the kernel nothing: other files of the folder may be written all the time.
func (w *Watcher) changed(name string) bool {
	return w.ofLab(name) || slices.Contains(w.others(), name) || slices.Contains(w.targets, name)
}

// note takes a notification, and reports whether the lab may have changed. A file that is written is of no use until it is closed;
// one that was moved here, or linked, is whole.
func (w *Watcher) note(e inotify.Event) bool {
	switch {
	case e.What&unix.IN_Q_OVERFLOW != 0:
		w.log.Warn("notifications of changed files were lost: reading the lab, since it may have changed")
	case !w.changed(e.Name):
		return false
	case e.What&unix.IN_MODIFY != 0 || e.What&unix.IN_CREATE != 0 && isNewFile(e.Name):
		w.written[e.Name] = time.Now()
	default:
		delete(w.written, e.Name)
	}
	return true
}

// isNewFile reports whether what was created is a file that somebody will write and close, and no link.
func isNewFile(name string) bool {
	var st unix.Stat_t
	return unix.Lstat(name, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink == 1
}

// halfWritten returns for how long a file of the lab may still be half written; 0: none is.
func (w *Watcher) halfWritten() (left time.Duration) {
	for name, at := range w.written {
		if rest := maxOpen - time.Since(at); rest > 0 {
			left = max(left, rest)
		} else {
			delete(w.written, name)
		}
	}
	return left
}

// where returns the folders in which a change of the lab file shows, and which files there belong to it.
func where(path string) (dirs []string, ofLab func(name string) bool) {
	if info, err := regular.Stat(path); err == nil && info.IsDir() {
		return []string{path}, func(name string) bool { return slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(name)) }
	}
	names := wayTo(path)
	dirs = []string{filepath.Dir(path)}
	if end := filepath.Dir(names[len(names)-1]); end != dirs[0] {
		dirs = append(dirs, end)
	}
	return dirs, func(name string) bool { return slices.Contains(names, name) }
}

// maxLinks is how many links the kernel follows in one path.
const maxLinks = 40

// wayTo returns path, the links on the way to its file, and that file. Of a mounted file Kubernetes changes a link on the way.
func wayTo(path string) (names []string) {
	names = []string{path}
	at, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0 && links < maxLinks; {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		target, err := os.Readlink(next)
		if err != nil { // no link
			at = next
			continue
		}
		links++
		names = append(names, next)
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return append(names, at)
}

// replaced watches again, and returns true, when a watched folder was replaced by another of the same name. The kernel reports
// changes of the old one only.
func (w *Watcher) replaced() bool {
	var dirs []string
	dirs, w.ofLab = where(w.path)
	dirs = w.folders(dirs)
	same := len(dirs) == len(w.dirs)
	for _, dir := range dirs {
		info, err := regular.Stat(dir)
		if err != nil {
			return false // perhaps missing for a moment: tried again
		}
		same = same && os.SameFile(w.dirs[dir], info)
	}
	if same {
		return false
	}
	if err := w.watch(); err != nil {
		w.log.Warn("watch the lab file", "err", err)
	}
	return true
}

func (w *Watcher) close() {
	signal.Stop(w.hup)
	w.files.Close()
}

// lookEvery is how often the lab's folders and the interfaces are checked, beside notifications. To look costs a few system calls,
// and, unlike notifications, misses nothing when the kernel's queue overflows.
const lookEvery = time.Second

// Run calls reload after every change, one at a time, until ctx ends. Only SIGHUP does not wait until what is written was closed. found
// reports whether an interface has its address now; it is called every lookEvery, and when changed has a value: interfaces have changed.
func (w *Watcher) Run(ctx context.Context, reload func(why string), found func() bool, changed <-chan struct{}) error {
	defer w.close()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	timer := time.NewTimer(0)
	if !timer.Stop() {
		<-timer.C
	}
	defer timer.Stop()
	readWhole := func(why string) {
		if left := w.halfWritten(); left > 0 {
			timer.Reset(left)
			return
		}
		reload(why)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.hup:
			reload("SIGHUP")
		case <-look.C:
			if w.replaced() {
				timer.Reset(settle)
			}
			if found() {
				readWhole("an interface has got its address")
			}
		case <-changed:
			if found() {
				readWhole("an interface has got its address")
			}
		case e := <-w.files.Events():
			if w.note(e) {
				timer.Reset(settle)
			}
		case <-timer.C:
			readWhole("the lab file changed")
		}
	}
}
