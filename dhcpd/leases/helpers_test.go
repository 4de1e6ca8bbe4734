package leases

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/test/support/clock"
	"github.com/bootlab/bootlab/test/support/storetest"
)

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

var subnet = netip.MustParsePrefix("10.0.0.0/16")

// mac is the n-th machine.
func mac(n int) lab.MAC { return lab.MAC{2, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)} }

// A testBook is a book with what a test needs beside it.
type testBook struct {
	*Book
	t     testing.TB
	clock *clock.Clock
	store *storetest.Mem
}

func newTestBook(t testing.TB) *testBook {
	t.Helper()
	d := &testBook{t: t, clock: clock.New(time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)), store: storetest.Memory()}
	d.reopen()
	return d
}

// reopen is a restart.
func (d *testBook) reopen() {
	d.t.Helper()
	d.store = d.store.Reopen()
	d.Book = openBook(d.t, d.store, d.clock.Now)
}

func openBook(t testing.TB, s store.Store, now func() time.Time) *Book {
	t.Helper()
	b, err := Open(t.Context(), s, now)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// pool is 10.0.0.first to 10.0.0.last.
func pool(first, last byte) *Pool {
	return NewPool(netip.AddrFrom4([4]byte{10, 0, 0, first}), netip.AddrFrom4([4]byte{10, 0, 0, last}), nil)
}

// change is machine n leasing addr for an hour.
func (d *testBook) change(n int, addr string) *Change {
	return &Change{Subnet: subnet, Lease: Lease{
		Addr: ip(addr), MAC: mac(n), State: Active, Start: d.clock.Now(), Expiry: d.clock.Now().Add(time.Hour),
	}}
}

func (d *testBook) commit(changes ...*Change) {
	d.Commit(context.Background(), changes)
}

// lease makes machine n have addr.
func (d *testBook) lease(n int, addr string) {
	d.t.Helper()
	c := d.change(n, addr)
	d.commit(c)
	if c.Err != nil {
		d.t.Fatalf("lease %s to machine %d: %v", addr, n, c.Err)
	}
}

func (d *testBook) release(n int, addr string) {
	d.t.Helper()
	c := d.change(n, addr)
	c.State, c.Expiry = Released, c.Start
	d.commit(c)
	if c.Err != nil {
		d.t.Fatal(c.Err)
	}
}

func (d *testBook) decline(n int, addr string, quarantine time.Duration) {
	d.t.Helper()
	c := d.change(n, addr)
	c.State, c.Expiry = Declined, c.Start.Add(quarantine)
	d.commit(c)
	if c.Err != nil {
		d.t.Fatal(c.Err)
	}
}

// ask is a DISCOVER of machine n.
func (d *testBook) ask(n int, p *Pool, requested string) (string, bool, error) {
	q := Request{MAC: mac(n), Subnet: subnet, Pool: p}
	if requested != "" {
		q.Requested = ip(requested)
	}
	a, fresh, err := d.Offer(q)
	if err != nil {
		return "", false, err
	}
	return a.String(), fresh, nil
}

// wantOffer asks and says what came instead.
func (d *testBook) wantOffer(n int, p *Pool, requested, want string, fresh bool) {
	d.t.Helper()
	got, isFresh, err := d.ask(n, p, requested)
	if err != nil || got != want || isFresh != fresh {
		d.t.Errorf("machine %d is offered %q, fresh %v, %v; want %q, fresh %v", n, got, isFresh, err, want, fresh)
	}
}

func (d *testBook) wantUsage(p *Pool, live, offered, free int) {
	d.t.Helper()
	l, h, f := d.Usage(p)
	if l != live || h != offered || f != free {
		d.t.Errorf("usage: %d live, %d offered, %d free; want %d, %d, %d", l, h, f, live, offered, free)
	}
}

// check compares all that the book keeps twice.
func (b *Book) check() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, step := range []func() error{b.checkSlots, b.checkOffers, b.checkPools, b.checkWheel, b.checkIndexes} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (b *Book) checkSlots() error {
	homes := map[string]netip.Addr{}
	for i := uint32(1); i <= b.slots.last; i++ {
		e := b.slots.at(i)
		if e.addr == 0 {
			continue
		}
		if b.findLocked(e.addr) != i {
			return fmt.Errorf("%s is not found by address", addrOf(e.addr))
		}
		if !e.hasMachine() {
			continue
		}
		if !subnet.Contains(addrOf(e.addr)) {
			continue
		}
		if j := b.bindingLocked(e.mac, netOf(subnet)); j != i {
			return fmt.Errorf("%s of %s is not found by MAC", addrOf(e.addr), e.mac)
		}
		if other, twice := homes[e.mac.String()]; twice {
			return fmt.Errorf("%s has %s and %s", e.mac, other, addrOf(e.addr))
		}
		homes[e.mac.String()] = addrOf(e.addr)
	}
	return nil
}

func (b *Book) checkOffers() error {
	n := 0
	for i := uint32(1); i <= b.offers.last; i++ {
		o := b.offers.at(i)
		if o.addr == 0 {
			continue
		}
		n++
		if b.offerByAddr[o.addr] != i || b.offerByMAC[o.mac] != i {
			return fmt.Errorf("offer of %s to %s is not found", addrOf(o.addr), o.mac)
		}
	}
	for _, s := range append([]*poolState{&b.rest}, b.states...) {
		last := int64(0)
		for i := s.offers.head; i != 0; i = b.offers.at(i).next {
			n--
			if b.poolOfLocked(b.offers.at(i).addr) != s {
				return fmt.Errorf("offer of %s is in the wrong pool", addrOf(b.offers.at(i).addr))
			}
			if b.offers.at(i).asked < last {
				return fmt.Errorf("offer of %s is out of order", addrOf(b.offers.at(i).addr))
			}
			last = b.offers.at(i).asked
		}
	}
	if n != 0 {
		return fmt.Errorf("%d offers are in no pool", n)
	}
	return nil
}

func (b *Book) checkPools() error {
	for _, s := range b.states {
		var count [addrStates]int
		for k := range s.pool.size {
			a := s.pool.first + uint32(k)
			want := blocked
			if s.pool.gives(a) {
				want = b.addrStateLocked(a, b.findLocked(a), &asCounted)
			}
			count[want]++
			got := free
			if chunk := s.addrs[k/stateChunk]; chunk != nil {
				got = chunk[k%stateChunk]
			} else if !s.pool.gives(a) {
				got = blocked
			}
			if isFree := s.free.words[k/64]>>(k%64)&1 != 0; got != want || isFree != (want == free) {
				return fmt.Errorf("%s is in state %d, want %d; free %v", addrOf(a), got, want, isFree)
			}
		}
		if count != s.count {
			return fmt.Errorf("counts are %v, want %v", s.count, count)
		}
		if n := count[expired]; s.expired.n != n {
			return fmt.Errorf("%d expired on the list, want %d", s.expired.n, n)
		}
	}
	return nil
}

func (b *Book) checkWheel() error {
	on := map[uint32]bool{}
	for bucket, i := range b.wheel.heads {
		for ; i != 0; i = b.slots.at(i).next {
			if on[i] || b.slots.at(i).expiry%wheelSize != uint32(bucket) {
				return fmt.Errorf("slot %d is twice on the wheel or in the wrong bucket", i)
			}
			on[i] = true
		}
	}
	for i := uint32(1); i <= b.slots.last; i++ {
		e := b.slots.at(i)
		if e.addr != 0 && on[i] == (e.flags&hasEnded != 0) {
			return fmt.Errorf("%s: on the wheel %v, flags %b", addrOf(e.addr), on[i], e.flags)
		}
	}
	return nil
}

func (b *Book) checkIndexes() error {
	machines, names := 0, map[string]bool{}
	for a, i := range b.byAddr {
		e := b.slots.at(i)
		if e.addr != a {
			return fmt.Errorf("%s is indexed as %s", addrOf(e.addr), addrOf(a))
		}
		if e.hasMachine() {
			machines++
			name, _ := nameOf(e.blob)
			names[name] = true
		}
	}
	if len(b.byAddr) != b.slots.len() {
		return fmt.Errorf("%d slots, %d in the index by address", b.slots.len(), len(b.byAddr))
	}
	for m, i := range b.byMAC {
		for ; i != 0; i = b.slots.at(i).sameMAC {
			if e := b.slots.at(i); e.mac != m || !e.hasMachine() || b.byAddr[e.addr] != i {
				return fmt.Errorf("%s is indexed under %s", addrOf(e.addr), m)
			}
			machines--
		}
	}
	if machines != 0 {
		return fmt.Errorf("%d slots too few in the index by MAC", machines)
	}
	for h, i := range b.byName {
		e := b.slots.at(i)
		if name, inDNS := nameOf(e.blob); !names[name] || !inDNS || b.hashName(name) != h {
			return fmt.Errorf("host name %q, in DNS %t, leads to %s", name, inDNS, addrOf(e.addr))
		}
	}
	return nil
}

func sameAddr(x, y netip.Addr) bool { return x == y }

// A bookCase is something to happen to a book of its own, and what the book says then.
type bookCase struct {
	name string
	run  func(d *testBook)
	want []string // rows; nil: not asked
}

func runCases(t *testing.T, cases []bookCase) {
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newTestBook(t)
			tt.run(d)
			if err := d.check(); err != nil {
				t.Error(err)
			}
			if tt.want != nil {
				d.wantRows(tt.want...)
			}
		})
	}
}

// known returns the stored lease of an address, live or not.
func (b *Book) known(a netip.Addr) (Lease, bool) {
	n, _ := addr4(a)
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.findLocked(n)
	if i == 0 {
		return Lease{}, false
	}
	return b.leaseLocked(i), true
}
