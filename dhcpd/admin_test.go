package dhcpd

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/observe/event"
)

func TestRelease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, err := b.Release(t.Context(), ip("10.77.0.200")); !errors.Is(err, ErrNoLease) {
		t.Fatalf("released an address without a lease: %v", err)
	}
	leased := b.lease(t, other, udhcpc)
	l, err := b.Release(t.Context(), ip(leased))
	if err != nil || l.MAC != mac(t, other) {
		t.Fatalf("released %+v, %v", l, err)
	}
	if _, ok := b.deps.Book.ByAddr(ip(leased)); ok {
		t.Error("it is still leased")
	}
	if e := b.kinds(event.DHCPRelease); len(e) != 1 || !e[0].ByAdmin {
		t.Errorf("recorded %+v, want one event of an admin", e)
	}
	if _, err := b.Release(t.Context(), ip(leased)); !errors.Is(err, ErrNoLease) {
		t.Errorf("released twice: %v", err)
	}
}

// An offer that the client has not taken can be withdrawn too.
func TestReleaseOfAnOffer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	offered := b.ask(t, mac(t, other))
	if l, err := b.Release(t.Context(), ip(offered)); err != nil || l.MAC != mac(t, other) || l.State != leases.Offered {
		t.Fatalf("released %+v, %v", l, err)
	}
	if held, ok := b.deps.Book.OfferTo(mac(t, other)); ok {
		t.Errorf("%s is still held", held)
	}
}

// TestReleaseOfADeclinedAddress: a declined address is free again at once.
func TestReleaseOfADeclinedAddress(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	addr := ip(b.lease(t, other, udhcpc))
	declined := &leases.Change{Lease: leases.Lease{Addr: addr, MAC: mac(t, other), State: leases.Declined, Start: b.deps.Now(), Expiry: b.deps.Now().Add(time.Hour)}, Subnet: netip.MustParsePrefix("10.77.0.0/24")}
	if b.deps.Book.Commit(t.Context(), []*leases.Change{declined}); declined.Err != nil {
		t.Fatal(declined.Err)
	}
	if l, err := b.Release(t.Context(), addr); err != nil || l.State != leases.Declined {
		t.Fatalf("released %+v, %v", l, err)
	}
	if l, ok := b.deps.Book.Holding(addr); ok {
		t.Errorf("%s is still kept from others: %+v", addr, l)
	}
}
