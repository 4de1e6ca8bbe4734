package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// waits is appended to a package of the standard library: unlucky(n, most) waits once in n calls, for up to most nanoseconds. In a
// bubble of synctest it does not: time stands still there while a goroutine holds a lock.
const waits = `
//go:linkname unluckySleep time.Sleep
func unluckySleep(ns int64)

//go:linkname unluckyRand runtime.rand
func unluckyRand() uint64

func unlucky(n, most uint64) {
	r := unluckyRand()
	if r%n == 0 && !unluckyBubble.IsInBubble() {
		unluckySleep(int64((r >> 32) % most))
	}
}
`

// An edit is one place of the standard library. All of old must be there.
type edit struct{ file, old, new string }

func edits() []edit {
	return []edit{
		{"sync/mutex.go", "import (\n", "import (\n\tunluckyBubble \"internal/synctest\"\n\t_ \"unsafe\"\n"},
		// Most waits are short, for others to come between; some are long, for others to get far.
		{"sync/mutex.go", "\tm.mu.Unlock()\n", "\tm.mu.Unlock()\n\tunlucky(32, 1e6)\n\tunlucky(512, 16e6)\n"},
		{"sync/mutex.go", "", waits},
		{"sync/pool.go", "allPoolsMu.Unlock()", "allPoolsMu.mu.Unlock()"}, // called where a goroutine must not sleep
		{"os/file.go", "import (\n", "import (\n\tunluckyBubble \"internal/synctest\"\n"},
		{"os/file.go", "\treturn rename(oldpath, newpath)\n", "\tdefer unlucky(16, 16e6)\n\treturn rename(oldpath, newpath)\n"},
		{"os/file.go", "func (f *File) Write(b []byte) (n int, err error) {\n", "func (f *File) Write(b []byte) (n int, err error) {\n\tdefer unlucky(16, 16e6)\n"},
		{"os/file.go", "", waits},
	}
}

// writeOverlay writes the edited files into dir, and what go build's -overlay wants, whose path it returns.
func writeOverlay(dir string) (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("ask for GOROOT: %w", err)
	}
	texts, replace := map[string]string{}, map[string]string{}
	for _, e := range edits() {
		path := filepath.Join(strings.TrimSpace(string(root)), "src", e.file)
		if texts[path], err = e.apply(path, texts[path]); err != nil {
			return "", err
		}
		replace[path] = filepath.Join(dir, strings.ReplaceAll(e.file, "/", "_"))
	}
	for path, text := range texts {
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}

// apply edits text, which is read from path where it is empty.
func (e edit) apply(path, text string) (string, error) {
	if text == "" {
		b, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		text = string(b)
	}
	if e.old == "" {
		return text + e.new, nil
	}
	if !strings.Contains(text, e.old) {
		return "", fmt.Errorf("%s of this Go has no %q any more: mend the edits", e.file, e.old)
	}
	return strings.ReplaceAll(text, e.old, e.new), nil
}
