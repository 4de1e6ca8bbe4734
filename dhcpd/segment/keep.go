package segment

import (
	"context"
	"log/slog"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"
)

const (
	minWait = 50 * time.Millisecond
	maxWait = 5 * time.Second
	// watchEvery is how often an interface is looked at: one that was taken away and made again under the same name, as
	// libvirt does with its bridges, leaves a socket that hears nothing and reports no error.
	watchEvery = 3 * time.Second
)

// A Keeper keeps an interface served through all its lives. Both fields are required.
type Keeper struct {
	Listen func(iface string) (*Socket, error) // Listen, or a test's
	Log    *slog.Logger
}

// Keep calls serve with a socket of the interface until ctx ends. Its context ends with ctx and when the interface was
// replaced; then the socket is closed, serve must return, and is called again with a new one as soon as there is one. first
// is used first; nil: the interface is not there yet. When Keep returns, all is closed.
func (k Keeper) Keep(ctx context.Context, iface string, first *Socket, serve func(context.Context, *Socket)) {
	sock := first
	if sock == nil {
		sock = k.reopen(ctx, iface)
	}
	for sock != nil {
		k.keepOne(ctx, sock, serve)
		if ctx.Err() != nil {
			return
		}
		k.Log.Warn("interface was replaced, opening it again", "iface", iface)
		sock = k.reopen(ctx, iface)
	}
}

func (k Keeper) keepOne(ctx context.Context, sock *Socket, serve func(context.Context, *Socket)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		serve(ctx, sock)
	}()
	for pause.For(ctx, watchEvery) == nil && !sock.Stale() {
	}
	cancel()
	_ = sock.Close()
	<-done
}

func (k Keeper) reopen(ctx context.Context, iface string) *Socket {
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		sock, err := k.Listen(iface)
		if err == nil {
			return sock
		}
		k.Log.Debug("interface is not back yet", "iface", iface, "err", err)
		if pause.For(ctx, wait) != nil {
			return nil
		}
	}
}
