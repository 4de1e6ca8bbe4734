package daemon

import (
	"context"
	"strings"
	"time"

	"bootlab/internal/event"
	"bootlab/internal/install"
	"bootlab/internal/lab"
)

const (
	expireEvery = 30 * time.Second // time-outs are hours
	maxAsking   = 1024             // machines whose systems asked for an address and were not looked at yet
)

// An installWatch tells the install state machine what the other servers see of installed systems, and when time is up. It
// is a recorder on the bus: what is lost here is a guess, and the machine's next boot or the time-out says it too.
type installWatch struct {
	asking chan string // hosts
}

func newInstallWatch() *installWatch { return &installWatch{asking: make(chan string, maxAsking)} }

// Record implements event.Recorder.
func (w *installWatch) Record(e event.Event) {
	if e.Kind != event.DHCPDiscover || e.Host == "" {
		return
	}
	if asker, _, _ := strings.Cut(e.Detail, " "); asker != "os" {
		return
	}
	select {
	case w.asking <- e.Host:
	default:
	}
}

// run works until ctx ends; then it returns nil. What the store does not take is tried again at the next sign.
func (w *installWatch) run(ctx context.Context, d *Daemon) error {
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case host := <-w.asking:
			if h := d.machineNamed(host); h != nil && d.installs.Status(h).State == install.Installing {
				err = d.installs.SystemUp(ctx, h)
			}
		case <-tick.C:
			err = d.installs.Expire(ctx, d.machineNamed)
		}
		if err != nil && ctx.Err() == nil {
			d.log.Warn("install state not kept", "err", err)
		}
	}
}

// machineNamed returns the host of that name, or the guest of a pool that is called by its MAC, or nil.
func (d *Daemon) machineNamed(name string) *lab.Host {
	l := d.current.Load().Lab
	if h := l.Host(name); h != nil {
		return h
	}
	mac, err := lab.ParseMAC(name)
	if err != nil {
		return nil
	}
	addr, ok := who{d}.AddrOf(mac)
	if !ok {
		return nil
	}
	return l.MachineOf(mac, addr)
}
