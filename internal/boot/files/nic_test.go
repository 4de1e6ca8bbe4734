package files_test

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/bootlab/bootlab/internal/boot/files"
	"github.com/bootlab/bootlab/internal/lab"
)

// TestEveryNIC checks that a path is rendered for the NIC that boots, as the boot script is: a machine may boot from any of
// its NICs. No document is served raw, wherever it is and however its name is written.
func TestEveryNIC(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second := lab.MAC{0x52, 0x54, 0, 0, 0, 0x10}, lab.MAC{0x52, 0x54, 0, 0, 0, 0x11}
	write(t, dir, "public/motd",
		"public/"+first.Hyphens()+".ign", "public/"+second.Hyphens()+".ign", "public/52-54-00-00-00-99.ign", "public/rack1/unattend.xml",
		"public/UPPER.ign", "public/if-worker.cfg", "kernels/"+first.Hyphens(), "kernels/"+second.Hyphens(), "kernels/other")
	for name, target := range map[string]string{
		"public/link": second.Hyphens() + ".ign", "public/folder": ".", "public/chain": "link", "kernels/" + "linked": "../public/" + second.Hyphens() + ".ign",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	mac := lab.Profile{Name: "mac", Kernel: "kernels/{{.Host.MAC.Hyphens}}", Initrd: []string{"kernels/linked"}, Config: "public//{{.Host.MAC.Hyphens}}.ign",
		Documents: []string{"./public/{{.Host.Vars.rack}}/unattend.xml", "public/x/../upper.ign", "public/{{if .Host.Role}}if-{{.Host.Role}}{{else}}none{{end}}.cfg"}}
	n := &lab.Network{Name: "lan", Subnet: netip.MustParsePrefix("10.0.0.0/24")}
	l := &lab.Lab{Appliance: lab.Appliance{Files: dir}, Networks: []*lab.Network{n}, Profiles: []*lab.Profile{&mac}, Hosts: []*lab.Host{
		{Name: "two-nics", Role: "worker", Network: n, Profile: &mac, MACs: []lab.MAC{first, second}, Vars: map[string]any{"rack": "rack1"}},
	}}
	allowed, err := files.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{
		"public/motd":                nil,
		"kernels/" + first.Hyphens(): nil, "kernels/" + second.Hyphens(): nil,
		"kernels/other":                      fs.ErrPermission,
		"kernels/linked":                     fs.ErrPermission,
		"public/" + first.Hyphens() + ".ign": fs.ErrPermission, "public/" + second.Hyphens() + ".ign": fs.ErrPermission,
		"PUBLIC/" + second.Hyphens() + ".IGN": fs.ErrPermission,
		"public/52-54-00-00-00-99.ign":        fs.ErrPermission, // the document of a host that left the lab, or is not in it yet
		"public/rack1/unattend.xml":           fs.ErrPermission,
		"public/UPPER.ign":                    fs.ErrPermission,
		"public/if-worker.cfg":                fs.ErrPermission,
		"public/link":                         fs.ErrPermission, "public/chain": fs.ErrPermission,
		"public/folder/" + second.Hyphens() + ".ign": fs.ErrPermission, "public/folder/link": fs.ErrPermission,
	} {
		for _, spelling := range []string{name, allowed.Fold(name)} {
			f, err := allowed.Open(spelling)
			if err == nil {
				f.Close()
			}
			if !errors.Is(err, want) {
				t.Errorf("Open(%q) = %v, want %v", spelling, err, want)
			}
		}
	}
}
