package regular

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Wait is how long an operation on a file may take: a disk that has to spin up takes as long, a network file system whose server is gone
// takes for ever.
const Wait = 3 * time.Second

const (
	// maxHanging bounds the operations that hang at a time, each of which holds a thread; Go ends a program that has 10,000.
	maxHanging = 256
	// maxHangingInFolder is the same of one folder: the others of its files are likely to hang too.
	maxHangingInFolder = 4
)

// ErrNoAnswer is matched by the error of a file that does not answer. It matches os.ErrDeadlineExceeded.
var ErrNoAnswer = fmt.Errorf("the file system does not answer: %w", os.ErrDeadlineExceeded)

// hanging are the operations of this process that did not end in time, by path.
var hanging = struct {
	mu      sync.Mutex
	paths   map[string]int
	folders map[string]int
	all     int
}{paths: map[string]int{}, folders: map[string]int{}}

// Within returns what op returns, which works on the file of that path, or ErrNoAnswer if it does not return in time. op goes on then: the kernel
// cannot be made to give up. While it does, the path is not tried again, so that a file which hangs costs one wait and one thread. op runs on
// another thread than the caller: privilege.User.As belongs inside of op.
func Within[T any](path string, wait time.Duration, op func() (T, error)) (result T, err error) {
	if hangs(path) {
		return result, &os.PathError{Op: "read", Path: path, Err: ErrNoAnswer}
	}
	type outcome struct {
		v   T
		err error
	}
	done := make(chan outcome, 1)
	abandoned := false // guarded by hanging.mu
	go func() {
		v, err := op()
		hanging.mu.Lock()
		defer hanging.mu.Unlock()
		done <- outcome{v, err}
		if abandoned {
			countHangingLocked(path, -1)
		}
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case o := <-done:
		return o.v, o.err
	case <-timer.C:
	}
	hanging.mu.Lock()
	defer hanging.mu.Unlock()
	select {
	case o := <-done:
		return o.v, o.err
	default:
		abandoned = true
		countHangingLocked(path, 1)
		return result, &os.PathError{Op: "read", Path: path, Err: ErrNoAnswer}
	}
}

// hangs reports whether a file is not to be tried now.
func hangs(path string) bool {
	hanging.mu.Lock()
	defer hanging.mu.Unlock()
	return hanging.paths[path] > 0 || hanging.folders[filepath.Dir(path)] >= maxHangingInFolder || hanging.all >= maxHanging
}

func countHangingLocked(path string, n int) {
	hanging.all += n
	for count, key := range map[*map[string]int]string{&hanging.paths: path, &hanging.folders: filepath.Dir(path)} {
		if (*count)[key] += n; (*count)[key] == 0 {
			delete(*count, key)
		}
	}
}

// Stat is os.Stat within Wait.
func Stat(path string) (os.FileInfo, error) {
	return Within(path, Wait, func() (os.FileInfo, error) { return os.Stat(path) })
}

// Missing reports whether nothing is at a path. What cannot be known is not missing.
func Missing(path string) bool {
	_, err := Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// ReadDir is os.ReadDir within Wait.
func ReadDir(path string) ([]os.DirEntry, error) {
	return Within(path, Wait, func() ([]os.DirEntry, error) { return os.ReadDir(path) })
}

// EvalSymlinks is filepath.EvalSymlinks within Wait.
func EvalSymlinks(path string) (string, error) {
	return Within(path, Wait, func() (string, error) { return filepath.EvalSymlinks(path) })
}
