package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
)

// Displaced returns an error that says what to do if the database is no longer the file of its name: somebody removed it, or put
// another in its place, while the store was open. Commits go on into a file that nobody will find; Close puts back one that was
// removed.
func (s *Store) Displaced() error {
	path := s.db.Path()
	now, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("store %s was removed while it was in use: it is written anew when bootlab is stopped in order, and lost if bootlab is killed: restart it", path)
	case err != nil:
		return fmt.Errorf("store %s: %w", path, err)
	case !os.SameFile(s.file, now):
		return fmt.Errorf("store %s was replaced by another file while it was in use: restart bootlab to take that one, and what was learned since is lost; "+
			"or remove that file, and this one is written anew when bootlab is stopped", path)
	}
	return nil
}

// putBack writes the database anew if its file was removed while it was open. The journal is in it already.
func (s *Store) putBack() error {
	path := s.db.Path()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("put back store %s, which was removed: %w", path, err)
	}
	part := path + ".new"
	err := s.db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(part, 0o600) })
	if err == nil {
		err = syncFile(part)
	}
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("put back store %s, which was removed: %w", path, err), os.Remove(part))
	}
	return nil
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
