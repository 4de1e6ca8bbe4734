package snapshot

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/bootlab/bootlab/dnsd"

	"golang.org/x/sys/unix"
)

// maxDNSFile bounds what is read of one zone file, key file, resolv.conf or file of authorities: half a million records are less.
const maxDNSFile = 32 << 20

// readDNSFile is a dnsd.ReadFile for a regular file of at most maxDNSFile octets. Anything else, such as a FIFO without a writer, could hold
// up every reload or fill the memory.
func readDNSFile(path, below string) ([]byte, error) {
	f, err := openDNSFile(path, below)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	case info.Size() > maxDNSFile:
		return nil, fmt.Errorf("%s has %d octets, more than %d", path, info.Size(), maxDNSFile)
	}
	b := make([]byte, info.Size())
	n, err := io.ReadFull(f, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // it was cut meanwhile, which its watcher notices
		err = nil
	}
	return b[:n], err
}

func openDNSFile(path, below string) (*os.File, error) {
	const flags = os.O_RDONLY | unix.O_NONBLOCK
	if below == "" {
		return os.OpenFile(path, flags, 0)
	}
	name, err := filepath.Rel(below, path)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(below)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(name, flags, 0)
	if _, ofKernel := errors.AsType[unix.Errno](err); err != nil && !ofKernel {
		return nil, dnsd.ErrLinkOutside // os.Root has no error of its own for it
	}
	return f, err
}
