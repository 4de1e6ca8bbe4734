package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bootlab/bootlab/internal/daemon/health"
	"github.com/bootlab/bootlab/internal/daemon/ports"
	"github.com/bootlab/bootlab/internal/daemon/watch"
	"github.com/bootlab/bootlab/internal/daemon/watchdog"
	"github.com/bootlab/bootlab/internal/observe/panics"
)

// A task is one server, or something else that runs as long as the daemon.
type task struct {
	name   string
	server bool                        // it may end alone; else the daemon stops with it
	run    func(context.Context) error // nil when its context ends

	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid once done is closed
}

// tasks are all that runs, in the order in which it is stopped.
type tasks []*task

// tasks lists what runs. It is stopped from the top, and the order has its reasons.
func (d *Daemon) tasks(watcher *watch.Watcher) tasks {
	all := tasks{
		// No reload any more.
		{name: "watch", run: func(ctx context.Context) error { return d.watch(ctx, watcher) }},
		// Client connections drain while everything else still answers.
		{name: health.LB, server: true, run: d.lb.Serve},
		// No connection is left that would break.
		{name: "addresses", run: d.addresses.Run},
		{name: "install-watch", run: func(ctx context.Context) error {
			return d.installWatch.Run(ctx, d.installs, d.machineNamed, d.serverLog)
		}},
		{name: "clusters", run: d.clusters.run},
		// No client asks for virtual machines any more.
		{name: health.Redfish, server: true, run: func(ctx context.Context) error {
			return d.ports.Serve(ctx, health.Redfish, func(ctx context.Context, s *ports.Socket) error { return d.redfish.Serve(ctx, s.TCP) })
		}},
		// No operation on virtual machines any more.
		{name: health.Virt, server: true, run: d.virt.Serve},
		// No console is open any more; the last output is written.
		{name: "consoles", run: d.consoles.Run},
		// Transfers may finish, up to a limit.
		{name: health.HTTP, server: true, run: func(ctx context.Context) error {
			return d.ports.Serve(ctx, health.HTTP, func(ctx context.Context, s *ports.Socket) error { return d.http.Serve(ctx, s.TCP) })
		}},
		// No reader of mirrors is left; partial downloads are discarded.
		{name: "mirror", run: d.mirrors.Run},
		{name: health.TFTP, server: true, run: func(ctx context.Context) error {
			return d.ports.Serve(ctx, health.TFTP, func(ctx context.Context, s *ports.Socket) error { return d.tftp.Serve(ctx, s.UDP) })
		}},
		{name: "names", run: d.followNames},
		{name: "secondaries", run: d.dns.ServeChanges},
		// DNS and DHCP last: machines still need names and renewals.
		{name: health.DNS, server: true, run: func(ctx context.Context) error { return d.ports.Serve(ctx, health.DNS, d.serveDNS) }},
		{name: health.DHCP, server: true, run: d.dhcp.Serve},
		{name: "clock", run: d.watchClock},
		// The admin API answers until the end.
		{name: health.Admin, server: true, run: d.serveAdmin},
		{name: "store", run: d.storeWatch.Run},
		// No install ends any more.
		{name: "install-count", run: d.countInstalls},
		// The last events are saved.
		{name: "timeline", run: d.timeline.Run},
	}
	if w := watchdog.New(d.selfTests(), d.log); w != nil {
		all = append(all, &task{name: "watchdog", run: w.Run}) // until the end: to drain takes longer than it waits
	}
	return all
}

func (d *Daemon) serveDNS(ctx context.Context, s *ports.Socket) error {
	if s.UDP != nil {
		return d.dns.Serve(ctx, []*net.UDPConn{s.UDP}, nil)
	}
	return d.dns.Serve(ctx, nil, []*net.TCPListener{s.TCP})
}

// serveAdmin serves the admin API on its ports and on the socket of the command line.
func (d *Daemon) serveAdmin(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.admin.Serve(ctx, d.ports.CommandLine()) })
	g.Go(func() error {
		return d.ports.Serve(ctx, health.Admin, func(ctx context.Context, s *ports.Socket) error { return d.admin.Serve(ctx, s.TCP) })
	})
	return g.Wait()
}

// run starts all tasks, calls ready, waits for ctx to end, calls stopping, and stops all in order. A server that ends before
// is reported, and the others go on; any other task takes the daemon with it.
func (ts tasks) run(ctx context.Context, all *panics.All, h *health.Servers, log *slog.Logger, ready, stopping func()) error {
	ended := make(chan *task, len(ts))
	for _, t := range ts {
		t.start(context.WithoutCancel(ctx), all, h, ended)
	}
	ready()
	for stop := false; !stop; {
		select {
		case <-ctx.Done():
			stop = true
		case t := <-ended:
			log.Error("server stopped serving", "server", t.name, "err", t.err)
			stop = !t.server
		}
	}
	stopping()
	var errs []error
	for _, t := range ts {
		t.cancel()
		<-t.done
		if t.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.name, t.err))
		}
	}
	return errors.Join(errs...)
}

func (t *task) start(ctx context.Context, all *panics.All, h *health.Servers, ended chan<- *task) {
	ctx, t.cancel = context.WithCancel(ctx)
	t.done = make(chan struct{})
	h.Started(t.name)
	server := all.Server(t.name) // its metric is there before the first panic
	go func() {
		defer close(t.done)
		t.err = t.contained(ctx, server)
		h.Ended(t.name, t.err)
		ended <- t
	}()
}

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

// panicWarnings describes the panics that were contained, by server.
func (d *Daemon) panicWarnings() (warnings []string) {
	counts := d.panics.Counts()
	for _, server := range slices.Sorted(maps.Keys(counts)) {
		c := counts[server]
		warnings = append(warnings, fmt.Sprintf("%s: panics contained: %d, the last at %s (%s): a bug of bootlab; please report it with the stack in the log",
			server, c.N, c.Place, c.Last.Format(time.DateTime)))
	}
	return warnings
}

// contained runs a task. A server that panics outside of its handlers ends with an error, and the others go on; any other task is started
// again.
func (t *task) contained(ctx context.Context, contain *panics.Server) (err error) {
	if t.server {
		return contain.Run(func() error { return t.run(ctx) })
	}
	contain.Loop(ctx, func() { err = t.run(ctx) })
	return err
}
