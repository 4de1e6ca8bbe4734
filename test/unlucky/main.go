package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
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
		return 2, errors.New("want packages and go test's flags, such as: unlucky [-stall|-crowd] ./internal/content/mirror -count 20")
	}
	given := []string{"test", "-race"}
	switch args[0] {
	case "-stall":
		return test(append(given, args[1:]...), stalls)
	case "-crowd":
		return test(append(given, args[1:]...), crowd)
	default:
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
		return test(append(given, args...), nil)
	}
}

// test runs go test, and luck beside it, if any, which is given go's process and ends when done is closed.
func test(args []string, luck func(root int, done <-chan struct{})) (code int, err error) {
	cmd := exec.Command("go", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 2, err
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	if luck != nil {
		wg.Go(func() { luck(cmd.Process.Pid, done) })
	}
	err = cmd.Wait()
	close(done)
	wg.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	return 0, err
}
