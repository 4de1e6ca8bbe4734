// Package unpack keeps unpacked copies of compressed images.
//
// Publishers compress disk images, and what makes a disk of one needs its size and its content. Each image is unpacked once, when
// it is opened first; a file that has changed since is unpacked again, and the old copy is deleted. It downloads nothing, and
// decides nothing by names: the first bytes of a file say what it is.
//
//	c := unpack.New("/var/lib/bootlab/unpacked")
//	f, err := c.Open(ctx, "images/coreos.qcow2.xz", func() (fs.File, error) { return files.Open("images/coreos.qcow2.xz") })
package unpack

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/ulikunitz/xz"

	"github.com/bootlab/bootlab/internal/host/file/replace"
)

// A Cache is a folder of unpacked images. It is safe for concurrent use; one image is unpacked at a time.
type Cache struct {
	dir  string
	turn chan struct{} // holds a value while an image is unpacked
}

// New returns the cache in a folder, which is made when it is needed.
func New(dir string) *Cache { return &Cache{dir: dir, turn: make(chan struct{}, 1)} }

// Open opens the image that open opens; of one that is compressed with gzip or xz, the unpacked copy. name identifies the image. The
// copy has the time of the original, and its name without .gz or .xz. The caller closes the file.
func (c *Cache) Open(ctx context.Context, name string, open func() (fs.File, error)) (fs.File, error) {
	f, err := open()
	if err != nil {
		return nil, err
	}
	reader, err := decompressor(f)
	if err == nil && reader == nil {
		_ = f.Close()
		return open() // from its beginning
	}
	defer func() { _ = f.Close() }()
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", name, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	of := filepath.Join(c.dir, digest(name))
	copied := filepath.Join(of, digest(fmt.Sprint(info.Size(), info.ModTime().UnixNano())), stem(name))
	if f, err := os.Open(copied); err == nil {
		return f, nil
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("unpack %s: another image is being unpacked: %w", name, ctx.Err())
	}
	if f, err := os.Open(copied); err == nil {
		return f, nil // by whom we waited for
	}
	if err := os.RemoveAll(of); err != nil { // copies of what the file was before, and of a daemon that was killed
		return nil, err
	}
	if err := write(ctx, copied, reader, info); err != nil {
		_ = os.RemoveAll(of)
		return nil, fmt.Errorf("unpack %s: %w", name, err)
	}
	return os.Open(copied)
}

// decompressor returns a reader of the content of a file that is compressed; nil: it is not.
func decompressor(f io.Reader) (io.Reader, error) {
	r := bufio.NewReaderSize(f, 1<<20)
	head, err := r.Peek(6)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")):
		return xz.NewReader(r)
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		return gzip.NewReader(r)
	}
	return nil, nil
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

func stem(name string) string {
	name = path.Base(name)
	return strings.TrimSuffix(strings.TrimSuffix(name, ".xz"), ".gz")
}

// write writes a copy, whole or not at all.
func write(ctx context.Context, name string, r io.Reader, info fs.FileInfo) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return replace.File(name, 0o600, func(out *os.File) error {
		if err := sparse(ctx, out, r); err != nil {
			return err
		}
		return os.Chtimes(out.Name(), info.ModTime(), info.ModTime())
	})
}

// sparse copies r without blocks for what is zero.
func sparse(ctx context.Context, out *os.File, r io.Reader) error {
	var size int64
	buf := make([]byte, 1<<20)
	zero := make([]byte, len(buf))
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := fill(r, buf)
		if n > 0 && !bytes.Equal(buf[:n], zero[:n]) {
			if _, err := out.WriteAt(buf[:n], size); err != nil {
				return err
			}
		}
		size += int64(n)
		if err == io.EOF {
			return out.Truncate(size)
		}
		if err != nil {
			return err
		}
	}
}

// fill reads until buf is full or the content ends. Unlike that of io.ReadFull, its error distinguishes a whole content, which is io.EOF,
// from one that is cut off: decompressors return io.ErrUnexpectedEOF for that.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var more int
		more, err = r.Read(buf[n:])
		n += more
	}
	return n, err
}
