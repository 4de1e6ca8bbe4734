package boot

import (
	"fmt"
	"net/http"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Document is a rendered config document.
type Document struct {
	ContentType string
	Body        []byte
	Release     func() // to be called once it was sent or not; nil: nothing to do
}

// An Answer is a config document for a machine that told its MACs instead of a token, and what its read is booked under.
type Answer struct {
	Document
	MAC   lab.MAC
	Token string
	Name  string
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
