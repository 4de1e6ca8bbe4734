package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/bootlab/bootlab/dhcpd"
	"github.com/bootlab/bootlab/internal/daemon/cluster"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/daemon/vmadmin"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/machine"
	"github.com/bootlab/bootlab/lbproxy"
	"github.com/bootlab/bootlab/virt"
)

// observed is what one request goes by, to its end: a snapshot, and what machines are judged by beside their own states, gathered once for all of
// them. It waits for no hypervisor.
type observed struct {
	*snapshot.Snapshot
	vms       map[string]virt.Status            // by host, as last known
	checks    map[string][]backendCheck         // by host: one for each of its backends, sorted by balancer
	conflicts map[lab.MAC]dhcpd.AddressConflict // by a MAC of the owner: machines of pools have no name
	off       *lab.Host                         // a bare-metal one, if its controller was asked and says so
}

// A backendCheck is the check of a host by a balancer.
type backendCheck struct {
	machine.Check
	drained bool
}

func (c *clusters) observe(ctx context.Context, of *snapshot.Snapshot) observed {
	return observed{
		Snapshot: of, vms: c.servers.virt.ByHost(ctx), checks: checksOf(c.servers.lb.Status()), conflicts: conflictsOf(c.servers.dhcp.AddressConflicts()),
	}
}

func conflictsOf(all []dhcpd.AddressConflict) map[lab.MAC]dhcpd.AddressConflict {
	byOwner := make(map[lab.MAC]dhcpd.AddressConflict, len(all))
	for _, x := range all {
		byOwner[x.Owner.MAC] = x
	}
	return byOwner
}

// conflict returns the MAC of another machine that uses an address of the machine with these MACs, and says which address; empty: none does.
func (s observed) conflict(macs ...lab.MAC) (mac, text string) {
	for _, m := range macs {
		if x, ok := s.conflicts[m]; ok {
			return x.MAC.String(), fmt.Sprintf("%s uses %s", x.MAC, x.Addr)
		}
	}
	return "", ""
}

// checksOf returns the checks of the hosts that are backends.
func checksOf(balancers []lbproxy.BalancerStatus) map[string][]backendCheck {
	checks := map[string][]backendCheck{}
	for _, b := range balancers {
		for _, m := range b.Backends {
			checks[m.Host] = append(checks[m.Host], backendCheck{machine.Check{
				Health: healthOf(m), Since: m.Since, Reason: m.Reason, Unreachable: m.Unreachable, Kind: m.Check, Balancer: b.Name, Addr: m.Addr,
			}, m.Drained})
		}
	}
	return checks
}

// worst returns the worst check of a host by those of its backends that count.
func (s observed) worst(host string, counts func(backendCheck) bool) (worst machine.Check) {
	for _, check := range s.checks[host] {
		if h := check.Health; h != machine.NotChecked && (worst.Health == machine.NotChecked || h < worst.Health) && counts(check) {
			worst = check.Check
		}
	}
	return worst
}

// healthOf returns what the check of a backend says.
func healthOf(m lbproxy.BackendStatus) machine.Health {
	switch {
	case m.Check == lab.CheckNone:
		return machine.NotChecked
	case m.Health == lbproxy.Up:
		return machine.CheckPassing
	case m.Health == lbproxy.Down:
		return machine.CheckFailing
	}
	return machine.CheckPending
}

// decidedByCluster reports whether the state of h is decided with those of its cluster.
func decidedByCluster(h *lab.Host) bool { return h.Cluster != nil && h.Cluster.Kind != lab.Plain }

// counts returns a function that reports whether a check says whether h is well. Of its cluster's balancers that is the one of the API alone: the
// others have backends that are not needed, as all workers but those on which the router runs. The check of the API counts
// while its backend is drained, too: whether a bootstrap machine still serves says whether it is needed.
func counts(h *lab.Host) func(backendCheck) bool {
	if decidedByCluster(h) {
		return byBalancerOf(h.Cluster, lab.ServiceAPI)
	}
	return func(c backendCheck) bool { return !c.drained }
}

// byBalancerOf returns a function that reports whether a check is by the balancer of a service of a cluster.
func byBalancerOf(cl *lab.Cluster, service string) func(backendCheck) bool {
	balancer := cl.BalancerOf(service)
	return func(c backendCheck) bool { return c.Balancer == balancer }
}

// observation returns what was measured of h.
func (c *clusters) observation(h *lab.Host, observed observed) machine.Observation {
	o := machine.Observation{Host: h.Name, Role: h.Role, Install: c.installs.Status(h)}
	o.Conflict, _ = observed.conflict(h.AllMACs()...)
	if p := h.Profile; p != nil && p.NetBoots() {
		o.OwnScript, o.Document = p.IPXE != "", p.Config != ""
	} else {
		o.Elsewhere = h.VM == nil && !decidedByCluster(h)
	}
	switch {
	case h.VM != nil:
		o.Power, o.Problem = vmadmin.PowerOf(observed.vms[h.Name]), observed.vms[h.Name].Err
	case h == observed.off:
		o.Power = machine.PowerOff
	}
	o.Boot, _ = c.timeline.Last(h.Name)
	o.Check = observed.worst(h.Name, counts(h))
	return o
}

// states returns what each machine of the lab is, by host, but for the appliance.
func (c *clusters) states(observed observed) map[string]machine.State {
	states := make(map[string]machine.State, len(observed.Lab.Hosts))
	for _, cl := range observed.Lab.Clusters {
		if cl.Kind == lab.Plain {
			continue
		}
		for _, m := range c.assess(cl, observed).Machines {
			states[m.Host.Name] = m.State
		}
	}
	for _, h := range observed.Lab.Hosts {
		if _, ok := states[h.Name]; !ok && h.Role != lab.RoleAppliance {
			states[h.Name] = machine.Of(c.observation(h, observed), time.Now())
		}
	}
	return states
}

// machineState returns what h is, and what its cluster waits for; empty: nothing, or it has none that can be brought up.
func (c *clusters) machineState(h *lab.Host, observed observed) (s machine.State, waits string) {
	if h.Role == lab.RoleAppliance {
		return machine.State{}, ""
	}
	if !decidedByCluster(h) {
		return machine.Of(c.observation(h, observed), time.Now()), ""
	}
	all := cluster.Assess(h.Cluster, c.observedIn(h.Cluster, observed), c.record(h.Cluster.Name), time.Now())
	for _, m := range all.Machines {
		if m.Host == h {
			s = m.State
		}
	}
	return s, all.Waits
}
