package recipe_test

import (
	"testing"
	"testing/fstest"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
)

// TestSignals: a document that calls back is the only signal; else the operating system has signals of its own.
func TestSignals(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"calls.cfg": {Data: []byte("%post\ncurl {{.DoneURL}}\n%end\n")},
		"mute.cfg":  {Data: []byte("reboot\n")},
	}
	for _, tt := range []struct {
		name    string
		profile lab.Profile
		want    string
	}{
		{"kickstart that calls", lab.Profile{OS: lab.OSAnaconda, Config: "calls.cfg"}, "callback"},
		{"kickstart that does not", lab.Profile{OS: lab.OSAnaconda, Config: "mute.cfg"}, "next boot"},
		{"document to come", lab.Profile{OS: lab.OSAnaconda, Config: "later.cfg"}, "next boot"},
		{"preseed that does not", lab.Profile{OS: lab.OSDebian, Config: "mute.cfg"}, "next boot or system lease"},
		{"Talos cannot", lab.Profile{OS: lab.OSTalos, Config: "mute.cfg"}, "next boot or system lease"},
		{"argument that says where", lab.Profile{Args: []string{"done={{ .DoneURL }}"}}, "callback"},
		{"script that says where", lab.Profile{IPXE: "calls.cfg"}, "callback"},
		{"CoreOS, which the recipe makes call", lab.Profile{OS: lab.OSCoreOS, Config: "mute.cfg", InstallTo: "/dev/vda"}, "callback"},
		{"Windows calls after it was on its disk", lab.Profile{OS: lab.OSWindows, Config: "calls.cfg"}, "callback or next boot"},
		{"no document", lab.Profile{OS: lab.OSOpenShiftAgent}, "next boot"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, d := compile(t, &tt.profile, files)
			if got := r.Signals(d).String(); got != tt.want {
				t.Errorf("done by %s, want %s", got, tt.want)
			}
		})
	}
	if got := install.Signals(0).String(); got != "by hand" {
		t.Errorf("no signals are %q", got)
	}
}
