package httpd

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/host/client/logins"
)

// The names of the metrics. The label listener is http (for machines) or admin, as appliance's keys; route and code are
// from closed sets.
const (
	MetricRequests = "bootlab_httpd_requests_total"
	MetricBytes    = "bootlab_httpd_response_bytes_total"
	MetricInFlight = "bootlab_httpd_requests_in_flight"
	MetricDuration = "bootlab_httpd_request_duration_seconds"
	MetricEvicted  = "bootlab_httpd_connections_evicted_total"
	MetricLogins   = "bootlab_httpd_logins_total"
)

const classes = 6 // of status codes; 0 is what net/http would not send

type metrics struct {
	requests [][classes]prometheus.Counter // by route, class
	duration []prometheus.Observer         // by route
	bytes    prometheus.Counter
	inFlight prometheus.Gauge
	evicted  prometheus.Counter
	logins   map[logins.Result]prometheus.Counter // of the admin API
}

// newMetrics registers the metrics of one listener. routes are the values of the label route.
func newMetrics(reg prometheus.Registerer, listener string, routes []string) (*metrics, error) {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: MetricRequests, Help: "HTTP requests answered, by route and class of status code.",
	}, []string{"route", "code"})
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: MetricDuration, Help: "Time from a request's header to the end of its answer.",
		Buckets: []float64{0.001, 0.01, 0.1, 1, 10, 60, 600},
	}, []string{"route"})
	m := &metrics{
		bytes:    prometheus.NewCounter(prometheus.CounterOpts{Name: MetricBytes, Help: "Bytes of HTTP bodies sent."}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: MetricInFlight, Help: "HTTP requests being answered now."}),
		evicted:  prometheus.NewCounter(prometheus.CounterOpts{Name: MetricEvicted, Help: "HTTP connections closed because the connection limit was reached."}),
	}
	reg = prometheus.WrapRegistererWith(prometheus.Labels{"listener": listener}, reg)
	for _, c := range []prometheus.Collector{requests, duration, m.bytes, m.inFlight, m.evicted} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	for _, route := range routes {
		var byClass [classes]prometheus.Counter
		for i, class := range [classes]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"} {
			byClass[i] = requests.WithLabelValues(route, class)
		}
		m.requests = append(m.requests, byClass)
		m.duration = append(m.duration, duration.WithLabelValues(route))
	}
	return m, nil
}

// registerLogins adds the metric that the admin API alone has.
func (m *metrics) registerLogins(reg prometheus.Registerer) error {
	tries := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: MetricLogins, Help: "Tokens shown to the admin API, by result; limited: rejected unread, after too many wrong ones of the same source.",
	}, []string{"result"})
	m.logins = map[logins.Result]prometheus.Counter{}
	for _, result := range []logins.Result{logins.Accepted, logins.Rejected, logins.Limited} {
		m.logins[result] = tries.WithLabelValues(string(result))
	}
	return reg.Register(tries)
}

// count books one answered request. route is an index into the routes of newMetrics.
func (m *metrics) count(route int, w *reply, took time.Duration) {
	class := w.code / 100
	if class < 0 || class >= classes {
		class = 0
	}
	m.requests[route][class].Inc()
	m.duration[route].Observe(took.Seconds())
	m.bytes.Add(float64(w.sent))
}
