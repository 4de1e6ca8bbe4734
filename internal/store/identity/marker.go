package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/bootlab/bootlab/internal/host/file/replace"
)

// InFolder is the name of the marker in the state folder.
const InFolder = "state.marker"

// A marker beside a lab is .NAME of the lab file and then suffix; in a lab that is a folder it is folderMarker.
const (
	suffix       = ".bootlab-state"
	folderMarker = ".bootlab-state"
)

// BesideLab returns the path of the marker that belongs to a lab file, or to a lab that is a folder.
func BesideLab(lab string) string {
	if whole, err := filepath.Abs(lab); err == nil { // people read it, who are in another folder
		lab = whole
	}
	if info, err := os.Stat(lab); err == nil && info.IsDir() {
		return filepath.Join(lab, folderMarker)
	}
	return filepath.Join(filepath.Dir(lab), "."+filepath.Base(lab)+suffix)
}

// A marker is a file that names a store.
type marker struct {
	path    string
	exists  bool
	name    name     // zero: it does not exist, or cannot be read
	hosts   []string // MACs of the lab that wrote it, of which it has at most maxHosts
	err     error    // of the last read or write
	removed bool     // it was written, and the last look did not find it
}

// about is for people who find the file.
const about = "bootlab names its state database here, to notice its loss before a machine is installed again: docs/operations.md, " +
	"The state folder was lost. Do not delete or copy this file"

// content is a marker as JSON.
type content struct {
	About string `json:"about"`
	name
	Hosts []string `json:"hosts,omitempty"`
}

// maxMarker bounds what is read of a file with the name of a marker, in bytes.
const maxMarker = 4096

func readMarker(path string) *marker {
	m := &marker{path: path}
	text, err := readFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !dangling(path):
		return m
	case err == nil && len(text) == 0 && filepath.Base(path) != InFolder: // it was made for a user who may not create it
		return m
	case err == nil:
		var c content
		if err = json.Unmarshal(text, &c); err == nil && c.ID == "" {
			err = errors.New("it names no state database")
		}
		m.name, m.hosts = c.name, c.Hosts
	}
	m.exists = true
	if err != nil {
		m.name, m.err = name{}, fmt.Errorf("read marker %s: %w", path, err)
	}
	return m
}

// dangling reports whether path is a link to nothing.
func dangling(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// movedMarker returns a marker that a lab with one of these hosts has left near the one of besideLab: beside another lab file in its folder, in
// the folder above, or beside the file that the lab file is a link to. The lab was renamed or moved, or is a folder or a link now. nil:
// there is none.
func movedMarker(besideLab string, hosts []string) *marker {
	dir := filepath.Dir(besideLab)
	dirs := []string{dir, filepath.Join(dir, "..")}
	file := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(besideLab), "."), suffix)
	if to, err := filepath.EvalSymlinks(filepath.Join(dir, file)); err == nil && file != "" {
		dirs = append(dirs, filepath.Dir(to))
	}
	for _, dir := range dirs {
		found, _ := filepath.Glob(filepath.Join(dir, ".*"+suffix))
		for _, path := range append(found, filepath.Join(dir, folderMarker)) {
			m := readMarker(path)
			if slices.ContainsFunc(m.hosts, func(mac string) bool { return slices.Contains(hosts, mac) }) {
				return m
			}
		}
	}
	return nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for a writer
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxMarker))
	return text, errors.Join(err, f.Close())
}

// writeMarker makes the marker at path name a store. A process that may not create files in its folder, as after it has dropped its
// privileges, writes into the one that exists.
func writeMarker(path string, n name, hosts []string, owner *Owner) error {
	text, err := json.MarshalIndent(content{about, n, hosts}, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	err = replace.File(path, 0o600, func(f *os.File) error {
		if owner != nil {
			if err := f.Chown(owner.UID, owner.GID); err != nil {
				return err
			}
		}
		return replace.With(text)(f)
	})
	if err == nil || rewriteFile(path, text) == nil {
		return nil
	}
	if at := (*fs.PathError)(nil); errors.As(err, &at) { // of a temporary name
		err = at.Err
	}
	return fmt.Errorf("it cannot be written: %w", err)
}

// rewriteFile writes into the file at path. A crash in the middle leaves a marker that cannot be read: it still shows that there was a
// store.
func rewriteFile(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	if err == nil {
		err = f.Truncate(int64(len(text)))
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
