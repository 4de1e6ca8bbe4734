package daemon

import (
	"context"
	"fmt"
	"net/http"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/power"
	"github.com/bootlab/bootlab/virt"
)

// Power implements httpd.Machines.
func (c *adminBackend) Power(ctx context.Context, name string, action api.PowerAction) (api.Power, error) {
	l := c.current.Load().Lab
	h := l.Host(name)
	var p api.Power
	var err error
	switch {
	case h == nil:
		return p, errNoHost(l, name)
	case h.VM != nil:
		p, err = c.powerOfVM(ctx, h, action)
	case h.BMC != nil:
		p = api.Power{Host: name, By: "redfish " + h.BMC.Redfish}
		if h.BMC.IPMI != "" {
			p.By = "ipmi " + h.BMC.IPMI
		}
		var state power.State
		state, err = power.Do(ctx, h.BMC, power.Action(action))
		p.State = string(state)
	default:
		return p, &api.Error{Status: http.StatusConflict, Message: name + " is no virtual machine and has no bmc, so nothing can switch its power",
			Hint: "name its controller in the lab file (bmc)"}
	}
	if err != nil {
		return p, &api.Error{Status: http.StatusBadGateway, Message: fmt.Sprintf("power %s %s: %v", action, name, err)}
	}
	return p, nil
}

// powerOfVM switches the power of a virtual machine, or returns it.
func (c *adminBackend) powerOfVM(ctx context.Context, h *lab.Host, action api.PowerAction) (api.Power, error) {
	v := c.servers.virt
	var err error
	switch action {
	case api.PowerOn:
		err = v.Start(ctx, h.Name)
	case api.PowerOff:
		err = v.Stop(ctx, h.Name, virt.StopForce, 0)
	case api.PowerCycle:
		err = v.Restart(ctx, h.Name)
	}
	if err != nil {
		return api.Power{}, err
	}
	for _, s := range v.List(ctx) {
		if s.Host != h.Name || s.State == virt.StateAbsent {
			continue
		}
		if s.Err != "" {
			return api.Power{}, fmt.Errorf("%s", s.Err)
		}
		p := api.Power{Host: h.Name, State: string(s.State), By: "libvirt " + s.Hypervisor}
		switch s.State {
		case virt.StateRunning:
			p.State = string(power.StateOn)
		case virt.StateOff, virt.StateCrashed:
			p.State = string(power.StateOff)
		}
		return p, nil
	}
	return api.Power{}, virt.ErrAbsent
}
