package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestInterruptOfHangingFile: a command that waits for a file, here a pipe to which nobody writes, is ended by one interrupt.
func TestInterruptOfHangingFile(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"check", "check --json", "plan a", "hosts"} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			t.Run(fmt.Sprint(args, " ", sig), func(t *testing.T) {
				t.Parallel()
				pipe := filepath.Join(t.TempDir(), "pipe")
				if err := syscall.Mkfifo(pipe, 0o600); err != nil {
					t.Fatal(err)
				}
				writer, err := os.OpenFile(pipe, os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer writer.Close()
				args := append(strings.Fields(args), "--lab", pipe)
				cmd := bootlab(t.Context(), args...)
				var said bytes.Buffer
				cmd.Stdout, cmd.Stderr = &said, &said
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- cmd.Wait() }()
				deadline := time.After(20 * time.Second) // without the interrupt it takes a minute
				for !reading(cmd.Process.Pid, pipe) {
					select {
					case err := <-ended:
						t.Fatalf("it ended before the signal: %v\n%s", err, said.String())
					case <-deadline:
						_ = cmd.Process.Kill()
						t.Fatal("it does not open its lab file")
					case <-time.After(10 * time.Millisecond):
					}
				}
				_ = cmd.Process.Signal(sig)
				select {
				case <-ended:
					if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != sig {
						t.Errorf("%v, want the end by the signal\n%s", cmd.ProcessState, said.String())
					}
				case <-deadline:
					_ = cmd.Process.Kill()
					t.Errorf("%s goes on after %v", strings.Join(args, " "), sig)
				}
			})
		}
	}
}

// reading reports whether a process has a file open.
func reading(pid int, path string) bool {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == path {
			return true
		}
	}
	return false
}

// TestManyErrors: of many errors a hundred are printed, and how many more there are; JSON has all.
func TestManyErrors(t *testing.T) {
	t.Parallel()
	text := "version: 1\ndomain: lab.example\nnetworks: {n: {subnet: 10.0.0.0/24, dhcp: off}}\nhosts:\n"
	for n := range 250 {
		text += fmt.Sprintf("  h%d: {mac: nonsense}\n", n)
	}
	lab := filepath.Join(t.TempDir(), "lab.yaml")
	if err := os.WriteFile(lab, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	first := func(args ...string) {
		t.Helper()
		a := run(t.Context(), append(args, "--lab", lab)...)
		said := a.stderr
		if a.err != nil {
			said += detailed(a.err)
		}
		if strings.Count(said, ".mac: ") != 100 || !strings.Contains(said, "… and 150 more errors") || !strings.Contains(said, "250 errors") {
			t.Errorf("%s: %d errors:\n%s", args, strings.Count(said, ".mac: "), said)
		}
	}
	first("check")
	first("plan")
	if a := run(t.Context(), "check", "--json", "--lab", lab); strings.Count(a.out, `.mac",`) != 250 {
		t.Errorf("JSON has %d", strings.Count(a.out, `.mac",`))
	}
}
