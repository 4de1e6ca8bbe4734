package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// A File is one file of a mirror, complete or being downloaded.
type File struct {
	Content io.ReadSeeker // an *os.File if the file is complete; otherwise reads wait for the download, until the context of Open ends
	Size    int64         // bytes; always known
	ModTime time.Time     // zero: not known
	ETag    string        // empty: none
	Type    string        // media type; empty: upstream sends none
	Coding  string        // Content-Encoding of the stored bytes; empty: none
	Result  Result        // how the request was answered

	sent  func(int64)
	close func()
}

// Close releases the file.
func (f *File) Close() { f.close() }

// Sent counts bytes sent to the client.
func (f *File) Sent(n int64) { f.sent(n) }

func (c *Cache) newFile(mirror string, h head, how Result) *File {
	sent := c.metrics.of(mirror).sent
	return &File{
		Size: h.Size, ModTime: h.modTime(), ETag: h.ETag, Type: h.Type, Coding: h.Encoding, Result: how,
		sent: func(n int64) { sent.Add(float64(n)) },
	}
}

// cached returns the file of an entry that is open.
func (c *Cache) cached(s *diskCache, e *entry, content *os.File, how Result) *File {
	f := c.newFile(s.name, e.metadata.head, how)
	f.Content = content
	f.close = func() {
		_ = content.Close()
		s.closeEntry(e)
	}
	return f
}

// follow returns the file of a download in progress. The file takes over the caller's use of the download.
func (c *Cache) follow(ctx context.Context, q *request, fl *download, how Result) (*File, error) {
	h := fl.head
	if h.Size < 0 { // the response needs its Content-Length first
		n, err := fl.whole(ctx)
		if err != nil {
			fl.release()
			return nil, statusError{http.StatusServiceUnavailable, err}
		}
		h.Size = n
	}
	f := c.newFile(fl.disk.name, h, how)
	r := &follower{ctx: ctx, download: fl, size: h.Size, rest: c.passthrough(ctx, q, fl.base, h)}
	f.Content = r
	f.close = func() {
		r.rest.close()
		fl.release()
	}
	return f, nil
}

// whole waits until the download is complete and returns its size.
func (f *download) whole(ctx context.Context) (int64, error) {
	for {
		p, changed := f.state()
		switch {
		case p.broken != nil:
			return 0, fmt.Errorf("%s: %w", f.path, p.broken)
		case p.done:
			return p.n, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// pass returns a file that is read from upstream and not cached.
func (c *Cache) pass(ctx context.Context, q *request, base string, h head) *File {
	f := c.newFile(q.mirror.Name, h, Passed)
	p := c.passthrough(ctx, q, base, h)
	f.Content, f.close = p, p.close
	return f
}

// seek implements io.Seeker for an offset: only the next read costs something.
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

// A follower reads the file of a download while it is written.
type follower struct {
	ctx      context.Context // of the request: io.Reader has no room for it
	download *download
	size     int64
	at       int64
	rest     *passthrough // read from upstream instead, once direct is set
	direct   bool
}

// Seek implements io.Seeker.
func (s *follower) Seek(offset int64, whence int) (int64, error) {
	return seek(&s.at, s.size, offset, whence)
}

// Read implements io.Reader. It waits for bytes.
func (s *follower) Read(p []byte) (int, error) {
	for {
		d, changed := s.download.state()
		switch {
		case s.at >= s.size:
			return 0, io.EOF
		case s.direct:
			return s.pass(p)
		case s.at < d.n:
			got, err := s.download.file.ReadAt(p[:min(int64(len(p)), d.n-s.at)], s.at)
			s.at += int64(got)
			return got, err
		case d.done:
			return 0, io.ErrUnexpectedEOF // upstream sent a wrong size
		case d.broken != nil && !errors.Is(d.broken, errBypass):
			return 0, fmt.Errorf("upstream: %w", d.broken)
		case d.broken != nil, s.at-d.n > maxWait:
			s.direct = true
			continue
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			return 0, s.ctx.Err()
		}
	}
}

func (s *follower) pass(p []byte) (int, error) {
	s.rest.at = s.at
	n, err := s.rest.Read(p)
	s.at += int64(n)
	return n, err
}

// A passthrough reads from upstream a file that is not cached.
type passthrough struct {
	ctx     context.Context // of the request: io.Reader has no room for it
	up      *upstreams
	fetched func(int)
	base    string
	path    string
	head    head

	at   int64
	body io.ReadCloser // nil: not requested yet
	read int64         // offset of body
}

func (c *Cache) passthrough(ctx context.Context, q *request, base string, h head) *passthrough {
	fetched := c.metrics.of(q.mirror.Name).fetched
	return &passthrough{
		ctx: ctx, up: c.up, base: base, path: q.path, head: h, fetched: func(n int) { fetched.Add(float64(n)) },
	}
}

// Seek implements io.Seeker.
func (p *passthrough) Seek(offset int64, whence int) (int64, error) {
	return seek(&p.at, p.head.Size, offset, whence)
}

// Read implements io.Reader.
func (p *passthrough) Read(b []byte) (int, error) {
	if p.at >= p.head.Size {
		return 0, io.EOF
	}
	if p.body == nil || p.read != p.at {
		if err := p.open(); err != nil {
			return 0, err
		}
	}
	n, err := p.body.Read(b[:min(int64(len(b)), p.head.Size-p.at)])
	p.fetched(n)
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

// open requests the bytes from at on, and checks that the file is the one of head.
func (p *passthrough) open() error {
	p.close()
	q := query{method: http.MethodGet, path: p.path}
	if p.at > 0 {
		v := p.head.validator()
		if v == "" {
			return errors.New("upstream sends neither ETag nor Last-Modified: cannot resume")
		}
		q.header = restOf(p.at, v)
	}
	resp, err := p.up.one(p.ctx, p.base, q)
	if err != nil {
		return err
	}
	switch {
	case p.at > 0:
		err = isRest(resp, p.at, p.head)
	case resp.StatusCode != http.StatusOK || resp.ContentLength != p.head.Size || headOf(resp).ETag != p.head.ETag || p.head.differs(headOf(resp)):
		err = fmt.Errorf("the file changed upstream (%s)", resp.Status)
	}
	if err != nil {
		_ = resp.Body.Close()
		return err
	}
	p.body, p.read = resp.Body, p.at
	return nil
}

func (p *passthrough) close() {
	if p.body != nil {
		_ = p.body.Close()
		p.body = nil
	}
}
