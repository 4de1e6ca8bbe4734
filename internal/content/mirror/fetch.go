package mirror

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"
)

// A fetch is a flight with what its own goroutine needs.
type fetch struct {
	*flight
	cache *Cache
	resp  *http.Response
	sum   hash.Hash // nil: nothing is known to compare with
	at    int64     // bytes written

	reserved int64 // of the shelf's room
}

// run answers the flight's question and fetches the body. It is the flight's goroutine.
func (t *fetch) run(ctx context.Context, q *question) {
	defer t.cancel()
	defer t.release()
	s := t.shelf
	resp, base, err := t.cache.up.do(ctx, q.mirror, ask{http.MethodGet, t.path, q.conditions})
	if err != nil {
		t.cache.unreachable(s, err)
		t.land(failed, unavailable(err))
		return
	}
	t.cache.reachable(s)
	defer func() { _ = t.resp.Body.Close() }()
	t.resp, t.base, t.head = resp, base, headOf(resp)
	switch resp.StatusCode {
	case http.StatusNotModified:
		t.confirm()
	case http.StatusOK:
		t.body(ctx)
	case http.StatusPartialContent:
		t.land(failed, unavailable(errors.New("upstream sent a part of what was asked for whole")))
	default:
		s.mu.Lock()
		if e := s.entries[t.key]; e != nil {
			s.removeLocked(e)
		}
		s.mu.Unlock()
		t.land(gone, refusal{http.StatusNotFound, fmt.Errorf("%s: upstream does not have it", t.path)})
	}
}

// unavailable is what a machine gets while no upstream answers.
func unavailable(err error) error {
	var r refusal
	if errors.As(err, &r) {
		return r
	}
	return refusal{http.StatusServiceUnavailable, err}
}

// land ends a flight that has no body.
func (t *fetch) land(o outcome, err error) {
	t.leave()
	t.tell(o, err)
}

// confirm is for 304.
func (t *fetch) confirm() {
	s := t.shelf
	s.mu.Lock()
	e := s.entries[t.key]
	if e != nil {
		s.checkedLocked(e, s.now())
	}
	s.mu.Unlock()
	if e == nil { // it was thrown away meanwhile
		t.land(failed, unavailable(fmt.Errorf("%s: thrown away while upstream was asked about it", t.path)))
		return
	}
	t.land(unchanged, nil)
}

// body fetches the file, tells who waits once its head is known, and keeps it when it is whole.
func (t *fetch) body(ctx context.Context) {
	if t.expect = expectOf(t.path, t.resp.Header); t.expect.known() {
		t.sum = t.expect.new()
	}
	if err := t.begin(); err != nil {
		t.cache.cannotKeep(t.shelf, t.path, err)
		t.land(passing, nil)
		return
	}
	t.tell(body, nil)
	err := t.fill(ctx)
	if err == nil {
		err = t.keep()
	}
	if err != nil {
		t.fail(err)
	}
}

// begin finds room for the file.
func (t *fetch) begin() (err error) {
	if err := t.reserve(room(max(t.head.Size, 0))); err != nil {
		return err
	}
	if t.file, err = t.shelf.part(t.key); err != nil {
		t.giveBack()
		return fmt.Errorf("%w: %w", errUnkept, err)
	}
	return nil
}

// reserve takes n more bytes of the shelf.
func (t *fetch) reserve(n int64) error {
	t.shelf.mu.Lock()
	defer t.shelf.mu.Unlock()
	if !t.shelf.reserveLocked(n) {
		return fmt.Errorf("%w: %d bytes more than max_size has room for", errUnkept, n)
	}
	t.reserved += n
	return nil
}

// giveBack frees what was reserved.
func (t *fetch) giveBack() {
	t.shelf.mu.Lock()
	defer t.shelf.mu.Unlock()
	t.shelf.growLocked(-t.reserved)
	t.reserved = 0
}

// fill writes the body, and goes on where it broke off.
func (t *fetch) fill(ctx context.Context) error {
	buf := make([]byte, piece)
	for try := 1; ; try++ {
		before := t.at
		err := t.copy(buf)
		if err == nil || errors.Is(err, errUnkept) || errors.Is(err, errSize) {
			return err
		}
		t.shelf.metrics.errors.Inc()
		if t.at > before {
			try = 1
		}
		if try > maxTries {
			return err
		}
		if again := t.resume(ctx, try); again != nil {
			return fmt.Errorf("%w; and to go on at byte %d: %w", err, t.at, again)
		}
	}
}

// errSize is that a body is not as long as its header said.
var errSize = errors.New("the body has another size than its header said")

// copy writes what comes to the end of the file.
func (t *fetch) copy(buf []byte) error {
	for {
		n, err := t.resp.Body.Read(buf)
		if n > 0 {
			if werr := t.write(buf[:n]); werr != nil {
				return werr
			}
		}
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return fmt.Errorf("after %d of %d bytes: %w", t.at, t.head.Size, err)
		case t.head.Size >= 0 && t.at != t.head.Size:
			return fmt.Errorf("after %d of %d bytes: %w", t.at, t.head.Size, io.ErrUnexpectedEOF)
		default:
			return nil
		}
	}
}

// write adds a piece, and lets it be read unless it is the last one: that waits until the whole is known to be right.
func (t *fetch) write(p []byte) error {
	if t.head.Size >= 0 && t.at+int64(len(p)) > t.head.Size {
		return errSize
	}
	if t.head.Size < 0 {
		if err := t.reserve(int64(len(p))); err != nil {
			return err
		}
	}
	if err := t.store(p); err != nil {
		return err
	}
	if t.sum != nil {
		_, _ = t.sum.Write(p)
	}
	t.shelf.metrics.fetched.Add(float64(len(p)))
	last := t.at
	t.at += int64(len(p))
	if t.at < t.head.Size || t.head.Size < 0 {
		last = t.at
	}
	t.publish(last, false, nil)
	return nil
}

// store writes a piece to the file; where the disk is full, after throwing away what makes room.
func (t *fetch) store(p []byte) error {
	for {
		_, err := t.file.WriteAt(p, t.at) // all of it again after a part
		if err == nil {
			return nil
		}
		t.shelf.mu.Lock()
		more := isFull(err) && t.shelf.evictLocked()
		t.shelf.mu.Unlock()
		if !more {
			return fmt.Errorf("%w: %w", errUnkept, err)
		}
	}
}

// isFull reports whether a disk, or its owner's share of it, is full.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// resume asks the same upstream for the rest of the same file.
func (t *fetch) resume(ctx context.Context, try int) error {
	v := t.head.validator()
	if v == "" || t.head.Size < 0 {
		return errors.New("upstream tells neither ETag nor date nor size")
	}
	if err := pause.For(ctx, time.Duration(try)*retryWait); err != nil {
		return err
	}
	_ = t.resp.Body.Close()
	resp, err := t.cache.up.one(ctx, t.base, ask{http.MethodGet, t.path, restOf(t.at, v)})
	if err != nil {
		t.resp.Body = http.NoBody
		return nil // the next try may do
	}
	t.resp = resp
	return isRest(resp, t.at, t.head.Size)
}

// restOf are the header of a request for all bytes from at on, of the file that a validator names.
func restOf(at int64, validator string) func(string) http.Header {
	return func(string) http.Header {
		return http.Header{"Range": {"bytes=" + strconv.FormatInt(at, 10) + "-"}, "If-Range": {validator}}
	}
}

// isRest returns an error unless the answer is the rest of a file from at on.
func isRest(r *http.Response, at, size int64) error {
	want := fmt.Sprintf("bytes %d-%d/%d", at, size-1, size)
	switch got := strings.TrimSpace(r.Header.Get("Content-Range")); {
	case r.StatusCode != http.StatusPartialContent:
		return fmt.Errorf("upstream has another file now (%s)", r.Status)
	case got != want:
		return fmt.Errorf("upstream sent %q, not %q", got, want)
	}
	return nil
}

// errChecksum is that a whole file is not what it should be.
var errChecksum = errors.New("the checksum is wrong")

// keep makes the whole file one that is kept, and lets its last bytes be read.
func (t *fetch) keep() error {
	if t.sum != nil && string(t.sum.Sum(nil)) != t.expect.sum {
		return fmt.Errorf("%w: %x, not %x", errChecksum, t.sum.Sum(nil), t.expect.sum)
	}
	err := t.file.Sync()
	if err == nil && endsWithConnection(t.resp) && t.sum == nil {
		err = errors.New("upstream does not tell where the file ends")
	}
	if err == nil {
		err = t.shelve()
	}
	if err != nil {
		_ = os.Remove(t.file.Name())
	}
	t.giveBack() // an entry is counted by itself
	t.leave()
	t.publish(t.at, true, nil) // it is right, kept or not
	if err != nil {
		t.cache.cannotKeep(t.shelf, t.path, err)
	}
	return nil
}

// endsWithConnection reports whether a body that was cut off cannot be told from a whole one.
func endsWithConnection(r *http.Response) bool {
	return r.ProtoMajor == 1 && r.ContentLength < 0 && len(r.TransferEncoding) == 0
}

// shelve hands the file to the shelf, with the flight as its first reader.
func (t *fetch) shelve() error {
	s := t.shelf
	l := label{head: t.head, Path: t.path, Upstream: t.base, Checked: s.now()}
	l.Size = t.at
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.keepLocked(t.file.Name(), l)
	if err != nil {
		return err
	}
	t.flight.mu.Lock()
	defer t.flight.mu.Unlock()
	t.entry, e.readers = e, 1
	return nil
}

// leave takes the flight off the list: who asks from now on asks anew, or finds what is kept.
func (t *fetch) leave() {
	t.shelf.mu.Lock()
	defer t.shelf.mu.Unlock()
	delete(t.shelf.flights, t.key)
}

// fail throws away what came. Readers of a file that only cannot be kept get the rest from upstream.
func (t *fetch) fail(err error) {
	s := t.shelf
	_ = os.Remove(t.file.Name())
	t.giveBack()
	t.leave()
	n, _, _, _ := t.state()
	t.publish(n, false, err)
	switch {
	case errors.Is(err, errUnkept):
		t.cache.cannotKeep(s, t.path, err)
	case errors.Is(err, errChecksum):
		s.metrics.errors.Inc()
		t.cache.corrupt(s, t.path, err)
	default:
		t.cache.brokeOff(s, t.path, err)
	}
}
