package logfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/tidwall/btree"

	"github.com/bootlab/bootlab/internal/store"
)

// Name is that of the file in the state folder of a daemon.
const Name = "state.db"

const (
	magic       = "bootlab\n"
	version     = 1
	headerSize  = 36
	headerCopy  = 4096 // offset of the second header, which survives the loss of the first page
	recordStart = 2 * headerCopy
	recordSize  = 24 // without payload
	maxTxn      = 64 << 20

	// minGrowth and maxGrowth bound how far the file is filled with zeros ahead of its records. A sync that does not change the
	// size of the file need not wait for the file system's journal; it takes two thirds of the processor time.
	minGrowth = 64 << 10
	maxGrowth = 512 << 10
)

var (
	le    = binary.LittleEndian
	zeros [minGrowth]byte
)

func sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A log is an open file and its index. One goroutine at a time writes.
type log struct {
	disk
	marker uint32
	mark   header // the newer one of the file
	markAt int64  // offset of the other, which the next mark is written to
	seq    uint64 // of the last record
	end    int64  // of the last record
	size   int64  // of the file: records, then zeros
	broken error  // why it takes no more records
	found  []Loss // in the file, and not recorded in it: the next file will have them; changed with writing and mu held, never in place

	mu    sync.RWMutex
	index btree.Map[string, location]
	live  int64 // bytes that the keys in index would take with one record each

	users sync.RWMutex // read-locked by readers, locked to close the file
}

// A header says how far the log was durable when the header was written: up to a record, in a file of at least that size.
type header struct {
	marker uint32
	seq    uint64
	size   int64
}

func (h header) bytes() []byte {
	b := le.AppendUint32(le.AppendUint32([]byte(magic), version), h.marker)
	b = le.AppendUint64(le.AppendUint64(b, h.seq), uint64(h.size))
	return le.AppendUint32(b, sum(b))
}

// A location says where a value is in the file.
type location struct {
	at        int64
	size, sum uint32
}

// A disk is the file that a log needs. Tests have their own.
type disk interface {
	ReadAt(b []byte, at int64) (int, error)
	WriteAt(b []byte, at int64) (int, error)
	Truncate(size int64) error
	Datasync() error
	Stat() (fs.FileInfo, error)
	Fd() uintptr
	Close() error
}

type file struct{ *os.File }

// openFile opens a file, for reading only if that is all that its file system permits.
func openFile(path string, flag int) (disk, error) {
	f, err := os.OpenFile(path, os.O_RDWR|flag, 0o600)
	if errors.Is(err, syscall.EROFS) && flag == 0 {
		f, err = os.Open(path)
		return readOnly{file{f}}, err
	}
	return file{f}, err
}

// readOnly is a disk that takes no writes: a log on it can be read, and is broken.
type readOnly struct{ disk }

// WriteAt refuses.
func (readOnly) WriteAt([]byte, int64) (int, error) { return 0, syscall.EROFS }

// Truncate refuses.
func (readOnly) Truncate(int64) error { return syscall.EROFS }

// Datasync refuses.
func (readOnly) Datasync() error { return syscall.EROFS }

// WriteAt is that of the file. The error leaves out the name, which was perhaps another when the file was opened.
func (f file) WriteAt(b []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(b, at)
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err
	}
	return n, err
}

// Datasync makes earlier writes durable.
func (f file) Datasync() error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// create makes d an empty log.
func create(d disk) (*log, error) {
	l := &log{disk: d, marker: 1 + rand.Uint32N(1<<32-2), end: recordStart, size: recordStart}
	l.mark = header{marker: l.marker, size: recordStart}
	b := make([]byte, recordStart)
	copy(b, l.mark.bytes())
	copy(b[headerCopy:], l.mark.bytes())
	if _, err := d.WriteAt(b, 0); err != nil {
		return nil, err
	}
	return l, d.Datasync()
}

// A batch is the records of one write.
type batch struct {
	buf     []byte
	records uint32
	changes map[string]change // the last one of each key
}

// A change is what a batch does to a key: where its value is in buf, or that it is deleted.
type change struct {
	from, to int
	deletes  bool
}

func (b *batch) reset() {
	if b.changes == nil || cap(b.buf) > 4*maxGroup { // do not keep the memory of a huge value
		*b = batch{changes: map[string]change{}}
	}
	clear(b.changes)
	b.buf, b.records = b.buf[:0], 0
}

// add appends a transaction as a record that follows the log's last one. index is the record's position among those that are
// written and acknowledged together.
func (b *batch) add(l *log, index uint32, ops []store.Op) {
	start := len(b.buf)
	b.buf = append(b.buf, make([]byte, recordSize)...)
	for _, op := range ops {
		n := uint64(len(op.Key)) << 1
		if op.Delete {
			b.buf = append(binary.AppendUvarint(b.buf, n|1), op.Key...)
			b.changes[op.Key] = change{deletes: true}
			continue
		}
		b.buf = append(binary.AppendUvarint(b.buf, n), op.Key...)
		b.buf = append(binary.AppendUvarint(b.buf, uint64(len(op.Value))), op.Value...)
		b.changes[op.Key] = change{from: len(b.buf) - len(op.Value), to: len(b.buf)}
	}
	r := b.buf[start:]
	le.PutUint32(r, l.marker)
	le.PutUint32(r[8:], uint32(len(r)-recordSize))
	le.PutUint32(r[12:], index)
	b.records++
	le.PutUint64(r[16:], l.seq+uint64(b.records))
	le.PutUint32(r[4:], sum(r[8:]))
}

// maxSize returns the largest size that the record of some operations can have.
func maxSize(ops ...store.Op) int {
	n := recordSize
	for _, op := range ops {
		n += 2*binary.MaxVarintLen32 + len(op.Key) + len(op.Value)
	}
	return n
}

// write makes a batch durable, then visible. After an error it is neither; if that cannot be ensured, the log is broken.
func (l *log) write(b *batch) error {
	if _, err := l.WriteAt(b.buf, l.end); err != nil {
		return l.cut(fmt.Errorf("write: %w", err))
	}
	end := l.end + int64(len(b.buf))
	if end > l.size {
		l.size = end
		l.grow()
	}
	if err := l.sync(); err != nil {
		return l.cut(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, c := range b.changes {
		value := b.buf[c.from:c.to]
		l.set(key, c.deletes, location{l.end + int64(c.from), uint32(len(value)), sum(value)})
	}
	l.seq, l.end = l.seq+uint64(b.records), end
	return nil
}

// sync makes what was written durable. If it fails, the kernel may have dropped pages and marked them clean.
func (l *log) sync() error {
	err := l.Datasync()
	if err != nil {
		err = fmt.Errorf("sync: %w", err)
		l.broken = err
	}
	return err
}

// grow writes zeros ahead. If that fails on a full disk, the next record gets the error.
func (l *log) grow() {
	n := min(max(l.size, minGrowth), maxGrowth)
	for n -= l.size % minGrowth; n > 0; {
		done, err := l.WriteAt(zeros[:min(n, minGrowth)], l.size)
		l.size, n = l.size+int64(done), n-int64(done)
		if err != nil {
			return
		}
	}
}

// probe writes zeros behind the last record, as much as a log grows at once: less would succeed on a full disk now and then.
func (l *log) probe() error {
	for at := l.end; at < l.end+maxGrowth; at += minGrowth {
		n, err := l.WriteAt(zeros[:], at)
		l.size = max(l.size, at+int64(n))
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return l.sync()
}

// cut removes a batch that is not durable, so that no restart finds a transaction whose commit returned an error.
func (l *log) cut(why error) error {
	if err := l.trim(); err != nil {
		l.broken = fmt.Errorf("%w; what was written of it cannot be removed: %w", why, err)
		return l.broken
	}
	return why
}

// trim removes everything behind the last record. The file keeps the size that its header promises.
func (l *log) trim() error {
	if err := l.Truncate(l.end); err != nil {
		return err
	}
	l.size = max(l.end, l.mark.size)
	return l.Truncate(l.size)
}

// writeMark notes in a header that the log is durable up to its last record. The other header stays as it is, so that one of
// them is whole whatever happens to this write. size is that of the file, now and until the next mark.
func (l *log) writeMark(size int64) error {
	h := header{l.marker, l.seq, size}
	if _, err := l.WriteAt(h.bytes(), l.markAt); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := l.sync(); err != nil {
		return err
	}
	l.mark, l.markAt = h, headerCopy-l.markAt
	return nil
}

// keySize returns about what a key takes in a file.
func keySize(key string, where location) int64 {
	return int64(maxSize(store.Op{Key: key}) + int(where.size))
}

// set updates the index with one operation.
func (l *log) set(key string, deletes bool, to location) {
	if deletes {
		l.remove(key)
		return
	}
	l.live += keySize(key, to)
	if old, was := l.index.Load(key, to); was { // which is Set, and faster for a key behind all others: a compacted file has them in order
		l.live -= keySize(key, old)
	}
}

// remove removes a key from the index.
func (l *log) remove(key string) {
	if old, was := l.index.Delete(key); was {
		l.live -= keySize(key, old)
	}
}

// errDamaged is returned for a value that does not have its checksum.
var errDamaged = errors.New("was damaged on disk")

// value reads the value of key, into buf if it has room.
func (l *log) value(key string, where location, buf []byte) ([]byte, error) {
	if buf == nil || int(where.size) > cap(buf) {
		buf = make([]byte, where.size)
	}
	buf = buf[:where.size]
	if _, err := l.ReadAt(buf, where.at); err != nil {
		return nil, fmt.Errorf("read %q: %w", key, err)
	}
	if err := where.check(key, buf); err != nil {
		return nil, err
	}
	return buf, nil
}

// check returns an error if value is not what was written.
func (w location) check(key string, value []byte) error {
	if sum(value) != w.sum {
		return fmt.Errorf("read %q: the value at offset %d %w", key, w.at, errDamaged)
	}
	return nil
}

// A window is a few parts of a log's file, so that values that are near each other are read at once. Keys in order, such as addresses as
// text, are seldom in the order of the file, but near it.
type window struct {
	log   *log
	parts [windowParts]struct {
		at  int64
		buf []byte
	}
}

const (
	windowParts = 16
	windowSize  = 4 << 10 // of a part: what one read costs hardly more than the value alone
	windowMore  = 256     // a part has these bytes of the next one: a small value at its end is in one of the two
)

// value returns the value of key, valid until the next call.
func (w *window) value(key string, where location) ([]byte, error) {
	p := &w.parts[where.at/windowSize%windowParts]
	from := where.at - p.at
	if from < 0 || from+int64(where.size) > int64(len(p.buf)) {
		p.at = where.at - where.at%windowSize
		if from = where.at - p.at; from+int64(where.size) > windowSize+windowMore {
			p.at, from = where.at, 0
		}
		p.buf = slices.Grow(p.buf[:0], max(windowSize+windowMore, int(where.size)))
		n, err := w.log.ReadAt(p.buf[:cap(p.buf)], p.at)
		if p.buf = p.buf[:n]; n < int(from)+int(where.size) {
			return nil, fmt.Errorf("read %q: %w", key, err)
		}
	}
	value := p.buf[from : from+int64(where.size) : from+int64(where.size)]
	if err := where.check(key, value); err != nil {
		return nil, err
	}
	return value, nil
}

// release closes the file once it has no readers.
func (l *log) release() error {
	l.users.Lock()
	defer l.users.Unlock()
	return l.Close()
}
