package load

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/bootlab/bootlab/internal/lab"
)

// redfish resolves the Redfish service.
func (r *resolver) redfish() {
	if !r.raw.Redfish.set() || r.raw.Redfish.V == nil {
		return
	}
	raw, s := r.raw.Redfish.V, &r.lab.Redfish
	if !raw.Listen.set() {
		r.failMissing(r.raw.Redfish.spot, "redfish.listen", "is missing: want an address such as 192.168.16.1:8443")
		return
	}
	s.Listen = listens(r, &raw.Listen, "redfish.listen", netip.AddrPort{})
	s.TLS, s.MaxMedia = bool(raw.TLS.or(true)), raw.MaxMedia.or(defaultMaxMedia)
	if s.Certificate = r.path(string(raw.Certificate.V)); s.Certificate != "" && !s.TLS {
		r.fail(raw.Certificate.spot, "redfish.certificate", "needs TLS, which is off: want one of the two")
	}
	r.certificate(&raw.Certificate, "redfish.certificate")
	for _, e := range raw.Accounts.Entries {
		key := "redfish.accounts." + e.Name
		r.identName(e.spot, key, e.Name)
		if missing(r, &e.V.PasswordFile, e.spot, key+".password_file", "a file that holds the password") {
			r.checkFile(&e.V.PasswordFile, key+".password_file", r.path(string(e.V.PasswordFile.V)))
		}
		s.Accounts = append(s.Accounts, lab.RedfishAccount{Name: e.Name, PasswordFile: r.path(string(e.V.PasswordFile.V)), Role: e.V.Role.or(lab.RedfishAdministrator)})
	}
	if len(s.Accounts) == 0 {
		r.failMissing(r.raw.Redfish.spot, "redfish.accounts", "is missing: without an account no client can log in; want accounts: {NAME: {password_file: …}}")
	}
	slices.SortFunc(s.Accounts, func(a, b lab.RedfishAccount) int { return cmp.Compare(a.Name, b.Name) })
}
