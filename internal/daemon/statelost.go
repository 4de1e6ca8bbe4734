package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/store/identity"
)

// reportState says at the start what follows from the state for machines, before the first of them is answered.
func (d *Daemon) reportState(ctx context.Context) {
	d.watchMarkers()
	l := d.current.Load().Lab
	if lost := d.installs.Lost(); lost != nil {
		d.bus.Record(event.Event{Kind: event.StateLost, Detail: fmt.Sprintf("noticed %s. %s. %s",
			lost.Since.Format(time.DateTime), bootOwnDisks(len(d.unknownHosts(l))), d.lossAdvice(l)), Err: lost.Why})
	}
	if hosts, pools := d.unaccepted(l); len(hosts)+len(pools) > 0 {
		d.warnArmed(firstStart, hosts, pools)
		return // a restart says so again, until it is accepted
	}
	if err := d.stateFolder.id.Served(ctx); err != nil {
		d.log.Error("first start not stored", "err", err)
	}
}

func bootOwnDisks(hosts int) string {
	if hosts == 1 {
		return "1 host boots its own disk"
	}
	return fmt.Sprintf("%d hosts boot their own disks", hosts)
}

const (
	adviceHeld  = "bootlab install HOST installs one of them, bootlab install HOST --done says that it is installed"
	adviceFirst = "for those that have a system: bootlab install HOST --done; then bootlab state accept-new ends this warning"
)

// markersMatter reports whether markers are to show a later loss: there is none, and the last check found the folder in its place. Otherwise that
// says more.
func (d *Daemon) markersMatter() bool {
	return d.installs.Lost() == nil && d.stateFolder.lastProblem() == nil
}

// badMarkers returns the markers that would not show a loss, as the last check found them; none while they do not matter.
func (d *Daemon) badMarkers() (bad []identity.Marker) {
	if !d.markersMatter() {
		return nil
	}
	return slices.DeleteFunc(d.stateFolder.id.Markers(), func(m identity.Marker) bool { return m.Err == nil })
}

// unnoticed is what a bad marker means.
const unnoticed = "without it, a lost state may not be noticed"

// markerConditions has one condition for each marker that would not show a loss.
func markerConditions(bad []identity.Marker) (all []api.Condition) {
	for _, m := range bad {
		all = append(all, api.Condition{Kind: api.ConditionMarker, Name: m.Path, Problem: fmt.Sprintf("%v: %s: %s", m.Err, unnoticed, markerAdvice(m))})
	}
	return all
}

// watchMarkers logs once that a marker would not show a loss, and that it does again. One goroutine calls it.
func (d *Daemon) watchMarkers() {
	if !d.markersMatter() {
		return
	}
	bad := map[string]bool{}
	for _, m := range d.badMarkers() {
		bad[m.Path] = true
		if d.stateFolder.marked[m.Path] {
			continue
		}
		what := "state marker not written: "
		if errors.Is(m.Err, identity.ErrRemoved) {
			what = "state marker was removed: "
		}
		d.log.Warn(what+unnoticed, "file", m.Path, "err", m.Err, "advice", markerAdvice(m))
	}
	for path := range d.stateFolder.marked {
		if !bad[path] {
			d.log.Info("state marker is written again", "file", path)
		}
	}
	d.stateFolder.marked = bad
}

// markerAdvice says what to do about a marker that would not show a loss.
func markerAdvice(m identity.Marker) string {
	switch {
	case errors.Is(m.Err, identity.ErrRemoved):
		return "restart bootlab"
	case errors.Is(m.Err, syscall.EROFS):
		return "mount that file writable, or the folder that it is in, and restart bootlab"
	}
	return fmt.Sprintf("run install --owner %d --mode 600 /dev/null %s, and restart bootlab", os.Geteuid(), m.Path)
}

// lossAdvice says what to do after a loss, the safe steps first.
func (d *Daemon) lossAdvice(l *lab.Lab) string {
	steps := []string{"If there is a backup, stop bootlab and run bootlab restore FILE"}
	if d.stateFolder.id.Lost() != "" {
		steps = []string{"If the state still exists, stop bootlab, mount its disk or put its folder back, and start bootlab", steps[0]}
	}
	last := []string{"Else run bootlab state accept-new, which arms no host: the install state of none is unknown"}
	if _, pools := d.wouldInstall(l); len(d.unknownHosts(l))+len(pools) > 0 {
		last = []string{
			"Else run bootlab install HOST --done for each host that has a system", "Run bootlab install HOST for each whose disk may be overwritten",
			"Then bootlab state accept-new arms all others, which overwrites their disks",
		}
	}
	return strings.Join(append(steps, last...), ". ") + ". See " + lossPage
}

// lossPage says what to do after a loss.
const lossPage = "docs/operations.md#the-state-folder-was-lost"

// unknownHosts returns the hosts whose install state was lost, sorted.
func (d *Daemon) unknownHosts(l *lab.Lab) []string {
	return d.hostsThat(l, func(h *lab.Host) bool { return d.installs.Status(h).State == install.Unknown })
}

// restoredHosts returns the hosts that a restore holds, sorted.
func (d *Daemon) restoredHosts(l *lab.Lab) []string {
	return d.hostsThat(l, func(h *lab.Host) bool { return d.installs.Status(h).HeldByRestore() })
}

// loopHosts returns the hosts that were held after too many attempts, sorted.
func (d *Daemon) loopHosts(l *lab.Lab) []string {
	return d.hostsThat(l, func(h *lab.Host) bool { s := d.installs.Status(h); return s.Held && !s.HeldByRestore() })
}

func (d *Daemon) hostsThat(l *lab.Lab, is func(*lab.Host) bool) []string {
	names := []string{}
	for _, h := range l.Hosts {
		if is(h) {
			names = append(names, h.Name)
		}
	}
	slices.Sort(names)
	return names
}

// stateWarnings returns what bootlab status says of the state.
func (d *Daemon) stateWarnings(l *lab.Lab) (ws []string) {
	ws = d.updates.Warnings()
	if text := d.checkState(); text != "" {
		ws = append(ws, text)
	}
	if text := d.lossText(l); text != "" {
		ws = append(ws, text)
	}
	if hosts := d.restoredHosts(l); len(hosts) > 0 {
		ws = append(ws, "a restore holds "+lab.Named(hosts, fewNames)+": they start from their own disks, as they may have been installed after the backup was made; "+adviceHeld)
	}
	if hosts := d.loopHosts(l); len(hosts) > 0 {
		ws = append(ws, "held after too many attempts to install: "+lab.Named(hosts, fewNames)+": they start from their own disks; fix their profiles, then: "+adviceHeld)
	}
	hosts, pools := d.unaccepted(l)
	by := firstStart
	if !d.stateFolder.first.Load() {
		by = byReload
		hosts, pools = d.armedByReload(l)
	}
	if text := armedText(by, withMode(l, hosts), pools); text != "" {
		ws = append(ws, text)
	}
	return ws
}

// lossText says what happened to install states that were lost, and what to do; empty: none were.
func (d *Daemon) lossText(l *lab.Lab) string {
	lost := d.installs.Lost()
	if lost == nil {
		return ""
	}
	text := fmt.Sprintf("install states were lost, noticed %s: %s. No machine with install: once is installed until an admin says so. %s",
		lost.Since.Format(time.DateTime), lost.Why, d.lossAdvice(l))
	if hosts := d.unknownHosts(l); len(hosts) > 0 {
		text += ". Hosts whose install state is unknown: " + lab.Named(hosts, fewNames)
	}
	return text
}

// fewNames is how many of many hosts a text of the daemon names.
const fewNames = 20

// State implements httpd.Backend.
func (b *adminBackend) State(context.Context) api.State { return b.describeState(b.current.Load().Lab) }

// describeState returns what is known of the state, with the hosts of a lab.
func (b *adminBackend) describeState(l *lab.Lab) api.State {
	s := api.State{Folder: b.stateFolder.path, Database: b.stateFolder.id.ID(), Condition: api.StateKnown, Unknown: b.unknownHosts(l),
		Held: b.restoredHosts(l), LoopHeld: b.loopHosts(l), Markers: []api.StateMarker{}}
	s.Install, s.Pools = b.wouldInstall(l)
	if place := b.stateFolder.problem(); place != nil {
		s.Problem = place.Text
	}
	for _, m := range b.stateFolder.id.Markers() {
		marker := api.StateMarker{Path: m.Path}
		if m.Err != nil {
			marker.Err = m.Err.Error()
			if b.markersMatter() {
				marker.Err += ": " + markerAdvice(m)
			}
		}
		s.Markers = append(s.Markers, marker)
	}
	if b.stateFolder.first.Load() {
		s.Condition = api.StateFirst
	}
	if lost := b.installs.Lost(); lost != nil {
		s.Condition, s.Since, s.Reason, s.Advice = api.StateLost, lost.Since, lost.Why, b.lossAdvice(l)
	}
	return s
}

// AcceptState implements httpd.Backend.
func (b *adminBackend) AcceptState(ctx context.Context, database string) (api.State, error) {
	if have := b.stateFolder.id.ID(); cmp.Or(database, have) != have {
		return api.State{}, &api.Error{Status: http.StatusConflict, Message: "the daemon was restarted with another state meanwhile", Hint: "look at it again: bootlab state"}
	}
	l := b.current.Load().Lab
	hosts, pools := b.armedByReload(l)
	if b.installs.Lost() == nil && len(b.file.Losses()) == 0 {
		if len(hosts)+len(pools) > 0 && !b.stateFolder.first.Load() {
			b.acceptArmed()
			return b.describeState(l), nil
		}
		if b.stateFolder.first.Load() {
			if err := b.storing(ctx, b.stateFolder.id.Served); err != nil {
				return api.State{}, err
			}
			b.stateFolder.first.Store(false)
			b.acceptArmed()
			return b.describeState(l), nil
		}
		return api.State{}, &api.Error{Status: http.StatusConflict, Message: "nothing was lost: there is nothing to accept", Hint: "bootlab install HOST arms one host"}
	}
	armed := b.unknownHosts(l)
	err := b.storing(ctx, func(ctx context.Context) error {
		if err := b.installs.Accept(ctx, b.stateFolder.id.Accept); err != nil {
			return err
		}
		return b.file.AcceptLosses(ctx)
	})
	if err != nil {
		return api.State{}, err
	}
	b.acceptArmed()
	detail := "no host armed"
	if len(armed) > 0 {
		detail = fmt.Sprintf("%s armed: %s", lab.Plural(len(armed), "host"), lab.Named(armed, fewNames))
	}
	b.bus.Record(event.Event{Kind: event.StateAccepted, Detail: detail})
	return b.describeState(l), nil
}

// acceptArmed forgets which hosts reloads have armed: an admin knows of them.
func (b *adminBackend) acceptArmed() {
	b.stateFolder.mu.Lock()
	defer b.stateFolder.mu.Unlock()
	b.stateFolder.armed = nil
}
