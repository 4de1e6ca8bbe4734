package firmware

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

//go:embed all:assets
var assets embed.FS

// FS returns the programs as one flat file system. Files of dir, the user's folder, take precedence over embedded programs,
// and these over programs that a Debian package has installed. An empty dir means no folder. Other files in the folder are
// served too. Links that lead out of the folder are not followed. Opened files can seek.
func FS(dir string) fs.FS { return layersOf(dir) }

func layersOf(dir string) layered {
	embedded, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err) // the folder is part of this package
	}
	layers := layered{{embedded, Names()}, {debian(), Names()}}
	if dir != "" {
		layers = slices.Insert(layers, 0, layer{fsys: folder(dir)})
	}
	return layers
}

// CheckFolder returns an error if dir cannot be the folder of FS. Without this check a mistyped name would have no effect.
func CheckFolder(dir string) error {
	if dir == "" {
		return nil
	}
	if _, err := os.ReadDir(dir); err != nil {
		return fmt.Errorf("--firmware: %w: want a folder of network boot programs", err)
	}
	return nil
}

// Missing returns the sorted names of the programs that any lab may need and fsys lacks.
func Missing(fsys fs.FS) []string { return missing(fsys, BIOS, UEFI, UEFISNP, ARM64) }

// MissingSigned returns the sorted names of the programs that labs with Secure Boot need and fsys lacks.
func MissingSigned(fsys fs.FS) []string { return missing(fsys, ShimX64, GRUBX64) }

func missing(fsys fs.FS, names ...string) []string {
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool { return Has(fsys, name) })
}

// Has reports whether fsys has a program of that name.
func Has(fsys fs.FS, name string) bool {
	info, err := fs.Stat(fsys, name)
	return err == nil && info.Mode().IsRegular()
}

// A layer is a file system of which only some names are visible.
type layer struct {
	fsys fs.FS
	only []string // nil: all
}

// layered is an overlay: the first layer that has a file provides it.
type layered []layer

// Open implements fs.FS. The root can be read with fs.ReadDir only.
func (ls layered) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	for _, l := range ls {
		if l.only != nil && !slices.Contains(l.only, name) {
			continue
		}
		f, err := l.fsys.Open(name)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// ReadDir implements fs.ReadDirFS.
func (ls layered) ReadDir(name string) ([]fs.DirEntry, error) {
	var all []fs.DirEntry
	for _, l := range ls {
		entries, err := fs.ReadDir(l.fsys, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if l.only == nil || slices.Contains(l.only, e.Name()) {
				all = append(all, e)
			}
		}
	}
	byName := func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) }
	slices.SortStableFunc(all, byName)
	return slices.CompactFunc(all, func(a, b fs.DirEntry) bool { return a.Name() == b.Name() }), nil
}

// folder is a folder that may appear and disappear while the daemon runs. Nothing outside of it can be opened.
type folder string

// Open implements fs.FS.
func (f folder) Open(name string) (fs.File, error) {
	root, err := os.OpenRoot(string(f))
	if err != nil {
		return nil, err
	}
	defer root.Close() // an open file stays open without its root
	return root.FS().Open(name)
}
