package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A Config is where files are kept, and how patient fetches are.
type Config struct {
	Dir  string        // a folder of its own; made when it is needed
	Idle time.Duration // without a byte from upstream until a fetch goes on elsewhere or is given up; default 30 s
}

// Deps is what a Cache needs. All fields are required.
type Deps struct {
	Mirrors func() []*lab.Mirror // those of the lab in force, whose files are looked through early
	Events  event.Recorder
	Metrics prometheus.Registerer
	Log     *slog.Logger
	Now     func() time.Time
}

func (d Deps) mustBeComplete() {
	switch {
	case d.Mirrors == nil:
		panic("mirror: Deps.Mirrors is nil")
	case d.Events == nil:
		panic("mirror: Deps.Events is nil")
	case d.Metrics == nil:
		panic("mirror: Deps.Metrics is nil")
	case d.Log == nil:
		panic("mirror: Deps.Log is nil")
	case d.Now == nil:
		panic("mirror: Deps.Now is nil")
	}
}

// defaultIdle is longer than a mirror that wakes a disk takes, and shorter than apt waits.
const defaultIdle = 30 * time.Second

// A Cache keeps files of mirrors. It is safe for concurrent use.
type Cache struct {
	cfg     Config
	deps    Deps
	up      *upstreams
	metrics *metrics

	mu      sync.Mutex
	shelves map[string]*shelf
	stopped bool
	flying  map[*flight]struct{}
	work    sync.WaitGroup // fetches, and shelves that are looked through
}

// New returns a cache. It touches no disk yet. The error is that its metrics are registered already.
func New(cfg Config, deps Deps) (*Cache, error) {
	deps.mustBeComplete()
	m, err := newMetrics(deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("new mirror cache: %w", err)
	}
	if cfg.Idle == 0 {
		cfg.Idle = defaultIdle
	}
	deps.Log = deps.Log.With("server", "mirror")
	return &Cache{
		cfg: cfg, deps: deps, metrics: m, up: newUpstreams(deps.Now, cfg.Idle), shelves: map[string]*shelf{}, flying: map[*flight]struct{}{},
	}, nil
}

// Run looks through what is kept, waits for ctx to end, and ends all fetches. What was half fetched is thrown away.
func (c *Cache) Run(ctx context.Context) error {
	for _, m := range c.deps.Mirrors() {
		c.shelf(m)
	}
	<-ctx.Done()
	c.mu.Lock()
	c.stopped = true
	for f := range c.flying {
		f.cancel()
	}
	c.mu.Unlock()
	c.work.Wait()
	c.up.close()
	return nil
}

// shelf returns the shelf of a mirror. A new one is looked through in the background; nil: the cache stops.
func (c *Cache) shelf(m *lab.Mirror) *shelf {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shelves[m.Name]
	if s == nil && !c.stopped {
		s = newShelf(m.Name, filepath.Join(c.cfg.Dir, m.Name), c.deps.Now, c.metrics.of(m.Name))
		c.shelves[m.Name] = s
		c.work.Go(func() {
			if err := s.load(); err != nil {
				c.deps.Log.Warn("mirror cache", "err", err)
			}
		})
	}
	return s
}

// A Result is how a request was answered, for metrics and the header X-Cache.
type Result string

// The results.
const (
	Hit         Result = "hit"         // from disk, upstream unasked
	Revalidated Result = "revalidated" // from disk, upstream says that it is still so
	Stale       Result = "stale"       // from disk, no upstream answers
	Miss        Result = "miss"        // fetched for this request
	Joined      Result = "joined"      // read along with a fetch of another request
	Passed      Result = "passed"      // from upstream, not kept
	Absent      Result = "absent"      // upstream does not have it
	Refused     Result = "refused"     // the lab does not allow it
	Failed      Result = "failed"      // no upstream answers, and nothing is kept
)

func results() []Result {
	return []Result{Hit, Revalidated, Stale, Miss, Joined, Passed, Absent, Refused, Failed}
}

// A question is what a machine wants.
type question struct {
	mirror *lab.Mirror
	path   string
	method string
	kept   *entry // what upstream is asked to confirm; nil: nothing is kept
}

// conditions are the header of the question to one upstream: another's ETag says nothing to it.
func (q *question) conditions(base string) http.Header {
	if q.kept == nil || q.kept.label.Upstream != base {
		return http.Header{}
	}
	return q.kept.label.conditions()
}

// errStopping is the answer once Run has ended.
var errStopping = refusal{http.StatusServiceUnavailable, errors.New("the daemon stops")}

// Open returns the file at path (slash-separated, valid by fs.ValidPath) of a mirror, which the caller closes. It may
// still be coming: its Content then waits for bytes, until ctx ends. method is GET or HEAD; the latter fetches nothing but
// the header. The error has the status to answer in a method HTTPStatus() int: 403, 404, or 503 for "ask again".
func (c *Cache) Open(ctx context.Context, m *lab.Mirror, path, method string) (*File, error) {
	s := c.shelf(m)
	if s == nil {
		return nil, errStopping
	}
	select {
	case <-s.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	q := &question{mirror: m, path: path, method: method}
	f, err := c.open(ctx, s, q)
	if err != nil {
		s.metrics.requests[resultOf(err)].Inc()
		return nil, err
	}
	s.metrics.requests[f.Result].Inc()
	return f, nil
}

func resultOf(err error) Result {
	var r refusal
	switch {
	case !errors.As(err, &r):
		return Failed
	case r.status == http.StatusNotFound:
		return Absent
	case r.status == http.StatusForbidden:
		return Refused
	}
	return Failed
}

func (c *Cache) open(ctx context.Context, s *shelf, q *question) (*File, error) {
	if !q.mirror.Allows(q.path) {
		return nil, refusal{http.StatusForbidden, fmt.Errorf("%s is not in mirrors.%s.allow", q.path, q.mirror.Name)}
	}
	f, fl, joined := c.find(ctx, s, q)
	switch {
	case f != nil:
		return f, nil
	case fl == nil && q.method == http.MethodHead:
		return c.headOnly(ctx, s, q)
	case fl == nil:
		return nil, errStopping
	}
	select {
	case <-fl.told:
		return c.landed(ctx, s, q, fl, joined)
	case <-ctx.Done():
		fl.release()
		return nil, ctx.Err()
	}
}

// find returns the file where it is kept and fresh, else the flight that asks for it, whose user the caller is then. For
// HEAD of a file that is not kept it returns neither.
func (c *Cache) find(ctx context.Context, s *shelf, q *question) (f *File, fl *flight, joined Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.max = int64(q.mirror.MaxSize)
	key := keyOf(q.path)
	if fl := s.flights[key]; fl != nil {
		fl.use()
		return nil, fl, Joined
	}
	if e := s.entries[key]; e != nil && slices.Contains(q.mirror.URLs, e.label.Upstream) {
		if how := c.usable(s, q, e); how != "" {
			if f, err := s.openLocked(e); err == nil {
				return c.kept(s, e, f, how), nil, ""
			}
		} else {
			q.kept = e
		}
	}
	if q.kept == nil && q.method == http.MethodHead {
		return nil, nil, ""
	}
	return nil, c.launchLocked(ctx, s, q, key), Miss
}

// usable says as what an entry may be given out without asking upstream; empty: it may not.
func (c *Cache) usable(s *shelf, q *question, e *entry) Result {
	switch age := s.now().Sub(e.label.Checked); {
	case immutable(q.mirror, q.path), age >= 0 && age < q.mirror.Fresh:
		return Hit
	case c.up.allDown(q.mirror.URLs):
		return Stale
	}
	return ""
}

// launchLocked starts a flight, with the caller as its first user; nil: the cache stops. The flight outlives the request:
// others may have joined it, and more will come for the file.
func (c *Cache) launchLocked(ctx context.Context, s *shelf, q *question, key string) *flight {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	fl := &flight{
		shelf: s, key: key, path: q.path, cancel: cancel, told: make(chan struct{}), changed: make(chan struct{}), users: 2,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		cancel()
		return nil
	}
	s.flights[key] = fl
	c.flying[fl] = struct{}{}
	c.work.Go(func() {
		(&fetch{flight: fl, cache: c}).run(ctx, q)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.flying, fl)
	})
	return fl
}

// landed makes a file of what a flight has found.
func (c *Cache) landed(ctx context.Context, s *shelf, q *question, fl *flight, joined Result) (*File, error) {
	if fl.outcome == body {
		return c.along(ctx, q, fl, joined)
	}
	defer fl.release()
	switch fl.outcome {
	case unchanged:
		return c.again(s, q, Revalidated, fl)
	case failed:
		return c.again(s, q, Stale, fl)
	case passing:
		if fl.head.Size < 0 {
			return nil, refusal{http.StatusServiceUnavailable, fmt.Errorf("%s: %w, and upstream does not tell its size", q.path, errUnkept)}
		}
		return c.pass(ctx, q, fl.base, fl.head), nil
	}
	return nil, fl.err
}

// again gives out what is kept after upstream was asked; where nothing is, the flight's error.
func (c *Cache) again(s *shelf, q *question, how Result, fl *flight) (*File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[fl.key]; e != nil && slices.Contains(q.mirror.URLs, e.label.Upstream) {
		if f, err := s.openLocked(e); err == nil {
			return c.kept(s, e, f, how), nil
		}
	}
	if fl.err != nil {
		return nil, fl.err
	}
	return nil, refusal{http.StatusServiceUnavailable, fmt.Errorf("%s was thrown away while upstream was asked about it", q.path)}
}

// headOnly asks upstream about a file that nobody wants yet.
func (c *Cache) headOnly(ctx context.Context, s *shelf, q *question) (*File, error) {
	resp, base, err := c.up.do(ctx, q.mirror, ask{http.MethodHead, q.path, nil})
	if err != nil {
		if ctx.Err() == nil {
			c.unreachable(s, err)
		}
		return nil, unavailable(err)
	}
	defer resp.Body.Close()
	c.reachable(s)
	if absent(resp.StatusCode) {
		return nil, refusal{http.StatusNotFound, fmt.Errorf("%s: upstream does not have it", q.path)}
	}
	h := headOf(resp)
	if h.Size < 0 {
		return nil, refusal{http.StatusServiceUnavailable, fmt.Errorf("%s: upstream does not tell its size", q.path)}
	}
	return c.pass(ctx, q, base, h), nil
}

// saidEvery is how often it is told that files of a mirror cannot be kept.
const saidEvery = time.Minute

// unreachable books that no upstream has an answer, and tells it once.
func (c *Cache) unreachable(s *shelf, err error) {
	s.metrics.errors.Inc()
	s.mu.Lock()
	first := !s.down
	s.down = true
	s.mu.Unlock()
	if first {
		c.deps.Events.Record(event.Event{Kind: event.MirrorDown, Detail: s.name, Err: brief(err)})
	}
}

// reachable tells that an upstream answers again.
func (c *Cache) reachable(s *shelf) {
	s.mu.Lock()
	was := s.down
	s.down = false
	s.mu.Unlock()
	if was {
		c.deps.Events.Record(event.Event{Kind: event.MirrorUp, Detail: s.name})
	}
}

// cannotKeep tells, now and then, that files are passed through.
func (c *Cache) cannotKeep(s *shelf, path string, err error) {
	s.metrics.unkept.Inc()
	s.mu.Lock()
	now := s.now()
	tell := now.Sub(s.said) >= saidEvery
	if tell {
		s.said = now
	}
	s.mu.Unlock()
	if tell {
		c.deps.Events.Record(event.Event{Kind: event.MirrorBypassed, Detail: s.name + "/" + path, Err: brief(err)})
	}
}

func (c *Cache) corrupt(s *shelf, path string, err error) {
	c.deps.Events.Record(event.Event{Kind: event.MirrorCorrupt, Detail: s.name + "/" + path, Err: brief(err)})
}

func (c *Cache) brokeOff(s *shelf, path string, err error) {
	c.deps.Log.Debug("fetch given up", "mirror", s.name, "path", path, "err", err)
}

// brief keeps an event small: strangers choose paths, and upstreams what they answer.
func brief(err error) string {
	const enough = 300
	s := err.Error()
	if len(s) <= enough {
		return s
	}
	return strings.ToValidUTF8(s[:enough], "") + "…"
}
