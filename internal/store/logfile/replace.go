package logfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/store"
)

// A Held is a store's file, or the place for one, that no daemon uses: to look at it and to replace it as a whole.
type Held struct {
	path string
	disk disk // nil: no file
}

// Hold locks the file at path, which may be missing, until Close. It changes nothing. The error names the process that has the
// file open.
func Hold(path string) (*Held, error) {
	d, err := openLocked(path, func(path string, flag int) (disk, error) {
		if flag&os.O_CREATE != 0 {
			return nil, fs.ErrNotExist
		}
		return openFile(path, 0)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return &Held{path: path}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open state file %s: %w", path, err)
	}
	return &Held{path: path, disk: d}, nil
}

// Read calls fn for every key that can be read and returns what is lost. It is an error, and fn is not called, if the file is of
// another format or cannot be read at all.
func (h *Held) Read(fn func(key string, value []byte)) ([]Loss, error) {
	if h.disk == nil {
		return nil, nil
	}
	l, damage, err := load(readOnly{h.disk})
	if err != nil {
		return nil, fmt.Errorf("read state file %s: %w", h.path, err)
	}
	losses := slices.DeleteFunc(damage, func(l Loss) bool { return l.Kind != Lost })
	l.index.Scan(func(key string, where location) bool {
		b, err := l.value(key, where, nil)
		if err != nil {
			losses = append(losses, Loss{Kind: Lost, Offset: where.at, Bytes: int64(where.size), Keys: []string{key}, Exact: true})
			return true
		}
		fn(key, b)
		return true
	})
	return losses, nil
}

// keptName is how the name of a replaced file ends.
const keptName = ".before-restore-20060102-150405"

// Replace puts a file with these entries in place of the present one, which it keeps under the name that it returns; "" if
// there was none. A crash at any moment leaves one of the two, whole, under the name of the store. The new file belongs to the
// owner of its folder.
func (h *Held) Replace(ctx context.Context, entries iter.Seq2[string, []byte]) (kept string, err error) {
	next := h.path + ".restore"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a restore that was killed
		return "", err
	}
	if err := fill(ctx, next, entries); err != nil {
		return "", errors.Join(err, os.Remove(next))
	}
	if kept, err = h.exchange(next); err != nil {
		return "", errors.Join(fmt.Errorf("replace state file %s: %w", h.path, err), os.Remove(next))
	}
	return kept, syncFolder(filepath.Dir(h.path))
}

// fillStep is how many entries share a sync.
const fillStep = 4096

// fill writes a new store.
func fill(ctx context.Context, path string, entries iter.Seq2[string, []byte]) error {
	s, _, err := Open(path)
	if err != nil {
		return err
	}
	var txns []store.Txn
	write := func() error {
		defer func() { txns = txns[:0] }()
		return errors.Join(s.CommitAll(ctx, txns)...)
	}
	for key, value := range entries {
		if txns = append(txns, store.Put(key, value)); len(txns) == fillStep {
			if err = write(); err != nil {
				break
			}
		}
	}
	err = errors.Join(err, write(), s.Close())
	if err != nil {
		return err
	}
	folder, err := os.Stat(filepath.Dir(path))
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	owner := folder.Sys().(*syscall.Stat_t)
	return os.Lchown(path, int(owner.Uid), int(owner.Gid))
}

// exchange gives the new file the name of the store.
func (h *Held) exchange(next string) (kept string, err error) {
	if h.disk == nil {
		if err := os.Link(next, h.path); err != nil { // also if a daemon has made a file meanwhile
			return "", err
		}
		return "", os.Remove(next)
	}
	if kept, err = h.keep(time.Now()); err != nil {
		return "", fmt.Errorf("keep the present file: %w", err)
	}
	return kept, os.Rename(next, h.path)
}

// keep gives the present file a second name, which has a number where an earlier restore of the same second has taken it.
func (h *Held) keep(now time.Time) (kept string, err error) {
	const most = 100
	name := h.path + now.Format(keptName)
	for n := 1; n < most; n++ {
		kept = name
		if n > 1 {
			kept = fmt.Sprintf("%s-%d", name, n)
		}
		if err = os.Link(h.path, kept); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return kept, err
}

// Close releases the lock.
func (h *Held) Close() error {
	if h.disk == nil {
		return nil
	}
	return h.disk.Close()
}
