package lbproxy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	labfile "github.com/bootlab/bootlab/internal/lab/load"
)

// TestDocsExample loads the example of docs/balancer.md as it stands there.
func TestDocsExample(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "docs", "balancer.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```yaml\n")
	example, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("docs/balancer.md holds no example")
	}
	file := filepath.Join(t.TempDir(), "lab.yaml")
	if err := os.WriteFile(file, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := labfile.Lab(file, labfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	table := Compile(l)
	if len(table.Frontends) != 2 || len(table.listeners) != 1 {
		t.Errorf("%d balancers on %d addresses, want 2 on 1", len(table.Frontends), len(table.listeners))
	}
	if f := table.listeners[0].byName("api.west.example.com"); f == nil || f.Name != "west-api" {
		t.Errorf("api.west.example.com goes to %+v, want west-api", f)
	}
}
