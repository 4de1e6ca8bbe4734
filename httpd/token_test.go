package httpd_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/bootlab/bootlab/httpd"
)

// TestLoadToken makes a token once, for its owner alone, whoever is first.
func TestLoadToken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	tokens := make([]string, 8)
	var wg sync.WaitGroup
	for i := range tokens {
		wg.Go(func() {
			var err error
			if tokens[i], err = httpd.LoadToken(path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, token := range tokens {
		if token != tokens[0] || len(token) < 40 {
			t.Fatalf("tokens %q", tokens)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".token-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestLoadTokenRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		content string
		mode    os.FileMode
		want    string // in the error; empty: accepted
	}{
		{"of its group", strings.Repeat("x", 20) + "\n", 0o640, ""},
		{"open to all", strings.Repeat("x", 20), 0o644, "anybody may read or change it (mode 0644)"},
		{"empty", "", 0o600, "0 characters are too few, want 16: delete the file and a new one is made"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "token")
			write(t, path, []byte(tt.content))
			if err := os.Chmod(path, tt.mode); err != nil {
				t.Fatal(err)
			}
			_, err := httpd.LoadToken(path)
			if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := httpd.LoadToken("/proc/nowhere/token"); err == nil || !strings.HasPrefix(err.Error(), "make token /proc/nowhere/token: ") {
		t.Errorf("error %v", err)
	}
}
