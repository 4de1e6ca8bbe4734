package daemon

import (
	"context"
	"slices"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/boot/discovered"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/daemon/serverstate"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/logfile"
	"github.com/bootlab/bootlab/internal/store/records"
)

// persistentState is the state that is kept over restarts.
type persistentState struct {
	store      store.Store
	saver      *records.Saver // for what no request waits for
	clock      *leases.Clock  // all times of book are its
	book       *leases.Book
	installs   *install.Machine
	discovered *discovered.Book
	serials    *serverstate.Serials
	updates    *serverstate.Updates
}

// openPersistentState reads leases, install states and unknown machines from the store. The lease book serves the pools.
func (d *Daemon) openPersistentState(ctx context.Context, s store.Store, pools ...*leases.Pool) (*persistentState, error) {
	clock, err := leases.OpenClock(ctx, s, leases.SystemHost())
	if err != nil {
		return nil, err
	}
	book, err := leases.Open(ctx, s, clock.Now, pools...)
	if err != nil {
		return nil, err
	}
	installs, err := install.Open(ctx, install.Config{}, install.Deps{Store: s, Events: d.bus, Now: clock.Now, Wall: clock.Wall, Damage: damageOf(s)})
	if err != nil {
		return nil, err
	}
	found, err := discovered.Open(ctx, discovered.Config{}, discovered.Deps{Store: s, Log: d.serverLog, Now: time.Now})
	if err != nil {
		return nil, err
	}
	updates, err := serverstate.OpenUpdates(ctx, s, d.log)
	if err != nil {
		return nil, err
	}
	save := records.NewSaver(s)
	serials, err := serverstate.OpenSerials(ctx, s, save, d.log)
	return &persistentState{store: s, saver: save, clock: clock, book: book, installs: installs, discovered: found, serials: serials, updates: updates}, err
}

// damageOf returns what losses of the store mean for install states; nil: nothing.
func damageOf(s store.Store) *install.Loss {
	file, ok := s.(*logfile.Store)
	if !ok {
		return nil
	}
	for _, l := range file.Losses() {
		if !l.Exact || slices.ContainsFunc(l.Keys, install.IsKey) {
			return &install.Loss{Since: l.Found, Why: "the state file was damaged: " + l.String()}
		}
	}
	return nil
}
