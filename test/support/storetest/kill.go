package storetest

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Killed runs this test binary again, with a variable "NAME=value" by which its TestMain knows what it is to do for ever, and
// returns the lines that it printed until it was killed. said is called after each line with their number, and calls kill at
// that moment or later. A line that was not whole yet is left out: it was never said.
func Killed(t testing.TB, env string, said func(lines int, kill func())) (lines []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), env)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for r := bufio.NewReader(out); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			break
		}
		lines = append(lines, strings.TrimSuffix(line, "\n"))
		said(len(lines), func() { _ = cmd.Process.Kill() })
	}
	_ = cmd.Wait()
	return lines
}
