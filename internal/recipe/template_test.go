package recipe_test

import (
	"testing"

	"bootlab/internal/recipe"
)

// TestQuickLines: lines that are rendered without text/template are what it makes of them.
func TestQuickLines(t *testing.T) {
	t.Parallel()
	d := recipe.Data{
		Host:    recipe.HostData{Name: "worker-0", FQDN: "worker-0.lab.test", Role: "worker", Vars: map[string]any{"disk": "/dev/vda"}},
		Profile: recipe.ProfileData{Name: "rhcos"},
	}
	for line, quick := range map[string]bool{
		"":                                  true,
		"console=ttyS0":                     true,
		"{{.Host.Role}}.ign":                true,
		"a{{.Host.Name}}b{{.Host.FQDN}}c":   true,
		"x={{- .Profile.Name -}} ":          true,
		"{{.Host.Vars.disk}}":               false,
		"{{.Host.Vars.missing}}":            false,
		"{{.Host.IP}}":                      false, // not set: an error
		"{{.Cluster.Name}}":                 false, // of no cluster: an error
		"{{.Host.Role | printf \"%q\"}}":    false,
		"{{$n := .Host.Name}}{{$n}}":        false,
		"{{if .Host.Role}}yes{{end}}":       false,
		"{{.Host.Name}}{{.Host.Vars.disk}}": false,
	} {
		fast, slow, wasQuick, err := recipe.BothWays(line, d)
		if err != nil || fast != slow || wasQuick != quick {
			t.Errorf("%q: %q, by text/template %q, quick %v, %v; want the same, quick %v", line, fast, slow, wasQuick, err, quick)
		}
	}
}
