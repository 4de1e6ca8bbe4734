package vmadmin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/machine"
	"github.com/bootlab/bootlab/internal/power"
	"github.com/bootlab/bootlab/virt"
)

// Switch switches the power of a machine: through libvirt where it is virtual, else through its controller. mode is how Off stops a
// virtual machine. The state is what a controller says; empty for a virtual machine.
func (m *Machines) Switch(ctx context.Context, h *lab.Host, a power.Action, mode virt.StopMode) (power.State, error) {
	if h.VM == nil {
		return m.SwitchMetal(ctx, h, a)
	}
	v := m.deps.Virt
	switch a {
	case power.On:
		return "", v.Start(ctx, h.Name)
	case power.Off:
		return "", v.Stop(ctx, h.Name, mode, 0)
	case power.NetBoot: // over what was set for its boots
		if err := v.SetBoot(ctx, h.Name, virt.BootDefault, virt.NextStart); err != nil {
			return "", err
		}
		return "", v.Restart(ctx, h.Name)
	case power.Reset:
		return "", v.Restart(ctx, h.Name)
	}
	return "", nil
}

// SwitchMetal switches the power of a machine with a controller. A boot from the network that it causes is in the machine's timeline.
func (m *Machines) SwitchMetal(ctx context.Context, h *lab.Host, a power.Action) (power.State, error) {
	start := time.Now()
	state, err := power.Do(ctx, h.BMC, a)
	if a != power.NetBoot {
		return state, err
	}
	_, address := SwitchOf(h)
	e := event.Event{Kind: event.PowerCycled, Host: h.Name, Detail: address, Dur: time.Since(start)}
	if err != nil {
		e.Kind, e.Err = event.PowerCycleFailed, err.Error()
	}
	if len(h.MACs) > 0 {
		e.MAC = h.MACs[0]
	}
	m.deps.Events.Record(e)
	return state, err
}

// Power implements httpd.Backend.
func (m *Machines) Power(ctx context.Context, name string, action api.PowerAction) (api.Power, error) {
	l := m.deps.Lab()
	h := l.Host(name)
	if h == nil {
		return api.Power{}, api.NoHost(l, name)
	}
	by, address := SwitchOf(h)
	if by == "" {
		return api.Power{}, NoSwitch(name, "switch its power", "")
	}
	if h.VM != nil { // a client that goes away leaves no machine half way
		ctx = context.WithoutCancel(ctx)
	}
	p := api.Power{Host: name}
	state, err := m.Switch(ctx, h, power.Action(action), virt.StopForce)
	switch {
	case err != nil:
	case h.VM != nil:
		p, err = m.powerOfVM(ctx, h)
	default:
		p.State, p.By = string(state), by+" "+address
	}
	if err != nil {
		return p, &api.Error{Status: http.StatusBadGateway, Message: fmt.Sprintf("power %s %s: %v", action, name, err)}
	}
	return p, nil
}

// SetBoot implements httpd.Backend.
func (m *Machines) SetBoot(ctx context.Context, name string, device api.BootDevice, always bool) (api.NextBoot, error) {
	l := m.deps.Lab()
	h := l.Host(name)
	n := api.NextBoot{Host: name, Device: device, Always: always && device != api.BootDefault}
	if h == nil {
		return n, api.NoHost(l, name)
	}
	by, address := SwitchOf(h)
	var err error
	switch {
	case by == "":
		return n, NoSwitch(name, "switch its power", "")
	case h.VM != nil:
		address = m.deps.Virt.HypervisorOf(name)
		err = m.deps.Virt.SetBoot(ctx, name, bootDevices[device], virt.BootStarts(always))
	default:
		how := power.Once
		if always {
			how = power.Always
		}
		err = power.Boot(ctx, h.BMC, power.Device(device), how)
	}
	n.By = strings.TrimSpace(by + " " + address)
	if err != nil {
		return n, &api.Error{Status: http.StatusBadGateway, Message: fmt.Sprintf("boot %s from %s: %v", name, device, err)}
	}
	return n, nil
}

var bootDevices = map[api.BootDevice]virt.BootDevice{
	api.BootDefault: virt.BootDefault, api.BootNetwork: virt.BootNetwork, api.BootDisk: virt.BootDisk, api.BootCD: virt.BootCD,
}

// SwitchOf returns what switches the power of a host, libvirt or a protocol and the address of its controller; empty: nothing does.
func SwitchOf(h *lab.Host) (by, address string) {
	switch {
	case h.VM != nil:
		return "libvirt", ""
	case h.BMC == nil:
		return "", ""
	case h.BMC.IPMI != "":
		return "ipmi", h.BMC.IPMI
	}
	return "redfish", h.BMC.Redfish
}

// NoSwitch is the answer for a host of which SwitchOf returns nothing: what cannot be done, and what else to do; empty: nothing.
func NoSwitch(host, does, or string) error {
	return &api.Error{Status: http.StatusConflict, Message: host + " is no virtual machine and has no bmc, so nothing can " + does,
		Hint: "name its controller in the lab file (bmc)" + or}
}

// powerOfVM returns whether a virtual machine runs.
func (m *Machines) powerOfVM(ctx context.Context, h *lab.Host) (api.Power, error) {
	s := m.deps.Virt.ByHost(ctx)[h.Name]
	p := api.Power{Host: h.Name, By: "libvirt " + s.Hypervisor}
	switch is := PowerOf(s); {
	case !is.Known():
		return p, errors.New(cmp.Or(s.Err, "its hypervisor has not answered yet"))
	case is == machine.PowerAbsent:
		return p, virt.ErrAbsent
	case is.Off():
		p.State = string(power.StateOff)
	case is == machine.PowerOn:
		p.State = string(power.StateOn)
	default:
		p.State = string(is)
	}
	return p, nil
}

// PowerOf returns what a hypervisor says of the power of a virtual machine. One that shuts down has power until it is off.
func PowerOf(vm virt.Status) machine.Power {
	switch s := vm.State; s {
	case virt.StateRunning, virt.StateStopping:
		return machine.PowerOn
	case virt.StateOff:
		return machine.PowerOff
	case virt.StatePaused, virt.StateCrashed, virt.StateAbsent:
		return machine.Power(s)
	}
	if vm.At.IsZero() && vm.Down.IsZero() {
		return machine.PowerUnasked
	}
	return machine.PowerSilent
}
