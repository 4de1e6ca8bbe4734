package daemon

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/bootlab/bootlab/dhcpd"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/lbproxy"
)

// loadSnapshot reads and compiles a lab. inForce is the appliance that the daemon started with, which a reload does not change;
// nil at the start.
func loadSnapshot(path string, inForce *lab.Appliance) (*snapshot.Snapshot, error) {
	// Reading a lab makes much garbage at once, and nobody else makes any: collecting it meanwhile is half of the work.
	debug.SetGCPercent(gcPercentLoading)
	defer debug.SetGCPercent(gcPercent)
	l, err := load.Lab(path, load.Options{InterfaceAddr: InterfaceAddr, Appliance: inForce})
	if err != nil {
		return nil, err
	}
	l.Warnings = slices.Concat(l.Warnings, AddressWarnings(l), unreadable(l))
	s, err := snapshot.Compile(l)
	if err != nil {
		return nil, err
	}
	s.At = time.Now()
	return s, nil
}

// A change is a snapshot whose new listeners are open and that is not in force yet.
type change struct {
	d    *Daemon
	snap *snapshot.Snapshot
	lb   *lbproxy.Staged
	dhcp *dhcpd.Staged
}

// stage opens the listeners that s needs and nobody has open, or none of them.
func (d *Daemon) stage(s *snapshot.Snapshot) (*change, error) {
	lb, err := d.lb.Stage(s.LB)
	if err != nil {
		return nil, err
	}
	dhcp, err := d.dhcp.Stage(s.DHCP)
	if err != nil {
		lb.Discard()
		return nil, err
	}
	return &change{d: d, snap: s, lb: lb, dhcp: dhcp}, nil
}

// commit brings the snapshot into force: one store, then the listeners that are gone are closed.
func (c *change) commit() {
	c.d.current.Store(c.snap)
	c.d.circles.ReleaseAll() // what they boot may be mended
	c.d.warnUnsigned(c.snap.Lab)
	c.lb.Commit()
	c.dhcp.Commit()
}

// reloads remembers how reloads went. Only one runs at a time.
type reloads struct {
	running sync.Mutex

	mu   sync.Mutex
	last api.Reload
}

func (r *reloads) applied(s *snapshot.Snapshot, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = api.Reload{At: s.At, Generation: s.Gen, Detail: s.Lab.Summary(), Dur: took, Warnings: warnings(s)}
}

func (r *reloads) refused(at time.Time, gen uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = api.Reload{At: at, Generation: gen, Err: brief(err)}
}

// state returns how the last reload went.
func (r *reloads) state() api.Reload {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// brief returns the first lines of a long error: "bootlab check" shows all of them.
func brief(err error) string {
	const few = 20
	lines := strings.Split(err.Error(), "\n")
	if len(lines) <= few {
		return err.Error()
	}
	return fmt.Sprintf("%s\n… and %d more: bootlab check shows them", strings.Join(lines[:few], "\n"), len(lines)-few)
}

// warnings are those of s that stand now: a file that was missed at the load may have been put there since.
func warnings(s *snapshot.Snapshot) (ws []string) {
	for _, p := range s.Warnings() {
		if p.Path == "" || !canRead(p.Path) {
			ws = append(ws, p.Error())
		}
	}
	return ws
}

// reloadBecause reloads carefully; the outcome is an event.
func (d *Daemon) reloadBecause(why string) {
	d.log.Debug("reloading the lab", "because", why)
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReloading)
	_ = d.Reload(api.Careful) // told as an event
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
}

// Reload brings the lab file into force. Whatever goes wrong, the lab in force stays, and the reason is told on the log,
// in a metric and by the status. The error is for who asked.
func (d *Daemon) Reload(force api.Force) error {
	d.reloads.running.Lock()
	defer d.reloads.running.Unlock()
	start := time.Now()
	before := d.current.Load()
	change, err := d.prepare(before, force)
	if err != nil {
		d.reloads.refused(start, before.Gen, err)
		d.reloadMetrics.Refused()
		d.bus.Record(event.Event{Kind: event.LabRefused, Detail: d.cfg.Lab, Err: brief(err), Dur: time.Since(start)})
		return err
	}
	change.commit()
	d.applied(change.snap, time.Since(start))
	return nil
}

// applied tells that a snapshot came into force.
func (d *Daemon) applied(s *snapshot.Snapshot, took time.Duration) {
	debug.FreeOSMemory() // what reading the lab, and the lab before it, took
	d.reloads.applied(s, took)
	d.reloadMetrics.Applied(s.Gen, len(s.Lab.Hosts), s.At)
	d.bus.Record(event.Event{Kind: event.LabApplied, Detail: s.Lab.Summary(), Dur: took})
	d.warn(s)
}

// A notice remembers the warnings that the log has, so that each is told once while it stands.
type notice struct {
	mu   sync.Mutex
	told []string
}

// fresh returns those of now that were not told, and takes now for told.
func (n *notice) fresh(now []string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.told
	n.told = now
	return slices.DeleteFunc(slices.Clone(now), func(w string) bool { return slices.Contains(before, w) })
}

// warn tells what stands against a lab that has just come into force.
func (d *Daemon) warn(s *snapshot.Snapshot) {
	d.notice.fresh(nil)
	d.warnNew(s)
}

// warnNew tells what stands against the lab in force and was not told yet.
func (d *Daemon) warnNew(s *snapshot.Snapshot) {
	for _, w := range d.notice.fresh(standing(s)) {
		d.log.Warn("lab file", "warning", w)
	}
}

// prepare does all of a reload that may fail.
func (d *Daemon) prepare(before *snapshot.Snapshot, force api.Force) (*change, error) {
	s, err := loadSnapshot(d.cfg.Lab, &before.Lab.Appliance)
	if err != nil {
		return nil, err
	}
	if err := halved(before.Lab, s.Lab); err != nil && force != api.Forced {
		return nil, err
	}
	s.Gen = before.Gen + 1
	return d.stage(s)
}

// errHalved guards against a lab file that lost its end.
var errHalved = errors.New("the new lab drops more than half of the hosts; if that is meant: bootlab reload --force")

func halved(before, after *lab.Lab) error {
	kept := 0
	for _, h := range before.Hosts {
		if after.Host(h.Name) != nil {
			kept++
		}
	}
	if 2*kept < len(before.Hosts) {
		return fmt.Errorf("%w (%d of %d are left)", errHalved, kept, len(before.Hosts))
	}
	return nil
}
