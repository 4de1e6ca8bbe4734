package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

const (
	// minGrowth and maxGrowth bound how far a journal file is filled with zeros ahead of its records. A sync of bytes
	// that are there already need not wait for the file system's own journal; it takes two thirds of the processor time
	// of one that makes the file longer.
	minGrowth = 64 << 10
	maxGrowth = 512 << 10
)

// A disk is an open journal file.
type disk interface {
	WriteAt(b []byte, at int64) (int, error)
	Truncate(size int64) error
	Datasync() error
	Close() error
}

// A journal appends records to two files in turn: epoch e is in file e mod 2. An epoch begins when the one before the last
// is in the database, so its file may be written over. One goroutine at a time uses it: who holds Store.writing.
type journal struct {
	path   string // of the database
	open   func(path string) (disk, error)
	files  [2]journalFile
	epoch  uint64
	seq    uint64 // of the last record
	before uint64 // last sequence number of the epoch before
	at     int64  // where the next record goes; 0: the header comes first
	zeros  []byte
	// broken is why this epoch takes no more records: the kernel may have thrown away what it could not write, and a
	// second sync of the same pages would succeed all the same.
	broken error
}

type journalFile struct {
	disk disk  // nil: not open
	size int64 // up to here bytes are in place
}

func journalPath(db string, slot int) string { return db + "-journal." + strconv.Itoa(slot) }

// next begins the next epoch.
func (j *journal) next() {
	j.epoch, j.before, j.seq, j.at = j.epoch+1, j.seq, 0, 0
}

// append makes one record durable. rec begins with headerSize free bytes, used by the first record of an epoch, and
// recordSize free bytes; it has room for the padding. After an error the record is not in the journal.
func (j *journal) append(rec []byte) error {
	f := &j.files[j.epoch%2]
	if err := j.ready(f); err != nil {
		return err
	}
	sealRecord(rec[headerSize:], j.epoch, j.seq+1)
	rec = rec[:headerSize+padded(len(rec)-headerSize)]
	if j.at == 0 {
		appendHeader(rec[:0], j.epoch, j.before)
	} else {
		rec = rec[headerSize:]
	}
	end := j.at + int64(len(rec))
	if _, err := f.disk.WriteAt(rec, j.at); err != nil {
		return j.cut(f, fmt.Errorf("write the journal: %w", err))
	}
	if end > f.size {
		f.size = end
		j.grow(f)
	}
	if err := f.disk.Datasync(); err != nil {
		j.broken = fmt.Errorf("sync the journal: %w", err)
		return j.cut(f, j.broken)
	}
	j.seq, j.at = j.seq+1, end
	return nil
}

func padded(n int) int { return (n + recordAlign - 1) / recordAlign * recordAlign }

// ready opens the file of the epoch that begins.
func (j *journal) ready(f *journalFile) (err error) {
	if f.disk == nil {
		f.size = 0
		f.disk, err = j.open(journalPath(j.path, int(j.epoch%2)))
		return err
	}
	if j.at == 0 && f.size > hardLimit+maxGrowth { // by some huge record
		f.size = 0
		return f.disk.Truncate(0)
	}
	return nil
}

// grow fills the file with zeros ahead. If that fails, for want of space, the next record finds out.
func (j *journal) grow(f *journalFile) {
	n := min(max(f.size, minGrowth), maxGrowth)
	n -= f.size % minGrowth
	if len(j.zeros) == 0 {
		j.zeros = make([]byte, minGrowth)
	}
	for n > 0 {
		done, err := f.disk.WriteAt(j.zeros[:min(n, minGrowth)], f.size)
		f.size, n = f.size+int64(done), n-int64(done)
		if err != nil {
			return
		}
	}
}

// cut takes a record that could not be made durable out of the file, so that no restart finds what its caller was told has
// failed. Where not even that is possible, the epoch is broken.
func (j *journal) cut(f *journalFile, why error) error {
	if err := f.disk.Truncate(j.at); err != nil {
		j.broken = why
		return errors.Join(why, fmt.Errorf("cut the journal: %w", err))
	}
	f.size = min(f.size, j.at)
	return why
}

// remove closes and deletes both files. All they held is in the database.
func (j *journal) remove() (err error) {
	for slot := range j.files {
		err = errors.Join(err, j.shut(slot))
		if e := os.Remove(journalPath(j.path, slot)); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

func (j *journal) close() error { return errors.Join(j.shut(0), j.shut(1)) }

func (j *journal) shut(slot int) error {
	f := j.files[slot].disk
	j.files[slot] = journalFile{}
	if f == nil {
		return nil
	}
	return f.Close()
}

// A journalDisk is a disk of the file system.
type journalDisk struct{ *os.File }

// openDisk makes a journal file, or empties one, and sees to it that it is still in its folder after a power cut.
func openDisk(path string) (disk, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syncFolder(filepath.Dir(path)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return journalDisk{f}, nil
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Datasync makes what was written durable.
func (d journalDisk) Datasync() error {
	for {
		err := syscall.Fdatasync(int(d.Fd()))
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
