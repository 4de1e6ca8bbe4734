package files

import (
	"bytes"
	"crypto/sha256"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/lab"
)

// Exposed returns warnings about files below public/: those with the content of one that is secret, which were copied there, and those that are
// secret only as long as the lab names them. Path of each is the file. It reads the folder, and the files that have the size of a secret one:
// it is for commands, not for a reload.
func (f *Files) Exposed() (warnings lab.Problems) {
	bySize := map[int64][]string{}
	f.eachSecret(func(file string, info fs.FileInfo) {
		if info.Mode().IsRegular() && info.Size() > 0 {
			bySize[info.Size()] = append(bySize[info.Size()], file)
		}
	})
	warn := func(file, format string, args ...any) {
		warnings.Addf(lab.Pos{}, "", "%s: "+format, append([]any{file}, args...)...)
		warnings[len(warnings)-1].Path = file
	}
	_ = filepath.WalkDir(filepath.Join(f.dir, Public), func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() { // what cannot be read cannot be served; a link to a secret is not served
			return nil
		}
		name, err := filepath.Rel(f.dir, file)
		if err != nil {
			return nil
		}
		if f.isSecret(filepath.ToSlash(name)) {
			if _, named := f.secret[strings.ToLower(filepath.ToSlash(name))]; named {
				warn(file, "everybody can fetch it once the lab file does not name it any more: want it outside of %s", Public)
			}
			return nil
		}
		if secret := f.copied(file, entry, bySize); secret != "" {
			warn(file, "everybody can fetch it, and it has the content of %s, which is secret: delete it", secret)
		}
		return nil
	})
	return warnings
}

// Unserved returns a warning about each image that bootlab images pull fetches and no machine gets: no profile names it, nor a file of its
// folder, and it is not below public/.
func (f *Files) Unserved(l *lab.Lab) (warnings lab.Problems) {
	for _, i := range l.Images {
		within := func(name string) bool { return name == i.Path || strings.HasPrefix(name, i.Path+"/") }
		begins := func(text string) bool { return strings.HasPrefix(i.Path, text) || within(text) }
		switch {
		case strings.HasPrefix(i.Path, Public+"/"), f.inTree(i.Path), slices.ContainsFunc(f.trees, within), slices.ContainsFunc(f.begins, begins):
		case slices.ContainsFunc(slices.Collect(maps.Keys(f.named)), within):
		default:
			warnings.Addf(i.Pos, "images."+i.Path, "no profile names it, and it is not below public/: machines that request it get 403; name it in a profile, or give it a path below public/")
		}
	}
	return warnings
}

// copied returns the secret file that a file is a copy of; empty: none.
func (f *Files) copied(file string, entry fs.DirEntry, bySize map[int64][]string) string {
	info, err := entry.Info()
	if err != nil || len(bySize[info.Size()]) == 0 {
		return ""
	}
	sum, err := sumOf(file)
	if err != nil {
		return ""
	}
	for _, secret := range bySize[info.Size()] {
		if is, err := regular.Stat(secret); err != nil || os.SameFile(is, info) { // a hard link is not served
			continue
		}
		if other, err := sumOf(secret); err == nil && bytes.Equal(sum, other) {
			return secret
		}
	}
	return ""
}

func sumOf(file string) ([]byte, error) {
	opened, err := os.OpenFile(file, regular.OpenFlags, 0)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	h := sha256.New()
	_, err = io.Copy(h, opened)
	return h.Sum(nil), err
}
