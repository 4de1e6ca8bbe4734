package lbproxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/lbproxy/h1"
)

// refuse answers a request whose head cannot be used.
func (c *httpConn) refuse(err error) bool {
	var syntax h1.SyntaxError
	status, why, text := 0, reason(""), err.Error()
	switch {
	case errors.Is(err, h1.ErrHeadTooLarge):
		status, why = http.StatusRequestHeaderFieldsTooLarge, rejectHead
	case errors.As(err, &syntax):
		status, why = http.StatusBadRequest, rejectSyntax
	case c.deadline.expired():
		status, why, text = http.StatusRequestTimeout, rejectTimeout, "the client did not send the head of its request in time"
	default:
		return false // the client is gone
	}
	name := ""
	if f := c.frontend.Load(); f != nil {
		name = f.Name
	}
	c.x.log.reason, c.x.log.err = why, err
	c.proxy.s.reject(name, why, c.x.src, err)
	c.answer(status, text, "")
	c.countBytes()
	c.x.refused(c)
	return false
}

// redirect answers as exchange.redirect wants.
func (c *httpConn) redirect(status int, to string) {
	if to == "" {
		c.answer(status, "this address redirects to https, and CONNECT has no URL", "")
		return
	}
	c.answer(status, to, "Location: "+to+"\r\n")
}

// answer answers with a text of ours; the connection is to be closed.
func (c *httpConn) answer(status int, text, fields string) {
	c.x.status = status
	c.out = append(c.out[:0], "HTTP/1.1 "...)
	c.out = strconv.AppendInt(c.out, int64(status), 10)
	c.out = append(c.out, ' ')
	c.out = append(c.out, http.StatusText(status)...)
	c.out = append(c.out, "\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"...)
	c.out = append(c.out, fields...)
	c.out = append(c.out, "Content-Length: "...)
	c.out = strconv.AppendInt(c.out, int64(len(text)+1), 10)
	c.out = append(c.out, "\r\n\r\n"...)
	if string(c.x.req.Method) != http.MethodHead {
		c.out = append(append(c.out, text...), '\n')
	}
	_ = c.flush()
}

// end lets the client read what was sent before the connection is closed.
func (c *httpConn) end() { c.linger(lingerBytes) }

// linger ends our direction, and reads and drops some of what the client still sends.
func (c *httpConn) linger(octets int64) {
	half, ok := c.conn.(interface{ CloseWrite() error })
	if !ok || c.deadline.expired() || half.CloseWrite() != nil {
		return
	}
	c.timeout = 0
	c.deadline.set(lingerTime)
	_, _ = io.CopyN(io.Discard, reading{c}, octets)
}

// fail answers a request that got no response, or breaks a response off.
func (x *exchange) fail(err error) {
	p, f := x.proxy, x.frontend
	var syntax h1.SyntaxError
	answer := func(why reason, status int, text string) {
		p.s.reject(f.Name, why, x.src, err)
		x.log.reason = why
		x.answer(status, text)
	}
	x.log.err = err
	switch {
	case x.begun:
		x.log.reason = rejectBroken
		if errors.Is(err, errClientGone) {
			x.log.reason = rejectClient
		}
		x.breakOff()
	case errors.As(err, &syntax) && !errors.Is(err, errBadResponse):
		answer(rejectSyntax, http.StatusBadRequest, err.Error())
	case errors.Is(err, h1.ErrHeadTooLarge) && !errors.Is(err, errBadResponse):
		answer(rejectHead, http.StatusRequestHeaderFieldsTooLarge, err.Error())
	case errors.Is(err, errNoTunnel):
		answer(rejectUnsupported, http.StatusNotImplemented, err.Error())
	case errors.Is(err, errBodyTimeout):
		answer(rejectTimeout, http.StatusRequestTimeout, err.Error())
	case errors.Is(err, errClientGone):
		x.log.reason = rejectClient
		x.breakOff()
	case errors.Is(err, errNoBackend):
		answer(rejectNoBackend, http.StatusServiceUnavailable, "no backend of balancer "+f.Name+" is available")
	case errors.Is(err, errQueueFull):
		answer(rejectQueueFull, http.StatusServiceUnavailable, "balancer "+f.Name+": "+err.Error())
	case errors.Is(err, errQueueTimeout):
		answer(rejectQueueTimeout, http.StatusServiceUnavailable, "balancer "+f.Name+": "+err.Error())
	case errors.Is(err, errBackendLimit):
		x.log.backend = nil // it was not asked
		answer(rejectLimit, http.StatusServiceUnavailable, "balancer "+f.Name+": "+err.Error())
	case isDial(err):
		answer(rejectConnect, http.StatusServiceUnavailable, "no backend of balancer "+f.Name+" accepts connections")
	case errors.Is(err, errServerTimeout):
		answer(rejectServerTimeout, http.StatusGatewayTimeout, fmt.Sprintf("a backend of balancer %s did not answer within %s", f.Name, f.Timeouts.Server))
	case errors.Is(err, errBadResponse):
		answer(rejectResponse, http.StatusBadGateway, "a backend of balancer "+f.Name+" sent a malformed response")
	default:
		answer(rejectClosed, http.StatusBadGateway, "a backend of balancer "+f.Name+" closed the connection before it answered")
	}
}

// answer answers with a text of ours, after the upload has ended: it reads from the same connection.
func (x *exchange) answer(status int, text string) {
	x.status = status
	x.stopUpload()
	c, ok := x.client.(*httpConn)
	if !ok {
		x.client.(*http2Stream).answer(status, text)
		return
	}
	fields := ""
	if status == http.StatusServiceUnavailable {
		fields = "Retry-After: 5\r\n"
	}
	c.answer(status, text, fields)
}

// breakOff resets the client's connection, so that a part of a response is not taken for the whole.
func (x *exchange) breakOff() {
	switch c := x.client.(type) {
	case *httpConn:
		c.abort()
	case *http2Stream:
		c.broken = true
	}
}

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
		why := x.log.reason
		ofClient := why == rejectTimeout || why == rejectSyntax || why == rejectHead // in its body
		if class == 5 || why != "" && why != rejectClient && !ofClient {
			b.state.traffic.errors.Add(1)
		}
		if why != "" && !ofClient {
			x.proxy.s.metrics.backendErrors.WithLabelValues(f.Name, b.Label, string(why)).Inc()
		}
	}
	x.logAs(f.Log, now)
}

// refused logs a request that came to no exchange. One that is of no balancer is logged as any balancer of its address wants it.
func (x *exchange) refused(c *httpConn) {
	if x.frontend == nil {
		x.frontend = c.frontend.Load()
	}
	wanted := lab.LogNone
	if x.frontend != nil {
		wanted = x.frontend.Log
	} else {
		for _, f := range c.listener.listener.frontends {
			if f.Log == lab.LogRequests || wanted != lab.LogRequests && f.Log == lab.LogErrors {
				wanted = f.Log
			}
		}
	}
	x.logAs(wanted, time.Now())
}

// logAs logs a request if the access log wants it.
func (x *exchange) logAs(wanted lab.AccessLog, now time.Time) {
	if wanted == lab.LogRequests || wanted == lab.LogErrors && (x.log.reason != "" || classOf(x.status) == 5) {
		x.write(now)
	}
}

// write writes the request's line of the access log. The times are those of HAProxy's TR, Tw+Tc, Tr and Ta; -1 is a step
// that was not reached.
func (x *exchange) write(now time.Time) {
	l, balancer, backend := &x.log, "", ""
	if x.frontend != nil {
		balancer = x.frontend.Name
	}
	if l.backend != nil {
		backend = l.backend.Label
	}
	end := string(l.reason)
	if end == "" {
		end = "complete"
	}
	path, _, _ := bytes.Cut(x.req.Target, []byte("?")) // the query may hold secrets
	attrs := []slog.Attr{
		slog.String("balancer", balancer), slog.String(keyBackend, backend), slog.String(keyAddr, x.src.String()),
		slog.String("method", string(x.req.Method)), slog.String("host", string(x.req.Host)), slog.String("path", string(path)),
		slog.Int("status", x.status), slog.Int64("bytes_in", x.log.bytes[0]), slog.Int64("bytes_out", x.log.bytes[1]),
		slog.Float64("head_ms", millis(l.start, l.head)), slog.Float64("connect_ms", millis(l.head, l.connected)),
		slog.Float64("response_ms", millis(l.connected, l.answered)), slog.Float64("total_ms", millis(l.start, now)),
		slog.Int("retries", l.retries), slog.String("end", end),
	}
	if l.err != nil {
		attrs = append(attrs, slog.String(keyErr, l.err.Error()))
	}
	x.proxy.s.accessLog.LogAttrs(x.proxy.ctx, slog.LevelInfo, "request", attrs...)
}

func millis(from, to time.Time) float64 {
	if from.IsZero() || to.IsZero() {
		return -1
	}
	return float64(to.Sub(from).Microseconds()) / 1000
}
