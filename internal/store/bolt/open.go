package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// lockWait is how long Open waits for another process to let go of the file, as at a restart.
const lockWait = time.Second

// mapSize is how much of the file bbolt maps at once. As long as the file is smaller, no transaction waits until those who
// read have ended. It is address space, not memory.
const mapSize = 64 << 20

// growth is by how much the file grows; without it, mapSize would make it grow by 16 MiB.
const growth = 256 << 10

// Open opens the store in that file and makes the file, readable by its owner only, if it is not there. What a journal
// beside it knows more is brought into it. The error names who holds the file if somebody does, and says what to do if the
// file or the journal is damaged.
func Open(path string) (*Store, error) { return openWith(path, defaultLimits(), openDisk) }

func openWith(path string, l limits, disks func(string) (disk, error)) (*Store, error) {
	if err := examine(path); err != nil {
		return nil, explain(path, err)
	}
	db, err := open(path, &bbolt.Options{
		Timeout:      lockWait,
		FreelistType: bbolt.FreelistMapType,
		// The list of free pages is found again at the next open, so that a commit need not write it.
		NoFreelistSync:  true,
		InitialMmapSize: mapSize,
	})
	if err != nil {
		return nil, explain(path, err)
	}
	db.AllocSize = growth
	s, err := start(db, l, disks)
	if err != nil {
		return nil, errors.Join(explain(path, err), db.Close())
	}
	return s, nil
}

// start makes a store of an open database and the journal beside it.
func start(db *bbolt.DB, l limits, disks func(string) (disk, error)) (*Store, error) {
	done, err := prepare(db)
	if err != nil {
		return nil, err
	}
	old, err := recoverJournal(db.Path(), done)
	if err != nil {
		return nil, err
	}
	file, err := os.Stat(db.Path())
	if err != nil {
		return nil, err
	}
	s := &Store{
		db: db, file: file, limits: l, frozen: old,
		journal: journal{path: db.Path(), open: disks, epoch: done},
		kick:    make(chan struct{}, 1),
		quit:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	s.queue.init()
	if old != nil {
		s.journal.epoch = old.epoch
	}
	s.journal.next()
	s.live = newLayer(s.journal.epoch)
	if err = s.finish(settleStep); err == nil {
		err = s.journal.remove()
	}
	if err != nil {
		// A full disk, most likely. What was learned can be read all the same, and the next commit tries again.
		s.journal.broken = fmt.Errorf("the old journal could not be copied to the database: %w", err)
		s.wakeCheckpointer()
	}
	s.close = sync.OnceValue(s.shut)
	go s.checkpointer()
	return s, nil
}

// prepare makes the buckets of a new database, and of one that an older bootlab wrote, and returns the last epoch that is
// wholly in the database. The first one is drawn by lot, so that no journal is taken for another database's.
func prepare(db *bbolt.DB) (epoch uint64, err error) {
	err = db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(journalBucket); b != nil && tx.Bucket(bucketName) != nil {
			if v := b.Get(epochKey); len(v) == 8 {
				epoch = binary.BigEndian.Uint64(v)
			}
		}
		return nil
	})
	if err != nil || epoch != 0 {
		return epoch, err
	}
	epoch = 1 + rand.Uint64N(1<<62)
	return epoch, db.Update(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{bucketName, journalBucket} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return putEpoch(tx, epoch)
	})
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
	case errors.Is(err, errJournal):
		return fmt.Errorf("open store %s: %w: put back a copy of the database with its journal, or move the files %s-journal.* away "+
			"and start again: the changes of the last seconds are then lost", path, err, path)
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
