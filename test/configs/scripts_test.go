package configs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// engineEnd is what Go's fuzzing engine prints when its time is over while a worker is busy.
const engineEnd = `fuzz: elapsed: 30s, execs: 1200345 (39211/sec), new interesting: 3 (total: 120)
--- FAIL: FuzzThing (30.09s)
    context deadline exceeded
FAIL
exit status 1
FAIL	example.com/thing	30.102s
`

// finding is what it prints for an input that fails; with it the engine may report its deadline too.
const finding = `fuzz: elapsed: 3s, execs: 345 (39211/sec), new interesting: 3 (total: 120)
--- FAIL: FuzzThing (3.09s)
    --- FAIL: FuzzThing (0.00s)
        thing_test.go:12: lost a byte

    Failing input written to testdata/fuzz/FuzzThing/771e938e4458e983
    To re-run:
    go test -run=FuzzThing/771e938e4458e983
    context deadline exceeded
FAIL
`

// TestFuzzScript: the end of the engine's own time is no failure; everything else that fails is one, and the targets after it
// still run.
func TestFuzzScript(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("../fuzz.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, output string
		rc           string
		fails        bool
	}{
		{"all is well", "ok\n", "0", false},
		{"the engine's time was over", engineEnd, "1", false},
		{"a finding, and the time was over", finding, "1", true},
		{"a seed fails", "--- FAIL: FuzzThing (0.00s)\n    --- FAIL: FuzzThing/seed#1 (0.00s)\n        context deadline exceeded\nFAIL\n", "1", true},
		{"it does not build", "# example.com/thing\n./thing_test.go:1:1: expected 'package'\nFAIL\texample.com/thing [build failed]\n", "1", true},
		{"a worker was killed", "--- FAIL: FuzzThing (9.00s)\n    fuzzing process hung or terminated unexpectedly: signal: killed\nFAIL\n", "1", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range map[string]string{
				"thing/thing_test.go": "package thing\n\nfunc FuzzThing(f *testing.F) {}\nfunc FuzzOther(f *testing.F) {}\n",
				"output":              tt.output,
				// In place of the engine, whose deadline nothing can provoke: only the first target ends so.
				"bin/go": "#!/bin/sh\ncase \"$*\" in *FuzzThing*) cat " + dir + "/output; exit " + tt.rc + ";; esac\necho other ran\n",
			} {
				name = filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("sh", "-c", `git init -q . && git add thing && exec "$0"`, script)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+dir+"/bin:"+os.Getenv("PATH"), "FUZZTIME=1s")
			out, err := cmd.CombinedOutput()
			if (err != nil) != tt.fails || !strings.Contains(string(out), "other ran") {
				t.Errorf("%v, want a failure: %v\n%s", err, tt.fails, out)
			}
		})
	}
}

// TestVulncheckScript: only that the database cannot be reached is no failure.
func TestVulncheckScript(t *testing.T) {
	t.Parallel()
	const unreachable = `govulncheck: fetching vulnerabilities: Get "https://vuln.go.dev/index/modules.json.gz": dial tcp: lookup vuln.go.dev: no such host`
	for _, tt := range []struct {
		name, output, rc, require string
		fails                     bool
		says                      string
	}{
		{"none", "No vulnerabilities found.", "0", "", false, "No vulnerabilities found."},
		{"one", "Vulnerability #1: GO-2026-0001", "3", "", true, "GO-2026-0001"},
		{"no database", unreachable, "1", "", false, "skipped: the database of vulnerabilities cannot be reached: govulncheck: fetching"},
		{"no database, and it is required", unreachable, "1", "vulndb", true, "no such host"},
		{"it does not build", "govulncheck: loading packages: there are errors", "1", "", true, "loading packages"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tool := filepath.Join(t.TempDir(), "govulncheck")
			if err := os.WriteFile(tool, []byte("#!/bin/sh\necho '"+tt.output+"' >&2\nexit "+tt.rc+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("../vulncheck.sh", tool, "./...")
			cmd.Env = append(os.Environ(), "BOOTLAB_REQUIRE="+tt.require)
			out, err := cmd.CombinedOutput()
			if (err != nil) != tt.fails || !strings.Contains(string(out), tt.says) {
				t.Errorf("%v, want a failure: %v, and %q\n%s", err, tt.fails, tt.says, out)
			}
		})
	}
}

// TestVulncheckProbe: govulncheck is not built where its database cannot be reached, unless one is required or named.
func TestVulncheckProbe(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, curl, db, require string
		skips                   bool
		says                    string
	}{
		{"reachable", "exit 0", "", "", false, ""},
		{"not reachable", "echo curl: no such host >&2; exit 6", "", "", true, "skipped: the database of vulnerabilities cannot be reached: curl: no such host\n"},
		{"not reachable, and it is required", "exit 6", "", "vulndb", false, ""},
		{"a copy", "exit 6", "file:///copy", "", false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bin := t.TempDir()
			if err := os.WriteFile(filepath.Join(bin, "curl"), []byte("#!/bin/sh\n"+tt.curl+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("../vulncheck.sh", "probe")
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GOVULNDB="+tt.db, "BOOTLAB_REQUIRE="+tt.require)
			out, err := cmd.CombinedOutput()
			if (err != nil) != tt.skips || !strings.HasSuffix(string(out), tt.says) || tt.says == "" && len(out) > 0 {
				t.Errorf("%v, want it skipped: %v, and %q\n%s", err, tt.skips, tt.says, out)
			}
		})
	}
}
