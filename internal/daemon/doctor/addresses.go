package doctor

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"slices"

	"github.com/bootlab/bootlab/internal/host/vip"
	"github.com/bootlab/bootlab/internal/lab"
)

// addresses looks whether other machines use those of clusters and balancers. A daemon that runs reports that itself.
func addresses(ctx context.Context, m *Machine) (all []Finding) {
	if m.Serving || len(m.Addresses) == 0 {
		return nil
	}
	states, err := vip.Look(ctx, m.Addresses)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return []Finding{warn("all", "only root may ask other machines whether they use them, so it was not tried", needsRoot)}
	case err != nil:
		return []Finding{warn("all", "it is not known whether other machines use them: "+err.Error(), "")}
	}
	for _, s := range states {
		if f := address(m.Lab, s); f.Text != "" {
			f.Subject = s.Addr.String()
			all = append(all, f)
		}
	}
	return all
}

// address says what a state means for a lab; without a text: another check does.
func address(l *lab.Lab, s vip.Address) Finding {
	who := "another machine"
	if !s.MAC.IsZero() {
		who = "the machine with MAC " + s.MAC.String()
		if h := l.HostByMAC(s.MAC); h != nil {
			who += " (" + h.Name + ")"
		}
	}
	holds := l.Appliance.HoldsAddresses()
	switch {
	case s.Phase == vip.Taken && holds:
		return fail("", who+" uses it, so it is not added for "+s.For, "remove it there, or change "+keyOf(l, s.Addr))
	case s.Phase == vip.Taken:
		return warn("", who+" has it (appliance.addresses is off)", "")
	case s.OK():
		return ok("", "is on "+s.On+" ("+s.For+")")
	case s.Phase == vip.Missing && s.Interface == "":
		return warn("", "is on no interface of this machine: "+s.Err, "let something else add it, such as a router that forwards to this machine")
	case s.Phase == vip.Missing && s.Err == "" && holds:
		return ok("", "no other machine uses it ("+s.For+")")
	case s.Phase == vip.Missing && s.Err == "":
		return warn("", "is on no interface, and appliance.addresses is off", "run "+s.Command())
	case s.Phase == vip.Conflict:
		return fail("", who+" uses it, too", "remove it there")
	}
	return Finding{}
}

// keyOf returns the key of the lab file that an address of a cluster or balancer is from.
func keyOf(l *lab.Lab, a netip.Addr) string {
	all := l.ServiceAddresses()
	return all[slices.IndexFunc(all, func(s lab.ServiceAddress) bool { return s.Addr == a })].Key
}
