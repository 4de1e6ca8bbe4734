package daemon

import (
	"context"

	"github.com/bootlab/bootlab/internal/daemon/health"
	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/daemon/ports"
	"github.com/bootlab/bootlab/internal/lab"
)

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
