package virt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/host/required"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/panics"
)

// A Config tunes a Server. The zero value is the default.
type Config struct {
	Timeout      time.Duration // of an operation; default 1 minute
	ShutdownWait time.Duration // how long Stop waits for a system to shut down; default 1 minute
	UploadWait   time.Duration // timeout of Create with an image, which may have to be uploaded; default 30 minutes
	Refresh      time.Duration // interval at which hypervisors are asked for all machines, as changes may be missed; default 15 seconds
	ListWait     time.Duration // how long List waits for hypervisors that are not known to be down; default 1 second
}

// Deps are what a Server needs. Table, Events, Log, Registerer and Now are required.
type Deps struct {
	Table      func() *Table
	Events     event.Recorder
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Panics     *panics.Server // counts contained panics; nil: they are only logged
	Now        func() time.Time
	Driver     Driver              // nil: one that has no program for its processes, so that every operation fails
	Unpacker   Unpacker            // nil: images are not compressed
	Placements Store[Placement]    // nil: kept in memory only
	Answered   Store[Answered]     // by hypervisor; nil: kept in memory only. It must not outlive Placements
	NextBoots  Store[NextBoot]     // nil: kept in memory only
	Starts     Store[PendingStart] // nil: kept in memory only
	Consoles   ConsoleLog          // nil: serial consoles are not opened
}

// MetricOperationSeconds is the histogram of operations, by operation and result ("ok" or "failed").
const MetricOperationSeconds = "bootlab_virt_operation_duration_seconds"

// MetricHypervisors is the number of hypervisors of the lab, by state: "up", "down" or "unknown", not asked yet.
const MetricHypervisors = "bootlab_virt_hypervisors"

// A Server manages the virtual machines of the lab. Its methods are safe for concurrent use; a second operation on the same
// host fails while one is in progress.
type Server struct {
	cfg         Config
	deps        Deps
	connections *connections
	seconds     *prometheus.HistogramVec

	placements placements
	answered   persistent[Answered] // by hypervisor
	nextBoots  persistent[NextBoot]
	starts     persistent[PendingStart]
	consoles   *consoles

	placed   atomic.Pointer[placedTable]
	choosing sync.Mutex // held while a hypervisor is chosen

	mu   sync.Mutex
	busy map[string]string // operation in progress, by host
	// uploading has a channel for each image that is being uploaded to a pool, closed at the end.
	uploading map[string]chan struct{}
	// observed has what each hypervisor that was asked answered last, by URI.
	observed map[string]*observation
}

// New returns a Server. It connects to a hypervisor at the first operation.
func New(cfg Config, deps Deps) (*Server, error) {
	required.Fields(deps, "Panics", "Driver", "Unpacker", "Placements", "Answered", "NextBoots", "Starts", "Consoles")
	if deps.Driver == nil {
		deps.Driver = &Processes{Log: deps.Log}
	}
	deps.Panics = cmp.Or(deps.Panics, panics.LogOnly(deps.Log, "virt"))
	cfg = cfg.withDefaults()
	s := &Server{
		cfg:         cfg,
		deps:        deps,
		connections: &connections{driver: deps.Driver, byURI: map[string]Hypervisor{}},
		uploading:   map[string]chan struct{}{},
		busy:        map[string]string{},
		observed:    map[string]*observation{},
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    MetricOperationSeconds,
			Help:    "Duration of operations on virtual machines.",
			Buckets: []float64{.05, .25, 1, 5, 15, 60},
		}, []string{"operation", "result"}),
	}
	s.connections.changed = s.changed
	s.consoles = &consoles{server: s, log: s.deps.Consoles, byURI: map[string]*hypervisorConsoles{}, followers: map[string]map[chan ConsoleOutput]*follower{}}
	if err := s.placements.load(context.Background(), deps.Placements); err != nil {
		return nil, fmt.Errorf("load where virtual machines are: %w", err)
	}
	if err := s.answered.load(context.Background(), deps.Answered); err != nil {
		return nil, fmt.Errorf("load which hypervisors have answered: %w", err)
	}
	if err := s.nextBoots.load(context.Background(), deps.NextBoots); err != nil {
		return nil, fmt.Errorf("load the next boots of virtual machines: %w", err)
	}
	if err := s.starts.load(context.Background(), deps.Starts); err != nil {
		return nil, fmt.Errorf("load which virtual machines are to be started: %w", err)
	}
	metrics := []prometheus.Collector{s.seconds}
	for _, state := range []string{"up", "down", "unknown"} {
		metrics = append(metrics, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: MetricHypervisors, Help: "Hypervisors of the lab, by whether they answered last: up, down, or unknown before the first answer.",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return s.hypervisorsIn(state) }))
	}
	for _, m := range metrics {
		if err := deps.Registerer.Register(m); err != nil {
			return nil, fmt.Errorf("register metrics of virt: %w", err)
		}
	}
	return s, nil
}

func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = time.Minute
	}
	if c.ShutdownWait == 0 {
		c.ShutdownWait = time.Minute
	}
	if c.UploadWait == 0 {
		c.UploadWait = 30 * time.Minute
	}
	if c.Refresh == 0 {
		c.Refresh = 15 * time.Second
	}
	if c.ListWait == 0 {
		c.ListWait = time.Second
	}
	return c
}

// closeWait is how long Serve waits for calls in progress when it ends.
const closeWait = 5 * time.Second

// Serve refreshes the state of the hypervisors until ctx ends, closes the connections to the hypervisors and returns nil.
func (s *Server) Serve(ctx context.Context) error {
	s.consoles.start(ctx)
	s.refreshAll(ctx)
	s.consoles.wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	if !s.connections.close(ctx) {
		s.deps.Log.Warn("hypervisor does not answer: operations were ended")
	}
	return nil
}

// An operation is an operation on one machine.
type operation struct {
	name string
	kind event.Kind // recorded when it changed something
	// redefined reports, once do has returned, that the domain was there before: the kind is then VMChanged. nil: it does not define any.
	redefined func() bool
	// places says that it makes the machine as the lab file has it: on the hypervisor there, or on one that is chosen if it has none yet. All
	// other operations are on the hypervisor that has the machine.
	places bool
	// timeout returns how long it may take; nil: Config.Timeout.
	timeout func(*machine) time.Duration
	// do works on the machine and reports whether it changed anything.
	do func(context.Context, Hypervisor, *machine) (changed bool, err error)
}

// run runs op on the machine of a host, with a timeout, a metric and an event. One operation runs on a host at a time.
func (s *Server) run(ctx context.Context, host string, op operation) error {
	as := s.where
	if op.places {
		as = asInLab
	}
	m, err := s.seek(ctx, host, as)
	switch {
	case err != nil:
		return err
	case !m.isPlaced() && op.places:
		m, err = s.choose(ctx, host)
	case !m.isPlaced():
		m, err = s.placedMachine(ctx, host)
	}
	if err != nil {
		err = fmt.Errorf("%s VM %s: %w", op.name, host, err)
		if isRefused(err) {
			return err
		}
		s.deps.Events.Record(event.Event{Kind: event.VMFailed, Host: host, Detail: op.name, Err: err.Error()})
		return err
	}
	return s.runOn(ctx, m, m.vm.Hypervisor, op)
}

func (s *Server) runOn(ctx context.Context, m *machine, hv *lab.Hypervisor, op operation) error {
	host := m.host.Name
	if err := s.claim(host, op.name); err != nil {
		return err
	}
	defer s.release(host)
	timeout := s.cfg.Timeout
	if op.timeout != nil {
		timeout = op.timeout(m)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	start := s.deps.Now()
	var changed bool
	err := s.connections.use(hv, func(h Hypervisor) error {
		err := s.deps.Panics.Run(func() (err error) { changed, err = op.do(ctx, h, m); return err })
		if changed && ctx.Err() == nil { // List shows the change at once
			_ = s.observeDomain(ctx, hv, h, m.uuid, m.host.Name)
		}
		if errors.As(err, new(unreachable)) { // no request waits for it from now on
			s.observationOf(hv).failed(err, s.deps.Now())
		}
		return err
	})
	took := s.deps.Now().Sub(start)
	if err != nil {
		err = fmt.Errorf("%s VM %s on hypervisor %s: %w", op.name, host, hv.Name, m.hinted(err, hv))
		if errors.Is(err, context.Canceled) { // who asked has gone: nothing has failed
			s.deps.Log.Info("operation on a virtual machine was interrupted", "host", host, "operation", op.name, "err", err)
			return err
		}
		s.seconds.WithLabelValues(op.name, "failed").Observe(took.Seconds())
		if isRefused(err) { // who asked is answered, and no boot has failed
			return err
		}
		s.record(m, event.Event{Kind: event.VMFailed, Detail: op.name + " on " + hv.Name, Err: err.Error(), Dur: took})
		return err
	}
	s.seconds.WithLabelValues(op.name, "ok").Observe(took.Seconds())
	if changed {
		kind := op.kind
		if op.redefined != nil && op.redefined() {
			kind = event.VMChanged
		}
		s.record(m, event.Event{Kind: kind, Detail: hv.Name, Dur: took})
	}
	return nil
}

func (s *Server) record(m *machine, e event.Event) {
	e.Host = m.host.Name
	if len(m.host.MACs) > 0 {
		e.MAC = m.host.MACs[0]
	}
	s.deps.Events.Record(e)
}

func (s *Server) claim(host, op string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.busy[host]; other != "" {
		return fmt.Errorf("%s VM %s: operation %q is in progress: %w", op, host, other, ErrBusy)
	}
	s.busy[host] = op
	return nil
}

func (s *Server) release(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, host)
}

// ErrBusy is wrapped by the error of an operation on a machine on which another is in progress.
var ErrBusy = errors.New("try again later")

// ErrNoVM is wrapped by the error of an operation on a name that no virtual machine of the lab has.
var ErrNoVM = errors.New("not a virtual machine")

// ErrAbsent is wrapped by the error of an operation on a host without a domain.
var ErrAbsent error = refused("no such VM: create it first (bootlab vm create)")

// A refused is why an operation has nothing to do: what it names does not exist. It is the answer to who asked, and no event of a boot.
type refused string

// Error implements error.
func (r refused) Error() string { return string(r) }

// errNothingToDelete is ErrAbsent for who wants to delete.
const errNothingToDelete = refused("no such VM: nothing to delete")

// Is implements the interface of errors.Is.
func (r refused) Is(target error) bool { return r == errNothingToDelete && target == ErrAbsent }

func isRefused(err error) bool { return errors.As(err, new(refused)) }
