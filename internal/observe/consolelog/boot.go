package consolelog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A boot has up to three files: NAME.head with its beginning, and once that is a quarter of the limit, NAME.tail with what follows.
// When that is three eighths of the limit, it becomes NAME.old, and replaces the one before. NAME is the start in nanoseconds, the
// key of the machine's run. NAME.gone says how many bytes were dropped.
type boot struct {
	base          string // path without the ending
	started, last time.Time
	key           string
	head, old     int64 // bytes
	tail          int64
	gone          int64    // bytes that were dropped
	file          *os.File // that is written to; nil: none is open
	ending        string   // of file
}

// A part of the limit that each file may have, in eighths.
const (
	eighths     = 8
	headEighths = 2
	tailEighths = 3
)

// newBoot returns a boot in a folder, with a time of its own.
func newBoot(folder, key string, now time.Time) (*boot, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	key = badKey.ReplaceAllString(key, "_")
	for {
		b := &boot{base: filepath.Join(folder, fmt.Sprintf("%019d-%s", now.UnixNano(), key)), started: now, last: now, key: key}
		f, err := os.OpenFile(b.base+".head", os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
		if errors.Is(err, fs.ErrExist) {
			now = now.Add(1)
			continue
		}
		b.file, b.ending = f, ".head"
		return b, err
	}
}

var badKey = regexp.MustCompile(`[^A-Za-z0-9 ]`)

// readBoots returns the boots in a folder, the oldest first. Other files are not looked at.
func readBoots(folder string) (boots []*boot) {
	heads, err := filepath.Glob(filepath.Join(folder, "*-*.head"))
	if err != nil {
		return nil // the pattern is valid
	}
	for _, head := range heads {
		base := strings.TrimSuffix(head, ".head")
		at, key, _ := strings.Cut(filepath.Base(base), "-")
		nanos, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			continue
		}
		b := &boot{base: base, started: time.Unix(0, nanos), key: key}
		for _, f := range []struct {
			ending string
			bytes  *int64
		}{{".head", &b.head}, {".old", &b.old}, {".tail", &b.tail}} {
			if info, err := os.Stat(base + f.ending); err == nil {
				*f.bytes, b.last = info.Size(), later(b.last, info.ModTime())
			}
		}
		if text, err := os.ReadFile(base + ".gone"); err == nil {
			b.gone, _ = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		}
		boots = append(boots, b)
	}
	slices.SortFunc(boots, func(a, b *boot) int { return cmp.Or(a.started.Compare(b.started), strings.Compare(a.key, b.key)) })
	return boots
}

func later(a, b time.Time) time.Time {
	return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare)
}

// size returns the bytes that are kept.
func (b *boot) size() int64 { return b.head + b.old + b.tail }

// dropped returns the bytes that are not kept any more.
func (b *boot) dropped() int64 { return b.gone }

// write appends output, and drops some of the middle if there is too much.
func (b *boot) write(now time.Time, output []byte, limit int64) error {
	b.last = now
	if room := limit*headEighths/eighths - b.head; room > 0 {
		n := min(room, int64(len(output)))
		if err := b.append(".head", &b.head, output[:n]); err != nil {
			return err
		}
		output = output[n:]
	}
	for most := limit * tailEighths / eighths; len(output) > 0; {
		if b.tail >= most {
			if err := b.rotate(); err != nil {
				return err
			}
		}
		n := min(most-b.tail, int64(len(output)))
		if err := b.append(".tail", &b.tail, output[:n]); err != nil {
			return err
		}
		output = output[n:]
	}
	return nil
}

// rotate makes the tail the old one.
func (b *boot) rotate() error {
	b.close()
	if b.old > 0 {
		b.gone += b.old
		if err := os.WriteFile(b.base+".gone", fmt.Append(nil, b.gone), 0o600); err != nil {
			return err
		}
	}
	if err := os.Rename(b.base+".tail", b.base+".old"); err != nil {
		return err
	}
	b.old, b.tail = b.tail, 0
	return nil
}

// append appends to a file and counts its bytes.
func (b *boot) append(ending string, bytes *int64, output []byte) (err error) {
	if b.file == nil || b.ending != ending {
		b.close()
		b.ending = ending
		if b.file, err = os.OpenFile(b.base+ending, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
			return err
		}
	}
	n, err := b.file.Write(output)
	*bytes += int64(n)
	return err
}

// close closes the file that is written to.
func (b *boot) close() {
	if b.file != nil {
		_ = b.file.Close() // each write has returned its error
		b.file = nil
	}
}

// read returns what is kept.
func (b *boot) read() ([]byte, error) {
	text, err := os.ReadFile(b.base + ".head")
	if err != nil {
		return nil, err
	}
	if b.gone > 0 {
		text = fmt.Appendf(text, "\r\n[… %d bytes are not kept …]\r\n", b.gone)
	}
	for _, ending := range []string{".old", ".tail"} {
		more, err := os.ReadFile(b.base + ending)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		text = append(text, more...)
	}
	return text, nil
}

// remove deletes the files.
func (b *boot) remove() {
	b.close()
	for _, ending := range []string{".tail", ".old", ".gone", ".head"} { // without a head the others are not found again
		_ = os.Remove(b.base + ending)
	}
}
