package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/daemon/cluster"
	"github.com/bootlab/bootlab/internal/daemon/completion"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/machine"
	"github.com/bootlab/bootlab/internal/power"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/records"
	"github.com/bootlab/bootlab/lbproxy"
	"github.com/bootlab/bootlab/virt"
)

const (
	clusterTick  = time.Second
	clusterRetry = 30 * time.Second // until what failed is tried again
	clusterKey   = "cluster/"       // in the store, before the cluster's name
)

// clusters brings clusters up, and takes out the bootstrap machines that are no longer needed. What is to be done is decided by package
// cluster; here it is observed and done.
type clusters struct {
	*Daemon
	updating    sync.Mutex // held while a record is changed and stored
	completions *completion.Asker

	mu      sync.Mutex
	records map[string]cluster.Record
	stages  ages                 // of hosts
	phases  ages                 // of clusters
	actions map[string]*action   // the last of each host, by its name
	on      map[string]time.Time // bare-metal machines that their controllers found on, and when
}

// An action is under way, or failed.
type action struct {
	verb  cluster.Verb
	busy  bool
	err   string
	after time.Time // of a failure: it is tried again then
}

// openClusters reads what is known of clusters from the store.
func (d *Daemon) openClusters(ctx context.Context) (*clusters, error) {
	c := &clusters{Daemon: d, completions: completion.New(d.serverLog), records: map[string]cluster.Record{}, stages: newAges(d.started),
		phases: newAges(d.started), actions: map[string]*action{}, on: map[string]time.Time{}}
	err := records.Read(ctx, d.store, clusterKey, func(name string, r cluster.Record) error {
		c.records[name], c.phases.stored[name] = r, r.Phase
		maps.Copy(c.stages.stored, r.Stages)
		return nil
	})
	return c, err
}

// run watches all clusters until ctx ends, and returns nil once all that it does has ended.
func (c *clusters) run(ctx context.Context) error {
	var doing sync.WaitGroup
	defer doing.Wait()
	tick := time.NewTicker(clusterTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			c.step(ctx, &doing)
		}
	}
}

// step assesses the clusters, and begins what is to be done.
func (c *clusters) step(ctx context.Context, doing *sync.WaitGroup) {
	now := c.current.Load()
	var observed observed
	for _, cl := range now.Lab.Clusters {
		up := !c.record(cl.Name).Up.IsZero()
		if cl.Kind == lab.Plain {
			continue
		}
		if observed.vms == nil {
			observed = c.observe(ctx, now)
		}
		s := c.assess(cl, observed)
		c.askBootstrap(ctx, doing, cl, s)
		c.noteAges(cl.Name, s, time.Now())
		c.askPower(ctx, doing, cl)
		for _, a := range s.Actions { // none, unless it is brought up or it has a bootstrap machine
			c.begin(ctx, doing, cl, a)
		}
		if up && s.Phase == cluster.PhaseReady && len(s.Actions) == 0 {
			c.cameUp(cl)
		}
	}
}

// askPower asks the controllers of machines that were on whether they still are.
func (c *clusters) askPower(ctx context.Context, doing *sync.WaitGroup, cl *lab.Cluster) {
	for _, h := range cl.Hosts {
		if at := c.foundOn(h.Name); !at.IsZero() && time.Since(at) >= clusterRetry {
			c.begin(ctx, doing, cl, cluster.Action{Verb: cluster.SwitchOnIfOff, Host: h})
		}
	}
}

// foundOn returns when a bare-metal machine was found on, while its cluster is brought up; zero: it was not.
func (c *clusters) foundOn(host string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.on[host]
}

// askBootstrap asks the API server whether the bootstrap is complete, while the machine is needed and one serves the API.
func (c *clusters) askBootstrap(ctx context.Context, doing *sync.WaitGroup, cl *lab.Cluster, s cluster.State) {
	if cl.Kubeconfig == "" || !c.record(cl.Name).Removed.IsZero() {
		return
	}
	var serving []netip.Addr // of the control plane first
	needed := false
	for _, m := range s.Machines {
		boot := m.Host.Role == lab.RoleBootstrap
		needed = needed || boot
		switch {
		case m.Stage != machine.Serving || !m.Host.IP.IsValid():
		case boot:
			serving = append(serving, m.Host.IP)
		case m.Host.Role == lab.RoleControlPlane:
			serving = slices.Insert(serving, 0, m.Host.IP)
		}
	}
	if needed && len(serving) > 0 {
		c.completions.Ask(ctx, doing, cl, serving)
	}
}

// cameUp ends the bringing up: from now on, who switches a machine off means it.
func (c *clusters) cameUp(cl *lab.Cluster) {
	took := time.Since(c.record(cl.Name).Up)
	if err := c.note(cl.Name, func(r *cluster.Record) { r.Up, r.Switched = time.Time{}, nil }); err != nil {
		c.serverLog.Warn("state of the cluster not stored", "cluster", cl.Name, "err", err)
		return
	}
	c.mu.Lock()
	for _, h := range cl.Hosts {
		delete(c.on, h.Name)
	}
	c.mu.Unlock()
	c.bus.Record(event.Event{Kind: event.ClusterReady, Detail: cl.Name, Dur: took})
}

func (c *clusters) record(name string) cluster.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.records[name]
}

// update changes the record of a cluster and stores it. If the disk does not take it in time, it stays as it was. Changes come one after
// the other: machines are switched on at the same time.
func (c *clusters) update(name string, change func(*cluster.Record)) error {
	c.updating.Lock()
	defer c.updating.Unlock()
	before := c.record(name)
	after := before
	change(&after)
	err := c.saver.Put(clusterKey+name, after)
	if errors.Is(err, records.ErrSaving) {
		_ = c.saver.Put(clusterKey+name, before) // in place of what would be stored later
		return store.ErrHung
	}
	if err == nil {
		c.keep(name, after)
	}
	return err
}

// note is update for changes without which nothing is lost: a disk that hangs stores them later.
func (c *clusters) note(name string, change func(*cluster.Record)) error {
	c.updating.Lock()
	defer c.updating.Unlock()
	r := c.record(name)
	change(&r)
	if err := c.saver.Put(clusterKey+name, r); err != nil && !errors.Is(err, records.ErrSaving) {
		return err
	}
	c.keep(name, r)
	return nil
}

func (c *clusters) keep(name string, r cluster.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records[name] = r
}

// assess returns the state of a cluster, and notes since when its machines are in their stages.
func (c *clusters) assess(cl *lab.Cluster, observed observed) cluster.State {
	now := time.Now()
	machines := c.observedIn(cl, observed)
	s := cluster.Assess(cl, machines, c.record(cl.Name), now)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range s.Machines {
		c.stages.note(m.Host.Name, string(m.Stage), now)
	}
	c.phases.note(cl.Name, string(s.Phase), now)
	return s
}

// observedIn returns what is known of the machines of a cluster, by name.
func (c *clusters) observedIn(cl *lab.Cluster, observed observed) map[string]cluster.Observed {
	all := make(map[string]cluster.Observed, len(cl.Hosts))
	for _, h := range cl.Hosts {
		o := cluster.Observed{Observation: c.observation(h, observed), Control: h.VM != nil || h.BMC != nil, Ingress: observed.worst(h.Name, byBalancerOf(cl, lab.ServiceIngress))}
		if h.Role == lab.RoleBootstrap {
			o.Reported, o.ReportError = c.completions.Of(cl, time.Now())
		}
		if o.Power == "" && !c.foundOn(h.Name).IsZero() {
			o.Power = machine.PowerOn
		}
		c.mu.Lock()
		if a := c.actions[h.Name]; a != nil {
			o.Acting, o.Failed = a.busy, a.err
		}
		c.mu.Unlock()
		all[h.Name] = o
	}
	return all
}

// begin does what is to be done, unless the machine has something under way, or it failed a moment ago.
func (c *clusters) begin(ctx context.Context, doing *sync.WaitGroup, cl *lab.Cluster, a cluster.Action) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.actions[a.Host.Name]
	if last != nil && (last.busy || last.verb == a.Verb && time.Now().Before(last.after)) {
		return
	}
	now := &action{verb: a.Verb, busy: true}
	if last != nil && last.verb == a.Verb {
		now.err = last.err // it stands until a try succeeds: a dead controller takes a minute to say nothing
	}
	c.actions[a.Host.Name] = now
	doing.Go(func() {
		err := c.do(ctx, cl, a)
		c.mu.Lock()
		defer c.mu.Unlock()
		now.busy, now.err = false, ""
		if err != nil {
			now.err, now.after = err.Error(), time.Now().Add(clusterRetry)
			c.serverLog.Warn("cluster action failed", "action", a.Verb, "cluster", cl.Name, "host", a.Host.Name, "err", err)
		}
	})
}

func (c *clusters) do(ctx context.Context, cl *lab.Cluster, a cluster.Action) error {
	switch a.Verb {
	case cluster.SwitchOn:
		return c.switchOn(ctx, cl, a.Host)
	case cluster.SwitchOnIfOff:
		return c.switchOnIfOff(ctx, cl, a.Host)
	case cluster.SwitchOff:
		return c.switchOff(ctx, cl, a.Host)
	case cluster.RemoveBackends:
		return c.removeBootstrap(ctx, cl, a.Host, c.servers.lb.Drain, time.Now())
	case cluster.AddBackends:
		return c.removeBootstrap(ctx, cl, a.Host, c.servers.lb.Ready, time.Time{})
	}
	return fmt.Errorf("%s is not known", a.Verb)
}

// switchOn starts a machine: a virtual one is made if it is not there, a bare-metal one boots from the network. That it was switched on is stored
// before: a daemon that is killed must not power-cycle an installer. A bare-metal one is not power-cycled again either where the first try failed
// after all that its controller had to do, and it is on.
func (c *clusters) switchOn(ctx context.Context, cl *lab.Cluster, h *lab.Host) error {
	if _, again := c.record(cl.Name).Switched[h.Name]; again && h.VM == nil {
		if state, err := power.Do(ctx, h.BMC, power.Status); err != nil || state == power.StateOn {
			return err
		}
	}
	if err := c.noteSwitched(cl.Name, h.Name, time.Now()); err != nil {
		return err
	}
	if h.VM != nil {
		return c.servers.virt.CreateAndStart(ctx, h.Name)
	}
	_, err := c.servers.vms.SwitchMetal(ctx, h, power.NetBoot)
	return err
}

// switchOnIfOff switches a bare-metal machine on, unless its controller says that it is on.
func (c *clusters) switchOnIfOff(ctx context.Context, cl *lab.Cluster, h *lab.Host) error {
	state, err := power.Do(ctx, h.BMC, power.Status)
	if err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.on, h.Name)
	if state == power.StateOn {
		c.on[h.Name] = time.Now()
	}
	c.mu.Unlock()
	if state == power.StateOn {
		return nil
	}
	return c.switchOn(ctx, cl, h)
}

// switchOff switches a machine off, and forgets that it was switched on.
func (c *clusters) switchOff(ctx context.Context, cl *lab.Cluster, h *lab.Host) error {
	if _, err := c.servers.vms.Switch(ctx, h, power.Off, virt.StopThenForce); err != nil {
		return err
	}
	return c.noteSwitched(cl.Name, h.Name, time.Time{})
}

// noteSwitched notes when a machine was switched on; zero: it is off again.
func (c *clusters) noteSwitched(name, host string, at time.Time) error {
	return c.update(name, func(r *cluster.Record) {
		r.Switched = maps.Clone(r.Switched) // others may read the old one
		if at.IsZero() {
			delete(r.Switched, host)
			return
		}
		if r.Switched == nil {
			r.Switched = map[string]time.Time{}
		}
		r.Switched[host] = at
	})
}

// removeBootstrap removes the bootstrap machine from the balancers of its cluster, or puts it back: from those in use, which may be of a later
// lab than cl and h.
func (c *clusters) removeBootstrap(ctx context.Context, cl *lab.Cluster, h *lab.Host, do func(ctx context.Context, balancer, backend string) ([]lbproxy.BackendStatus, error), at time.Time) error {
	for _, b := range c.current.Load().Lab.Balancers {
		if b.Cluster == nil || b.Cluster.Name != cl.Name || !slices.ContainsFunc(b.Backends, func(m lab.Backend) bool { return m.Host != nil && m.Host.Name == h.Name }) {
			continue
		}
		if _, err := do(ctx, b.Name, h.Name); err != nil {
			return err
		}
	}
	if err := c.update(cl.Name, func(r *cluster.Record) { r.Removed = at }); err != nil || at.IsZero() {
		return err
	}
	c.bus.Record(event.Event{Kind: event.BootstrapRemoved, Host: h.Name, Detail: cl.Name})
	return nil
}
