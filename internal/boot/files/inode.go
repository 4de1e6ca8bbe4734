package files

import (
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/host/file/regular"
)

const (
	// settled is how long the names of a file must be unchanged for what was collected after that to hold: more than the granularity
	// of a file system's clock.
	settled = time.Second
	// collectEvery bounds how long a folder that was renamed, which leaves no trace in its files, stays unnoticed.
	collectEvery = time.Minute
)

// A fileID names a file, whatever its names are.
type fileID struct{ dev, ino uint64 }

// secretInodes are the files that are secret, by whatever name they are opened: a hard link has another name, and a symbolic link may lead
// elsewhere when it is opened than when it was checked. The zero value is ready.
type secretInodes struct {
	mu        sync.Mutex
	collected time.Time
	ids       map[fileID]struct{}
}

// leaksSecret reports whether an open file, which has links or was opened through one, is a secret of the lab. To add or to remove a name
// of a file changes its ctime, so that a file with an older one is looked up in what was collected before.
func (f *Files) leaksSecret(info fs.FileInfo) bool {
	id, changed, ok := identify(info)
	if !ok {
		return true
	}
	s := &f.inodes
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); changed.After(s.collected.Add(-settled)) || now.Sub(s.collected) > collectEvery || now.Before(s.collected) {
		s.collected, s.ids = now, f.collect()
	}
	_, secret := s.ids[id]
	return secret
}

func identify(info fs.FileInfo) (id fileID, changed time.Time, ok bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return id, changed, false
	}
	return fileID{uint64(s.Dev), s.Ino}, time.Unix(s.Ctim.Unix()), true
}

// hadLinks reports whether a file, which was opened after began, may have had several names when it was opened. The one that it was
// opened by may be gone by now: that changes its ctime.
func hadLinks(info fs.FileInfo, began time.Time) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return !ok || s.Nlink > 1 || time.Unix(s.Ctim.Unix()).After(began.Add(-settled))
}

// collect finds all secret files that exist: those that the lab names, those that have the form of a document name, and those outside the
// files folder. Their names do not matter.
func (f *Files) collect() map[fileID]struct{} {
	ids := map[fileID]struct{}{}
	f.eachSecret(func(_ string, info fs.FileInfo) {
		if id, _, ok := identify(info); ok {
			ids[id] = struct{}{}
		}
	})
	return ids
}

// eachSecret calls found for the secret files that exist, by their absolute paths.
func (f *Files) eachSecret(found func(file string, info fs.FileInfo)) {
	add := func(file string) {
		if info, err := regular.Stat(file); err == nil {
			found(file, info)
		}
	}
	for _, name := range f.secretNames {
		add(filepath.Join(f.dir, filepath.FromSlash(name)))
	}
	for _, file := range f.outside {
		add(file)
	}
	for _, dir := range f.patternDirs() {
		root, err := regular.EvalSymlinks(filepath.Join(f.dir, filepath.FromSlash(dir)))
		if err != nil {
			continue
		}
		// What cannot be read cannot be served either.
		_ = filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return nil
			}
			if below, err := filepath.Rel(root, file); err == nil && f.isSecret(path.Join(dir, filepath.ToSlash(below))) {
				add(file)
			}
			return nil
		})
	}
}

// patternDirs returns the folders that hold all files whose names have the form of a document name, without those inside another.
func (f *Files) patternDirs() (dirs []string) {
	for _, p := range f.patterns {
		dirs = append(dirs, p.dir)
	}
	var out []string
	for i, dir := range dirs {
		inside := false
		for j, other := range dirs {
			inside = inside || other == dir && j < i || other != dir && (other == "." || strings.HasPrefix(dir, other+"/"))
		}
		if !inside {
			out = append(out, dir)
		}
	}
	return out
}
