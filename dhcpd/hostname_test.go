package dhcpd

import (
	"net/netip"
	"testing"
	"time"

	"bootlab/internal/lab"
	"bootlab/internal/store/storetest"
)

func TestByHostname(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	b, err := OpenBook(t.Context(), storetest.Memory(), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	put := func(last byte, name string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.putLocked(Lease{
			Addr: netip.AddrFrom4([4]byte{10, 0, 0, last}), MAC: lab.MAC{0, 0, 0, 0, 0, last}, State: Active,
			Expiry: now.Add(time.Hour), Hostname: name,
		})
	}
	want := func(name, addr string) {
		t.Helper()
		l, ok := b.ByHostname(name)
		if got := l.Addr.String(); ok != (addr != "") || ok && got != addr {
			t.Errorf("%s is at %s, %v; want %q", name, got, ok, addr)
		}
	}
	put(1, "laptop")
	put(2, "laptop")
	want("laptop", "10.0.0.2") // of two the one that came last
	put(2, "desktop")
	want("desktop", "10.0.0.2")
	want("laptop", "") // its address is another's now
	want("nobody", "")
	now = now.Add(2 * time.Hour)
	want("desktop", "") // expired
}
