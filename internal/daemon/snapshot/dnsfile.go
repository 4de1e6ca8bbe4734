package snapshot

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxDNSFile bounds what is read of one zone file, key file, resolv.conf or file of authorities: half a million records are less.
const maxDNSFile = 32 << 20

// readDNSFile is os.ReadFile for a regular file of at most maxDNSFile octets. Anything else, such as a FIFO without a writer, could hold up
// every reload or fill the memory.
func readDNSFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
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
