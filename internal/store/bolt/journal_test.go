package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/store"
)

// A history is two journal files and the states that their records led through.
type history struct {
	done   uint64
	files  [2][]byte // by slot
	states []map[string]string
	ends   [2][]int // in each file, where records end, without padding
}

// memDisk is a disk in memory.
type memDisk struct{ b *[]byte }

func (d memDisk) WriteAt(b []byte, at int64) (int, error) {
	if n := int(at) + len(b); n > len(*d.b) {
		*d.b = append(*d.b, make([]byte, n-len(*d.b))...)
	}
	return copy((*d.b)[at:], b), nil
}
func (d memDisk) Truncate(n int64) error { *d.b = (*d.b)[:n]; return nil }
func (memDisk) Datasync() error          { return nil }
func (memDisk) Close() error             { return nil }

// newHistory writes two epochs over the remains of older ones, as a journal in use does.
func newHistory(t testing.TB) *history {
	h := &history{done: 1000}
	j := &journal{path: "x", epoch: h.done - 2}
	j.open = func(path string) (disk, error) { return memDisk{&h.files[path[len(path)-1]-'0']}, nil }
	state := map[string]string{}
	h.states = append(h.states, maps.Clone(state))
	for epoch := range 4 {
		j.next()
		slot := j.epoch % 2
		h.ends[slot] = nil
		for i := range 6 - epoch {
			ops := []store.Op{
				{Key: fmt.Sprintf("epoch/%d", epoch), Value: bytes.Repeat([]byte{byte('0' + i)}, i)},
				{Key: "last", Value: []byte(fmt.Sprint(epoch, "/", i))},
				{Key: "last", Delete: i == 2},
			}
			rec := make([]byte, headerSize+recordSize, 512)
			for k := range ops {
				rec, _ = appendOp(rec, &ops[k])
			}
			h.ends[slot] = append(h.ends[slot], max(int(j.at), headerSize)+len(rec)-headerSize)
			if err := j.append(rec); err != nil {
				t.Fatal(err)
			}
			if epoch < 2 {
				continue // those are in the database
			}
			if err := do(state, store.Txn{Then: ops}); err != nil {
				t.Fatal(err)
			}
			h.states = append(h.states, maps.Clone(state))
		}
	}
	// Most of what was filled up with zeros says nothing.
	for slot := range h.files {
		h.files[slot] = h.files[slot][:min(len(h.files[slot]), 700)]
	}
	return h
}

// recovered returns which of the states recovery finds, or its error.
func (h *history) recovered(t testing.TB, files [2][]byte) (int, error) {
	t.Helper()
	l, err := replayJournal([2]found{{path: "0", b: files[0]}, {path: "1", b: files[1]}}, h.done)
	if err != nil {
		if !errors.Is(err, errJournal) {
			t.Fatal(err)
		}
		return 0, err
	}
	got := map[string]string{}
	if l != nil {
		m := newMerge("", l.snapshot())
		for e := m.next(); e != nil; e = m.next() {
			if e.value != nil {
				got[e.key] = string(e.value)
			}
		}
	}
	for i := range h.states {
		if maps.Equal(h.states[i], got) {
			return i, nil
		}
	}
	t.Fatalf("recovered what never was: %v", got)
	return 0, nil
}

func (h *history) slot(epoch int) int { return int((h.done + uint64(epoch)) % 2) }

func TestRecover(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	got, err := h.recovered(t, h.files)
	if want := len(h.states) - 1; err != nil || got != want {
		t.Errorf("recovered state %d, %v, want %d", got, err, want)
	}
}

// TestRecoverCut cuts each file at every byte.
func TestRecoverCut(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	first := len(h.ends[h.slot(1)])
	for slot := range h.files {
		for n := range len(h.files[slot]) {
			files := h.files
			files[slot] = files[slot][:n]
			got, err := h.recovered(t, files)
			whole := 0
			for _, end := range h.ends[slot] {
				if n >= end {
					whole++
				}
			}
			switch {
			case slot == h.slot(1) && whole < first:
				if err == nil {
					t.Fatalf("first file cut at %d: no error, but the second begins after what is missing", n)
				}
			case err != nil:
				t.Fatalf("file %d cut at %d: %v", slot, n, err)
			case slot == h.slot(2) && got != first+whole:
				t.Fatalf("second file cut at %d: state %d, want %d", n, got, first+whole)
			}
		}
	}
}

// TestRecoverFlip changes each byte of each file.
func TestRecoverFlip(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	for slot := range h.files {
		ends := h.ends[slot]
		for at := range h.files[slot] {
			for _, flip := range []byte{0x01, 0x80, 0xff} {
				files := h.files
				files[slot] = bytes.Clone(files[slot])
				files[slot][at] ^= flip
				got, err := h.recovered(t, files)
				last := padded(ends[len(ends)-2]) // the last record begins here
				padding := h.files[slot][at] == 0 && err == nil && got == len(h.states)-1
				switch {
				case at >= ends[len(ends)-1] && (err != nil || got != len(h.states)-1):
					t.Fatalf("file %d, byte %d behind the records: state %d, %v", slot, at, got, err)
				case at < last && err == nil && !padding:
					t.Fatalf("file %d, byte %d: state %d and no error, but records follow", slot, at, got)
				}
			}
		}
	}
}

func TestRecoverForeign(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	swapped := h.files
	swapped[0], swapped[1] = swapped[1], swapped[0]
	firstGone, headGone := h.files, h.files
	firstGone[h.slot(1)] = nil
	twice := h.files
	ends := h.ends[h.slot(1)]
	twice[h.slot(1)] = slices.Concat(h.files[h.slot(1)][:padded(ends[0])], h.files[h.slot(1)][headerSize:])
	headGone[h.slot(1)] = append(make([]byte, headerSize), h.files[h.slot(1)][headerSize:]...)
	tests := []struct {
		name  string
		done  uint64
		files [2][]byte
		want  string
	}{
		{"older database", h.done - 7, h.files, "do not belong together"},
		{"newer database", h.done + 7, h.files, "do not belong together"},
		{"files exchanged", h.done, swapped, "belongs in the other file"},
		{"first one gone", h.done, firstGone, "begins after"},
		{"head gone", h.done, headGone, "head of"},
		{"a record twice", h.done, twice, "cannot be read"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := &history{done: tt.done, states: h.states}
			if got, err := h.recovered(t, tt.files); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("recovered state %d, %v, want an error that says %q", got, err, tt.want)
			}
		})
	}
}

// FuzzJournal spoils a journal: it is replayed up to there or refused.
func FuzzJournal(f *testing.F) {
	h := newHistory(f)
	f.Add(false, 700, 0, []byte{}, 0)
	f.Add(true, 700, 100, []byte("junk"), 0)
	f.Add(false, 300, 64, h.files[0][64:128], 32)
	f.Add(true, 700, 0, h.files[0], 8)
	f.Add(false, 700, 96, bytes.Repeat([]byte{0xff}, 24), 0)
	f.Fuzz(func(t *testing.T, second bool, size, at int, junk []byte, from int) {
		slot := h.slot(1)
		if second {
			slot = h.slot(2)
		}
		b := bytes.Clone(h.files[slot])
		if at >= 0 && at < len(b) {
			copy(b[at:], junk)
		}
		if from > 0 && from < len(b) { // a sector that came to the wrong place
			copy(b[min(from*8, len(b)):], h.files[1-slot][min(from, len(h.files[1-slot])):])
		}
		files := h.files
		files[slot] = b[:max(0, min(size, len(b)))]
		_, _ = h.recovered(t, files) // fails unless it is a state that was
	})
}
