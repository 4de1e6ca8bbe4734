package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a lab file must be left alone before it is read: editors write in several steps.
const settle = 200 * time.Millisecond

// A watcher says when the lab may have changed: a file of it was written, or SIGHUP came.
type watcher struct {
	files   *fsnotify.Watcher
	hup     chan os.Signal
	dirs    []string
	changed func(name string) bool // whether a file belongs to the lab
	log     *slog.Logger
}

// newWatcher watches the folder of the lab file, or the lab's folder itself: folders, not files, because editors replace
// files by renaming.
func newWatcher(path string, log *slog.Logger) (*watcher, error) {
	files, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", path, err)
	}
	w := &watcher{files: files, hup: make(chan os.Signal, 1), log: log}
	w.watch(path)
	signal.Notify(w.hup, syscall.SIGHUP)
	for _, dir := range w.dirs {
		if err := files.Add(dir); err != nil {
			w.close()
			return nil, fmt.Errorf("watch %s: %w", dir, err)
		}
	}
	return w, nil
}

func (w *watcher) watch(path string) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		w.dirs = []string{path}
		w.changed = func(name string) bool { return slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(name)) }
		return
	}
	// A link, as Kubernetes makes for a mounted file, changes where it points: watch both ends.
	w.dirs = []string{filepath.Dir(path)}
	if real, err := filepath.EvalSymlinks(path); err == nil && filepath.Dir(real) != w.dirs[0] {
		w.dirs = append(w.dirs, filepath.Dir(real))
		w.changed = func(string) bool { return true }
		return
	}
	base := filepath.Base(path)
	w.changed = func(name string) bool { return filepath.Base(name) == base }
}

func (w *watcher) close() {
	signal.Stop(w.hup)
	_ = w.files.Close()
}

// lookEvery is how often interfaces are looked at whose address the lab does not know yet.
const lookEvery = 2 * time.Second

// run calls reload after every change, one at a time, until ctx ends. found reports whether an address that the lab in
// force lacks is there now.
func (w *watcher) run(ctx context.Context, reload func(why string), found func() bool) error {
	defer w.close()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	timer := time.NewTimer(0)
	if !timer.Stop() {
		<-timer.C
	}
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.hup:
			reload("SIGHUP")
		case <-look.C:
			if found() {
				reload("an interface has its address now")
			}
		case e := <-w.files.Events:
			if w.changed(e.Name) && e.Op != fsnotify.Chmod {
				timer.Reset(settle)
			}
		case err := <-w.files.Errors:
			// Events were lost: read the lab, since it may have changed.
			w.log.Warn("watching the lab file", "err", err)
			timer.Reset(settle)
		case <-timer.C:
			reload("the lab file changed")
		}
	}
}
