package diskhealth

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/observe/metrics"
	"github.com/bootlab/bootlab/internal/store/logfile"
)

const (
	// slowSync is how long a write may take, whatever else uses the disk, until the store is degraded. A DHCP client repeats its request
	// after some four seconds.
	slowSync = time.Second
	// SlowAlone is how long one write may take before any machine boots. While many boot, and images are written, the same disk takes
	// several times as long.
	SlowAlone = slowSync / 10
	// Hangs is after how long without an answer a disk is reported.
	Hangs = 5 * slowSync
	// slowLasts is how long one slow write is reported.
	slowLasts = time.Minute
	// ReportEvery is how often the log has the begin of one problem, if it comes and goes.
	ReportEvery = time.Minute
	// minFreeBytes and minFreeInodes are what the file system of the state folder should have free: a compaction needs space for
	// a second state file.
	minFreeBytes  = 64 << 20
	minFreeInodes = 1000
)

// The causes for which the store is degraded, besides the errors of the operating system.
const (
	causeReadOnly = "read-only file system"
	causeSlow     = "slow disk"
	CauseHangs    = "disk does not respond"
	causeSpace    = "little free space"
	causeLost     = "stored changes were lost"
)

// A Misplaced is why the folder or the file of the store is not where the next start looks for it.
type Misplaced struct {
	Cause string // a few words without names; empty: it is in its place, and Text says what else is wrong with the file
	Text  string // for people: what happened, where, what to do
}

// Error returns the text.
func (m *Misplaced) Error() string { return m.Text }

// A Watch observes the store and the file system of its folder.
type Watch struct {
	store *logfile.Store
	dir   string
	log   *slog.Logger
	syncs prometheus.Histogram

	looking  sync.Mutex // held by Look, which a disk that hangs may never leave
	mu       sync.Mutex
	disk     Disk
	place    *Misplaced
	losses   []logfile.Loss
	began    time.Time // of the look in progress; zero: there is none
	reported []*loggedProblem
}

// A Disk is what a file system says of itself.
type Disk struct {
	Err          error
	ReadOnly     bool
	Bytes        uint64 // free for the daemon's user
	Inodes       uint64 // likewise
	CountsInodes bool
}

// Shortage says how much is free, if that is too little, and what would be enough; "": it is enough.
func (d Disk) Shortage() string {
	if d.Bytes >= minFreeBytes && (!d.CountsInodes || d.Inodes >= minFreeInodes) {
		return ""
	}
	return fmt.Sprintf("%d KiB and %d inodes free, fewer than %d KiB or %d", d.Bytes>>10, d.Inodes, minFreeBytes>>10, minFreeInodes)
}

// A problem is one reason why the store is degraded.
type problem struct {
	cause string    // a few words without names: /readyz is open to anyone
	since time.Time // zero: not known
	text  string    // for people: what happened, where, what to do
}

// A loggedProblem is one that the log has, or had less than a minute ago.
type loggedProblem struct {
	problem
	at    time.Time // of the line that it began
	open  bool      // no line says that it ended
	lasts bool
	times int // that it began since that line
}

// New makes the watch, with a first look.
func New(s *logfile.Store, dir string, log *slog.Logger, r prometheus.Registerer) (*Watch, error) {
	w := &Watch{store: s, dir: dir, log: log, syncs: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: MetricStoreSync, Help: "Time to write changes to the state file and sync it.",
		Buckets: []float64{0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10},
	})}
	for _, c := range []prometheus.Collector{w.syncs, newCollector(w)} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of the store: %w", err)
		}
	}
	s.ObserveSyncs(func(took time.Duration) { w.syncs.Observe(took.Seconds()) })
	w.Look()
	return w, nil
}

// Run looks once a second, and logs what is new.
func (w *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		go w.Look() // not waited for: a system call on a disk that hangs cannot be ended
		w.report(time.Now(), w.problems())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Look asks the disk, unless the last look has not ended yet.
func (w *Watch) Look() {
	if !w.looking.TryLock() {
		return
	}
	defer w.looking.Unlock()
	w.mu.Lock()
	w.began = time.Now()
	w.mu.Unlock()
	disk, losses := Stat(w.dir), w.store.Losses()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disk, w.losses, w.began = disk, losses, time.Time{}
}

// Note says whether the folder and the file of the store are in their place; nil: they are.
func (w *Watch) Note(place *Misplaced) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.place = place
}

// Stat asks the file system of a folder. It hangs as the disk does.
func Stat(dir string) Disk {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return Disk{Err: err}
	}
	return Disk{
		ReadOnly: s.Flags&unix.ST_RDONLY != 0 || refusesWrites(filepath.Join(dir, logfile.Name)), Bytes: s.Bavail * uint64(s.Bsize), Inodes: s.Ffree, CountsInodes: s.Files > 0,
	}
}

// refusesWrites reports whether the file system of a file is read-only although statfs does not say so: since Linux 6.15 ext4 sets no flag
// when it makes itself read-only after an error. To open the file for writing changes nothing.
func refusesWrites(path string) bool {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return errors.Is(err, unix.EROFS)
}

// problems returns why the store is degraded; nothing while it is not.
func (w *Watch) problems() (ps []problem) {
	now, h := time.Now(), w.store.DiskStatus()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.place != nil {
		ps = append(ps, problem{w.place.Cause, time.Time{}, w.place.Text})
	}
	if h.Err != nil {
		ps = append(ps, problem{cause(h.Err), h.Since, fmt.Sprintf(
			"changes cannot be stored since %s: no new leases are given and no install begins: %s: %v", h.Since.Format(time.TimeOnly), w.Advice(h.Err), h.Err)})
	}
	switch d := w.disk; {
	case w.silentLocked(now, h) > Hangs:
		silent := w.silentLocked(now, h)
		ps = append(ps, problem{CauseHangs, now.Add(-silent), fmt.Sprintf("the disk of %s has not answered for %v: check it", w.dir, silent.Round(time.Second))})
	case h.Running > slowSync, h.Took > slowSync && now.Sub(h.Synced) < slowLasts:
		ps = append(ps, problem{causeSlow, time.Time{}, fmt.Sprintf(
			"a write to the disk of %s took %v: machines wait for their leases: check the disk and what else uses it", w.dir, max(h.Running, h.Took).Round(time.Millisecond))})
	case errors.Is(d.Err, fs.ErrNotExist) && w.place != nil: // which says it
	case d.Err != nil:
		ps = append(ps, problem{cause(d.Err), time.Time{}, fmt.Sprintf("read the free space of %s: %v", w.dir, d.Err)})
	case d.ReadOnly && !errors.Is(h.Err, syscall.EROFS):
		ps = append(ps, problem{causeReadOnly, time.Time{}, fmt.Sprintf("the file system of %s is read-only: %s", w.dir, w.Advice(syscall.EROFS))})
	}
	if short := w.disk.Shortage(); w.disk.Err == nil && short != "" {
		ps = append(ps, problem{causeSpace, time.Time{}, fmt.Sprintf("the file system of %s has %s: free some", w.dir, short)})
	}
	for _, l := range w.losses {
		ps = append(ps, problem{causeLost, l.Found, fmt.Sprintf(
			"stored changes were lost, found %s: %s: put back a backup, or check the machines that bootlab state names, then bootlab state accept-new ends "+
				"this; the damaged file is kept as %s (%s)", l.Found.Format(time.DateTime), l, l.Copy, lossesPage)})
	}
	return ps
}

// silentLocked returns for how long the disk has not answered what it is asked.
func (w *Watch) silentLocked(now time.Time, h logfile.DiskStatus) time.Duration {
	if w.began.IsZero() {
		return h.Running
	}
	return max(h.Running, now.Sub(w.began))
}

// Hangs returns for how long the disk has not answered, once it is reported for that; 0: it is not.
func (w *Watch) Hangs() time.Duration {
	h := w.store.DiskStatus()
	w.mu.Lock()
	defer w.mu.Unlock()
	if silent := w.silentLocked(time.Now(), h); silent > Hangs {
		return silent
	}
	return 0
}

// Folder returns the folder that is watched.
func (w *Watch) Folder() string { return w.dir }

// lossesPage says what to do about losses.
const lossesPage = "docs/operations.md#a-damaged-state-file"

// cause returns why in words that name no address and no host.
func cause(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return "see bootlab status"
}

// Advice says what to do about an error of the disk.
func (w *Watch) Advice(err error) string { return Advice(w.dir, err) }

// Advice says what to do about an error of the disk of a state folder.
func Advice(dir string, err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free space on the file system of " + dir
	case errors.Is(err, syscall.EROFS):
		return "the kernel makes a file system read-only after an error: check dmesg and the disk, repair and remount it with bootlab stopped, " +
			"and see that " + dir + " is in ReadWritePaths of the systemd unit"
	default:
		return "check the disk of " + dir
	}
}

// report logs problems that are new, and those that ended, each at most once a minute: a disk that is almost full fails and works in turn. It
// logs nothing while they stay the same.
func (w *Watch) report(now time.Time, ps []problem) {
	for _, p := range ps {
		l := w.logged(p)
		if !l.lasts {
			l.lasts = true
			l.times++
		}
		if l.open || now.Sub(l.at) < ReportEvery {
			continue
		}
		w.log.Error("state store is degraded", "cause", p.cause, "detail", p.text, "times", l.times)
		l.open, l.at, l.times = true, now, 0
	}
	w.reported = slices.DeleteFunc(w.reported, func(l *loggedProblem) bool {
		if slices.ContainsFunc(ps, l.same) {
			return false
		}
		if l.open {
			w.log.Info("state store: a problem has ended", "cause", l.cause)
		}
		l.lasts, l.open = false, false
		return now.Sub(l.at) >= ReportEvery
	})
}

// logged returns what the log has of a problem.
func (w *Watch) logged(p problem) *loggedProblem {
	i := slices.IndexFunc(w.reported, func(l *loggedProblem) bool { return l.same(p) })
	if i < 0 {
		i = len(w.reported)
		w.reported = append(w.reported, &loggedProblem{problem: p})
	}
	return w.reported[i]
}

// same reports whether two are one problem. Each loss is one of its own.
func (p problem) same(o problem) bool {
	return o.cause == p.cause && (p.cause != causeLost || o.since.Equal(p.since))
}

// Status returns the state of the store for people.
func (w *Watch) Status() api.Store {
	h := w.store.DiskStatus()
	w.mu.Lock()
	s := api.Store{Folder: w.dir, Synced: h.Synced, Took: h.Took, FreeBytes: w.disk.Bytes, FreeInodes: w.disk.Inodes, FreeUnknown: w.disk.Err != nil}
	w.mu.Unlock()
	for _, p := range w.problems() {
		s.Problems = append(s.Problems, p.text)
		if !slices.Contains(s.Causes, p.cause) {
			s.Causes = append(s.Causes, p.cause)
		}
	}
	return s
}

// The metrics of the store.
const (
	MetricStoreSync       = "bootlab_store_sync_duration_seconds"
	MetricStoreDegraded   = "bootlab_store_degraded"
	MetricStoreSynced     = "bootlab_store_last_sync_timestamp_seconds"
	MetricStoreFreeBytes  = "bootlab_store_free_bytes"
	MetricStoreFreeInodes = "bootlab_store_free_inodes"
	MetricStoreLosses     = "bootlab_store_losses"
)

// newCollector reads the state of the store.
func newCollector(w *Watch) *metrics.Gauges {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	degraded := desc(MetricStoreDegraded, "1 while /readyz says that the store is degraded, else 0.")
	synced := desc(MetricStoreSynced, "Time of the last write to the state file that is on disk, in seconds since 1970; 0 before the first.")
	freeBytes := desc(MetricStoreFreeBytes, "Free space of the state folder's file system.")
	freeInodes := desc(MetricStoreFreeInodes, "Free inodes of the state folder's file system.")
	lost := desc(MetricStoreLosses, "Losses of stored changes that no admin has accepted.")
	return metrics.NewGauges(func(set metrics.Gauge) {
		s := w.Status()
		set(degraded, float64(min(1, len(s.Causes))))
		at := 0.0
		if !s.Synced.IsZero() {
			at = float64(s.Synced.UnixMilli()) / 1000
		}
		set(synced, at)
		set(freeBytes, float64(s.FreeBytes))
		set(freeInodes, float64(s.FreeInodes))
		w.mu.Lock()
		losses := len(w.losses)
		w.mu.Unlock()
		set(lost, float64(losses))
	}, degraded, synced, freeBytes, freeInodes, lost)
}
