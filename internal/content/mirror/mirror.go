package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/host/required"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A Config is the configuration of a Cache.
type Config struct {
	Dir  string        // used by the cache alone; created when it is needed
	Idle time.Duration // without a byte from upstream until a download is resumed or fails; default 30 s

	Resolver *net.Resolver // of the names of upstreams; default: the system's
}

// Deps is what a Cache needs. All fields are required.
type Deps struct {
	Mirrors    func() []*lab.Mirror    // of the current lab; their caches are loaded at the start
	Own        func(netip.Addr) bool   // reports whether an address is one of this machine
	Admin      func() []netip.AddrPort // where the admin API listens: no upstream leads there
	Events     event.Recorder
	Registerer prometheus.Registerer
	Log        *slog.Logger
	Now        func() time.Time
}

// defaultIdle is longer than a mirror takes to spin up a disk, and shorter than apt's timeout.
const defaultIdle = 30 * time.Second

// A Cache caches files of mirrors. It is safe for concurrent use.
type Cache struct {
	cfg     Config
	deps    Deps
	up      *upstreams
	metrics *metrics

	mu        sync.Mutex
	disks     map[string]*diskCache
	stopped   bool
	downloads map[*download]struct{}
	work      sync.WaitGroup // downloads, and disk caches that are being loaded
}

// New returns a cache. It touches no disk yet. The error is that its metrics are registered already.
func New(cfg Config, deps Deps) (*Cache, error) {
	required.Fields(deps)
	m, err := newMetrics(deps.Registerer)
	if err != nil {
		return nil, fmt.Errorf("new mirror cache: %w", err)
	}
	if cfg.Idle == 0 {
		cfg.Idle = defaultIdle
	}
	deps.Log = deps.Log.With("server", "mirror")
	return &Cache{
		cfg: cfg, deps: deps, metrics: m, up: newUpstreams(cfg, deps), disks: map[string]*diskCache{}, downloads: map[*download]struct{}{},
	}, nil
}

// Run loads the disk caches and waits until ctx ends. Then it cancels all downloads and deletes incomplete files.
func (c *Cache) Run(ctx context.Context) error {
	for _, m := range c.deps.Mirrors() {
		c.disk(m)
	}
	<-ctx.Done()
	c.mu.Lock()
	c.stopped = true
	for f := range c.downloads {
		f.cancel()
	}
	c.mu.Unlock()
	c.work.Wait()
	c.up.close()
	return nil
}

// disk returns the disk cache of a mirror. A new one is looked through in the background; nil: the cache stops.
func (c *Cache) disk(m *lab.Mirror) *diskCache {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.disks[m.Name]
	if s == nil && !c.stopped {
		s = newDiskCache(m.Name, filepath.Join(c.cfg.Dir, m.Name), c.deps.Now, c.metrics.of(m.Name))
		c.disks[m.Name] = s
		c.work.Go(func() {
			if err := s.load(); err != nil {
				c.deps.Log.Warn("cannot read cache of mirror", "mirror", m.Name, "err", err)
			}
		})
	}
	return s
}

// A Result is how a request was answered, for metrics and the header X-Cache.
type Result string

// The results, as in the header X-Cache.
const (
	Hit         Result = "hit"         // from disk, without asking upstream
	Revalidated Result = "revalidated" // from disk, after upstream confirmed it (304)
	Stale       Result = "stale"       // from disk, no upstream answers
	Miss        Result = "miss"        // downloaded for this request
	Joined      Result = "joined"      // shares the download of another request
	Passed      Result = "passed"      // from upstream, not cached
	Absent      Result = "absent"      // upstream does not have it
	Refused     Result = "refused"     // not in the mirror's allow list
	Failed      Result = "failed"      // no upstream answers, and the file is not cached
)

// A request is a client's request for a file.
type request struct {
	mirror *lab.Mirror
	path   string
	method string
	cached *entry // to be revalidated; nil: the file is not cached
}

// conditions returns the header of the request to one upstream. An ETag is valid for the upstream that sent it alone.
func (q *request) conditions(base string) http.Header {
	if q.cached == nil || q.cached.metadata.Upstream != base {
		return http.Header{}
	}
	return q.cached.metadata.conditions()
}

// errStopping is the error of Open once Run has ended.
var errStopping = statusError{http.StatusServiceUnavailable, errors.New("the daemon is stopping")}

// Open returns the file at path (slash-separated, valid by fs.ValidPath) of a mirror, which the caller closes. Its
// download may still be in progress: then reads of its Content wait for bytes, until ctx ends. method is GET or HEAD; HEAD
// downloads no body. The error has the status in a method HTTPStatus() int: 403, 404, or 503 for "try again".
func (c *Cache) Open(ctx context.Context, m *lab.Mirror, path, method string) (*File, error) {
	s := c.disk(m)
	if s == nil {
		return nil, errStopping
	}
	select {
	case <-s.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	q := &request{mirror: m, path: path, method: method}
	f, err := c.open(ctx, s, q)
	if err != nil {
		s.metrics.requests[resultOf(err)].Inc()
		return nil, err
	}
	s.metrics.requests[f.Result].Inc()
	return f, nil
}

func resultOf(err error) Result {
	var r statusError
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

func (c *Cache) open(ctx context.Context, s *diskCache, q *request) (*File, error) {
	if !q.mirror.Allows(q.path) {
		return nil, statusError{http.StatusForbidden, fmt.Errorf("%s is not in mirrors.%s.allow", q.path, q.mirror.Name)}
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
	case <-fl.answered:
		return c.answer(ctx, s, q, fl, joined)
	case <-ctx.Done():
		fl.release()
		return nil, ctx.Err()
	}
}

// find returns the file if it is cached and fresh, else its download, which the caller releases: of an upstream that the mirror has now. For HEAD of a file that
// is not cached it returns neither.
func (c *Cache) find(ctx context.Context, s *diskCache, q *request) (f *File, fl *download, joined Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.max = int64(q.mirror.MaxSize)
	key := keyOf(q.path)
	if fl := s.downloads[key]; fl != nil && fl.isOf(q.mirror) {
		fl.use()
		return nil, fl, Joined
	}
	if e := s.entries[key]; e != nil && slices.Contains(q.mirror.URLs, e.metadata.Upstream) {
		if how := c.usable(s, q, e); how != "" {
			if f, err := s.openLocked(e); err == nil {
				return c.cached(s, e, f, how), nil, ""
			}
		} else {
			q.cached = e
		}
	}
	if q.cached == nil && q.method == http.MethodHead {
		return nil, nil, ""
	}
	return nil, c.startLocked(ctx, s, q, key), Miss
}

// usable returns the result if an entry may be served without asking upstream; empty: it may not.
func (c *Cache) usable(s *diskCache, q *request, e *entry) Result {
	switch age := s.now().Sub(e.metadata.Checked); {
	case immutable(q.mirror, q.path), age >= 0 && age < q.mirror.Fresh:
		return Hit
	case c.up.allDown(q.mirror.URLs):
		return Stale
	}
	return ""
}

// startLocked starts a download, with the caller as its first user; nil: the cache stops. The download outlives the request:
// others may have joined it, and more will come for the file.
func (c *Cache) startLocked(ctx context.Context, s *diskCache, q *request, key string) *download {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	fl := &download{
		cache: c, disk: s, key: key, path: q.path, urls: q.mirror.URLs, cancel: cancel, answered: make(chan struct{}), changed: make(chan struct{}), users: 2,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		cancel()
		return nil
	}
	s.downloads[key] = fl
	c.downloads[fl] = struct{}{}
	c.work.Go(func() {
		fl.run(ctx, q)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.downloads, fl)
	})
	return fl
}

// answer returns the file for the outcome of a download.
func (c *Cache) answer(ctx context.Context, s *diskCache, q *request, fl *download, joined Result) (*File, error) {
	if fl.outcome == body {
		return c.follow(ctx, q, fl, joined)
	}
	defer fl.release()
	switch fl.outcome {
	case unchanged:
		return c.revalidated(s, q, Revalidated, fl)
	case failed:
		return c.revalidated(s, q, Stale, fl)
	case uncacheable:
		if fl.head.Size < 0 {
			return nil, statusError{http.StatusServiceUnavailable, fmt.Errorf("%s: %w, and upstream does not send its size", q.path, errBypass)}
		}
		return c.pass(ctx, q, fl.base, fl.head), nil
	}
	return nil, fl.err
}

// revalidated returns the cached file after upstream was asked, or the download's error if there is none.
func (c *Cache) revalidated(s *diskCache, q *request, how Result, fl *download) (*File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[fl.key]; e != nil && slices.Contains(q.mirror.URLs, e.metadata.Upstream) {
		if f, err := s.openLocked(e); err == nil {
			return c.cached(s, e, f, how), nil
		}
	}
	if fl.err != nil {
		return nil, fl.err
	}
	return nil, statusError{http.StatusServiceUnavailable, fmt.Errorf("%s was evicted during revalidation", q.path)}
}

// headOnly answers HEAD of a file that is not cached.
func (c *Cache) headOnly(ctx context.Context, s *diskCache, q *request) (*File, error) {
	resp, base, err := c.up.do(ctx, q.mirror, query{http.MethodHead, q.path, nil})
	if err != nil {
		if ctx.Err() == nil {
			c.unreachable(s, err)
		}
		return nil, unavailable(err)
	}
	defer resp.Body.Close()
	c.reachable(s)
	if absent(resp.StatusCode) {
		return nil, statusError{http.StatusNotFound, fmt.Errorf("%s: upstream does not have it", q.path)}
	}
	h := headOf(resp)
	if h.Size < 0 {
		return nil, statusError{http.StatusServiceUnavailable, fmt.Errorf("%s: upstream does not send its size", q.path)}
	}
	return c.pass(ctx, q, base, h), nil
}

// warnEvery is the least time between two MirrorBypassed events of a mirror.
const warnEvery = time.Minute

// An Outage says since when no upstream of a mirror answers, and what the last one said.
type Outage struct {
	Mirror string
	Since  time.Time
	Err    string
}

// Outages returns the mirrors whose last request no upstream answered, by name.
func (c *Cache) Outages() (all []Outage) {
	c.mu.Lock()
	disks := slices.Collect(maps.Values(c.disks))
	c.mu.Unlock()
	for _, s := range disks {
		s.mu.Lock()
		if !s.down.Since.IsZero() {
			all = append(all, s.down)
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b Outage) int { return cmp.Compare(a.Mirror, b.Mirror) })
	return all
}

// unreachable counts that no upstream answered, and emits MirrorDown once.
func (c *Cache) unreachable(s *diskCache, err error) {
	s.metrics.errors.Inc()
	text := lab.Shortened(err.Error(), maxErr)
	s.mu.Lock()
	first := s.down.Since.IsZero()
	if first {
		s.down = Outage{Mirror: s.name, Since: s.now()}
	}
	s.down.Err = text
	s.mu.Unlock()
	if first {
		c.deps.Events.Record(event.Event{Kind: event.MirrorDown, Mirror: s.name, Err: text})
	}
}

// reachable emits MirrorUp when an upstream answers again.
func (c *Cache) reachable(s *diskCache) {
	s.mu.Lock()
	was := !s.down.Since.IsZero()
	s.down = Outage{}
	s.mu.Unlock()
	if was {
		c.deps.Events.Record(event.Event{Kind: event.MirrorUp, Mirror: s.name})
	}
}

// bypass counts a file that is passed through, and emits MirrorBypassed now and then.
func (c *Cache) bypass(s *diskCache, path string, err error) {
	s.metrics.bypassed.Inc()
	s.mu.Lock()
	now := s.now()
	due := now.Sub(s.warned) >= warnEvery
	if due {
		s.warned = now
	}
	s.mu.Unlock()
	if due {
		c.deps.Events.Record(event.Event{Kind: event.MirrorBypassed, Mirror: s.name, Detail: path, Err: lab.Shortened(err.Error(), maxErr)})
	}
}

func (c *Cache) corrupt(s *diskCache, path string, err error) {
	c.deps.Events.Record(event.Event{Kind: event.MirrorCorrupt, Mirror: s.name, Detail: path, Err: lab.Shortened(err.Error(), maxErr)})
}

func (c *Cache) aborted(s *diskCache, path string, err error) {
	c.deps.Log.Debug("download aborted", "mirror", s.name, "path", path, "err", err)
}

// maxErr bounds the text of an event, in bytes: clients choose paths, and upstreams their answers.
const maxErr = 300
