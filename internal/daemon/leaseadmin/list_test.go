package leaseadmin

import (
	"net/netip"
	"testing"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// TestLeaseOfAReservation: an address inside a pool's range that is reserved for a NIC of a host is none of the pool's, whichever NIC it is and
// whichever machine leases it; nor is that of the appliance: the numbers of the pool leave them out too.
func TestLeaseOfAReservation(t *testing.T) {
	t.Parallel()
	l, err := load.Parse("lab.yaml", []byte(`version: 1
domain: d.example
networks:
  a: {subnet: 10.0.0.0/24, address: 10.0.0.1, pools: {p: {range: 10.0.0.10-10.0.0.99}}}
  b: {subnet: 10.1.0.0/24, address: 10.1.0.14, pools: {q: {range: 10.1.0.10-10.1.0.99}}}
hosts:
  other: {mac: "52:54:00:00:00:03", ip: 10.0.0.12, network: a}
  two: {nics: [{mac: "52:54:00:00:00:01", ip: 10.0.0.11, network: a}, {mac: "52:54:00:00:00:02", ip: 10.1.0.12, network: b}]}
`), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]string{"10.0.0.11": "", "10.1.0.12": "", "10.1.0.13": "q", "10.0.0.12": "", "10.0.0.13": "p", "10.1.0.14": ""} {
		a := netip.MustParseAddr(addr)
		nic := l.Host("two").MACs[0]
		if l.Networks[1].Subnet.Contains(a) {
			nic = l.Host("two").NICs[0].MAC
		}
		if got := Lease(l, l.NotPooled(), &leases.Lease{Addr: a, MAC: nic}, time.Now()).Pool; got != want {
			t.Errorf("%s of NIC %s: pool %q, want %q", addr, nic, got, want)
		}
	}
}
