package snapshot

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/internal/host/file/regular"

	"golang.org/x/sys/unix"
)

// maxDNSFile bounds what is read of one zone file, key file, resolv.conf or file of authorities: half a million records are less.
const maxDNSFile = 32 << 20

// readDNSFile is a dnsd.ReadFile for a regular file of at most maxDNSFile octets. Anything else, such as a FIFO without a writer or a file
// system that does not answer, could hold up every reload or fill the memory.
func readDNSFile(path, below string) ([]byte, error) {
	return regular.Within(path, regular.Wait, func() ([]byte, error) {
		f, err := openDNSFile(path, below)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return regular.ReadFrom(f, maxDNSFile)
	})
}

func openDNSFile(path, below string) (*os.File, error) {
	if below == "" {
		return os.OpenFile(path, regular.OpenFlags, 0)
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
	f, err := root.OpenFile(name, regular.OpenFlags, 0)
	if _, ofKernel := errors.AsType[unix.Errno](err); err != nil && !ofKernel {
		return nil, dnsd.ErrLinkOutside // os.Root has no error of its own for it
	}
	return f, err
}
