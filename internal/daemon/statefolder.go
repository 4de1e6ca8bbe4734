package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/daemon/diskhealth"
	"github.com/bootlab/bootlab/internal/daemon/statefile"
	"github.com/bootlab/bootlab/internal/host/process/privilege"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/identity"
	"github.com/bootlab/bootlab/internal/store/logfile"
	"github.com/bootlab/bootlab/internal/store/records"
)

// A stateFolder is the folder of the state, with what was found there.
type stateFolder struct {
	path   string
	opened os.FileInfo // of the folder, when its store was opened
	store  store.Store
	id     *identity.Identity
	first  atomic.Bool     // this is the first start of the lab, and no admin has accepted what it installs
	warned string          // of watchState: what was logged
	marked map[string]bool // of watchMarkers: the paths of the markers that were logged

	checking sync.Mutex // held by problem, which a disk that hangs may never leave
	mu       sync.Mutex
	found    *diskhealth.Misplaced // what the last check found
	armed    map[string]time.Time  // hosts and, with their network, pools that reloads have armed and no admin has accepted; since when a host was as it was then
}

// openStateFolder compares the store with its markers, in the state folder and beside the lab. If the state was lost, no machine is installed
// before an admin says so.
func (d *Daemon) openStateFolder(ctx context.Context, folder string) (*stateFolder, error) {
	s := &stateFolder{path: folder, store: d.store}
	var err error
	if s.opened, err = os.Stat(folder); err != nil {
		return nil, fmt.Errorf("appliance.state: %w", err)
	}
	if s.id, err = identity.Find(ctx, d.store, hostMACs(d.current.Load().Lab), statefile.Left(folder), filepath.Join(folder, identity.InFolder), identity.BesideLab(d.cfg.Lab)); err != nil {
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
	op, changed := d.stateFolder.id.Reloaded(hostMACs(l))
	if !changed {
		return
	}
	if err := d.saver.Save(op); err != nil && !errors.Is(err, records.ErrSaving) {
		d.log.Error("hosts of the lab not stored: after a restart they may count as those of another lab", "err", err)
	}
}

// MetricStateLost is 1 while install states are lost.
const MetricStateLost = "bootlab_state_lost"

// keep notes that the store is in use. The daemon's user may not write beside the lab file, so this is done before it becomes that user.
// A disk that takes no writes is no reason not to start: the markers stay as they are.
func (s *stateFolder) keep(ctx context.Context, user *privilege.User, log *slog.Logger) {
	var owner *identity.Owner
	if user != nil {
		owner = &identity.Owner{UID: user.UID, GID: user.GID}
	}
	if err := s.id.Keep(ctx, owner); err != nil {
		log.Error("start not stored", "err", err)
	}
}

// check returns an error that says what to do if what the store keeps would not outlive the process.
func (s *stateFolder) check() *diskhealth.Misplaced {
	now, err := os.Stat(s.path)
	gone := errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, s.opened)
	if file, ok := s.store.(interface{ Unlinked() bool }); gone && ok && file.Unlinked() {
		return misplaced("state folder was removed", "state folder %s was removed while in use: run bootlab backup FILE now, while bootlab runs, then stop it, "+
			"run bootlab restore FILE, and start it; a stop without that loses what the folder held", s.path)
	}
	if gone {
		return s.replaced()
	}
	if file, ok := s.store.(interface{ Check() error }); ok {
		if err := file.Check(); err != nil {
			return &diskhealth.Misplaced{Cause: fileCause(err), Text: err.Error()}
		}
	}
	return nil
}

// fileCause returns in a few words why the state file is not in its place; empty: it is, and needs attention for another reason.
func fileCause(err error) string {
	switch {
	case errors.Is(err, logfile.ErrRemoved):
		return "state file was removed"
	case errors.Is(err, logfile.ErrReplaced):
		return "state file was replaced"
	}
	return ""
}

// replaced says what to do about another folder in the place of the state folder, or none.
func (s *stateFolder) replaced() *diskhealth.Misplaced {
	const mounted = "lost state is mounted again"
	back, err := s.id.Back(filepath.Join(s.path, identity.InFolder))
	switch {
	case back:
		return misplaced(mounted, "the state that was lost is in %s again: restart bootlab, which then uses it; what was stored since the last start is not in it", s.path)
	case s.id.Lost() != "" && err != nil: // the confined daemon may not read what is mounted later
		return misplaced(mounted, "state folder %s was mounted or replaced while in use: if it has the state that was lost, restart bootlab, which then uses it", s.path)
	}
	return misplaced("state folder was unmounted or replaced", "state folder %s was unmounted or replaced while in use: put it back before bootlab is restarted: "+
		"the folder that is there now does not have the state", s.path)
}

func misplaced(cause, format string, args ...any) *diskhealth.Misplaced {
	return &diskhealth.Misplaced{Cause: cause, Text: fmt.Sprintf(format, args...)}
}

// problem returns what check found just now, or earlier where the disk does not answer.
func (s *stateFolder) problem() *diskhealth.Misplaced {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if !s.checking.TryLock() {
			return // another check has not ended
		}
		defer s.checking.Unlock()
		found := s.check()
		s.id.Look()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.found = found
	}()
	timer := time.NewTimer(records.SaveWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	return s.lastProblem()
}

// lastProblem returns what problem found last.
func (s *stateFolder) lastProblem() *diskhealth.Misplaced {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found
}

// checkState notes whether the folder and the file are in their place: the watch of the store logs and reports that. It returns what else is
// wrong with the file; empty: nothing.
func (d *Daemon) checkState() (file string) {
	place := d.stateFolder.problem()
	if place != nil && place.Cause == "" {
		place, file = nil, place.Text
	}
	d.storeWatch.Note(place)
	return file
}

// watchState logs once that the state file needs attention, and that it does not any more. One goroutine calls it.
func (d *Daemon) watchState() {
	now := d.checkState()
	switch {
	case now == d.stateFolder.warned:
	case now != "":
		d.log.Error("state file needs attention", "err", now)
	default:
		d.log.Info("state file: a problem has ended", "was", d.stateFolder.warned)
	}
	d.stateFolder.warned = now
}

// installed is a recorder of installs that have ended.
type installed chan struct{}

// Record implements event.Recorder.
func (i installed) Record(e event.Event) {
	if e.Kind != event.InstallDone && e.Kind != event.InstallTimeout {
		return
	}
	select {
	case i <- struct{}{}:
	default: // it is known that there is one
	}
}

const (
	advanceEvery = time.Second     // installs that end within it share one write
	lastAdvance  = 2 * time.Second // how long the disk has for it at the stop
)

// countInstalls lets the markers of the state follow installs, until ctx ends. No machine waits for it. What the disk does not take is
// tried again; the watch of the store logs why.
func (d *Daemon) countInstalls(ctx context.Context) error {
	tick := time.NewTicker(advanceEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			d.countInstalled(ctx)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAdvance)
	defer cancel()
	d.countInstalled(ctx)
	return nil
}

func (d *Daemon) countInstalled(ctx context.Context) {
	select {
	case <-d.installed:
		if d.stateFolder.id.Advance(ctx) != nil {
			d.installed.Record(event.Event{Kind: event.InstallDone})
		}
	default:
	}
}
