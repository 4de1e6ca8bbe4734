package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A State is how a file is.
type State string

// The states.
const (
	Present State = "present" // there, and its checksum is right
	Missing State = "missing"
	Partial State = "partial" // a part of it was fetched; pull goes on there
	Wrong   State = "wrong"   // there, but not what the lab wants: pull replaces it
)

// A Status is one item as it is on disk.
type Status struct {
	Item
	State State  `json:"state"`
	Size  int64  `json:"size"` // of what is there, bytes
	Err   string `json:"err,omitempty"`
}

// Check reads every item below dir and reports its state.
func Check(ctx context.Context, dir string, items []Item) []Status {
	out := make([]Status, len(items))
	for n, i := range items {
		out[n] = check(ctx, dir, i)
	}
	return out
}

func check(ctx context.Context, dir string, i Item) Status {
	s := Status{Item: i, State: Missing}
	name := filepath.Join(dir, filepath.FromSlash(i.Path))
	sum, size, err := sumOf(ctx, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if info, err := os.Stat(partOf(name)); err == nil && info.Size() > 0 {
			s.State, s.Size = Partial, info.Size()
		}
	case err != nil:
		s.State, s.Err = Wrong, err.Error()
	case sum != i.SHA256:
		s.State, s.Size = Wrong, size
	default:
		s.State, s.Size = Present, size
	}
	return s
}

// sumOf returns the SHA-256 and the size of a file.
func sumOf(ctx context.Context, name string) (sum string, size int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	size, err = io.Copy(h, untilDone{ctx, f})
	return hex.EncodeToString(h.Sum(nil)), size, err
}

// untilDone reads until ctx ends, so that an interrupt need not wait for a disk image.
type untilDone struct {
	ctx context.Context // io.Reader has no room for it
	r   io.Reader
}

// Read implements io.Reader.
func (u untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}
