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
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// Public is the folder below the lab's files whose content anyone may fetch.
const Public = "public"

// Files are the files that one lab allows to be fetched. It is safe for concurrent use; nothing of it changes but what was collected
// of the file system.
type Files struct {
	dir      string
	named    map[string]struct{} // the files that profiles name for machines to fetch
	secret   map[string]struct{} // documents, scripts and key files, in lower case: some file systems do not tell cases apart
	patterns []pattern           // the forms of document names
	folded   map[string]string   // lower case -> named
	images   []string            // files and folders that bootlab images pull downloads
	trees    []string            // folders of installation media
	begins   []string            // what templates of files that machines fetch begin with

	ifMissing lab.Problems

	secretNames []string // of secret, as they are spelled
	outside     []string // secret files outside the files folder: keys, the token of the admin API, and files of the lab
	inodes      secretInodes
}

// IfMissing are the warnings that hold while a file does not exist that a machine needs, of paths with templates beside the role.
func (f *Files) IfMissing() lab.Problems { return f.ifMissing }

// A pattern is the form of document names.
type pattern struct {
	*regexp.Regexp
	dir string // that holds all of them, relative to the files folder
}

// A Refusal is the reason why a file is not served, for the log and the timeline. The machine gets only the status.
// It matches fs.ErrPermission.
type Refusal string

// Why files are not served.
const (
	ErrUnnamed    Refusal = "not to be served: no profile names it, and it is not below public/: name it in a profile, or put it below files/public/"
	ErrSecret     Refusal = "not to be served: a config document, a template or a secret of the lab"
	ErrUnreadable Refusal = "the daemon's user may not read it"
	errNotRegular Refusal = "not to be served: not a regular file"
	errLink       Refusal = "not to be served: a link to what is never served raw"
)

// ErrAwaited means that the file is one of the lab's images and not pulled yet: the client should ask again. It is wrapped
// together with fs.ErrNotExist.
var ErrAwaited = errors.New("not pulled yet: bootlab images pull")

// ReasonOf returns why err, of Open, says that a file is not served.
func ReasonOf(err error) event.Reason {
	switch {
	case errors.Is(err, ErrAwaited):
		return event.NotPulled
	case errors.Is(err, fs.ErrNotExist):
		return event.NotFound
	case errors.Is(err, ErrUnreadable):
		return event.Unreadable
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrInvalid):
		return event.NotServed
	}
	return event.Unreadable
}

// TextOf returns the same for people, without the path: one text for a reason, by HTTP and by TFTP.
func TextOf(err error) string {
	refusal, refused := errors.AsType[Refusal](err)
	path, pathed := errors.AsType[*fs.PathError](err)
	switch {
	case refused:
		return refusal.Error()
	case errors.Is(err, ErrAwaited):
		return ErrAwaited.Error()
	case errors.Is(err, fs.ErrNotExist):
		return "file not found"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrInvalid):
		return "not to be served"
	case pathed:
		return path.Err.Error()
	}
	return err.Error()
}

// Error implements error.
func (r Refusal) Error() string { return string(r) }

// Is matches fs.ErrPermission.
func (r Refusal) Is(target error) bool { return target == fs.ErrPermission }

// refusal returns why name may not be fetched, or nil. What is secret is refused first, whatever folder it is in.
func (f *Files) refusal(name string) error {
	switch {
	case !fs.ValidPath(name) || isPart(name):
		return fs.ErrPermission
	case f.isSecret(name):
		return ErrSecret
	case !f.isNamed(name) && !strings.HasPrefix(name, Public+"/") && !f.inTree(name):
		return ErrUnnamed
	}
	return nil
}

// isSecret reports whether name is a document or a key file, or has the form of a document name and is no file that machines
// fetch.
func (f *Files) isSecret(name string) bool {
	if _, secret := f.secret[strings.ToLower(name)]; secret {
		return true
	}
	return !f.isNamed(name) && slices.ContainsFunc(f.patterns, func(p pattern) bool { return p.MatchString(name) })
}

func (f *Files) isNamed(name string) bool { _, named := f.named[name]; return named }

// inTree reports whether name is below the folder of an installation medium.
func (f *Files) inTree(name string) bool {
	return slices.ContainsFunc(f.trees, func(tree string) bool { return strings.HasPrefix(name, tree+"/") })
}

// A File is an open regular file.
type File struct {
	*os.File
	info fs.FileInfo
}

// Stat returns what the file was when it was opened, without a system call.
func (f *File) Stat() (fs.FileInfo, error) { return f.info, nil }

// Open opens the regular file name, which the caller closes. The error is a *fs.PathError that matches fs.ErrPermission
// where the file is not to be served (or is a folder, a device, a pipe, or a link that leaves the files folder), and
// fs.ErrNotExist where it may be served but does not exist. Any other cause is an error of this machine, such as no more descriptors.
func (f *Files) Open(name string) (*File, error) {
	if err := f.refusal(name); err != nil {
		return nil, refuse(name, err)
	}
	began := time.Now()
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
		err = errNotRegular
	case (!plain || hadLinks(info, began)) && f.leaksSecret(info):
		err = errLink
	}
	if err != nil {
		file.Close()
		return nil, refuse(name, err)
	}
	return &File{file, info}, nil
}

// OpenFold is Open that also finds a file whose name differs from name in the case of its letters: loaders of Windows and ESXi change it.
func (f *Files) OpenFold(name string) (*File, error) {
	file, err := f.Open(name)
	if err != nil {
		if exact := f.Fold(name); exact != name {
			return f.Open(exact)
		}
	}
	return file, err
}

// Fold returns the path that may be fetched and equals name but for the case of its letters, or name where there is none. An exact match
// comes first.
func (f *Files) Fold(name string) string {
	if !fs.ValidPath(name) {
		return name
	}
	if f.isNamed(name) && !f.inTree(name) { // recipes use the spelling that most media have
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

// reason keeps fs.ErrNotExist and turns everything else, such as a link that leaves the folder, into a refusal: the
// caller's answer must not reveal which other files exist.
func reason(err error) error {
	if os.IsNotExist(err) {
		return fs.ErrNotExist
	}
	errno, _ := errors.AsType[syscall.Errno](err)
	switch errno {
	case syscall.EACCES:
		return ErrUnreadable
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO, syscall.ESTALE, syscall.ETIMEDOUT:
		return errno // of this machine, for now: no refusal, which is final to an installer
	}
	return fmt.Errorf("%w: %w", fs.ErrPermission, err)
}

// missing returns ErrAwaited for a missing file that is to be pulled.
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

// openFlags has O_NONBLOCK, so that opening a named pipe does not wait for a writer. It has no effect on regular files.
const openFlags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC

// errNotPlain means that the path has a link, or that the kernel (older than 5.6) or its seccomp filter has no openat2.
var errNotPlain = errors.New("not a plain path")

// openPlain opens the file of that name below dir, if the path has no link, neither in dir nor below it. name is valid by
// fs.ValidPath: without links and without ".." it cannot leave dir. One system call opens the file and checks this. os.Root
// needs one for each folder and another to find links, which makes serving a small file a third more expensive.
func openPlain(dir, name string) (*os.File, error) {
	path := filepath.Join(dir, name)
	how := unix.OpenHow{Flags: openFlags, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path), nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
			return nil, errNotPlain
		default:
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// openConfined opens the file of that name below dir, through links that stay below dir.
func openConfined(dir, name string) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.OpenFile(filepath.FromSlash(name), openFlags, 0)
}
