package importer_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab/importer"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/test/support/golden"
)

// volumes are those of the examples' disks.
var volumes = map[string]importer.Volume{
	"/var/lib/libvirt/images/db_1.qcow2":  {Pool: "default", Name: "db_1.qcow2", Format: "qcow2", Size: 40 << 30},
	"/var/lib/libvirt/images/old.vmdk":    {Pool: "default", Name: "old.vmdk", Format: "vmdk", Size: 20 << 30},
	"/var/lib/libvirt/images/web-1.qcow2": {Pool: "default", Name: "web-1.qcow2", Format: "qcow2", Size: 40 << 30},
	"/home/admin/scratch.img":             {Missing: true},
	"/dev/vg0/arm":                        {Pool: "vg0", Name: "arm", Size: 8 << 30},
	"fast/db_1-data":                      {Pool: "fast", Name: "db_1-data", Format: "raw", Size: 100 << 30},
}

// machinesIn returns the definitions in a folder.
func machinesIn(t testing.TB, dir, uri string) *importer.Machines {
	t.Helper()
	files, err := filepath.Glob(dir + "/*.xml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples in %s: %v", dir, err)
	}
	m := &importer.Machines{URI: uri, Volumes: volumes}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(text), "<network") {
			m.Networks = append(m.Networks, string(text))
		} else {
			m.Domains = append(m.Domains, importer.Domain{Name: strings.TrimSuffix(filepath.Base(f), ".xml"), XML: string(text)})
		}
	}
	return m
}

// TestMachines imports the same domains from this machine, whose bridge br0 has an address, and from another.
func TestMachines(t *testing.T) {
	t.Parallel()
	for name, uri := range map[string]string{"local": "qemu:///system", "remote": "qemu+ssh://root@kvm1.lab.example/system"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := importer.Options{Check: check, Subnet: func(name string) netip.Prefix {
				if name == "br0" {
					return netip.MustParsePrefix("10.47.6.1/24")
				}
				return netip.Prefix{}
			}}
			r, err := importer.ImportMachines(machinesIn(t, "testdata/libvirt/kvm1", uri), o)
			if err != nil {
				t.Fatal(err)
			}
			text := string(r.Lab) + "--- notes\n"
			for _, n := range r.Notes {
				text += n.String() + "\n"
			}
			golden.Check(t, update, "testdata/libvirt/"+name+".golden", text)
		})
	}
}

// FuzzMachines holds that any definition is refused, or becomes a lab that loads.
func FuzzMachines(f *testing.F) {
	m := machinesIn(f, "testdata/libvirt/kvm1", "qemu:///system")
	for _, d := range m.Domains {
		f.Add(d.Name, d.XML, m.Networks[0])
	}
	o := importer.Options{Check: check}
	f.Fuzz(func(t *testing.T, name, domain, network string) {
		in := &importer.Machines{URI: m.URI, Networks: []string{network}, Volumes: volumes, Domains: []importer.Domain{
			{Name: name, XML: domain}, {Name: name + "b", XML: domain},
		}}
		r, err := importer.ImportMachines(in, o)
		if err != nil {
			if strings.Contains(err.Error(), "imported") {
				t.Fatal(err)
			}
			return
		}
		if _, err := load.Parse("lab.yaml", r.Lab, load.Options{}); err != nil {
			t.Fatalf("%v\n%s", err, r.Lab)
		}
	})
}
