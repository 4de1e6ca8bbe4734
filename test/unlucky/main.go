package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "unlucky:", err)
	}
	os.Exit(code)
}

// run returns go test's exit code.
func run(args []string) (code int, err error) {
	if len(args) == 0 {
		return 2, errors.New("want packages and go test's flags, such as: unlucky [-stall] ./internal/mirror -count 20")
	}
	stall := args[0] == "-stall"
	given := []string{"test", "-race"}
	if stall {
		args = args[1:]
	} else {
		dir, err := os.MkdirTemp("", "unlucky-")
		if err != nil {
			return 2, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		overlay, err := writeOverlay(dir)
		if err != nil {
			return 2, err
		}
		given = append(given, "-overlay", overlay, "-ldflags=-checklinkname=0")
	}
	return test(slices.Concat(given, args), stall)
}

// test runs go test, with stalls if wanted.
func test(args []string, stall bool) (code int, err error) {
	cmd := exec.Command("go", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 2, err
	}
	done := make(chan struct{})
	if stall {
		go stalls(cmd.Process.Pid, done)
	}
	err = cmd.Wait()
	close(done)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	return 0, err
}
