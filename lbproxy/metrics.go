package lbproxy

import (
	"context"
	"errors"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/lab"
)

// Names of the metrics.
const (
	MetricConnections     = "bootlab_lbproxy_connections_total"
	MetricActive          = "bootlab_lbproxy_connections_active"
	MetricLimit           = "bootlab_lbproxy_connections_limit"
	MetricDelayed         = "bootlab_lbproxy_connections_delayed_total"
	MetricEvicted         = "bootlab_lbproxy_connections_evicted_total"
	MetricQueued          = "bootlab_lbproxy_queue_clients"
	MetricBytes           = "bootlab_lbproxy_bytes_total"
	MetricDatagrams       = "bootlab_lbproxy_datagrams_total"
	MetricRequests        = "bootlab_lbproxy_requests_total"
	MetricRetries         = "bootlab_lbproxy_retries_total"
	MetricRejected        = "bootlab_lbproxy_rejected_total"
	MetricFaults          = "bootlab_lbproxy_local_faults_total"
	MetricWithoutSNI      = "bootlab_lbproxy_connections_without_sni_total"
	MetricBackendUp       = "bootlab_lbproxy_backend_up"
	MetricBackendRequests = "bootlab_lbproxy_backend_requests_total"
	MetricBackendErrors   = "bootlab_lbproxy_backend_errors_total"
	MetricBackendConns    = "bootlab_lbproxy_backend_connections_total"
	MetricBackendConnect  = "bootlab_lbproxy_backend_connect_duration_seconds"
	MetricBackendResponse = "bootlab_lbproxy_backend_response_duration_seconds"
	MetricCheck           = "bootlab_lbproxy_check_duration_seconds"
)

// A reason why a connection or request was rejected.
type reason string

// The reasons. Those found before the balancer is known are counted under the empty balancer.
const (
	rejectNoBackend    reason = "no_backend"    // every backend is down or drained
	rejectQueueFull    reason = "queue_full"    // every backend has max_connections, and as many clients wait as may
	rejectQueueTimeout reason = "queue_timeout" // every backend had max_connections for timeouts.queue
	rejectConnect      reason = "connect"       // no backend accepted a connection
	rejectLimit        reason = "limit"         // max_connections of a balancer that shares its address; of HTTP/2 requests the limit of requests, or of connections to backends
	rejectNoMatch      reason = "no_match"      // no balancer of the address matches the name
	rejectTimeout      reason = "timeout"       // the first bytes did not come in time
	rejectHeader       reason = "proxy_header"  // a trusted peer sent an invalid PROXY header
	rejectPending      reason = "pending"       // too many connections wait for their first bytes
	rejectPanic        reason = "panic"         // a bug of bootlab

	// Of requests in HTTP mode.
	rejectTLS            reason = "tls"             // the TLS handshake failed
	rejectFlood          reason = "flood"           // an HTTP/2 client sends too many frames without content
	rejectSyntax         reason = "syntax"          // 400: the request is malformed
	rejectHead           reason = "head_too_large"  // 431
	rejectUnsupported    reason = "unsupported"     // 501: CONNECT in HTTP/2
	rejectServerTimeout  reason = "server_timeout"  // 504: the backend did not answer in time
	rejectClosed         reason = "server_closed"   // 502: the backend closed the connection before it answered
	rejectResponse       reason = "bad_response"    // 502: the backend's response is malformed
	rejectBroken         reason = "server_broken"   // the backend's response ended early
	rejectConnectTimeout reason = "connect_timeout" // the backend did not accept in time; only of backends in mode tcp
	rejectClient         reason = "client_closed"   // the client closed the connection; in the metric only of those that waited in a queue in TCP mode
)

type metrics struct {
	connections, bytes, requests, retries, rejected, withoutSNI *prometheus.CounterVec
	datagrams, faults                                           *prometheus.CounterVec
	backendRequests, backendErrors, backendConns                *prometheus.CounterVec
	active, up, queued                                          *prometheus.GaugeVec
	checks, latency, backendConnect                             *prometheus.HistogramVec
	limit                                                       prometheus.Gauge
	delayed, evicted                                            prometheus.Counter
}

// frontendMetrics are the handles of one balancer.
type frontendMetrics struct {
	connections, in, out, retries prometheus.Counter
	datagramsIn, datagramsOut     prometheus.Counter // nil: not of mode udp
	active, queued                prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	m := &metrics{
		limit:   prometheus.NewGauge(prometheus.GaugeOpts{Name: MetricLimit, Help: "Maximum number of open connections of all balancers together."}),
		delayed: prometheus.NewCounter(prometheus.CounterOpts{Name: MetricDelayed, Help: "Connections delayed by the connection limit."}),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{Name: MetricEvicted, Help: "Connections closed because their client had as many as were left " +
			"for others, or at the limit of connections or HTTP/2 requests the most."}),

		connections: counter(MetricConnections, "Accepted connections.", "balancer"),
		bytes:       counter(MetricBytes, "Bytes received from clients (in) and sent to clients (out).", "balancer", "direction"),
		datagrams:   counter(MetricDatagrams, "Datagrams of mode udp received from clients (in) and sent to clients (out).", "balancer", "direction"),
		requests:    counter(MetricRequests, "Requests in HTTP mode by class of status.", "balancer", "code"),
		retries:     counter(MetricRetries, "Connection attempts to another backend after the first did not answer.", "balancer"),
		rejected:    counter(MetricRejected, "Rejected connections and requests by reason.", "balancer", "reason"),
		faults: counter(MetricFaults, "Connects, checks and datagrams to backends that failed on this machine, which counts against no backend, by "+
			"reason: descriptors, ports, memory, denied (firewall or security policy), size (of a datagram), ca_file (unreadable), panic.", "reason"),
		withoutSNI: counter(MetricWithoutSNI, "Connections to an address that balancers share by server name which have none, by reason: too_long, a "+
			"ClientHello over 16 KiB; ech, an encrypted one whose outer name matches none; no_name; no_tls. They go to the balancer without a match.", "reason"),
		backendRequests: counter(MetricBackendRequests, "Requests in HTTP mode by backend and class of status.", "balancer", "backend", "code"),
		backendErrors: counter(MetricBackendErrors, "Requests in HTTP mode that ended early, and in mode tcp failed connects and connections that the "+
			"backend reset, by backend and reason.", "balancer", "backend", "reason"),
		backendConns: counter(MetricBackendConns, "Connections to backends in mode tcp, by backend.", "balancer", "backend"),
		backendConnect: histogram(MetricBackendConnect, "Time to connect to a backend in mode tcp, by backend.",
			[]float64{.0005, .001, .005, .02, .1, .5, 2, 10}, "balancer", "backend"),
		latency: histogram(MetricBackendResponse, "Time from the request to the head of the response in HTTP mode, by backend.",
			[]float64{.001, .005, .02, .1, .5, 2, 10, 60}, "balancer", "backend"),
		active: gauge(MetricActive, "Open connections.", "balancer"),
		queued: gauge(MetricQueued, "Clients that wait because all backends have max_connections, or are down for a moment, and HTTP/2 requests at the limit of connections to backends.", "balancer"),
		up:     gauge(MetricBackendUp, "1 while a backend may get new connections, 0 while it is down or drained.", "balancer", "backend"),
		checks: histogram(MetricCheck, "Duration of health checks.", []float64{.001, .005, .02, .1, .5, 2, 10}, "kind"),
	}
	for _, c := range []prometheus.Collector{m.connections, m.bytes, m.datagrams, m.requests, m.retries, m.rejected, m.faults, m.withoutSNI, m.active,
		m.queued, m.up, m.checks, m.backendRequests, m.backendErrors, m.backendConns, m.backendConnect, m.latency, m.limit, m.delayed, m.evicted} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) frontend(name string, mode lab.BalanceMode) frontendMetrics {
	of := frontendMetrics{
		connections: m.connections.WithLabelValues(name),
		in:          m.bytes.WithLabelValues(name, "in"),
		out:         m.bytes.WithLabelValues(name, "out"),
		retries:     m.retries.WithLabelValues(name),
		active:      m.active.WithLabelValues(name),
		queued:      m.queued.WithLabelValues(name),
	}
	if mode == lab.ModeUDP {
		of.datagramsIn, of.datagramsOut = m.datagrams.WithLabelValues(name, "in"), m.datagrams.WithLabelValues(name, "out")
	}
	return of
}

// A family has series with labels, of which some can be dropped.
type family interface {
	DeletePartialMatch(prometheus.Labels) int
}

// ofBackends are the families by backend that end with the backend; that of backend_up does not.
func (m *metrics) ofBackends() []family {
	return []family{m.backendRequests, m.backendErrors, m.backendConns, m.latency, m.backendConnect}
}

// forget drops every series of a balancer.
func (m *metrics) forget(balancer string) {
	own := []family{m.connections, m.bytes, m.datagrams, m.requests, m.retries, m.rejected, m.active, m.queued, m.up}
	for _, f := range append(own, m.ofBackends()...) {
		f.DeletePartialMatch(prometheus.Labels{"balancer": balancer})
	}
}

// forgetBackend drops every series of a backend but backend_up.
func (m *metrics) forgetBackend(balancer, backend string) {
	for _, f := range m.ofBackends() {
		f.DeletePartialMatch(prometheus.Labels{"balancer": balancer, "backend": backend})
	}
}

// tcpMetrics are the handles of one backend of a balancer in mode tcp.
type tcpMetrics struct {
	connections               prometheus.Counter
	connect                   prometheus.Observer
	refused, timedOut, broken prometheus.Counter
}

func (m *metrics) tcp(balancer, backend string) *tcpMetrics {
	failed := func(why reason) prometheus.Counter {
		return m.backendErrors.WithLabelValues(balancer, backend, string(why))
	}
	return &tcpMetrics{
		connections: m.backendConns.WithLabelValues(balancer, backend), connect: m.backendConnect.WithLabelValues(balancer, backend),
		refused: failed(rejectConnect), timedOut: failed(rejectConnectTimeout), broken: failed(rejectBroken),
	}
}

// connected counts a connection to the backend.
func (s *backendState) connected(took time.Duration) {
	if m := s.tcp.Load(); m != nil {
		m.connections.Inc()
		m.connect.Observe(took.Seconds())
	}
}

// connectFailed counts a failed connect to the backend.
func (s *backendState) connectFailed(err error) {
	m := s.tcp.Load()
	switch {
	case m == nil || errors.Is(err, context.Canceled):
	case isSilence(err):
		m.timedOut.Inc()
	default:
		m.refused.Inc()
	}
}

// broke counts a connection that the backend has reset.
func (s *backendState) broke() {
	if m := s.tcp.Load(); m != nil {
		m.broken.Inc()
	}
}

// A traffic is what a backend has served. The zero value is ready; add and fail take no lock.
type traffic struct {
	total  atomic.Int64 // connections with the backend, in HTTP mode requests
	errors atomic.Int64 // failed connects; in HTTP mode also responses that are 5xx, missing or cut
	counts [latencyBuckets]atomic.Uint32

	mu           sync.Mutex
	older, newer [latencyBuckets]uint32 // counts at the last two rotations
}

// Latencies are counted in four buckets for each power of two of microseconds: an error of a quarter at most.
const (
	latencyBits    = 2
	latencyBuckets = 128 // up to some 70 minutes
	// latencyRotation is how often the latencies before are forgotten: quantiles are those of one to two rotations.
	latencyRotation = 10 * time.Second
)

func latencyBucket(d time.Duration) int {
	us := uint64(max(d.Microseconds(), 0))
	if us < 1<<latencyBits {
		return int(us)
	}
	power := bits.Len64(us) - latencyBits - 1
	return min(power<<latencyBits+int(us>>power), latencyBuckets-1)
}

// latencyOf returns the middle of a bucket.
func latencyOf(bucket int) time.Duration {
	if bucket < 2<<latencyBits {
		return time.Duration(bucket) * time.Microsecond
	}
	power := bucket>>latencyBits - 1
	least := time.Duration(bucket-power<<latencyBits) << power
	return (least + 1<<power/2) * time.Microsecond
}

// add counts a connection or request, and how long its client waited for the backend.
func (t *traffic) add(latency time.Duration) {
	t.total.Add(1)
	t.counts[latencyBucket(latency)].Add(1)
}

// rotate forgets the latencies before the last rotation.
func (t *traffic) rotate() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.older = t.newer
	for i := range t.counts {
		t.newer[i] = t.counts[i].Load()
	}
}

// quantiles returns the median and the 99th percentile of the recent latencies; 0: there are none.
func (t *traffic) quantiles() (p50, p99 time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var recent [latencyBuckets]uint32
	var total uint64
	for i := range recent {
		recent[i] = t.counts[i].Load() - t.older[i]
		total += uint64(recent[i])
	}
	at := func(permille uint64) time.Duration {
		var seen uint64
		for i, n := range recent {
			if seen += uint64(n); n > 0 && seen*1000 >= total*permille {
				return latencyOf(i)
			}
		}
		return 0
	}
	return at(500), at(990)
}

// rotateLatencies forgets old latencies of all backends.
func (s *Server) rotateLatencies() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, state := range s.backendStates {
		state.traffic.rotate()
	}
}
