package recipe_test

import (
	"errors"
	"flag"
	"io/fs"
	"net/netip"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/boot/recipe"
	"github.com/bootlab/bootlab/internal/boot/syntax"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/golden"
)

var update = flag.Bool("update", false, "rewrite golden files")

// worker is a host with everything that a template may name.
func worker(p *lab.Profile) (*lab.Lab, *lab.Host) {
	n := &lab.Network{
		Name: "baremetal", Subnet: netip.MustParsePrefix("192.168.16.0/24"),
		Address: netip.MustParseAddr("192.168.16.1"), BaseURL: "http://192.168.16.1:8080",
	}
	c := &lab.Cluster{Name: "server", Domain: "server.our.pretty.lab", Address: netip.MustParseAddr("192.168.16.10")}
	h := &lab.Host{
		Name: "worker-0", FQDN: "worker-0.server.our.pretty.lab", Role: "worker", MACs: []lab.MAC{{0x52, 0x54, 0, 0, 2, 4}},
		IP: netip.MustParseAddr("192.168.16.24"), Network: n, Cluster: c, Profile: p, Vars: map[string]any{"rack": "r1"},
	}
	return &lab.Lab{Name: "telco", Domain: "our.pretty.lab", Mirrors: []*lab.Mirror{{Name: "debian"}, {Name: "epel"}}}, h
}

func compile(t *testing.T, p *lab.Profile, files fs.FS) (*recipe.Recipe, recipe.Data) {
	t.Helper()
	r, problems := recipe.Compile(p, files)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	l, h := worker(p)
	d, err := r.Data(l, h, h.MACs[0], "TOKEN")
	if err != nil {
		t.Fatal(err)
	}
	return r, d
}

// TestScripts holds the script of every operating system against a golden file.
func TestScripts(t *testing.T) {
	t.Parallel()
	for _, p := range []*lab.Profile{
		{Name: "coreos-install", OS: lab.OSCoreOS, Kernel: "images/kernel", Initrd: []string{"images/initramfs.img"}, Rootfs: "images/rootfs.img", Config: "ignition/{{.Host.Role}}.ign", InstallTo: "/dev/vda"},
		{Name: "coreos-live", OS: lab.OSCoreOS, Kernel: "images/kernel", Initrd: []string{"images/initramfs.img"}, Rootfs: "images/rootfs.img", Config: "ignition/live.ign"},
		{Name: "flatcar", OS: lab.OSFlatcar, Kernel: "flatcar.vmlinuz", Initrd: []string{"flatcar.cpio.gz"}, Config: "flatcar.ign", Args: []string{"flatcar.autologin=ttyS0"}},
		{Name: "talos", OS: lab.OSTalos, Kernel: "vmlinuz", Initrd: []string{"initramfs.xz"}, Config: "talos/{{.Host.Name}}.yaml"},
		{Name: "anaconda", OS: lab.OSAnaconda, Kernel: "fedora/vmlinuz", Initrd: []string{"fedora/initrd.img"}, Config: "ks.cfg", Args: []string{"inst.repo={{.FilesURL}}/public/fedora"}},
		{Name: "debian", OS: lab.OSDebian, Kernel: "debian/linux", Initrd: []string{"debian/initrd.gz"}, Config: "preseed.cfg"},
		{Name: "ubuntu", OS: lab.OSUbuntu, Kernel: "ubuntu/vmlinuz", Initrd: []string{"ubuntu/initrd"}, Image: "ubuntu/live.iso", Config: "autoinstall.yaml"},
		{Name: "cloud-init", OS: lab.OSCloudInit, Kernel: "vmlinuz", Initrd: []string{"a.img", "b.img"}, Config: "user-data"},
		{Name: "openshift-agent", OS: lab.OSOpenShiftAgent, Kernel: "agent.x86_64-vmlinuz", Initrd: []string{"agent.x86_64-initrd.img"}, Rootfs: "agent.x86_64-rootfs.img"},
		{Name: "autoyast", OS: lab.OSAutoYaST, Kernel: "leap/linux", Initrd: []string{"leap/initrd"}, Config: "autoinst.xml"},
		{Name: "agama", OS: lab.OSAgama, Kernel: "leap16/linux", Initrd: []string{"leap16/initrd"}, Image: "leap16/installer.iso", Config: "profile.json"},
		{Name: "harvester", OS: lab.OSHarvester, Kernel: "harvester/vmlinuz", Initrd: []string{"harvester/initrd"}, Rootfs: "harvester/rootfs.squashfs", Config: "harvester.yaml"},
		{Name: "kairos", OS: lab.OSKairos, Kernel: "kairos/kernel", Initrd: []string{"kairos/initrd"}, Rootfs: "kairos/rootfs.squashfs", Config: "kairos.yaml"},
		{Name: "kairos-ram", OS: lab.OSKairos, Kernel: "kairos/kernel", Initrd: []string{"kairos/initrd"}, Rootfs: "kairos/rootfs.squashfs", Config: "kairos.yaml", Install: lab.InstallNever},
		{Name: "flatcar-install", OS: lab.OSFlatcar, Kernel: "flatcar.vmlinuz", Initrd: []string{"flatcar.cpio.gz"}, Image: "flatcar_production_image.bin.bz2", Config: "flatcar.ign", InstallTo: "/dev/vda"},
		{Name: "anaconda-tree", OS: lab.OSAnaconda, Tree: "media/rocky9", Kernel: "media/rocky9/images/pxeboot/vmlinuz", Initrd: []string{"media/rocky9/images/pxeboot/initrd.img"}, Config: "ks.cfg"},
		{Name: "autoyast-tree", OS: lab.OSAutoYaST, Tree: "media/leap15", Kernel: "media/leap15/boot/x86_64/loader/linux", Initrd: []string{"media/leap15/boot/x86_64/loader/initrd"}, Config: "autoinst.xml", Args: []string{"textmode=1"}},
		{Name: "esxi", OS: lab.OSESXi, Tree: "media/esxi8", Kernel: "media/esxi8/efi/boot/bootx64.efi", Config: "esxi/ks.cfg", Args: []string{"allowLegacyCPU=true"}},
		{Name: "proxmox", OS: lab.OSProxmox, Kernel: "pve/vmlinuz", Initrd: []string{"pve/initrd.img"}, Image: "pve/proxmox-ve-auto.iso", Config: "pve/answer.toml"},
		{Name: "windows", OS: lab.OSWindows, Tree: "media/win11", Kernel: "wimboot", Initrd: []string{"media/win11/boot/bcd", "media/win11/boot/boot.sdi", "media/win11/sources/boot.wim"}, Args: []string{"gui"}, Config: "win/unattend.xml", Documents: []string{"win/startnet.cmd"}},
		{Name: "own-args", Kernel: "vmlinuz-{{.Host.Role}}", Initrd: []string{"initrd"}, Args: []string{"rack={{.Host.Vars.rack}}", "done={{.DoneURL}}"}},
	} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			r, d := compile(t, p, fstest.MapFS{})
			got, err := r.Script(d)
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, update, "testdata/"+p.Name+".ipxe", string(got))
		})
	}
	golden.Check(t, update, "testdata/local-boot.ipxe", string(recipe.LocalBoot("worker-0", "is installed: starting from its own disk", "")))
	golden.Check(t, update, "testdata/local-boot-exit.ipxe", string(recipe.LocalBoot("worker-0", "is installed: starting from its own disk", lab.LocalBootExit)))
	golden.Check(t, update, "testdata/local-boot-sanboot.ipxe", string(recipe.LocalBoot("worker-0", "is installed: starting from its own disk", lab.LocalBootSanboot)))
	golden.Check(t, update, "testdata/discover.ipxe", string(recipe.Discover(lab.MAC{0x52, 0x54, 0, 0, 2, 4}, "http://192.168.16.1:8080")))
	golden.Check(t, update, "testdata/bootloop.ipxe", string(recipe.BootLoop("worker-0", "got its script too often")))
	golden.Check(t, update, "testdata/nothing.ipxe", string(recipe.Nothing(lab.MAC{0x52, 0x54, 0, 0, 2, 4})))
}

func TestConfig(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"ignition/worker.ign":       {Data: []byte(`{"ignition":{"version":"3.4.0"},"host":"{{.Host.FQDN}}","done":"{{.DoneURL}}"}`)},
		"net/worker/network-config": {Data: []byte("version: 2\n")},
		"user-data":                 {Data: []byte("#cloud-config\nhostname: {{.Host.Name}}\n")},
	}
	ignition := &lab.Profile{Name: "rhcos", OS: lab.OSCoreOS, Config: "ignition/{{.Host.Role}}.ign"}
	seed := &lab.Profile{Name: "cloud", OS: lab.OSCloudInit, Config: "user-data"}
	more := &lab.Profile{Name: "more", OS: lab.OSCloudInit, Config: "user-data", Documents: []string{"net/{{.Host.Role}}/network-config"}}
	document := `{"ignition":{"version":"3.4.0"},"host":"worker-0.server.our.pretty.lab","done":"http://192.168.16.1:8080/done/52-54-00-00-02-04/TOKEN"}`
	for _, tt := range []struct {
		name    string
		profile *lab.Profile
		ask     string
		want    string
		err     error
	}{
		{"whole", ignition, "", document, nil},
		{"by name", ignition, "worker.ign", document, nil},
		{"other name", ignition, "master.ign", "", fs.ErrNotExist},
		{"no document", &lab.Profile{Name: "bare"}, "", "", fs.ErrNotExist},
		{"document not there", &lab.Profile{Name: "bare", Config: "gone.ign"}, "", "", fs.ErrNotExist},
		{"seed", seed, "user-data", "#cloud-config\nhostname: worker-0\n", nil},
		{"seed meta-data", seed, "meta-data", "instance-id: worker-0-52-54-00-00-02-04\nlocal-hostname: worker-0\n", nil},
		{"seed vendor-data", seed, "vendor-data", "", nil},
		{"a seed's own network-config", more, "network-config", "version: 2\n", nil},
		{"its folder is no name", more, "net/worker/network-config", "", fs.ErrNotExist},
		{"seed other", seed, "passwords", "", fs.ErrNotExist},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, d := compile(t, tt.profile, files)
			got, err := r.Config(d, tt.ask)
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, string(got.Body)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestButane(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"good.bu": {Data: []byte("variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n    - path: /etc/hostname\n      contents: {inline: \"{{.Host.Name}}\"}\n")},
	}
	r, d := compile(t, &lab.Profile{Name: "p", Config: "good.bu"}, files)
	doc, err := r.Config(d, "good.bu")
	if err != nil || !strings.Contains(string(doc.Body), `"source": "data:,worker-0"`) || doc.ContentType != "application/vnd.coreos.ignition+json" {
		t.Errorf("document %s %s, %v", doc.ContentType, doc.Body, err)
	}
}

// TestParts holds what recipes make by themselves against golden files.
func TestParts(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"media/esxi8/boot.cfg": {Data: []byte("bootstate=0\r\ntitle=Loading ESXi installer\r\ntimeout=5\r\nprefix=\r\n" +
		"kernel=/b.b00\r\nkernelopt=runweasel cdromBoot\r\nmodules=/jumpstrt.gz --- /useropts.gz --- /features.gz\r\nbuild=8.0.3-0.0.1\r\nupdated=0\r\n")}}
	for _, tt := range []struct {
		golden, name string
		profile      lab.Profile
	}{
		{"coreos-live.ign", "bootlab-live.ign", lab.Profile{OS: lab.OSCoreOS, InstallTo: "/dev/vda", Config: "x.ign"}},
		{"flatcar-install.ign", "bootlab-install.ign", lab.Profile{OS: lab.OSFlatcar, InstallTo: "/dev/vda", Config: "x.ign"}},
		{"flatcar-install-image.ign", "bootlab-install.ign", lab.Profile{OS: lab.OSFlatcar, InstallTo: "/dev/vda", Image: "flatcar/flatcar_production_image.bin.bz2"}},
		{"esxi-boot.cfg", "boot.cfg", lab.Profile{OS: lab.OSESXi, Tree: "media/esxi8", Kernel: "k", Config: "ks.cfg", Args: []string{"allowLegacyCPU=true"}}},
	} {
		t.Run(tt.golden, func(t *testing.T) {
			t.Parallel()
			r, d := compile(t, &tt.profile, files)
			doc, err := r.Config(d, tt.name)
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, update, "testdata/"+tt.golden, string(doc.Body))
			if path.Ext(tt.name) == ".ign" {
				if broken, _ := syntax.Report(syntax.Ignition, doc.Body); broken != nil {
					t.Error(broken)
				}
			}
			if r.Counts(d, tt.name) {
				t.Error("it counts as a read of the config document")
			}
		})
	}
}

// TestFaults is about what would fail at boot.
func TestFaults(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"bad.cfg":     {Data: []byte("first\nrack {{.Host.Vars.unit}}\n")},
		"syntax.cfg":  {Data: []byte("a\n{{if}}\n")},
		"unset.cfg":   {Data: []byte("gw {{.Network.Router}}")},
		"bad.ign":     {Data: []byte("{\n  \"ignition\": {\"version\": \"3.4.0\"},\n  \"storage\": {\"files\": [{\"path\": \"etc/{{.Host.Name}}\"}]}\n}\n")},
		"longer.ign":  {Data: []byte("{{\"\\n\\n\"}}{\n")},
		"bad.bu":      {Data: []byte("variant: fcos\nversion: 1.5.0\nstorage:\n  flies: []\n")},
		"bad.yaml":    {Data: []byte("machine:\n  type: worker\n type: x\n")},
		"ok.ign":      {Data: []byte(`{"ignition": {"version": "3.4.0"}}`)},
		"partial.tpl": {Data: []byte("{{.Host.Vars.unit}}")},
		"user-data":   {Data: []byte("hostname: x\n")},
	}
	for _, tt := range []struct {
		name     string
		profile  lab.Profile
		want     string // key and error; empty: no fault
		everyone bool
	}{
		{"good", lab.Profile{Kernel: "k", Args: []string{"{{.Host.Vars.rack}}"}, Config: "ok.ign", OS: lab.OSCoreOS}, "", false},
		{"missing value", lab.Profile{Kernel: "k", Args: []string{"a", "{{.Host.Vars.unit}}"}},
			`args[1] {{.Host.Vars.unit}} is not set: want vars: {unit: …} for the host`, false},
		{"unknown field", lab.Profile{Kernel: "{{.Host.Colour}}"},
			`kernel {{.Host.Colour}} is not known to templates: there is no Colour, want one of FQDN, IP, IP6, MAC, Name, Role, Serial, Vars`, true},
		{"missing value in a document", lab.Profile{Config: "bad.cfg"}, `config bad.cfg:2:13: {{.Host.Vars.unit}} is not set: want vars: {unit: …} for the host`, false},
		{"syntax of a document", lab.Profile{Config: "syntax.cfg"}, "config syntax.cfg:2: missing value for if", false},
		{"unset", lab.Profile{Config: "unset.cfg"}, "config unset.cfg: {{.Network.Router}} is not set: set it in the lab file, or ask {{if .Network.Router.IsValid}} before", false},
		{"no tree", lab.Profile{Args: []string{"x={{.TreeURL}}"}}, "args[0] {{.TreeURL}} is not set: want tree in the profile", false},
		{"no serial number", lab.Profile{Args: []string{"x={{.Host.Serial}}"}},
			"args[0] {{.Host.Serial}} is not set, as the host is no virtual machine: want ${serial} in a script, or ask {{if .Host.Serial}} before", false},
		{"no disk", lab.Profile{Args: []string{"x={{.Profile.InstallTo}}"}},
			"args[0] {{.Profile.InstallTo}} is not set: want install_to in the profile, or ask {{if .Profile.InstallTo}} before", false},
		{"asked for before", lab.Profile{Args: []string{`{{with .Host.Serial}}{{.}}{{end}}{{with .Profile.InstallTo}}{{.}}{{end}}{{if eq .Host.Role "worker"}}w{{end}}`}}, "", false},
		{"a role as a key", lab.Profile{Args: []string{"{{index .Host.Vars .Host.Role}}"}},
			"args[0] {{index .Host.Vars .Host.Role}}: index needs plain text: want the key as (print …), such as {{index .Host.Vars (print .Host.Role)}}", false},
		{"a role as plain text", lab.Profile{Args: []string{`{{with index .Host.Vars (print .Host.Role)}}{{.}}{{end}}`}}, "", false},
		{"broken Ignition", lab.Profile{Config: "bad.ign", OS: lab.OSCoreOS}, "config bad.ign:3:34: invalid Ignition: path not absolute ($.storage.files.0.path)", false},
		{"lines that moved", lab.Profile{Config: "longer.ign"}, "config longer.ign: line 4 of what it renders to: not JSON: unexpected EOF", false},
		{"Butane", lab.Profile{Config: "bad.bu"}, "config bad.bu:4:3: invalid Butane: unused key flies ($.storage.flies)", false},
		{"YAML of Talos", lab.Profile{Config: "bad.yaml", OS: lab.OSTalos}, "config bad.yaml:3:2: not YAML: did not find expected key", false},
		{"user-data", lab.Profile{Config: "user-data", OS: lab.OSUbuntu},
			"config user-data:1:1: not user-data: cloud-init goes by the first line: want #cloud-config, #! or another of its headers", false},
		{"another document", lab.Profile{Config: "ok.ign", Documents: []string{"partial.tpl"}},
			`documents[0] partial.tpl:1:8: {{.Host.Vars.unit}} is not set: want vars: {unit: …} for the host`, false},
		{"two of one name", lab.Profile{Config: "ok.ign", Documents: []string{"other/ok.ign"}},
			"documents[0] other/ok.ign is called ok.ign as config is: want different file names, since machines fetch documents by name", false},
		{"unknown field of an address", lab.Profile{Args: []string{"{{.Network.Subnet.Nope}}"}},
			"args[0] at <.Network.Subnet.Nope>: can't evaluate field Nope in type netip.Prefix", true},
		{"document to come", lab.Profile{Config: "later.ign", Documents: []string{"later"}}, "", false},
		{"medium to come", lab.Profile{OS: lab.OSESXi, Tree: "esxi", Kernel: "k"}, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, d := compile(t, &tt.profile, files)
			var got []string
			for _, f := range r.Faults(d) {
				got = append(got, f.Key+" "+f.Err.Error())
				if f.Everyone() != tt.everyone {
					t.Errorf("%v: everyone %v, want %v", f, f.Everyone(), tt.everyone)
				}
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, "\n")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestHostWithoutRole: a path or an argument with the role of a host that has none was a word with a hole in it.
func TestHostWithoutRole(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"vmlinuz": {}, ".ign": {Data: []byte(`{"ignition": {"version": "3.4.0"}}`)}}
	for _, profile := range []lab.Profile{{Config: "{{.Host.Role}}.ign"}, {Args: []string{"role={{.Host.Role}}"}}, {Kernel: "{{.Host.Role}}"}} {
		r, d := compile(t, &profile, files)
		d.Host.Role = ""
		faults := r.Faults(d)
		if len(faults) != 1 || !strings.HasSuffix(faults[0].Err.Error(), "{{.Host.Role}} is not set: want a role of the host, or ask {{if .Host.Role}} before") {
			t.Errorf("%+v: faults %v, want one of the role", profile, faults)
		}
	}
}

// TestValidationCache: the cached result for one host's document is not used for another document that differs in more than the
// host's values.
func TestValidationCache(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"x.ign": {Data: []byte(`{"ignition": {"version": "3.4.0"}, "storage": {"files": [{"path": "{{.Host.Vars.path}}/{{.Host.Name}}"}]}}`)}}
	p := &lab.Profile{Name: "p", OS: lab.OSCoreOS, Config: "x.ign"}
	r, d := compile(t, p, files)
	for _, tt := range []struct {
		host, path string
		good       bool
	}{{"a", "/etc", true}, {"bb", "/etc", true}, {"a", "etc", false}, {"etc", "/etc", true}, {"b", "etc", false}, {"a", "/etc", true}} {
		d.Host.Name, d.Host.Vars = tt.host, map[string]any{"path": tt.path}
		if faults := r.Faults(d); (len(faults) == 0) != tt.good {
			t.Errorf("%s/%s: %v, want good %v", tt.path, tt.host, faults, tt.good)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	_, err := recipe.Compile(&lab.Profile{Name: "p", Args: []string{"{{.Host", "ok", "{{end}}"}}, fstest.MapFS{})
	var problems lab.Problems
	if !errors.As(err, &problems) || len(problems) != 2 {
		t.Errorf("error %v, want two problems", err)
	}
}

// TestUnset: an address that the lab file leaves out is never written as what Go writes for none.
func TestUnset(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, arg, want string // want: the argument, or what the error holds
		err             bool
	}{
		{"set", "ip={{.Host.IP}}", "ip=192.168.16.24", false},
		{"formatted", `{{printf "ip=%s" .Host.IP}}`, "ip=192.168.16.24", false},
		{"part of it", "{{.Host.IP.Is4}}", "true", false},
		{"asked for", "gw={{if .Network.Router.IsValid}}{{.Network.Router}}{{else}}none{{end}}", "gw=none", false},
		{"no router", "gw={{.Network.Router}}", "{{.Network.Router}} is not set", true},
		{"no IPv6", `{{printf "%v" .Host.IP6}}`, "{{.Host.IP6}} is not set", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r, d := compile(t, &lab.Profile{Name: "p", Kernel: "k", Args: []string{tc.arg}}, fstest.MapFS{})
			args, err := r.Args(d)
			switch {
			case tc.err && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want %q", err, tc.want)
			case !tc.err && (err != nil || strings.Join(args, " ") != tc.want):
				t.Errorf("got %q, %v, want %q", args, err, tc.want)
			}
		})
	}
}

// TestMirrors writes how a host reaches a mirror, and refuses one that the lab does not have.
func TestMirrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{{.MirrorURL "debian"}}`:                             "http://192.168.16.1:8080/mirror/debian",
		`{{with .Mirror "debian"}}{{.Host}} {{.Path}}{{end}}`: "192.168.16.1:8080 /mirror/debian",
		`{{(.Mirror "epel").URL}}/9`:                          "http://192.168.16.1:8080/mirror/epel/9",
		`{{.MirrorURL "ubuntu"}}`:                             `preseed.cfg:1:23: {{.MirrorURL}}: mirror "ubuntu" is not in the lab: want one of its mirrors (debian, epel)`,
		`{{.Host.Name}`:                                       "preseed.cfg:1: }} is missing: want {{…}}",
	} {
		p := &lab.Profile{Name: "p", OS: lab.OSDebian, Kernel: "k", Config: "preseed.cfg"}
		r, d := compile(t, p, fstest.MapFS{"preseed.cfg": {Data: []byte("d-i mirror/x string " + text)}})
		doc, err := r.Config(d, "")
		if got := string(doc.Body); err == nil && got != "d-i mirror/x string "+want || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
}
