package statefile

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"syscall"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store/logfile"
)

// checkConfig returns an error if the daemon does not support the store of the lab file.
func checkConfig(a lab.Appliance) error {
	if len(a.Store.Etcd) > 0 {
		return errors.New("appliance.store.etcd: " + NoEtcd(a))
	}
	return nil
}

// NoEtcd says what is wrong with appliance.store.etcd.
func NoEtcd(a lab.Appliance) string {
	return "is not supported yet: leave store out to keep state in " + Path(a)
}

// Open opens the store that the lab names, and logs what of it was lost. The caller closes it.
func Open(a lab.Appliance, log *slog.Logger) (*logfile.Store, error) {
	if err := checkConfig(a); err != nil {
		return nil, err
	}
	path := Path(a)
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

// Path returns the state file of an appliance.
func Path(a lab.Appliance) string { return filepath.Join(a.State, logfile.Name) }

// A State is the state of a daemon that does not run, locked until Close.
type State struct {
	held    *logfile.Held
	Entries map[string][]byte // by key
	Damage  string            // what of it cannot be read; empty: all can
}

// Hold opens the state folder of a and changes nothing. A damaged state is no error: what can be read counts. The error
// names the process that uses it.
func Hold(a lab.Appliance) (*State, error) {
	if err := checkConfig(a); err != nil {
		return nil, err
	}
	held, err := logfile.Hold(Path(a))
	if err != nil {
		return nil, err
	}
	s := &State{held: held, Entries: map[string][]byte{}}
	losses, err := held.Read(func(key string, value []byte) { s.Entries[key] = value })
	if err != nil {
		s.Damage = err.Error()
	}
	for _, l := range losses {
		s.Damage = l.String()
	}
	return s, nil
}

// Close releases the lock.
func (s *State) Close() error { return s.held.Close() }
