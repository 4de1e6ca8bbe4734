package lbproxy

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/lbproxy/h1"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/prometheus/client_golang/prometheus"
)

// noAddr is the client of what has none.
var noAddr netip.AddrPort

// A requestLog is what is known of one request when it ends.
type requestLog struct {
	start     time.Time // the first byte of the request, or the end of the wait for it
	head      time.Time // the head was read
	dialed    time.Time // the last backend was chosen
	connected time.Time // its connection was open
	answered  time.Time // the head of its response came
	retries   int
	reason    reason // why the request or its response ended early; empty: complete
	err       error
	framing   h1.Framing // of the response to the client
	backend   *backend   // that answered or failed last; nil: none was chosen
	bytes     [2]int64   // of the client's connection, in and out
}

// httpMetrics are the handles of one backend of one balancer.
type httpMetrics struct {
	requests [6]prometheus.Counter // by class of status
	latency  prometheus.Observer
}

func (m *metrics) http(balancer, backend string) *httpMetrics {
	out := &httpMetrics{latency: m.latency.WithLabelValues(balancer, backend)}
	for i, class := range statusClasses {
		out.requests[i] = m.backendRequests.WithLabelValues(balancer, backend, class)
	}
	return out
}

// statusClasses are the values of the label code.
var statusClasses = [6]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

func classOf(status int) int {
	if status < 100 || status > 599 {
		return 0
	}
	return status / 100
}

// done counts and logs a request.
func (x *exchange) done() {
	f, class, now := x.frontend, classOf(x.status), time.Now()
	f.state.request(x.proxy.s.metrics, f.Name, class)
	if b := x.log.backend; b != nil {
		m := b.state.metrics.Load()
		if m == nil {
			m = x.proxy.s.metrics.http(f.Name, b.Label)
			b.state.metrics.Store(m)
		}
		m.requests[class].Inc()
		if answered := x.log.answered; !answered.IsZero() {
			m.latency.Observe(answered.Sub(x.log.connected).Seconds())
			b.state.traffic.add(answered.Sub(x.log.dialed))
		}
		if class == 5 || x.log.reason != "" && x.log.reason != rejectClient {
			b.state.traffic.errors.Add(1)
		}
		if x.log.reason != "" {
			x.proxy.s.metrics.backendErrors.WithLabelValues(f.Name, b.Label, string(x.log.reason)).Inc()
		}
	}
	if f.Log == lab.LogRequests || f.Log == lab.LogErrors && (x.log.reason != "" || class == 5) {
		x.write(now)
	}
}

// write writes the request's line of the access log. The times are those of HAProxy's TR, Tw+Tc, Tr and Ta; -1 is a step
// that was not reached.
func (x *exchange) write(now time.Time) {
	l, backend := &x.log, ""
	if l.backend != nil {
		backend = l.backend.Label
	}
	end := string(l.reason)
	if end == "" {
		end = "complete"
	}
	attrs := []slog.Attr{
		slog.String("balancer", x.frontend.Name), slog.String(keyBackend, backend), slog.String(keyAddr, x.src.String()),
		slog.String("method", string(x.req.Method)), slog.String("host", string(x.req.Host)), slog.String("path", pathOf(x.req.Target)),
		slog.Int("status", x.status), slog.Int64("bytes_in", x.log.bytes[0]), slog.Int64("bytes_out", x.log.bytes[1]),
		slog.Float64("head_ms", millis(l.start, l.head)), slog.Float64("connect_ms", millis(l.head, l.connected)),
		slog.Float64("response_ms", millis(l.connected, l.answered)), slog.Float64("total_ms", millis(l.start, now)),
		slog.Int("retries", l.retries), slog.String("end", end),
	}
	if l.err != nil {
		attrs = append(attrs, slog.String(keyErr, l.err.Error()))
	}
	x.proxy.s.log.LogAttrs(x.proxy.ctx, slog.LevelInfo, "request", attrs...)
}

// pathOf returns a target without its query, which may hold secrets.
func pathOf(target []byte) string {
	for i, c := range target {
		if c == '?' {
			return string(target[:i])
		}
	}
	return string(target)
}

func millis(from, to time.Time) float64 {
	if from.IsZero() || to.IsZero() {
		return -1
	}
	return float64(to.Sub(from).Microseconds()) / 1000
}
