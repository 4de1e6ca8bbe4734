package daemon

import (
	"context"

	"github.com/bootlab/bootlab/internal/daemon/watchdog"
)

// selfTests are the tests of all servers. That of balancers makes no connection, which would be one to a backend. Virtual machines
// and Redfish have none: each request has a goroutine of its own, and may wait for a hypervisor.
func (d *Daemon) selfTests() []watchdog.Test {
	admin := d.current.Load().Lab.Appliance.AdminSocket
	servers := watchdog.Servers{
		Sockets: d.health.socketsOf, Counters: d.registry,
		Serving: func(server string) bool { return d.health.server(server, nil).Serving },
	}
	return []watchdog.Test{
		{Server: serverDHCP, Ask: d.dhcp.Alive},
		{Server: serverLB, Ask: func(ctx context.Context) error { return servers.UnlessEnded(serverLB, d.lb.Alive(ctx)) }},
		{Server: serverTFTP, Ask: servers.OnSockets(serverTFTP, watchdog.AskTFTP)},
		{Server: serverDNS, Ask: servers.OnSockets(serverDNS, watchdog.AskDNS)},
		{Server: serverHTTP, Ask: servers.OnSockets(serverHTTP, func(ctx context.Context, addr string) error { return watchdog.AskHTTP(ctx, "tcp", addr) })},
		{Server: serverAdmin, Ask: func(ctx context.Context) error {
			return servers.UnlessEnded(serverAdmin, watchdog.AskHTTP(ctx, "unix", admin))
		}},
	}
}
