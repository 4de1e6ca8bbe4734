package load_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// TestLimits feeds what is meant to hurt: it must be refused with a place, and soon.
func TestLimits(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 1<<20)
	tests := []struct{ name, text, want string }{
		{"deep flow", "a: " + deep, "not YAML"},
		{"deep block", "a:\n" + blocks(20000), "not YAML"},
		{"deep vars", head + "hosts: {a: {ip6: 'fd00::1', vars: {x: " + deep[:200] + strings.Repeat("]", 200) + "}}}", "deeper than 100 levels"},
		{"large", strings.Repeat("#", 64<<20+1), "larger than 64 MiB"},
		{"binary", "\x00\x01\x02", "not YAML"},
		{"not UTF-8", "a: \xff\xfe", "not YAML"},
		{"long key", head + strings.Repeat("k", 5000) + ": 1\n", "unknown key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := load.Parse("lab.yaml", []byte(tt.text), load.Options{})
			var problems lab.Problems
			if !errors.As(err, &problems) || !strings.Contains(err.Error(), tt.want) || problems[0].Pos.Line < 1 {
				t.Errorf("error %.200v, want %q with a place", err, tt.want)
			}
		})
	}
}

// blocks nests n lists, one in a line.
func blocks(n int) string {
	var b strings.Builder
	for range n {
		b.WriteString("- ")
	}
	return b.String()
}
