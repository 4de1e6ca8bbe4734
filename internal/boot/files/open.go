package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

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
