package tftpd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// maxInMemory is the most that is read into memory for one transfer: files without random access, and text in netascii mode.
const maxInMemory = 32 << 20

var errTooLarge = fmt.Errorf("more than %d MiB", maxInMemory>>20)

// content is what a transfer sends. It has random access, since blocks may have to be sent again.
type content struct {
	io.ReaderAt
	size     int64
	inMemory bool
	close    func() error // never nil

	received func(context.Context) error // is called once the client has acknowledged it; nil: nothing
}

func inMemory(b []byte) content {
	return content{ReaderAt: bytes.NewReader(b), size: int64(len(b)), inMemory: true, close: func() error { return nil }}
}

// randomAccess makes content of a file, in memory if need be.
func randomAccess(f fs.File) (content, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: info.Name(), Err: fs.ErrPermission}
	}
	if err != nil {
		return content{}, errors.Join(err, f.Close())
	}
	if r, ok := f.(io.ReaderAt); ok {
		_, onDisk := f.(*os.File)
		return content{ReaderAt: r, size: info.Size(), inMemory: !onDisk, close: f.Close}, nil
	}
	defer f.Close()
	b, err := readInMemory(f)
	return inMemory(b), err
}

func readInMemory(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxInMemory+1))
	if err == nil && len(b) > maxInMemory {
		err = errTooLarge
	}
	return b, err
}

// netascii encodes a text as RFC 764 wants it: a line ends in CR LF, a bare CR is CR NUL.
func netascii(c content) (content, error) {
	defer c.close()
	b, err := readInMemory(io.NewSectionReader(c, 0, c.size))
	if err != nil {
		return content{}, refuse(err)
	}
	out := make([]byte, 0, len(b)+len(b)/16)
	for _, x := range b {
		switch x {
		case '\n':
			out = append(out, '\r', '\n')
		case '\r':
			out = append(out, '\r', 0)
		default:
			out = append(out, x)
		}
	}
	text := inMemory(out)
	text.received = c.received
	return text, nil
}
