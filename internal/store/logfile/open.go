package logfile

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
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
	open        func(path string, flag int) (disk, error)
	compactFrom int64 // bytes: a smaller file is not compacted
	// retry is the wait after a compaction that failed; retryBroken that of a log that takes no records.
	retry, retryBroken time.Duration
	tick               time.Duration // between marks, see Store.tick
}

const compactFrom = 4 << 20

// Open opens the store in that file, and creates the file, readable by its owner only, if it does not exist. A damaged file is
// renamed: its readable records are copied to a new file. Open returns the damage it found, Losses what is lost. If the disk
// takes no writes, the store opens and every commit fails until the disk does. If the file is locked, the error names the process.
func Open(path string) (*Store, []Loss, error) {
	return openWith(path, config{open: openFile, compactFrom: compactFrom, retry: time.Minute, retryBroken: time.Second, tick: time.Second})
}

func openWith(path string, cfg config) (*Store, []Loss, error) {
	l, damage, err := openLog(path, cfg.open)
	if err != nil {
		return nil, nil, fmt.Errorf("open state file %s: %w", path, err)
	}
	_ = os.Remove(path + ".new") // left by a crash during a compaction
	s := &Store{path: path, cfg: cfg, writing: make(chan struct{}, 1), stop: make(chan struct{}), log: l}
	s.close = sync.OnceValue(s.shut)
	if l.broken != nil {
		s.health.failed(l.broken)
		if err := s.compact(func() bool { return true }); err != nil || s.log.broken != nil {
			s.compactInBackground() // repeats it until it succeeds
		} else {
			s.health.healed()
		}
	}
	s.background.Go(s.keepMark)
	return s, damage, nil
}

// openLog opens the file, locks it against other processes, and reads it.
func openLog(path string, open func(string, int) (disk, error)) (*log, []Loss, error) {
	d, err := openLocked(path, open)
	if err != nil {
		return nil, nil, err
	}
	l, damage, err := load(d)
	if err != nil {
		return nil, nil, errors.Join(err, d.Close())
	}
	if err := syncFolder(filepath.Dir(path)); l.broken == nil { // it may have been created by a process that was killed before this
		l.broken = err
	}
	if _, ok := d.(readOnly); ok {
		l.broken = fmt.Errorf("open for writing: %w", syscall.EROFS)
	}
	now := time.Now()
	for i := range damage {
		damage[i].Found = now
	}
	for i := range l.found {
		l.found[i].Found = now
	}
	return l, damage, nil
}

func openLocked(path string, open func(string, int) (disk, error)) (disk, error) {
	for until := time.Now().Add(lockWait); ; time.Sleep(lockWait / 50) {
		d, err := open(path, 0)
		if errors.Is(err, fs.ErrNotExist) {
			d, err = createFile(path, open)
		}
		if err != nil {
			return nil, err
		}
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
			return nil, errors.Join(errors.New("it is no regular file: remove it, or set appliance.state to another folder"), d.Close())
		}
		err = lock(d)
		now, statErr := os.Stat(path)
		switch {
		case err == nil && statErr == nil && (&log{disk: d}).is(now):
			return d, nil
		case err != nil && !errors.Is(err, syscall.EWOULDBLOCK):
			return nil, errors.Join(fmt.Errorf("its file system locks no files: put appliance.state on another one, or on NFS with a lock service: %w", err), d.Close())
		case err != nil && time.Now().After(until):
			return nil, errors.Join(fmt.Errorf("in use by %s: stop it, wait until it has ended if it is stopping, or give this one its own appliance.state: %w", holder(path), err), d.Close())
		}
		_ = d.Close() // locked, or replaced by a compaction meanwhile
	}
}

// createFile creates an empty log under another name first, so that a file that is not whole was damaged. Two processes may do
// so at once: one of them finds the other's file in the next round.
func createFile(path string, open func(string, int) (disk, error)) (disk, error) {
	next := path + ".new"
	d, err := open(next, os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if lock(d) != nil {
		return d, nil
	}
	now, err := os.Stat(next)
	if err != nil || !(&log{disk: d}).is(now) {
		return d, nil
	}
	if err = d.Truncate(0); err == nil {
		_, err = create(d)
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close(), os.Remove(next))
	}
	return d, nil
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
	// A line may be missed: the kernel shows the list in parts, and locks before it that end meanwhile move it.
	for range 10 {
		if pid := lockedBy(info.Sys().(*syscall.Stat_t).Ino); pid != "" {
			comm, _ := os.ReadFile("/proc/" + pid + "/comm")
			return fmt.Sprintf("process %s (%s), most likely another bootlab", pid, strings.TrimSpace(string(comm)))
		}
	}
	return unknown
}

// lockedBy returns the process that has locked a file, as /proc/locks shows it; empty: none.
func lockedBy(inode uint64) (pid string) {
	f, err := os.Open("/proc/locks")
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	want := ":" + strconv.FormatUint(inode, 10)
	lines := bufio.NewScanner(bufio.NewReaderSize(f, 64<<10)) // as few parts as possible
	for lines.Scan() {
		// 1: FLOCK  ADVISORY  WRITE 4711 fd:00:131073 0 EOF
		f := strings.Fields(lines.Text())
		if len(f) >= 6 && f[1] == "FLOCK" && strings.HasSuffix(f[5], want) {
			return f[4]
		}
	}
	return ""
}
