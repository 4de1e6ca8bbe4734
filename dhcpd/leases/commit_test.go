package leases

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// rows is the book in short: "10.0.0.20 02:00:00:00:00:01 active".
func rows(b *Book) (out []string) {
	for _, l := range b.All() {
		out = append(out, fmt.Sprintf("%s %d %s", l.Addr, l.MAC[5], l.State))
	}
	return out
}

func (d *testBook) wantRows(want ...string) {
	d.t.Helper()
	if diff := cmp.Diff(want, rows(d.Book)); diff != "" {
		d.t.Errorf("book (-want +got):\n%s", diff)
	}
	stored := 0
	_ = d.store.Scan(context.Background(), "", func(string, []byte) error { stored++; return nil })
	d.reopen()
	if diff := cmp.Diff(want, rows(d.Book)); diff != "" {
		d.t.Errorf("book after a restart (-want +got):\n%s", diff)
	}
	if stored != len(want) {
		d.t.Errorf("%d keys in the store, want %d", stored, len(want))
	}
	if err := d.check(); err != nil {
		d.t.Error(err)
	}
}

func TestCommit(t *testing.T) {
	t.Parallel()
	runCases(t, []bookCase{
		{"one machine has one address in a subnet", func(d *testBook) {
			d.lease(1, "10.0.0.20")
			d.lease(1, "10.0.0.21")
		}, []string{"10.0.0.21 1 active"}},
		{"and one in each", func(d *testBook) {
			d.lease(1, "10.0.0.20")
			c := d.change(1, "10.1.0.20")
			c.Subnet = netip.MustParsePrefix("10.1.0.0/16")
			d.commit(c)
		}, []string{"10.0.0.20 1 active", "10.1.0.20 1 active"}},
		{"whatever client id it sends", func(d *testBook) {
			for i, id := range []string{"", "\x01\x02\x00\x00\x00\x00\x01", "\xff\x00\x00\x00\x01\x00\x01"} {
				c := d.change(1, fmt.Sprintf("10.0.0.2%d", i))
				c.ClientID = []byte(id)
				d.commit(c)
			}
		}, []string{"10.0.0.22 1 active"}},
		{"one address has one machine", func(d *testBook) {
			d.lease(1, "10.0.0.20")
			c := d.change(2, "10.0.0.20")
			d.commit(c)
			if !errors.Is(c.Err, ErrLeased) {
				d.t.Errorf("outcome is %v, want ErrLeased", c.Err)
			}
		}, []string{"10.0.0.20 1 active"}},
		{"even asked for at once", func(d *testBook) {
			a, b := d.change(1, "10.0.0.20"), d.change(2, "10.0.0.20")
			d.commit(a, b)
			if a.Err != nil || !errors.Is(b.Err, ErrLeased) {
				d.t.Errorf("outcomes are %v and %v, want nil and ErrLeased", a.Err, b.Err)
			}
		}, []string{"10.0.0.20 1 active"}},
		{"in the order of the packets", func(d *testBook) {
			gone := d.change(1, "10.0.0.20")
			gone.State, gone.Expiry = Released, gone.Start
			d.commit(d.change(1, "10.0.0.20"), gone, d.change(2, "10.0.0.20"), d.change(1, "10.0.0.21"), d.change(1, "10.0.0.22"))
		}, []string{"10.0.0.20 2 active", "10.0.0.22 1 active"}},
	})
}

// TestCommitBesides: reserved, declined and impossible changes.
func TestCommitBesides(t *testing.T) {
	t.Parallel()
	runCases(t, []bookCase{
		{"a reserved address is its host's", func(d *testBook) {
			d.lease(1, "10.0.0.20")
			c := d.change(2, "10.0.0.20")
			c.Reserved = true
			d.commit(c)
			if l, ok := d.ByMAC(mac(1)); ok {
				d.t.Errorf("machine 1 still has %s", l.Addr)
			}
		}, []string{"10.0.0.20 2 active"}},
		{"the NICs of one host take turns", func(d *testBook) {
			for n := range 6 {
				c := d.change(1+n%2, "10.0.0.20")
				c.Reserved = true
				d.clock.Advance(time.Second)
				d.commit(c)
				if l, ok := d.ByMAC(mac(1 + n%2)); c.Err != nil || !ok || l.Addr != c.Addr {
					d.t.Errorf("turn %d: %v, %v", n, c.Err, ok)
				}
			}
		}, []string{"10.0.0.20 2 active"}},
		{"an expired address is free", func(d *testBook) {
			d.lease(1, "10.0.0.20")
			d.clock.Advance(time.Hour)
			d.lease(2, "10.0.0.20")
		}, []string{"10.0.0.20 2 active"}},
		{"a declined one is not", func(d *testBook) {
			d.lease(1, "10.0.0.20")
			d.decline(1, "10.0.0.20", time.Minute)
			for n := range 3 {
				c := d.change(1+n, "10.0.0.20")
				d.commit(c)
				if !errors.Is(c.Err, ErrLeased) {
					d.t.Errorf("outcome for machine %d is %v, want ErrLeased", 1+n, c.Err)
				}
			}
			if _, ok := d.Bound(mac(1), subnet); ok {
				d.t.Error("the client that declined an address does not have it")
			}
		}, []string{"10.0.0.20 1 declined"}},
		{"to decline one is not to give up another", func(d *testBook) {
			d.lease(1, "10.0.0.20")
			d.decline(1, "10.0.0.21", time.Minute)
		}, []string{"10.0.0.20 1 active", "10.0.0.21 1 declined"}},
		{"a declined address that is released by hand does not affect its client", func(d *testBook) {
			d.lease(1, "10.0.0.20")
			d.decline(1, "10.0.0.21", time.Minute)
			d.release(1, "10.0.0.21")
		}, []string{"10.0.0.20 1 active"}},
		{"or is remembered for it", func(d *testBook) {
			d.decline(1, "10.0.0.21", time.Minute)
			d.release(1, "10.0.0.21")
		}, []string{"10.0.0.21 1 released"}},
		{"what cannot be", func(d *testBook) {
			none, v6, conflict := d.change(1, "10.0.0.20"), d.change(1, "2001:db8::1"), d.change(1, "10.0.0.21")
			none.Addr, conflict.State = netip.Addr{}, Conflict
			good := d.change(2, "10.0.0.22")
			d.commit(none, v6, good, conflict)
			if none.Err == nil || v6.Err == nil || conflict.Err == nil || good.Err != nil {
				d.t.Errorf("outcomes are %v, %v, %v, %v", none.Err, v6.Err, conflict.Err, good.Err)
			}
		}, []string{"10.0.0.22 2 active"}},
		{"many at once", func(d *testBook) {
			var all []*Change
			for n := range 2*lockedChanges + 7 {
				all = append(all, d.change(n%3, fmt.Sprintf("10.0.0.%d", 20+n%3)))
			}
			d.commit(all...)
			for i, c := range all {
				if c.Err != nil {
					d.t.Errorf("change %d: %v", i, c.Err)
				}
			}
		}, []string{"10.0.0.20 0 active", "10.0.0.21 1 active", "10.0.0.22 2 active"}},
		{"by hand", func(d *testBook) {
			d.lease(1, "10.0.0.20")
			d.decline(2, "10.0.0.21", time.Hour)
			d.Conflict(ip("10.0.0.22"), mac(3), d.clock.Now().Add(time.Hour))
			d.lease(4, "10.0.0.23")
			for _, a := range []string{"10.0.0.20", "10.0.0.21", "10.0.0.22", "10.0.0.99"} {
				if err := d.Forget(context.Background(), ip(a)); err != nil {
					d.t.Error(err)
				}
			}
		}, []string{"10.0.0.23 4 active"}},
	})
}

// A lease is visible once it is durable, and never if it is not.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	p := pool(20, 29)
	d.lease(1, "10.0.0.20")
	full := errors.New("no space left on device")
	d.store.FailCommits(full)
	fresh, moved := d.change(2, "10.0.0.21"), d.change(1, "10.0.0.22")
	d.commit(fresh, moved)
	if !errors.Is(fresh.Err, full) || !errors.Is(moved.Err, full) {
		t.Errorf("outcomes are %v and %v, want those of the store", fresh.Err, moved.Err)
	}
	d.wantUsage(p, 1, 0, 9)
	if err := d.Forget(t.Context(), ip("10.0.0.20")); !errors.Is(err, full) {
		t.Errorf("forget: %v", err)
	}
	d.store.FailCommits(nil)
	d.commit(fresh)
	d.wantRows("10.0.0.20 1 active", "10.0.0.21 2 active")
}

// shared is one store under two daemons.
func shared(t *testing.T) (one, two *testBook) {
	one = newTestBook(t)
	two = &testBook{t: t, clock: one.clock, store: one.store}
	two.Book = openBook(t, two.store, two.clock.Now)
	return one, two
}

// Another daemon on the same store was first: the book learns what it did, and decides again.
func TestAnotherDaemon(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		run  func(one, two *testBook)
		want []string // what two says
	}{
		{"a free address is taken", func(one, two *testBook) {
			one.lease(1, "10.0.0.20")
			c, other := two.change(2, "10.0.0.20"), two.change(3, "10.0.0.21")
			two.commit(c, other)
			if !errors.Is(c.Err, ErrLeased) || other.Err != nil {
				two.t.Errorf("outcomes are %v and %v, want ErrLeased and nil", c.Err, other.Err)
			}
		}, []string{"10.0.0.20 1 active", "10.0.0.21 3 active"}},
		{"the same machine", func(one, two *testBook) {
			one.lease(1, "10.0.0.20")
			two.clock.Advance(time.Minute)
			two.lease(1, "10.0.0.20")
		}, []string{"10.0.0.20 1 active"}},
		{"a renewal of what is gone", func(one, two *testBook) {
			two.lease(1, "10.0.0.20")
			one.Book = openBook(one.t, one.store, one.clock.Now)
			if err := one.Forget(context.Background(), ip("10.0.0.20")); err != nil {
				one.t.Error(err)
			}
			two.clock.Advance(time.Minute)
			two.lease(1, "10.0.0.20")
		}, []string{"10.0.0.20 1 active"}},
		{"the address given up is another's by now", func(one, two *testBook) {
			two.lease(1, "10.0.0.20")
			one.Book = openBook(one.t, one.store, one.clock.Now)
			one.lease(1, "10.0.0.22")
			one.lease(2, "10.0.0.20")
			two.lease(1, "10.0.0.21")
		}, []string{"10.0.0.20 2 active", "10.0.0.21 1 active"}},
		{"reserved", func(one, two *testBook) {
			one.lease(1, "10.0.0.20")
			c := two.change(2, "10.0.0.20")
			c.Reserved = true
			two.commit(c)
			if c.Err != nil {
				two.t.Error(c.Err)
			}
		}, []string{"10.0.0.20 2 active"}},
		{"to be forgotten, but renewed", func(one, two *testBook) {
			one.lease(1, "10.0.0.20")
			two.Book = openBook(two.t, two.store, two.clock.Now)
			two.clock.Advance(59 * time.Minute)
			one.lease(1, "10.0.0.20")
			if err := two.Forget(context.Background(), ip("10.0.0.20")); err != nil {
				two.t.Error(err)
			}
		}, []string{"10.0.0.20 1 active"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			one, two := shared(t)
			tt.run(one, two)
			if diff := cmp.Diff(tt.want, rows(two.Book)); diff != "" {
				t.Errorf("book (-want +got):\n%s", diff)
			}
			if err := two.check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A stubborn store says conflict whatever is asked.
type stubborn struct{ store.Store }

func (stubborn) Commit(context.Context, store.Txn) error { return store.ErrConflict }

func (stubborn) CommitAll(_ context.Context, txns []store.Txn) []error {
	return slices.Repeat([]error{store.ErrConflict}, len(txns))
}

func TestStale(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	d.Book = openBook(t, stubborn{storetest.Memory()}, d.clock.Now)
	c := d.change(1, "10.0.0.20")
	d.commit(c)
	if !errors.Is(c.Err, ErrStale) || !strings.Contains(c.Err.Error(), "10.0.0.20") {
		t.Errorf("outcome is %v, want ErrStale about 10.0.0.20", c.Err)
	}
}

// A meter counts what a store is asked for.
type meter struct {
	*storetest.Mem
	calls, txns, gets int
}

func (m *meter) Get(ctx context.Context, key string) ([]byte, error) {
	m.gets++
	return m.Mem.Get(ctx, key)
}

func (m *meter) CommitAll(ctx context.Context, txns []store.Txn) []error {
	m.calls++
	m.txns += len(txns)
	return m.Mem.CommitAll(ctx, txns)
}

// The store gets one transaction for each lease, all at once, and a conflict is that lease's alone.
func TestCommitAll(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	s := &meter{Mem: d.store}
	d.Book = openBook(t, s, d.clock.Now)
	if err := d.store.Commit(t.Context(), store.Put("lease/10.0.0.25", encode(d.change(9, "10.0.0.25").Lease))); err != nil {
		t.Fatal(err)
	}
	var changes []*Change
	for n := range 100 {
		changes = append(changes, d.change(n+10, fmt.Sprintf("10.0.0.%d", 20+n)))
	}
	d.commit(changes...)
	for i, c := range changes {
		if want := map[bool]error{true: ErrLeased}[i == 5]; !errors.Is(c.Err, want) {
			t.Errorf("outcome %d is %v, want %v", i, c.Err, want)
		}
	}
	if s.calls != 1 || s.txns != 100 {
		t.Errorf("%d calls with %d transactions, want 1 with 100", s.calls, s.txns)
	}
	if err := d.check(); err != nil {
		t.Error(err)
	}
}

// The same request twice in one second costs one write.
func TestTwice(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	s := &meter{Mem: d.store}
	d.Book = openBook(t, s, d.clock.Now)
	d.commit(d.change(1, "10.0.0.20"), d.change(1, "10.0.0.20"), d.change(1, "10.0.0.20"))
	d.clock.Advance(time.Second)
	d.lease(1, "10.0.0.20")
	if s.txns != 2 {
		t.Errorf("%d transactions, want 2", s.txns)
	}
}
