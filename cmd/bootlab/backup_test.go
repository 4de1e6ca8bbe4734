package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/store/backup"
)

// readBackup reads a backup that must be whole.
func readBackup(t *testing.T, path string) *backup.Backup {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := backup.Read(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return b
}

// value returns the value of a key, "" for none.
func value(b *backup.Backup, key string) string {
	for _, e := range b.Entries {
		if e.Key == key {
			return string(e.Value)
		}
	}
	return ""
}

// TestBackup saves the state of a running daemon to a file and to standard output.
func TestBackup(t *testing.T) {
	h := serve(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "lab.backup")
	h.steps(
		step{args: "install a --done"},
		step{args: "backend weight web a 5"},
		step{args: "backup " + file, out: []string{"saved " + file + ": lab cli, ", "0 leases, 1 install state,", "0 drained backends, 1 backend set at run time,", "0 hardware reports of unknown machines,"}},
		step{args: "backup --verify " + file, out: []string{file + " is whole: lab cli, "}},
		step{args: "backup --json --verify " + file, json: true, out: []string{`"lab": "cli"`, `"install": 1`, `"bytes"`}},
	)
	first := readBackup(t, file)
	if !strings.Contains(value(first, "install/a"), `"installed"`) {
		t.Errorf("it lacks the install state of a: %+v", first.Kinds)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}

	// A second one replaces the first, through a link too.
	link := filepath.Join(dir, "latest")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	a := h.run("backup", link, "--json")
	var result struct {
		File, SHA256 string
		Kinds        map[string]int
	}
	if err := json.Unmarshal([]byte(a.out), &result); err != nil || result.File != file || result.SHA256 != readBackup(t, file).SHA256 {
		t.Errorf("%v %+v", err, result)
	}
	if got, err := os.Readlink(link); err != nil || got != file {
		t.Errorf("the link is %s, %v", got, err)
	}

	// To standard output, where nothing else is written.
	verify := bootlab(t.Context(), "backup", "--verify", "-", "--json")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]bool{len(whole): true, len(whole) - 20: false} {
		cmd := *verify
		cmd.Stdin = bytes.NewReader(whole[:n])
		out, err := cmd.CombinedOutput()
		if (err == nil) != want || !strings.Contains(string(out), "standard input") || want && !strings.Contains(string(out), fmt.Sprintf(`"bytes": %d`, n)) {
			t.Errorf("verify %d bytes of %d from standard input: %v %s", n, len(whole), err, out)
		}
	}
	a = h.run("backup", "-")
	if _, err := backup.Read(strings.NewReader(a.out)); err != nil || !strings.Contains(a.stderr, "saved lab cli") {
		t.Errorf("%v, stderr %q", err, a.stderr)
	}

	h.steps(
		step{args: "backup " + dir, err: dir + " is a folder: name a file in it"},
		step{args: "backup /dev/null", err: "/dev/null is not a regular file"},
		step{args: "backup " + dir + "/nowhere/x", err: "the folder of the backup: stat " + dir + "/nowhere: no such file or directory"},
		step{args: "backup", err: "usage: bootlab backup FILE"},
	)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// TestBackupFails: a backup that cannot be made leaves the one before as it was, and the exit code is 1.
func TestBackupFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "lab.backup")
	if err := os.WriteFile(file, []byte("the one before"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := run(t.Context(), "backup", file, "--server", filepath.Join(dir, "none.sock"))
	step{args: "backup", err: "no bootlab daemon answers"}.check(t, a)
	if b, err := os.ReadFile(file); err != nil || string(b) != "the one before" {
		t.Errorf("%q, %v", b, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	a = run(t.Context(), "backup", "--verify", file)
	step{args: "backup --verify", err: file + ": it is not a bootlab backup"}.check(t, a)
}
