package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A File is one file of a mirror, whole or still coming.
type File struct {
	Content io.ReadSeeker // an *os.File where all of it is there; else its reads wait, and end with the context of Open
	Size    int64         // in bytes; always known
	ModTime time.Time     // zero: not known
	ETag    string        // empty: none
	Type    string        // media type; empty: upstream does not tell
	Coding  string        // Content-Encoding that upstream stores it in; empty: none
	Result  Result        // how it is answered

	sent  func(int64)
	close func()
}

// Close releases the file.
func (f *File) Close() { f.close() }

// Sent books bytes that left for a machine.
func (f *File) Sent(n int64) { f.sent(n) }

func (c *Cache) newFile(mirror string, h head, how Result) *File {
	sent := c.metrics.of(mirror).sent
	return &File{
		Size: h.Size, ModTime: h.modTime(), ETag: h.ETag, Type: h.Type, Coding: h.Encoding, Result: how,
		sent: func(n int64) { sent.Add(float64(n)) },
	}
}

// kept gives out an entry whose file is open.
func (c *Cache) kept(s *shelf, e *entry, content *os.File, how Result) *File {
	f := c.newFile(s.name, e.label.head, how)
	f.Content = content
	f.close = func() {
		_ = content.Close()
		s.closeEntry(e)
	}
	return f
}

// along gives out what a flight fetches. The caller's use of the flight goes over to the file.
func (c *Cache) along(ctx context.Context, q *question, fl *flight, how Result) (*File, error) {
	h := fl.head
	if h.Size < 0 { // the answer needs its length first
		n, err := fl.whole(ctx)
		if err != nil {
			fl.release()
			return nil, refusal{http.StatusServiceUnavailable, err}
		}
		h.Size = n
	}
	f := c.newFile(fl.shelf.name, h, how)
	r := &stream{ctx: ctx, flight: fl, size: h.Size, rest: c.passage(ctx, q, fl.base, h)}
	f.Content = r
	f.close = func() {
		r.rest.close()
		fl.release()
	}
	return f, nil
}

// whole waits for all of the file and returns its size.
func (f *flight) whole(ctx context.Context) (int64, error) {
	for {
		n, done, changed, broken := f.state()
		switch {
		case broken != nil:
			return 0, fmt.Errorf("%s: %w", f.path, broken)
		case done:
			return n, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// pass gives out what is not kept.
func (c *Cache) pass(ctx context.Context, q *question, base string, h head) *File {
	f := c.newFile(q.mirror.Name, h, Passed)
	p := c.passage(ctx, q, base, h)
	f.Content, f.close = p, p.close
	return f
}

// seek is what all contents have in common: to seek costs nothing until the next read.
func seek(at *int64, size, offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += *at
	case io.SeekEnd:
		offset += size
	}
	if offset < 0 {
		return 0, errors.New("seek before the beginning")
	}
	*at = offset
	return offset, nil
}

// A stream reads along with a flight.
type stream struct {
	ctx    context.Context // of the request: io.Reader has no room for it
	flight *flight
	size   int64
	at     int64
	rest   *passage // what comes from upstream instead, once leave is set
	leave  bool
}

// Seek implements io.Seeker.
func (s *stream) Seek(offset int64, whence int) (int64, error) {
	return seek(&s.at, s.size, offset, whence)
}

// Read implements io.Reader. It waits for bytes.
func (s *stream) Read(p []byte) (int, error) {
	for {
		n, done, changed, broken := s.flight.state()
		switch {
		case s.at >= s.size:
			return 0, io.EOF
		case s.leave:
			return s.pass(p)
		case s.at < n:
			got, err := s.flight.file.ReadAt(p[:min(int64(len(p)), n-s.at)], s.at)
			s.at += int64(got)
			return got, err
		case done:
			return 0, io.ErrUnexpectedEOF // of a file whose size was told wrong
		case broken != nil && !errors.Is(broken, errUnkept):
			return 0, fmt.Errorf("upstream: %w", broken)
		case broken != nil, s.at-n > farAhead:
			s.leave = true
			continue
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			return 0, s.ctx.Err()
		}
	}
}

func (s *stream) pass(p []byte) (int, error) {
	s.rest.at = s.at
	n, err := s.rest.Read(p)
	s.at += int64(n)
	return n, err
}

// A passage reads from upstream what is not kept.
type passage struct {
	ctx    context.Context // of the request: io.Reader has no room for it
	up     *upstreams
	fetchd func(int)
	mirror *lab.Mirror
	base   string
	path   string
	head   head

	at   int64
	body io.ReadCloser // nil: not asked for yet
	read int64         // where body is
}

func (c *Cache) passage(ctx context.Context, q *question, base string, h head) *passage {
	fetched := c.metrics.of(q.mirror.Name).fetched
	return &passage{
		ctx: ctx, up: c.up, mirror: q.mirror, base: base, path: q.path, head: h, fetchd: func(n int) { fetched.Add(float64(n)) },
	}
}

// Seek implements io.Seeker.
func (p *passage) Seek(offset int64, whence int) (int64, error) {
	return seek(&p.at, p.head.Size, offset, whence)
}

// Read implements io.Reader.
func (p *passage) Read(b []byte) (int, error) {
	if p.at >= p.head.Size {
		return 0, io.EOF
	}
	if p.body == nil || p.read != p.at {
		if err := p.open(); err != nil {
			return 0, err
		}
	}
	n, err := p.body.Read(b[:min(int64(len(b)), p.head.Size-p.at)])
	p.fetchd(n)
	p.at += int64(n)
	p.read = p.at
	if errors.Is(err, io.EOF) {
		err = nil
		if n == 0 {
			err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

// open asks for the bytes from at on, of the file whose head is known.
func (p *passage) open() error {
	p.close()
	q := ask{method: http.MethodGet, path: p.path}
	if p.at > 0 {
		v := p.head.validator()
		if v == "" {
			return errors.New("upstream tells neither ETag nor date: cannot go on in the middle")
		}
		q.header = restOf(p.at, v)
	}
	resp, err := p.up.one(p.ctx, p.base, q)
	if err != nil {
		return err
	}
	switch {
	case p.at > 0:
		err = isRest(resp, p.at, p.head.Size)
	case resp.StatusCode != http.StatusOK || resp.ContentLength != p.head.Size || headOf(resp).ETag != p.head.ETag:
		err = fmt.Errorf("upstream has another file now (%s)", resp.Status)
	}
	if err != nil {
		_ = resp.Body.Close()
		return err
	}
	p.body, p.read = resp.Body, p.at
	return nil
}

func (p *passage) close() {
	if p.body != nil {
		_ = p.body.Close()
		p.body = nil
	}
}
