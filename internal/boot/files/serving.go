package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/bootlab/bootlab/internal/lab"
)

// Public is the folder below the lab's files whose content anyone may fetch.
const Public = "public"

// Files is what one lab allows to be fetched. It is immutable and safe for concurrent use.
type Files struct {
	dir    string
	named  map[string]struct{} // what profiles name
	denied map[string]struct{} // config documents, templates and secrets that stand below public/ or are named, too
	folded map[string]string   // lower case -> named
	images []string            // what bootlab images pull brings: files and folders
	trees  []string            // folders of installation media: everything below is served, but what looks like a document
	secret []*regexp.Regexp    // what paths of config documents and scripts look like, for links that lead to them
}

// Compile returns what l allows to be fetched. It does no I/O. A template in a path that does not render for a host that
// boots the profile, or renders to a path outside the files folder, is a lab.Problem at the profile.
func Compile(l *lab.Lab) (*Files, error) {
	c := &compiler{
		lab:   l,
		files: &Files{dir: l.Appliance.Files, named: map[string]struct{}{}, denied: map[string]struct{}{}, folded: map[string]string{}},
		users: usersOf(l),
	}
	for _, p := range l.Profiles {
		c.profile(p)
	}
	c.secrets()
	for _, i := range l.Images {
		c.files.images = append(c.files.images, i.Path)
	}
	for name := range c.files.named {
		c.files.folded[strings.ToLower(name)] = name
	}
	return c.files, c.problems.Err()
}

// Allowed reports whether name, a slash-separated path relative to the files folder, may be fetched. Whether the file is
// there is another question.
func (f *Files) Allowed(name string) bool {
	if !fs.ValidPath(name) || isPart(name) {
		return false
	}
	if _, no := f.denied[name]; no {
		return false
	}
	if _, yes := f.named[name]; yes {
		return true
	}
	if strings.HasPrefix(name, Public+"/") {
		return true
	}
	return f.inTree(name) && !f.looksSecret(name)
}

// inTree reports whether name is below the folder of an installation medium.
func (f *Files) inTree(name string) bool {
	return slices.ContainsFunc(f.trees, func(tree string) bool { return strings.HasPrefix(name, tree+"/") })
}

// looksSecret reports whether the path of a config document or a script can render to name.
func (f *Files) looksSecret(name string) bool {
	return slices.ContainsFunc(f.secret, func(r *regexp.Regexp) bool { return r.MatchString(name) })
}

// Open opens the regular file name, which the caller closes. The error is a *fs.PathError that matches fs.ErrPermission
// where the file is not to be served (or is a folder, a device, a pipe, or a link that leaves the files folder), and
// fs.ErrNotExist where it is to be served but is not there.
func (f *Files) Open(name string) (*os.File, error) {
	if !f.Allowed(name) {
		return nil, refuse(name, f.why(name))
	}
	file, err := openPlain(f.dir, name)
	plain := err == nil
	if errors.Is(err, errNotPlain) {
		file, err = openConfined(f.dir, name)
	}
	if err != nil {
		return nil, refuse(name, f.missing(name, reason(err)))
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%w: not a regular file", fs.ErrPermission)
	case !plain && f.leadsToSecret(name):
		err = fmt.Errorf("%w: a link to what is never served raw", fs.ErrPermission)
	}
	if err != nil {
		file.Close()
		return nil, refuse(name, err)
	}
	return file, nil
}

// leadsToSecret reports whether name is a link to a config document, a template or a secret of the lab. It is no wall
// against who may write to the files folder, but keeps a careless link from telling secrets.
func (f *Files) leadsToSecret(name string) bool {
	real, err := filepath.EvalSymlinks(filepath.Join(f.dir, filepath.FromSlash(name)))
	if err != nil {
		return true
	}
	dir, err := filepath.EvalSymlinks(f.dir)
	if err != nil {
		return true
	}
	at, err := filepath.Rel(dir, real)
	if at = filepath.ToSlash(at); err != nil || at == name {
		return err != nil
	}
	if _, no := f.denied[at]; no {
		return true
	}
	return !f.Allowed(at) && f.looksSecret(at)
}

// Fold returns the path that may be fetched and equals name but for the case of its letters, or name where there is none:
// Windows and ESXi loaders do not keep to the case of names. An exact match comes first.
func (f *Files) Fold(name string) string {
	if !fs.ValidPath(name) {
		return name
	}
	if _, ok := f.named[name]; ok && !f.inTree(name) { // what a recipe names on a medium is written as most media have it
		return name
	}
	if exact, ok := f.folded[strings.ToLower(name)]; ok && !f.inTree(exact) {
		return exact
	}
	for _, dir := range append([]string{Public}, f.trees...) {
		n := len(dir)
		if len(name) <= n+1 || name[n] != '/' || !strings.EqualFold(name[:n], dir) {
			continue
		}
		if at, ok := f.foldBelow(dir, name[n+1:]); ok {
			return at
		}
	}
	return name
}

// foldBelow walks down from dir and takes, level by level, the entry of that name or the first that differs in case only.
func (f *Files) foldBelow(dir, rest string) (at string, ok bool) {
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return "", false
	}
	defer root.Close()
	at = dir
	for part := range strings.SplitSeq(rest, "/") {
		next, ok := foldEntry(root, at, part)
		if !ok {
			return "", false
		}
		at = path.Join(at, next)
	}
	return at, true
}

func foldEntry(root *os.Root, dir, part string) (string, bool) {
	if _, err := root.Lstat(path.Join(dir, part)); err == nil {
		return part, true
	}
	entries, err := fs.ReadDir(root.FS(), dir)
	if err != nil {
		return "", false
	}
	for _, e := range entries {
		if strings.EqualFold(e.Name(), part) {
			return e.Name(), true
		}
	}
	return "", false
}

// reason keeps fs.ErrNotExist and takes everything else, such as a link that leaves the folder, for a refusal: the
// caller's answer must not tell what else stands on this machine.
func reason(err error) error {
	if os.IsNotExist(err) {
		return fs.ErrNotExist
	}
	if errors.Is(err, syscall.EACCES) {
		return ErrUnreadable
	}
	return fmt.Errorf("%w: %w", fs.ErrPermission, err)
}

// ErrAwaited is that a file is one of the lab's images, and not pulled yet: who asks should ask again. It comes with
// fs.ErrNotExist.
var ErrAwaited = errors.New("not pulled yet: bootlab images pull")

// missing says of a file that is not there whether it will be.
func (f *Files) missing(name string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, image := range f.images {
		if name == image || strings.HasPrefix(name, image+"/") {
			return fmt.Errorf("%w: %w", ErrAwaited, err)
		}
	}
	return err
}

// isPart reports whether name is that of a file which is still being pulled.
func isPart(name string) bool {
	base := path.Base(name)
	return strings.HasPrefix(base, ".") && (strings.HasSuffix(base, ".part") || strings.HasSuffix(base, ".part.json"))
}

func refuse(name string, err error) error { return &fs.PathError{Op: "serve", Path: name, Err: err} }
