package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestMakeVersion: what make build makes prints version, commit and the commit's date, and "unknown" where there is no git.
func TestMakeVersion(t *testing.T) {
	t.Parallel()
	netns.Need(t, "make", "git")
	for _, tc := range []struct{ name, gitDir, want string }{
		{"clone", "", `^bootlab \S+ \(commit [0-9a-f]{12}, \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\)\n$`},
		{"without git", "/nonexistent", `^bootlab unknown\n$`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := os.Environ()
			if tc.gitDir != "" {
				env = append(env, "GIT_DIR="+tc.gitDir)
			} else if err := exec.Command("git", "-C", "../..", "rev-parse", "HEAD").Run(); err != nil {
				t.Skip("this tree is no git clone")
			}
			command := func(dir, name string, args ...string) string {
				cmd := exec.CommandContext(t.Context(), name, args...)
				cmd.Dir, cmd.Env = dir, env
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("%s %s: %v", name, args, err)
				}
				return string(out)
			}
			bin := filepath.Join(t.TempDir(), "bootlab")
			build := command("../..", "make", "--dry-run", "--no-print-directory", "--assume-old=toolchain", "--assume-old=assets", "build")
			command("../..", "sh", "-c", strings.Replace(build, "-o bin/bootlab", "-o "+bin, 1))
			if got := command("", bin, "--version"); !regexp.MustCompile(tc.want).MatchString(got) {
				t.Errorf("--version prints %q, want %s; built by %s", got, tc.want, build)
			}
		})
	}
}
