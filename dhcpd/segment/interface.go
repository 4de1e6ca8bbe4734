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
	// checkEvery is how often an interface is checked: one that was deleted and made again under the same name, as libvirt
	// does with its bridges, leaves a socket that receives nothing and reports no error.
	checkEvery = 3 * time.Second
)

// KeepServing serves an interface until ctx ends, also when it is deleted and made again. It calls serve with a socket of
// the interface and a context that ends with ctx and when the interface was replaced; then it closes the socket, serve must
// return, and is called again with a new socket from listen. first is the first socket; nil: the interface does not exist
// yet. When KeepServing returns, all sockets are closed.
func KeepServing(ctx context.Context, iface string, first *Socket, listen func(iface string) (*Socket, error), log *slog.Logger,
	serve func(context.Context, *Socket),
) {
	reopen := func() *Socket {
		for wait := minWait; ; wait = min(2*wait, maxWait) {
			sock, err := listen(iface)
			if err == nil {
				return sock
			}
			log.Debug("interface cannot be opened yet", "iface", iface, "err", err)
			if pause.For(ctx, wait) != nil {
				return nil
			}
		}
	}
	sock := first
	if sock == nil {
		sock = reopen()
	}
	for sock != nil {
		serveUntilReplaced(ctx, sock, serve)
		if ctx.Err() != nil {
			return
		}
		log.Warn("interface was replaced, opening it again", "iface", iface)
		sock = reopen()
	}
}

func serveUntilReplaced(ctx context.Context, sock *Socket, serve func(context.Context, *Socket)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		serve(ctx, sock)
	}()
	for pause.For(ctx, checkEvery) == nil && !sock.Replaced() {
	}
	cancel()
	_ = sock.Close()
	<-done
}
