package httpd

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/bootlab/bootlab/internal/host/client/connlimit"
	"github.com/bootlab/bootlab/internal/host/client/webserver"
)

// Limits bound what one connection may cost. The zero value means the defaults.
type Limits struct {
	Header time.Duration // to send a request's header; default 10 s
	Idle   time.Duration // between two requests of a connection; default 60 s
	Stall  time.Duration // without a byte of progress until a transfer is given up; default 60 s
	Drain  time.Duration // for transfers under way when the server stops; default 30 s

	Connections int // open at one time; default 4096
	// Patience is how long a client may take less than minRate, or than its part of minTotal, while it has one of Connections, and all clients have equally many, before
	// another client gets it. Default 5 s; of Boot only.
	Patience time.Duration
}

const (
	maxBody = 1 << 20 // of what an installer reports

	// minRate and minTotal are bytes a second. Who takes less than the first, or than one connection's part of the second, makes room: to keep a
	// server with few connections from others must not be cheaper than what any link carries.
	minRate  = 8 << 10
	minTotal = 1 << 20
)

func (l Limits) withDefaults() Limits {
	return Limits{
		Header: cmp.Or(l.Header, 10*time.Second),
		Idle:   cmp.Or(l.Idle, time.Minute),
		Stall:  cmp.Or(l.Stall, time.Minute),
		Drain:  cmp.Or(l.Drain, 30*time.Second),

		Connections: cmp.Or(l.Connections, 4096),
		Patience:    cmp.Or(l.Patience, 5*time.Second),
	}
}

// server returns the server with these limits.
func (l Limits) server(m *metrics, log *slog.Logger) *webserver.Server {
	conns := connlimit.New(connlimit.Config{Max: l.Connections, Patience: l.Patience, MinRate: max(minRate, minTotal/int64(l.Connections))})
	return &webserver.Server{Conns: conns, Header: l.Header, Idle: l.Idle, Drain: l.Drain, Evicted: m.evicted.Inc, Log: log}
}
