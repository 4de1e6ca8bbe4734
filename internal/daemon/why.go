package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/diagnosis"
	"github.com/bootlab/bootlab/internal/observe/machine"
	"github.com/bootlab/bootlab/internal/power"
)

// Why implements httpd.Backend.
func (b *adminBackend) Why(ctx context.Context, name string) (api.Diagnosis, error) {
	observed := b.clusters.observe(ctx, b.current.Load())
	l := observed.Lab
	key, err := b.key(l, name)
	if err != nil {
		return api.Diagnosis{}, err
	}
	h := l.Host(key)
	mac, err := lab.ParseMAC(key)
	if h == nil && err == nil { // of a pool, or unknown
		h = b.nicAddrs(l).ByLease(mac)
	}
	if h == nil {
		return b.diagnose(ctx, b.clusters.unknown(key, mac, observed), observed)
	}
	listed, _ := b.clusters.machineState(h, observed)
	bmc, problem := powerOfMetal(ctx, h)
	if bmc == string(power.StateOff) {
		observed.off = h
	}
	s, waits := b.clusters.machineState(h, observed)
	m := b.clusters.machine(h, s, observed)
	m.Host, m.BMC, m.BMCProblem, m.Cluster = key, bmc, problem, waits
	d, err := b.diagnose(ctx, m, observed)
	if err == nil && observed.off == h {
		d.MachineStage, d.MachineWhy = string(listed.Stage), listed.Why
		d.Facts = append(d.Facts, listedText(listed, m.Boot.Active))
	}
	return d, err
}

// listedText says what all but why show of a machine whose BMC says that it is off: they ask no BMC. active is when its last request was
// received; zero: none was.
func listedText(s machine.State, active time.Time) string {
	text := fmt.Sprintf("bootlab hosts, which asks no BMC, shows it as %s: %s", s.Stage, s.Why)
	if !active.IsZero() {
		text += "; its last request was at " + active.Format(time.DateTime)
	}
	return text
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
func (d *Daemon) diagnose(ctx context.Context, m diagnosis.Machine, observed observed) (api.Diagnosis, error) {
	boots, err := d.timeline.Boots(ctx, m.Host)
	if err != nil {
		return api.Diagnosis{}, err
	}
	for _, s := range d.serverStates(observed.Snapshot) {
		if state := (api.Status{}).StateOf(s); !s.Serving {
			m.Servers = append(m.Servers, diagnosis.Server{Name: s.Name, State: string(state), Err: s.Err, Down: state == api.StateDown})
		}
	}
	if store := d.storeWatch.Status(); len(store.Causes) > 0 {
		m.Store = strings.Join(store.Problems, "; ")
	}
	return api.Diagnosis(diagnosis.Of(boots, m)), nil
}

// unknown returns what is known of a machine that has neither a line in the lab file nor a profile of its pool.
func (c *clusters) unknown(key string, mac lab.MAC, observed observed) diagnosis.Machine {
	m := diagnosis.Machine{Observation: machine.Observation{Host: key, Install: install.Status{State: install.Live}}}
	m.Boot, _ = c.timeline.Last(key)
	m.Observation.Conflict, m.ConflictText = observed.conflict(mac)
	m.State = machine.Of(m.Observation, time.Now())
	return m
}

// machine returns what is known of h, whose state is s, beside its boots and the servers.
func (c *clusters) machine(h *lab.Host, s machine.State, observed observed) diagnosis.Machine {
	m := diagnosis.Machine{
		Observation: c.observation(h, observed), State: s, Known: true, Reserved: h.IP.IsValid(), NoMAC: len(h.AllMACs()) == 0, VM: h.VM != nil, Image: fromImage(h),
	}
	_, m.ConflictText = observed.conflict(h.AllMACs()...)
	if p := h.Profile; p != nil {
		if p.NetBoots() {
			m.Profile = p.Name
		}
		m.Discover = p.OS == lab.OSDiscover && observed.Lab.Host(h.Name) == nil
		for _, r := range observed.Boot.Refused() {
			if slices.ContainsFunc(r.Hosts, func(o *lab.Host) bool { return o.Name == h.Name }) {
				m.Problems = append(m.Problems, "what it boots has an error, for which it is refused: "+r.Error())
			}
		}
	}
	if n := h.Network; n != nil {
		m.Network = n.Name
		for _, p := range c.pools(observed.DHCP) {
			if p.Network == n.Name && p.Full() {
				m.FullPools = append(m.FullPools, p.Network+"/"+p.Name)
			}
		}
		if i := interfaceCondition(observed.Lab, n); n.Served() && !i.OK {
			m.Problems = append(m.Problems, "interface "+i.Name+": "+i.Problem)
		}
	}
	m.Checks = failingChecks(h, s, observed)
	return m
}

// failingChecks are those that count for h and fail: in a cluster the one by which its state was decided.
func failingChecks(h *lab.Host, s machine.State, observed observed) (all []diagnosis.Check) {
	failing := func(c machine.Check) {
		d := diagnosis.Check{Balancer: c.Balancer, Reason: c.Reason}
		if c.Health == machine.CheckFailing && !slices.Contains(all, d) { // a host may be several backends of a balancer
			all = append(all, d)
		}
	}
	if decidedByCluster(h) {
		failing(s.Check)
		return all
	}
	counts := counts(h)
	for _, check := range observed.checks[h.Name] {
		if counts(check) {
			failing(check.Check)
		}
	}
	return all
}

// fromImage reports whether h is made from an image: it boots from its disk alone, and nothing installs it.
func fromImage(h *lab.Host) bool {
	return h.VM != nil && h.Profile != nil && h.Profile.MakesDisk()
}

// explained is a cluster with why the boots stopped of its machines that stopped, or wait for an admin.
func (c *clusters) explained(ctx context.Context, cl *lab.Cluster, observed observed) api.Cluster {
	s := c.assess(cl, observed)
	out := c.describe(cl, s)
	for i, m := range s.Machines {
		if !m.Stuck && !m.Stage.Bad() {
			continue
		}
		if d, err := c.diagnose(ctx, c.machine(m.Host, m.State, observed), observed); err == nil && d.State == diagnosis.Stopped {
			out.Machines[i].Cause = d.Cause
		}
	}
	return out
}
