package logfile

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/store"
)

// A memDisk is a file in memory.
type memDisk struct{ b []byte }

func (d *memDisk) ReadAt(b []byte, at int64) (int, error) {
	if at >= int64(len(d.b)) && len(b) > 0 {
		return 0, io.EOF
	}
	n := copy(b, d.b[min(at, int64(len(d.b))):])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (d *memDisk) WriteAt(b []byte, at int64) (int, error) {
	if end := int(at) + len(b); end > len(d.b) {
		d.b = append(d.b, make([]byte, end-len(d.b))...)
	}
	return copy(d.b[at:], b), nil
}
func (d *memDisk) Truncate(n int64) error {
	d.b = append(d.b, make([]byte, max(0, n-int64(len(d.b))))...)[:n]
	return nil
}
func (*memDisk) Datasync() error            { return nil }
func (*memDisk) Stat() (fs.FileInfo, error) { return nil, fs.ErrInvalid }
func (*memDisk) Fd() uintptr                { return 0 }
func (*memDisk) Close() error               { return nil }

// A history is a file with all that was written to it.
type history struct {
	file []byte
	txns [][]store.Op
	ends []int64 // of the record of each
}

// newHistory writes groups of records. A closed one ends with the empty record of Close.
func newHistory(t testing.TB, closed bool) *history {
	d, h := &memDisk{}, &history{}
	l, err := create(d)
	if err != nil {
		t.Fatal(err)
	}
	groups := []int{1, 3, 2, 1, 4}
	if closed {
		groups = append(groups, 0)
	}
	var b batch
	for g, size := range groups {
		b.reset()
		for i := range size {
			ops := []store.Op{
				{Key: fmt.Sprintf("lease/%d", g), Value: bytes.Repeat([]byte{byte('0' + i)}, 5*i)},
				{Key: "last", Value: []byte(fmt.Sprint(g, "/", i))},
				{Key: "first", Delete: i == 2},
			}
			b.add(l, uint32(i), ops)
			h.txns, h.ends = append(h.txns, ops), append(h.ends, l.end+int64(len(b.buf)))
		}
		if size == 0 {
			b.add(l, 0, nil)
			h.txns, h.ends = append(h.txns, nil), append(h.ends, l.end+int64(len(b.buf)))
		}
		if err := l.write(&b); err != nil {
			t.Fatal(err)
		}
	}
	h.file = d.b[:l.end+500] // most of the zeros say nothing
	return h
}

// state returns what the store has after some of the transactions.
func (h *history) state(has func(i int) bool) map[string]string {
	m := map[string]string{}
	for i, ops := range h.txns {
		for _, op := range ops {
			if has(i) && op.Delete {
				delete(m, op.Key)
			} else if has(i) {
				m[op.Key] = string(op.Value)
			}
		}
	}
	return m
}

// at returns which record, or what is behind the last, contains a byte.
func (h *history) at(byte int) int {
	i, found := slices.BinarySearch(h.ends, int64(byte))
	if found {
		return i + 1
	}
	return i
}

func loaded(t testing.TB, file []byte) (map[string]string, []Loss) {
	t.Helper()
	l, losses, err := load(&memDisk{slices.Clone(file)})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	l.index.Scan(func(key string, where location) bool {
		v, err := l.value(key, where, nil)
		if err != nil {
			t.Fatal(err)
		}
		got[key] = string(v)
		return true
	})
	return got, losses
}

func all(int) bool { return true }

func TestLoad(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{true, false} {
		h := newHistory(t, closed)
		got, losses := loaded(t, h.file)
		if diff := cmp.Diff(h.state(all), got); diff != "" || losses != nil {
			t.Errorf("closed %v: losses %v, content (-want +got):\n%s", closed, losses, diff)
		}
	}
}

// TestLoadCut cuts the file at every byte that matters: whole records are read, and part of a record is reported.
func TestLoadCut(t *testing.T) {
	t.Parallel()
	h := newHistory(t, true)
	for n := range h.file {
		if n > headerCopy+headerSize && n < recordStart && n%100 != 0 {
			continue // zeros, all alike
		}
		got, losses := loaded(t, h.file[:n])
		whole := h.at(n)
		if diff := cmp.Diff(h.state(func(i int) bool { return i < whole }), got); diff != "" {
			t.Fatalf("cut at %d (-want +got):\n%s", n, diff)
		}
		before := int64(min(n, recordStart))
		if whole > 0 {
			before = h.ends[whole-1]
		}
		zeros := n > recordStart && len(bytes.Trim(h.file[before:n], "\x00")) == 0 // as what is filled ahead
		between := zeros || n == 0 || n == recordStart || slices.Contains(h.ends, int64(n)) || n > int(h.ends[len(h.ends)-1])
		switch {
		case between && len(losses) > 0:
			t.Fatalf("cut at %d, between records: losses %v", n, losses)
		case !between && len(losses) == 0:
			t.Fatalf("cut at %d, in a record: no losses", n)
		}
	}
}

// TestLoadFlip flips every bit that matters, and some of the zeros: one transaction at most is lost, and is reported.
func TestLoadFlip(t *testing.T) {
	t.Parallel()
	h := newHistory(t, true)
	last := len(h.ends) - 1
	named := 0
	for at := range h.file {
		damages := at < headerSize || at >= headerCopy && at < headerCopy+headerSize || at >= recordStart
		if !damages && at%100 != 0 {
			continue // zeros, all alike
		}
		lost := -1
		if at >= recordStart {
			lost = h.at(at)
		}
		want := h.state(func(i int) bool { return i != lost })
		for bit := range 8 {
			b := slices.Clone(h.file)
			b[at] ^= 1 << bit
			got, losses := loaded(t, b)
			if !maps.Equal(got, want) {
				t.Fatalf("byte %d, bit %d, transaction %d (-want +got):\n%s", at, bit, lost, cmp.Diff(want, got))
			}
			switch {
			case damages != (len(losses) == 1):
				t.Fatalf("byte %d, bit %d: losses %v, but it damages something: %v", at, bit, losses, damages)
			case lost >= last && !losses[0].Tail:
				t.Fatalf("byte %d, bit %d, at the end: %v", at, bit, losses)
			case lost >= 0 && lost < last && (losses[0].Transactions != 1 || losses[0].Tail):
				t.Fatalf("byte %d, bit %d: %v, want one transaction", at, bit, losses)
			case lost >= 0 && lost < last && slices.Contains(losses[0].Keys, h.txns[lost][0].Key):
				named++
			}
		}
	}
	if share := 100 * named / (8 * (int(h.ends[last]) - recordStart)); share < 80 {
		t.Errorf("only %d %% of the losses name the key that is lost", share)
	}
}

// TestLoadTorn: a write that a crash cut short is undone from its first missing record on, whatever of the rest is there.
func TestLoadTorn(t *testing.T) {
	t.Parallel()
	h := newHistory(t, false)
	for torn := len(h.ends) - 4; torn < len(h.ends); torn++ {
		b := slices.Clone(h.file)
		clear(b[h.ends[torn-1]:h.ends[torn]])
		got, losses := loaded(t, b)
		if diff := cmp.Diff(h.state(func(i int) bool { return i < torn }), got); diff != "" {
			t.Errorf("record %d missing (-want +got):\n%s", torn, diff)
		}
		if torn == len(h.ends)-1 {
			continue // only zeros follow: the same as a write that never began
		}
		if len(losses) != 1 || !losses[0].Tail {
			t.Errorf("record %d missing: %v, want the tail", torn, losses)
		}
	}
}

// TestLoadLostPage: pages of zeros, noise, and older records.
func TestLoadLostPage(t *testing.T) {
	t.Parallel()
	h := newHistory(t, true)
	from, to := h.ends[1]+10, h.ends[5]-10 // within records 2 and 5
	for name, page := range map[string][]byte{
		"zeros": make([]byte, to-from),
		"noise": bytes.Repeat([]byte{0xa5, 0x5a, 0x33}, int(to-from)/3),
		"older": bytes.Repeat(h.file[recordStart:h.ends[1]], 3)[:to-from],
	} {
		b := slices.Clone(h.file)
		copy(b[from:to], page)
		got, losses := loaded(t, b)
		if diff := cmp.Diff(h.state(func(i int) bool { return i < 2 || i > 5 }), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if len(losses) != 1 || losses[0].Transactions != 4 || losses[0].Offset != h.ends[1] || losses[0].Bytes != h.ends[5]-h.ends[1] {
			t.Errorf("%s: %v, want 4 transactions from %d to %d", name, losses, h.ends[1], h.ends[5])
		}
	}
}

func TestLoadForeign(t *testing.T) {
	t.Parallel()
	h := newHistory(t, true)
	newer := slices.Clone(h.file)
	for _, at := range []int{0, headerCopy} {
		newer[at+len(magic)]++
		le.PutUint32(newer[at+headerSize-4:], sum(newer[at:at+headerSize-4]))
	}
	noHeaders := slices.Clone(h.file)
	clear(noHeaders[:recordStart])
	for name, tt := range map[string]struct {
		file []byte
		want string
	}{
		"text":            {bytes.Repeat([]byte("not a store\n"), 1000), "not a bootlab state file"},
		"short text":      {[]byte("not"), "not a bootlab state file"},
		"no header":       {noHeaders, "not a bootlab state file"},
		"a newer version": {newer, "format version 2"},
	} {
		_, _, err := load(&memDisk{tt.file})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error that says %q", name, err, tt.want)
		}
	}
}

// TestLoadThenWrite: records written after damage, or after a torn write, are read again.
func TestLoadThenWrite(t *testing.T) {
	t.Parallel()
	h := newHistory(t, false)
	last := len(h.ends) - 1
	for lost := range last {
		d := &memDisk{slices.Clone(h.file)}
		d.b[h.ends[lost]-1]++
		l, _, err := load(d)
		if err != nil {
			t.Fatal(err)
		}
		var b batch
		b.reset()
		b.add(l, 0, []store.Op{{Key: "after", Value: []byte("1")}})
		if err := l.write(&b); err != nil {
			t.Fatal(err)
		}
		want := h.state(func(i int) bool { return i < lost || i > lost && lost < last-3 })
		want["after"] = "1"
		got, _ := loaded(t, d.b)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("transaction %d lost (-want +got):\n%s", lost, diff)
		}
	}
}

func TestLossString(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]Loss{
		"70 bytes at offset 8192 cannot be read: 1 transactions are lost, of lease/1, host/a": {
			Offset: 8192, Bytes: 70, Transactions: 1, Keys: []string{"lease/1", "host/a"},
		},
		"7 bytes at offset 9000 cannot be read: the file ends with an incomplete write": {Offset: 9000, Bytes: 7, Tail: true},
	} {
		if got := l.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// FuzzLoad damages a file: every record read was written, in that order, and records written afterwards are read again.
func FuzzLoad(f *testing.F) {
	h := newHistory(f, false)
	f.Add(10_000, 0, []byte{}, 0, 0)
	f.Add(10_000, recordStart+100, []byte("junk"), 0, 0)
	f.Add(recordStart+300, recordStart+64, h.file[recordStart:recordStart+64], 32, 100)
	f.Add(700, 0, h.file[:100], 8, 8)
	f.Add(10_000, 0, bytes.Repeat([]byte{0xff}, 24), 0, 0)
	f.Fuzz(func(t *testing.T, size, at int, junk []byte, from, to int) {
		b := slices.Clone(h.file)
		if at >= 0 && at < len(b) {
			copy(b[at:], junk)
		}
		if from > 0 && from < len(b) && to > 0 && to < len(b) { // a sector that came to the wrong place
			copy(b[to:], h.file[from:min(from+512, len(b))])
		}
		d := &memDisk{b[:max(0, min(size, len(b)))]}
		l, _, err := load(d)
		if err != nil {
			return
		}
		next := 0
		r := reader{file: d, marker: l.marker}
		_, _, err = r.records(func(rec record) {
			var ops []store.Op
			parseOps(rec.payload, func(op store.Op, _ int) { ops = append(ops, op) })
			for next < len(h.txns) && !sameOps(h.txns[next], ops) {
				next++
			}
			if next == len(h.txns) {
				t.Fatalf("record %d holds what was never written there: %v", rec.seq, ops)
			}
			next++
		})
		if err != nil {
			t.Fatal(err)
		}
		before, _ := loaded(t, d.b)
		var after batch
		after.reset()
		after.add(l, 0, []store.Op{{Key: "after", Value: []byte("1")}})
		if err := l.write(&after); err != nil {
			t.Fatal(err)
		}
		before["after"] = "1"
		if got, _ := loaded(t, d.b); !maps.Equal(got, before) {
			t.Fatalf("after one more commit (-want +got):\n%s", cmp.Diff(before, got))
		}
	})
}

func sameOps(a, b []store.Op) bool {
	return slices.EqualFunc(a, b, func(x, y store.Op) bool {
		return x.Key == y.Key && x.Delete == y.Delete && (x.Delete || bytes.Equal(x.Value, y.Value))
	})
}
