package dhcpd

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"bootlab/internal/lab"
	"bootlab/internal/store/bolt"
)

// BenchmarkCommit makes new leases durable on disk, so many in one transaction.
func BenchmarkCommit(b *testing.B) {
	for _, size := range []int{1, 50, 400} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s, err := bolt.Open(filepath.Join(b.TempDir(), "book.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			book, err := OpenBook(b.Context(), s, time.Now)
			if err != nil {
				b.Fatal(err)
			}
			subnet := netip.MustParsePrefix("10.0.0.0/8")
			n := uint32(0)
			for b.Loop() {
				changes := make([]*change, size)
				for i := range changes {
					n++
					changes[i] = &change{subnet: subnet, lease: Lease{
						Addr: fromUint32(10<<24 | n*2654435761>>8&0x3ffff), MAC: lab.MAC{2, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)},
						State: Active, Start: time.Now(), Expiry: time.Now().Add(time.Hour),
					}, reserved: true}
				}
				book.commit(b.Context(), changes)
				if changes[0].err != nil {
					b.Fatal(changes[0].err)
				}
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "leases/s")
		})
	}
}
