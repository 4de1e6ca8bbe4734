package mirror

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"
)

const (
	maxTries  = 5       // of a body that breaks off, without a byte of progress between
	chunkSize = 1 << 18 // bytes of a body that readers get at once
	maxWait   = 8 << 20 // a reader waits for the download to reach an offset that is at most this far ahead; otherwise it asks upstream itself
	retryWait = 500 * time.Millisecond
)

// An outcome is how upstream answered.
type outcome int

const (
	failed      outcome = iota // no upstream answered
	unchanged                  // the cached file is current (304)
	gone                       // upstream does not have the file
	body                       // the body follows
	uncacheable                // the body follows, but cannot be cached
)

// A download is one request to upstream, which all clients of the file share: they wait for its outcome, and then read the
// file while it is written.
type download struct {
	cache    *Cache
	disk     *diskCache
	key      string
	path     string
	urls     []string // of the mirror when it was started
	cancel   context.CancelFunc
	answered chan struct{} // closed when outcome, err, head and base are set

	outcome outcome
	err     error // of failed and gone
	head    head
	base    string

	// Of the goroutine that downloads.
	resp     *http.Response
	expect   checksum
	sum      hash.Hash // nil: there is no checksum to compare with
	at       int64     // bytes written
	reserved int64     // bytes reserved in the disk cache

	file     *os.File
	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when progress changes
	progress progress
	users    int    // of file: readers, and the download itself
	entry    *entry // the cached file; nil: it was not cached
}

// A progress is how far a download is.
type progress struct {
	n      int64 // bytes that may be read
	done   bool  // n is the whole file
	broken error // why no more bytes follow
}

// isOf reports whether the file comes, or will come, from an upstream of m, which may have others since the download was started.
func (d *download) isOf(m *lab.Mirror) bool {
	from := d.urls
	select {
	case <-d.answered:
		from = []string{d.base}
	default:
	}
	return !slices.ContainsFunc(from, func(url string) bool { return !slices.Contains(m.URLs, url) })
}

// answer gives the outcome to all who wait for it.
func (d *download) answer(o outcome, err error) {
	d.outcome, d.err = o, err
	close(d.answered)
}

// publish lets readers read as far as p.
func (d *download) publish(p progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.progress = p
	close(d.changed)
	d.changed = make(chan struct{})
}

// state returns the progress, and a channel that is closed when it changes.
func (d *download) state() (p progress, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.progress, d.changed
}

func (d *download) use() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.users++
}

// release closes the file after its last user.
func (d *download) release() {
	d.mu.Lock()
	d.users--
	last := d.users == 0
	d.mu.Unlock()
	if !last {
		return
	}
	if d.file != nil {
		_ = d.file.Close()
	}
	if d.entry != nil {
		d.disk.closeEntry(d.entry)
	}
}

// errBypass means that a file cannot be cached: its readers get the rest from upstream themselves.
var errBypass = errors.New("cannot be cached")

// run asks upstream and downloads the body. It is the download's goroutine.
func (d *download) run(ctx context.Context, q *request) {
	defer d.cancel()
	defer d.release()
	s := d.disk
	resp, base, err := d.cache.up.do(ctx, q.mirror, query{http.MethodGet, d.path, q.conditions})
	if err != nil {
		d.cache.unreachable(s, err)
		d.end(failed, unavailable(err))
		return
	}
	d.cache.reachable(s)
	defer func() { _ = d.resp.Body.Close() }()
	d.resp, d.base, d.head = resp, base, headOf(resp)
	switch resp.StatusCode {
	case http.StatusNotModified:
		d.confirm()
	case http.StatusOK:
		d.body(ctx)
	case http.StatusPartialContent:
		d.end(failed, unavailable(errors.New("upstream answered 206 to a request without Range")))
	default:
		s.mu.Lock()
		if e := s.entries[d.key]; e != nil {
			s.removeLocked(e)
		}
		s.mu.Unlock()
		d.end(gone, statusError{http.StatusNotFound, fmt.Errorf("%s: upstream does not have it", d.path)})
	}
}

// unavailable returns the error for a client while no upstream answers: 503 unless err has a status.
func unavailable(err error) error {
	var r statusError
	if errors.As(err, &r) {
		return r
	}
	return statusError{http.StatusServiceUnavailable, err}
}

// end ends a download without a body.
func (d *download) end(o outcome, err error) {
	d.unshare()
	d.answer(o, err)
}

// confirm handles 304.
func (d *download) confirm() {
	s := d.disk
	s.mu.Lock()
	e := s.entries[d.key]
	if e != nil {
		s.checkedLocked(e, s.now())
	}
	s.mu.Unlock()
	if e == nil { // it was evicted meanwhile
		d.end(failed, unavailable(fmt.Errorf("%s: evicted during revalidation", d.path)))
		return
	}
	d.end(unchanged, nil)
}

// body downloads the file, reports its head to the waiting clients, and caches the file when it is complete.
func (d *download) body(ctx context.Context) {
	if d.expect = checksumOf(d.path, d.resp.Header); d.expect.known() {
		d.sum = d.expect.new()
	}
	if err := d.begin(); err != nil {
		d.cache.bypass(d.disk, d.path, err)
		d.end(uncacheable, nil)
		return
	}
	d.answer(body, nil)
	err := d.fill(ctx)
	if err == nil {
		err = d.keep()
	}
	if err != nil {
		d.fail(err)
	}
}

// begin reserves space and creates the file.
func (d *download) begin() (err error) {
	if err := d.reserve(diskSize(max(d.head.Size, 0))); err != nil {
		return err
	}
	if d.file, err = d.disk.part(d.key); err != nil {
		d.unreserve()
		return fmt.Errorf("%w: %w", errBypass, err)
	}
	return nil
}

// reserve takes n more bytes of the disk cache.
func (d *download) reserve(n int64) error {
	d.disk.mu.Lock()
	defer d.disk.mu.Unlock()
	if !d.disk.reserveLocked(n) {
		return fmt.Errorf("%w: %d bytes do not fit into max_size", errBypass, n)
	}
	d.reserved += n
	return nil
}

// unreserve frees what was reserved.
func (d *download) unreserve() {
	d.disk.mu.Lock()
	defer d.disk.mu.Unlock()
	d.disk.growLocked(-d.reserved)
	d.reserved = 0
}

// fill writes the body, and resumes it where it breaks off.
func (d *download) fill(ctx context.Context) error {
	buf := make([]byte, chunkSize)
	for try := 1; ; try++ {
		before := d.at
		err := d.copy(buf)
		if err == nil || errors.Is(err, errBypass) || errors.Is(err, errSize) {
			return err
		}
		d.disk.metrics.errors.Inc()
		if d.at > before {
			try = 1
		}
		if try > maxTries {
			return err
		}
		if revalidated := d.resume(ctx, try); revalidated != nil {
			return fmt.Errorf("%w; resume at byte %d: %w", err, d.at, revalidated)
		}
	}
}

// errSize means that a body is not as long as its header says.
var errSize = errors.New("the body is longer than its Content-Length")

// copy appends the rest of the body to the file.
func (d *download) copy(buf []byte) error {
	for {
		n, err := d.resp.Body.Read(buf)
		if n > 0 {
			if werr := d.write(buf[:n]); werr != nil {
				return werr
			}
		}
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return fmt.Errorf("after %d of %d bytes: %w", d.at, d.head.Size, err)
		case d.head.Size >= 0 && d.at != d.head.Size:
			return fmt.Errorf("after %d of %d bytes: %w", d.at, d.head.Size, io.ErrUnexpectedEOF)
		default:
			return nil
		}
	}
}

// write appends bytes, and lets readers read them. The last bytes wait until the whole file is verified.
func (d *download) write(p []byte) error {
	if d.head.Size >= 0 && d.at+int64(len(p)) > d.head.Size {
		return errSize
	}
	if d.head.Size < 0 {
		if err := d.reserve(int64(len(p))); err != nil {
			return err
		}
	}
	if err := d.store(p); err != nil {
		return err
	}
	if d.sum != nil {
		_, _ = d.sum.Write(p)
	}
	d.disk.metrics.fetched.Add(float64(len(p)))
	last := d.at
	d.at += int64(len(p))
	if d.at < d.head.Size || d.head.Size < 0 {
		last = d.at
	}
	d.publish(progress{n: last})
	return nil
}

// store writes bytes to the file. On a full disk it deletes other cached files to make space.
func (d *download) store(p []byte) error {
	for {
		_, err := d.file.WriteAt(p, d.at) // after a partial write all of it again
		if err == nil {
			return nil
		}
		d.disk.mu.Lock()
		more := isFull(err) && d.disk.evictLocked()
		d.disk.mu.Unlock()
		if !more {
			return fmt.Errorf("%w: %w", errBypass, err)
		}
	}
}

// isFull reports whether a disk, or its quota, is full.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// resume requests the rest of the file from the same upstream.
func (d *download) resume(ctx context.Context, try int) error {
	v := d.head.validator()
	if v == "" || d.head.Size < 0 {
		return errors.New("upstream sends no ETag, no date or no size")
	}
	if err := pause.For(ctx, time.Duration(try)*retryWait); err != nil {
		return err
	}
	_ = d.resp.Body.Close()
	resp, err := d.cache.up.one(ctx, d.base, query{http.MethodGet, d.path, restOf(d.at, v)})
	if err != nil {
		d.resp.Body = http.NoBody
		return nil // the next attempt may succeed
	}
	d.resp = resp
	return isRest(resp, d.at, d.head)
}

// restOf returns the header that requests all bytes from at on, of the file with that validator.
func restOf(at int64, validator string) func(string) http.Header {
	return func(string) http.Header {
		return http.Header{"Range": {"bytes=" + strconv.FormatInt(at, 10) + "-"}, "If-Range": {validator}}
	}
}

// isRest returns an error unless the answer is the rest from at on of the file with that head. Some servers ignore If-Range: what they send
// may be of another version, of the same size.
func isRest(r *http.Response, at int64, h head) error {
	want := fmt.Sprintf("bytes %d-%d/%d", at, h.Size-1, h.Size)
	switch got := strings.TrimSpace(r.Header.Get("Content-Range")); {
	case r.StatusCode != http.StatusPartialContent:
		return fmt.Errorf("the file changed upstream (%s)", r.Status)
	case got != want:
		return fmt.Errorf("upstream sent %q, not %q", got, want)
	case h.differs(headOf(r)):
		return errors.New("the file changed upstream (another ETag or date)")
	}
	return nil
}

// errChecksum means that a complete file has a wrong checksum.
var errChecksum = errors.New("the checksum is wrong")

// keep verifies and caches the complete file, and lets readers read its last bytes.
func (d *download) keep() error {
	if d.sum != nil && string(d.sum.Sum(nil)) != d.expect.sum {
		return fmt.Errorf("%w: %x, not %x", errChecksum, d.sum.Sum(nil), d.expect.sum)
	}
	err := d.file.Sync()
	if err == nil && endsWithConnection(d.resp) && d.sum == nil {
		err = errors.New("upstream does not say where the file ends")
	}
	if err == nil {
		err = d.commit()
	}
	if err != nil {
		_ = os.Remove(d.file.Name())
	}
	d.unreserve() // the entry has its own size
	d.unshare()
	d.publish(progress{n: d.at, done: true}) // the file is right, cached or not
	if err != nil && !errors.Is(err, errReplaced) {
		d.cache.bypass(d.disk, d.path, err)
	}
	return nil
}

// errReplaced means that another download of the file was started, from the upstreams that the mirror has now.
var errReplaced = errors.New("replaced by another download")

// endsWithConnection reports whether a body that was cut off looks like a complete one.
func endsWithConnection(r *http.Response) bool {
	return r.ProtoMajor == 1 && r.ContentLength < 0 && len(r.TransferEncoding) == 0
}

// commit adds the file to the disk cache, with the download as its first reader.
func (d *download) commit() error {
	s := d.disk
	l := metadata{head: d.head, Path: d.path, Upstream: d.base, Checked: s.now()}
	l.Size = d.at
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.downloads[d.key] != d {
		return errReplaced
	}
	e, err := s.commitLocked(d.file.Name(), l)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entry, e.readers = e, 1
	return nil
}

// unshare ends sharing: later requests start a new download, or find the cached file.
func (d *download) unshare() {
	d.disk.mu.Lock()
	defer d.disk.mu.Unlock()
	if d.disk.downloads[d.key] == d {
		delete(d.disk.downloads, d.key)
	}
}

// fail deletes the file. Readers of a file that cannot be cached get the rest from upstream.
func (d *download) fail(err error) {
	s := d.disk
	_ = os.Remove(d.file.Name())
	d.unreserve()
	d.unshare()
	p, _ := d.state()
	p.broken = err
	d.publish(p)
	switch {
	case errors.Is(err, errBypass):
		d.cache.bypass(s, d.path, err)
	case errors.Is(err, errChecksum):
		s.metrics.errors.Inc()
		d.cache.corrupt(s, d.path, err)
	default:
		d.cache.aborted(s, d.path, err)
	}
}
