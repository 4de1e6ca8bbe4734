package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openFlags of what is served. To open a named pipe must not wait for its writer; for a regular file it means nothing.
const openFlags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC

// errNotPlain is that there is a link on the way, or that the kernel (older than 5.6) or its seccomp filter has no openat2.
var errNotPlain = errors.New("not a plain path")

// openPlain opens the file of that name below dir, if no link is on the way, neither in dir nor below it. name is valid by
// fs.ValidPath: without links and without ".." it cannot leave dir. One system call opens the file and checks this; os.Root,
// which takes one for each folder and another to find links, makes a small file a third dearer to serve.
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
