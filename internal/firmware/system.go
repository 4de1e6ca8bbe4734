package firmware

import (
	"errors"
	"io/fs"
	"os"
)

// system is what the distribution has installed: programs by our names, and the paths where they stand.
type system map[string]string

// debian returns where Debian and its kin put programs.
func debian() system {
	s := system{}
	for _, p := range programs() {
		if p.system != "" {
			s[p.name] = p.system
		}
	}
	return s
}

// Open implements fs.FS.
func (s system) Open(name string) (fs.File, error) {
	path, ok := s[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return renamed{f, entry{info, name}}, nil
}

// ReadDir implements fs.ReadDirFS: what is there, in no order.
func (s system) ReadDir(name string) ([]fs.DirEntry, error) {
	var there []fs.DirEntry
	for name, path := range s {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			there = append(there, fs.FileInfoToDirEntry(entry{info, name}))
		}
	}
	return there, nil
}

// renamed is a file that is known by another name: "shimx64.efi.signed" would not be served as what it is.
type renamed struct {
	*os.File
	entry entry
}

// Stat implements fs.File.
func (r renamed) Stat() (fs.FileInfo, error) { return r.entry, nil }

// An entry is what is told of a file, under another name than it has on disk.
type entry struct {
	fs.FileInfo
	name string
}

// Name returns the name that the file is served under.
func (e entry) Name() string { return e.name }
