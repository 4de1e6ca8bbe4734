package lbproxy

import "github.com/prometheus/client_golang/prometheus"

// Names of the metrics.
const (
	MetricConnections = "bootlab_lbproxy_connections_total"
	MetricActive      = "bootlab_lbproxy_connections_active"
	MetricMost        = "bootlab_lbproxy_connections_limit"
	MetricWaits       = "bootlab_lbproxy_connections_waited_total"
	MetricEvicted     = "bootlab_lbproxy_connections_evicted_total"
	MetricBytes       = "bootlab_lbproxy_bytes_total"
	MetricRequests    = "bootlab_lbproxy_requests_total"
	MetricRetries     = "bootlab_lbproxy_retries_total"
	MetricRejected    = "bootlab_lbproxy_rejected_total"
	MetricBackendUp   = "bootlab_lbproxy_backend_up"
	MetricCheck       = "bootlab_lbproxy_check_seconds"
)

// A reason why a connection, or a request, was turned away.
type reason string

// The reasons. Those without a balancer are counted under the empty balancer.
const (
	rejectNoBackend reason = "no_backend" // every member is down or drained
	rejectConnect   reason = "connect"    // no member let itself be connected to
	rejectLimit     reason = "limit"      // max_connections of a balancer that shares its address
	rejectNoMatch   reason = "no_match"   // no balancer of the address wants this name
	rejectSlow      reason = "slow"       // the first bytes did not come in time
	rejectHeader    reason = "header"     // a broken PROXY header from a peer that is believed
	rejectPending   reason = "pending"    // too many connections wait for their first bytes
	rejectPanic     reason = "panic"      // our bug
)

type metrics struct {
	connections, bytes, requests, retries, rejected *prometheus.CounterVec
	active, up                                      *prometheus.GaugeVec
	checks                                          *prometheus.HistogramVec
	most                                            prometheus.Gauge
	waits, cut                                      prometheus.Counter
}

// poolMetrics are the handles of one balancer.
type poolMetrics struct {
	connections, in, out, retries prometheus.Counter
	active                        prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		most:  prometheus.NewGauge(prometheus.GaugeOpts{Name: MetricMost, Help: "Connections that all balancers together may have."}),
		waits: prometheus.NewCounter(prometheus.CounterOpts{Name: MetricWaits, Help: "Times that a new connection waited because there were as many as there may be."}),
		cut:   prometheus.NewCounter(prometheus.CounterOpts{Name: MetricEvicted, Help: "Connections broken because their client had more than half of all, and others waited."}),

		connections: counter(MetricConnections, "Connections taken.", "balancer"),
		bytes:       counter(MetricBytes, "Bytes moved: in is from clients, out is to clients.", "balancer", "direction"),
		requests:    counter(MetricRequests, "Requests of HTTP mode by class of status.", "balancer", "code"),
		retries:     counter(MetricRetries, "Backends tried beyond the first.", "balancer"),
		rejected:    counter(MetricRejected, "Connections and requests turned away.", "balancer", "reason"),
		active:      gauge(MetricActive, "Connections under way.", "balancer"),
		up:          gauge(MetricBackendUp, "1 while a backend may get new connections, 0 while it is down or drained.", "balancer", "backend"),
		checks: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: MetricCheck, Help: "How long health checks took.", Buckets: []float64{.001, .005, .02, .1, .5, 2, 10},
		}, []string{"kind"}),
	}
	for _, c := range []prometheus.Collector{m.connections, m.bytes, m.requests, m.retries, m.rejected, m.active, m.up, m.checks, m.most, m.waits, m.cut} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) pool(name string) poolMetrics {
	return poolMetrics{
		connections: m.connections.WithLabelValues(name),
		in:          m.bytes.WithLabelValues(name, "in"),
		out:         m.bytes.WithLabelValues(name, "out"),
		retries:     m.retries.WithLabelValues(name),
		active:      m.active.WithLabelValues(name),
	}
}

// forget drops every series of a balancer.
func (m *metrics) forget(balancer string) {
	of := prometheus.Labels{"balancer": balancer}
	for _, c := range []*prometheus.CounterVec{m.connections, m.bytes, m.requests, m.retries, m.rejected} {
		c.DeletePartialMatch(of)
	}
	m.active.DeletePartialMatch(of)
	m.up.DeletePartialMatch(of)
}
