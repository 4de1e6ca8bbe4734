package boot

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// A Document is a rendered config document and one machine's read of it. It is from one table: a reload while it is sent changes
// neither.
type Document struct {
	ContentType string
	Body        []byte
	record      func(ctx context.Context, dur time.Duration) error
	release     func()
}

// NewDocument returns a document. record is what Read does, release what Release does; each may be nil.
func NewDocument(contentType string, body []byte, record func(ctx context.Context, dur time.Duration) error, release func()) *Document {
	return &Document{contentType, body, record, release}
}

// Read records that the whole document was sent, in dur. It is durable when Read returns.
func (d *Document) Read(ctx context.Context, dur time.Duration) error {
	if d.record == nil {
		return nil
	}
	return d.record(ctx, dur)
}

// Release ends the read. It must be called for every document, sent or not, and after Read.
func (d *Document) Release() {
	if d.release != nil {
		d.release()
	}
}

// A Refusal is a request that the desk turns down. Its message says why, for the log and the timeline; the machine is
// told the status only.
type Refusal struct {
	Status int // HTTP
	Reason string
	Err    error // may be nil
}

// Error implements error.
func (r *Refusal) Error() string {
	if r.Err == nil {
		return r.Reason
	}
	return fmt.Sprintf("%s: %v", r.Reason, r.Err)
}

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// HTTPStatus returns the status that tells the machine how to go on: Ignition repeats its request after 503 and gives up
// after anything below 500.
func (r *Refusal) HTTPStatus() int { return r.Status }

func forbidden(reason string, err error) *Refusal { return &Refusal{http.StatusForbidden, reason, err} }
func missing(reason string, err error) *Refusal   { return &Refusal{http.StatusNotFound, reason, err} }
func later(reason string, err error) *Refusal {
	return &Refusal{http.StatusServiceUnavailable, reason, err}
}
