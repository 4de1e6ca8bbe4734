package load_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/test/support/golden"
)

const wantMark = "# want: "

// TestInvalid loads every testdata/invalid-*.yaml and compares the problems with the "# want: " lines at its end.
func TestInvalid(t *testing.T) {
	names, err := filepath.Glob("testdata/invalid-*.yaml")
	if err != nil || len(names) < 30 {
		t.Fatalf("invalid labs: %d, %v", len(names), err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			body, _, _ := strings.Cut(string(data), wantMark)
			_, err = load.Parse(filepath.Base(name), []byte(body), load.Options{FileExists: noFiles})
			var problems lab.Problems
			if !errors.As(err, &problems) {
				t.Fatalf("error %v, want Problems", err)
			}
			got := wantMark + strings.ReplaceAll(err.Error(), "\n", "\n"+wantMark) + "\n"
			golden.Check(t, update, name, body+got)
		})
	}
}
