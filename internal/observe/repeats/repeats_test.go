package repeats_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/observe/repeats"
)

var (
	start    = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	stranger = netip.MustParseAddr("192.0.2.7")
)

// A rig calls a limiter at the times that it asks for, and notes what is passed on.
type rig struct {
	*repeats.Limiter[string]
	now time.Time
	got []string
}

func newRig(cfg repeats.Config) *rig { return &rig{Limiter: repeats.New[string](cfg), now: start} }

func (r *rig) add(k repeats.Key, text string) {
	if r.Add(r.now, k, text) {
		r.got = append(r.got, text)
	}
}

// wait lets time pass, and takes the summaries when they are due.
func (r *rig) wait(d time.Duration) {
	end := r.now.Add(d)
	for next := r.Next(); !next.IsZero() && !next.After(end); next = r.Next() {
		r.now = next
		for _, s := range r.Due(r.now) {
			r.got = append(r.got, fmt.Sprintf("%d more in %v, the last: %s", s.More, s.Over, s.Last))
		}
	}
	r.now = end
}

func (r *rig) want(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, r.got); diff != "" {
		t.Errorf("passed on (-want +got):\n%s", diff)
	}
	r.got = nil
}

// TestFirstThenSummaries: the first report is passed on at once, the others in summaries whose intervals grow, and once they have ended
// the next one is a first one again.
func TestFirstThenSummaries(t *testing.T) {
	t.Parallel()
	r := newRig(repeats.Config{})
	key := repeats.Key{What: "file_missing", Addr: stranger, Reason: "file not found"}
	for i := range 313 {
		r.add(key, fmt.Sprint("nosuch", i))
	}
	r.want(t, "nosuch0")
	r.wait(10 * time.Second)
	r.want(t, "312 more in 10s, the last: nosuch312")
	for i := range 180 { // one a second
		r.add(key, fmt.Sprint("later", i))
		r.wait(time.Second)
	}
	r.want(t, "20 more in 20s, the last: later19", "40 more in 40s, the last: later59", "60 more in 1m0s, the last: later119", "60 more in 1m0s, the last: later179")
	r.wait(time.Hour)
	r.add(key, "again")
	r.want(t, "again")
}

func TestKeysAreApart(t *testing.T) {
	t.Parallel()
	r := newRig(repeats.Config{})
	other := netip.MustParseAddr("192.0.2.8")
	for range 2 {
		r.add(repeats.Key{What: "a", Addr: stranger, Reason: "x"}, "a")
		r.add(repeats.Key{What: "b", Addr: stranger, Reason: "x"}, "another kind")
		r.add(repeats.Key{What: "a", Addr: other, Reason: "x"}, "another source")
		r.add(repeats.Key{What: "a", Addr: stranger, Reason: "y"}, "another reason")
		r.add(repeats.Key{What: "a", MAC: [6]byte{2}, Reason: "x"}, "a MAC")
	}
	r.want(t, "a", "another kind", "another source", "another reason", "a MAC")
}

// TestBurst: a machine of the lab that fails has some reports that are passed on one by one.
func TestBurst(t *testing.T) {
	t.Parallel()
	r := newRig(repeats.Config{Burst: 3})
	key := repeats.Key{What: "file_missing", Addr: stranger}
	for i := range 5 {
		r.add(key, fmt.Sprint(i))
	}
	r.want(t, "0", "1", "2")
	r.wait(10 * time.Second)
	r.want(t, "2 more in 10s, the last: 4")
}

// TestOneSourceIsBounded: whoever varies the reason gets a few keys, and then one for all the rest. Another source is not affected.
func TestOneSourceIsBounded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		key  func(i int) repeats.Key
	}{
		{"an address that varies the reason", func(i int) repeats.Key {
			return repeats.Key{What: "tftp_refused", Addr: stranger, Reason: fmt.Sprint("mode ", i)}
		}},
		{"an address that varies the machine", func(i int) repeats.Key {
			return repeats.Key{What: "config_refused", Addr: stranger, MAC: [6]byte{2, 0, byte(i >> 16), byte(i >> 8), byte(i)}}
		}},
		{"a network of IPv6 addresses", func(i int) repeats.Key {
			return repeats.Key{What: "file_missing", Addr: netip.MustParseAddr(fmt.Sprintf("fd00::1:%x", i))}
		}},
		{"a MAC that varies the reason", func(i int) repeats.Key {
			return repeats.Key{What: "dhcp_refused", MAC: [6]byte{2}, Reason: fmt.Sprint(i)}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(repeats.Config{})
			for i := range 10_000 {
				r.add(tt.key(i), "refused")
			}
			if n := len(r.got); n != 9 {
				t.Errorf("%d of 10000 are passed on, want 8 and one for all others", n)
			}
			r.got = nil
			r.wait(10 * time.Second)
			r.want(t, "9991 more in 10s, the last: refused")
			r.add(repeats.Key{What: "dhcp_refused", Addr: netip.MustParseAddr("192.0.2.9")}, "another source")
			r.want(t, "another source")
		})
	}
}

// TestAllSourcesAreBounded: made-up sources share one key once there are too many, and a later one has its own again.
func TestAllSourcesAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(repeats.Config{Keys: 64})
	forged := func(i int) repeats.Key {
		return repeats.Key{What: "dhcp_refused", MAC: [6]byte{2, 0, byte(i >> 16), byte(i >> 8), byte(i)}}
	}
	for i := range 100_000 {
		r.add(forged(i), "refused")
	}
	if n := len(r.got); n != 65 {
		t.Errorf("%d of 100000 are passed on, want 64 and one for all others", n)
	}
	r.got = nil
	r.wait(11 * time.Second)
	r.want(t, "99935 more in 10s, the last: refused")
	r.add(forged(1<<20), "a new one")
	r.want(t, "a new one")
}

// TestPassOn: where only few strangers can cause a report, those without a key are passed on.
func TestPassOn(t *testing.T) {
	t.Parallel()
	r := newRig(repeats.Config{Keys: 2, PassOn: true})
	for i := range 10 {
		r.add(repeats.Key{What: "served", MAC: [6]byte{2, byte(i)}}, fmt.Sprint(i))
		r.add(repeats.Key{What: "served", MAC: [6]byte{2, byte(i)}}, "again")
	}
	if n := len(r.got); n != 2+2*8 {
		t.Errorf("%d of 20 are passed on, want all but the second ones of two sources: %q", n, r.got)
	}
}

func TestFlush(t *testing.T) {
	t.Parallel()
	r := newRig(repeats.Config{})
	for i := range 3 {
		r.add(repeats.Key{What: "a"}, fmt.Sprint(i))
	}
	sums := r.Flush(r.now.Add(time.Second))
	if len(sums) != 1 || sums[0].More != 2 || sums[0].Over != time.Second || !r.Next().IsZero() {
		t.Errorf("flush = %+v, next %v", sums, r.Next())
	}
}

// TestAddDoesNotAllocate: a flood costs no memory.
func TestAddDoesNotAllocate(t *testing.T) {
	l := repeats.New[[32]byte](repeats.Config{})
	key := repeats.Key{What: "file_missing", Addr: stranger, Reason: "file not found"}
	l.Add(start, key, [32]byte{})
	if n := testing.AllocsPerRun(1000, func() { l.Add(start, key, [32]byte{}) }); n != 0 {
		t.Errorf("%v allocations for each report, want 0", n)
	}
}
