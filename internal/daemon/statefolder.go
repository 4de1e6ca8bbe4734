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

	"github.com/bootlab/bootlab/internal/host/privilege"
	"github.com/bootlab/bootlab/internal/lab"
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
	looked  error                // what the last look found
	armed   map[string]time.Time // hosts and, with their network, pools that reloads have armed and no admin has accepted; since when a host was as it was then
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
		d.log.Error("hosts of the lab not stored: after a restart they may count as those of another lab", "err", err)
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
		log.Error("start not stored", "err", err)
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
