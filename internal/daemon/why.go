package daemon

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/diagnosis"
	"github.com/bootlab/bootlab/internal/observe/machine"
	"github.com/bootlab/bootlab/internal/power"
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
		seen := c.clusters.look(ctx)
		bmc, problem := powerOfMetal(ctx, h)
		if bmc == string(power.StateOff) {
			seen.off = h
		}
		m = c.clusters.machine(h, seen)
		m.Host, m.BMC, m.BMCProblem = key, bmc, problem
		m.State, m.Cluster = c.clusters.state(h, seen)
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

// diagnose adds to m the health of the servers, and judges the boots of the machine by it.
func (d *Daemon) diagnose(ctx context.Context, m diagnosis.Machine) (api.Diagnosis, error) {
	boots, err := d.timeline.Boots(ctx, m.Host)
	if err != nil {
		return api.Diagnosis{}, err
	}
	for _, s := range d.serverStates() {
		if state := (api.Status{}).StateOf(s); !s.Serving {
			m.Servers = append(m.Servers, diagnosis.Server{Name: s.Name, State: string(state), Err: s.Err, Down: state == api.StateDown})
		}
	}
	if store := d.storeWatch.Status(); len(store.Causes) > 0 {
		m.Store = strings.Join(store.Problems, "; ")
	}
	for _, x := range d.servers.dhcp.TakenAddresses() {
		if m.Host != "" && x.Owner.Host == m.Host {
			m.Taken = fmt.Sprintf("%s uses %s", x.MAC, x.Addr)
		}
	}
	return api.Diagnosis(diagnosis.Of(boots, m, time.Now())), nil
}

// machine returns what is known of h beside its boots and the servers.
func (c *clusters) machine(h *lab.Host, seen seen) diagnosis.Machine {
	status := c.installs.Status(h)
	m := diagnosis.Machine{
		Host: h.Name, Known: true, Reserved: h.IP.IsValid(), NoMAC: len(h.AllMACs()) == 0, Install: installState(status), Restored: status.HeldByRestore(), Advice: status.Advice(h.Name),
	}
	if status.Other != "" {
		m.OfAnother = status.Why
	}
	last, _ := c.timeline.Last(h.Name)
	m.Returns = last.Returns
	if p := h.Profile; p != nil && p.NetBoots() {
		m.Profile, m.OwnScript, m.Document = p.Name, p.IPXE != "", p.Config != ""
	}
	if h.VM != nil {
		vm := seen.vms[h.Name]
		m.VM, m.VMProblem = powerOf(vm), vm.Err
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
	for _, b := range slices.Sorted(maps.Keys(seen.checks[h.Name])) {
		if check := seen.checks[h.Name][b]; counts(h, b, check) && check.Health == machine.CheckFailing && !check.drained {
			m.Checks = append(m.Checks, diagnosis.Check{Balancer: b, Reason: check.Reason, Since: check.Since})
		}
	}
	return m
}

// fromImage reports whether h is made from an image: it boots from its disk alone, and nothing installs it.
func fromImage(h *lab.Host) bool {
	return h.VM != nil && h.Profile != nil && h.Profile.Image != "" && !h.Profile.NetBoots()
}

// withCauses adds to the machines of a cluster that stopped, or wait for an admin, why their boots stopped.
func (c *clusters) withCauses(ctx context.Context, cl api.Cluster, seen seen) api.Cluster {
	l := c.current.Load().Lab
	for i := range cl.Machines {
		m := &cl.Machines[i]
		h := l.Host(m.Host)
		if h == nil || !m.Stuck && !machine.Stage(m.Stage).Bad() {
			continue
		}
		if d, err := c.diagnose(ctx, c.machine(h, seen)); err == nil && d.State == diagnosis.Stopped {
			m.Cause = d.Cause
		}
	}
	return cl
}
