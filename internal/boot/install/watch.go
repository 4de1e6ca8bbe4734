package install

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

const (
	expireEvery = 30 * time.Second // time-outs are hours
	maxQueued   = 1024             // hosts that wait in the queue of a Watch
)

// A Watch reports completion signals that the DHCP server sees to the install state machine, and ends installs that have reached
// their install_timeout. After a loss of install states it also reports which hosts run. It records events; where its queue is full, the
// next boot or the timeout ends the install instead, and a host that runs is seen at its next renewal.
type Watch struct {
	queue chan signal
	lost  atomic.Bool // install states were lost
}

// A signal is what an event shows of a host: that it runs, that its firmware asks for an address, or that its system asks for a new lease.
type signal struct {
	host string
	runs string  // what the host did that shows that it runs; empty: nothing
	nic  lab.MAC // by which its firmware asks; zero: it does not
}

// NewWatch returns a watch that is not running yet.
func NewWatch() *Watch { return &Watch{queue: make(chan signal, maxQueued)} }

// SetLost says whether install states are lost: then Run reports which hosts run.
func (w *Watch) SetLost(lost bool) { w.lost.Store(lost) }

// Record implements event.Recorder.
func (w *Watch) Record(e event.Event) {
	s := signal{host: e.Host}
	switch {
	case e.Host == "":
		return
	case e.Kind == event.DHCPDiscover && e.Client == event.ClientOS:
	case e.Kind == event.DHCPDiscover:
		s.nic = e.MAC
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

// Run returns nil when ctx ends. host returns a host of the lab in force, nil if it has none of that name. What the store does not accept is
// tried again at the next signal.
func (w *Watch) Run(ctx context.Context, m *Machine, host func(name string) *lab.Host, log *slog.Logger) error {
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case s := <-w.queue:
			err = m.reportSignal(ctx, host(s.host), s)
		case <-tick.C:
			err = m.Expire(ctx, host)
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("install state not stored", "err", err)
		}
	}
}

// reportSignal reports a signal to the state machine.
func (m *Machine) reportSignal(ctx context.Context, h *lab.Host, s signal) error {
	switch {
	case h == nil:
		return nil
	case s.runs != "":
		return m.Runs(ctx, h, s.runs)
	case s.nic != lab.MAC{}:
		return m.FirmwareUp(ctx, h, s.nic)
	case m.Status(h).State == Installing:
		return m.SystemUp(ctx, h)
	}
	return nil
}
