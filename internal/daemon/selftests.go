package daemon

import (
	"context"

	"github.com/bootlab/bootlab/internal/daemon/health"
	"github.com/bootlab/bootlab/internal/daemon/watchdog"
)

// selfTests are the tests of all servers. That of balancers makes no connection, which would be one to a backend. Virtual machines
// and Redfish have none: each request has a goroutine of its own, and may wait for a hypervisor.
func (d *Daemon) selfTests() []watchdog.Test {
	admin := d.current.Load().Lab.Appliance.AdminSocket
	servers := watchdog.Servers{
		Sockets: d.health.Sockets, Counters: d.registry,
		Serving: func(server string) bool { return d.health.Server(server, nil).Serving },
	}
	return []watchdog.Test{
		{Server: health.DHCP, Ask: d.dhcp.Alive},
		{Server: health.LB, Ask: func(ctx context.Context) error { return servers.UnlessEnded(health.LB, d.lb.Alive(ctx)) }},
		{Server: health.TFTP, Ask: servers.OnSockets(health.TFTP, watchdog.AskTFTP)},
		{Server: health.DNS, Ask: servers.OnSockets(health.DNS, watchdog.AskDNS)},
		{Server: health.HTTP, Ask: servers.OnSockets(health.HTTP, func(ctx context.Context, addr string) error { return watchdog.AskHTTP(ctx, "tcp", addr) })},
		{Server: health.Admin, Ask: func(ctx context.Context) error {
			return servers.UnlessEnded(health.Admin, watchdog.AskHTTP(ctx, "unix", admin))
		}},
	}
}
