package dnsd

import (
	"math/rand/v2"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

func TestNextSerial(t *testing.T) {
	t.Parallel()
	const now = 1_800_000_000
	for _, tt := range []struct {
		name              string
		before, labSerial uint32
		changed           bool
		want              uint32
	}{
		{"new", 0, 0, true, now},
		{"new, with a serial", 0, 2019070700, true, 2019070700},
		{"nothing changed", 5, 0, false, 5},
		{"changed", 5, 0, true, now},
		{"changed twice in a second", now, 0, true, now + 1},
		{"ahead of the clock", now + 9, 0, true, now + 10},
		{"over the end", 1<<32 - 1, 0, true, now},
		{"serial in the lab file, changed, its serial too", 7, 8, true, 8},
		{"serial in the lab file, changed, its serial not", 7, 7, true, 8},
		{"serial in the lab file, changed again, its serial not", 8, 7, true, 9},
		{"serial in the lab file, only its serial", 7, 9, false, 9},
		{"serial in the lab file, its serial went back", 7, 3, false, 7},
		{"serial in the lab file, over the end", 1<<32 - 1, 1<<32 - 1, true, 1},
	} {
		if got := NextSerial(tt.before, tt.labSerial, tt.changed, now); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestSerialsNeverGoBack: however the clock jumps, a serial moves forward (RFC 1982) with each change of its zone, and only then.
func TestSerialsNeverGoBack(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	serial := NextSerial(0, 0, true, r.Uint32())
	for range 100_000 {
		now := r.Uint32()
		if r.IntN(2) == 0 {
			now = serial + r.Uint32N(7) - 3
		}
		changed := r.IntN(3) > 0
		next := NextSerial(serial, 0, changed, now)
		if changed != later(next, serial) || !changed && next != serial || next == 0 {
			t.Fatalf("from %d at %d, changed %t: %d", serial, now, changed, next)
		}
		serial = next
	}
}

// TestContents: what a zone holds has one hash, in whatever order and beside whatever other zones it was written.
func TestContents(t *testing.T) {
	t.Parallel()
	hash := func(lines ...string) uint64 {
		return compile(t, &lab.Lab{Zones: []*lab.Zone{zoneOfLines("a.test.", "@ NS ns"), zoneOfLines("z.test.", lines...)}}).Contents()[1].Hash
	}
	base := hash("@ SOA a b 1 2 3 4 5", "www A 192.0.2.1", "www A 192.0.2.2", "mail MX 5 www")
	if hash("mail MX 5 www", "www A 192.0.2.2", "www A 192.0.2.1", "@ SOA a b 99 2 3 4 5") != base {
		t.Error("order or serial changes the content")
	}
	for _, other := range [][]string{
		{"@ SOA a b 1 2 3 4 6", "www A 192.0.2.1", "www A 192.0.2.2", "mail MX 5 www"},
		{"@ SOA a b 1 2 3 4 5", "www A 192.0.2.1", "www A 192.0.2.3", "mail MX 5 www"},
		{"@ SOA a b 1 2 3 4 5", "www 1 A 192.0.2.1", "www 1 A 192.0.2.2", "mail MX 5 www"},
		{"@ SOA a b 1 2 3 4 5", "www A 192.0.2.1", "mail MX 5 www"},
	} {
		if hash(other...) == base {
			t.Errorf("%v has the same hash", other)
		}
	}
}

// TestWithSerials changes the serials of a copy.
func TestWithSerials(t *testing.T) {
	t.Parallel()
	table := compile(t, &lab.Lab{Zones: []*lab.Zone{zoneOfLines("a.test.", "@ NS ns"), zoneOfLines("z.test.", "@ SOA a b 7 2 3 4 5")}})
	copied := table.WithSerials(map[string]uint32{"a.test.": 42})
	if got := table.Contents()[0].Serial; got != 0 {
		t.Errorf("the original has %d, want 0", got)
	}
	if got := copied.Contents(); got[0].Serial != 42 || got[1].Serial != 7 {
		t.Errorf("the copy has %v, want 42 and 7", got)
	}
}
