package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/metrics"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/records"
	"github.com/bootlab/bootlab/lbproxy"
)

// A healthyOnce holds which backends were healthy once: one that never was belongs to a machine that is not installed yet, and is no reason for
// an alert. It is kept in the store, below "served/".
type healthyOnce struct {
	saver  *records.Saver
	states func() []lbproxy.BalancerStatus

	mu   sync.Mutex
	ever map[string]bool // by key; false: the store does not have it yet
}

const healthyOncePrefix = "served/"

func healthyOnceKey(balancer, key string) string { return healthyOncePrefix + balancer + "/" + key }

func (d *Daemon) openHealthyOnce(ctx context.Context) (*healthyOnce, error) {
	s := &healthyOnce{saver: d.saver, states: func() []lbproxy.BalancerStatus { return d.lb.Status() }, ever: map[string]bool{}}
	if err := d.store.Scan(ctx, healthyOncePrefix, func(key string, _ []byte) error {
		s.ever[key] = true
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read which backends were healthy: %w", err)
	}
	return s, d.registry.Register(newBalancerCollector(s))
}

// update notes backends that became healthy, and forgets those that the lab does not have any more. What the store does not take is tried again
// the next time.
func (s *healthyOnce) update(log *slog.Logger) {
	states := s.states()
	now := map[string]bool{}
	for _, b := range states {
		for _, m := range b.Backends {
			now[healthyOnceKey(b.Name, m.Key)] = true
		}
	}
	s.mu.Lock()
	s.noteLocked(states)
	ever := maps.Clone(s.ever)
	s.mu.Unlock()
	var changed []store.Op
	for key, stored := range ever {
		switch {
		case !now[key]:
			changed = append(changed, store.Op{Key: key, Delete: true})
		case !stored:
			since, _ := json.Marshal(time.Now().UTC()) // for debugging
			changed = append(changed, store.Op{Key: key, Value: since})
		}
	}
	if len(changed) == 0 {
		return
	}
	if err := s.saver.Save(changed...); err != nil {
		log.Debug("healthy backends not stored", "err", err) // the store's own state says more
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range changed {
		if op.Delete {
			delete(s.ever, op.Key)
		} else {
			s.ever[op.Key] = true
		}
	}
}

// has reports whether a backend was healthy once.
func (s *healthyOnce) has(balancer, key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ever := s.ever[healthyOnceKey(balancer, key)]
	return ever
}

// noteLocked notes the backends that are healthy.
func (s *healthyOnce) noteLocked(states []lbproxy.BalancerStatus) {
	for _, b := range states {
		for _, m := range b.Backends {
			if _, known := s.ever[healthyOnceKey(b.Name, m.Key)]; !known && m.Health == lbproxy.Up {
				s.ever[healthyOnceKey(b.Name, m.Key)] = false
			}
		}
	}
}

// balancers returns how many backends of each balancer are in which state, in the balancers' order.
func (s *healthyOnce) balancers() (all []api.BalancerHealth) {
	states := s.states()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteLocked(states)
	for _, b := range states {
		h := api.BalancerHealth{Name: b.Name, Listen: b.Listen.String()}
		for _, m := range b.Backends {
			_, ever := s.ever[healthyOnceKey(b.Name, m.Key)]
			switch state := backendStateOf(m, ever); {
			case state.Drained():
				h.Drained++
			case state.TakesConnections():
				h.Up++
				if state == api.BackendUnknown {
					h.Unknown++
				}
			case state == api.BackendDown:
				h.Down++
			default:
				h.New++
			}
		}
		all = append(all, h)
	}
	slices.SortStableFunc(all, func(a, b api.BalancerHealth) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// backendStateOf returns the state of a backend, for lists and numbers: one that lbproxy gives connections is up, unchecked or unknown. The ever says whether it was healthy once.
func backendStateOf(m lbproxy.BackendStatus, ever bool) api.BackendState {
	switch {
	case m.Drained && m.Connections > 0:
		return api.BackendDraining
	case m.Drained:
		return api.BackendDrained
	case !m.TakesConnections && (ever || m.Check == lab.CheckNone): // without a check it counted as healthy
		return api.BackendDown
	case !m.TakesConnections:
		return api.BackendNew
	case m.Health == lbproxy.Up:
		return api.BackendUp
	case m.WithoutCheck():
		return api.BackendUnchecked
	}
	return api.BackendUnknown
}

// backend returns a backend of a balancer as people see it.
func (s *healthyOnce) backend(balancer string, m lbproxy.BackendStatus) api.Backend {
	b := api.Backend{Name: m.Name, Addr: lab.BackendText(m.Addr), State: backendStateOf(m, s.has(balancer, m.Key)), Backup: m.Backup, Weight: m.Weight, LabWeight: m.LabWeight,
		Added: m.Added, Limit: m.Limit, Reason: strings.ReplaceAll(m.Reason, "\n", "; "), Since: m.Since, Connections: m.Connections, Total: m.Total, Errors: m.Errors,
		P50: m.P50.Seconds() * 1000, P99: m.P99.Seconds() * 1000}
	if m.Drained {
		b.Since = m.DrainedSince
	}
	return b
}

// MetricBalancerBackends is how many backends of a balancer are in a state.
const MetricBalancerBackends = "bootlab_balancer_backends"

// newBalancerCollector counts backends.
func newBalancerCollector(s *healthyOnce) *metrics.Gauges {
	desc := prometheus.NewDesc(MetricBalancerBackends, "Backends of a balancer: up, down (healthy once, and not now), new (never healthy), drained.", []string{"balancer", "state"}, nil)
	return metrics.NewGauges(func(set metrics.Gauge) {
		for _, b := range s.balancers() {
			for state, n := range map[string]int{"up": b.Up, "down": b.Down, "new": b.New, "drained": b.Drained} {
				set(desc, float64(n), b.Name, state)
			}
		}
	}, desc)
}
