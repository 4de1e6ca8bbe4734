package leases

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

func TestBitset(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for _, size := range []int{1, 63, 64, 65, 4096, 4097, 70_000} {
		s, model := newBitset(size), make([]bool, size)
		for range 2000 {
			i := r.IntN(size)
			if model[i] = r.IntN(3) == 0; model[i] {
				s.set(i)
			} else {
				s.clear(i)
			}
			from := r.IntN(size + 1)
			want := slices.Index(model[from:], true)
			got, ok := s.next(from)
			if ok != (want >= 0) || ok && got != from+want {
				t.Fatalf("size %d: after %d comes %d, %v; want %d", size, from, got, ok, from+want)
			}
		}
	}
}

func TestPool(t *testing.T) {
	t.Parallel()
	p := NewPool(ip("10.0.0.10"), ip("10.0.0.19"), func(a netip.Addr) bool { return a == ip("10.0.0.12") })
	if p.Size() != 10 || p.Usable() != 9 {
		t.Errorf("size %d, usable %d; want 10 and 9", p.Size(), p.Usable())
	}
	for addr, want := range map[string][2]bool{
		"10.0.0.9": {}, "10.0.0.10": {true, true}, "10.0.0.12": {true, false}, "10.0.0.19": {true, true}, "10.0.0.20": {},
		"::ffff:10.0.0.10": {true, true}, "2001:db8::1": {},
	} {
		if got := [2]bool{p.Contains(ip(addr)), p.MayGive(ip(addr))}; got != want {
			t.Errorf("%s: contained, given: %v, want %v", addr, got, want)
		}
	}
	for _, none := range []*Pool{
		NewPool(netip.Addr{}, netip.Addr{}, nil), NewPool(ip("10.0.0.2"), ip("10.0.0.1"), nil), NewPool(ip("::1"), ip("::2"), nil),
	} {
		if none.Size() != 0 || none.Usable() != 0 || none.Contains(ip("0.0.0.0")) || none.MayGive(ip("10.0.0.1")) {
			t.Errorf("%+v: want a pool of nothing", none)
		}
	}
	if all := NewPool(ip("0.0.0.0"), ip("255.255.255.255"), nil); all.Size() != maxPool {
		t.Errorf("size %d, want %d at most", all.Size(), maxPool)
	}
}

// Contains reports whether a lies in the range, whether or not the pool may give it.
func (p *Pool) Contains(a netip.Addr) bool {
	n, ok := addr4(a)
	return ok && p.contains(n)
}

// MayGive reports whether a lies in the range and is not blocked.
func (p *Pool) MayGive(a netip.Addr) bool {
	n, ok := addr4(a)
	return ok && p.gives(n)
}

// Size returns how many addresses the range has.
func (p *Pool) Size() int { return p.size }
