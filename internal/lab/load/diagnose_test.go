package load_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// whole is a lab without an error.
const whole = head + `networks:
  lan:
    subnet: 10.1.2.0/24
    address: 10.1.2.1
    lease: 12h
profiles:
  fcos:
    os: coreos
    kernel: images/k
    initrd: [images/i]
    install_to: /dev/vda
hypervisors:
  kvm1: {uri: "qemu:///system", bridges: {lan: br0}} # here
hosts:
  m0:
    mac: 52:54:00:00:00:01
    ip: 10.1.2.21
    profile: fcos
    vm:
      hypervisor: kvm1
      memory: 16GiB
      disks: [42GiB]
dns:
  zones:
    demo.example:
      records: ["@ A 10.1.2.3", "www A 10.1.2.4"]
  rate_limit: 200
  allow: [10.1.2.0/24]
`

// TestMistakes: each typical mistake is one error, at the place where it was made, with what would be right.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, right, wrong, want string }{
		{"size", "memory: 16GiB", "memory: 16G", `memory: |16G: "16G" is not a size: did you mean 16GiB?`},
		{"size with a space", "[42GiB]", "[42 gb]", `[|42 gb]: "42 gb" is not a size: did you mean 42GiB?`},
		{"size without a unit", "16GiB", "16384", `: |16384: "16384" is not a size: did you mean 16384MiB?`},
		{"size that may be either", "16GiB", "256", `: |256: "256" is not a size: want a unit too, as in 256MiB or 256GiB`},
		{"cpu for cpus", "memory: 16GiB", "cpu: 1", `cpu: |1: 1 is no CPU model: did you mean cpus: 1?`},
		{"name of a key alone", "demo.example:", "demo.example:\n      update: [ext]", `[|ext]: "ext" is neither a prefix nor an address: did you mean 'key ext'?`},
		{"seconds", "lease: 12h", "lease: 43200", `lease: |43200: "43200" is not a duration: did you mean 12h?`},
		{"milliseconds", "lease: 12h", "lease: 5000", `lease: |5000: "5000" is not a duration: did you mean 5s, which is 5000ms, or 1h23m20s?`},
		{"milliseconds of a check", "hosts:\n", "balancers:\n  b: {listen: \"10.1.2.1:80\", backends: [10.1.2.9], check: {interval: 500}}\nhosts:\n", `|500}}: "500" is not a duration: did you mean 500ms or 8m20s?`},
		{"milliseconds and a half", "lease: 12h", "lease: 2500", `did you mean 2.5s, which is 2500ms, or 41m40s?`},
		{"minutes in seconds", "lease: 12h", "lease: 300", `did you mean 5m?`},
		{"a day", "lease: 12h", "lease: 1d", `did you mean 24h?`},
		{"no time", "lease: 12h", "lease: 0s", `lease: |0s: "0s" is too short: want more than 0`},
		{"a time of no unit", "lease: 12h", "lease: 0", `lease: |0: "0" is too short: want more than 0`},
		{"a negative time", "lease: 12h", "lease: -5s", `lease: |-5s: "-5s" is too short: want more than 0`},
		{"below a millisecond", "lease: 12h", "lease: 5us", `lease: |5us: "5us" is too short: want 1ms or more`},
		{"a comma in braces", "networks:\n", "networks:\n  other: {subnet: 10.7.0.0/24, address: 10.7.0.1, pools: {p: {range: 10.7.0.100,10.7.0.200}}}\n", `range: |10.7.0.100,10.7.0.200}}}: "10.7.0.100" is not a range: want two IPv4 addresses`},
		{"a comma in a path", "profiles:\n", "profiles:\n  p: {kernel: a,b, os: coreos, initrd: [images/i]}\n", `kernel: |a,b, os: coreos, initrd: [images/i]}: a comma ends a value in braces, and "b" behind it is no key: want quotes`},
		{"a comma in a range", "networks:\n", "networks:\n  other: {subnet: 10.7.0.0/24, address: 10.7.0.1, pools: {p: {range: \"10.7.0.100, 10.7.0.200\"}}}\n", `did you mean 10.7.0.100-10.7.0.200?`},
		{"words", "lease: 12h", "lease: 90 minutes", `did you mean 1h30m?`},
		{"disk without its folder", "install_to: /dev/vda", "install_to: vda", `install_to: |vda: "vda" is not the path of a disk: did you mean /dev/vda?`},
		{"system", "os: coreos", "os: rhcos", `os: |rhcos: "rhcos" is not known: did you mean coreos?`},
		{"distribution", "os: coreos", "os: AlmaLinux", `did you mean anaconda?`},
		{"key", "install_to:", "installto:", `|installto: /dev/vda: unknown key "installto": did you mean install_to?`},
		{"required key", "hypervisor: kvm1", "hipervisor: kvm1", `|hipervisor: kvm1: unknown key "hipervisor": did you mean hypervisor?`},
		{"list", "records: [", "-records: [", `|-records: ["@ A 10.1.2.3", "www A 10.1.2.4"]: unknown key "-records": want records without -, or a space between them`},
		{"items", `["@ A 10.1.2.3", "www A 10.1.2.4"]`, "\n        -www A 10.1.2.4", `|-www A 10.1.2.4: is "-www A 10.1.2.4": want a list; a space is missing after -`},
		{"item in braces without its dash", "disks: [42GiB]", "disks:\n        - 42GiB\n        {size: 10GiB}", `|{size: 10GiB}: an item of a list begins with - and a space: want - {size: 10GiB}`},
		{"first item without its dash", "disks: [42GiB]", "disks:\n        size: 10GiB\n        - 42GiB", `|size: 10GiB: an item of a list begins with - and a space: want - size: 10GiB`},
		{"colon", "kernel: images/k", "kernel images/k", `kernel| images/k: a colon is missing after kernel: want kernel: images/k`},
		{"colon of a mapping", "  fcos:", "  fcos", `fcos|: a colon is missing after fcos: want fcos:`},
		{"colon of the top", "hosts:", "hosts", `hosts|: a colon is missing after hosts: want hosts:`},
		{"colon of the first", "mac: ", "mac ", `mac| 52:54:00:00:00:01: a colon is missing after mac: want mac: 52:54:00:00:00:01`},
		{"colon of the only one", "      hypervisor: kvm1\n      memory: 16GiB\n      disks: [42GiB]\n", "      hypervisor kvm1\n", `hypervisor| kvm1: a colon is missing after hypervisor: want hypervisor: kvm1`},
		{"entries below an empty mapping", "hosts:\n", "hosts: {}\n", `hosts: |{}: hosts is empty, and has entries in the lines below: want hosts:`},
		{"entries below an empty list", "hosts:\n", "hosts: []\n", `hosts: |[]: hosts is empty, and has entries in the lines below: want hosts:`},
		{"equals sign", "os: coreos", "os = coreos", `os| = coreos: a colon is missing after os: want os: coreos`},
		{"space", "os: coreos", "os:coreos", `os|:coreos: a space is missing after the colon of os: want os: coreos`},
		{"too little indentation", "    kernel:", "   kernel:", `|kernel: images/k: indented by 3 spaces: want 4, as line 10`},
		{"one space", "    kernel:", " kernel:", `|kernel: images/k: indented by 1 space: want 4, as line 10`},
		{"too much indentation", "    kernel:", "     kernel:", `|kernel: images/k: indented by 5 spaces: want 4, as line 10`},
		{"too much, of a key with a comment", "  zones:\n", "   zones: # ours\n", `|zones: # ours: indented by 3 spaces: want 2, as line 29`},
		{"tab", "    kernel:", "\tkernel:", "|\tkernel: images/k: a tab in the indentation: want spaces"},
		{"quote", `"qemu:///system"`, `"qemu:///system`, `uri: |"qemu:///system, bridges: {lan: br0}} # here: the quote " is not closed: want another at its end`},
		{"bracket", "[images/i]", "[images/i", `|[images/i: [ is not closed: want ] at the end of the list`},
		{"brace", "{lan: br0}}", "{lan: br0}", `|{uri: "qemu:///system", bridges: {lan: br0} # here: { is not closed: want } behind the last value`},
		{"template", "install_to: /dev/vda", "config: {{.Host.Role}}.ign", `config: |{{.Host.Role}}.ign: a value that begins with {{ needs quotes: want config: "{{.Host.Role}}.ign"`},
		{"percent sign", "install_to: /dev/vda", "install_to: %disk", `|%disk: a value that begins with % needs quotes: want install_to: "%disk"`},
		{"at sign", `["@ A 10.1.2.3", "www A 10.1.2.4"]`, "[@ A 10.1.2.3]", `|[@ A 10.1.2.3]: an item that begins with @ needs quotes: want records: ["@ A 10.1.2.3"]`},
		{"two colons", "kernel: images/k", "kernel: a: b", `kernel: |a: b: a value with ": " in it needs quotes: want kernel: "a: b"`},
		{"alias", "profile: fcos", "profile: *fcos", `|*fcos: *fcos repeats the value that has &fcos in front, and none above has`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(whole, tt.right, tt.wrong, 1)
			_, err := load.Parse("lab.yaml", []byte(text), load.Options{FileExists: noFiles})
			problems, _ := errors.AsType[lab.Problems](err)
			if text == whole || len(problems) != 1 {
				t.Fatalf("%v, want one problem", err)
			}
			p := problems[0]
			line := strings.Split(text, "\n")[p.Pos.Line-1]
			at := max(p.Pos.Column-1, 0)
			got := fmt.Sprintf("%s|%s: %s", line[:at], line[at:], strings.TrimPrefix(p.Message, "not YAML: "))
			if !strings.Contains(got, tt.want) {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	if _, err := load.Parse("lab.yaml", []byte(whole), load.Options{FileExists: noFiles}); err != nil {
		t.Error(err)
	}
}

// TestSyntaxAndOthers: an error of YAML's grammar does not hide the other errors of the file, those of resolving included, and causes no
// further ones.
func TestSyntaxAndOthers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		edits []string // old, new, …
		want  []string // places, in order
	}{
		{"a brace and a size", []string{"{lan: br0}}", "{lan: br0}", "16GiB", "16G"}, []string{"15:9: not YAML", "memory: \"16G\""}},
		{"a colon and a reference", []string{"kernel: images/k", "kernel images/k", "profile: fcos", "profile: fcso"}, []string{"not YAML: a colon is missing after kernel", `hosts.m0.profile: profile "fcso"`}},
		{"two of the grammar", []string{"[images/i]", "[images/i", "disks: [42GiB]", "disks [42GiB]", "lease: 12h", "lease: soon"}, []string{"lease", "[ is not closed", "a colon is missing after disks"}},
		{"what nobody can read", []string{"hypervisors:\n", "hypervisors: }{\n", "lease: 12h", "lease: soon"}, []string{"lease", "not YAML"}},
		{"a tab", []string{"    kernel:", "\tkernel:", "lease: 12h", "lease: soon"}, []string{"lease", "a tab in the indentation"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := strings.NewReplacer(tt.edits...).Replace(whole)
			_, err := load.Parse("lab.yaml", []byte(text), load.Options{FileExists: noFiles})
			problems, _ := errors.AsType[lab.Problems](err)
			if len(problems) != len(tt.want) {
				t.Fatalf("%v\nwant %d problems", err, len(tt.want))
			}
			for i, want := range tt.want {
				if !strings.Contains(problems[i].Error(), want) {
					t.Errorf("%v, want %q", problems[i], want)
				}
			}
		})
	}
}
