package logfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
)

// load reads a file. Where it has lost something, the log takes no records: it has to be copied to a new file. The losses are
// those, and damage by which nothing was lost.
func load(d disk) (*log, []Loss, error) {
	h, at, losses, err := readHeaders(d)
	if err != nil {
		return nil, nil, err
	}
	l := &log{disk: d, mark: h, markAt: headerCopy - at}
	r := reader{file: d, marker: h.marker, acked: h.seq}
	if h.marker == 0 {
		r.marker = r.findMarker()
	}
	l.marker = r.marker
	index := newIndexer(l)
	last, damage := r.records(func(rec record) {
		parseOps(rec.payload, func(op parsedOp) { index.add(&op, rec.at+recordSize+int64(op.at)) })
	})
	index.finish()
	l.seq, l.end = last.seq, last.end()
	tail, size := r.tail(l.end)
	if l.size = size; size == recordStart { // or less
		l.size = int64(len(r.bytes(0, recordStart)))
	}
	losses = slices.Concat(losses, damage, l.judgeEnd(h, tail, r.keys(l.end, l.end+tail)))
	for _, loss := range losses {
		if loss.Kind == Lost {
			l.found, l.broken = append(l.found, loss), errFound
		}
	}
	l.found = limit(l.found)
	if l.broken == nil {
		l.broken = l.sync() // a killed process may not have done so
	}
	if l.broken == nil && tail > 0 {
		l.broken = l.trim() // a later record must not be taken for one that follows the next
	}
	if l.broken == nil && len(losses) > 0 {
		l.broken = l.writeMark(l.size) // in place of a damaged header
	}
	return l, losses, nil
}

// judgeEnd returns what is lost at the end of the file, behind its last record: h says how far it was durable, and tail bytes
// that are no record follow.
func (l *log) judgeEnd(h header, tail int64, keys []string) []Loss {
	end := Loss{Kind: Lost, Offset: l.end, Bytes: tail, Keys: keys, before: l.end}
	switch {
	case l.marker == 0:
		end.Cause = "no record is readable: everything is lost"
	case h.marker == 0:
		end.Cause = "both headers are destroyed: changes at the end of the file may be lost, too"
	case l.seq < h.seq:
		end.Cause, end.Transactions = "the end of the file is missing", h.seq-l.seq
	case l.size < h.size:
		end.Cause = fmt.Sprintf("the file was cut: it had %d bytes; the changes of about one second may be lost", h.size)
	case tail > 0:
		end.Kind = Torn
	default:
		return nil
	}
	return []Loss{end}
}

var errHeader = errors.New("not a header")

// readHeaders returns the newer one of the two headers and where it is. It is empty if both are damaged.
func readHeaders(d disk) (newer header, newerAt int64, losses []Loss, err error) {
	b := make([]byte, recordStart)
	if _, err := d.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return newer, 0, nil, err
	}
	for _, at := range []int64{0, headerCopy} {
		h, err := parseHeader(b[at:])
		switch {
		case errors.Is(err, errHeader):
			losses = append(losses, Loss{Kind: Corrected, Offset: at, Bytes: headerSize, Cause: "one header is destroyed: restored it from the other"})
		case err != nil:
			return newer, 0, nil, err
		case newer.marker == 0 || h.seq > newer.seq || h.seq == newer.seq && h.size < newer.size: // Close makes the file smaller
			newer, newerAt = h, at
		}
	}
	if len(losses) > 1 {
		losses = nil // see judgeEnd
	}
	return newer, newerAt, losses, nil
}

func parseHeader(b []byte) (h header, err error) {
	const sumAt = headerSize - 4
	if string(b[:len(magic)]) != magic || sum(b[:sumAt]) != le.Uint32(b[sumAt:]) {
		return h, errHeader
	}
	if v := le.Uint32(b[8:]); v != version {
		return h, fmt.Errorf("it has format version %d and this bootlab reads version %d: use the bootlab that wrote it, or a newer one", v, version)
	}
	return header{le.Uint32(b[12:]), le.Uint64(b[16:]), int64(le.Uint64(b[24:]))}, nil
}

// A record is one transaction.
type record struct {
	at      int64 // in the file
	seq     uint64
	index   uint32 // in the group of records that was written and synced at once
	payload []byte
}

func (r *record) end() int64 { return r.at + recordSize + int64(len(r.payload)) }

// A parsedOp is a store.Op whose key and value are parts of a payload. at is the offset of the value there.
type parsedOp struct {
	key, value []byte
	at         int
	deletes    bool
}

// parseOps calls fn for each operation of a payload. It reports whether the whole payload was valid.
func parseOps(b []byte, fn func(op parsedOp)) bool {
	for at := 0; at < len(b); {
		n, used := binary.Uvarint(b[at:])
		at += max(used, 0)
		if used <= 0 || n>>1 == 0 || n>>1 > uint64(len(b)-at) {
			return false
		}
		op := parsedOp{key: b[at : at+int(n>>1)], deletes: n&1 != 0}
		at += len(op.key)
		if !op.deletes {
			size, used := binary.Uvarint(b[at:])
			at += max(used, 0)
			if used <= 0 || size > uint64(len(b)-at) {
				return false
			}
			op.value = b[at : at+int(size) : at+int(size)]
		}
		op.at = at
		fn(op)
		at += len(op.value)
	}
	return true
}

// A reader reads records in order.
type reader struct {
	file   disk
	marker uint32
	acked  uint64 // a header says that the records up to this one were durable
	buf    []byte // of the file, from bufAt on
	bufAt  int64
}

const readSize = 128 << 10

// bytes returns n bytes of the file, or fewer at its end. They are valid until the next call.
func (r *reader) bytes(at int64, n int) []byte {
	if off := at - r.bufAt; off >= 0 && off+int64(n) <= int64(len(r.buf)) {
		return r.buf[off : off+int64(n)]
	}
	r.buf = slices.Grow(r.buf[:0], max(n, readSize))
	got, err := r.file.ReadAt(r.buf[:max(n, readSize)], at)
	if err != nil && !errors.Is(err, io.EOF) {
		got = r.readPages(r.buf[:max(n, readSize)], at)
	}
	r.buf, r.bufAt = r.buf[:got], at
	return r.buf[:min(n, got)]
}

// readPages reads page by page. One that the disk cannot read is zeros.
func (r *reader) readPages(b []byte, at int64) (got int) {
	for got < len(b) {
		page := b[got:min(len(b), got+headerCopy-int((at+int64(got))%headerCopy))]
		n, err := r.file.ReadAt(page, at+int64(got))
		if errors.Is(err, io.EOF) {
			return got + n
		}
		clear(page[n:])
		got += len(page)
	}
	return got
}

// parse returns the record at an offset, if a whole one is there.
func (r *reader) parse(at int64) (rec record, ok bool) {
	b := r.bytes(at, recordSize)
	if len(b) < recordSize || le.Uint32(b) != r.marker {
		return rec, false
	}
	size := int(le.Uint32(b[8:]))
	if size > maxTxn {
		return rec, false
	}
	if b = r.bytes(at, recordSize+size); len(b) < recordSize+size {
		return rec, false
	}
	return parseRecord(b, at)
}

// parseRecord returns the record that b is, if it is valid.
func parseRecord(b []byte, at int64) (rec record, ok bool) {
	if sum(b[8:]) != le.Uint32(b[4:]) {
		return rec, false
	}
	rec = record{at: at, seq: le.Uint64(b[16:]), index: le.Uint32(b[12:]), payload: b[recordSize:]}
	return rec, parseOps(rec.payload, func(parsedOp) {})
}

// next returns the first whole record at an offset or later that is newer than seq.
func (r *reader) next(at int64, seq uint64) (rec record, ok bool) {
	marker := le.AppendUint32(nil, r.marker)
	for {
		if rec, ok = r.parse(at); ok && rec.seq > seq {
			return rec, true
		}
		for at++; ; {
			b := r.bytes(at, readSize)
			if len(b) < len(marker) {
				return record{}, false
			}
			if i := bytes.Index(b, marker); i >= 0 {
				at += int64(i)
				break
			}
			at += int64(len(b) - len(marker) + 1)
		}
	}
}

// findMarker returns the marker of the first record that is whole and not large, in a file that has lost its headers; 0 if there
// is none.
func (r *reader) findMarker() uint32 {
	for at := int64(recordStart); ; at++ {
		b := r.bytes(at, recordSize)
		if len(b) < recordSize {
			return 0
		}
		if r.marker = le.Uint32(b); r.marker == 0 || le.Uint32(b[8:]) > readSize/2 {
			continue
		}
		if _, ok := r.parse(at); ok {
			return r.marker
		}
	}
}

// records calls fn for every acknowledged record, and returns the last of them, an empty one before the first if there is none,
// and the damage. A record's payload is valid during the call.
func (r *reader) records(fn func(record)) (last record, damage []Loss) {
	last.at = recordStart - recordSize // as if an empty record ended where the first begins
	if r.marker == 0 {
		return last, nil
	}
	var doubtful []record // follow a damaged one, and may belong to the same unfinished write
	var missing []Loss
	for newest := last; ; {
		rec, ok := r.next(newest.end(), newest.seq)
		if !ok || rec.at != newest.end() || rec.seq != newest.seq+1 {
			rec.payload = slices.Clone(rec.payload) // what follows reads into the same buffer
			fixed, isFixed := r.correct(&newest, rec, ok)
			switch {
			case isFixed:
				rec, ok = fixed, true
				damage = append(damage, Loss{Kind: Corrected, Offset: rec.at, Bytes: rec.end() - rec.at, Cause: "one bit was wrong: corrected it"})
			case ok:
				missing = append(missing, Loss{
					Kind: Lost, Offset: newest.end(), Bytes: rec.at - newest.end(), Transactions: rec.seq - newest.seq - 1,
					Keys: r.keys(newest.end(), rec.at), before: newest.end(),
				})
			}
		}
		if !ok {
			return last, damage
		}
		newest = rec
		if len(missing) > 0 && last.seq >= r.acked && rec.seq-uint64(rec.index) <= last.seq+1 {
			rec.payload = slices.Clone(rec.payload)
			doubtful = append(doubtful, rec)
			continue
		}
		for _, d := range doubtful {
			fn(d)
		}
		fn(rec)
		last, damage = rec, append(damage, missing...)
		doubtful, missing = nil, nil
	}
}

// maxCorrect bounds the size of records in which a wrong bit is searched: in a larger one, other damage looks like one wrong bit more often.
const maxCorrect = 4 << 10

// correct returns the record that follows newest if one bit of it is wrong, and writes it again. next is the one after it, if
// there is one.
func (r *reader) correct(newest *record, next record, isNext bool) (record, bool) {
	at := newest.end()
	b := r.bytes(at, maxCorrect)
	if len(b) < recordSize || isNext && next.seq != newest.seq+2 {
		return record{}, false
	}
	sizes := []int64{next.at - at}
	if !isNext { // it ends where its length says, and one bit of that may be the wrong one
		size := le.Uint32(b[8:])
		sizes = []int64{recordSize + int64(size)}
		for bit := range 32 {
			sizes = append(sizes, recordSize+int64(size^1<<bit))
		}
	}
	for _, size := range sizes {
		if size < recordSize || size > int64(len(b)) {
			continue
		}
		c := slices.Clone(b[:size])
		if rec, ok := correctBit(c, at, r.marker); ok && rec.seq == newest.seq+1 {
			_, _ = r.file.WriteAt(c, at) // or the next start does
			return rec, true
		}
	}
	return record{}, false
}

// correctBit makes a record of b if that takes one changed bit. No other record is as near: two different records with valid
// sums differ in four bits or more.
func correctBit(b []byte, at int64, marker uint32) (rec record, ok bool) {
	size := uint32(len(b) - recordSize)
	wrong := bits.OnesCount32(le.Uint32(b)^marker) + bits.OnesCount32(le.Uint32(b[8:])^size)
	le.PutUint32(b, marker)
	le.PutUint32(b[8:], size)
	if rec, ok = parseRecord(b, at); ok || wrong > 0 {
		return rec, ok && wrong == 1
	}
	for i := 4 * 8; i < 8*len(b); i++ { // behind the marker
		b[i/8] ^= 1 << (i % 8)
		if rec, ok = parseRecord(b, at); ok {
			return rec, true
		}
		b[i/8] ^= 1 << (i % 8)
	}
	return rec, false
}

// maxKeys bounds how many keys a loss names.
const maxKeys = 100

// keys guesses the keys in a damaged part of the file, as if its record header and lengths were whole.
func (r *reader) keys(from, to int64) (keys []string) {
	b := r.bytes(from, int(min(to-from, readSize)))
	if len(b) < recordSize {
		return nil
	}
	_ = parseOps(b[recordSize:], func(op parsedOp) {
		if len(keys) < maxKeys && !bytes.ContainsFunc(op.key, func(c rune) bool { return c < ' ' || c > '~' }) {
			keys = append(keys, string(op.key))
		}
	})
	return keys
}

// tail returns how many bytes behind an offset are not zeros only, and the size of the file.
func (r *reader) tail(from int64) (n, size int64) {
	for at := from; ; {
		b := r.bytes(at, readSize)
		if used := len(bytes.TrimRight(b, "\x00")); used > 0 {
			n = at + int64(used) - from
		}
		if at += int64(len(b)); len(b) < readSize {
			return n, at
		}
	}
}

// An indexer puts the operations of a file into the index of its log, in their order, on a goroutine of its own: while one batch of
// them is put in, the next one is read and checked.
type indexer struct {
	next  indexBatch
	full  chan indexBatch
	empty chan indexBatch
	done  chan struct{}
}

// An indexBatch is some operations. Their keys become one string, which stays in memory as long as one of these keys does: that is
// less to allocate and to collect than one string for each.
type indexBatch struct {
	keys []byte
	ops  []indexOp
}

type indexOp struct {
	keyEnd  int // in keys; it begins where the one before ends
	where   location
	deletes bool
}

// indexBatchSize is how many operations are handed over at once.
const indexBatchSize = 256

// newIndexer returns the indexer of a log that nobody else uses until finish returns.
func newIndexer(l *log) *indexer {
	x := &indexer{full: make(chan indexBatch, 4), empty: make(chan indexBatch, 4), done: make(chan struct{})}
	go func() {
		defer close(x.done)
		for b := range x.full {
			b.putInto(l)
			select {
			case x.empty <- indexBatch{b.keys[:0], b.ops[:0]}:
			default:
			}
		}
	}()
	return x
}

func (b *indexBatch) putInto(l *log) {
	keys, from := string(b.keys), 0
	for _, op := range b.ops {
		l.set(keys[from:op.keyEnd], op.deletes, op.where)
		from = op.keyEnd
	}
}

// add puts in an operation, whose value begins at that offset of the file.
func (x *indexer) add(op *parsedOp, at int64) {
	b := &x.next
	b.keys = append(b.keys, op.key...)
	b.ops = append(b.ops, indexOp{len(b.keys), location{at, uint32(len(op.value)), sum(op.value)}, op.deletes})
	if len(b.ops) < indexBatchSize {
		return
	}
	x.full <- *b
	select {
	case x.next = <-x.empty:
	default:
		x.next = indexBatch{}
	}
}

// finish waits until all operations are in the index.
func (x *indexer) finish() {
	x.full <- x.next
	close(x.full)
	<-x.done
}
