package lbproxy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/google/go-cmp/cmp"
)

// newTestFrontend returns a frontend with backends a, b, c…; those numbered in backups are backups.
func newTestFrontend(algorithm lab.Algorithm, backends int, backups ...int) *frontend {
	b := &lab.Balancer{Name: "x", Listen: lab.BindTo(netip.MustParseAddrPort("10.0.0.1:1")), Balance: algorithm}
	for i := range backends {
		b.Backends = append(b.Backends, lab.Backend{Name: string(rune('a' + i)), Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), 80)})
	}
	for _, i := range backups {
		b.Backends[i].Backup = true
	}
	f := compile(nil, b).Frontends[0]
	out := &frontend{Frontend: f, state: &frontendState{freed: make(chan struct{}, 1)}, backends: make([]backend, backends)}
	for i := range f.Backends {
		out.backends[i] = backend{&f.Backends[i], &backendState{}, newHealth(healthKey{addr: f.Backends[i].Addr, check: f.Check}, time.Time{})}
	}
	return out
}

func (f *frontend) setDown(backends ...int) {
	for i := range f.backends {
		f.backends[i].health.down.Store(false)
	}
	for _, i := range backends {
		f.backends[i].health.down.Store(true)
	}
}

func client(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}) }

func TestRoundRobinIsEven(t *testing.T) {
	t.Parallel()
	f := newTestFrontend(lab.RoundRobin, 4)
	f.setDown(1)
	got := make(map[string]int)
	for range 300 {
		got[f.pick(client(1), nil).Name]++
	}
	// The backend after the one that is down gets no more than the others.
	if diff := cmp.Diff(map[string]int{"a": 100, "c": 100, "d": 100}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLeastConnPicksFewest(t *testing.T) {
	t.Parallel()
	f := newTestFrontend(lab.LeastConn, 3)
	f.backends[0].state.active.Store(5)
	f.backends[1].state.active.Store(3)
	for range 16 {
		f.pick(client(1), nil)
	}
	for i := range f.backends {
		if got := f.backends[i].state.active.Load(); got != 8 {
			t.Errorf("backend %d has %d connections, want 8", i, got)
		}
	}
}

func TestSourceHashMovesOnlyClientsOfLostBackend(t *testing.T) {
	t.Parallel()
	const clients = 4000
	f := newTestFrontend(lab.SourceHash, 5)
	before := make([]string, clients)
	count := make(map[string]int)
	for i := range clients {
		before[i] = f.pick(client(i), nil).Name
		count[before[i]]++
		if again := f.pick(client(i), nil).Name; again != before[i] {
			t.Fatalf("client %d goes to %s, then to %s", i, before[i], again)
		}
	}
	for name, n := range maps.All(count) {
		if n < clients/5*8/10 || n > clients/5*12/10 {
			t.Errorf("backend %s has %d of %d clients, want about a fifth", name, n, clients)
		}
	}
	f.setDown(2)
	moved := make(map[string]int)
	for i := range clients {
		after := f.pick(client(i), nil).Name
		if before[i] != "c" && after != before[i] {
			t.Fatalf("client %d moved from %s to %s, but only c is down", i, before[i], after)
		}
		if before[i] == "c" {
			moved[after]++
		}
	}
	if len(moved) != 4 {
		t.Errorf("the clients of c went to %v, want to all four others", moved)
	}
}

func TestBackupOnlyWhileAllOthersAreDown(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []lab.Algorithm{lab.RoundRobin, lab.LeastConn, lab.SourceHash} {
		tests := []struct {
			name    string
			down    []int
			drained []int
			want    string
		}{
			{"all up", nil, nil, "ab"},
			{"one up", []int{0}, nil, "b"},
			{"one up, one drained", []int{0}, []int{1}, "c"},
			{"none up", []int{0, 1}, nil, "c"},
			{"backup down too", []int{0, 1, 2}, nil, ""},
			{"backup drained", []int{0, 1}, []int{2}, ""},
		}
		for _, test := range tests {
			t.Run(fmt.Sprintf("%s/%s", algorithm, test.name), func(t *testing.T) {
				t.Parallel()
				f := newTestFrontend(algorithm, 3, 2)
				f.setDown(test.down...)
				for _, i := range test.drained {
					f.backends[i].state.drained.set(time.Now())
				}
				got := make(map[byte]bool)
				for i := range 50 {
					if s := f.pick(client(i), nil); s != nil {
						got[s.Name[0]] = true
					}
				}
				var names string
				for i := range f.backends {
					if name := f.backends[i].Name; got[name[0]] {
						names += name
					}
				}
				if names != test.want {
					t.Errorf("used %q, want %q", names, test.want)
				}
			})
		}
	}
}

func TestPickNeverTwice(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []lab.Algorithm{lab.RoundRobin, lab.LeastConn, lab.SourceHash} {
		f := newTestFrontend(algorithm, 20, 19)
		var tried []*backend
		for {
			s := f.pick(client(7), tried)
			if s == nil {
				break
			}
			tried = append(tried, s)
		}
		if len(tried) != 20 || tried[19].Name != "t" {
			t.Errorf("%s %d backends tried, want all 20 and the backup last", algorithm, len(tried))
		}
	}
}

func BenchmarkPick(b *testing.B) {
	for _, algorithm := range []lab.Algorithm{lab.RoundRobin, lab.LeastConn, lab.SourceHash} {
		b.Run(string(algorithm), func(b *testing.B) {
			f := newTestFrontend(algorithm, 5)
			b.ReportAllocs()
			for b.Loop() {
				f.pick(client(1), nil).state.active.Add(-1)
			}
		})
	}
}

// TestNotFor: a backend that is not for a client is not picked for it, even if no other is left.
func TestNotFor(t *testing.T) {
	t.Parallel()
	f := newTestFrontend(lab.RoundRobin, 2, 1)
	f.backends[1].NotFor = []netip.Addr{client(1), client(3)}
	f.setDown(0)
	for i, want := range []bool{true, false, true, false} {
		if e := f.pick(client(i), nil); (e != nil) != want {
			t.Errorf("client %d: picked %v, want one: %v", i, e, want)
		}
	}
}

// TestEjectedIsLastTier: ejected backends get connections while no other is left, backups included.
func TestEjectedIsLastTier(t *testing.T) {
	t.Parallel()
	f := newTestFrontend(lab.RoundRobin, 3, 2)
	for _, step := range []struct{ eject, want string }{{"", "a b"}, {"a", "b"}, {"b", "c"}, {"c", "a b"}} {
		got := map[string]bool{}
		for i := range f.backends {
			if e := &f.backends[i]; e.Name == step.eject {
				e.state.ejected.Store(true)
			}
		}
		for i := range 20 {
			if e := f.pick(client(i), nil); e != nil {
				got[e.Name] = true
			}
		}
		if names := strings.Join(slices.Sorted(maps.Keys(got)), " "); names != step.want {
			t.Errorf("%s is ejected, too: %q got connections, want %q", step.eject, names, step.want)
		}
	}
}
