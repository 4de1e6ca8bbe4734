package dhcpd

import (
	"fmt"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

func TestNewClientLimiter(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	l := newNewClientLimiter(func() time.Time { return now })
	allowed := func(network, port string, n int) (got int) {
		for range n {
			if l.allow(network, port) {
				got++
			}
		}
		return got
	}
	for _, tt := range []struct {
		what, network, port string
		want                int
		later               time.Duration
	}{
		{"a segment has its burst", "lab", "", segmentBurst, 0},
		{"and no more", "lab", "", 0, 0},
		{"another network has its own", "dmz", "", segmentBurst, 0},
		{"a relay port has less", "lab", "port 7", portBurst, 0},
		{"another port has its own", "lab", "port 8", portBurst, 0},
		{"a second later", "lab", "", segmentRate, time.Second},
	} {
		now = now.Add(tt.later)
		if got := allowed(tt.network, tt.port, 1000); got != tt.want {
			t.Errorf("%s: %d new clients allowed, want %d", tt.what, got, tt.want)
		}
	}
}

// Forged relay information must not cost memory without bound: further ports share one limit.
func TestNewClientLimiterIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	l := newNewClientLimiter(func() time.Time { return now })
	for i := range 10 * maxBuckets {
		l.allow("lab", fmt.Sprint("port ", i))
	}
	if n := len(l.buckets); n > maxBuckets+1 {
		t.Errorf("%d buckets, want at most %d", n, maxBuckets+1)
	}
	if l.allow("lab", "one more") {
		t.Error("a made-up port is allowed although the shared limit is used up")
	}
	now = now.Add(time.Hour)
	if !l.allow("lab", "a real port") || len(l.buckets) > 2 {
		t.Errorf("an hour later: %d buckets are kept, or a real port is refused", len(l.buckets))
	}
}

// Events name all machines of a rack, and the first ones of a flood.
func TestEventLimiter(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	l := newEventLimiter(func() time.Time { return now })
	recorded := func(from, n int) (got int) {
		for i := range n {
			m := from + i
			if l.allow(event.DHCPRefused, lab.MAC{2, 0, 0, byte(m >> 16), byte(m >> 8), byte(m)}) {
				got++
			}
		}
		return got
	}
	for _, tt := range []struct {
		what          string
		from, n, want int
		later         time.Duration
	}{
		{"a rack", 0, eventBurst / 2, eventBurst / 2, 0},
		{"the same machines again", 0, eventBurst / 2, 0, 0},
		{"a flood", 1000, 10_000, eventBurst - eventBurst/2, 0},
		{"it goes on", 20_000, 10_000, 10 * eventRate, 10 * time.Second},
		{"the rack, after a minute", 0, eventBurst / 2, eventBurst / 2, eventInterval},
	} {
		now = now.Add(tt.later)
		if got := recorded(tt.from, tt.n); got != tt.want {
			t.Errorf("%s: %d events, want %d", tt.what, got, tt.want)
		}
	}
	if !l.allow(event.DHCPLimited, lab.MAC{2}) {
		t.Error("a flood of one kind silences another")
	}
}
