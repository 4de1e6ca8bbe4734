package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/power"
	"github.com/bootlab/bootlab/virt"
)

const (
	expireEvery = 30 * time.Second // time-outs are hours
	maxQueued   = 1024             // hosts that wait in the queue of an installWatch
)

// An installWatch reports completion signals that the DHCP server sees to the install state machine, and ends installs that have reached
// their install_timeout. After a loss of install states it also reports which hosts run. It records events; where its queue is full, the
// next boot or the timeout ends the install instead, and a host that runs is seen at its next renewal.
type installWatch struct {
	queue chan sign
	lost  atomic.Bool // install states were lost
}

// A sign is what an event shows of a host.
type sign struct {
	host string
	runs string // what the host did that shows that it runs; empty: its system asks for a new lease
}

func newInstallWatch() *installWatch { return &installWatch{queue: make(chan sign, maxQueued)} }

// Record implements event.Recorder.
func (w *installWatch) Record(e event.Event) {
	s := sign{host: e.Host}
	switch {
	case e.Host == "":
		return
	case e.Kind == event.DHCPDiscover && e.Client == event.ClientOS:
	case e.Kind == event.DHCPAck && e.Client == event.ClientOS && w.lost.Load():
		s.runs = "has a lease for its system"
	case e.Kind == event.BackendUp && w.lost.Load():
		s.runs = "answers health checks"
	default:
		return
	}
	select {
	case w.queue <- s:
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
		case s := <-w.queue:
			err = d.signOf(ctx, s)
		case <-tick.C:
			err = d.installs.Expire(ctx, d.machineNamed)
		}
		if err != nil && ctx.Err() == nil {
			d.serverLog.Warn("install state not saved", "err", err)
		}
	}
}

// signOf reports a sign to the state machine.
func (d *Daemon) signOf(ctx context.Context, s sign) error {
	h := d.machineNamed(s.host)
	switch {
	case h == nil:
		return nil
	case s.runs != "":
		return d.installs.Runs(ctx, h, s.runs)
	case d.installs.Status(h).State == install.Installing:
		return d.installs.SystemUp(ctx, h)
	}
	return nil
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
	addr, ok := d.nicAddrs(l).AddrOf(mac)
	if !ok {
		return nil
	}
	return l.MachineOf(mac, addr)
}

// followLimit is how long a disk has to take the install states of renamed hosts.
const followLimit = 10 * time.Second

// followMachines lets install states follow their machines into a lab that comes into use, whose hosts may have other names. The caller
// calls done once it is in use.
func (d *Daemon) followMachines(ctx context.Context, l *lab.Lab) (done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, followLimit)
	defer cancel()
	moves, done, err := d.installs.Follow(ctx, l.Hosts)
	for _, m := range moves {
		d.log.Info("host has another name, its install state stays with its machine", "host", m.To, "was", m.From, "mac", m.MAC, "state", m.State)
	}
	return done, err
}

// Install implements httpd.Backend.
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
		return api.Arming{}, c.notChanged(err)
	}
	c.loops.Release(h.MACs...)
	a := api.Arming{Host: name, State: string(install.Armed), Message: "overwrites " + cmp.Or(overwrites(h), "its disk") + " at its next network boot"}
	if cycle != api.CycleNow {
		return a, nil
	}
	if _, err := c.switchPower(ctx, h, power.NetBoot, virt.StopForce); err != nil {
		return a, &api.Error{Status: http.StatusBadGateway, Message: name + " is armed, but was not power-cycled: " + err.Error(), Hint: a.Message}
	}
	a.Cycled, a.Message = true, "it was power-cycled, and "+a.Message
	return a, nil
}

// notChanged is the answer where an install state could not be changed: its disk takes no writes, or the host's state forbids it.
func (c *adminBackend) notChanged(err error) error {
	health := c.file.Health()
	if health.Err == nil || !errors.Is(err, health.Err) {
		return &api.Error{Status: http.StatusConflict, Message: err.Error()}
	}
	status := http.StatusServiceUnavailable
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		status = http.StatusInsufficientStorage
	}
	return &api.Error{Status: status, Message: "nothing was changed: " + err.Error(), Hint: c.storeWatch.Advice(err)}
}

// MarkInstalled implements httpd.Backend.
func (c *adminBackend) MarkInstalled(ctx context.Context, name string) (api.Arming, error) {
	l := c.current.Load().Lab
	h := l.Host(name)
	if h == nil {
		return api.Arming{}, errNoHost(l, name)
	}
	if err := c.installs.MarkInstalled(ctx, h); err != nil {
		return api.Arming{}, c.notChanged(err)
	}
	return api.Arming{Host: name, State: string(install.Installed), Message: fmt.Sprintf("it starts from its own disk; bootlab install %s arms it again", name)}, nil
}
