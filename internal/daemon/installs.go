package daemon

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/power"
)

const (
	expireEvery = 30 * time.Second // time-outs are hours
	maxQueued   = 1024             // hosts that wait in the queue of an installWatch
)

// An installWatch reports completion signals that the DHCP server sees to the install state machine, and ends installs that have reached
// their install_timeout. It records events; where its queue is full, the next boot or the timeout ends the install instead.
type installWatch struct {
	queue chan string // hosts
}

func newInstallWatch() *installWatch { return &installWatch{queue: make(chan string, maxQueued)} }

// Record implements event.Recorder.
func (w *installWatch) Record(e event.Event) {
	if e.Kind != event.DHCPDiscover || e.Host == "" || e.Client != event.ClientOS {
		return
	}
	select {
	case w.queue <- e.Host:
	default:
	}
}

// run returns nil when ctx ends. What the store does not accept is tried again at the next signal.
func (w *installWatch) run(ctx context.Context, d *Daemon) error {
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case host := <-w.queue:
			if h := d.machineNamed(host); h != nil && d.installs.Status(h).State == install.Installing {
				err = d.installs.SystemUp(ctx, h)
			}
		case <-tick.C:
			err = d.installs.Expire(ctx, d.machineNamed)
		}
		if err != nil && ctx.Err() == nil {
			d.serverLog.Warn("install state not saved", "err", err)
		}
	}
}

// machineNamed returns the host of that name, or the machine of a pool, whose name is its MAC, or nil.
func (d *Daemon) machineNamed(name string) *lab.Host {
	l := d.current.Load().Lab
	if h := l.Host(name); h != nil {
		return h
	}
	mac, err := lab.ParseMAC(name)
	if err != nil {
		return nil
	}
	addr, ok := addresses{d}.AddrOf(mac)
	if !ok {
		return nil
	}
	return l.MachineOf(mac, addr)
}

// Install implements httpd.Installer.
func (c *adminBackend) Install(ctx context.Context, name string, cycle api.Cycle) (api.Arming, error) {
	l := c.current.Load().Lab
	h := l.Host(name)
	if h == nil {
		return api.Arming{}, errNoHost(l, name)
	}
	if cycle == api.CycleNow && h.VM == nil && h.BMC == nil {
		return api.Arming{}, &api.Error{Status: http.StatusConflict, Message: name + " is no virtual machine and has no bmc, so nothing can power-cycle it",
			Hint: "name its controller in the lab file (bmc), or arm it without --now and power-cycle it yourself"}
	}
	if err := c.installs.Arm(ctx, h); err != nil {
		return api.Arming{}, &api.Error{Status: http.StatusConflict, Message: err.Error()}
	}
	c.loops.Release(h.MACs...)
	a := api.Arming{Host: name, State: string(install.Armed), Message: "its next boot installs it"}
	if cycle != api.CycleNow {
		return a, nil
	}
	if err := c.cycle(ctx, h); err != nil {
		return a, &api.Error{Status: http.StatusBadGateway, Message: name + " is armed, but was not power-cycled: " + err.Error(), Hint: "its next boot installs it"}
	}
	a.Cycled, a.Message = true, "it was power-cycled"
	return a, nil
}

// cycle makes h boot from the network now: through libvirt where it is a virtual machine, else through its controller.
func (c *adminBackend) cycle(ctx context.Context, h *lab.Host) error {
	if h.VM != nil {
		return c.servers.virt.Restart(ctx, h.Name)
	}
	start := time.Now()
	e := event.Event{Kind: event.PowerCycled, Host: h.Name, Detail: h.BMC.Redfish + h.BMC.IPMI}
	err := power.Cycle(ctx, h.BMC)
	e.Dur = time.Since(start)
	if err != nil {
		e.Kind, e.Err = event.PowerCycleFailed, err.Error()
	}
	if len(h.MACs) > 0 {
		e.MAC = h.MACs[0]
	}
	c.bus.Record(e)
	return err
}

// MarkInstalled implements httpd.Installer.
func (c *adminBackend) MarkInstalled(ctx context.Context, name string) (api.Arming, error) {
	l := c.current.Load().Lab
	h := l.Host(name)
	if h == nil {
		return api.Arming{}, errNoHost(l, name)
	}
	if err := c.installs.MarkInstalled(ctx, h); err != nil {
		return api.Arming{}, &api.Error{Status: http.StatusConflict, Message: err.Error()}
	}
	return api.Arming{Host: name, State: string(install.Installed), Message: fmt.Sprintf("it starts from its own disk; bootlab install %s arms it again", name)}, nil
}
