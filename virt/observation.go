package virt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// An observation is what a hypervisor answered last. List reads it, so that a silent hypervisor delays no request.
type observation struct {
	mu       sync.Mutex
	domains  []Domain
	at       time.Time     // when domains were read; zero: never
	err      error         // why the last refresh got no answer; nil: it did
	since    time.Time     // of the first of the refreshes that failed
	backoff  time.Duration // until the next refresh, after failures
	next     time.Time     // no refresh before
	running  chan struct{} // closed at the end of the refresh in progress; nil: none
	node     Node          // what it has; the zero value: not asked yet
	calls    uint64        // number of calls that read domains, in the order of their start
	accepted uint64        // call that domains are from
}

// Refreshes of observations.
const (
	refreshWait  = 10 * time.Second // deadline of one
	backoffFirst = 2 * time.Second  // after the first failure; doubles
	backoffMost  = time.Minute
)

// observationOf returns the observation of a hypervisor.
func (s *Server) observationOf(hv *lab.Hypervisor) *observation {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.observed[hv.URI]
	if o == nil {
		o = &observation{}
		s.observed[hv.URI] = o
	}
	return o
}

// refresh reads the domains of a hypervisor in the background, unless that is in progress or it is too early after a
// failure. It returns a channel that is closed at the end, nil for a hypervisor that is not worth waiting for.
func (s *Server) refresh(hv *lab.Hypervisor) <-chan struct{} {
	o := s.observationOf(hv)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running == nil && !s.deps.Now().Before(o.next) {
		running := make(chan struct{})
		o.running = running
		go func() {
			defer close(running)
			ctx, cancel := context.WithTimeout(context.Background(), min(refreshWait, s.cfg.Timeout))
			defer cancel()
			err := s.contained(hv, func(h Hypervisor) error { return s.observe(ctx, hv, h) })
			if err != nil && !errors.Is(err, errBusy) && !errors.Is(err, errClosed) { // busy: what it does says whether it answers
				o.failed(err, s.deps.Now())
			}
			o.mu.Lock()
			o.running = nil
			o.mu.Unlock()
		}()
	}
	if o.err != nil {
		return nil
	}
	return o.running
}

// read reads the domains. An answer that is older than the one here is dropped.
func (o *observation) read(ctx context.Context, h Hypervisor, now func() time.Time) error {
	o.mu.Lock()
	o.calls++
	call := o.calls
	o.mu.Unlock()
	domains, err := h.Domains(ctx)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if call > o.accepted {
		o.domains, o.at, o.accepted = domains, now(), call
		o.err, o.backoff, o.next = nil, 0, time.Time{}
	}
	return nil
}

// last returns the domains of the last answer, when that came, and since when there was none; zero: it is the last.
func (o *observation) last() (domains []Domain, at, down time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		down = o.since
	}
	return o.domains, o.at, down
}

// measured returns what the hypervisor has; the zero value: it was not asked yet.
func (o *observation) measured() Node {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.node
}

// observe reads the domains of a hypervisor, and notes which machines are there.
func (s *Server) observe(ctx context.Context, hv *lab.Hypervisor, h Hypervisor) error {
	o := s.observationOf(hv)
	if err := o.read(ctx, h, s.deps.Now); err != nil {
		return err
	}
	s.place(ctx, hv)
	return nil
}

// contained calls fn with a hypervisor. A panic in it is an error.
func (s *Server) contained(hv *lab.Hypervisor, fn func(Hypervisor) error) error {
	return s.connections.use(hv, func(h Hypervisor) error {
		return s.deps.Panics.Run(func() error { return fn(h) })
	})
}

// changed reads domains that have changed on a hypervisor. Those that this server works on are read at the end of that.
func (s *Server) changed(hv *lab.Hypervisor, uuids []string) {
	t := s.deps.Table()
	ctx, cancel := context.WithTimeout(context.Background(), min(refreshWait, s.cfg.Timeout))
	defer cancel()
	err := s.contained(hv, func(h Hypervisor) error {
		if len(uuids) > maxChanged {
			return s.observe(ctx, hv, h)
		}
		for _, uuid := range uuids {
			if s.worksOn(t, uuid) {
				continue
			}
			if err := s.observeDomain(ctx, hv, h, uuid, uuid); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil { // the next refresh notices what this has missed
		s.deps.Log.Debug("changed machines were not read", "hypervisor", hv.Name, "err", err)
	}
}

// maxChanged is up to how many changed domains are read one by one.
const maxChanged = 16

// worksOn reports whether an operation on the machine with this UUID is in progress.
func (s *Server) worksOn(t *Table, uuid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for host := range s.busy {
		if m := t.byHost[host]; m != nil && m.uuid == uuid {
			return true
		}
	}
	return false
}

// observeDomain is observe for one domain: on a hypervisor with many, each operation would read all.
func (s *Server) observeDomain(ctx context.Context, hv *lab.Hypervisor, h Hypervisor, uuid, name string) error {
	o := s.observationOf(hv)
	if _, at, _ := o.last(); at.IsZero() {
		return s.observe(ctx, hv, h)
	}
	o.mu.Lock()
	o.calls++
	call := o.calls
	o.mu.Unlock()
	found, err := h.Find(ctx, uuid, name)
	if err != nil {
		return err
	}
	o.mu.Lock()
	o.domains = slices.Concat(slices.DeleteFunc(slices.Clone(o.domains), func(d Domain) bool { return d.UUID == uuid }),
		slices.DeleteFunc(found, func(d Domain) bool { return d.UUID != uuid }))
	o.accepted = max(o.accepted, call) // answers to earlier calls lack the change
	o.mu.Unlock()
	s.place(ctx, hv)
	return nil
}

// place notes which machines are on a hypervisor.
func (s *Server) place(ctx context.Context, hv *lab.Hypervisor) {
	domains, _, _ := s.observationOf(hv).last()
	s.consoles.update(hv, domains)
	s.seeStarts(ctx, s.table(), domains)
	if err := s.placements.update(ctx, s.deps.Table(), hv, domains, s.deps.Now()); err != nil {
		s.deps.Log.Warn("hypervisors of virtual machines not stored", "err", err)
		return
	}
	err := s.answered.change(ctx, hv.Name, func(answered *Answered) {
		if answered.URI != hv.URI {
			*answered = Answered{URI: hv.URI, At: s.deps.Now()}
		}
	})
	if err != nil {
		s.deps.Log.Warn("answer of a hypervisor not stored", "hypervisor", hv.Name, "err", err)
	}
}

// failed notes that the hypervisor did not answer.
func (o *observation) failed(err error, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.since = now
	}
	o.err = err
	o.backoff = min(max(2*o.backoff, backoffFirst), backoffMost)
	o.next = now.Add(o.backoff)
}

// A DownError says that a hypervisor did not answer when it was last asked.
type DownError struct {
	Hypervisor string
	Since      time.Time
	Err        error
}

// Error names the hypervisor, since when it is down, and why.
func (e *DownError) Error() string {
	return fmt.Sprintf("hypervisor %s is down since %s: %v", e.Hypervisor, e.Since.Format(time.DateTime), e.Err)
}

// Unwrap returns why.
func (e *DownError) Unwrap() error { return e.Err }

// state returns the domains and when they were read, or why and since when they are unknown.
func (o *observation) state(hv *lab.Hypervisor) (domains []Domain, at, since time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err != nil:
		return nil, o.at, o.since, &DownError{hv.Name, o.since, addHint(o.err, lab.Attachment{}, hv)}
	case o.at.IsZero():
		return nil, o.at, o.since, fmt.Errorf("hypervisor %s has not answered yet", hv.Name)
	}
	return o.domains, o.at, time.Time{}, nil
}

// noAnswer returns the error of a call that failed, in the words that lists have for a hypervisor that is down.
func (s *Server) noAnswer(hv *lab.Hypervisor, err error) error {
	o := s.observationOf(hv)
	if errors.As(err, new(unreachable)) && !errors.Is(err, context.Canceled) { // who asked has gone: that says nothing
		o.failed(err, s.deps.Now())
	}
	if _, _, since, down := o.state(hv); !since.IsZero() {
		return down
	}
	return fmt.Errorf("hypervisor %s: %w", hv.Name, addHint(err, lab.Attachment{}, hv))
}

// refreshAll refreshes every hypervisor until ctx ends.
func (s *Server) refreshAll(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Refresh)
	defer tick.Stop()
	for {
		hypervisors := s.deps.Table().hypervisors
		s.connections.keep(hypervisors)
		s.consoles.keep(hypervisors)
		for _, hv := range hypervisors {
			s.refresh(hv)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Answered returns since when a hypervisor does not answer, and why; or, with a nil error, when it last did. It does not wait.
func (s *Server) Answered(name string) (time.Time, error) {
	for _, hv := range s.deps.Table().hypervisors {
		if hv.Name == name {
			_, at, since, err := s.observationOf(hv).state(hv)
			if err != nil {
				return since, err
			}
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("hypervisor %s is not in the lab", name)
}

// Unreachable returns the names of the hypervisors that gave no answer when they were last asked, or have not answered since the start. It
// does not wait.
func (s *Server) Unreachable() (names []string) {
	for _, hv := range s.deps.Table().hypervisors {
		if _, _, _, err := s.observationOf(hv).state(hv); err != nil {
			names = append(names, hv.Name)
		}
	}
	return names
}

// hypervisorsIn returns how many hypervisors are up, down, or unknown.
func (s *Server) hypervisorsIn(state string) (n float64) {
	for _, hv := range s.deps.Table().hypervisors {
		_, _, since, err := s.observationOf(hv).state(hv)
		is := "up"
		switch {
		case !since.IsZero():
			is = "down"
		case err != nil:
			is = "unknown"
		}
		if is == state {
			n++
		}
	}
	return n
}
