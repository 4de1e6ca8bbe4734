package files_test

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/bootlab/bootlab/internal/boot/files"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// TestReasons: each error of Open has one reason and one text, which HTTP and TFTP record.
func TestReasons(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err    error
		reason event.Reason
		text   string
	}{
		{fs.ErrNotExist, event.NotFound, "file not found"},
		{fmt.Errorf("%w: %w", files.ErrAwaited, fs.ErrNotExist), event.NotPulled, files.ErrAwaited.Error()},
		{files.ErrUnnamed, event.NotServed, files.ErrUnnamed.Error()},
		{files.ErrSecret, event.NotServed, files.ErrSecret.Error()},
		{files.ErrUnreadable, event.Unreadable, files.ErrUnreadable.Error()},
		{fmt.Errorf("%w: %w", fs.ErrPermission, errors.New("path escapes from parent")), event.NotServed, "not to be served"},
		{fs.ErrInvalid, event.NotServed, "not to be served"},
		{syscall.EMFILE, event.Unreadable, "too many open files"},
	} {
		err := &fs.PathError{Op: "serve", Path: "images/k", Err: tt.err}
		if reason, text := files.ReasonOf(err), files.TextOf(err); reason != tt.reason || text != tt.text {
			t.Errorf("%v: %s, %q, want %s, %q", err, reason, text, tt.reason, tt.text)
		}
	}
}
