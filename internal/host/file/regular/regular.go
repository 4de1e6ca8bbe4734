// Package regular reads files that an admin names in a lab file or on a command line. Anything but a regular file, such as a FIFO without a
// writer or a device, could hold up a reload for ever or fill the memory. So could a network file system whose server is gone: every
// operation has a bounded time.
//
//	text, err := regular.Read(path, regular.Small) // within regular.Wait
//	info, err := regular.Stat(path)
//	v, err := regular.Within(path, regular.Wait, op) // any other operation on that file
package regular

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// OpenFlags open a file for reading without waiting for a writer of a FIFO. They have no effect on regular files.
const OpenFlags = os.O_RDONLY | unix.O_NONBLOCK

// Small is the limit of bytes of certificates, keys, passwords and settings.
const Small = 4 << 20

// ErrNotRegular is matched by the error of a path that is no regular file.
var ErrNotRegular = errors.New("is no regular file")

// Read returns the content of a regular file of at most limit bytes, within Wait.
func Read(path string, limit int64) ([]byte, error) {
	return Within(path, Wait, func() ([]byte, error) { return read(path, limit) })
}

func read(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, OpenFlags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadFrom(f, limit)
}

// Authorities returns the certificates of a file, of the authorities that may sign others.
func Authorities(path string) (*x509.CertPool, error) {
	pem, err := Read(path, Small)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate: want PEM", path)
	}
	return pool, nil
}

// ReadFrom is Read of a file that was opened with OpenFlags, from its beginning. It does not close it, and waits for the file
// system: call it in Within.
func ReadFrom(f *os.File, limit int64) ([]byte, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s %w", f.Name(), ErrNotRegular)
	case info.Size() > limit:
		return nil, fmt.Errorf("%s has %d bytes, more than %d", f.Name(), info.Size(), limit)
	}
	b := make([]byte, info.Size())
	n, err := io.ReadFull(f, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // it was cut meanwhile: who follows it reads it again
		err = nil
	}
	return b[:n], err
}
