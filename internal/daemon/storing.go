package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/health"
)

// hangLook is how often a change that waits for the disk looks whether the disk is reported as one that does not respond.
const hangLook = 100 * time.Millisecond

// The states of a change.
const (
	changeWaits int32 = iota // for an answer of the disk
	changeBegun
	changeRefused
)

// storing is storingResult of a change that has none.
func (d *Daemon) storing(ctx context.Context, change func(context.Context) error) error {
	_, err := storingResult(ctx, d, func(ctx context.Context) (struct{}, error) { return struct{}{}, change(ctx) })
	return err
}

// storingResult makes a change of an admin that waits for the store, and returns its result. While the disk does not respond it refuses the change:
// at once if that is known, else as soon as it is. A change begins only after the disk has answered a write, so one that is refused is not
// made later, unless the disk stops responding between the two: then the error says so.
func storingResult[T any](ctx context.Context, d *Daemon, change func(context.Context) (T, error)) (T, error) {
	var none T
	if silent := d.storeWatch.Hangs(); silent > 0 {
		return none, d.diskHangs(silent, changeRefused)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var state atomic.Int32
	var result T
	ended := make(chan error, 1)
	go func() { // a system call on a disk that hangs cannot be ended
		ended <- d.panics.Server(health.Admin).Run(func() (err error) {
			if err := d.file.Responds(ctx); err != nil {
				return err
			}
			if state.CompareAndSwap(changeWaits, changeBegun) {
				result, err = change(ctx)
			}
			return err
		})
	}()
	look := time.NewTicker(hangLook)
	defer look.Stop()
	for {
		select {
		case err := <-ended:
			return result, d.notStored(err)
		case <-look.C:
			if silent := d.storeWatch.Hangs(); silent > 0 {
				state.CompareAndSwap(changeWaits, changeRefused)
				return none, d.diskHangs(silent, state.Load())
			}
		}
	}
}

// diskHangs is the answer to a change while the disk does not respond.
func (d *Daemon) diskHangs(silent time.Duration, state int32) error {
	dir := d.storeWatch.Folder()
	e := &api.Error{
		Status: http.StatusServiceUnavailable, Message: fmt.Sprintf("nothing was changed: the disk of %s has not answered for %v", dir, silent.Round(time.Second)),
		Hint: "check the disk, and repeat this once bootlab status does not report it any more",
	}
	if state == changeBegun {
		e.Message = fmt.Sprintf("not known whether it was changed: the disk of %s has not answered for %v: the change may still be made when it does", dir, silent.Round(time.Second))
		e.Hint = "check the disk, and look whether it was changed before you repeat this"
	}
	return e
}

// notStored returns the error of a change with the status and the advice of the disk, if the disk took no writes; else err.
func (d *Daemon) notStored(err error) error {
	failed := d.file.DiskStatus().Err
	if failed == nil || !errors.Is(err, failed) {
		return err
	}
	status := http.StatusServiceUnavailable
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		status = http.StatusInsufficientStorage
	}
	return &api.Error{Status: status, Message: "not stored: " + err.Error(), Hint: d.storeWatch.Advice(err)}
}
