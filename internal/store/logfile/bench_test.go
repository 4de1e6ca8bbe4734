package logfile_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/logfile"
)

func mustOpen(t testing.TB, path string) *logfile.Store {
	t.Helper()
	s, _, err := logfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// cpuTime returns what this process has used of the CPUs, in user and kernel.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// leaseOps returns n writes of about 60 bytes to keys that hash like addresses of a pool.
func leaseOps(n int, r *rand.Rand) []store.Op {
	ops := make([]store.Op, n)
	for i := range ops {
		a := r.Uint32N(1 << 17)
		ops[i] = store.Op{Key: fmt.Sprintf("lease/10.%d.%d.%d", a>>16, a>>8&0xff, a&0xff), Value: make([]byte, 42)}
	}
	return ops
}

// BenchmarkCommit is one caller that commits groups of small keys, as the DHCP committer does. µs-cpu/key holds what
// compactions cost, too.
func BenchmarkCommit(b *testing.B) {
	for _, present := range []int{0, 100_000} {
		for _, group := range []int{1, 16, 32, 400} {
			b.Run(fmt.Sprintf("present=%d/keys=%d", present, group), func(b *testing.B) { benchmarkCommit(b, present, group) })
		}
	}
}

func benchmarkCommit(b *testing.B, present, group int) {
	s := mustOpen(b, filepath.Join(b.TempDir(), "store.db"))
	r := rand.New(rand.NewPCG(1, 2))
	for range present / 1000 {
		if err := s.Commit(b.Context(), store.Txn{Then: leaseOps(1000, r)}); err != nil {
			b.Fatal(err)
		}
	}
	txns := make([]store.Txn, 256)
	for i := range txns {
		txns[i].Then = leaseOps(group, r)
	}
	b.ReportAllocs()
	before := cpuTime(b)
	b.ResetTimer()
	for i := range b.N {
		if err := s.Commit(b.Context(), txns[i%len(txns)]); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	keys := float64(b.N * group)
	b.ReportMetric(keys/b.Elapsed().Seconds(), "keys/s")
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/keys, "µs-cpu/key")
}

// BenchmarkPaced commits 16 keys at a time, 35,000 keys a second, as a storm of new leases on a fast segment does, and
// reports how long the commits take while compactions run beside them.
func BenchmarkPaced(b *testing.B) {
	const group, pace = 16, 16 * time.Second / 35_000
	s := mustOpen(b, filepath.Join(b.TempDir(), "store.db"))
	r := rand.New(rand.NewPCG(1, 2))
	txns := make([]store.Txn, 4096)
	for i := range txns {
		txns[i].Then = leaseOps(group, r)
	}
	took := make([]time.Duration, 0, b.N)
	before := cpuTime(b)
	next := time.Now()
	b.ResetTimer()
	for i := range b.N {
		time.Sleep(time.Until(next))
		next = next.Add(pace)
		start := time.Now()
		if err := s.Commit(b.Context(), txns[i%len(txns)]); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N*group), "µs-cpu/key")
	b.ReportMetric(float64(b.N*group)/b.Elapsed().Seconds(), "keys/s")
	for name, share := range map[string]float64{"p50-µs": 0.5, "p99-µs": 0.99, "p999-µs": 0.999, "max-µs": 1} {
		b.ReportMetric(float64(took[int(share*float64(len(took)-1))].Microseconds()), name)
	}
}

// BenchmarkCallers tells what grouping buys: one caller pays a sync for each commit, many share it.
func BenchmarkCallers(b *testing.B) {
	for _, callers := range []int{1, 16, 256, 1024} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s := mustOpen(b, filepath.Join(b.TempDir(), "store.db"))
			value := make([]byte, 200)
			var next atomic.Int64
			done := make(chan error)
			b.ReportAllocs()
			b.ResetTimer()
			for range callers {
				go func() {
					for {
						n := next.Add(1)
						if n > int64(b.N) {
							done <- nil
							return
						}
						if err := s.Commit(context.Background(), store.Put(strconv.FormatInt(n%20_000, 10), value)); err != nil {
							done <- err
							return
						}
					}
				}()
			}
			for range callers {
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
		})
	}
}

func BenchmarkGet(b *testing.B) {
	s := mustOpen(b, filepath.Join(b.TempDir(), "store.db"))
	if err := s.Commit(b.Context(), store.Put("a", make([]byte, 200))); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Get(b.Context(), "a"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen opens and closes a small store.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "store.db")
	s := mustOpen(b, path)
	if err := s.Commit(b.Context(), store.Txn{Then: leaseOps(100, rand.New(rand.NewPCG(1, 2)))}); err != nil {
		b.Fatal(err)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s, _, err := logfile.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
