package dhcpd

import (
	"fmt"
	"testing"
	"time"
)

func TestRation(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	r := newRation(func() time.Time { return now })
	allowed := func(network, port string, free, n int) (got int) {
		for range n {
			if r.allow(network, port, free, 100) {
				got++
			}
		}
		return got
	}
	for _, tt := range []struct {
		what, network, port string
		free, want          int
		later               time.Duration
	}{
		{"half empty: nobody is held back", "lab", "", 50, 1000, 0},
		{"a segment has its burst", "lab", "", 49, segmentBurst, 0},
		{"and no more", "lab", "", 49, 0, 0},
		{"another network is not its business", "dmz", "", 49, segmentBurst, 0},
		{"a relay port has less", "lab", "port 7", 49, portBurst, 0},
		{"its neighbour is not punished", "lab", "port 8", 49, portBurst, 0},
		{"a second later", "lab", "", 49, segmentRate, time.Second},
		{"half empty again", "lab", "", 60, 1000, 0},
	} {
		now = now.Add(tt.later)
		if got := allowed(tt.network, tt.port, tt.free, 1000); got != tt.want {
			t.Errorf("%s: %d newcomers got in, want %d", tt.what, got, tt.want)
		}
	}
}

// Somebody who forges relay information must cost no memory, and share one ration.
func TestRationIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	r := newRation(func() time.Time { return now })
	for i := range 10 * maxBuckets {
		r.allow("lab", fmt.Sprint("port ", i), 0, 100)
	}
	if n := len(r.buckets); n > maxBuckets+1 {
		t.Errorf("%d buckets, want at most %d", n, maxBuckets+1)
	}
	if r.allow("lab", "one more", 0, 100) {
		t.Error("a made-up port got in although the shared ration is used up")
	}
	now = now.Add(time.Hour)
	if !r.allow("lab", "a real port", 0, 100) || len(r.buckets) > 2 {
		t.Errorf("an hour later: %d buckets are kept, or a real port is refused", len(r.buckets))
	}
}

func TestNewcomerLease(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		lease        time.Duration
		free, usable int
		want         time.Duration
	}{
		{12 * time.Hour, 100, 100, 12 * time.Hour},
		{12 * time.Hour, 20, 100, 12 * time.Hour},
		{12 * time.Hour, 19, 100, scarceLease},
		{time.Minute, 0, 100, time.Minute},
	} {
		if got := newcomerLease(tt.lease, tt.free, tt.usable); got != tt.want {
			t.Errorf("newcomerLease(%s, %d, %d) = %s, want %s", tt.lease, tt.free, tt.usable, got, tt.want)
		}
	}
}
