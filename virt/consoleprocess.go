package virt

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Consoles implements Hypervisor. They have a process of their own: a console that is open for days delays no call, and a call that
// hangs no console.
func (r *remote) Consoles(ctx context.Context, sink ConsoleSink) (Consoles, error) {
	p, err := r.connect(ctx, nil, connection{Consoles: true})
	if err != nil {
		return nil, Unreachable(fmt.Errorf("connect to %s for consoles: %w", r.uri, err))
	}
	c := &remoteConsoles{remote: r, process: p, turn: make(chan struct{}, 1), answers: make(chan response, 1), done: make(chan struct{})}
	go c.read(sink)
	return c, nil
}

// remoteConsoles are the consoles of a process.
type remoteConsoles struct {
	remote  *remote
	process *process
	turn    chan struct{} // holds a value during a call
	answers chan response
	done    chan struct{}
	end     sync.Once
}

// read reads the frames of the process until it ends.
func (c *remoteConsoles) read(sink ConsoleSink) {
	defer close(c.done)
	defer c.End()
	for {
		var r response
		if err := readFrame(c.process.conn, &r); err != nil {
			return
		}
		switch f := r.Console; {
		case f == nil:
			select {
			case c.answers <- r:
			default: // no request waits: a process that answers twice is broken
				return
			}
		case f.Reset:
			sink.Reset(f.UUID)
		case f.Ended != "":
			sink.Ended(f.UUID, f.Ended)
		default:
			sink.Output(f.UUID, f.Output)
		}
	}
}

// call makes one call. One that does not return in time ends the process.
func (c *remoteConsoles) call(ctx context.Context, method string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errBusy, ctx.Err())
	case <-c.done:
		return errConsolesEnded
	}
	defer func() { <-c.turn }()
	if err := writeRequest(c.process.conn, method, args); err != nil {
		c.End()
		return errConsolesEnded
	}
	select {
	case r := <-c.answers:
		if r.Broken {
			c.End()
		}
		if r.Err != "" {
			return errors.New(r.Err)
		}
		return nil
	case <-ctx.Done():
		c.End()
		return fmt.Errorf("no answer: %w", ctx.Err())
	case <-c.done:
		return errConsolesEnded
	}
}

// errConsolesEnded is the error of calls to a process for consoles that has ended.
var errConsolesEnded = errors.New("the connection for consoles has ended")

// Open implements Consoles.
func (c *remoteConsoles) Open(ctx context.Context, uuid string, take bool) error {
	return c.call(ctx, "open console", uuid, take)
}

// Type implements Consoles.
func (c *remoteConsoles) Type(ctx context.Context, uuid string, input []byte) error {
	return c.call(ctx, "type on console", uuid, input)
}

// Close implements Consoles.
func (c *remoteConsoles) Close(ctx context.Context, uuid string) error {
	return c.call(ctx, "close console", uuid)
}

// Done implements Consoles.
func (c *remoteConsoles) Done() <-chan struct{} { return c.done }

// End implements Consoles.
func (c *remoteConsoles) End() { c.end.Do(func() { c.remote.forget(c.process) }) }
