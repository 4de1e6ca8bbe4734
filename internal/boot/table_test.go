package boot_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// TestMissingValues: an error that a machine would have at boot is found by Compile, once for each cause.
func TestMissingValues(t *testing.T) {
	t.Parallel()
	many := &strings.Builder{}
	for i := range 600 {
		fmt.Fprintf(many, "  m%d: {mac: '52:54:00:01:%02x:%02x', ip: 192.168.%d.%d, profile: p}\n", i, i>>8, i&255, 18+i/200, 1+i%200)
	}
	for _, tc := range []struct {
		name, arg, hosts string
		want             []string // of each problem
	}{
		{"all there", "{{.Host.Vars.a}}", "  x: {mac: '52:54:00:00:00:01', ip: 192.168.16.11, profile: p, vars: {a: 1}}\n", nil},
		{"one host of two", "{{.Host.Vars.a.b}}", "  x: {mac: '52:54:00:00:00:01', ip: 192.168.16.11, profile: p, vars: {a: {b: 1}}}\n" +
			"  y: {mac: '52:54:00:00:00:02', ip: 192.168.16.12, profile: p, vars: {a: {c: 1}}}\n", []string{"for host y: "}},
		{"both hosts, one problem", "{{.Host.Vars.z}}", "  x: {mac: '52:54:00:00:00:01', ip: 192.168.16.11, profile: p}\n" +
			"  y: {mac: '52:54:00:00:00:02', ip: 192.168.16.12, profile: p}\n", []string{"for hosts x, y: "}},
		{"a document of one host", "x", "  x: {mac: '52:54:00:00:00:01', ip: 192.168.16.11, profile: own}\n" +
			"  y: {mac: '52:54:00:00:00:02', ip: 192.168.16.12, profile: own}\n", []string{"for host y: "}},
		{"a machine of a pool", "x", "  x: {mac: '52:54:00:00:00:01', ip: 192.168.16.11, profile: p}\nnetworks: {n: {subnet: 192.168.16.0/20, address: 192.168.16.1, " +
			"interface: br0, pools: {g: {range: 192.168.30.1-192.168.30.9, profile: pooled}}}}\n", []string{"for machines of pool n/g: "}},
		{"no cluster", "{{.Cluster.Name}}", "  x: {mac: '52:54:00:00:00:01', ip: 192.168.16.11, profile: p}\n", []string{"the host belongs to no cluster: want {{if .Cluster}}"}},
		{"an address from a pool", "{{.Host.IP}}", "  x: {mac: '52:54:00:00:00:01', profile: p}\n", []string{"{{.Host.IP}} is not set"}},
		{"one of many", "{{.Host.IP}}", many.String() + "  x: {mac: '52:54:00:00:00:01', profile: p}\n", []string{"for host x: {{.Host.IP}} is not set"}},
		{"one of many by GRUB", "it''s", many.String() + "  x: {mac: '52:54:00:00:00:01', ip: 192.168.16.11, profile: p, chain: grub}\n", []string{"for host x: args: GRUB puts a backslash"}},
		{"one virtual machine of many", "{{if .Host.Serial}}{{.Host.Vars.a}}{{end}}", many.String() + "  x: {mac: '52:54:00:00:00:01', ip: 192.168.16.11, profile: p, vm: {hypervisor: h, memory: 2GiB, cpus: 1}}\n" +
			"hypervisors: {h: {uri: 'qemu:///system', bridges: {n: br0}}}\n", []string{"for host x: {{.Host.Vars.a}} is not set"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range map[string]string{"x.cfg": "fine", "y.cfg": "{{.Host.Vars.nope}}"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			text := fmt.Sprintf("version: 1\ndomain: lab.test\nappliance: {files: .}\nprofiles:\n  p: {kernel: k, args: ['%s']}\n"+
				"  own: {kernel: k, config: '{{.Host.Name}}.cfg'}\n  pooled: {kernel: k, args: ['{{.Host.Vars.a}}']}\n", tc.arg)
			if !strings.Contains(tc.hosts, "networks:") {
				text += "networks: {n: {subnet: 192.168.16.0/20, address: 192.168.16.1, interface: br0}}\n"
			}
			l, err := load.Parse(filepath.Join(dir, "lab.yaml"), []byte(text+"hosts:\n"+tc.hosts), load.Options{})
			if err != nil {
				t.Fatal(err)
			}
			table, err := boot.Compile(l)
			if err != nil {
				t.Fatal(err)
			}
			problems := table.Problems()
			if len(problems) != len(tc.want) {
				t.Fatalf("%d problems, want %d: %v", len(problems), len(tc.want), problems)
			}
			if all := table.CheckAll(); len(all) != len(tc.want) {
				t.Errorf("%d problems when every host is looked at, want %d: %v", len(all), len(tc.want), all)
			}
			for i, p := range problems {
				if !strings.Contains(p.Message, tc.want[i]) || p.Pos.Line == 0 {
					t.Errorf("%v, want %q", p, tc.want[i])
				}
			}
		})
	}
}

// TestUnknownField: a field that fails for every host is an error of the lab file, at its line.
func TestUnknownField(t *testing.T) {
	t.Parallel()
	text := "version: 1\ndomain: lab.test\nnetworks: {n: {subnet: 192.168.16.0/24, address: 192.168.16.1, interface: br0}}\n" +
		"profiles:\n  p:\n    kernel: k\n    args: [a, '{{.Host.Colour}}', '{{.Host.IP}}']\nhosts: {x: {mac: '52:54:00:00:00:01', profile: p}}\n"
	l, err := load.Parse("lab.yaml", []byte(text), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = boot.Compile(l)
	want := "lab.yaml:7:15: profiles.p.args[1]: for host x: {{.Host.Colour}} is not known to templates: there is no Colour, want one of FQDN, IP, IP6, MAC, Name, Role, Serial, Vars\n" +
		"lab.yaml:7:35: profiles.p.args[2]: for host x: {{.Host.IP}} is not set: set it in the lab file, or ask {{if .Host.IP.IsValid}} before"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
