package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/daemon/diskhealth"
	"github.com/bootlab/bootlab/internal/daemon/health"
	"github.com/bootlab/bootlab/internal/daemon/ports"
	"github.com/bootlab/bootlab/internal/daemon/privileges"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/daemon/statefile"
	"github.com/bootlab/bootlab/internal/daemon/vips"
	"github.com/bootlab/bootlab/internal/daemon/watch"
	"github.com/bootlab/bootlab/internal/host/file/freshfile"
	"github.com/bootlab/bootlab/internal/host/link/neighbour"
	"github.com/bootlab/bootlab/internal/host/process/confine"
	"github.com/bootlab/bootlab/internal/host/process/descriptors"
	"github.com/bootlab/bootlab/internal/host/process/memory"
	"github.com/bootlab/bootlab/internal/host/process/privilege"
	"github.com/bootlab/bootlab/internal/host/socket/handover"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/logs"
	"github.com/bootlab/bootlab/internal/observe/metrics"
	"github.com/bootlab/bootlab/internal/observe/panics"
	"github.com/bootlab/bootlab/internal/observe/timeline"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/logfile"
)

// DefaultLab is the lab file of a daemon that is started without --lab.
const DefaultLab = ports.DefaultLab

// A Config is what Run needs to start.
type Config struct {
	Lab      string // path of the lab file or folder
	Version  string // shown to people and in metrics
	Firmware string // folder of network boot programs that replace the built-in ones; empty: none
	// Program is run for each hypervisor: one that calls HypervisorProcess first. Empty: operations on virtual machines fail.
	Program string
	Log     *slog.Logger
	// LinesDropped returns how many lines the writer of Log has dropped; nil: none ever.
	LinesDropped func() int64
	Registry     *prometheus.Registry // what /metrics shows; nil: one of its own
}

// A Daemon holds all servers over one snapshot.
type Daemon struct {
	cfg       Config
	log       *slog.Logger
	serverLog *slog.Logger     // of what packets and requests cause: repeated lines become summaries
	summaries *logs.Summarizer // of serverLog
	registry  *prometheus.Registry
	started   time.Time
	namespace string                            // of the network
	labFile   string                            // absolute; empty: not known
	current   atomic.Pointer[snapshot.Snapshot] // what every server answers from
	staged    *lab.Lab                          // whose listeners were opened last
	reloads   reloads
	warned    loggedWarnings
	networks  networkFaults
	lost      lostAddresses

	conditionTimes conditionTimes

	*persistentState
	*servers
	ports         *ports.Ports
	health        *health.Servers
	handover      *handover.Handover
	storeWatch    *diskhealth.Watch
	disks         diskhealth.Folders
	files         diskhealth.Files
	certificates  *freshfile.Certificates
	bus           *event.Bus
	reloadMetrics *metrics.Lab
	timeline      *timeline.Recorder
	boot          *boot.Service
	panics        *panics.All
	neighbours    *neighbour.Resolver
	noARP         noARP
	addresses     *vips.VIPs
	file          *logfile.Store // of persistentState
	healthyOnce   *healthyOnce
	installWatch  *install.Watch
	installed     installed
	clusters      *clusters
	loops         *bootloop.Detector
	stateFolder   *stateFolder
	confined      *confine.Confinement
	memory        *memory.Follower
	pacer         *memory.Pacer
	garbage       *memory.Releaser
	shares        descriptors.Shares
}

// followMemory keeps the heap within the memory limit of the control group.
func (d *Daemon) followMemory() {
	if limit, changed := d.memory.Update(); changed {
		d.log.Info("memory limit of the control group", "heap_bytes", limit)
	}
}

// Run loads the lab and serves it until ctx ends. It returns an error if the lab is not valid, a port is in use, a server
// ended early, or the state was not stored at the stop.
func Run(ctx context.Context, cfg Config) (err error) {
	d, err := newDaemon(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.load(); err != nil {
		return err
	}
	user, err := d.openAsRoot(ctx)
	if err != nil {
		return err
	}
	if err := d.readStore(ctx); err != nil {
		return err
	}
	if err := d.buildServers(ctx); err != nil {
		return err
	}
	watcher, err := d.putInForce(ctx, user)
	if err != nil {
		return err
	}
	d.reportState(ctx)
	return d.tasks(watcher).run(ctx, d.panics, d.health, d.log, d.ready, d.stopping)
}

// newDaemon returns a daemon with what needs neither a lab nor a file.
func newDaemon(cfg Config) (*Daemon, error) {
	d := &Daemon{
		cfg: cfg, log: cfg.Log, registry: cmp.Or(cfg.Registry, prometheus.NewRegistry()), started: time.Now(), namespace: Namespace(),
		installWatch: install.NewWatch(), installed: make(installed, 1), health: health.New(),
		handover: handover.New(cfg.Log),
		loops:    bootloop.New(time.Now), summaries: logs.NewSummarizer(cfg.Log.Handler()), memory: memory.NewFollower(os.DirFS("/")), pacer: memory.NewPacer(), garbage: memory.NewReleaser(),
	}
	d.serverLog = slog.New(d.summaries)
	d.labFile, _ = filepath.Abs(cfg.Lab)
	d.certificates = freshfile.NewCertificates(slog.New(slog.DiscardHandler)) // what is wrong with them is a warning
	d.followMemory()
	var err error
	if d.panics, err = panics.New(d.registry, d.log); err != nil {
		return nil, err
	}
	dropped := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "bootlab_log_lines_dropped_total", Help: "Lines of the log that were dropped because its reader was too slow.",
	}, func() float64 {
		if cfg.LinesDropped == nil {
			return 0
		}
		return float64(cfg.LinesDropped())
	})
	d.registry.MustRegister(dropped, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return d, nil
}

// close closes what was opened, after all that uses it has ended.
func (d *Daemon) close() (err error) {
	d.pacer.Stop()
	if d.neighbours != nil {
		d.neighbours.Close()
	}
	if d.file != nil {
		err = d.file.Close()
	}
	if d.ports != nil {
		d.ports.Close()
	}
	d.summaries.Flush()
	return err
}

// load reads the lab and compiles what every server answers from. A broken lab starts nothing.
func (d *Daemon) load() error {
	snap, err := loadSnapshot(d.cfg.Lab, nil, nil, nil)
	if err != nil {
		return err
	}
	snap.Gen = 1
	d.current.Store(snap)
	return nil
}

// openAsRoot makes the folders and opens the ports, which needs root, and returns the user to become then; nil: none.
func (d *Daemon) openAsRoot(ctx context.Context) (*privilege.User, error) {
	snap := d.current.Load()
	l := snap.Lab
	if err := privilege.Raise(privileges.Kept(l.Appliance)...); err != nil {
		return nil, err
	}
	user, err := privileges.DropTo(l.Appliance, d.log)
	if err != nil {
		return nil, err
	}
	if err := privileges.TryStart(l, d.cfg.Lab, snap.Boot.Files(), user); err != nil {
		return nil, err
	}
	if err := privileges.MakeFolders(l.Appliance); err != nil {
		return nil, err
	}
	if d.ports, err = d.openPorts(ctx, l); err != nil {
		return user, errors.Join(append([]error{err}, d.dhcpInUse(snap.DHCP.Interfaces())...)...)
	}
	if user != nil {
		err = user.Bound(privileges.Kept(l.Appliance)...) // before the store is read, on every processor
	}
	return user, err
}

// readStore opens the store and reads the persistent state.
func (d *Daemon) readStore(ctx context.Context) (err error) {
	appliance := d.current.Load().Lab.Appliance
	if d.file, err = statefile.Open(appliance, d.log); err != nil {
		return err
	}
	if d.storeWatch, err = diskhealth.New(d.file, appliance.State, d.log, d.registry); err != nil {
		return err
	}
	if err := d.newBus(ctx, d.file); err != nil {
		return err
	}
	if d.persistentState, err = d.openPersistentState(ctx, d.file, d.current.Load().DHCP.Pools()...); err != nil {
		return err
	}
	defer d.saver.Flush()
	if d.stateFolder, err = d.openStateFolder(ctx, appliance.State); err != nil {
		return err
	}
	if done, err := d.followMachines(ctx, d.current.Load().Lab); err != nil { // the next start tries it again
		d.log.Error("install states do not follow hosts that have other names: they start from their disks", "err", err)
	} else {
		done()
	}
	d.storeWatch.Look() // records that could not be decoded count as lost
	return nil
}

// buildServers builds all servers. They do not serve yet.
func (d *Daemon) buildServers(ctx context.Context) (err error) {
	d.neighbours, d.noARP.err = neighbour.Open()
	if d.clusters, err = d.openClusters(ctx); err != nil {
		return err
	}
	if d.addresses, err = vips.Open(ctx, vips.Deps{
		Lab:  func() *lab.Lab { return d.current.Load().Lab },
		Book: d.book, Store: d.store, Saver: d.saver, Events: d.bus, Log: d.serverLog, Registerer: d.registry,
	}); err != nil {
		return err
	}
	if d.servers, err = d.build(); err != nil {
		return err
	}
	if d.healthyOnce, err = d.openHealthyOnce(ctx); err != nil {
		return err
	}
	if err := d.registry.Register(health.NewCollector(func() []api.Server { return d.serverStates(d.current.Load()) }, d.shares)); err != nil {
		return fmt.Errorf("register metrics of the servers: %w", err)
	}
	if err := d.registry.Register(newConditionCollector(func() []api.Condition { return d.conditions(d.current.Load()) })); err != nil {
		return fmt.Errorf("register metrics of the conditions: %w", err)
	}
	return d.useUpdates(d.updates.List())
}

// putInForce opens the listeners of the servers, drops root, and makes the servers answer from the lab. It returns what watches the lab file from now on.
func (d *Daemon) putInForce(ctx context.Context, user *privilege.User) (*watch.Watcher, error) {
	snap := d.current.Load()
	change, err := d.stage(snap)
	if err != nil {
		return nil, err
	}
	d.stateFolder.keep(ctx, user, d.log)
	if err := privileges.Drop(user, snap.Lab); err != nil {
		return nil, err
	}
	if d.confined, err = privileges.Confine(snap.Lab, d.cfg.Lab, d.cfg.Firmware, d.log); err != nil {
		return nil, err
	}
	watcher, err := watch.New(d.cfg.Lab, func() []string { return d.current.Load().DNS.Files() }, d.log)
	if err != nil {
		return nil, err
	}
	change.commit()
	d.handover.CloseOthers()
	d.reloadMetrics.Started(snap.Lab.Name, len(snap.Lab.Hosts), snap.Gen, snap.At)
	return watcher, nil
}

// newBus makes the bus that all servers send their events to.
func (d *Daemon) newBus(ctx context.Context, s store.Store) error {
	counts, err := metrics.NewRecorder(d.registry)
	if err != nil {
		return err
	}
	if d.reloadMetrics, err = metrics.NewLab(d.registry, d.cfg.Version); err != nil {
		return err
	}
	d.timeline, err = timeline.Open(ctx, timeline.Config{}, timeline.Deps{Store: s, Log: d.serverLog, Registerer: d.registry})
	if err != nil {
		return err
	}
	d.bus = event.NewBus(event.BusConfig{
		Now: time.Now, Identify: d.identify,
		Recorders: []event.Recorder{logs.New(d.log), d.timeline}, Counters: []event.Recorder{counts, d.installWatch, d.installed, received{d.loops}},
	})
	return nil
}

// ready is called once every server was started.
func (d *Daemon) ready() {
	s := d.current.Load()
	d.logListening(s)
	d.warn(s)
	d.bus.Record(event.Event{Kind: event.DaemonReady, Detail: s.Lab.Summary(), Dur: time.Since(d.started)})
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady) // an error means no systemd
	debug.FreeOSMemory()                                // garbage of the load
	d.pacer.Follow()
}

// logListening logs where each server listens, and where people find the daemon.
func (d *Daemon) logListening(of *snapshot.Snapshot) {
	for _, s := range d.serverStates(of) {
		switch (api.Status{}).StateOf(s) {
		case api.StatePartly:
			d.log.Warn("server is partly serving", "server", s.Name, "addrs", s.Addrs, "err", s.Err)
		case api.StateDown:
			d.log.Error("server is not serving", "server", s.Name, "err", s.Err)
		default:
			if len(s.Addrs) > 0 {
				d.log.Info("listening", "server", s.Name, "addrs", s.Addrs)
			}
		}
	}
	appliance := of.Lab.Appliance
	who := strconv.Itoa(os.Geteuid())
	if u, err := user.LookupId(who); err == nil {
		who = u.Username
	}
	d.log.Info("started", "lab", d.cfg.Lab, "user", who, "dashboard", dashboardURL(appliance.Admin[0]), "admin_socket", appliance.AdminSocket, "version", d.cfg.Version)
}

// dashboardURL returns where a browser on this machine finds the dashboard.
func dashboardURL(listen netip.AddrPort) string {
	addr := listen.Addr()
	if !addr.IsValid() || addr.IsUnspecified() {
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return "http://" + netip.AddrPortFrom(addr, listen.Port()).String() + "/"
}

// stopping is called once, before the first server is stopped.
func (d *Daemon) stopping() {
	d.handover.Stop()
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	d.bus.Flush()
	d.bus.Record(event.Event{Kind: event.DaemonStopping})
	d.healthyOnce.update(d.serverLog)
}

// table returns a function that gives one server's part of the current snapshot.
func table[T any](d *Daemon, part func(*snapshot.Snapshot) *T) func() *T {
	return func() *T { return part(d.current.Load()) }
}
