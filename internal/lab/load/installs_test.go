package load

import (
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

// TestWhichSystemsInstall: a profile whose recipe installs arms its hosts. One that was forgotten would be a live system, without protection
// against a second installation: each operating system is in this table.
func TestWhichSystemsInstall(t *testing.T) {
	t.Parallel()
	const always, toDisk, withConfig = "always", "with install_to", "with config"
	when := map[lab.OS]string{
		lab.OSCoreOS: toDisk, lab.OSFlatcar: toDisk, lab.OSCloudInit: toDisk, lab.OSDiscover: toDisk, // which the loader refuses there
		lab.OSWindows:        withConfig,
		lab.OSOpenShiftAgent: always, lab.OSTalos: always, lab.OSAnaconda: always, lab.OSDebian: always, lab.OSUbuntu: always, lab.OSAutoYaST: always, lab.OSAgama: always,
		lab.OSHarvester: always, lab.OSKairos: always, lab.OSESXi: always, lab.OSProxmox: always,
	}
	for _, os := range lab.OSes() {
		want := when[os]
		if want == "" {
			t.Errorf("%s is not in this table: say when its recipe installs", os)
		}
		for _, p := range []struct {
			profile  lab.Profile
			installs bool
		}{
			{lab.Profile{OS: os, Kernel: "k"}, want == always},
			{lab.Profile{OS: os, Kernel: "k", Config: "c"}, want == always || want == withConfig},
			{lab.Profile{OS: os, Kernel: "k", InstallTo: "/dev/vda"}, true},
			{lab.Profile{OS: os, Image: "disk.qcow2"}, false}, // nothing boots from the network
		} {
			if got := defaultInstall(&p.profile) == lab.InstallOnce; got != p.installs {
				t.Errorf("%s, kernel %q, config %q, install_to %q: installs %v, want %v", os, p.profile.Kernel, p.profile.Config, p.profile.InstallTo, got, p.installs)
			}
		}
	}
}
