package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/content/clusterconfig"
	"github.com/bootlab/bootlab/internal/daemon/cluster"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/daemon/vmadmin"
	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/power"
	"github.com/bootlab/bootlab/virt"
)

// Clusters implements httpd.Backend.
func (c *clusters) Clusters(ctx context.Context) []api.Cluster {
	observed := c.observe(ctx, c.current.Load())
	out := []api.Cluster{}
	for _, cl := range observed.Lab.Clusters {
		if cl.Kind != lab.Plain {
			out = append(out, c.explained(ctx, cl, observed))
		}
	}
	return out
}

func (c *clusters) describe(cl *lab.Cluster, s cluster.State) api.Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := api.Cluster{
		Name: cl.Name, Kind: string(cl.Kind), Domain: cl.Domain, Address: cl.Address, Phase: string(s.Phase), Since: c.phases.current[cl.Name].At,
		Waits: s.Waits, NeedsUp: s.NeedsUp, Serving: s.Serving, ControlPlane: s.ControlPlane, Up: c.records[cl.Name].Up, BootstrapRemoved: c.records[cl.Name].Removed, Machines: []api.ClusterMachine{},
	}
	for _, m := range s.Machines {
		out.Machines = append(out.Machines, api.ClusterMachine{
			Host: m.Host.Name, Role: m.Host.Role, Stage: string(m.Stage), Since: c.stages.current[m.Host.Name].At, Waits: m.Waits, NeedsUp: m.NeedsUp, Stuck: m.Stuck,
			Disk: c.overwrites(m.Host), MachineWhy: m.Why,
		})
	}
	return out
}

// overwrites returns the disk that the next network boot of h overwrites; empty: none.
func (c *clusters) overwrites(h *lab.Host) string {
	if !c.installs.WouldInstall(h) {
		return ""
	}
	return overwrites(h)
}

// Up implements httpd.Backend.
func (c *clusters) Up(ctx context.Context, name string) (api.Cluster, error) {
	s := c.current.Load()
	if err := c.mayComeUp(s, s.Lab.Cluster(name)); err != nil {
		return api.Cluster{}, err
	}
	return c.ask(ctx, s, name, time.Now())
}

// mayComeUp returns why a cluster cannot come up: it has no hosts, no control plane, or a bootstrap document that is too old; or, if all of the
// control plane of an OpenShift cluster is to be installed, no bootstrap machine, or one that was removed and would start from its own disk. cl may
// be nil.
func (c *clusters) mayComeUp(s *snapshot.Snapshot, cl *lab.Cluster) error {
	switch {
	case cl == nil || cl.Kind == lab.Plain:
		return nil
	case len(cl.Hosts) == 0:
		return &api.Error{Status: http.StatusConflict, Message: cl.Name + " has no hosts", Hint: "add hosts with cluster: " + cl.Name + " and a role to the lab file"}
	case !slices.ContainsFunc(cl.Hosts, func(h *lab.Host) bool { return h.Role == lab.RoleControlPlane }):
		return &api.Error{Status: http.StatusConflict, Message: cl.Name + " has no control plane: it would never serve", Hint: "give some of its hosts role: control-plane in the lab file"}
	case cl.Kind != lab.OpenShift || cl.Names:
		return nil
	}
	if err := c.bootstrapExpired(s, cl, time.Now()); err != nil {
		return err
	}
	r, conflict := c.record(cl.Name), &api.Error{Status: http.StatusConflict, Message: cl.Name + " has no bootstrap machine, and its control plane is to be installed: it would wait for ever"}
	if !r.Up.IsZero() || !c.installsAll(cl, lab.RoleControlPlane) {
		return nil
	}
	if cl.LacksBootstrap() {
		conflict.Hint = "add a host with cluster: " + cl.Name + " and role: bootstrap to the lab file; a single node that boots in place needs none, once " +
			"its document is there and bootlab reload has read it"
		return conflict
	}
	if !r.Removed.IsZero() && !c.installsAll(cl, lab.RoleBootstrap) {
		conflict.Message = "the bootstrap machine of " + cl.Name + " was removed from the balancers and starts from its own disk, and the control plane is to be installed: it would wait for ever"
		conflict.Hint = "bootlab install HOST --done says that one is installed; bootlab up " + cl.Name + " --install installs all its machines and overwrites their disks"
		return conflict
	}
	return nil
}

// bootstrapExpired returns an error if the bootstrap machine of a cluster is to be installed with a document whose certificates have ended.
func (c *clusters) bootstrapExpired(s *snapshot.Snapshot, cl *lab.Cluster, now time.Time) error {
	for _, h := range cl.Hosts {
		if h.Role != lab.RoleBootstrap || !c.installs.WouldInstall(h) {
			continue
		}
		names, err := s.Boot.DocumentFiles(h)
		if err != nil || len(names) == 0 || names[0] == "" {
			continue // said elsewhere
		}
		path := filepath.Join(s.Lab.Appliance.Files, filepath.FromSlash(names[0]))
		text, err := regular.Read(path, regular.Small)
		if until, ok := clusterconfig.BootstrapEnds(text); err == nil && ok && until.Before(now) {
			return &api.Error{
				Status: http.StatusConflict, Message: fmt.Sprintf("the certificates in %s ended %s ago: %s cannot come up with it", names[0], lab.DurationText(now.Sub(until).Round(time.Minute)), cl.Name),
				Hint: "run openshift-install create ignition-configs again, in a new folder, then bootlab openshift prepare",
			}
		}
	}
	return nil
}

// installsAll reports whether the next network boot of each machine of a cluster with that role installs it. Without such machines it is false.
func (c *clusters) installsAll(cl *lab.Cluster, role string) bool {
	n := 0
	for _, h := range cl.Hosts {
		if h.Role != role {
			continue
		}
		if n++; !c.installs.WouldInstall(h) {
			return false
		}
	}
	return n > 0
}

// Down implements httpd.Backend: the cluster is no longer brought up. The machines are shut down, those of the control plane last.
func (c *clusters) Down(ctx context.Context, name string) (api.Cluster, error) {
	s := c.current.Load()
	answer, err := c.ask(ctx, s, name, time.Time{})
	if err != nil {
		return answer, err
	}
	cl := s.Lab.Cluster(name)
	workers, controlPlane, errs := running(cl, c.observe(ctx, s).vms)
	for _, hosts := range [][]*lab.Host{workers, controlPlane} {
		var stopping sync.WaitGroup
		var mu sync.Mutex
		for _, h := range hosts {
			stopping.Go(func() {
				if _, err := c.servers.vms.Switch(ctx, h, power.Off, virt.StopThenForce); err != nil {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, fmt.Errorf("%s: %w", h.Name, err))
				}
			})
		}
		stopping.Wait()
	}
	if err := errors.Join(errs...); err != nil {
		return answer, &api.Error{Status: http.StatusConflict, Message: "not all machines of " + name + " were shut down", Reason: err.Error()}
	}
	answer = c.describe(cl, c.assess(cl, c.observe(ctx, s)))
	if metal := metalOf(cl); len(metal) > 0 {
		answer.Note = "no virtual machines, and left as they are: " + strings.Join(metal, ", ") + " (bootlab power off switches off those that have a bmc)"
	}
	return answer, nil
}

// running returns the virtual machines of a cluster that are not off, those of the control plane apart, and an error for each of which that is
// not known.
func running(cl *lab.Cluster, vms map[string]virt.Status) (workers, controlPlane []*lab.Host, unknown []error) {
	for _, h := range cl.Hosts {
		vm := vms[h.Name]
		switch p := vmadmin.PowerOf(vm); {
		case h.VM == nil, p.Off():
		case !p.Known():
			unknown = append(unknown, fmt.Errorf("%s: %s", h.Name, cmp.Or(vm.Err, "its hypervisor has not answered yet")))
		case h.Role == lab.RoleControlPlane:
			controlPlane = append(controlPlane, h)
		default:
			workers = append(workers, h)
		}
	}
	return workers, controlPlane, unknown
}

// metalOf returns the names of the machines of a cluster that are no virtual machines.
func metalOf(cl *lab.Cluster) (names []string) {
	for _, h := range cl.Hosts {
		if h.VM == nil && h.Role != lab.RoleAppliance {
			names = append(names, h.Name)
		}
	}
	return names
}

// ask notes whether a cluster is to be brought up.
func (c *clusters) ask(ctx context.Context, s *snapshot.Snapshot, name string, up time.Time) (api.Cluster, error) {
	cl := s.Lab.Cluster(name)
	if cl == nil || cl.Kind == lab.Plain {
		return api.Cluster{}, &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("no cluster %q in the lab that can be brought up", name), Hint: "bootlab clusters lists them"}
	}
	err := c.update(name, func(r *cluster.Record) {
		if up.IsZero() || r.Up.IsZero() {
			r.Up, r.Switched = up, nil
		}
	})
	if err != nil {
		return api.Cluster{}, &api.Error{Status: http.StatusServiceUnavailable, Message: "not stored: " + err.Error(), Hint: "bootlab status says what is wrong with the disk"}
	}
	c.mu.Lock()
	c.phases.forget(name)
	for _, h := range cl.Hosts {
		c.stages.forget(h.Name)
		delete(c.on, h.Name)
		if a := c.actions[h.Name]; a != nil && !a.busy {
			delete(c.actions, h.Name) // it is tried again at once
		}
	}
	c.mu.Unlock()
	return c.explained(ctx, cl, c.observe(ctx, s)), nil
}
