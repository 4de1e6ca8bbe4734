package leases

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/logfile"
	"github.com/bootlab/bootlab/test/support/clock"
	"github.com/bootlab/bootlab/test/support/storetest"
)

var big = netip.MustParsePrefix("10.0.0.0/8")

// sink is a store that keeps nothing, to measure the book alone.
type sink struct {
	store.Store
	errs []error
}

func (s *sink) CommitAll(_ context.Context, txns []store.Txn) []error {
	if len(s.errs) < len(txns) {
		s.errs = make([]error, len(txns))
	}
	return s.errs[:len(txns)]
}

func benchBook(b testing.TB) (*Book, *clock.Clock) {
	c := clock.New(time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC))
	return openBook(b, &sink{Store: storetest.Memory()}, c.Now), c
}

// fill gives n machines a lease like a real one: a client id of 7 bytes, a host name of 10.
func fill(t testing.TB, b *Book, p *Pool, n int, now time.Time) {
	changes := make([]*Change, 0, 400)
	for i := range n {
		changes = append(changes, benchChange(p, i, now))
		if len(changes) == cap(changes) || i == n-1 {
			b.Commit(context.Background(), changes)
			for _, c := range changes {
				if c.Err != nil {
					t.Fatal(c.Err)
				}
			}
			changes = changes[:0]
		}
	}
}

func benchChange(p *Pool, i int, now time.Time) *Change {
	m := mac(i)
	return &Change{Subnet: big, Lease: Lease{
		Addr: addrOf(p.first + uint32(i)), MAC: m, State: Active, Start: now, Expiry: now.Add(12 * time.Hour),
		Hostname: fmt.Sprintf("node%06d", i), ClientID: append([]byte{1}, m[:]...),
	}}
}

func benchPool(n int) *Pool { return NewPool(addrOf(10<<24), addrOf(10<<24+uint32(n)-1), nil) }

// benchLeases makes a book that serves a pool of so many addresses, of which the first n are leased.
func benchLeases(b testing.TB, n, addrs int) (*Book, *Pool, *clock.Clock) {
	book, c := benchBook(b)
	p := benchPool(addrs)
	book.Serve(p)
	fill(b, book, p, n, c.Now())
	return book, p, c
}

func sizes(b *testing.B, run func(b *testing.B, n int)) {
	for _, n := range []int{1000, 10_000, 100_000, 200_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) { run(b, n) })
	}
}

// BenchmarkOffer is a DISCOVER of a new client, and its withdrawal, in a book of so many leases.
func BenchmarkOffer(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		book, p, _ := benchLeases(b, n, 2*n)
		b.ReportAllocs()
		defer cpu(b, 1)()
		for i := n; b.Loop(); i++ {
			q := Request{MAC: mac(i), Subnet: big, Pool: p}
			if _, _, err := book.Offer(q); err != nil {
				b.Fatal(err)
			}
			book.Withdraw(q.MAC)
		}
	})
}

// BenchmarkOfferFull is a DISCOVER at a full pool of so many leases.
func BenchmarkOfferFull(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		book, p, _ := benchLeases(b, n, n)
		b.ReportAllocs()
		defer cpu(b, 1)()
		for i := n; b.Loop(); i++ {
			if _, _, err := book.Offer(Request{MAC: mac(i), Subnet: big, Pool: p}); err == nil {
				b.Fatal("an offer from a full pool")
			}
		}
	})
}

// BenchmarkOfferFlood is a flood of machines that never come back, at a pool of which all was offered.
func BenchmarkOfferFlood(b *testing.B) {
	book, _ := benchBook(b)
	p := benchPool(1000)
	b.ReportAllocs()
	defer cpu(b, 1)()
	for i := 0; b.Loop(); i++ {
		if _, _, err := book.Offer(Request{MAC: mac(i), Subnet: big, Pool: p}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOfferKnown is a DISCOVER of a machine that has a lease.
func BenchmarkOfferKnown(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		book, p, _ := benchLeases(b, n, n)
		b.ReportAllocs()
		defer cpu(b, 1)()
		for i := 0; b.Loop(); i++ {
			m := mac(i * 7919 % n)
			if _, fresh, err := book.Offer(Request{MAC: m, Subnet: big, Pool: p}); err != nil || fresh {
				b.Fatal(fresh, err)
			}
			book.Withdraw(m)
		}
	})
}

// BenchmarkRenewal is a renewal that needs no commit.
func BenchmarkRenewal(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		book, p, _ := benchLeases(b, n, n)
		b.ReportAllocs()
		defer cpu(b, 1)()
		for i := 0; b.Loop(); i++ {
			k := i * 7919 % n
			if _, ok := book.Decide(mac(k), nil, addrOf(p.first+uint32(k)), Selecting).Renewal(12 * time.Hour); !ok {
				b.Fatal("no")
			}
		}
	})
}

// BenchmarkCommit renews leases in batches; the store does nothing.
func BenchmarkCommit(b *testing.B) {
	const batch = 100
	sizes(b, func(b *testing.B, n int) {
		book, p, c := benchLeases(b, n, n)
		changes := make([]*Change, batch)
		for i := range changes {
			changes[i] = benchChange(p, i*7919%n, c.Now())
		}
		b.ReportAllocs()
		defer cpu(b, batch)()
		for b.Loop() {
			c.Advance(time.Second)
			for _, x := range changes {
				x.Start, x.Expiry = c.Now(), c.Now().Add(12*time.Hour)
			}
			book.Commit(context.Background(), changes)
		}
		perLease(b, batch)
	})
}

// BenchmarkCommitNew makes new leases, up to 200,000; the store does nothing.
func BenchmarkCommitNew(b *testing.B) {
	const batch, most = 100, 200_000
	p := benchPool(most)
	book, c := benchBook(b)
	changes := make([]*Change, batch)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var used time.Duration
	b.ReportAllocs()
	for n := 0; b.Loop(); n += batch {
		if n%most == 0 {
			book, c = benchBook(b)
			book.Serve(p)
		}
		for i := range changes {
			changes[i] = benchChange(p, (n+i)%most, c.Now())
		}
		start := cpuTime()
		book.Commit(context.Background(), changes)
		used += cpuTime() - start
	}
	b.ReportMetric(float64(used)/float64(b.N*batch), "cpu-ns")
}

func perLease(b *testing.B, batch int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/lease")
}

// cpu reports the processor time of the benchmark's loop at its end, for machines that do something else as well.
func cpu(b *testing.B, per int) func() {
	runtime.LockOSThread()
	start := cpuTime()
	return func() {
		b.ReportMetric(float64(cpuTime()-start)/float64(b.N*per), "cpu-ns")
		runtime.UnlockOSThread()
	}
}

// BenchmarkCommitDisk makes new leases durable, so many at once.
func BenchmarkCommitDisk(b *testing.B) {
	for _, batch := range []int{1, 32, 400} {
		b.Run(strconv.Itoa(batch), func(b *testing.B) {
			s, _, err := logfile.Open(filepath.Join(b.TempDir(), "book.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			book := openBook(b, s, time.Now)
			p := benchPool(1 << 20)
			changes := make([]*Change, batch)
			for n := 0; b.Loop(); n += batch {
				for i := range changes {
					changes[i] = benchChange(p, n+i, time.Now())
				}
				book.Commit(b.Context(), changes)
				if changes[0].Err != nil {
					b.Fatal(changes[0].Err)
				}
			}
			perLease(b, batch)
		})
	}
}

// TestMemory: a lease costs at most 150 bytes, at any number of them.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("measures the whole process")
	}
	for _, n := range []int{20_000, 50_000, 100_000, 150_000, 200_000} {
		p := benchPool(n)
		book, c := benchBook(t)
		book.Serve(p)
		before, rss := heap(), resident()
		fill(t, book, p, n, c.Now())
		book.committer = committer{}
		after, rss2 := heap(), resident()
		per := float64(after-before) / float64(n)
		t.Logf("%d leases: %.0f bytes each by MemStats; resident %.0f bytes each", n, per, float64(rss2-rss)/float64(n))
		if per > 150 {
			t.Errorf("%d leases cost %.0f bytes each, want at most 150", n, per)
		}
		runtime.KeepAlive(book)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// resident returns the anonymous memory of the process in bytes, 0 if unknown.
func resident() int64 {
	b, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// cpuTime is what this thread has used of a processor: other processes do not change it.
func cpuTime() time.Duration {
	const clockThreadCPU = 3
	var ts syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockThreadCPU, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}

// BenchmarkGrow reports the longest single call while a book grows to 200,000 leases: no packet waits for the tables.
func BenchmarkGrow(b *testing.B) {
	const most = 200_000
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var offer, commit []time.Duration
	for b.Loop() {
		book, c := benchBook(b)
		p := benchPool(2 * most)
		book.Serve(p)
		for i := range most {
			x := benchChange(p, i, c.Now())
			start := cpuTime()
			a, _, err := book.Offer(Request{MAC: x.MAC, Subnet: big, Pool: p})
			offered := cpuTime()
			if err != nil {
				b.Fatal(err)
			}
			x.Addr = a
			one := []*Change{x}
			begun := cpuTime()
			book.Commit(context.Background(), one)
			commit = append(commit, cpuTime()-begun)
			offer = append(offer, offered-start)
		}
	}
	for name, all := range map[string][]time.Duration{"offer": offer, "commit": commit} {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)-1].Microseconds()), name+"-max-µs")
		b.ReportMetric(float64(all[len(all)*9999/10000].Microseconds()), name+"-p99.99-µs")
	}
}

// BenchmarkServe is a reload of the lab that reserves an address of a pool with so many leases, and one that moves its end.
func BenchmarkServe(b *testing.B) {
	for _, kind := range []string{"reserve", "resize"} {
		b.Run(kind, func(b *testing.B) {
			sizes(b, func(b *testing.B, n int) {
				book, c := benchBook(b)
				all := benchPool(n)
				fill(b, book, all, n, c.Now())
				other := NewPool(addrOf(all.first), addrOf(all.first+uint32(n)-1), func(a netip.Addr) bool { return a == addrOf(all.first) })
				if kind == "resize" {
					other = benchPool(n + 1)
				}
				defer cpu(b, 1)()
				for i := 0; b.Loop(); i++ {
					book.Serve([]*Pool{other, all}[i%2])
				}
			})
		})
	}
}

// BenchmarkOpen reads a book of so many leases.
func BenchmarkOpen(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		s := storetest.Memory()
		c := clock.New(time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC))
		fill(b, openBook(b, s, c.Now), benchPool(n), n, c.Now())
		for b.Loop() {
			openBook(b, s, c.Now)
		}
	})
}

// BenchmarkClockJump sets the clock from 1970 to today: the wheel turns once, not once for every second.
func BenchmarkClockJump(b *testing.B) {
	book, c := benchBook(b)
	p := benchPool(1)
	for b.Loop() {
		c.Set(c.Now().AddDate(56, 0, 0))
		book.Usage(p)
		c.Set(c.Now().AddDate(-56, 0, 0))
		book.Usage(p)
	}
}

// BenchmarkRestart is what a start does before the first packet: 100,000 leases, each renewed once, are read from the state file that a
// kill left. store-ms is the part of the store.
func BenchmarkRestart(b *testing.B) {
	const n = 100_000
	path := filepath.Join(b.TempDir(), "state.db")
	s, _, err := logfile.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	value := Lease{State: Active, Start: time.Now(), Expiry: time.Now().Add(time.Hour)}
	for i := range 2 * n / 100 {
		var txns []store.Txn
		for k := range 100 {
			host := i%(n/100)*100 + k
			value.Addr, value.MAC = netip.AddrFrom4([4]byte{10, byte(host >> 16), byte(host >> 8), byte(host)}), mac(host)
			value.Hostname = fmt.Sprintf("node-%d.rack-%d", host, host/40)
			txns = append(txns, store.Put("lease/"+value.Addr.String(), encode(value)))
		}
		for _, err := range s.CommitAll(b.Context(), txns) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	file, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	var inStore time.Duration
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		b.StopTimer()
		path := filepath.Join(b.TempDir(), strconv.Itoa(i))
		if err := os.WriteFile(path, file, 0o600); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		began := time.Now()
		s, damage, err := logfile.Open(path)
		inStore += time.Since(began)
		if err != nil || len(damage) > 0 {
			b.Fatal(err, damage)
		}
		book, err := Open(b.Context(), s, time.Now)
		b.StopTimer()
		if err != nil || len(book.All()) != n {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(inStore.Microseconds())/1000/float64(b.N), "store-ms")
}
