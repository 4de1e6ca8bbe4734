package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/daemon/vmadmin"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/power"
	"github.com/bootlab/bootlab/virt"
)

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
	return d.nicAddrs(l).ByLease(mac)
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
func (b *adminBackend) Install(ctx context.Context, name string, cycle api.Cycle) (api.Arming, error) {
	l := b.current.Load().Lab
	h := l.Host(name)
	if h == nil {
		return api.Arming{}, api.NoHost(l, name)
	}
	if by, _ := vmadmin.SwitchOf(h); by == "" && cycle == api.CycleNow {
		return api.Arming{}, vmadmin.NoSwitch(name, "power-cycle it", ", or arm it without --now and power-cycle it yourself")
	}
	if err := b.storing(ctx, func(ctx context.Context) error { return b.installs.Arm(ctx, h) }); err != nil {
		return api.Arming{}, notArmed(err)
	}
	b.loops.Release(h.MACs...)
	a := api.Arming{Host: name, State: string(install.Armed), Message: "overwrites " + cmp.Or(overwrites(h), "its disk") + " at its next network boot"}
	if cycle != api.CycleNow {
		return a, nil
	}
	if _, err := b.servers.vms.Switch(ctx, h, power.NetBoot, virt.StopForce); err != nil {
		return a, &api.Error{Status: http.StatusBadGateway, Message: name + " is armed, but was not power-cycled: " + err.Error(), Hint: a.Message}
	}
	a.Cycled, a.Message = true, "it was power-cycled, and "+a.Message
	return a, nil
}

// notArmed is the answer where an install state could not be changed: its disk takes no writes, or the host's state forbids it.
func notArmed(err error) error {
	if _, ok := errors.AsType[*api.Error](err); ok {
		return err
	}
	return &api.Error{Status: http.StatusConflict, Message: err.Error()}
}

// MarkInstalled implements httpd.Backend.
func (b *adminBackend) MarkInstalled(ctx context.Context, name string) (api.Arming, error) {
	l := b.current.Load().Lab
	h := l.Host(name)
	if h == nil {
		return api.Arming{}, api.NoHost(l, name)
	}
	if err := b.storing(ctx, func(ctx context.Context) error { return b.installs.MarkInstalled(ctx, h) }); err != nil {
		return api.Arming{}, notArmed(err)
	}
	return api.Arming{Host: name, State: string(install.Installed), Message: fmt.Sprintf("it starts from its own disk; bootlab install %s arms it again", name)}, nil
}
