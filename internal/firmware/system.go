package firmware

import (
	"errors"
	"io/fs"
	"os"
)

// system is a file system of the programs that the distribution has installed: their paths by the names they are served under.
type system map[string]string

// debian returns the paths where Debian and its derivatives install the programs.
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

// ReadDir implements fs.ReadDirFS. It returns the installed programs in no order.
func (s system) ReadDir(name string) ([]fs.DirEntry, error) {
	var installed []fs.DirEntry
	for name, path := range s {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			installed = append(installed, fs.FileInfoToDirEntry(entry{info, name}))
		}
	}
	return installed, nil
}

// renamed is a file under another name: by the name "shimx64.efi.signed" its media type would not be found.
type renamed struct {
	*os.File
	entry entry
}

// Stat implements fs.File.
func (r renamed) Stat() (fs.FileInfo, error) { return r.entry, nil }

// An entry is a file's information under another name than the one on disk.
type entry struct {
	fs.FileInfo
	name string
}

// Name returns the name that the file is served under.
func (e entry) Name() string { return e.name }
