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
	"github.com/bootlab/bootlab/test/support/storetest"
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

// newHistory writes groups of records. The header of a closed one says so.
func newHistory(t testing.TB, closed bool) *history {
	d, h := &memDisk{}, &history{}
	l, err := create(d)
	if err != nil {
		t.Fatal(err)
	}
	var b batch
	for g, size := range []int{1, 3, 2, 1, 4} {
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
		if err := l.write(&b); err != nil {
			t.Fatal(err)
		}
	}
	h.file = d.b[:l.end+500] // most of the zeros say nothing
	if closed {
		if err := l.writeMark(l.end); err != nil {
			t.Fatal(err)
		}
		h.file = d.b[:l.end]
	}
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

func kinds(losses []Loss) (ks []Kind) {
	for _, l := range losses {
		ks = append(ks, l.Kind)
	}
	return ks
}

// TestLoadCut cuts the file at every byte that matters: whole records are read, and it is told whether acknowledged ones are missing.
func TestLoadCut(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{true, false} {
		h := newHistory(t, closed)
		for n := range h.file {
			if n > headerCopy+headerSize && n < recordStart && n%100 != 0 || n > headerSize && n < headerCopy && n%100 != 0 {
				continue // zeros, all alike
			}
			got, losses := loaded(t, h.file[:n])
			whole := h.at(n)
			if n < headerSize {
				whole = 0
			}
			if diff := cmp.Diff(h.state(func(i int) bool { return i < whole }), got); diff != "" {
				t.Fatalf("cut at %d (-want +got):\n%s", n, diff)
			}
			var want []Kind
			if n < headerCopy+headerSize && n >= headerSize {
				want = []Kind{Corrected} // the second header
			}
			switch {
			case closed, n < recordStart:
				want = append(want, Lost)
			case n > recordStart && !slices.Contains(h.ends, int64(n)) && n < int(h.ends[len(h.ends)-1]):
				want = append(want, Torn) // the mark is older than that record: it may never have been acknowledged
			}
			if diff := cmp.Diff(want, kinds(losses)); diff != "" {
				t.Fatalf("closed %v, cut at %d: %v (-want +got):\n%s", closed, n, losses, diff)
			}
			if last := len(losses) - 1; closed && n >= headerSize && losses[last].Transactions != uint64(len(h.ends)-whole) {
				t.Fatalf("cut at %d: %v, want %d changes", n, losses, len(h.ends)-whole)
			}
		}
	}
}

// TestLoadFlip flips a bit of every byte that matters, and of some of the zeros; with BOOTLAB_LONG every bit: nothing is lost, and what was wrong is reported.
func TestLoadFlip(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{true, false} {
		h := newHistory(t, closed)
		want, end := h.state(all), int(h.ends[len(h.ends)-1])
		for at := range h.file {
			damages := at < headerSize || at >= headerCopy && at < headerCopy+headerSize || at >= recordStart
			if !damages && at%100 != 0 {
				continue // zeros, all alike
			}
			for bit := range 8 {
				if !storetest.Long() && bit != at%8 {
					continue
				}
				b := slices.Clone(h.file)
				b[at] ^= 1 << bit
				d := &memDisk{b}
				_, losses, err := load(d)
				if err != nil {
					t.Fatal(err)
				}
				var kind []Kind
				switch {
				case at >= end:
					kind = []Kind{Torn}
				case damages:
					kind = []Kind{Corrected}
				}
				if diff := cmp.Diff(kind, kinds(losses)); diff != "" {
					t.Fatalf("byte %d, bit %d: %v (-want +got):\n%s", at, bit, losses, diff)
				}
				if got, again := loaded(t, d.b); !maps.Equal(got, want) || again != nil { // what was corrected stays so
					t.Fatalf("byte %d, bit %d: then %v (-want +got):\n%s", at, bit, again, cmp.Diff(want, got))
				}
			}
		}
	}
}

// TestLoadDamage damages every byte of the records, more than can be corrected: one transaction is lost, and is reported.
func TestLoadDamage(t *testing.T) {
	t.Parallel()
	h := newHistory(t, true)
	last := len(h.ends) - 1
	named := 0
	for at := recordStart; at < len(h.file); at++ {
		lost := h.at(at)
		b := slices.Clone(h.file)
		b[at] ^= 0x15
		got, losses := loaded(t, b)
		if want := h.state(func(i int) bool { return i != lost }); !maps.Equal(got, want) {
			t.Fatalf("byte %d, transaction %d (-want +got):\n%s", at, lost, cmp.Diff(want, got))
		}
		if len(losses) != 1 || losses[0].Kind != Lost || losses[0].Transactions != 1 {
			t.Fatalf("byte %d: %v, want one transaction", at, losses)
		}
		if slices.Contains(losses[0].Keys, h.txns[lost][0].Key) {
			named++
		}
	}
	if share := 100 * named / (int(h.ends[last]) - recordStart); share < 80 {
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
		if len(losses) != 1 || losses[0].Kind != Torn {
			t.Errorf("record %d missing: %v, want a torn write", torn, losses)
		}
	}
}

// TestLoadAcknowledged: what a header says was durable is a loss if it is missing, and what follows it is read.
func TestLoadAcknowledged(t *testing.T) {
	t.Parallel()
	h := newHistory(t, true)
	for lost := len(h.ends) - 4; lost < len(h.ends); lost++ {
		b := slices.Clone(h.file)
		clear(b[h.ends[lost-1]:h.ends[lost]])
		got, losses := loaded(t, b)
		if diff := cmp.Diff(h.state(func(i int) bool { return i != lost }), got); diff != "" {
			t.Errorf("record %d missing (-want +got):\n%s", lost, diff)
		}
		if len(losses) != 1 || losses[0].Kind != Lost || losses[0].Transactions != 1 {
			t.Errorf("record %d missing: %v, want one lost transaction", lost, losses)
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

// TestLoadWithoutHeaders: records are found without their headers; only the end of the file is in doubt then.
func TestLoadWithoutHeaders(t *testing.T) {
	t.Parallel()
	h := newHistory(t, true)
	clear(h.file[:recordStart])
	clear(h.file[recordStart:h.ends[0]])
	got, losses := loaded(t, h.file)
	if diff := cmp.Diff(h.state(func(i int) bool { return i > 0 }), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Kind{Lost, Lost}, kinds(losses)); diff != "" {
		t.Errorf("%v (-want +got):\n%s", losses, diff)
	}
}

// TestLoadForeign: a file that is no log has lost everything.
func TestLoadForeign(t *testing.T) {
	t.Parallel()
	for name, file := range map[string][]byte{
		"text": bytes.Repeat([]byte("not a store\n"), 1000), "short text": []byte("not"), "empty": nil, "zeros": make([]byte, 1<<20),
	} {
		l, losses, err := load(&memDisk{file})
		if err != nil || l.index.Len() > 0 || l.broken == nil || len(losses) != 1 || !strings.Contains(losses[0].String(), "everything is lost") {
			t.Errorf("%s: %v, %v", name, losses, err)
		}
	}
}

// TestLoadNewer: a file of a later format is refused, also if one of its headers is damaged.
func TestLoadNewer(t *testing.T) {
	t.Parallel()
	h := newHistory(t, true)
	for _, at := range []int{0, headerCopy} {
		h.file[at+len(magic)]++
		le.PutUint32(h.file[at+headerSize-4:], sum(h.file[at:at+headerSize-4]))
	}
	for _, damage := range []int{100, 0, headerCopy} {
		b := slices.Clone(h.file)
		b[damage]++
		if _, _, err := load(&memDisk{b}); err == nil || !strings.Contains(err.Error(), "it has format version 2 and this bootlab reads version 1: use") {
			t.Errorf("damage at %d: %v", damage, err)
		}
	}
}

// TestLoadThenWrite: records written after a torn write are read again, and nothing of that write.
func TestLoadThenWrite(t *testing.T) {
	t.Parallel()
	h := newHistory(t, false)
	for torn := len(h.ends) - 4; torn < len(h.ends); torn++ {
		d := &memDisk{slices.Clone(h.file)}
		clear(d.b[h.ends[torn]-9 : h.ends[torn]])
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
		want := h.state(func(i int) bool { return i < torn })
		want["after"] = "1"
		if got, _ := loaded(t, d.b); !maps.Equal(got, want) {
			t.Fatalf("transaction %d torn (-want +got):\n%s", torn, cmp.Diff(want, got))
		}
	}
}

func TestLossString(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]Loss{
		"70 bytes at offset 8192 cannot be read: 2 changes are lost, perhaps of lease 1, timeline a": {
			Kind: Lost, Offset: 8192, Bytes: 70, Transactions: 2, Keys: []string{"lease/1", "timeline/a/18ec580354ba03fb/1", "timeline/a/18ec580354ba03fb/2"},
		},
		"70 bytes at offset 8192 cannot be read: 1 change is lost, of lease 1": {
			Kind: Lost, Offset: 8192, Bytes: 70, Transactions: 1, Keys: []string{"lease/1"}, Exact: true,
		},
		"7 bytes at offset 9000 are a write that a crash cut short: removed them, no machine was answered for it": {Kind: Torn, Offset: 9000, Bytes: 7},
		"at offset 9000: the end of the file is missing: 3 changes are lost":                                      {Kind: Lost, Offset: 9000, Cause: "the end of the file is missing", Transactions: 3},
		"90 bytes at offset 9000: one bit was wrong: corrected it":                                                {Kind: Corrected, Offset: 9000, Bytes: 90, Cause: "one bit was wrong: corrected it"},
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
		r := reader{file: d, marker: l.marker, acked: l.mark.seq}
		_, _ = r.records(func(rec record) {
			var ops []store.Op
			parseOps(rec.payload, func(op parsedOp) {
				ops = append(ops, store.Op{Key: string(op.key), Value: op.value, Delete: op.deletes})
			})
			for next < len(h.txns) && !sameOps(h.txns[next], ops) {
				next++
			}
			if next == len(h.txns) {
				t.Fatalf("record %d holds what was never written there: %v", rec.seq, ops)
			}
			next++
		})
		if l.broken != nil {
			return
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
