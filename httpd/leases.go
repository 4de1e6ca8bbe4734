package httpd

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/api"
)

func (a *Admin) getLeases(r *http.Request) (any, error) {
	if err := r.ParseForm(); err != nil {
		return nil, &api.Error{Status: http.StatusBadRequest, Message: err.Error()}
	}
	f, err := api.ParseLeaseFilter(r.Form)
	if err != nil {
		return nil, err
	}
	now := a.deps.Now()
	return list(filter(a.deps.Inventory.Leases(r.Context()), func(l api.Lease) bool { return f.Keep(l, now) })), nil
}

// postRelease gives a lease back. The machine is not told, DHCP has no way to (but RFC 3203, which nobody speaks), so the
// answer tells the person what happens to it.
func (a *Admin) postRelease(r *http.Request) (any, error) {
	addr, err := netip.ParseAddr(r.PathValue("addr"))
	if err != nil {
		return nil, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("%.60q is not an address", r.PathValue("addr")), Hint: "want one such as 192.168.16.130"}
	}
	leases := a.deps.Inventory.Leases(r.Context())
	i := slices.IndexFunc(leases, func(l api.Lease) bool { return l.IP == addr.Unmap() && l.Holds() })
	if i < 0 {
		return nil, &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("nobody holds %s", addr), Hint: "bootlab leases lists what is held"}
	}
	lease := leases[i]
	if err := a.deps.Leases.Release(r.Context(), addr.Unmap()); err != nil {
		return nil, err
	}
	back := api.GivenBack{Lease: lease, Message: consequence(lease, a.deps.Now())}
	back.Lease.State = api.LeaseReleased
	return back, nil
}

// consequence says what a release means for the machine that had the lease.
func consequence(l api.Lease, now time.Time) string {
	switch l.Status() {
	case api.LeaseOffered:
		return "the offer is withdrawn; the machine has to ask again"
	case api.LeaseDeclined, api.LeaseConflict:
		return "the address may be handed out again; who uses it without a lease is still there"
	}
	text := "its machine is not told: it keeps using the address until it renews"
	if left := l.Expires.Sub(now); !l.Expires.IsZero() && left > 0 {
		text += ", in " + left.Round(time.Second).String() + " at the latest"
	}
	if l.Pool == "" && l.Host != "" {
		return text + "; the address stays reserved for " + l.Host
	}
	return text + "; reboot it, or renew its lease there, to be sure before somebody else gets it"
}
