package virt_test

import (
	"context"
	"errors"
	"testing"

	"github.com/bootlab/bootlab/virt"
)

// busyConsoles are consoles that another program has: an attempt to open one fails, at once or when it is released, unless it takes it.
type busyConsoles struct {
	attempts chan bool     // each sends whether it takes the console
	release  chan struct{} // closed: attempts end
}

func (c *busyConsoles) Open(ctx context.Context, _ string, take bool) error {
	select {
	case c.attempts <- take:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-c.release:
	case <-ctx.Done():
		return ctx.Err()
	}
	if !take {
		return errors.New("Active console session exists for this domain")
	}
	return nil
}

func (c *busyConsoles) Type(context.Context, string, []byte) error { return nil }
func (c *busyConsoles) Close(context.Context, string) error        { return nil }
func (c *busyConsoles) Done() <-chan struct{}                      { return nil }
func (c *busyConsoles) End()                                       {}

// forgetful is a log of consoles that keeps nothing.
type forgetful struct{}

func (forgetful) Begin(string, string) {}
func (forgetful) Write(string, []byte) {}

// TestConsoleIsTakenDuringAnAttempt asks for the console while an attempt that does not take it is in progress.
func TestConsoleIsTakenDuringAnAttempt(t *testing.T) {
	t.Parallel()
	f := newFake()
	c := &busyConsoles{attempts: make(chan bool), release: make(chan struct{})}
	f.consoles = c
	b := newTestServerWith(t, oneHost(), virt.Config{}, virt.Deps{Driver: f, Consoles: forgetful{}})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx) }()
	t.Cleanup(func() { cancel(); check(t, <-served) })
	check(t, b.Create(t.Context(), "master-0"))
	check(t, b.Start(t.Context(), "master-0"))
	if <-c.attempts {
		t.Fatal("the first attempt takes the console")
	}
	check(t, b.TakeConsole("master-0"))
	close(c.release)
	for range 5 {
		if <-c.attempts {
			return
		}
	}
	t.Error("no attempt has taken the console")
}
