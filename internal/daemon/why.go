package daemon

import (
	"context"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/cluster"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/diagnosis"
	"github.com/bootlab/bootlab/internal/power"
	"github.com/bootlab/bootlab/lbproxy"
)

// Why implements httpd.Backend.
func (c *adminBackend) Why(ctx context.Context, machine string) (api.Diagnosis, error) {
	key, err := c.key(machine)
	if err != nil {
		return api.Diagnosis{}, err
	}
	m := diagnosis.Machine{Host: key}
	l := c.current.Load().Lab
	h := l.Host(key)
	if h == nil { // of a pool, or unknown
		if mac, err := lab.ParseMAC(key); err == nil {
			addr, _ := c.nicAddrs(l).AddrOf(mac)
			h = l.MachineOf(mac, addr)
		}
	}
	if h != nil {
		m = c.clusters.machine(h, c.clusters.look(ctx))
		m.Host = key
		m.Cluster, m.Later = c.waits(ctx, h)
		m.BMC, m.BMCProblem = powerOfMetal(ctx, h)
	}
	return c.diagnose(ctx, m)
}

// powerWait is how long a controller may take to say whether its machine is on: somebody waits for the answer.
const powerWait = 3 * time.Second

// powerOfMetal returns what the controller of h says of its power, or why it does not; empty: h has none.
func powerOfMetal(ctx context.Context, h *lab.Host) (state, problem string) {
	if h.VM != nil || h.BMC == nil {
		return "", ""
	}
	ctx, cancel := context.WithTimeout(ctx, powerWait)
	defer cancel()
	s, err := power.Do(ctx, h.BMC, power.Status)
	if err != nil {
		return "unknown", err.Error()
	}
	return string(s), ""
}

// waits returns what the cluster of h waits for, and what h waits for before it is created or switched on; empty: nothing, or it has no
// cluster that can be brought up.
func (c *adminBackend) waits(ctx context.Context, h *lab.Host) (all, later string) {
	if h.Cluster == nil || h.Cluster.Kind == lab.Plain {
		return "", ""
	}
	s := c.clusters.assess(h.Cluster, c.clusters.look(ctx))
	for _, m := range s.Machines {
		if m.Host == h && m.Stage == cluster.StageWaiting {
			later = m.Waits
		}
	}
	return s.Waits, later
}

// diagnose adds to m the health of the servers, and judges the boots of the machine by it.
func (d *Daemon) diagnose(ctx context.Context, m diagnosis.Machine) (api.Diagnosis, error) {
	boots, err := d.timeline.Boots(ctx, m.Host)
	if err != nil {
		return api.Diagnosis{}, err
	}
	for _, s := range d.serverStates() {
		if !s.Serving {
			m.Servers = append(m.Servers, diagnosis.Server{Name: s.Name, Err: s.Err})
		}
	}
	return api.Diagnosis(diagnosis.Of(boots, m, time.Now())), nil
}

// machine returns what is known of h beside its boots and the servers.
func (c *clusters) machine(h *lab.Host, seen seen) diagnosis.Machine {
	status := c.installs.Status(h)
	m := diagnosis.Machine{
		Host: h.Name, Known: true, Reserved: h.IP.IsValid(), Install: installState(status), Restored: status.HeldByRestore(),
	}
	if p := h.Profile; p != nil && p.NetBoots() {
		m.Profile, m.OwnScript, m.Document = p.Name, p.IPXE != "", p.Config != ""
	}
	if h.VM != nil {
		vm := seen.vms[h.Name]
		m.VM, m.VMProblem = string(vmState(vm.State)), vm.Err
		m.Image = fromImage(h)
	}
	if n := h.Network; n != nil {
		m.Network = n.Name
		for _, p := range c.pools() {
			if p.Network == n.Name && p.Full() {
				m.FullPools = append(m.FullPools, p.Network+"/"+p.Name)
			}
		}
		for _, i := range interfaceConditions(c.current.Load().Lab) {
			if i.Name == n.Interface && !i.OK {
				m.Problems = append(m.Problems, "interface "+i.Name+": "+i.Problem)
			}
		}
	}
	for _, b := range seen.balancers {
		for _, backend := range b.Backends {
			if backend.Host == h.Name && backend.Condition == lbproxy.Down && !backend.Drained {
				m.Checks = append(m.Checks, diagnosis.Check{Balancer: b.Name, Reason: backend.Reason, Since: backend.Since})
			}
		}
	}
	return m
}

// causeAfter is how long a machine of a cluster may be in one stage before its boot is looked at: it may have been switched on just now.
const causeAfter = 2 * time.Minute

// withCauses adds to the machines of a cluster that are under way why their boots stopped.
func (c *clusters) withCauses(ctx context.Context, cl api.Cluster, seen seen) api.Cluster {
	l := c.current.Load().Lab
	under := []cluster.Stage{cluster.StageBooting, cluster.StageInstalling, cluster.StageStarting}
	for i := range cl.Machines {
		m := &cl.Machines[i]
		h := l.Host(m.Host)
		late := slices.Contains(under, cluster.Stage(m.Stage)) && !m.Since.IsZero() && time.Since(m.Since) > causeAfter
		if h == nil || !m.Stuck && !late {
			continue
		}
		if d, err := c.diagnose(ctx, c.machine(h, seen)); err == nil && d.State == diagnosis.Stopped {
			m.Cause = d.Cause
		}
	}
	return cl
}
