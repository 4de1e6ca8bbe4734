// Command bench measures bootlab beside the daemons that it replaces, in one run, in a network namespace of its own.
//
//	go run ./test/bench            # everything, as a table
//	go run ./test/bench -rounds 5
//
// It needs root, bin/bootlab, and dnsmasq, haproxy, nginx and tftpd-hpa from Debian. "Ready" is when every port answers, polled
// every half millisecond; memory is the resident set of all processes once they are ready and idle.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"bootlab/internal/netlab"
)

func main() {
	rounds := flag.Int("rounds", 5, "rounds of each measurement; the median is shown, with the range")
	binary := flag.String("bootlab", "bin/bootlab", "the daemon")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *binary, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binary string, rounds int) error {
	if !netlab.Inside() {
		code, err := netlab.Isolate(ctx)
		if err == nil && code != 0 {
			err = fmt.Errorf("exit code %d", code)
		}
		return err
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bootlab-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // the daemon becomes another user
		return err
	}
	if err := network(ctx); err != nil {
		return err
	}
	for _, measure := range []func(context.Context, *bench) error{footprint, reload} {
		if err := measure(ctx, &bench{dir: dir, binary: binary, rounds: rounds}); err != nil {
			return err
		}
	}
	return nil
}

// A bench is what every measurement works with.
type bench struct {
	dir    string // scratch
	binary string
	rounds int
}

// network makes the segment that everything is served on.
func network(ctx context.Context) error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", "br0", "type", "bridge"},
		{"addr", "add", "10.0.0.1/8", "dev", "br0"},
		{"link", "set", "br0", "up"},
	} {
		if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	return nil
}

// A sample is one measured value in each round.
type sample []float64

// String returns "median [least–most]".
func (s sample) String() string {
	if len(s) == 0 {
		return "-"
	}
	sorted := slices.Sorted(slices.Values(s))
	return fmt.Sprintf("%.1f [%.1f–%.1f]", sorted[len(sorted)/2], sorted[0], sorted[len(sorted)-1])
}

// until calls ok every half millisecond until it is true.
func until(ctx context.Context, limit time.Duration, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return errors.New("not ready within " + limit.String())
		case <-tick.C:
		}
	}
	return nil
}
