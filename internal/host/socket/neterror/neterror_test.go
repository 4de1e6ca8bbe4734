package neterror_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/bootlab/bootlab/internal/host/socket/neterror"
)

func TestText(t *testing.T) {
	t.Parallel()
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for _, tt := range []struct {
		err  error
		want string
	}{
		{context.DeadlineExceeded, "no answer in time"},
		{dial(os.ErrDeadlineExceeded), "no answer in time"},
		{fmt.Errorf("ask: %w", dial(os.NewSyscallError("connect", syscall.ETIMEDOUT))), "no answer in time"},
		{fmt.Errorf("ask: %w", dial(os.NewSyscallError("connect", syscall.ECONNREFUSED))), "connection refused"},
		{dial(&net.DNSError{Err: "no such host", Name: "kvm1", IsNotFound: true}), "the name kvm1 is not found in DNS"},
		{errors.New("other"), "other"},
	} {
		if got := neterror.Text(tt.err); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
}
