package segment

import (
	"context"
	"errors"
	"log/slog"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/host/link/links"
)

const (
	minWait = 50 * time.Millisecond
	maxWait = 5 * time.Second
	// checkEvery is how often an interface is checked, and at each change of the machine's interfaces: one that is down, or was
	// deleted and made again under the same name, as libvirt does with its bridges, leaves a socket that receives nothing and
	// reports no error.
	checkEvery = time.Second / 2
)

// KeepServing serves an interface until ctx ends, also when it is deleted and made again. It calls serve with a socket of
// the interface and a context that ends with ctx and when the interface was replaced; then it closes the socket, serve must
// return, and is called again with a new socket from listen. first is the first socket; nil: the interface does not exist
// yet. Twice a second, and when interfaces change, it calls report with nil while the interface is served, else with why it is not. When KeepServing
// returns, all sockets are closed.
func KeepServing(ctx context.Context, iface string, first *Socket, listen func(iface string) (*Socket, error), report func(error),
	log *slog.Logger, serve func(context.Context, *Socket),
) {
	changes, err := links.Open()
	if err != nil {
		log.Warn("no notifications of interfaces: their state is polled", "err", err)
	}
	defer changes.Close()
	k := keeper{changed: changes.Changed(), every: checkEvery}
	k.keepServing(ctx, iface, first, listen, report, serve)
}

// A keeper decides when an interface is looked at.
type keeper struct {
	changed <-chan struct{} // an interface of the machine has changed
	every   time.Duration
}

// wait returns when the interface is to be looked at, or ctx ends.
func (k keeper) wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-k.changed:
	case <-t.C:
	}
}

func (k keeper) keepServing(ctx context.Context, iface string, first *Socket, listen func(iface string) (*Socket, error), report func(error),
	serve func(context.Context, *Socket),
) {
	reopen := func() *Socket {
		for wait := minWait; ; wait = min(2*wait, k.every) {
			sock, err := listen(iface)
			if err == nil {
				return sock
			}
			if errors.Is(err, syscall.ENODEV) {
				err = ErrNoInterface
			}
			report(err)
			if k.wait(ctx, wait); ctx.Err() != nil {
				return nil
			}
		}
	}
	sock := first
	if sock == nil {
		sock = reopen()
	}
	for sock != nil {
		k.serveUntilReplaced(ctx, sock, report, serve)
		if ctx.Err() != nil {
			return
		}
		sock = reopen()
	}
}

func (k keeper) serveUntilReplaced(ctx context.Context, sock *Socket, report func(error), serve func(context.Context, *Socket)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		serve(ctx, sock)
	}()
	for ctx.Err() == nil {
		err := sock.Check()
		report(err)
		if errors.Is(err, ErrReplaced) {
			break // to close its sockets takes the kernel a while
		}
		k.wait(ctx, k.every)
	}
	cancel()
	_ = sock.Close()
	<-done
}
