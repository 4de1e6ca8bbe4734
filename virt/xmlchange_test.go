//go:build cgo && libvirt_dlopen

package virt_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/virt"
)

// withChanges gives a machine changes of its domain XML, each in a line of its own.
func withChanges(changes ...lab.XMLChange) func(*lab.Host) {
	return func(h *lab.Host) {
		for i := range changes {
			changes[i].Pos = lab.Pos{File: "lab.yaml", Line: 10 + i, Column: 5}
		}
		h.VM.XML = changes
	}
}

func TestXMLChangeErrors(t *testing.T) {
	t.Parallel()
	const keeps = ": the lab file sets that elsewhere, and bootlab knows its machines by it"
	tests := []struct {
		name   string
		change lab.XMLChange
		want   string
	}{
		{"no element", lab.XMLChange{At: "devices/sound", Remove: true}, `at "devices/sound": the domain has no such element: bootlab plan HOST shows it`},
		{"no path", lab.XMLChange{At: "devices[", Remove: true}, `at "devices[": not a path: etree: path has invalid filter [brackets].`},
		{"no XML", lab.XMLChange{At: "devices", Add: "<sound"}, `at "devices": add is not XML: XML syntax error on line 1: expected attribute name in element`},
		{"text", lab.XMLChange{At: "devices", Add: "sound"}, `at "devices": add is not XML: want one element or several`},
		{"two roots", lab.XMLChange{At: "devices", Add: "</add><add>"}, `at "devices": add is not XML: etree: invalid XML format`},
		{"name", lab.XMLChange{At: "name", Remove: true}, `at "name": it changes <name>` + keeps},
		{"second name", lab.XMLChange{At: ".", Add: "<name>other</name>"}, `at ".": it changes <name>` + keeps},
		{"uuid", lab.XMLChange{At: "//uuid", Remove: true}, `at "//uuid": it changes <uuid>` + keeps},
		{"metadata", lab.XMLChange{At: "metadata/*", Set: map[string]string{"lab": "other"}}, `at "metadata/*": it changes <metadata>` + keeps},
		{"memory", lab.XMLChange{At: "memory", Set: map[string]string{"unit": "GiB"}}, `at "memory": it changes <memory>` + keeps},
		{"type", lab.XMLChange{At: ".", Set: map[string]string{"type": "xen"}}, `at ".": it changes the domain type` + keeps},
		{"domain", lab.XMLChange{At: ".", Remove: true}, `at ".": the domain itself cannot be removed`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := virt.Compile(oneHost(withChanges(lab.XMLChange{At: "features", Add: "<pae/>"}, tt.change)))
			if err == nil || err.Error() != "lab.yaml:11:5: hosts.master-0.vm.xml: "+tt.want {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}

// TestXMLChangeErrorsAreAtTheValue: what is wrong with the elements is at them, and not at the path.
func TestXMLChangeErrorsAreAtTheValue(t *testing.T) {
	t.Parallel()
	at, add := lab.Pos{File: "lab.yaml", Line: 10, Column: 5}, lab.Pos{File: "lab.yaml", Line: 11, Column: 10}
	for text, want := range map[string]string{"<sound": "lab.yaml:11:10: ", "<name>other</name>": "lab.yaml:10:5: "} {
		_, err := virt.Compile(oneHost(withXML(lab.XMLChange{Pos: at, At: ".", Add: text, AddPos: add})))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestXMLChanges defines and starts a machine whose XML the lab file changes, and which starts with its hypervisor, on a real libvirtd.
func TestXMLChanges(t *testing.T) {
	netns.Need(t, "virt-xml-validate")
	d, on := startLibvirtd(t)
	seg := netns.NewSegment(t, "10.134.0.1/24")
	virsh := func(args ...string) string {
		t.Helper()
		return netns.Run(t, "virsh", append([]string{"-c", d.URI}, args...)...)
	}
	bridge := func(h *lab.Host) {
		h.VM.Hypervisor.Bridges[0].Bridge = seg.Bridge
		h.VM.Disks = append(h.VM.Disks, lab.Disk{Size: gib})
	}
	changed := withChanges(
		lab.XMLChange{At: "devices", Add: "<watchdog model='i6300esb' action='poweroff'/><input type='tablet' bus='usb'/>"},
		lab.XMLChange{At: "devices/disk/driver", Set: map[string]string{"io": "threads"}},
		lab.XMLChange{At: "devices/disk[2]", Add: "<serial>second</serial>"},
		lab.XMLChange{At: "devices/rng", Remove: true},
		lab.XMLChange{At: ".", Add: "<qemu:commandline xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><qemu:arg value='-no-user-config'/></qemu:commandline>"},
	)
	l := oneHost(on, bridge, changed, func(h *lab.Host) { h.VM.Autostart, h.VM.Shared = true, true })
	b := newTestServer(t, l, nil, virt.Config{})
	serve(t, b)
	check(t, b.Create(t.Context(), "master-0"))
	text := virsh("dumpxml", "--inactive", "master-0")
	file := filepath.Join(t.TempDir(), "domain.xml")
	check(t, os.WriteFile(file, []byte(text), 0o600))
	netns.Run(t, "virt-xml-validate", file, "domain")
	for _, part := range []string{"<watchdog model='i6300esb' action='poweroff'", "<input type='tablet'", "<serial>second</serial>", "<qemu:arg value='-no-user-config'/>", "<access mode='shared'/>"} {
		if strings.Count(text, part) != 1 {
			t.Errorf("%d times %s", strings.Count(text, part), part)
		}
	}
	if strings.Count(text, "io='threads'") != 2 || strings.Contains(text, "<rng") {
		t.Errorf("domain\n%s", text)
	}
	wantPlan(t, b, virt.ConditionOK)
	check(t, b.Start(t.Context(), "master-0"))
	wantPlan(t, b, virt.ConditionOK)

	virsh("autostart", "--disable", "master-0")
	wantPlan(t, b, virt.ConditionDrifted, "autostart: no, lab file: yes")
	check(t, b.Apply(t.Context(), "master-0"))
	wantPlan(t, b, virt.ConditionOK)
	b.use(t, oneHost(on, bridge, func(h *lab.Host) { h.VM.Autostart, h.VM.Shared = true, true }))
	wantPlan(t, b, virt.ConditionChanged, "it was defined by another version of bootlab, or details differ", "it runs")
	check(t, b.Apply(t.Context(), "master-0"))
	if text := virsh("dumpxml", "--inactive", "master-0"); strings.Contains(text, "<watchdog model='i6300esb'") || !strings.Contains(text, "<rng") {
		t.Errorf("after the changes were taken out of the lab file\n%s", text)
	}
	if info := virsh("dominfo", "master-0"); !strings.Contains(info, "Autostart:      enable") {
		t.Errorf("dominfo\n%s", info)
	}
}
