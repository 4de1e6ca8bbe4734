package daemon

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"bootlab/dhcpd"
	"bootlab/internal/lab"
	"bootlab/internal/portowner"
	"bootlab/internal/privilege"
	"bootlab/lbproxy"
)

// dropPrivileges becomes the user that the lab names, where the daemon was started as root. Two capabilities stay: a
// reload may bring balancers on ports below 1024, and interfaces to answer DHCP on.
func dropPrivileges(a lab.Appliance, log *slog.Logger) error {
	if os.Geteuid() != 0 || a.User == "root" {
		return nil
	}
	u, err := privilege.Lookup(a.User)
	if err != nil && a.UserDefault {
		log.Warn("staying root, since nobody said whom to become", "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	if err := u.Own(a.State, filepath.Dir(a.AdminSocket)); err != nil {
		return err
	}
	return u.Drop(privilege.NetBindService, privilege.NetRaw)
}

// listenDHCP is dhcpd.Listen; the error of a taken port names who holds it.
func listenDHCP(iface string) (*dhcpd.Socket, error) {
	s, err := dhcpd.Listen(iface)
	if err != nil {
		return nil, portowner.Explain(err, "udp", ":67")
	}
	return s, nil
}

// listenBalancer is lbproxy.ListenFree; the error of a taken port names who holds it.
func listenBalancer(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	l, err := lbproxy.ListenFree(ctx, addr)
	if err != nil {
		return nil, portowner.Explain(err, "tcp", addr.String())
	}
	return l, nil
}
