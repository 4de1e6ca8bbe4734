package daemon

import (
	"net/netip"
	"testing"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// TestLeaseOfAFurtherNIC: where the name of a host is that of a NIC that does not boot, its lease counts for a backend, as in DNS.
func TestLeaseOfAFurtherNIC(t *testing.T) {
	t.Parallel()
	l, err := load.Parse("lab.yaml", []byte(`version: 1
domain: d.example
networks:
  a: {subnet: 10.0.0.0/24, address: 10.0.0.1, interface: eth8, pools: {p: {range: 10.0.0.10-10.0.0.99}}}
  b: {subnet: 10.1.0.0/24, address: 10.1.0.1, interface: eth9}
hosts:
  two: {nics: [{mac: "52:54:00:00:00:01", network: a}, {mac: "52:54:00:00:00:02", ip: 10.1.0.12, network: b, boot: true}]}
`), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	book, err := leases.Open(t.Context(), storetest.Memory(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	leased := netip.MustParseAddr("10.0.0.10")
	c := &leases.Change{Subnet: l.Networks[0].Subnet, Lease: leases.Lease{
		Addr: leased, MAC: lab.MAC{0x52, 0x54, 0, 0, 0, 1}, State: leases.Active, Start: time.Now(), Expiry: time.Now().Add(time.Hour),
	}}
	if book.Commit(t.Context(), []*leases.Change{c}); c.Err != nil {
		t.Fatal(c.Err)
	}
	d := &Daemon{persistentState: &persistentState{book: book}}
	d.current.Store(&snapshot.Snapshot{Lab: l})
	if got := (backendAddresses{d}).Lease("two"); got != leased {
		t.Errorf("the backend is at %s, want %s", got, leased)
	}
}
