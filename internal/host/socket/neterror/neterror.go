// Package neterror says in words for people why a connection, or a question, failed. It knows no server.
//
//	neterror.Text(err) // "no answer in time", not "dial tcp 10.0.0.1:80: i/o timeout"
//
// Callers name the address and the time.
package neterror

import (
	"context"
	"errors"
	"net"
	"os"
)

// Text returns why an operation failed, without its name and its address.
func Text(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return "the name " + dns.Name + " is not found in DNS"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	if call, ok := errors.AsType[*os.SyscallError](err); ok {
		err = call.Err
	}
	return err.Error()
}
