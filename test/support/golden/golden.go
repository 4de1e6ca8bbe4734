package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Check fails the test unless the file holds exactly got. Where *update is set it writes the file, and its folder, instead.
func Check(t testing.TB, update *bool, file, got string) {
	t.Helper()
	if *update {
		write(t, file, got)
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs; if that is right, -update rewrites it (-want +got):\n%s", file, diff)
	}
}

// CheckBetween is Check for the part of a file between two marks, each of which it holds once: a table in a page that people write.
func CheckBetween(t testing.TB, update *bool, file, begin, end, got string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal(file + " has lost the marks " + begin + " and " + end)
	}
	Check(t, update, file, before+begin+got+end+after)
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
