package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// wireCommand is the argument that makes this program a wire: two TAP devices, and what goes into one comes out of the other after
// a while. It stands for netem, which not every kernel has.
const wireCommand = "wire"

const (
	wireFrame = 2048 // bytes of a frame, with room
	wireRoom  = 4096 // frames that are on their way in one direction
	nearly    = 30 * time.Microsecond
)

// A wireEnd is a device, and the frames on their way from it.
type wireEnd struct {
	fd     int
	frames [wireRoom][wireFrame]byte
	length [wireRoom]int
	due    [wireRoom]time.Time
	first  int
	queued int
}

// runWire makes the devices that args name and carries frames between them, each way within the delay that comes first, until ctx
// ends. It says when it is ready.
func runWire(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("wire: want a delay and two names")
	}
	delay, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the slack below is the thread's
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	ends := [2]*wireEnd{{}, {}}
	for i, name := range args[1:] {
		if ends[i].fd, err = openTAP(name); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	for ctx.Err() == nil {
		now := time.Now()
		for i, e := range ends {
			e.take(now.Add(delay))
			e.give(now, ends[1-i].fd)
		}
		if err := ends[0].wait(ends[1]); err != nil {
			return err
		}
	}
	return nil
}

func openTAP(name string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: "/dev/net/tun", Err: err}
	}
	r, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		return 0, fmt.Errorf("make TAP device %s: %w", name, err)
	}
	return fd, nil
}

// take reads what the device has. What there is no room for is lost.
func (e *wireEnd) take(due time.Time) {
	for e.queued < wireRoom {
		at := (e.first + e.queued) % wireRoom
		n, err := unix.Read(e.fd, e.frames[at][:])
		if err != nil {
			return
		}
		e.length[at], e.due[at] = n, due
		e.queued++
	}
}

// give writes what is due.
func (e *wireEnd) give(now time.Time, to int) {
	for ; e.queued > 0 && !e.due[e.first].After(now); e.queued-- {
		_, _ = unix.Write(to, e.frames[e.first][:e.length[e.first]])
		e.first = (e.first + 1) % wireRoom
	}
}

// wait sleeps until a frame comes or is nearly due.
func (e *wireEnd) wait(other *wireEnd) error {
	sleep := 100 * time.Millisecond
	for _, end := range []*wireEnd{e, other} {
		if end.queued > 0 {
			sleep = min(sleep, time.Until(end.due[end.first])-nearly)
		}
	}
	if sleep <= 0 {
		return nil
	}
	t := unix.NsecToTimespec(int64(sleep))
	_, err := unix.Ppoll([]unix.PollFd{{Fd: int32(e.fd), Events: unix.POLLIN}, {Fd: int32(other.fd), Events: unix.POLLIN}}, &t, nil)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("wire: %w", err)
	}
	return nil
}
