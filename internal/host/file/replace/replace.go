// Package replace writes files whole or not at all: under another name in the same folder first. A link in the place of the file is replaced,
// not followed.
//
//	err := replace.File(path, 0o600, replace.With(text))                    // on disk when it returns
//	err := replace.Cached(path, 0o640, func(f *os.File) error { … })        // a power cut may leave the old file, or an empty one
package replace

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// File makes what write writes the file at path, with that mode, less the umask. It is on disk when File returns. After an error of write or
// of the disk the file that had the name before is as it was; if only the folder could not be synced, the new one has its name.
func File(path string, mode fs.FileMode, write func(*os.File) error) error {
	err := Cached(path, mode, func(f *os.File) error {
		if err := write(f); err != nil {
			return err
		}
		return f.Sync()
	})
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Cached is File for what can be had again: it does not wait for the disk.
func Cached(path string, mode fs.FileMode, write func(*os.File) error) error {
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text()[:8])
	f, err := os.OpenFile(next, os.O_CREATE|os.O_EXCL|os.O_RDWR, mode)
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Close())
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return nil
}

// With returns a function that writes b.
func With(b []byte) func(*os.File) error {
	return func(f *os.File) error { _, err := f.Write(b); return err }
}
