package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/bootlab/bootlab/internal/lab"
)

// ErrNoDaemon is wrapped by the error of a Client that could not connect.
var ErrNoDaemon = errors.New("no bootlab daemon answers")

// ErrInterrupted is wrapped by the error of a Client whose context was cancelled. It wraps context.Canceled.
var ErrInterrupted error = interruption{}

type interruption struct{}

// Error implements error.
func (interruption) Error() string { return "interrupted" }

// Unwrap returns the cause.
func (interruption) Unwrap() error { return context.Canceled }

// interrupted returns err, and ErrInterrupted for an error of a cancelled context.
func interrupted(err error) error {
	if errors.Is(err, context.Canceled) {
		return ErrInterrupted
	}
	return err
}

// A body is the body of an answer, whose errors say whether reading it was interrupted.
type body struct{ io.ReadCloser }

// Read implements io.Reader.
func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	return n, interrupted(err)
}

// An Error is an error of the API, sent as {"error": …, "hint": …}.
type Error struct {
	Status  int    `json:"-"`               // the HTTP status; 0 means 500
	Message string `json:"error"`           // what went wrong, lower case
	Hint    string `json:"hint,omitempty"`  // what to do about it
	Reason  string `json:"reason,omitzero"` // more lines, such as the problems of a refused lab
}

// Error implements error.
func (e *Error) Error() string {
	s := e.Message
	if e.Reason != "" {
		s += "\n" + e.Reason
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// HTTPStatus returns the status that the error is answered with.
func (e *Error) HTTPStatus() int {
	if e.Status == 0 {
		return http.StatusInternalServerError
	}
	return e.Status
}

// AsError returns err as it travels: itself where it is an *Error, else an Error with its text and, where it has a method
// HTTPStatus() int, that status.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	e = &Error{Message: err.Error()}
	var s interface{ HTTPStatus() int }
	if errors.As(err, &s) {
		e.Status = s.HTTPStatus()
	}
	return e
}

// NoHost is the answer to a name that is not in the lab, an Error. Requests that change a host need its name, and the hint gives it.
func NoHost(l *lab.Lab, name string) error {
	hint := "bootlab hosts lists them"
	if h := l.Find(name); h != nil {
		hint = "that is " + h.Name
	}
	return &Error{Status: http.StatusNotFound, Message: fmt.Sprintf("no host %q in lab %s", name, l.Name), Hint: hint}
}
