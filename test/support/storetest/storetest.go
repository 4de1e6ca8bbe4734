package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/store"
)

// An Open opens the store under test; called again after Close it opens the same one.
type Open func() (store.Store, error)

// Run runs the suite. fresh makes ready the place of a new, empty store and returns how to open it.
func Run(t *testing.T, fresh func(t testing.TB) Open) {
	tests := []struct {
		name string
		run  func(*testing.T, store.Store)
	}{
		{"get what was put", testGet},
		{"delete", testDelete},
		{"scan in order", testScan},
		{"scan ends", testScanEnds},
		{"conditions", testConditions},
		{"all or nothing", testAtomic},
		{"operations in order", testOrder},
		{"values are copies", testCopies},
		{"bad keys", testBadKeys},
		{"cancelled", testCancelled},
		{"commit all", testCommitAll},
		{"commit all, cancelled", testCommitAllCancelled},
		{"one winner", testOneWinner},
		{"counter", testCounter},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := mustOpen(t, fresh(t))
			defer func() {
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			}()
			tt.run(t, s)
		})
	}
	t.Run("reopen", func(t *testing.T) {
		t.Parallel()
		testReopen(t, fresh(t))
	})
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		testClosed(t, mustOpen(t, fresh(t)))
	})
}

func mustOpen(t *testing.T, open Open) store.Store {
	t.Helper()
	s, err := open()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func commit(t *testing.T, s store.Store, txn store.Txn) {
	t.Helper()
	if err := s.Commit(t.Context(), txn); err != nil {
		t.Fatalf("commit %+v: %v", txn, err)
	}
}

// content returns the whole store.
func content(t *testing.T, s store.Store) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := s.Scan(t.Context(), "", func(k string, v []byte) error {
		got[k] = string(v)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func testGet(t *testing.T, s store.Store) {
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("get of an absent key: %v, want ErrNotFound", err)
	}
	commit(t, s, store.Put("a", []byte("1")))
	commit(t, s, store.Put("empty", nil))
	commit(t, s, store.Put("a", []byte("2")))
	for key, want := range map[string]string{"a": "2", "empty": ""} {
		got, err := s.Get(t.Context(), key)
		if err != nil || string(got) != want {
			t.Errorf("get %q = %q, %v, want %q", key, got, err, want)
		}
	}
}

func testDelete(t *testing.T, s store.Store) {
	commit(t, s, store.Put("a", []byte("1")))
	commit(t, s, store.Delete("a"))
	commit(t, s, store.Delete("never there"))
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("get of a deleted key: %v, want ErrNotFound", err)
	}
}

func testScan(t *testing.T, s store.Store) {
	for _, k := range []string{"b/2", "a", "b/10", "c", "b", "b/1", "b0", "b/\xff"} {
		commit(t, s, store.Put(k, []byte("="+k)))
	}
	for prefix, want := range map[string][]string{
		"b/":   {"b/1", "b/10", "b/2", "b/\xff"},
		"b":    {"b", "b/1", "b/10", "b/2", "b/\xff", "b0"},
		"":     {"a", "b", "b/1", "b/10", "b/2", "b/\xff", "b0", "c"},
		"none": nil,
	} {
		var got []string
		err := s.Scan(t.Context(), prefix, func(k string, v []byte) error {
			if string(v) != "="+k {
				t.Errorf("scan %q: value of %q = %q", prefix, k, v)
			}
			got = append(got, k)
			return nil
		})
		if err != nil {
			t.Errorf("scan %q: %v", prefix, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("scan %q (-want +got):\n%s", prefix, diff)
		}
	}
}

func testScanEnds(t *testing.T, s store.Store) {
	for i := range 10 {
		commit(t, s, store.Put(strconv.Itoa(i), nil))
	}
	enough, seen := errors.New("enough"), 0
	err := s.Scan(t.Context(), "", func(string, []byte) error {
		if seen++; seen == 3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || seen != 3 {
		t.Errorf("scan = %v after %d keys, want %v after 3", err, seen, enough)
	}
}

func testConditions(t *testing.T, s store.Store) {
	commit(t, s, store.Put("there", []byte("1")))
	commit(t, s, store.Put("empty", nil))
	tests := []struct {
		name string
		cond store.Cond
		want error
	}{
		{"absent, and is", store.Cond{Key: "new", Absent: true}, nil},
		{"absent, but is there", store.Cond{Key: "there", Absent: true}, store.ErrConflict},
		{"absent, but is empty", store.Cond{Key: "empty", Absent: true}, store.ErrConflict},
		{"value, and is", store.Cond{Key: "there", Value: []byte("1")}, nil},
		{"value, but is another", store.Cond{Key: "there", Value: []byte("2")}, store.ErrConflict},
		{"value, but is absent", store.Cond{Key: "new", Value: []byte("1")}, store.ErrConflict},
		{"empty value, but is absent", store.Cond{Key: "new"}, store.ErrConflict},
		{"empty value, and is", store.Cond{Key: "empty"}, nil},
	}
	for i, tt := range tests {
		key := "written/" + strconv.Itoa(i)
		err := s.Commit(t.Context(), store.Txn{If: []store.Cond{tt.cond}, Then: []store.Op{{Key: key}}})
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: commit = %v, want %v", tt.name, err, tt.want)
		}
		if _, err := s.Get(t.Context(), key); errors.Is(err, store.ErrNotFound) != (tt.want != nil) {
			t.Errorf("%s: commit = %v, but get = %v", tt.name, tt.want, err)
		}
	}
	if err := s.Commit(t.Context(), store.Txn{If: []store.Cond{{Key: "there", Value: []byte("1")}}}); err != nil {
		t.Errorf("conditions without operations: %v", err)
	}
}

func testAtomic(t *testing.T, s store.Store) {
	commit(t, s, store.Put("taken", []byte("1")))
	err := s.Commit(t.Context(), store.Txn{
		If:   []store.Cond{{Key: "free", Absent: true}, {Key: "taken", Absent: true}},
		Then: []store.Op{{Key: "free", Value: []byte("2")}, {Key: "taken", Value: []byte("2")}},
	})
	if !errors.Is(err, store.ErrConflict) {
		t.Errorf("commit = %v, want ErrConflict", err)
	}
	if diff := cmp.Diff(map[string]string{"taken": "1"}, content(t, s)); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
}

func testOrder(t *testing.T, s store.Store) {
	commit(t, s, store.Txn{Then: []store.Op{
		{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")},
		{Key: "b", Value: []byte("1")}, {Key: "b", Delete: true},
		{Key: "c", Delete: true}, {Key: "c", Value: []byte("1")},
	}})
	if diff := cmp.Diff(map[string]string{"a": "2", "c": "1"}, content(t, s)); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
}

func testCopies(t *testing.T, s store.Store) {
	value := []byte("1")
	commit(t, s, store.Put("a", value))
	value[0] = 'x'
	got, err := s.Get(t.Context(), "a")
	if err != nil || string(got) != "1" {
		t.Fatalf("get = %q, %v, want 1: the store kept the caller's slice", got, err)
	}
	got[0] = 'y'
	if again, _ := s.Get(t.Context(), "a"); string(again) != "1" {
		t.Errorf("get = %q, want 1: the store handed out its own slice", again)
	}
}

func testBadKeys(t *testing.T, s store.Store) {
	err := s.Commit(t.Context(), store.Txn{Then: []store.Op{{Key: "a"}, {Key: ""}}})
	if err == nil {
		t.Error("commit of an empty key succeeded")
	}
	if got := content(t, s); len(got) != 0 {
		t.Errorf("content = %v, want none", got)
	}
}

func testCancelled(t *testing.T, s store.Store) {
	commit(t, s, store.Put("a", nil))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Get(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("get = %v, want canceled", err)
	}
	if err := s.Scan(ctx, "", func(string, []byte) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("scan = %v, want canceled", err)
	}
	for range 20 { // a select between two ready channels takes either
		if err := s.Commit(ctx, store.Put("b", nil)); !errors.Is(err, context.Canceled) {
			t.Errorf("commit = %v, want canceled", err)
		}
	}
	if diff := cmp.Diff(map[string]string{"a": ""}, content(t, s)); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
}

// testCommitAll: each transaction has an outcome of its own, and sees those before it.
func testCommitAll(t *testing.T, s store.Store) {
	if got := s.CommitAll(t.Context(), nil); len(got) != 0 {
		t.Errorf("commit of nothing = %v", got)
	}
	commit(t, s, store.Put("old", []byte("1")))
	when := func(c store.Cond, ops ...store.Op) store.Txn { return store.Txn{If: []store.Cond{c}, Then: ops} }
	tests := []struct {
		name string
		txn  store.Txn
		want error
	}{
		{"absent", when(store.Cond{Key: "a", Absent: true}, store.Op{Key: "a", Value: []byte("1")}), nil},
		{"no longer absent", when(store.Cond{Key: "a", Absent: true}, store.Op{Key: "b"}, store.Op{Key: "a"}), store.ErrConflict},
		{"written just now", when(store.Cond{Key: "a", Value: []byte("1")}, store.Op{Key: "a", Value: []byte("2")}), nil},
		{"unconditional", store.Put("c", []byte("3")), nil},
		{"delete", when(store.Cond{Key: "old", Value: []byte("1")}, store.Op{Key: "old", Delete: true}), nil},
		{"deleted just now", when(store.Cond{Key: "old", Value: []byte("1")}, store.Op{Key: "old", Value: []byte("2")}), store.ErrConflict},
		{"nothing to do", store.Txn{}, nil},
		{"bad key", store.Txn{Then: []store.Op{{Key: "d"}, {Key: ""}}}, errBadKey},
		{"after the bad one", store.Put("e", nil), nil},
	}
	var txns []store.Txn
	for _, tt := range tests {
		txns = append(txns, tt.txn)
	}
	got := s.CommitAll(t.Context(), txns)
	if len(got) != len(txns) {
		t.Fatalf("%d outcomes, want %d", len(got), len(txns))
	}
	for i, tt := range tests {
		if tt.want == errBadKey {
			if got[i] == nil {
				t.Errorf("%s: succeeded", tt.name)
			}
		} else if !errors.Is(got[i], tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got[i], tt.want)
		}
	}
	if diff := cmp.Diff(map[string]string{"a": "2", "c": "3", "e": ""}, content(t, s)); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
}

// errBadKey stands for whatever error a store has for a bad key.
var errBadKey = errors.New("any error")

func testCommitAllCancelled(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i, err := range s.CommitAll(ctx, []store.Txn{store.Put("a", nil), store.Put("b", nil)}) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("outcome %d = %v, want canceled", i, err)
		}
	}
	if got := content(t, s); len(got) != 0 {
		t.Errorf("content = %v, want none", got)
	}
}

// testOneWinner lets many callers take each key if it is absent: exactly one may succeed.
func testOneWinner(t *testing.T, s store.Store) {
	const callers, keys = 16, 20
	var wins [keys]atomic.Int32
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for k := range keys {
				key := strconv.Itoa(k)
				err := s.Commit(t.Context(), store.Txn{
					If:   []store.Cond{{Key: key, Absent: true}},
					Then: []store.Op{{Key: key, Value: []byte(strconv.Itoa(c))}},
				})
				switch {
				case err == nil:
					wins[k].Add(1)
				case !errors.Is(err, store.ErrConflict):
					t.Errorf("commit: %v", err)
				}
			}
		})
	}
	wg.Wait()
	for k := range wins {
		if n := wins[k].Load(); n != 1 {
			t.Errorf("key %d has %d winners, want 1", k, n)
		}
	}
}

// testCounter lets many callers count in one key by compare-and-swap: no increment may be lost.
func testCounter(t *testing.T, s store.Store) {
	const callers, each = 8, 10
	commit(t, s, store.Put("n", []byte("0")))
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				if err := increment(t.Context(), s, "n"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got, err := s.Get(t.Context(), "n"); err != nil || string(got) != strconv.Itoa(callers*each) {
		t.Errorf("n = %q, %v, want %d", got, err, callers*each)
	}
}

func increment(ctx context.Context, s store.Store, key string) error {
	for {
		old, err := s.Get(ctx, key)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(old))
		if err != nil {
			return fmt.Errorf("counter holds %q: %w", old, err)
		}
		err = s.Commit(ctx, store.Txn{
			If:   []store.Cond{{Key: key, Value: old}},
			Then: []store.Op{{Key: key, Value: []byte(strconv.Itoa(n + 1))}},
		})
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

func testReopen(t *testing.T, open Open) {
	want := map[string]string{}
	for round := range 3 {
		s := mustOpen(t, open)
		if diff := cmp.Diff(want, content(t, s)); diff != "" {
			t.Errorf("round %d: content (-want +got):\n%s", round, diff)
		}
		for i := range 50 {
			key, value := fmt.Sprintf("%d/%d", round, i), strconv.Itoa(i)
			commit(t, s, store.Put(key, []byte(value)))
			want[key] = value
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func testClosed(t *testing.T, s store.Store) {
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), store.Put("a", nil)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("commit = %v, want ErrClosed", err)
	}
	for i, err := range s.CommitAll(t.Context(), []store.Txn{store.Put("a", nil), store.Put("b", nil)}) {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("outcome %d of many = %v, want ErrClosed", i, err)
		}
	}
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("get = %v, want ErrClosed", err)
	}
	if err := s.Scan(t.Context(), "", func(string, []byte) error { return nil }); !errors.Is(err, store.ErrClosed) {
		t.Errorf("scan = %v, want ErrClosed", err)
	}
}
