package bolt

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// lockWait is how long Open waits for another process to let go of the file, as at a restart.
const lockWait = time.Second

// Open opens the store in that file and makes the file, readable by its owner only, if it is not there. The error names
// who holds the file if somebody does, and says what to do if the file is damaged.
func Open(path string) (*Store, error) {
	if err := examine(path); err != nil {
		return nil, explain(path, err)
	}
	db, err := open(path, &bbolt.Options{
		Timeout:      lockWait,
		FreelistType: bbolt.FreelistMapType,
		// The list of free pages is found again at the next open, so that a commit need not write it.
		NoFreelistSync: true,
	})
	if err != nil {
		return nil, explain(path, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucketName)
		return err
	})
	if err != nil {
		return nil, errors.Join(explain(path, err), db.Close())
	}
	return start(db), nil
}

// errDamaged marks what bbolt stumbled over.
var errDamaged = errors.New("the file is damaged")

// open is bbolt.Open, which panics on some damaged files, and faults on others because it maps them into memory.
func open(path string, o *bbolt.Options) (db *bbolt.DB, err error) {
	defer catch(&err)()
	return bbolt.Open(path, 0o600, o)
}

// catch turns a panic or a fault of the calling goroutine into errDamaged.
func catch(err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if p := recover(); p != nil {
			*err = fmt.Errorf("%w: %v", errDamaged, p)
		}
	}
}

// examine reads the whole file once before it is opened for writing. bbolt looks for free pages in a goroutine of its own,
// where nobody could catch a panic; what would make it panic has to be found first, here.
func examine(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	db, err := open(path, &bbolt.Options{Timeout: lockWait, ReadOnly: true})
	if err != nil {
		return err
	}
	defer db.Close()
	return walk(db, info.Size())
}

func walk(db *bbolt.DB, size int64) (err error) {
	defer catch(&err)()
	tx, err := db.Begin(false)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if tx.Size() > size {
		return fmt.Errorf("%w: it has %d bytes and should have %d", errDamaged, size, tx.Size())
	}
	return tx.ForEach(func(name []byte, b *bbolt.Bucket) error { return walkBucket(string(name), b) })
}

func walkBucket(name string, b *bbolt.Bucket) error {
	last := ""
	return b.ForEach(func(k, v []byte) error {
		if v == nil {
			return fmt.Errorf("%w: bucket %q holds a bucket", errDamaged, name)
		}
		if last != "" && string(k) <= last {
			return fmt.Errorf("%w: key %q follows %q", errDamaged, k, last)
		}
		last = string(k)
		return nil
	})
}

// explain says what can be done about err.
func explain(path string, err error) error {
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("open store %s: in use by %s: stop it, or give this one its own appliance.state: %w", path, holder(path), err)
	case errors.Is(err, errDamaged), errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum),
		errors.Is(err, berrors.ErrVersionMismatch):
		return fmt.Errorf("open store %s: %w: put back a copy, or move the file away and start again: "+
			"leases and install states are then learned anew", path, err)
	}
	return fmt.Errorf("open store %s: %w", path, err)
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
