package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/daemon"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// asBootlab makes the test binary be bootlab, for tests of exit codes, pipes and signals.
const asBootlab = "BOOTLAB_TEST_AS_BOOTLAB"

func TestMain(m *testing.M) {
	daemon.HypervisorProcess()
	if os.Getenv(asBootlab) != "" || os.Getenv(examiner) != "" {
		main()
		return
	}
	netns.Main(m)
}

// bootlab is a process of the command line itself.
func bootlab(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asBootlab+"=1")
	return cmd
}

// An answer is what a command says.
type answer struct {
	out, stderr string
	err         error
}

// run runs a command in this process.
func run(ctx context.Context, args ...string) answer {
	var out, stderr bytes.Buffer
	cmd := root()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&stderr)
	err := cmd.ExecuteContext(ctx)
	return answer{out.String(), stderr.String(), err}
}

// A step is one command and what it must say.
type step struct {
	args string   // separated by spaces; LAB is the lab file, NOWHERE a path that is not there
	err  string   // what the error holds; empty: success
	out  []string // what the output holds, columns apart by one space
	not  []string // what it does not hold
	json bool     // the output is one line of JSON or more
}

func (s step) check(t *testing.T, a answer) {
	t.Helper()
	switch {
	case s.err == "" && a.err != nil:
		t.Errorf("bootlab %s: %v", s.args, a.err)
	case s.err != "" && (a.err == nil || !strings.Contains(a.err.Error(), s.err)):
		t.Errorf("bootlab %s: error %v, want %q", s.args, a.err, s.err)
	}
	said := strings.Join(strings.Fields(a.out+a.stderr), " ")
	for _, want := range s.out {
		if !strings.Contains(said, want) {
			t.Errorf("bootlab %s: lacks %q:\n%s%s", s.args, want, a.out, a.stderr)
		}
	}
	for _, not := range s.not {
		if strings.Contains(said, not) {
			t.Errorf("bootlab %s: holds %q:\n%s%s", s.args, not, a.out, a.stderr)
		}
	}
	if s.json {
		isJSON(t, s.args, a.out)
	}
}

// TestDetailed: an error that is problems alone says how many they are, where the first line would be empty.
func TestDetailed(t *testing.T) {
	t.Parallel()
	problems := lab.Problems{{Message: "one"}, {Message: "two"}}
	for want, err := range map[string]error{"2 errors:\none\ntwo": problems, "reload: \none\ntwo": fmt.Errorf("reload: %w", problems), "plain": errors.New("plain")} {
		if got := detailed(err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
