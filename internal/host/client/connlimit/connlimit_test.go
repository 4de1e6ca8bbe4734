package connlimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func addr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }

// A script runs steps such as "1a+" (client 1 opens connection a), "1a>" (a request begins on it), "1a<" (it ends), "1a."
// (activity without a request) and "1a-" (it is closed), and returns what was evicted, and with '!' what was refused.
func script(s *Set, steps string) (lost []string) {
	conns := map[string]*Conn{}
	for _, step := range strings.Fields(steps) {
		name := step[:2]
		switch step[2] {
		case '+':
			c := s.Add(addr(int(name[0]-'0')), func() { lost = append(lost, name) })
			if c == nil {
				lost = append(lost, name+"!")
				continue
			}
			conns[name] = c
		case '>':
			conns[name].Begin()
		case '<':
			conns[name].End()
		case '.':
			conns[name].Touch()
		case '-':
			conns[name].Remove()
		}
	}
	return lost
}

func TestEviction(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		cfg   Config
		steps string
		want  string
	}{
		{"room for all", Config{Max: 3}, "1a+ 2a+ 3a+", ""},
		{"closed connections make room", Config{Max: 2}, "1a+ 2a+ 1a- 3a+", ""},
		{"a connection is closed twice", Config{Max: 2}, "1a+ 2a+ 1a- 1a- 3a+ 4a+", "2a"},
		{"the client with the most", Config{Max: 3}, "1a+ 2a+ 2b+ 3a+", "2a"},
		{"its longest-idle one", Config{Max: 3}, "1a+ 2a+ 2b+ 2a. 3a+", "2b"},
		{"a request ended later", Config{Max: 3}, "2a+ 2b+ 2a> 2a< 1a+ 3a+", "2b"},
		{"equal clients: the longest-idle one of all", Config{Max: 3}, "1a+ 2a+ 3a+ 1a. 4a+", "2a"},
		{"an idle one before one in use", Config{Max: 3}, "1a+ 1a> 1b+ 1b> 2a+ 3a+", "2a"},
		{"a flood evicts its own", Config{Max: 3}, "1a+ 2a+ 2b+ 2c+ 2d+ 2e+", "2a 2b 2c"},
		{"all in use: the client with the most loses its oldest", Config{Max: 3}, "2a+ 2b+ 1a+ 2b> 2a> 1a> 3a+", "2b"},
		{"all in use: a client with the most is refused", Config{Max: 2}, "2a+ 2b+ 2a> 2b> 2c+", "2c!"},
		{"all in use by equals: the new one is refused", Config{Max: 2}, "1a+ 2a+ 1a> 2a> 3a+", "3a!"},
		{"two requests on one connection", Config{Max: 2}, "1a+ 2a+ 1a> 1a> 1a< 3a+", "2a"},
		{"what is evicted may go on to its end", Config{Max: 1}, "1a+ 2a+ 1a> 1a< 1a. 1a- 3a+", "1a 2a"},
		{"shared: a client alone has half", Config{Max: 4, Shared: true}, "1a+ 1b+ 1c+ 1a- 1d+", "1a 1b"},
		{"shared: its longest-idle one", Config{Max: 4, Shared: true}, "1a+ 1b+ 1a. 1c+", "1b"},
		{"shared: a new client gets in", Config{Max: 8, Shared: true}, "1a+ 1b+ 1c+ 1d+ 1e+ 2a+ 2b+ 2c+ 3a+ 3b+ 4a+", "1a 2a 1b"},
		{"shared: full, the client with the most loses one", Config{Max: 4, Shared: true}, "1a+ 1b+ 2a+ 3a+ 4a+", "1a"},
		{"shared: full, of equals none loses one to a new client", Config{Max: 3, Shared: true}, "1a+ 2a+ 3a+ 4a+", "4a!"},
		{"shared: full, one of equals replaces its own", Config{Max: 3, Shared: true}, "1a+ 2a+ 3a+ 2b+", "2a"},
		{"shared: full, one with less gets one of the most", Config{Max: 8, Shared: true}, "1a+ 1b+ 1c+ 1d+ 2a+ 3a+ 4a+ 5a+ 5b+ 5c+", "1a 5a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := strings.Join(script(New(tt.cfg), tt.steps), " "); got != tt.want {
				t.Errorf("lost %q, want %q", got, tt.want)
			}
		})
	}
}

// TestPart: a client with fewer connections than its part of a shared set loses none, whatever the greedy ones have who came before.
func TestPart(t *testing.T) {
	t.Parallel()
	s := New(Config{Max: 311, Shared: true})
	for n := range 10 {
		for range 60 {
			s.Add(addr(n), func() {})
		}
	}
	for range 311 / 12 {
		if s.Add(addr(99), func() { t.Error("the client with the fewest connections loses one") }) == nil {
			t.Error("it is refused")
		}
	}
}

// TestOneMachine: a machine that fills the set from many addresses of its /64 network is one client.
func TestOneMachine(t *testing.T) {
	t.Parallel()
	s := New(Config{Max: 6, Shared: true})
	var lost []int
	for i := range 4 {
		s.Add(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: byte(i)}), func() { lost = append(lost, i) })
	}
	if s.Add(addr(1), nil) == nil || !slices.Equal(lost, []int{0}) {
		t.Errorf("another client was refused, or the wrong connections were evicted: %v", lost)
	}
}

// TestGrace: an idle connection is kept for Grace, unless its client has more of them than the new one's.
func TestGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Max: 2, Grace: time.Second})
		var lost []string
		add := func(client int, name string) *Conn {
			return s.Add(addr(client), func() { lost = append(lost, name) })
		}
		add(1, "1a")
		add(2, "2a")
		if add(3, "3a") != nil {
			t.Error("a new connection evicts one that is idle for a moment")
		}
		time.Sleep(time.Second)
		add(3, "3a")
		add(3, "3b")
		if want := []string{"1a", "2a"}; !slices.Equal(lost, want) {
			t.Errorf("after Grace %v are evicted, want %v", lost, want)
		}
		add(1, "1b")
		if want := []string{"1a", "2a", "3a"}; !slices.Equal(lost, want) {
			t.Errorf("%v are evicted, want %v: a client with more is evicted within Grace", lost, want)
		}
	})
}

// TestGraceOfOthers: a client whose own connections, which are the most, are within Grace evicts one of another that is not.
func TestGraceOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Max: 5, Grace: time.Second})
		var lost []string
		add := func(client int, name string) { s.Add(addr(client), func() { lost = append(lost, name) }) }
		add(1, "1a")
		add(2, "2a")
		add(3, "3a")
		time.Sleep(time.Second)
		for _, name := range []string{"4a", "4b", "4c", "4d", "4e", "4f"} {
			add(4, name)
		}
		if want := []string{"1a", "2a", "3a"}; !slices.Equal(lost, want) {
			t.Errorf("%v are evicted, want %v", lost, want)
		}
	})
}

// TestInUseBehindGrace: a client with many connections in use loses one even while the idle ones of others are within Grace.
func TestInUseBehindGrace(t *testing.T) {
	t.Parallel()
	if got := strings.Join(script(New(Config{Max: 4, Grace: time.Hour}), "1a+ 1a> 1b+ 1b> 1c+ 1c> 2a+ 3a+ 4a+ 5a+"), " "); got != "1a 1b 5a!" {
		t.Errorf("lost %q, want those of the client with the most in use, and then none", got)
	}
}

// TestPatience: of clients with equally many connections in use, one that takes too little loses to a new client, however old the fast ones are.
func TestPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Max: 3, Patience: 5 * time.Second, MinRate: 1000})
		var lost []string
		taken := map[string]int64{}
		add := func(client int, name string) *Conn {
			c := s.Add(addr(client), func() { lost = append(lost, name) })
			if c != nil {
				c.Measure(func() int64 { return taken[name] })
				c.Begin()
			}
			return c
		}
		fast, again := add(1, "fast"), add(3, "again")
		time.Sleep(time.Second)
		add(2, "slow")
		taken["again"] = 1 << 30
		again.End() // its next request takes nothing
		again.Begin()
		time.Sleep(5*time.Second - 1)
		taken["fast"], taken["slow"] = 1<<20, 2000
		if add(4, "early") != nil {
			t.Error("a new client evicts one that is slow for a moment")
		}
		time.Sleep(time.Second)
		if add(1, "second") != nil {
			t.Error("a client that has as many as the others gets one more")
		}
		add(4, "4a")
		if want := []string{"slow"}; !slices.Equal(lost, want) {
			t.Fatalf("%v are evicted, want %v", lost, want)
		}
		for i := range int64(2) { // what it took before its last request is not known at the first look
			time.Sleep(5 * time.Second)
			taken["fast"], taken["4a"] = (2+i)<<20, (1+i)<<20
			add(5, "5a")
		}
		if want := []string{"slow", "again"}; !slices.Equal(lost, want) {
			t.Errorf("%v are evicted, want %v", lost, want)
		}
		fast.End()
	})
}

// TestFresh: while one client fills the set, the connection of another is not evicted before its first request had time to arrive. The client
// itself gets its newest.
func TestFresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Max: 3, Patience: 5 * time.Second, MinRate: 1000}
		flood := "1a+ 1a> 1b+ 1b> 1c+ 1c> "
		for _, test := range []struct{ steps, lost string }{
			{"2a+ 1d+ 1e+ 2a>", "1a 1d! 1e!"}, // a slot for the newcomer; the flood gets no other for it
			{"2a+ 3a+ 4a+", "1a 1b 2a"},       // each has one: the first is evicted, as nothing else can be
			{"2a+ 2a> 2a< 1d+", "1a 2a"},      // it has had its request
		} {
			if got := strings.Join(script(New(cfg), flood+test.steps), " "); got != test.lost {
				t.Errorf("%s: lost %q, want %q", test.steps, got, test.lost)
			}
		}
		if got := strings.Join(script(New(cfg), "1a+ 1b+ 1c+ 1d+ 1d> 1e+"), " "); got != "1a 1b" {
			t.Errorf("of one client's own fresh connections %q are lost, want the oldest", got)
		}
		s := New(cfg)
		lost := script(s, flood+"2a+")
		time.Sleep(firstRequest)
		if s.Add(addr(1), func() {}) == nil || len(lost) != 1 {
			t.Error("a connection without a request is kept for longer than firstRequest")
		}
	})
}

func TestAddWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Max: 1, Shared: true})
		first := s.Add(addr(1), func() { t.Error("it is evicted") })
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if c, err := s.AddWait(ctx, addr(2), func() {}); err != nil {
				t.Errorf("AddWait: %v", err)
			} else {
				first = c
			}
		})
		synctest.Wait()
		first.Remove()
		wg.Wait()
		wg.Go(func() {
			if _, err := s.AddWait(ctx, addr(3), func() {}); !errors.Is(err, context.Canceled) {
				t.Errorf("AddWait of a context that ends: %v", err)
			}
		})
		synctest.Wait()
		cancel()
		wg.Wait()
		first.Remove()
		if n := s.Len(); n != 0 || len(s.clients) != 0 || len(s.ranking) != 0 {
			t.Errorf("%d connections, %d clients and %d ranked are left", n, len(s.clients), len(s.ranking))
		}
	})
}

// TestConcurrent: whatever happens at once, the set holds no more than it may, and evicts and counts each connection once.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	const most, workers, steps = 32, 8, 2000
	s := New(Config{Max: most})
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			var mine []*Conn
			for range steps {
				var evicted bool
				switch {
				case len(mine) < 2*most/workers:
					if c := s.Add(addr(random.IntN(6)), func() {
						if evicted {
							t.Error("a connection is evicted twice")
						}
						evicted = true
					}); c != nil {
						mine = append(mine, c)
					}
				case random.IntN(2) == 0:
					c := mine[random.IntN(len(mine))]
					c.Begin()
					c.Touch()
					c.End()
				default:
					i := random.IntN(len(mine))
					mine[i].Remove()
					mine = slices.Delete(mine, i, i+1)
				}
				if n := s.Len(); n > most {
					t.Errorf("%d connections are open, want at most %d", n, most)
				}
			}
			for _, c := range mine {
				c.Remove()
			}
		})
	}
	wg.Wait()
	if n := s.Len(); n != 0 || len(s.clients) != 0 || len(s.ranking) != 0 {
		t.Errorf("%d connections, %d clients and %d ranked are left", n, len(s.clients), len(s.ranking))
	}
}

func TestNewPanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "Config.Max") {
			t.Errorf("New(Config{}): %s", p)
		}
	}()
	New(Config{})
}

// BenchmarkFull adds connections to a full set, of one client and of as many as there are connections.
func BenchmarkFull(b *testing.B) {
	const most = 4096
	for _, clients := range []int{1, most} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			b.ReportAllocs()
			s := New(Config{Max: most})
			for i := range most {
				s.Add(addr(i%clients), func() {})
			}
			for i := 0; b.Loop(); i++ {
				s.Add(addr(i%clients), func() {})
			}
		})
	}
}

// BenchmarkRequest begins and ends a request in a set of many clients.
func BenchmarkRequest(b *testing.B) {
	b.ReportAllocs()
	s := New(Config{Max: 4096})
	var all []*Conn
	for i := range 4096 {
		all = append(all, s.Add(addr(i), func() {}))
	}
	for i := 0; b.Loop(); i++ {
		c := all[i*7%len(all)]
		c.Begin()
		c.End()
	}
}
