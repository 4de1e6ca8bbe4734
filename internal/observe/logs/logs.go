package logs

import (
	"context"
	"log/slog"
	"time"

	"github.com/bootlab/bootlab/internal/observe/event"
)

// The keys of attributes, the same in all of bootlab's log.
const (
	KeyMAC      = "mac"
	KeyAddr     = "addr"
	KeyHost     = "host"
	KeyGen      = "gen"
	KeyNetwork  = "network"
	KeyBalancer = "balancer"
	KeyBackend  = "backend"
	KeyMirror   = "mirror"
	KeyDetail   = "detail"
	KeyBytes    = "bytes"
	KeySize     = "size" // of a transfer that ended early: what was to be sent
	KeyReason   = "reason"
	KeyErr      = "err"
	KeyDur      = "dur"
	KeyMore     = "more" // of a summary: how many lines like this one were not written
	KeyOver     = "over" // of a summary: the time in which they came
)

// A Recorder writes events to a log.
type Recorder struct {
	log *slog.Logger
}

// New returns a recorder that writes to log. A nil log is a bug and panics.
func New(log *slog.Logger) *Recorder {
	if log == nil {
		panic("logs: log is nil")
	}
	return &Recorder{log: log}
}

// Record implements event.Recorder. An event below the handler's level is not formatted.
func (r *Recorder) Record(e event.Event) {
	ctx, handler := context.Background(), r.log.Handler()
	if !handler.Enabled(ctx, e.Kind.Level()) {
		return
	}
	line := slog.NewRecord(e.At, e.Kind.Level(), e.Kind.String(), 0)
	line.AddAttrs(attrs(e)...)
	// There is nowhere to report that the log cannot be written.
	_ = handler.Handle(ctx, line)
}

// attrs returns the fields of e that are set, the machine first.
func attrs(e event.Event) []slog.Attr {
	as := make([]slog.Attr, 0, 8)
	if e.Host != "" {
		as = append(as, slog.String(KeyHost, e.Host))
	}
	if !e.MAC.IsZero() {
		as = append(as, slog.String(KeyMAC, e.MAC.String()))
	}
	if e.Addr.IsValid() {
		as = append(as, slog.String(KeyAddr, e.Addr.String()))
	}
	for _, a := range [...]struct{ key, value string }{
		{KeyNetwork, e.Network}, {KeyBalancer, e.Balancer}, {KeyBackend, e.Backend}, {KeyMirror, e.Mirror}, {KeyDetail, e.Detail},
	} {
		if a.value != "" {
			as = append(as, slog.String(a.key, a.value))
		}
	}
	if e.Bytes != 0 {
		as = append(as, slog.Int64(KeyBytes, e.Bytes))
	}
	if e.Size != 0 {
		as = append(as, slog.Int64(KeySize, e.Size))
	}
	if e.Dur != 0 {
		as = append(as, slog.Duration(KeyDur, e.Dur))
	}
	if e.Reason != "" {
		as = append(as, slog.String(KeyReason, string(e.Reason)))
	}
	if e.Err != "" {
		as = append(as, slog.String(KeyErr, e.Err))
	}
	if e.More > 0 {
		as = append(as, slog.Int(KeyMore, e.More), slog.Duration(KeyOver, e.Over.Round(time.Millisecond)))
	}
	return append(as, slog.Uint64(KeyGen, e.Gen))
}
