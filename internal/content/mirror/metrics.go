package mirror

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// The names of the metrics. Each has the label mirror, a name of the lab file.
const (
	MetricRequests = "bootlab_mirror_requests_total"
	MetricSent     = "bootlab_mirror_sent_bytes_total"
	MetricFetched  = "bootlab_mirror_fetched_bytes_total"
	MetricBytes    = "bootlab_mirror_cache_bytes"
	MetricEvicted  = "bootlab_mirror_evicted_total"
	MetricErrors   = "bootlab_mirror_upstream_errors_total"
	MetricBypassed = "bootlab_mirror_bypassed_total"
)

type metrics struct {
	requests                                   *prometheus.CounterVec
	sent, fetched, evictions, errors, bypassed *prometheus.CounterVec
	bytes                                      *prometheus.GaugeVec

	mu sync.Mutex
	by map[string]*mirrorMetrics
}

// mirrorMetrics are the metrics of one mirror.
type mirrorMetrics struct {
	requests                                   map[Result]prometheus.Counter
	sent, fetched, evictions, errors, bypassed prometheus.Counter
	bytes                                      prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"mirror"}, labels...))
	}
	m := &metrics{
		requests:  counter(MetricRequests, "Requests for files of a mirror, by result.", "result"),
		sent:      counter(MetricSent, "Bytes sent to clients of a mirror."),
		fetched:   counter(MetricFetched, "Bytes downloaded from upstreams of a mirror."),
		evictions: counter(MetricEvicted, "Cached files of a mirror that were deleted to make space."),
		errors:    counter(MetricErrors, "Requests that no upstream answered, and downloads that broke off or had a wrong checksum."),
		bypassed:  counter(MetricBypassed, "Files passed through without caching them, because they do not fit or the disk is full."),
		bytes:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: MetricBytes, Help: "Disk space that the cached files of a mirror take."}, []string{"mirror"}),
		by:        map[string]*mirrorMetrics{},
	}
	for _, c := range []prometheus.Collector{m.requests, m.sent, m.fetched, m.evictions, m.errors, m.bypassed, m.bytes} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// of returns the metrics of one mirror.
func (m *metrics) of(mirror string) *mirrorMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.by[mirror]; s != nil {
		return s
	}
	s := &mirrorMetrics{
		requests: map[Result]prometheus.Counter{}, sent: m.sent.WithLabelValues(mirror), fetched: m.fetched.WithLabelValues(mirror),
		evictions: m.evictions.WithLabelValues(mirror), errors: m.errors.WithLabelValues(mirror), bypassed: m.bypassed.WithLabelValues(mirror),
		bytes: m.bytes.WithLabelValues(mirror),
	}
	for _, r := range []Result{Hit, Revalidated, Stale, Miss, Joined, Passed, Absent, Refused, Failed} {
		s.requests[r] = m.requests.WithLabelValues(mirror, string(r))
	}
	m.by[mirror] = s
	return s
}
