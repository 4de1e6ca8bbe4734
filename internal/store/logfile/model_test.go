package logfile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/store"
)

// A model is a map that must always have the same content as the store.
type model struct {
	t      *testing.T
	r      *rand.Rand
	s      *Store
	path   string
	want   map[string]string
	faults *faults
	log    []string // the last steps
}

// TestModel does random things to a store and to a map: commits with and without conditions, reads, scans, compactions,
// a disk that fails, kills and restarts.
func TestModel(t *testing.T) {
	t.Parallel()
	seeds := 8
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			m := &model{
				t: t, r: rand.New(rand.NewPCG(uint64(seed), 7)), path: filepath.Join(t.TempDir(), "store.db"),
				want: map[string]string{}, faults: &faults{},
			}
			m.s = begin(t, m.path, small, m.faults.disk)
			for range 1000 {
				m.step()
				if t.Failed() {
					t.Fatalf("after …%q", m.log)
				}
			}
			m.fix()
			m.reopen()
		})
	}
}

func (m *model) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
	m.log = m.log[max(0, len(m.log)-20):]
}

func (m *model) step() {
	switch n := m.r.IntN(1000); {
	case n < 600:
		m.commit()
	case n < 800:
		m.get()
	case n < 890:
		m.scan()
	case n < 930:
		m.note("compact")
		_ = tryCompact(m.s)
	case n < 945:
		m.fail()
	case n < 975:
		m.fix()
	case n < 990:
		m.crash()
	default:
		m.fix()
		m.reopen()
	}
}

func (m *model) key() string {
	return strings.Repeat("k", 1+m.r.IntN(3)) + fmt.Sprint(m.r.IntN(60))
}

func (m *model) txn() (txn store.Txn) {
	for range m.r.IntN(3) {
		c := store.Cond{Key: m.key()}
		v, ok := m.want[c.Key]
		if c.Value = []byte(v); m.r.IntN(10) == 0 {
			c.Value = []byte("other")
		}
		c.Absent = !ok
		txn.If = append(txn.If, c)
	}
	for range m.r.IntN(4) {
		txn.Then = append(txn.Then, store.Op{
			Key: m.key(), Value: bytes.Repeat([]byte{'a' + byte(m.r.IntN(26))}, m.r.IntN(80)), Delete: m.r.IntN(4) == 0,
		})
	}
	return txn
}

// do does what a store must do with txn.
func do(want map[string]string, txn store.Txn) error {
	for _, c := range txn.If {
		if v, ok := want[c.Key]; c.Absent == ok || ok && v != string(c.Value) {
			return store.ErrConflict
		}
	}
	for _, op := range txn.Then {
		if op.Delete {
			delete(want, op.Key)
		} else {
			want[op.Key] = string(op.Value)
		}
	}
	return nil
}

func (m *model) commit() {
	txns := make([]store.Txn, 1+m.r.IntN(6))
	for i := range txns {
		txns[i] = m.txn()
	}
	got := m.s.CommitAll(m.t.Context(), txns)
	after := maps.Clone(m.want)
	var wants []error
	for _, txn := range txns {
		wants = append(wants, do(after, txn))
	}
	m.note("commit %v", got)
	for _, err := range got {
		if err != nil && !errors.Is(err, store.ErrConflict) { // everybody's
			if !m.faults.failing(func(f *faults) bool { return f.open || f.write || f.sync || f.cut }) {
				m.t.Errorf("commit: %v without a fault", err)
			}
			return
		}
	}
	for i, err := range got {
		if !errors.Is(err, wants[i]) {
			m.t.Errorf("outcome %d of %+v = %v, want %v", i, txns[i], err, wants[i])
		}
	}
	m.want = after
}

func (m *model) get() {
	key := m.key()
	got, err := m.s.Get(m.t.Context(), key)
	want, ok := m.want[key]
	if string(got) != want || errors.Is(err, store.ErrNotFound) == ok || ok && err != nil {
		m.t.Errorf("get %s = %q, %v, want %q, %v", key, got, err, want, ok)
	}
}

func (m *model) scan() {
	prefix := []string{"", "k", "kk", "kkk1", "none"}[m.r.IntN(5)]
	want := maps.Clone(m.want)
	maps.DeleteFunc(want, func(k, _ string) bool { return !strings.HasPrefix(k, prefix) })
	if diff := cmp.Diff(want, content(m.t, m.s, prefix)); diff != "" {
		m.t.Errorf("scan %q (-want +got):\n%s", prefix, diff)
	}
}

// fail breaks something. It does not break cutting: without it a record whose commit failed may be found after a kill.
func (m *model) fail() {
	which := m.r.IntN(3)
	m.note("fail %d", which)
	m.faults.set(func(f *faults) {
		switch which {
		case 0:
			f.open = true
		case 1:
			f.write = true
		case 2:
			f.sync = true
		}
	})
}

// fix ends all faults, and waits until the store takes records again.
func (m *model) fix() {
	m.note("fix")
	m.faults.set(func(f *faults) { f.open, f.write, f.sync, f.cut = false, false, false, false })
	waitHealed(m.s)
}

func (m *model) crash() {
	m.note("crash")
	path := crashed(m.t, m.s)
	m.fix()
	m.s.Close()
	m.path = path
	m.s = begin(m.t, m.path, small, m.faults.disk)
	wantContent(m.t, m.s, m.want)
}

func (m *model) reopen() {
	m.note("reopen")
	if err := m.s.Close(); err != nil {
		m.t.Fatalf("close: %v", err)
	}
	if left, _ := filepath.Glob(m.path + ".*"); len(left) > 0 {
		m.t.Errorf("left after close: %q", left)
	}
	m.s = begin(m.t, m.path, small, m.faults.disk)
	wantContent(m.t, m.s, m.want)
}
