// Package logs writes the log line of every event.
//
// The message is the kind's name and never changes; what happened stands in the attributes, whose keys are the same in
// the whole house.
package logs

import (
	"context"
	"log/slog"

	"bootlab/internal/event"
)

// The keys of attributes.
const (
	KeyMAC    = "mac"
	KeyAddr   = "addr"
	KeyHost   = "host"
	KeyGen    = "gen"
	KeyDetail = "detail"
	KeyErr    = "err"
	KeyBytes  = "bytes"
	KeyDur    = "dur"
)

// A Recorder logs events at the level of their kind. It implements event.Recorder.
type Recorder struct {
	log *slog.Logger
}

// New returns a recorder that writes to log.
func New(log *slog.Logger) *Recorder {
	if log == nil {
		panic("logs: log is nil")
	}
	return &Recorder{log: log}
}

// Record implements event.Recorder.
func (r *Recorder) Record(e event.Event) {
	ctx := context.Background() // a log line outlives whoever caused it
	if !r.log.Enabled(ctx, e.Kind.Level()) {
		return
	}
	var attrs [8]slog.Attr
	r.log.LogAttrs(ctx, e.Kind.Level(), e.Kind.String(), attributes(attrs[:0], e)...)
}

// attributes appends what is known of e.
func attributes(to []slog.Attr, e event.Event) []slog.Attr {
	add := func(known bool, a slog.Attr) {
		if known {
			to = append(to, a)
		}
	}
	add(e.Host != "", slog.String(KeyHost, e.Host))
	add(!e.MAC.IsZero(), slog.String(KeyMAC, e.MAC.String()))
	add(e.Addr.IsValid(), slog.String(KeyAddr, e.Addr.String()))
	add(e.Detail != "", slog.String(KeyDetail, e.Detail))
	add(e.Err != "", slog.String(KeyErr, e.Err))
	add(e.Bytes != 0, slog.Int64(KeyBytes, e.Bytes))
	add(e.Dur != 0, slog.Duration(KeyDur, e.Dur))
	add(e.Gen != 0, slog.Uint64(KeyGen, e.Gen))
	return to
}
