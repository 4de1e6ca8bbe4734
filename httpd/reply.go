package httpd

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/host/client/webserver"
)

const (
	smallFile = 4 << 10  // below this, header and body leave in one write; above, sendfile pays
	chunk     = 64 << 10 // of a body from memory that must show progress before Limits.Stall
)

// A reply is a ResponseWriter that knows what was sent and gives up on a reader that stalls.
//
// It keeps sendfile(2) within reach: net/http uses it only if every wrapper passes ReadFrom on.
type reply struct {
	http.ResponseWriter
	stall time.Duration
	code  int             // 0: the answer has not begun
	sent  int64           // bytes of the body
	err   error           // the first that broke the body
	conn  *webserver.Conn // nil: a test's recorder
}

// newReply begins an answer. The body of the request has Limits.Stall to arrive: net/http has
// no limit of its own, and waits for the rest of a body even where no handler reads it, so that a connection that never sends
// it would stay for ever.
func newReply(w http.ResponseWriter, q *http.Request, stall time.Duration) *reply {
	r := &reply{ResponseWriter: w, stall: stall, conn: webserver.Of(q)}
	r.conn.ExtendWrite(stall)
	if q.Body != nil && q.Body != http.NoBody {
		_ = r.control().SetReadDeadline(time.Now().Add(stall))
		q.Body = &awaited{ReadCloser: q.Body, control: r.control()}
	}
	return r
}

// control returns what net/http lets one do with a connection.
func (w *reply) control() *http.ResponseController {
	return http.NewResponseController(w.ResponseWriter)
}

// Unwrap is for http.ResponseController.
func (w *reply) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *reply) WriteHeader(code int) {
	if w.code == 0 && code >= http.StatusOK {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter. Each piece of 64 KiB has Limits.Stall to leave.
func (w *reply) Write(b []byte) (n int, err error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	for {
		piece := b[n:min(n+chunk, len(b))]
		w.conn.ExtendWrite(w.stall)
		m, err := w.ResponseWriter.Write(piece)
		n += m
		w.sent += int64(m)
		if err != nil {
			return n, w.fail(err)
		}
		if n == len(b) {
			return n, nil
		}
	}
}

// A fileContent is a file for http.ServeContent, which seeks to its end and back to learn its size: no system call answers.
type fileContent struct {
	file     *os.File
	size, at int64
}

// sendable returns content so that sendfile(2) takes it, if it is a file.
func sendable(content io.ReadSeeker) io.ReadSeeker {
	file, ok := content.(*os.File)
	if !ok {
		return content
	}
	info, err := file.Stat()
	if err != nil {
		return content
	}
	return &fileContent{file: file, size: info.Size()}
}

// Seek implements io.Seeker.
func (c *fileContent) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.at
	case io.SeekEnd:
		offset += c.size
	}
	c.at = offset
	return offset, nil
}

// Read implements io.Reader.
func (c *fileContent) Read(b []byte) (int, error) {
	n, err := c.file.ReadAt(b, c.at)
	c.at += int64(n)
	return n, err
}

// buffers hold small files while they are sent.
var buffers = sync.Pool{New: func() any { return new([smallFile]byte) }}

// ReadFrom implements io.ReaderFrom: a part of a file goes out by sendfile(2), a small one and anything else through Write.
func (w *reply) ReadFrom(src io.Reader) (int64, error) {
	part, ok := src.(*io.LimitedReader)
	if ok && part.N <= smallFile {
		buffer := buffers.Get().(*[smallFile]byte)
		defer buffers.Put(buffer)
		n, err := io.CopyBuffer(struct{ io.Writer }{w}, src, buffer[:])
		return n, w.fail(err)
	}
	to, direct := w.ResponseWriter.(io.ReaderFrom)
	if ok && direct {
		if content, ok := part.R.(*fileContent); ok {
			if w.code == 0 {
				w.code = http.StatusOK
			}
			n, err := w.sendFile(to, part.N, content)
			w.sent += n
			return n, w.fail(err)
		}
	}
	n, err := io.Copy(struct{ io.Writer }{w}, src)
	return n, w.fail(err)
}

// sendFile sends size bytes of a file until the reader takes nothing for Limits.Stall. A deadline that passes while bytes flow
// is no failure: it is set again, and the file wound to the first byte that did not leave. The next try writes what the
// connection has room for at once, so a reader is given up only if it took less than one segment in all that time.
func (w *reply) sendFile(to io.ReaderFrom, size int64, content *fileContent) (n int64, err error) {
	// The header must be out: a deadline that broke it could not be distinguished from one that broke the body.
	if err := w.control().Flush(); err != nil {
		return 0, err
	}
	defer w.conn.Cork()()
	for {
		if _, err := content.file.Seek(content.at+n, io.SeekStart); err != nil {
			return n, err
		}
		w.conn.ExtendWrite(w.stall)
		m, err := to.ReadFrom(&io.LimitedReader{R: content.file, N: size - n})
		n += m
		if !errors.Is(err, os.ErrDeadlineExceeded) || m == 0 {
			return n, err
		}
	}
}

// set sets several headers at once: names, in the spelling of http.CanonicalHeaderKey, and values by turns.
func set(h http.Header, pairs ...string) {
	values := make([]string, len(pairs)/2)
	for i := range values {
		values[i] = pairs[2*i+1]
		h[pairs[2*i]] = values[i : i+1 : i+1]
	}
}

// finish pushes out what is buffered and returns the first error of the body.
func (w *reply) finish() error {
	if w.err == nil {
		if w.sent > smallFile { // else nothing has left yet, and the deadline is of a moment ago
			w.conn.ExtendWrite(w.stall)
		}
		w.fail(w.control().Flush())
	}
	return w.err
}

func (w *reply) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return err
}

// statusOf returns the status that an error brings along in a method HTTPStatus() int, 500 without one.
func statusOf(err error) int {
	var s interface{ HTTPStatus() int }
	if errors.As(err, &s) {
		if code := s.HTTPStatus(); code >= 400 && code <= 599 {
			return code
		}
	}
	return http.StatusInternalServerError
}
