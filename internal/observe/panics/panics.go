// Package panics contains panics: a bug in one handler, packet or loop must not end the daemon.
//
// Each is counted for its server. The first at each place is logged with its stack; where many come, later ones are only counted.
//
//	all, err := panics.New(registry, log)
//	s := all.Server("dhcpd")
//	defer s.Contain()                            // in a handler
//	wg.Go(func() { s.Loop(ctx, commitLoop) })    // in the background: goes on after a pause
//
// A handler that has to clean up calls recover itself, and Note.
package panics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/host/pause"
)

// Metric counts contained panics by server.
const Metric = "bootlab_panics_total"

// maxPlaces bounds the places that are known; a daemon with more is beyond help.
const maxPlaces = 256

// Pauses of a loop that panics: they double.
const (
	minPause = 100 * time.Millisecond
	maxPause = 10 * time.Second
)

// All are the panics of the daemon. It is safe for concurrent use.
type All struct {
	log    *slog.Logger
	metric *prometheus.CounterVec

	mu     sync.Mutex
	places map[string]bool
	counts map[string]Count
}

// A Count is how many panics of a server were contained.
type Count struct {
	N     int
	Last  time.Time
	Place string // of the last: file and line
}

// New returns no panics. The error is the registerer's.
func New(registerer prometheus.Registerer, log *slog.Logger) (*All, error) {
	a := &All{
		log: log, places: map[string]bool{}, counts: map[string]Count{},
		metric: prometheus.NewCounterVec(prometheus.CounterOpts{Name: Metric, Help: "Panics that were contained: each is a bug of bootlab, and the log has its stack."}, []string{"server"}),
	}
	return a, registerer.Register(a.metric)
}

// LogOnly returns the panics of a server that is not part of a daemon, such as in a test. They are logged.
func LogOnly(log *slog.Logger, server string) *Server {
	all, _ := New(prometheus.NewRegistry(), log) // a registry of its own takes one metric
	return all.Server(server)
}

// Counts returns the panics of each server that had one.
func (a *All) Counts() map[string]Count {
	a.mu.Lock()
	defer a.mu.Unlock()
	counts := map[string]Count{}
	for server, c := range a.counts {
		counts[server] = c
	}
	return counts
}

// A Server contains the panics of one server, or of another part of the daemon.
type Server struct {
	all   *All
	name  string
	count prometheus.Counter
}

// Server returns that of a name, which is the label of the metric: one of a bounded number.
func (a *All) Server(name string) *Server {
	return &Server{a, name, a.metric.WithLabelValues(name)}
}

// Contain ends a panic. It must be deferred itself.
func (s *Server) Contain() {
	if p := recover(); p != nil {
		s.Note(p)
	}
}

// Run calls f and returns its error, or one that says that it panicked.
func (s *Server) Run(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.Note(p)
			err = fmt.Errorf("%w: %v", ErrPanic, p)
		}
	}()
	return f()
}

// ErrPanic is the error of what panicked.
var ErrPanic = errors.New("a bug of bootlab (the log has its stack)")

// Loop calls f until it returns, or panics after ctx has ended. After a panic it is called again, after a pause.
func (s *Server) Loop(ctx context.Context, f func()) {
	for wait := minPause; ; wait = min(2*wait, maxPause) {
		err := s.Run(func() error { f(); return nil })
		if err == nil || pause.For(ctx, wait) != nil {
			return
		}
	}
}

// Note counts a panic that the caller recovered from, in the function that it has deferred. Secrets are kept out of the log.
func (s *Server) Note(p any, secrets ...string) {
	place := origin()
	s.count.Inc()
	s.all.mu.Lock()
	c := s.all.counts[s.name]
	s.all.counts[s.name] = Count{N: c.N + 1, Last: time.Now(), Place: place}
	first := !s.all.places[place] && len(s.all.places) < maxPlaces
	if first {
		s.all.places[place] = true
	}
	s.all.mu.Unlock()
	if !first {
		return
	}
	text := fmt.Sprint(p)
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	s.all.log.Error("panic contained: a bug of bootlab, please report it; later ones at this place are counted only", "server", s.name, "place", place, "err", text, "stack", string(debug.Stack()))
}

// origin returns where the panic that is being recovered from happened: the first function of ours above the runtime's panic.
func origin() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for panicking := false; ; {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			panicking = true
		case panicking && !strings.HasPrefix(f.Function, "runtime."):
			return fmt.Sprintf("%s:%d", f.File[strings.LastIndexByte(f.File, '/')+1:], f.Line)
		}
		if !more {
			return "unknown"
		}
	}
}
