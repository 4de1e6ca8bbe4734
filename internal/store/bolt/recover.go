package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
)

// errJournal marks a journal that must not be overlooked and cannot be replayed.
var errJournal = errors.New("the journal is damaged")

// A found is a journal file as it was found.
type found struct {
	path            string
	b               []byte
	epoch, previous uint64 // previous: how many records the epoch before has
	whole           bool   // it has a header
}

// recoverJournal reads what the journal beside the database knows more than the database, which has everything up to the
// epoch done. It returns nil if there is nothing.
func recoverJournal(path string, done uint64) (*layer, error) {
	var files [2]found
	for slot := range files {
		f := &files[slot]
		f.path = journalPath(path, slot)
		var err error
		if f.b, err = os.ReadFile(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return replayJournal(files, done)
}

// replayJournal replays two files, found in their slots. Two epochs may be there, one being copied and one that took
// commits. A record that is not whole ends its epoch: its commit was cut off with the power and never acknowledged. It is
// damage if records follow it, or if the next epoch tells that more were there.
func replayJournal(files [2]found, done uint64) (*layer, error) {
	for slot := range files {
		if err := files[slot].examine(done, uint64(slot)); err != nil {
			return nil, err
		}
	}
	first, second := &files[(done+1)%2], &files[(done+2)%2]
	if !second.whole || second.epoch != done+2 {
		second = nil
	}
	if !first.whole || first.epoch != done+1 {
		if second == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("%w: %s begins after what %s should hold", errJournal, second.path, first.path)
	}
	l := newLayer(first.epoch)
	if second == nil {
		_, err := first.replay(l, math.MaxUint64)
		return l, err
	}
	n, err := first.replay(l, second.previous)
	if err != nil {
		return nil, err
	}
	if n < second.previous {
		return nil, fmt.Errorf("%w: %s has %d whole records and should have %d", errJournal, first.path, n, second.previous)
	}
	l.epoch = second.epoch
	_, err = second.replay(l, math.MaxUint64)
	return l, err
}

// examine reads the header. A file that does not belong to the database, or to this slot, is an error.
func (f *found) examine(done, slot uint64) error {
	f.epoch, f.previous, f.whole = parseHeader(f.b)
	switch {
	case !f.whole && (f.holds(0, done+1, 0) || f.holds(0, done+2, 0)):
		return fmt.Errorf("%w: the head of %s cannot be read, and records follow it", errJournal, f.path)
	case f.whole && (f.epoch+1 < done || f.epoch > done+2):
		return fmt.Errorf("%w: %s holds epoch %d, but the database ends with %d: they do not belong together",
			errJournal, f.path, f.epoch, done)
	case f.whole && f.epoch%2 != slot:
		return fmt.Errorf("%w: %s holds epoch %d, which belongs in the other file", errJournal, f.path, f.epoch)
	}
	return nil
}

// replay adds what the records wrote to l, as far as most, and returns how many there are.
func (f *found) replay(l *layer, most uint64) (n uint64, err error) {
	at := headerSize
	for n < most && at < len(f.b) {
		seq, payload, size, ok := parseRecord(f.b[at:], f.epoch)
		if !ok || seq != n+1 {
			break
		}
		if err := parseOps(payload, l.add); err != nil {
			return n, fmt.Errorf("%w: record %d of %s: %w", errJournal, seq, f.path, err)
		}
		n, at = seq, at+size
	}
	if n < most && f.holds(at, f.epoch, n+1) {
		return n, fmt.Errorf("%w: record %d of %s, at byte %d, cannot be read, and newer ones follow it", errJournal, n+1, f.path, at)
	}
	l.publish()
	return n, nil
}

// holds reports whether a whole record of that epoch, newer than seq, begins at that place or later.
func (f *found) holds(at int, epoch, seq uint64) bool {
	for at = padded(at); at+recordSize <= len(f.b); at += recordAlign {
		if binary.LittleEndian.Uint64(f.b[at+8:]) != epoch {
			continue
		}
		if s, _, _, ok := parseRecord(f.b[at:], epoch); ok && s > seq {
			return true
		}
	}
	return false
}
