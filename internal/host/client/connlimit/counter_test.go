package connlimit

import (
	"net/netip"
	"slices"
	"testing"
)

// TestCounter: clients that take all they get, one after the other, leave some to the next.
func TestCounter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		clients []string // that take as many as they get, one after the other
		want    []int
	}{
		{"alone", []string{"10.0.0.1"}, []int{128}},
		{"one after the other", []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, []int{128, 64, 32}},
		{"of one network of IPv6", []string{"2001:db8::1", "2001:db8::ffff", "2001:db8:0:1::1"}, []int{128, 0, 64}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := NewCounter(256)
			var got []int
			for _, client := range tt.clients {
				n := 0
				for c.Take(netip.MustParseAddr(client)) {
					n++
				}
				got = append(got, n)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("they have %v, want %v", got, tt.want)
			}
			for i, client := range tt.clients {
				for range got[i] {
					c.Release(netip.MustParseAddr(client))
				}
			}
			if c.Taken() != 0 || len(c.clients) != 0 {
				t.Errorf("%d of %d clients are left", c.Taken(), len(c.clients))
			}
		})
	}
	c := NewCounter(256)
	for range 256 {
		for n := range 7 {
			c.Take(addr(n))
		}
	}
	if !c.Take(addr(99)) || c.Of(addr(99)) != 1 || c.Full() || c.Taken() != 1+7*32 {
		t.Errorf("%d are taken, want an eighth for each of seven clients, and one for the next", c.Taken())
	}
}

// TestOutnumbered: a client that comes after others that took all gets its part from the one with the most.
func TestOutnumbered(t *testing.T) {
	t.Parallel()
	c := NewCounter(64)
	for n := range 10 {
		for c.Take(addr(n)) {
		}
	}
	if !c.Full() {
		t.Fatalf("%d are taken, want all", c.Taken())
	}
	got := 0
	for most, ok := c.Outnumbered(addr(99)); ok; most, ok = c.Outnumbered(addr(99)) {
		if got++; got > 64 {
			t.Fatal("it has no end")
		}
		c.Release(most)
		if !c.TakeLeft(addr(99)) {
			t.Fatalf("it does not get what was released, after %d", got)
		}
	}
	if want := 64 / 8; got < 64/12 || got > want || c.Taken() != 64 {
		t.Errorf("a new client gets %d of 64, and %d are taken, want some %d and 64", got, c.Taken(), want)
	}
	if _, ok := c.Outnumbered(addr(0)); ok {
		t.Error("a client with its part is outnumbered")
	}
}
