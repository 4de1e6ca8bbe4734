package httpd

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/bootlab/bootlab/internal/observe/panics"
)

// An awaited body clears the read deadline with its last byte: from then on net/http reads to notice that the client closes
// the connection, and would take a deadline for that.
type awaited struct {
	io.ReadCloser
	control *http.ResponseController
}

// Read implements io.Reader.
func (a *awaited) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	if errors.Is(err, io.EOF) {
		_ = a.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// guard turns a panic of h into a 500 where the answer has not begun, and into a broken connection where it has: a
// request must never end the process, nor look complete when it is not. secret is kept out of the log.
func guard(contained *panics.Server, w *reply, secret string, h func()) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares so, too
			panic(p)
		}
		contained.Note(p, secret)
		if w.code != 0 {
			panic(http.ErrAbortHandler)
		}
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
	}()
	h()
}

// since returns the time since start, for metrics and events.
func since(now func() time.Time, start time.Time) time.Duration { return now().Sub(start) }

// The keys of log attributes.
const (
	keyAddr   = "addr"
	keyMAC    = "mac"
	keyErr    = "err"
	keyDur    = "dur"
	keyMethod = "method"
	keyPath   = "path" // redacted: never with a token
	keyStatus = "status"
	keyBytes  = "bytes"
)
