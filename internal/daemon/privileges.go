package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"

	"bootlab/dhcpd/segment"
	"bootlab/internal/boot"
	"bootlab/internal/lab"
	"bootlab/internal/portowner"
	"bootlab/internal/privilege"
	"bootlab/lbproxy"
)

// whom returns the user to become, where the daemon was started as root; nil: it stays who it is.
func whom(a lab.Appliance, log *slog.Logger) (*privilege.User, error) {
	if os.Geteuid() != 0 || a.User == "root" {
		return nil, nil
	}
	u, err := privilege.Lookup(a.User)
	if err != nil && a.UserDefault {
		log.Warn("staying root, since nobody said whom to become", "err", err)
		return nil, nil
	}
	return u, err
}

// dropPrivileges becomes u, unless it is nil. Two capabilities stay: a reload may bring balancers on ports below 1024,
// and interfaces to answer DHCP on.
func dropPrivileges(u *privilege.User, l *lab.Lab, labPath string) error {
	if u == nil {
		return nil
	}
	a := l.Appliance
	if err := u.Own(a.State); err != nil {
		return err
	}
	if err := u.OwnSocket(a.AdminSocket); err != nil {
		return err
	}
	if err := u.Drop(privilege.NetBindService, privilege.NetRaw); err != nil {
		return err
	}
	// What root alone may read could be loaded once, and never again.
	if err := readable(l, labPath); err != nil {
		dir := filepath.Dir(labPath)
		return fmt.Errorf("user %s cannot read the lab again, so no reload would work: chown -R :%d %s && chmod -R g+rX %s: %w", u.Name, u.GID, dir, dir, err)
	}
	return nil
}

// readable reports whether the lab and its documents, which were all read before, can be read by who we are now. It opens
// the lab without parsing it again.
func readable(l *lab.Lab, labPath string) error {
	for _, name := range append([]string{labPath}, l.Files...) {
		f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for a writer
		if err != nil {
			return err
		}
		_ = f.Close()
	}
	_, err := boot.Compile(l)
	return err
}

// listenDHCP is segment.Listen; the error of a taken port names who holds it.
func listenDHCP(iface string) (*segment.Socket, error) {
	s, err := segment.Listen(iface)
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
