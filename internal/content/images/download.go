package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/host/file/replace"
	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"

	"golang.org/x/sys/unix"
)

const (
	maxTries = 6       // in a row without a byte of progress
	bufSize  = 1 << 20 // of a body
)

// partOf returns where a file is while it is fetched: beside its name, hidden.
func partOf(name string) string {
	return filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".part")
}

// A download brings one item to where it belongs.
type download struct {
	cfg   Config
	item  Item
	name  string
	track *Track

	outcome Outcome
	fetched int64
	part    *os.File // nil: nothing to appear
	at      int64    // bytes in part
	sum     hash.Hash
	origin  origin
}

// An origin says what a part is a part of. It stands beside the part as JSON.
type origin struct {
	URL       string `json:"url"`
	Validator string `json:"validator"` // ETag or date, for If-Range; empty: a part cannot be gone on with
	SHA256    string `json:"sha256"`
}

func (d *download) run(ctx context.Context) error {
	if d.busy() { // before the file is read, which may take minutes
		return errBusy
	}
	d.outcome = Kept
	sum, size, err := sumOf(ctx, d.name)
	switch {
	case err == nil && sum == d.item.SHA256:
		d.track.Total.Store(size)
		d.track.Have.Store(size)
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	d.outcome = Fetched
	if err := d.openPart(ctx); err != nil {
		return err
	}
	return d.fetch(ctx)
}

// busy reports whether another pull downloads the file now. One may begin at any time: openPart decides.
func (d *download) busy() bool {
	f, err := os.OpenFile(partOf(d.name), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// openPart opens what an earlier pull left, or nothing, and keeps other pulls away from it.
func (d *download) openPart(ctx context.Context) error {
	if err := makeFolders(d.cfg.Dir, filepath.Dir(d.item.Path)); err != nil {
		return err
	}
	f, err := os.OpenFile(partOf(d.name), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	// The daemon reads it as another user, whatever the umask of who pulls. Somebody else's part stays as it is.
	_ = f.Chmod(0o644)
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return errBusy
	}
	d.part, d.sum = f, sha256.New()
	if !d.known() {
		return d.restart()
	}
	if d.at, err = io.Copy(d.sum, untilDone{ctx, f}); err != nil {
		return err
	}
	if d.at > 0 {
		d.outcome = Resumed
	}
	d.track.Have.Store(d.at)
	return nil
}

// makeFolders makes dir, and the folders below it on the way to at.
func makeFolders(dir, at string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := makeFolder(dir); err != nil {
		return err
	}
	for part := range strings.SplitSeq(filepath.ToSlash(at), "/") {
		dir = filepath.Join(dir, part)
		if err := makeFolder(dir); err != nil {
			return err
		}
	}
	return nil
}

// makeFolder makes a folder that the daemon's user can enter, whatever the umask of who pulls. One that is there stays as it is.
func makeFolder(dir string) error {
	switch err := os.Mkdir(dir, 0o755); {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return err
	}
	return os.Chmod(dir, 0o755)
}

// known reports whether the part is of this item, and from where.
func (d *download) known() bool {
	b, err := regular.Read(partOf(d.name)+".json", regular.Small)
	return err == nil && json.Unmarshal(b, &d.origin) == nil && d.origin.SHA256 == d.item.SHA256 && d.origin.Validator != ""
}

// restart forgets what is there.
func (d *download) restart() error {
	d.at, d.origin, d.outcome = 0, origin{}, Fetched
	d.sum.Reset()
	d.track.Have.Store(0)
	return d.part.Truncate(0)
}

// fetch tries the URLs in turn until the file is whole and right.
func (d *download) fetch(ctx context.Context) error {
	wait := d.cfg.Retry
	most := d.at // ever fetched: to come as far again, after a new start, is no progress
	for try := 1; ; try++ {
		err := d.once(ctx, d.item.URLs[(try-1)%len(d.item.URLs)])
		if err == nil {
			if err = d.verify(); err == nil {
				return d.part.Sync()
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errFinal) {
			return err
		}
		if d.at > most {
			most, try, wait = d.at, 0, d.cfg.Retry
		}
		if try >= maxTries {
			return err
		}
		d.track.setErr(err)
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
		d.track.setErr(nil)
		wait = min(2*wait, 30*time.Second)
	}
}

var (
	errFinal    = errors.New("giving up")
	errChecksum = errors.New("the checksum is wrong")
)

// once asks one URL for what is missing and writes it down.
func (d *download) once(ctx context.Context, url string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	idle := time.AfterFunc(d.cfg.Idle, cancel)
	defer idle.Stop()
	resp, err := d.ask(ctx, url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := d.place(resp, url); err != nil {
		return err
	}
	buf := make([]byte, bufSize)
	for {
		n, err := resp.Body.Read(buf)
		stalled := !idle.Reset(d.cfg.Idle)
		if werr := d.write(buf[:n]); werr != nil {
			return werr
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && stalled:
			return fmt.Errorf("%s sends nothing any more", lab.Redacted(url))
		case err != nil:
			return fmt.Errorf("%s, after %d bytes: %w", lab.Redacted(url), d.at, err)
		}
	}
}

func (d *download) ask(ctx context.Context, url string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if d.at > 0 && d.origin.URL == url {
		r.Header.Set("Range", "bytes="+strconv.FormatInt(d.at, 10)+"-")
		r.Header.Set("If-Range", d.origin.Validator)
	}
	r.Header.Set("User-Agent", "bootlab")
	return d.cfg.Client.Do(r)
}

// place goes to where an answer's bytes belong.
func (d *download) place(resp *http.Response, url string) error {
	switch s := resp.StatusCode; {
	case s == http.StatusPartialContent:
		if !strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", d.at)) {
			return errors.Join(fmt.Errorf("%s sent %q, not from byte %d on", lab.Redacted(url), resp.Header.Get("Content-Range"), d.at), d.restart())
		}
	case s == http.StatusRequestedRangeNotSatisfiable:
		return errors.Join(fmt.Errorf("%s has another file now", lab.Redacted(url)), d.restart())
	case s == http.StatusOK:
		if err := d.restart(); err != nil {
			return err
		}
		d.origin = origin{URL: url, Validator: validatorOf(resp.Header), SHA256: d.item.SHA256}
		if err := d.remember(); err != nil {
			return d.full(err)
		}
	case s >= 400 && s < 500 && s != http.StatusTooManyRequests && s != http.StatusRequestTimeout && len(d.item.URLs) == 1:
		return fmt.Errorf("%s: %s: %w", lab.Redacted(url), resp.Status, errFinal)
	default:
		return fmt.Errorf("%s: %s", lab.Redacted(url), resp.Status)
	}
	if resp.ContentLength >= 0 {
		d.track.Total.Store(d.at + resp.ContentLength)
	}
	return nil
}

// validatorOf returns what makes a range belong to this very file. A weak ETag does not (RFC 9110, section 13.1.5).
func validatorOf(h http.Header) string {
	if tag := h.Get("Etag"); tag != "" && !strings.HasPrefix(tag, "W/") {
		return tag
	}
	return h.Get("Last-Modified")
}

func (d *download) remember() error {
	b, err := json.Marshal(d.origin)
	if err != nil {
		return err
	}
	return replace.Cached(partOf(d.name)+".json", 0o644, replace.With(b)) // one that cannot be read starts the download anew
}

func (d *download) write(p []byte) error {
	n, err := d.part.WriteAt(p, d.at)
	_, _ = d.sum.Write(p[:n])
	d.at += int64(n)
	d.fetched += int64(n)
	d.track.Have.Store(d.at)
	return d.full(err)
}

// full says of an error of the disk what to do about it.
func (d *download) full(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("write %s: the disk is full after %d bytes: make room and pull again: %w", d.part.Name(), d.at, errFinal)
	}
	return fmt.Errorf("%w: %w", err, errFinal)
}

// verify throws the part away where it is whole and wrong.
func (d *download) verify() error {
	got := hex.EncodeToString(d.sum.Sum(nil))
	if got == d.item.SHA256 {
		return nil
	}
	err := fmt.Errorf("%w: %s is %s, want %s", errChecksum, d.item.Path, got, d.item.SHA256)
	return errors.Join(err, d.restart())
}

// appear gives the file its name.
func (d *download) appear() error {
	if d.part == nil {
		return nil
	}
	if err := os.Rename(d.part.Name(), d.name); err != nil {
		return err
	}
	if err := os.Remove(d.part.Name() + ".json"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// close lets other pulls at the part, which stays unless it appeared. One of nothing is not left behind.
func (d *download) close() {
	if d.part == nil {
		return
	}
	if d.at == 0 {
		_ = os.Remove(partOf(d.name))
		_ = os.Remove(partOf(d.name) + ".json")
	}
	_ = d.part.Close()
}
