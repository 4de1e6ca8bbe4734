package files

import (
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

func TestDistinct(t *testing.T) {
	t.Parallel()
	hosts := []*lab.Host{{Name: "a", Role: "worker"}, {Name: "b", Role: "worker"}, {Name: "c", Role: "control-plane"}}
	for text, want := range map[string]int{
		"plain.ign":                         2, // one of each role is enough, and cheap
		"{{.Host.Role}}.ign":                2,
		"{{.Host.Role}}-{{.Host.Name}}":     3,
		"{{ .Host.Role }}.ign":              3, // not understood: every host
		"{{with .Host}}{{.Name}}{{end}}":    3,
		"{{if eq .Host.Role \"x\"}}{{end}}": 3,
	} {
		if got := len(distinct(hosts, text)); got != want {
			t.Errorf("%s: %d hosts, want %d", text, got, want)
		}
	}
}
