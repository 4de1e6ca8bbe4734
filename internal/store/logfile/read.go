package logfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/store"
)

// A Loss is a part of the file that could not be read.
type Loss struct {
	Offset, Bytes int64
	// Transactions is how many it held, known from the sequence numbers around it.
	Transactions uint64
	// Keys are those of its keys that could still be read: at least their last change is lost.
	Keys []string
	// Tail says that nothing follows: most likely a write that a crash cut short and that was never acknowledged.
	Tail bool
}

// String describes the loss for a log line.
func (l Loss) String() string {
	text := fmt.Sprintf("%d bytes at offset %d cannot be read", l.Bytes, l.Offset)
	if l.Tail {
		return text + ": the file ends with an incomplete write"
	}
	text += fmt.Sprintf(": %d transactions are lost", l.Transactions)
	if len(l.Keys) > 0 {
		text += ", of " + strings.Join(l.Keys, ", ")
	}
	return text
}

// errHeader is returned for bytes that are not a header.
var errHeader = errors.New("this is not a bootlab state file, or its first pages are destroyed: " +
	"put back a copy, or move the file away and start again: leases and install states are then lost")

// load reads a file, or starts a new one if it is empty.
func load(d disk) (*log, []Loss, error) {
	marker, losses, err := readHeader(d)
	if err != nil {
		return nil, nil, err
	}
	if marker == 0 {
		l, err := create(d)
		return l, losses, err
	}
	l := &log{disk: d, marker: marker}
	r := reader{file: d, marker: marker}
	last, more, err := r.records(func(rec record) {
		parseOps(rec.payload, func(op store.Op, at int) {
			l.set(op.Key, op.Delete, location{rec.at + recordSize + int64(at), uint32(len(op.Value)), sum(op.Value)})
		})
	})
	if err != nil {
		return nil, nil, err
	}
	l.seq, l.end, l.size = last.seq, last.end(), last.end()
	// A later record must not be taken for one that follows the next.
	return l, append(losses, more...), d.Truncate(l.end)
}

// readHeader returns the marker of a file, 0 if the file is empty or was cut within its first header. It repairs a damaged
// copy of the header.
func readHeader(d disk) (marker uint32, losses []Loss, err error) {
	b := make([]byte, recordStart)
	n, _ := d.ReadAt(b, 0) // shorter files have less
	if n < headerSize && strings.HasPrefix(magic, string(b[:min(n, len(magic))])) {
		if n > 0 {
			losses = []Loss{{Bytes: int64(n), Tail: true}}
		}
		return 0, losses, nil
	}
	if n < recordStart {
		losses = []Loss{{Offset: int64(n), Tail: true}}
	}
	for _, at := range []int64{0, headerCopy} {
		m, err := parseHeader(b[at:])
		switch {
		case err == nil:
			marker = m
		case !errors.Is(err, errHeader):
			return 0, nil, err
		case int64(n) > at:
			losses = append(losses, Loss{Offset: at, Bytes: headerSize})
		}
	}
	if marker == 0 {
		return 0, nil, errHeader
	}
	if len(losses) > 0 {
		err = writeHeaders(d, marker)
	}
	return marker, losses, err
}

func parseHeader(b []byte) (marker uint32, err error) {
	const sumAt = headerSize - 4
	if string(b[:len(magic)]) != magic || sum(b[:sumAt]) != le.Uint32(b[sumAt:]) {
		return 0, errHeader
	}
	if v := le.Uint32(b[len(magic):]); v != version {
		return 0, fmt.Errorf("it has format version %d and this bootlab reads version %d: use the bootlab that wrote it, or a newer one", v, version)
	}
	return le.Uint32(b[len(magic)+4:]), nil
}

// A record is one transaction.
type record struct {
	at      int64 // in the file
	seq     uint64
	index   uint32 // in the group of records that was written and synced at once
	payload []byte
}

func (r *record) end() int64 { return r.at + recordSize + int64(len(r.payload)) }

// parseOps calls fn for each operation of a payload, with the offset of its value there. It reports whether the whole payload
// was valid. Values are parts of b.
func parseOps(b []byte, fn func(op store.Op, at int)) bool {
	for at := 0; at < len(b); {
		n, used := binary.Uvarint(b[at:])
		at += max(used, 0)
		if used <= 0 || n>>1 == 0 || n>>1 > uint64(len(b)-at) {
			return false
		}
		op := store.Op{Key: string(b[at : at+int(n>>1)]), Delete: n&1 != 0}
		at += len(op.Key)
		if !op.Delete {
			size, used := binary.Uvarint(b[at:])
			at += max(used, 0)
			if used <= 0 || size > uint64(len(b)-at) {
				return false
			}
			op.Value = b[at : at+int(size) : at+int(size)]
		}
		fn(op, at)
		at += len(op.Value)
	}
	return true
}

// A reader reads records in order.
type reader struct {
	file   io.ReaderAt
	marker uint32
	buf    []byte // of the file, from bufAt on
	bufAt  int64
}

const readSize = 128 << 10

// bytes returns n bytes of the file, or fewer at its end. They are valid until the next call.
func (r *reader) bytes(at int64, n int) ([]byte, error) {
	if off := at - r.bufAt; off >= 0 && off+int64(n) <= int64(len(r.buf)) {
		return r.buf[off : off+int64(n)], nil
	}
	r.buf = slices.Grow(r.buf[:0], max(n, readSize))
	got, err := r.file.ReadAt(r.buf[:max(n, readSize)], at)
	if err != nil && !errors.Is(err, io.EOF) {
		r.buf = r.buf[:0]
		return nil, err
	}
	r.buf, r.bufAt = r.buf[:got], at
	return r.buf[:min(n, got)], nil
}

// parse returns the record at an offset, if a whole one is there.
func (r *reader) parse(at int64) (rec record, ok bool, err error) {
	b, err := r.bytes(at, recordSize)
	if err != nil || len(b) < recordSize || le.Uint32(b) != r.marker {
		return rec, false, err
	}
	size := int(le.Uint32(b[8:]))
	if size > maxTxn {
		return rec, false, nil
	}
	b, err = r.bytes(at, recordSize+size)
	if err != nil || len(b) < recordSize+size || sum(b[8:]) != le.Uint32(b[4:]) {
		return rec, false, err
	}
	rec = record{at: at, seq: le.Uint64(b[16:]), index: le.Uint32(b[12:]), payload: b[recordSize:]}
	return rec, parseOps(rec.payload, func(store.Op, int) {}), nil
}

// next returns the first whole record at an offset or later that is newer than seq.
func (r *reader) next(at int64, seq uint64) (rec record, ok bool, err error) {
	marker := le.AppendUint32(nil, r.marker)
	for {
		rec, ok, err = r.parse(at)
		if err != nil || ok && rec.seq > seq {
			return rec, ok, err
		}
		for at++; ; {
			b, err := r.bytes(at, readSize)
			if err != nil || len(b) < len(marker) {
				return record{}, false, err
			}
			if i := bytes.Index(b, marker); i >= 0 {
				at += int64(i)
				break
			}
			at += int64(len(b) - len(marker) + 1)
		}
	}
}

// records calls fn for every acknowledged record, and returns the last of them, an empty one before the first if there is none,
// and the losses. A record's payload is valid during the call.
func (r *reader) records(fn func(record)) (last record, losses []Loss, err error) {
	last.at = recordStart - recordSize // as if an empty record ended where the first begins
	var doubtful []record              // follow a damaged one, and may belong to the same unfinished write
	var damage []Loss
	for newest := last; ; {
		rec, ok, err := r.next(newest.end(), newest.seq)
		if err != nil {
			return last, losses, err
		}
		if !ok {
			tail, err := r.tail(last.end())
			return last, append(losses, tail...), err
		}
		if rec.at != newest.end() || rec.seq != newest.seq+1 {
			rec.payload = slices.Clone(rec.payload) // keys reads into the same buffer
			damage = append(damage, Loss{
				Offset: newest.end(), Bytes: rec.at - newest.end(), Transactions: rec.seq - newest.seq - 1,
				Keys: r.keys(newest.end(), rec.at),
			})
		}
		newest = rec
		if len(damage) > 0 && rec.seq-uint64(rec.index) <= last.seq+1 {
			rec.payload = slices.Clone(rec.payload)
			doubtful = append(doubtful, rec)
			continue
		}
		for _, d := range doubtful {
			fn(d)
		}
		fn(rec)
		last, losses = rec, append(losses, damage...)
		doubtful, damage = nil, nil
	}
}

// keys guesses the keys in a damaged part of the file, as if its record header and lengths were whole.
func (r *reader) keys(from, to int64) (keys []string) {
	b, err := r.bytes(from, int(min(to-from, readSize)))
	if err != nil || len(b) < recordSize {
		return nil
	}
	_ = parseOps(b[recordSize:], func(op store.Op, _ int) {
		if !strings.ContainsFunc(op.Key, func(c rune) bool { return c < ' ' || c > '~' }) {
			keys = append(keys, op.Key)
		}
	})
	return keys
}

// tail reports the bytes behind the last record, unless they are zeros.
func (r *reader) tail(from int64) ([]Loss, error) {
	end := from
	for at := from; ; {
		b, err := r.bytes(at, readSize)
		if err != nil {
			return nil, err
		}
		if n := len(bytes.TrimRight(b, "\x00")); n > 0 {
			end = at + int64(n)
		}
		if len(b) < readSize {
			break
		}
		at += readSize
	}
	if end == from {
		return nil, nil
	}
	return []Loss{{Offset: from, Bytes: end - from, Tail: true}}, nil
}
