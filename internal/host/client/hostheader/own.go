package hostheader

import (
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/host/link/links"
	"github.com/bootlab/bootlab/internal/lab"
)

// Own reports whether a Host header means this appliance: a name in lower case, or an address, and a port; 0: none. They are those of its
// interfaces and networks, its host name and its names in the lab, with a port of listen, where the server listens, and
// appliance.admin_hosts with any port, which a proxy may have.
func Own(l *lab.Lab, listen []netip.AddrPort, host string, port uint16) bool {
	if slices.Contains(l.Appliance.AdminHosts, host) {
		return true
	}
	if port != 0 && !slices.ContainsFunc(listen, func(a netip.AddrPort) bool { return a.Port() == port }) {
		return false
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return OwnAddr(l, addr)
	}
	if name, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(name, ".")
		if strings.EqualFold(host, name) || strings.EqualFold(host, short) {
			return true
		}
	}
	h := l.Find(host)
	return h != nil && (h.Role == lab.RoleAppliance || OwnAddr(l, h.IP))
}

// OwnAddr reports whether an address is the appliance's.
func OwnAddr(l *lab.Lab, addr netip.Addr) bool {
	if slices.ContainsFunc(l.Networks, func(n *lab.Network) bool { return n.Address == addr && addr.IsValid() }) {
		return true
	}
	addrs, _ := links.Addrs()
	return slices.Contains(addrs, addr)
}
