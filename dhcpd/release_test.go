package dhcpd

import (
	"context"
	"errors"
	"testing"
	"time"

	"bootlab/internal/event"
)

func TestReleaseByHand(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go b.commitLoop(ctx)
	if _, err := b.Release(ctx, ip("10.77.0.200")); !errors.Is(err, ErrNoLease) {
		t.Fatalf("released what nobody has: %v", err)
	}
	leased := &job{change: (&exchange{
		req: &request{mac: mac(t, other)}, scope: b.table.byIface["lab0"][0], start: b.clock.now(),
	}).lease(ip("10.77.0.201"), Active, time.Hour)}
	done := make(chan error, 1)
	leased.finish = func(_ outbox, err error) { done <- err }
	b.enqueue(leased)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	l, err := b.Release(ctx, ip("10.77.0.201"))
	if err != nil || l.MAC != mac(t, other) {
		t.Fatalf("released %+v, %v", l, err)
	}
	if _, ok := b.deps.Book.ByAddr(ip("10.77.0.201")); ok {
		t.Error("it is still leased")
	}
	if len(b.kinds(event.DHCPRelease)) != 1 {
		t.Error("nobody was told")
	}
	if _, err := b.Release(ctx, ip("10.77.0.201")); !errors.Is(err, ErrNoLease) {
		t.Errorf("released twice: %v", err)
	}
}
