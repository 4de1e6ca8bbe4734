package daemon

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/daemon/health"
	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/daemon/watch"
	"github.com/bootlab/bootlab/internal/host/link/links"
	"github.com/bootlab/bootlab/internal/lab"
)

// currentWarnings returns the warnings and errors that hold now: those of the load, of certificates as they are now, and addresses lost since.
func (d *Daemon) currentWarnings(s *snapshot.Snapshot) (ws, faults lab.Problems) {
	ws, faults = d.problems(s)
	for _, p := range interfaces.NetworkWarnings(s.Lab) {
		if !ws.Has(p) {
			ws = append(ws, p)
		}
	}
	return ws, faults
}

// watch follows the lab's files, and the interfaces and addresses of this machine, until ctx ends.
func (d *Daemon) watch(ctx context.Context, w *watch.Watcher) error {
	changes, err := links.Open()
	if err != nil {
		d.log.Warn("no notifications of interfaces: their state is polled", "err", err)
	}
	defer changes.Close()
	return w.Run(ctx, d.reloadBecause, d.poll, changes.Changed())
}

// poll is called once a second, and when interfaces or addresses change. It follows the memory limit and the addresses of interfaces,
// gives back memory, checks whether the state and its markers are in their place, logs new warnings, and reports whether the lab has to be reloaded for an address that exists now.
func (d *Daemon) poll() bool {
	d.watchState()
	d.watchMarkers()
	d.health.Look(d.current.Load().Lab) // since when something is gone
	d.lost.log(d.health.Lost(), d.log)
	d.followMemory()
	d.garbage.Look(time.Now())
	d.followAddresses()
	d.addresses.Follow()
	d.measureDisks()
	s := d.current.Load()
	d.files.Look(s.Lab, s.IfMissing)
	d.healthyOnce.update(d.serverLog)
	d.warnNew(s)
	d.conditions(s) // since when
	return interfaces.AddressFound(s.Lab)
}

// networkFaults are why no machine boots on interfaces that are up, by network: a lost address, no carrier. dhcpd reports interfaces that are
// down or do not exist.
type networkFaults struct {
	mu sync.Mutex
	of map[string]interfaces.Fault
}

// log logs what has changed since the last call.
func (p *networkFaults) log(l *lab.Lab, log *slog.Logger) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := map[string]interfaces.Fault{}
	for _, n := range l.Networks {
		if !n.Served() {
			continue
		}
		before := p.of[n.Name]
		f := interfaces.FaultOf(l, n)
		if !interfaces.Up(n) { // looked at last: it may go meanwhile
			f = before
		}
		if now[n.Name] = f; f == before {
			continue
		}
		log := log.With("network", n.Name, "iface", n.Interface)
		switch {
		case f.NoCarrier:
			log.Warn("network is served, but has no carrier", "problem", f.Problem, "advice", f.Fix)
		case f.AddressLost:
			log.Warn("network has lost its address: only DHCP answers", "problem", f.Problem, "advice", f.Fix)
		case f.Elsewhere:
			log.Warn("network's address is on another interface", "problem", f.Problem, "advice", f.Fix)
		case f.Problem != "":
			log.Warn("network is not served", "problem", f.Problem, "advice", f.Fix)
		case before.NoCarrier:
			log.Info("network has a carrier again")
		case before.AddressLost || before.Elsewhere:
			log.Info("network has its address again")
		default:
			log.Info("network is served again")
		}
	}
	p.of = now
}

// lostAddresses are why clients do not reach the addresses of servers, as it was logged; nil: they do.
type lostAddresses struct {
	mu sync.Mutex
	of map[health.ServerAddr]error
}

// log logs what has changed since the last call.
func (p *lostAddresses) log(now map[health.ServerAddr]error, log *slog.Logger) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range slices.SortedFunc(maps.Keys(now), health.ServerAddr.Compare) {
		switch err, before := now[a], p.of[a]; {
		case (err == nil) == (before == nil):
		case err != nil:
			log.Warn("address is not served", "server", a.Server, "addr", a.Addr, "err", err)
		default:
			log.Info("address is served again", "server", a.Server, "addr", a.Addr)
		}
	}
	p.of = now
}

// followAddresses opens and closes sockets as the interfaces of the lab's networks get and lose IPv6 addresses. Those of IPv4 are
// in the lab, and stay open while they are lost.
func (d *Daemon) followAddresses() {
	d.reloads.running.Lock()
	defer d.reloads.running.Unlock()
	st, err := d.ports.Stage(context.Background(), endpoints(d.current.Load().Lab)) // nothing waits
	if err == nil {
		st.Commit()
	}
	if d.ports.Changed(err) {
		if err != nil {
			d.log.Warn("addresses of an interface are not listened on", "err", err)
			return
		}
		d.log.Info("addresses of interfaces are listened on again")
	}
}

// measureDisks measures the free space of the folders that images, mirrors and the state are in.
func (d *Daemon) measureDisks() {
	a := d.current.Load().Lab.Appliance
	d.disks.Require(d.stateFolder.path)
	d.disks.Look(a.State, a.Files)
}
