package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/test/support/guest"
	"github.com/bootlab/bootlab/test/support/netns"
)

// limit is how long the demo may take; emulation without hardware virtualization needs about a minute.
const limit = 4 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
	err := run(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = context.Cause(ctx)
	}
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run prepares outside, where the package archive can be reached, and plays inside.
func run(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("needs root, for a network namespace of its own: sudo make demo")
	}
	if !netns.Inside() {
		say("the guest: Debian's kernel and busybox as a small installer")
		if _, err := guest.Build(ctx, guest.CacheDir()); err != nil {
			return err
		}
		code, err := netns.Isolate(ctx)
		if err == nil && code != 0 {
			err = fmt.Errorf("the play ended with exit code %d", code)
		}
		return err
	}
	return play(ctx)
}

// play is the demo, act by act.
func play(ctx context.Context) (err error) {
	s, err := newStage(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.clear()) }()
	for _, act := range []func(context.Context) error{
		s.layNetwork,
		s.startLibvirt,
		s.startDaemon,
		s.showLab,
		s.createMachine,
		s.watchInstall,
		s.sum,
	} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

// say writes a headline.
func say(format string, args ...any) {
	bold, plain := "", ""
	if info, err := os.Stdout.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		bold, plain = "\x1b[1m", "\x1b[0m"
	}
	fmt.Printf("\n%s» %s%s\n", bold, fmt.Sprintf(format, args...), plain)
}

// binary is the daemon that make built.
func binary() (string, error) {
	path, err := filepath.Abs("bin/bootlab")
	if err != nil {
		return "", err
	}
	if _, err := exec.LookPath(path); err != nil {
		return "", fmt.Errorf("no daemon (%w): build it with make build", err)
	}
	return path, nil
}
