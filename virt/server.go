package virt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A Config is what may be set about a Server. The zero value is the default.
type Config struct {
	Timeout      time.Duration // of one operation on one machine; default 1 minute
	ShutdownWait time.Duration // how long Stop waits for a guest that was asked to power off; default 1 minute
	UploadWait   time.Duration // of the creation of a machine whose image has to be uploaded; default 30 minutes
	Calls        int           // at a time to one hypervisor; default 4
}

// Deps are what a Server works with. Table, Events, Log, Registerer and Now are required.
type Deps struct {
	Table      func() *Table
	Events     event.Recorder
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
	Driver     Driver // nil: libvirt
	Images     Images // nil: machines that are made from an image are refused
}

// MetricOperationSeconds is how long operations took, by operation and result ("ok" or "failed").
const MetricOperationSeconds = "bootlab_virt_operation_duration_seconds"

// A Server does what it is asked with the virtual machines of the lab. Its methods are safe for concurrent use; two
// operations on one host at once are refused.
type Server struct {
	cfg     Config
	deps    Deps
	links   *links
	seconds *prometheus.HistogramVec

	uploading chan struct{} // holds one while an image is uploaded

	mu   sync.Mutex
	busy map[string]string // host -> operation under way
}

// New returns a Server. It connects to nothing until it is asked for something.
func New(cfg Config, deps Deps) (*Server, error) {
	switch {
	case deps.Table == nil:
		panic("virt: Deps.Table is nil")
	case deps.Events == nil:
		panic("virt: Deps.Events is nil")
	case deps.Log == nil:
		panic("virt: Deps.Log is nil")
	case deps.Registerer == nil:
		panic("virt: Deps.Registerer is nil")
	case deps.Now == nil:
		panic("virt: Deps.Now is nil")
	}
	if deps.Driver == nil {
		deps.Driver = newLibvirt()
	}
	cfg = cfg.withDefaults()
	s := &Server{
		cfg:       cfg,
		deps:      deps,
		uploading: make(chan struct{}, 1),
		links:     &links{driver: deps.Driver, limit: cfg.Calls, byURI: map[string]*link{}},
		busy:      map[string]string{},
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    MetricOperationSeconds,
			Help:    "How long operations on virtual machines took.",
			Buckets: []float64{.05, .25, 1, 5, 15, 60},
		}, []string{"operation", "result"}),
	}
	if err := deps.Registerer.Register(s.seconds); err != nil {
		return nil, fmt.Errorf("register metrics of virt: %w", err)
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
	if c.Calls == 0 {
		c.Calls = 4
	}
	return c
}

// closeWait is how long Serve waits for calls under way when it ends.
const closeWait = 5 * time.Second

// Serve holds the connections until ctx ends, then closes them and returns nil.
func (s *Server) Serve(ctx context.Context) error {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	if !s.links.close(ctx) {
		s.deps.Log.Warn("hypervisor does not answer; its connection is left open")
	}
	return nil
}

// An operation is one thing to do with one machine.
type operation struct {
	name string
	kind event.Kind // recorded when it changed something
	// timeout returns how long it may take; nil: Config.Timeout.
	timeout func(*machine) time.Duration
	// do works on the machine and reports whether it changed anything.
	do func(context.Context, Hypervisor, *machine) (changed bool, err error)
}

// run does op with the machine of a host: one at a time, in bounded time, measured and recorded.
func (s *Server) run(ctx context.Context, host string, op operation) error {
	t := s.deps.Table()
	m, err := t.machine(host)
	if err != nil {
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
	changed := make(chan bool, 1) // of an operation that was left behind nobody reads it
	err := s.links.do(ctx, hv, func(ctx context.Context, h Hypervisor) error {
		c, err := op.do(ctx, h, m)
		changed <- c
		return err
	})
	took := s.deps.Now().Sub(start)
	if err != nil {
		err = fmt.Errorf("%s VM %s on hypervisor %s: %w", op.name, host, hv.Name, advise(err, m.attach, hv))
		s.seconds.WithLabelValues(op.name, "failed").Observe(took.Seconds())
		s.record(m, event.Event{Kind: event.VMFailed, Detail: op.name + " on " + hv.Name, Err: err.Error(), Dur: took})
		return err
	}
	s.seconds.WithLabelValues(op.name, "ok").Observe(took.Seconds())
	if <-changed {
		s.record(m, event.Event{Kind: op.kind, Detail: hv.Name, Dur: took})
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
		return fmt.Errorf("%s VM %s: somebody else's %q of it is under way: try again when it is done", op, host, other)
	}
	s.busy[host] = op
	return nil
}

func (s *Server) release(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, host)
}

// ErrAbsent is returned for a host whose virtual machine has not been created.
var ErrAbsent = errors.New("there is no such VM yet: create it first (bootlab vm create)")
