package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/host/privilege"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/identity"
	"github.com/bootlab/bootlab/internal/store/records"
)

// state is the condition of the state folder.
type state struct {
	folder string
	opened os.FileInfo // of folder, when its store was opened
	store  store.Store
	id     *identity.Identity
	first  atomic.Bool // this is the first start of the lab, and no admin has accepted what it installs
	warned string      // of watch: what was logged

	looking sync.Mutex // held by look, which a disk that hangs may never leave
	mu      sync.Mutex
	looked  error           // what the last look found
	armed   map[string]bool // hosts and, with their network, pools that reloads have armed and no admin has accepted
}

// openState compares the store with its markers, in the state folder and beside the lab. If the state was lost, no machine is installed
// before an admin says so.
func (d *Daemon) openState(ctx context.Context, folder string) (*state, error) {
	s := &state{folder: folder, store: d.store}
	var err error
	if s.opened, err = os.Stat(folder); err != nil {
		return nil, fmt.Errorf("appliance.state: %w", err)
	}
	if s.id, err = identity.Find(ctx, d.store, hostMACs(d.current.Load().Lab), filepath.Join(folder, identity.InFolder), identity.BesideLab(d.cfg.Lab)); err != nil {
		return nil, err
	}
	s.first.Store(s.id.First())
	if why := s.id.Lost(); why != "" {
		if err := d.installs.Lose(ctx, why); err != nil { // the disk takes no writes: the next start notices the loss again
			d.log.Error("loss of install states not stored", "err", err)
		}
	}
	d.installWatch.SetLost(d.installs.Lost() != nil)
	return s, d.registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: MetricStateLost, Help: "Whether install states were lost and no admin has accepted that: 1, else 0.",
	}, func() float64 {
		if d.installs.Lost() == nil {
			return 0
		}
		return 1
	}))
}

// hostMACs returns the MACs by which the state of a lab is known. An appliance may serve several labs.
func hostMACs(l *lab.Lab) (macs []string) {
	for _, h := range l.Hosts {
		if h.Role == lab.RoleAppliance {
			continue
		}
		for _, m := range h.AllMACs() {
			macs = append(macs, m.String())
		}
	}
	return macs
}

// reloaded notes the hosts of a lab that is in use now. A disk that takes no writes is no reason to refuse it.
func (d *Daemon) reloaded(l *lab.Lab) {
	op, changed := d.state.id.Reloaded(hostMACs(l))
	if !changed {
		return
	}
	if err := d.saver.Save(op); err != nil && !errors.Is(err, records.ErrSaving) {
		d.log.Error("hosts of the lab not recorded in the state: after a restart they may count as those of another lab", "err", err)
	}
}

// MetricStateLost is 1 while install states are lost.
const MetricStateLost = "bootlab_state_lost"

// keep notes that the store is in use. The daemon's user may not write beside the lab file, so this is done before it becomes that user.
// A disk that takes no writes is no reason not to start: the markers stay as they are.
func (s *state) keep(ctx context.Context, user *privilege.User, log *slog.Logger) {
	var owner *identity.Owner
	if user != nil {
		owner = &identity.Owner{UID: user.UID, GID: user.GID}
	}
	if err := s.id.Keep(ctx, owner); err != nil {
		log.Error("start not recorded in the state", "err", err)
	}
}

// check returns an error that says what to do if what the store keeps would not outlive the process.
func (s *state) check() error {
	now, err := os.Stat(s.folder)
	gone := errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, s.opened)
	if file, ok := s.store.(interface{ Unlinked() bool }); gone && ok && file.Unlinked() {
		return fmt.Errorf("state folder %s was removed while in use: run bootlab backup FILE now, while bootlab runs, then stop it, run bootlab restore FILE, and start it; "+
			"a stop without that loses what the folder held", s.folder)
	}
	if gone {
		return fmt.Errorf("state folder %s was unmounted or replaced while in use: put it back before bootlab is restarted: the folder that is there now does not have "+
			"the state", s.folder)
	}
	if file, ok := s.store.(interface{ Check() error }); ok {
		return file.Check()
	}
	return nil
}

// problem returns what check found just now, or earlier where the disk does not answer.
func (s *state) problem() error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if !s.looking.TryLock() {
			return // another look has not ended
		}
		defer s.looking.Unlock()
		err := s.check()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.looked = err
	}()
	timer := time.NewTimer(records.SaveWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looked
}

// watch logs once that the state is not safe. One goroutine calls it.
func (s *state) watch(log *slog.Logger) {
	now := ""
	if err := s.problem(); err != nil {
		now = err.Error()
	}
	if now != "" && now != s.warned { // a folder is removed file by file: the advice changes
		log.Error("state file needs attention", "err", now)
	}
	s.warned = now
}

// reportState says at the start what follows from the state for machines, before the first of them is answered.
func (d *Daemon) reportState(ctx context.Context) {
	for _, m := range d.state.id.Markers() {
		if m.Err != nil && d.installs.Lost() == nil {
			d.log.Warn("state marker not written: without it, a lost state may not be noticed", "file", m.Path, "err", m.Err,
				"advice", fmt.Sprintf("run install --owner %d --mode 600 /dev/null %s, and restart bootlab", os.Geteuid(), m.Path))
		}
	}
	l := d.current.Load().Lab
	if lost := d.installs.Lost(); lost != nil {
		d.bus.Record(event.Event{Kind: event.StateLost, Detail: fmt.Sprintf("since %s; %s; bootlab state shows more: %s",
			lost.Since.Format(time.DateTime), bootOwnDisks(len(d.unknownHosts(l))), adviceLost), Err: lost.Why})
	}
	if hosts, pools := d.unaccepted(l); len(hosts)+len(pools) > 0 {
		d.warnArmed(firstStart, hosts, pools)
		return // a restart says so again, until it is accepted
	}
	if err := d.state.id.Served(ctx); err != nil {
		d.log.Error("first start not recorded in the state", "err", err)
	}
}

// What has armed machines that no admin has armed.
const (
	firstStart = "first start of this lab"
	byReload   = "armed by a reload"
)

// warnArmed logs which machines something has armed.
func (d *Daemon) warnArmed(by string, hosts, pools []string) {
	d.log.Warn(by+": machines install themselves at their next network boot", "hosts", hosts, "pools", pools, "advice", adviceFirst)
}

// armedText says which machines something has armed; empty: none.
func armedText(by string, hosts, pools []string) string {
	if len(hosts)+len(pools) == 0 {
		return ""
	}
	how := "these machines install themselves at their next network boot"
	if len(hosts) == 1 && len(pools) == 0 {
		how = "one machine installs itself at its next network boot"
	}
	return fmt.Sprintf("%s: %s: %s; %s", by, how, some(slices.Concat(hosts, inPools(pools))), adviceFirst)
}

// noteArmed logs and keeps which hosts and pools a reload has armed, where hosts and pools are those that were armed before it.
func (d *Daemon) noteArmed(l *lab.Lab, hosts, pools []string) {
	nowHosts, nowPools := d.mayInstall(l)
	nowHosts, nowPools = without(nowHosts, hosts), without(nowPools, pools)
	if len(nowHosts)+len(nowPools) == 0 {
		return
	}
	d.warnArmed(byReload, nowHosts, nowPools)
	d.state.mu.Lock()
	defer d.state.mu.Unlock()
	if d.state.armed == nil {
		d.state.armed = map[string]bool{}
	}
	for _, name := range slices.Concat(nowHosts, nowPools) {
		d.state.armed[name] = true
	}
}

func without(names, others []string) []string {
	other := map[string]bool{}
	for _, name := range others {
		other[name] = true
	}
	return slices.DeleteFunc(names, func(name string) bool { return other[name] })
}

// mayInstall is wouldInstall without the hosts whose state was lost: they boot their own disks.
func (d *Daemon) mayInstall(l *lab.Lab) (hosts, pools []string) {
	hosts, pools = d.wouldInstall(l)
	return without(hosts, d.unknownHosts(l)), pools
}

// armedByReload returns the hosts and pools that reloads have armed, without the hosts that an admin has said something about, or that have
// booted since.
func (d *Daemon) armedByReload(l *lab.Lab) (hosts, pools []string) {
	d.state.mu.Lock()
	armed := maps.Clone(d.state.armed)
	d.state.mu.Unlock()
	if len(armed) == 0 {
		return nil, nil
	}
	hosts, pools = d.mayInstall(l)
	known := d.installs.All()
	other := func(name string) bool { _, ok := known[name]; return ok || !armed[name] }
	return slices.DeleteFunc(hosts, other), slices.DeleteFunc(pools, other)
}

func bootOwnDisks(hosts int) string {
	if hosts == 1 {
		return "1 host boots its own disk"
	}
	return fmt.Sprintf("%d hosts boot their own disks", hosts)
}

const (
	adviceLost  = "bootlab install HOST installs one of them, bootlab state accept-new arms all whose state is unknown"
	adviceHeld  = "bootlab install HOST installs one of them, bootlab install HOST --done says that it is installed"
	adviceFirst = "for those that have a system: bootlab install HOST --done; then bootlab state accept-new ends this warning"
)

// unknownHosts returns the hosts whose install state was lost, sorted.
func (d *Daemon) unknownHosts(l *lab.Lab) []string {
	return d.hostsThat(l, func(h *lab.Host) bool { return d.installs.Status(h).State == install.Unknown })
}

// restoredHosts returns the hosts that a restore holds, sorted.
func (d *Daemon) restoredHosts(l *lab.Lab) []string {
	return d.hostsThat(l, func(h *lab.Host) bool { return d.installs.Status(h).HeldByRestore() })
}

// wouldInstall returns the hosts that install themselves at their next network boot, once a loss is accepted, and the pools whose
// machines do, both sorted.
func (d *Daemon) wouldInstall(l *lab.Lab) (hosts, pools []string) {
	pools = []string{}
	for _, n := range l.Networks {
		for _, p := range n.Pools {
			if p.Profile != nil && p.Profile.Install != lab.InstallNever {
				pools = append(pools, n.Name+"/"+p.Name)
			}
		}
	}
	slices.Sort(pools)
	return d.hostsThat(l, d.installs.WouldInstall), pools
}

// unaccepted returns the hosts and pools that wouldInstall does at the first start of the lab, without the hosts that an admin has said
// something about, or that have booted since. There are none at a later start, and once an admin accepts them.
func (d *Daemon) unaccepted(l *lab.Lab) (hosts, pools []string) {
	if !d.state.first.Load() {
		return nil, nil
	}
	hosts, pools = d.wouldInstall(l)
	known := d.installs.All()
	return slices.DeleteFunc(hosts, func(name string) bool { _, ok := known[name]; return ok }), pools
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
func (d *Daemon) stateWarnings() (ws []string) {
	ws = d.updates.Warnings()
	if err := d.state.problem(); err != nil {
		ws = append(ws, err.Error())
	}
	if text := d.lossText(); text != "" {
		ws = append(ws, text)
	}
	if hosts := d.restoredHosts(d.current.Load().Lab); len(hosts) > 0 {
		ws = append(ws, "a restore holds "+some(hosts)+": they start from their own disks, as they may have been installed after the backup was made; "+adviceHeld)
	}
	l := d.current.Load().Lab
	hosts, pools := d.unaccepted(l)
	by := firstStart
	if !d.state.first.Load() {
		by = byReload
		hosts, pools = d.armedByReload(l)
	}
	if text := armedText(by, hosts, pools); text != "" {
		ws = append(ws, text)
	}
	return ws
}

// lossText says what happened to install states that were lost, and what to do; empty: none were.
func (d *Daemon) lossText() string {
	lost := d.installs.Lost()
	if lost == nil {
		return ""
	}
	text := fmt.Sprintf("install states were lost, noticed %s: %s. No machine with install: once is installed until an admin says so: %s",
		lost.Since.Format(time.DateTime), lost.Why, adviceLost)
	if hosts := d.unknownHosts(d.current.Load().Lab); len(hosts) > 0 {
		text += ". Unknown: " + some(hosts)
	}
	return text
}

func inPools(pools []string) (texts []string) {
	for _, p := range pools {
		texts = append(texts, "machines of pool "+p)
	}
	return texts
}

// some lists the first of many names.
func some(names []string) string {
	const few = 20
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}

// State implements httpd.Backend.
func (c *adminBackend) State(context.Context) api.State {
	l := c.current.Load().Lab
	s := api.State{Folder: c.state.folder, Database: c.state.id.ID(), Condition: api.StateKnown, Unknown: c.unknownHosts(l), Held: c.restoredHosts(l), Markers: []api.StateMarker{}}
	s.Install, s.Pools = c.wouldInstall(l)
	if err := c.state.problem(); err != nil {
		s.Problem = err.Error()
	}
	for _, m := range c.state.id.Markers() {
		marker := api.StateMarker{Path: m.Path}
		if m.Err != nil {
			marker.Err = m.Err.Error()
		}
		s.Markers = append(s.Markers, marker)
	}
	if c.state.first.Load() {
		s.Condition = api.StateFirst
	}
	if lost := c.installs.Lost(); lost != nil {
		s.Condition, s.Since, s.Reason = api.StateLost, lost.Since, lost.Why
	}
	return s
}

// AcceptState implements httpd.Backend.
func (c *adminBackend) AcceptState(ctx context.Context, database string) (api.State, error) {
	if have := c.state.id.ID(); cmp.Or(database, have) != have {
		return api.State{}, &api.Error{Status: http.StatusConflict, Message: "the daemon was restarted with another state meanwhile", Hint: "look at it again: bootlab state"}
	}
	hosts, pools := c.armedByReload(c.current.Load().Lab)
	c.state.mu.Lock()
	c.state.armed = nil
	c.state.mu.Unlock()
	if c.installs.Lost() == nil && len(c.file.Losses()) == 0 {
		if len(hosts)+len(pools) > 0 && !c.state.first.Load() {
			return c.State(ctx), nil
		}
		if c.state.first.Load() {
			if err := c.state.id.Served(ctx); err != nil {
				return api.State{}, err
			}
			c.state.first.Store(false)
			return c.State(ctx), nil
		}
		return api.State{}, &api.Error{Status: http.StatusConflict, Message: "nothing was lost: there is nothing to accept", Hint: "bootlab install HOST arms one host"}
	}
	armed := c.unknownHosts(c.current.Load().Lab)
	if err := c.installs.Accept(ctx, c.state.id.Accept); err != nil {
		return api.State{}, err
	}
	if err := c.file.AcceptLosses(ctx); err != nil {
		return api.State{}, err
	}
	c.bus.Record(event.Event{Kind: event.StateAccepted, Detail: fmt.Sprintf("%s armed: %s", lab.Plural(len(armed), "host"), some(armed))})
	return c.State(ctx), nil
}
