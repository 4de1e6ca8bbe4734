package daemon

import (
	"context"

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
		{serverTFTP, "udp", "appliance.tftp", a.TFTP}, {serverDNS, "udp", "appliance.dns", a.DNS}, {serverDNS, "tcp", "appliance.dns", a.DNS},
		{serverHTTP, "tcp", "appliance.http", a.HTTP}, {serverAdmin, "tcp", "appliance.admin", a.Admin}, {serverRedfish, "tcp", "redfish.listen", l.Redfish.Listen},
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
		Lab: d.cfg.Lab, AdminSocket: l.Appliance.AdminSocket, Opened: d.health.opened, Closed: d.health.closed, Log: d.log,
	}, func() []ports.Endpoint { return endpoints(l) })
	if err == nil {
		d.health.opened(serverAdmin, p.CommandLine().Addr().String(), nil)
	}
	return p, err
}
