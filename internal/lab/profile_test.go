package lab_test

import (
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

func TestMakesDisk(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		profile lab.Profile
		want    bool
	}{
		{"an image alone", lab.Profile{Image: "i"}, true},
		{"an image for an installer", lab.Profile{Image: "i", Kernel: "k"}, false},
		{"an image for a script", lab.Profile{Image: "i", IPXE: "s"}, false},
		{"a kernel", lab.Profile{Kernel: "k"}, false},
	} {
		if got := c.profile.MakesDisk(); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}

func TestPathForRole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text, want string
		ok               bool
	}{
		{"no template", "images/vmlinuz", "images/vmlinuz", true},
		{"the role", "ignition/{{.Host.Role}}.ign", "ignition/worker.ign", true},
		{"with spaces", "{{ .Host.Role}}/{{.Host.Role -}}  .ign", "worker/worker.ign", true},
		{"the name, too", "{{.Host.Role}}/{{.Host.Name}}.ign", "", false},
		{"a condition", "{{if .Host.Role}}a{{end}}.ign", "", false},
		{"no template at all", "{{", "", false},
	} {
		got, ok := lab.ProfilePath{Key: "config", Text: c.text}.ForRole("worker")
		if got != c.want || ok != c.ok {
			t.Errorf("%s: %q, %t; want %q, %t", c.name, got, ok, c.want, c.ok)
		}
	}
}
