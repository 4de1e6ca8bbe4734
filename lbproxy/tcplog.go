package lbproxy

import (
	"context"
	"log/slog"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// An ending is how a connection in mode tcp ended: in the words of the access log, and as HAProxy's termination state (%ts).
type ending struct{ words, state string }

var (
	endComplete     = &ending{"complete", "--"}
	endClient       = &ending{string(rejectClient), "CD"}
	endServer       = &ending{string(rejectBroken), "SD"}
	endIdle         = &ending{"idle", "cD"} // timeouts.idle
	endClientLost   = &ending{"client_unresponsive", "cD"}
	endServerLost   = &ending{"server_unresponsive", "sD"}
	endBackendDown  = &ending{"backend_down", "DD"} // on_down: close
	endShutdown     = &ending{"shutdown", "KD"}
	endEvicted      = &ending{"evicted", "RD"} // by the connection limit
	endPanic        = &ending{string(rejectPanic), "ID"}
	endConnect      = &ending{string(rejectConnect), "SC"}
	endConnectTime  = &ending{string(rejectConnect), "sC"}
	endNoBackend    = &ending{string(rejectNoBackend), "SC"}
	endQueueFull    = &ending{string(rejectQueueFull), "SQ"}
	endQueueTimeout = &ending{string(rejectQueueTimeout), "sQ"}
	endQueueLeft    = &ending{string(rejectClient), "CQ"}
	endLimit        = &ending{string(rejectLimit), "PR"}
)

// endingOf returns the ending of a connection that was rejected.
func endingOf(why reason, err error) *ending {
	switch why {
	case rejectNoBackend:
		return endNoBackend
	case rejectQueueFull:
		return endQueueFull
	case rejectQueueTimeout:
		return endQueueTimeout
	case rejectClient:
		return endQueueLeft
	case rejectLimit:
		return endLimit
	case rejectPanic:
		return endPanic
	}
	if isSilence(err) {
		return endConnectTime
	}
	return endConnect
}

// A connRecord is what the access log has of one connection in mode tcp.
type connRecord struct {
	client    *clientConn
	backend   *backend // nil: none was connected
	end       *ending
	err       error
	in, out   int64
	connected time.Duration // from the start until the backend was connected; below 0: it was not
	total     time.Duration
}

// logs reports whether the access log has a connection with that ending.
func (f *frontend) logs(end *ending) bool {
	return f.Log == lab.LogRequests || f.Log == lab.LogErrors && end != endComplete
}

// rejectTCP counts and logs a connection of f that is rejected.
func (s *Server) rejectTCP(f *frontend, why reason, c *clientConn, err error) {
	s.reject(f.Name, why, c.src, err)
	if end := endingOf(why, err); f.logs(end) {
		s.logConnection(f, &connRecord{client: c, end: end, err: err, in: int64(len(c.prefix)), connected: -1, total: time.Since(c.start)})
	}
}

// log writes the line of a relay that has ended. An event loop must not wait for the log.
func (r *relay) log(in, out int64) {
	if r.frontend.Log != lab.LogRequests && r.frontend.Log != lab.LogErrors {
		return
	}
	end := r.ending()
	if !r.frontend.logs(end) {
		return
	}
	record := &connRecord{client: r.client, backend: r.backend, end: end, in: in, out: out, connected: r.connected.Sub(r.client.start), total: time.Since(r.client.start)}
	r.s.work(func() {
		defer r.s.panics.Contain()
		r.s.logConnection(r.frontend, record)
	})
}

// ending returns how the relay ended.
func (r *relay) ending() *ending {
	if r.client.wasEvicted() {
		return endEvicted
	}
	if end := r.end.Load(); end != nil {
		return end
	}
	return endComplete
}

// logConnection writes a line of the access log. The times are those of HAProxy's Tw+Tc and Tt; -1 is a step that was not reached.
func (s *Server) logConnection(f *frontend, l *connRecord) {
	backend, connected := "", -1.0
	if l.backend != nil {
		backend = l.backend.Label
	}
	if l.connected >= 0 {
		connected = float64(l.connected.Microseconds()) / 1000
	}
	attrs := []slog.Attr{
		slog.String("balancer", f.Name), slog.String(keyBackend, backend), slog.String(keyAddr, l.client.src.String()),
		slog.Int64("bytes_in", l.in), slog.Int64("bytes_out", l.out),
		slog.Float64("connect_ms", connected), slog.Float64("total_ms", float64(l.total.Microseconds())/1000),
		slog.String("end", l.end.words), slog.String("state", l.end.state),
	}
	if l.err != nil {
		attrs = append(attrs, slog.String(keyErr, l.err.Error()))
	}
	s.log.LogAttrs(context.Background(), slog.LevelInfo, "connection", attrs...)
}
