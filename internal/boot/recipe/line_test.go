package recipe_test

import (
	"testing"

	"github.com/bootlab/bootlab/internal/boot/recipe"
)

// TestPlainLines: lines that are rendered without text/template are what it makes of them.
func TestPlainLines(t *testing.T) {
	t.Parallel()
	d := recipe.Data{
		Host:    recipe.HostData{Name: "worker-0", FQDN: "worker-0.lab.test", Role: "worker", Vars: map[string]any{"disk": "/dev/vda"}},
		Profile: recipe.ProfileData{Name: "rhcos"}, ConfigURL: "http://a/config", DoneURL: "http://a/done",
	}
	for line, want := range map[string]bool{
		"console=ttyS0":                     true,
		"{{.Host.Role}}.ign":                true,
		"a{{.Host.Name}}b{{.Host.FQDN}}c":   true,
		"x={{- .Profile.Name -}} ":          true,
		"{{.ConfigURL}}?{{.DoneURL}}":       true,
		"{{.Host.Vars.disk}}":               false,
		"{{.Host.Vars.missing}}":            false,
		"{{.Host.IP}}":                      false, // not set: an error
		"{{.Cluster.Name}}":                 false, // of no cluster: an error
		"{{.Host.Role | printf \"%q\"}}":    false,
		"{{$n := .Host.Name}}{{$n}}":        false,
		"{{if .Host.Role}}yes{{end}}":       false,
		"{{.Host.Name}}{{.Host.Vars.disk}}": false,
	} {
		fast, slow, plain, err := recipe.BothWays(line, d)
		if err != nil || fast != slow || plain != want {
			t.Errorf("%q: %q, by text/template %q, plain %v, %v; want the same, plain %v", line, fast, slow, plain, err, want)
		}
	}
}
