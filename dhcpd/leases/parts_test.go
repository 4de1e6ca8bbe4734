package leases

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// An index finds just what a map of slices would, while it grows and shrinks, and when many keys share a hash.
func TestIndex(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	var x index
	model := map[uint32][]uint32{}
	for step := range 200_000 {
		hash := uint32(r.IntN(3000)) << 22 // few shards, many of the same hash
		slot := uint32(1 + r.IntN(50))
		has := slices.Contains(model[hash], slot)
		switch {
		case has && r.IntN(3) > 0:
			if !x.remove(hash, slot) {
				t.Fatalf("step %d: slot %d is not there", step, slot)
			}
			model[hash] = slices.DeleteFunc(model[hash], func(s uint32) bool { return s == slot })
		case has:
		case len(model[hash]) < 5:
			if x.remove(hash, slot) {
				t.Fatalf("step %d: slot %d was there", step, slot)
			}
			x.add(hash, slot)
			model[hash] = append(model[hash], slot)
		}
		if step%100 != 0 {
			continue
		}
		for hash, want := range model {
			var got []uint32
			for s, at := x.first(hash); s != 0; s, at = x.after(hash, at) {
				got = append(got, s)
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("step %d: hash %x has %v, want %v", step, hash, got, want)
			}
		}
	}
}

// Blobs of all sizes come back as they were, and their blocks are used again.
func TestTexts(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	var x texts
	kept := map[uint32][]byte{}
	blob := func() []byte {
		l := Lease{Hostname: string(make([]byte, r.IntN(30))), ClientID: make([]byte, r.IntN(20))}
		if r.IntN(10) == 0 {
			l.Vendor, l.Line = string(make([]byte, r.IntN(256))), string(make([]byte, r.IntN(256)))
		}
		b := appendTexts(nil, &l)
		for left := b; len(left) > 0; {
			var text []byte
			text, left = nextText(left)
			for i := range text {
				text[i] = byte(r.Uint32())
			}
		}
		return b
	}
	for step := range 50_000 {
		if len(kept) > 500 || step > 40_000 {
			for ref, want := range kept {
				if got := x.get(ref); !bytes.Equal(got, want) {
					t.Fatalf("step %d: ref %x is % x, want % x", step, ref, got, want)
				}
				x.drop(ref)
				delete(kept, ref)
				break
			}
			continue
		}
		b := blob()
		ref := x.put(b)
		if len(kept[ref]) > 0 {
			t.Fatalf("step %d: ref %x is in use", step, ref)
		}
		if ref != 0 {
			kept[ref] = b
		}
	}
	chunks := 0
	for i := range x.classes {
		chunks += len(x.classes[i].chunks)
	}
	if chunks > 2*classCount {
		t.Errorf("%d chunks of %d bytes for at most 500 blobs", chunks, textChunk)
	}
	for n := 1; n <= maxBlob; n++ {
		if c := classOfSize(n); classSize(c) < n || c > 0 && classSize(c-1) >= n || c >= classCount {
			t.Fatalf("%d bytes are of class %d, of %d bytes", n, c, classSize(c))
		}
	}
}

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
