package leaseadmin

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/dhcpd"
	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/api"
)

// refusals are the reasons of dhcpd in the words of the API.
var refusals = map[dhcpd.SkipReason]api.SkipKind{
	dhcpd.SkipExpired: api.SkipExpired, dhcpd.SkipOutside: api.SkipOutside, dhcpd.SkipNoPool: api.SkipNoPool, dhcpd.SkipReserved: api.SkipReserved,
	dhcpd.SkipDouble: api.SkipDouble, dhcpd.SkipLeased: api.SkipLeased, dhcpd.SkipFailed: api.SkipFailed,
}

// Import imports leases into a server; r says whether it only checks them, and o whether they replace leases that it has. The error is an
// api.Error: a lease is not valid, and none was imported.
func Import(ctx context.Context, server *dhcpd.Server, all []api.Lease, o api.Overwrite, r api.Rehearse) (api.LeaseImport, error) {
	done := api.LeaseImport{Skipped: []api.SkippedLease{}, Checked: r == api.CheckImport}
	var imports []*dhcpd.Import
	for _, l := range all {
		skipped := api.SkippedLease{IP: l.IP, MAC: l.MAC, Name: l.Name}
		id, err := hex.DecodeString(strings.ReplaceAll(l.ClientID, ":", ""))
		switch {
		case !l.IP.Unmap().Is4() || l.MAC.IsZero() || l.MAC[0]&1 != 0:
			skipped.Kind, skipped.Reason = api.SkipNoEthernet, "not an IPv4 address and the MAC of a machine"
		case l.Status() != api.LeaseActive && l.Status() != api.LeaseExpired:
			skipped.Kind, skipped.Reason = api.SkipNotActive, "its state is "+string(l.Status())
		case l.Status() == api.LeaseExpired:
			skipped.Kind, skipped.Reason = api.SkipExpired, "its state is expired"
		case err != nil:
			return done, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("client id %.60q of %s is not hexadecimal", l.ClientID, l.IP)}
		case l.Never != l.Expires.IsZero():
			return done, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("the lease of %s has no expires and no \"never\": true, or both", l.IP), Hint: "want one of them"}
		default:
			imports = append(imports, &dhcpd.Import{Lease: leases.Lease{Addr: l.IP, MAC: l.MAC, Start: l.Since, Expiry: l.Expires, Hostname: l.Name,
				ClientID: id, Vendor: l.VendorClass, RelayPort: l.RelayPort}})
			continue
		}
		done.Skipped = append(done.Skipped, skipped)
	}
	server.Import(ctx, imports, dhcpd.ImportMode{Replace: o == api.ReplaceLeases, Check: r == api.CheckImport})
	for _, l := range imports {
		switch {
		case l.Skipped != "":
			done.Skipped = append(done.Skipped, api.SkippedLease{IP: l.Addr, MAC: l.MAC, Name: l.Hostname, Kind: refusals[l.Skipped], Reason: l.Why})
			continue
		case l.Ended:
			done.Replaced++
		}
		done.Imported++
	}
	slices.SortStableFunc(done.Skipped, func(x, y api.SkippedLease) int { return x.IP.Compare(y.IP) })
	return done, nil
}
