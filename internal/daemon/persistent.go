package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/boot/discovered"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/daemon/dnsstate"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/logfile"
	"github.com/bootlab/bootlab/internal/store/records"
)

// stateFile is the embedded store, below appliance.state.
const stateFile = logfile.Name

// persistentState is the state that is kept over restarts.
type persistentState struct {
	store      store.Store
	saver      *records.Saver // for what no request waits for
	clock      *leases.Clock  // all times of book are its
	book       *leases.Book
	installs   *install.Machine
	discovered *discovered.Book
	serials    *dnsstate.Serials
	updates    *dnsstate.Updates
}

// CheckStoreConfig returns an error if the daemon does not support the store of the lab file.
func CheckStoreConfig(a lab.Appliance) error {
	if len(a.Store.Etcd) > 0 {
		return errors.New("appliance.store.etcd: " + noEtcd(a))
	}
	return nil
}

func noEtcd(a lab.Appliance) string {
	return "is not supported yet: leave store out to keep state in " + filepath.Join(a.State, stateFile)
}

// openStore opens the store that the lab names.
func openStore(a lab.Appliance, log *slog.Logger) (*logfile.Store, error) {
	if err := CheckStoreConfig(a); err != nil {
		return nil, err
	}
	path := filepath.Join(a.State, stateFile)
	s, losses, err := logfile.Open(path)
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return nil, fmt.Errorf("%w: free space and inodes there, or set appliance.state to a folder on another disk", err)
	case errors.Is(err, syscall.EROFS):
		return nil, fmt.Errorf("%w: the first start creates it: remount the file system writable, or set appliance.state to another folder", err)
	case err != nil:
		return nil, err
	}
	for _, l := range losses {
		switch l.Kind {
		case logfile.Torn:
			log.Info("state file ends with an incomplete write: removed it", "file", path, "damage", l.String())
		case logfile.Corrected:
			log.Warn("state file was damaged and corrected, nothing is lost: check memory and disk of this machine", "file", path, "damage", l.String())
		case logfile.Lost:
			log.Error("state file is damaged: stored changes are lost", "file", path, "damage", l.String())
		}
	}
	return s, nil
}

// openPersistentState reads leases, install states and discovered machines from the store. The lease book serves the pools.
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
	updates, err := dnsstate.OpenUpdates(ctx, s, d.log)
	if err != nil {
		return nil, err
	}
	save := records.NewSaver(s)
	serials, err := dnsstate.OpenSerials(ctx, s, save, d.log)
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
