package mirror

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// The names of the metrics. Each has the label mirror, a name of the lab file.
const (
	MetricRequests  = "bootlab_mirror_requests_total"
	MetricSent      = "bootlab_mirror_sent_bytes_total"
	MetricFetched   = "bootlab_mirror_fetched_bytes_total"
	MetricBytes     = "bootlab_mirror_cache_bytes"
	MetricEvictions = "bootlab_mirror_evictions_total"
	MetricErrors    = "bootlab_mirror_upstream_errors_total"
	MetricBypassed  = "bootlab_mirror_bypassed_total"
)

type metrics struct {
	requests                                 *prometheus.CounterVec
	sent, fetched, evictions, errors, unkept *prometheus.CounterVec
	bytes                                    *prometheus.GaugeVec

	mu sync.Mutex
	by map[string]*shelfMetrics
}

// shelfMetrics are those of one mirror.
type shelfMetrics struct {
	requests                                 map[Result]prometheus.Counter
	sent, fetched, evictions, errors, unkept prometheus.Counter
	bytes                                    prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"mirror"}, labels...))
	}
	m := &metrics{
		requests:  counter(MetricRequests, "Requests for files of a mirror, by how they were answered.", "result"),
		sent:      counter(MetricSent, "Bytes that machines got from a mirror."),
		fetched:   counter(MetricFetched, "Bytes that came from upstream."),
		evictions: counter(MetricEvictions, "Files thrown away to make room."),
		errors:    counter(MetricErrors, "Questions that no upstream answered, and fetches that broke off or were not what they should be."),
		unkept:    counter(MetricBypassed, "Files that were passed through because they cannot be kept: no room, or the disk refused."),
		bytes:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: MetricBytes, Help: "Room on disk that a mirror takes."}, []string{"mirror"}),
		by:        map[string]*shelfMetrics{},
	}
	for _, c := range []prometheus.Collector{m.requests, m.sent, m.fetched, m.evictions, m.errors, m.unkept, m.bytes} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// of returns the metrics of one mirror.
func (m *metrics) of(mirror string) *shelfMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.by[mirror]; s != nil {
		return s
	}
	s := &shelfMetrics{
		requests: map[Result]prometheus.Counter{}, sent: m.sent.WithLabelValues(mirror), fetched: m.fetched.WithLabelValues(mirror),
		evictions: m.evictions.WithLabelValues(mirror), errors: m.errors.WithLabelValues(mirror), unkept: m.unkept.WithLabelValues(mirror),
		bytes: m.bytes.WithLabelValues(mirror),
	}
	for _, r := range results() {
		s.requests[r] = m.requests.WithLabelValues(mirror, string(r))
	}
	m.by[mirror] = s
	return s
}
