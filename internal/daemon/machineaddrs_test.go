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

// TestWhoseAddress: an address is that of the machine that leased it, also where the lab file reserves it for another one by now; a backend
// by name has the address that the name has in DNS.
func TestWhoseAddress(t *testing.T) {
	t.Parallel()
	book, err := leases.Open(t.Context(), storetest.Memory(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	lease := func(addr string, mac lab.MAC) {
		t.Helper()
		c := &leases.Change{Subnet: netip.MustParsePrefix("10.0.0.0/16"), Lease: leases.Lease{
			Addr: netip.MustParseAddr(addr), MAC: mac, State: leases.Active, Start: time.Now(), Expiry: time.Now().Add(time.Hour),
		}}
		if book.Commit(t.Context(), []*leases.Change{c}); c.Err != nil {
			t.Fatal(c.Err)
		}
	}
	lease("10.0.0.9", lab.MAC{2, 0, 0, 0, 0, 9})
	lease("10.0.0.150", lab.MAC{2, 0, 0, 0, 0, 1})
	lease("10.0.0.151", lab.MAC{2, 0, 0, 0, 0, 8})
	l, err := load.Parse("lab.yaml", []byte(`version: 1
domain: d.example
networks:
  a: {subnet: 10.0.0.0/16, address: 10.0.0.1, interface: eth8, pools: {p: {range: 10.0.0.100-10.0.0.200}}}
  b: {subnet: 10.1.0.0/16, address: 10.1.0.1, interface: eth9}
hosts:
  reserved: {mac: "02:00:00:00:00:08", ip: 10.0.0.9}
  plain: {mac: "02:00:00:00:00:07", ip: 10.0.0.7}
  two: {nics: [{mac: "02:00:00:00:00:01", network: a}, {mac: "02:00:00:00:00:02", network: b, ip: 10.1.0.12, boot: true}]}
`), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{persistentState: &persistentState{book: book}}
	d.current.Store(&snapshot.Snapshot{Lab: l})
	c := &adminBackend{d}
	for _, tt := range []struct {
		addr, host string
		want       bool
	}{
		{"10.0.0.9", "reserved", false}, {"10.0.0.151", "reserved", true}, {"::ffff:10.0.0.151", "reserved", true}, {"10.0.0.7", "plain", true},
		{"10.0.0.150", "two", true}, {"10.1.0.12", "two", true}, {"10.0.0.33", "plain", false},
	} {
		if got := c.isOf(netip.MustParseAddr(tt.addr), l.Host(tt.host)); got != tt.want {
			t.Errorf("%s is that of %s: %t, want %t", tt.addr, tt.host, got, tt.want)
		}
	}
	if got := (backendAddresses{d}).Lease("two"); got != netip.MustParseAddr("10.0.0.150") {
		t.Errorf("backend two has the address %s, want that of the name", got)
	}
}
