package vmadmin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/consolelog"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/virt"
)

// Deps are what Machines need. All are required.
type Deps struct {
	Lab      func() *lab.Lab // the one in force
	Virt     *virt.Server
	Consoles *consolelog.Log
	Events   event.Recorder
}

// Machines implement the part of httpd.Backend that is about virtual machines and the power of all machines.
type Machines struct{ deps Deps }

// New returns the machines of a lab.
func New(deps Deps) *Machines { return &Machines{deps} }

// VMs implements httpd.Backend.
func (m *Machines) VMs(ctx context.Context) ([]api.VM, error) {
	vms := []api.VM{}
	for _, s := range m.deps.Virt.List(ctx) {
		vms = append(vms, vm(s))
	}
	return vms, nil
}

// VMPlan implements httpd.Backend.
func (m *Machines) VMPlan(ctx context.Context, hosts []string) ([]api.VMPlan, error) {
	plan, err := m.deps.Virt.Plan(ctx, hosts)
	if err != nil {
		return nil, m.vmError(err, http.StatusNotFound, hosts...)
	}
	out := make([]api.VMPlan, 0, len(plan))
	for _, p := range plan {
		out = append(out, vmPlan(p))
	}
	return out, nil
}

// vmError is the answer to a request about machines that failed: one of the names may be no host at all.
func (m *Machines) vmError(err error, status int, names ...string) error {
	l := m.deps.Lab()
	i := slices.IndexFunc(names, func(name string) bool { return l.Host(name) == nil })
	if i < 0 || !errors.Is(err, virt.ErrNoVM) {
		return &api.Error{Status: status, Message: err.Error()}
	}
	var known []string
	for _, h := range l.Hosts {
		known = append(known, h.Name)
	}
	for _, cl := range l.Clusters {
		if cl.Name == names[i] {
			return &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("no machine of cluster %s is virtual", cl.Name)}
		}
		known = append(known, cl.Name)
	}
	hint := "bootlab hosts and bootlab clusters list them"
	if h := l.Find(names[i]); h != nil {
		hint = "that is " + h.Name
	} else if near := lab.Nearest(names[i], known); near != "" {
		hint = "did you mean " + near + "?"
	}
	return &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("no host or cluster %q in lab %s", names[i], l.Name), Hint: hint}
}

func vmPlan(p virt.Comparison) api.VMPlan {
	return api.VMPlan{Host: p.Host, Network: p.Network, Hypervisor: p.Hypervisor, State: string(p.State), Condition: api.VMCondition(p.Condition), Details: p.Details}
}

func vm(s virt.Status) api.VM {
	return api.VM{Host: s.Host, Hypervisor: s.Hypervisor, State: string(s.State), Orphan: s.Orphan, Err: s.Err, At: s.At, Down: s.Down}
}

// VM implements httpd.Backend. A machine that is created is started too, since it is created to boot.
func (m *Machines) VM(ctx context.Context, host string, action api.VMAction, opts api.VMOptions) (api.VM, error) {
	v := m.deps.Virt
	var err error
	if action != api.VMStop { // a client that goes away leaves no machine half way
		ctx = context.WithoutCancel(ctx)
	}
	switch action {
	case api.VMCreate:
		err = v.CreateAndStart(ctx, host)
	case api.VMStart:
		err = v.Start(ctx, host)
	case api.VMStop:
		mode := virt.StopThenForce // firmware and most installers ignore a shutdown request
		if opts.Force {
			mode = virt.StopForce
		}
		err = v.Stop(ctx, host, mode, opts.Timeout)
	case api.VMDelete:
		disks := virt.KeepDisks
		if opts.Disks {
			disks = virt.DeleteDisks
		}
		err = v.Delete(ctx, host, disks)
	case api.VMApply:
		err = v.Apply(ctx, host)
	case api.VMForget:
		err = v.Forget(ctx, host)
	}
	if err != nil {
		return api.VM{}, m.vmError(err, http.StatusConflict, host)
	}
	if s, ok := v.ByHost(ctx)[host]; ok {
		return vm(s), nil
	}
	return api.VM{Host: host, State: string(virt.StateAbsent)}, nil
}
