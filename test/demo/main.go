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
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the machine has not booted from its disk within %v", limit))
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

// run builds the installer, which needs the package archive, and then runs the demo in a network namespace.
func run(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("root is needed, to create a network namespace: sudo make demo")
	}
	if !netns.Inside() {
		say("Build a small installer from Debian's kernel and busybox")
		if _, err := guest.Build(ctx, guest.CacheDir()); err != nil {
			return err
		}
		code, err := netns.Isolate(ctx)
		if err == nil && code != 0 {
			err = fmt.Errorf("the demo ended with exit code %d", code)
		}
		return err
	}
	return demo(ctx)
}

// demo runs the steps of the demo.
func demo(ctx context.Context) (err error) {
	s, err := newSetup()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cleanUp()) }()
	for _, step := range []func(context.Context) error{
		s.createNetwork,
		s.startLibvirt,
		s.startDaemon,
		s.showLab,
		s.createMachine,
		s.watchInstall,
		s.summarize,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// say prints a heading.
func say(format string, args ...any) {
	bold, plain := "", ""
	if info, err := os.Stdout.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		bold, plain = "\x1b[1m", "\x1b[0m"
	}
	fmt.Printf("\n%s» %s%s\n", bold, fmt.Sprintf(format, args...), plain)
}

// binary returns the path of the daemon.
func binary() (string, error) {
	path, err := filepath.Abs("bin/bootlab")
	if err != nil {
		return "", err
	}
	if _, err := exec.LookPath(path); err != nil {
		return "", fmt.Errorf("%w: build the daemon with make build", err)
	}
	return path, nil
}
