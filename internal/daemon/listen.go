package daemon

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/daemon/doctor"
	"github.com/bootlab/bootlab/internal/daemon/health"
	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/daemon/ports"
	"github.com/bootlab/bootlab/internal/host/socket/handover"
	"github.com/bootlab/bootlab/internal/host/socket/portowner"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/lbproxy"
)

// listenDHCP is segment.Listen; the error of a port in use names who holds it.
func (d *Daemon) listenDHCP(iface string) (*segment.Socket, error) {
	s, err := segment.Listen(iface)
	if err != nil {
		return nil, portowner.Explain(err, "udp", "", doctor.DHCPKey)
	}
	return s, nil
}

// dhcpInUse returns an error for each port of DHCP that a known program has, but for another bootlab, whose error names all that it has.
// For a start that fails anyway: the ports are opened with the server, and bootlab doctor lists them, too.
func (d *Daemon) dhcpInUse(interfaces []string) (errs []error) {
	for _, iface := range interfaces {
		s, err := d.listenDHCP(iface)
		if err == nil {
			_ = s.Close()
		}
		used, ok := errors.AsType[*portowner.InUse](err)
		same := func(e error) bool { return e.Error() == err.Error() } // one program that has it on all interfaces
		if ok && len(used.Holders) > 0 && !slices.ContainsFunc(errs, same) && !slices.ContainsFunc(used.Holders, func(p portowner.Process) bool { return p.Command == "bootlab" }) {
			errs = append(errs, err)
		}
	}
	return errs
}

// balancerKey returns the key of the lab file that has the balancers listen on an address, of the lab that is being put in force.
func (d *Daemon) balancerKey(addr netip.AddrPort) string {
	for _, b := range d.staged.Balancers {
		for a := range b.Listen.All() {
			if a == addr {
				return b.ListenKey(addr.Addr())
			}
		}
	}
	return "the listen of the balancer"
}

// listenBalancer is lbproxy.ListenFree; the error of a port in use names who holds it.
func (d *Daemon) listenBalancer(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	l := d.handover.Take(addr)
	if l == nil {
		var err error
		if l, err = lbproxy.ListenFree(ctx, addr); err != nil {
			return nil, portowner.Explain(err, "tcp", addr.String(), d.balancerKey(addr))
		}
		d.handover.KeepListener(addr, l)
	}
	return d.health.Listener(l, addr, func() { d.handover.Closed(handover.TCP, addr) }), nil
}

// listenPacketBalancer is lbproxy.ListenPacketFree; the error of a port in use names who holds it.
func (d *Daemon) listenPacketBalancer(ctx context.Context, addr netip.AddrPort) (lbproxy.PacketConn, error) {
	conn := d.handover.TakePacket(addr)
	if conn == nil {
		var err error
		if conn, err = lbproxy.ListenPacketFree(ctx, addr); err != nil {
			return nil, portowner.Explain(err, "udp", addr.String(), d.balancerKey(addr))
		}
		d.handover.Keep(handover.UDP, addr, conn)
	}
	return d.health.PacketConn(conn, addr, func() { d.handover.Closed(handover.UDP, addr) }), nil
}

// endpoints returns where the servers of the appliance listen, with the addresses that the interfaces of l have now.
func endpoints(l *lab.Lab) (all []ports.Endpoint) {
	a, own := l.Appliance, interfaces.OwnAddresses(l)
	for _, s := range []struct {
		server, network, key string
		listen               lab.Listen
	}{
		{health.TFTP, "udp", "appliance.tftp", a.TFTP}, {health.DNS, "udp", "appliance.dns", a.DNS}, {health.DNS, "tcp", "appliance.dns", a.DNS},
		{health.HTTP, "tcp", "appliance.http", a.HTTP}, {health.Admin, "tcp", "appliance.admin", a.Admin}, {health.Redfish, "tcp", "redfish.listen", l.Redfish.Listen},
	} {
		for _, addr := range s.listen.Addrs(own) {
			all = append(all, ports.Endpoint{Server: s.server, Network: s.network, Addr: addr, Key: s.key})
		}
	}
	return all
}

// openPorts opens the ports of l and the socket of the command line.
func (d *Daemon) openPorts(ctx context.Context, l *lab.Lab) (*ports.Ports, error) {
	p, err := ports.Open(ctx, ports.Config{
		Lab: d.cfg.Lab, AdminSocket: l.Appliance.AdminSocket, Opened: d.health.Opened, Closed: d.health.Closed, Log: d.log,
	}, func() []ports.Endpoint { return endpoints(l) })
	if err == nil {
		d.health.Opened(health.Admin, p.CommandLine().Addr().String(), nil)
	}
	return p, err
}
