package configs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

// instructions returns those of the Dockerfile, with continued lines joined and comments left out.
func instructions(t *testing.T) (all [][]string) {
	t.Helper()
	b, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	joined := ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		joined += " " + strings.TrimSuffix(line, "\\")
		if !strings.HasSuffix(line, "\\") {
			all = append(all, strings.Fields(joined))
			joined = ""
		}
	}
	return all
}

// TestDockerfile stands in for an image build where there is no engine: instructions that exist, files that exist, shell
// that parses, Debian packages that exist.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	known := []string{"FROM", "WORKDIR", "COPY", "RUN", "ARG", "VOLUME", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "USER", "ENTRYPOINT", "CMD"}
	stages := 0
	for _, in := range instructions(t) {
		rest := strings.Join(in[1:], " ")
		switch {
		case !slices.Contains(known, in[0]):
			t.Errorf("unknown instruction %s", in[0])
		case in[0] == "FROM":
			stages++
		case in[0] == "RUN":
			if out, err := exec.Command("sh", "-n", "-c", withoutMounts(rest)).CombinedOutput(); err != nil {
				t.Errorf("RUN %s: %v\n%s", rest, err, out)
			}
			checkPackages(t, rest)
		case in[0] == "USER" && !strings.Contains(joinedRuns(t), "--uid "+rest+" "):
			t.Errorf("USER %s: no RUN makes this user", rest)
		case in[0] == "COPY" && !strings.HasPrefix(in[1], "--from"):
			for _, file := range in[1 : len(in)-1] {
				if _, err := os.Stat(filepath.Join("../..", file)); err != nil {
					t.Errorf("COPY %s: %v", rest, err)
				}
			}
		}
	}
	all := instructions(t)
	user := slices.IndexFunc(all, func(in []string) bool { return in[0] == "USER" })
	if user < 0 || strings.HasPrefix(all[user][1], "0") || slices.ContainsFunc(all[user:], func(in []string) bool { return in[0] == "RUN" }) {
		t.Error("the container runs as root, or a RUN comes after its user")
	}
	if stages != 2 {
		t.Errorf("%d stages, want 2", stages)
	}
}

func checkPackages(t *testing.T, shell string) {
	t.Helper()
	_, list, ok := strings.Cut(shell, "apt-get install --yes --no-install-recommends ")
	if !ok {
		return
	}
	netns.Need(t, "apt-cache")
	list, _, _ = strings.Cut(list, "&&")
	for _, p := range strings.Fields(list) {
		if out, err := exec.Command("apt-cache", "show", "--no-all-versions", p).CombinedOutput(); err != nil {
			t.Errorf("package %s: %s", p, out)
		}
	}
}

// joinedRuns returns what all RUN instructions run.
func joinedRuns(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, in := range instructions(t) {
		if in[0] == "RUN" {
			b.WriteString(strings.Join(in[1:], " ") + "\n")
		}
	}
	return b.String()
}

// withoutMounts returns the shell of a RUN without the flags of the instruction itself.
func withoutMounts(run string) string {
	for strings.HasPrefix(run, "--mount=") {
		_, run, _ = strings.Cut(run, " ")
	}
	return run
}
