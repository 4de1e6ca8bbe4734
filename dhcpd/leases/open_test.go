package leases

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/logfile"
)

// TestOpen: a book that gets its pools when it is opened is the one that gets them later, and agrees with itself. Leases were renewed, given to
// others and deleted, and some records cannot be decoded, or could not before.
func TestOpen(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		path := filepath.Join(t.TempDir(), "book.db")
		s, _, err := logfile.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for range 400 {
			if err := s.Commit(t.Context(), randomChanges(r)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		p := NewPool(ip("10.0.0.10"), ip("10.0.0.40"), nil)
		s, b, err := openFile(path, p) // marks what cannot be decoded as lost
		if err != nil {
			t.Fatal(err)
		}
		if err := b.check(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		later := openBook(t, s, time.Now)
		later.Serve(p)
		if diff := cmp.Diff(leasesOf(later), leasesOf(b)); diff != "" {
			t.Fatalf("seed %d: opened with its pools (-pools later +at once):\n%s", seed, diff)
		}
		want, offered, free := later.Usage(p)
		if l, o, f := b.Usage(p); l != want || o != offered || f != free {
			t.Errorf("seed %d: usage is %d, %d, %d; want %d, %d, %d", seed, l, o, f, want, offered, free)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// randomChanges returns changes of some of 60 addresses, as a store may have them.
func randomChanges(r *rand.Rand) (t store.Txn) {
	for range 1 + r.IntN(4) {
		l := full()
		n := r.IntN(60)
		l.Addr, l.MAC, l.Hostname = ip(fmt.Sprint("10.0.0.", n)), mac(1000+n), fmt.Sprint("node-", r.IntN(70))
		l.State = []State{Active, Active, Active, Released, Declined}[r.IntN(5)]
		l.Start = time.Unix(1_800_000_000+r.Int64N(1000), 0)
		l.Expiry = time.Now().Add(time.Duration(r.IntN(7200)-3600) * time.Second).Truncate(time.Second)
		op := store.Op{Key: KeyPrefix + l.Addr.String(), Value: encode(l)}
		switch r.IntN(12) {
		case 0, 1, 2:
			op = store.Op{Key: op.Key, Delete: true}
		case 3:
			op.Value[0] = 9
		case 4:
			op = store.Op{Key: KeyPrefix + "nowhere", Value: []byte("x"), Delete: r.IntN(2) == 0}
		case 5:
			op = store.Op{Key: "lead/10.0.0.1", Value: []byte("x")}
		}
		t.Then = append(t.Then, op)
	}
	return t
}

func leasesOf(b *Book) map[string]string {
	all := map[string]string{}
	for _, l := range b.All() {
		named, _ := b.ByHostname(l.Hostname)
		bound, _ := b.Bound(l.MAC, subnet)
		all[l.Addr.String()] = fmt.Sprint(l, named.Start, bound.Addr)
	}
	return all
}
