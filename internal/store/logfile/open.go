package logfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// lockWait is how long Open waits for another process to release the file, as at a restart.
const lockWait = time.Second

// A config is what tests replace.
type config struct {
	open        func(path string) (disk, error)
	compactFrom int64 // bytes: a smaller file is not compacted
	// retry is the wait after a compaction that failed; retryBroken that of a log that takes no records.
	retry, retryBroken time.Duration
}

const compactFrom = 4 << 20

// Open opens the store in that file, and creates the file, readable by its owner only, if it does not exist. A damaged file
// opens with its whole records, and Open returns the losses. If the file is locked, the error names the process.
func Open(path string) (*Store, []Loss, error) {
	return openWith(path, config{open: openFile, compactFrom: compactFrom, retry: time.Minute, retryBroken: time.Second})
}

func openWith(path string, cfg config) (*Store, []Loss, error) {
	d, err := openLocked(path, cfg.open)
	if err != nil {
		return nil, nil, fmt.Errorf("open state file %s: %w", path, err)
	}
	l, losses, err := load(d)
	if err == nil {
		err = syncFolder(filepath.Dir(path))
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open state file %s: %w", path, err), d.Close())
	}
	_ = os.Remove(path + ".new") // left by a crash during a compaction
	s := &Store{path: path, cfg: cfg, writing: make(chan struct{}, 1), stop: make(chan struct{}), log: l}
	s.close = sync.OnceValue(s.shut)
	return s, losses, nil
}

// openLocked opens the file and locks it against other processes.
func openLocked(path string, open func(string) (disk, error)) (disk, error) {
	for until := time.Now().Add(lockWait); ; time.Sleep(lockWait / 50) {
		d, err := open(path)
		if err != nil {
			return nil, err
		}
		err = lock(d)
		now, statErr := os.Stat(path)
		switch {
		case err == nil && statErr == nil && (&log{disk: d}).is(now):
			return d, nil
		case err != nil && time.Now().After(until):
			return nil, errors.Join(fmt.Errorf("in use by %s: stop it, or give this one its own appliance.state: %w", holder(path), err), d.Close())
		}
		_ = d.Close() // locked, or replaced by a compaction meanwhile
	}
}

func lock(d disk) error {
	return os.NewSyscallError("flock", syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
}

// holder names the process that has locked the file.
func holder(path string) string {
	const unknown = "another process, most likely another bootlab"
	info, err := os.Stat(path)
	if err != nil {
		return unknown
	}
	inode := ":" + strconv.FormatUint(info.Sys().(*syscall.Stat_t).Ino, 10)
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return unknown
	}
	for line := range strings.Lines(string(locks)) {
		// 1: FLOCK  ADVISORY  WRITE 4711 fd:00:131073 0 EOF
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || !strings.HasSuffix(f[5], inode) {
			continue
		}
		comm, _ := os.ReadFile("/proc/" + f[4] + "/comm")
		return fmt.Sprintf("process %s (%s), most likely another bootlab", f[4], strings.TrimSpace(string(comm)))
	}
	return unknown
}
