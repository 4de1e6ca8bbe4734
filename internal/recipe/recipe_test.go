package recipe_test

import (
	"errors"
	"flag"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"bootlab/internal/lab"
	"bootlab/internal/recipe"
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
	return &lab.Lab{Name: "telco", Domain: "our.pretty.lab"}, h
}

func compile(t *testing.T, p *lab.Profile, files fs.FS) (*recipe.Recipe, recipe.Data) {
	t.Helper()
	r, err := recipe.Compile(p, files)
	if err != nil {
		t.Fatal(err)
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
		{Name: "own-args", Kernel: "vmlinuz-{{.Host.Role}}", Initrd: []string{"initrd"}, Args: []string{"rack={{.Host.Vars.rack}}", "done={{.DoneURL}}"}},
	} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			r, d := compile(t, p, fstest.MapFS{})
			got, err := r.Script(d)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, p.Name+".ipxe", string(got))
		})
	}
	golden(t, "local-boot.ipxe", string(recipe.LocalBoot("worker-0", "is installed: starting from its own disk", "")))
	golden(t, "local-boot-exit.ipxe", string(recipe.LocalBoot("worker-0", "is installed: starting from its own disk", lab.LocalBootExit)))
	golden(t, "local-boot-sanboot.ipxe", string(recipe.LocalBoot("worker-0", "is installed: starting from its own disk", lab.LocalBootSanboot)))
	golden(t, "discover.ipxe", string(recipe.Discover(lab.MAC{0x52, 0x54, 0, 0, 2, 4}, "http://192.168.16.1:8080")))
	golden(t, "nothing.ipxe", string(recipe.Nothing(lab.MAC{0x52, 0x54, 0, 0, 2, 4})))
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"ignition/worker.ign": {Data: []byte(`{"host":"{{.Host.FQDN}}","done":"{{.DoneURL}}"}`)},
		"user-data":           {Data: []byte("#cloud-config\nhostname: {{.Host.Name}}\n")},
	}
	ignition := &lab.Profile{Name: "rhcos", OS: lab.OSCoreOS, Config: "ignition/{{.Host.Role}}.ign"}
	seed := &lab.Profile{Name: "cloud", OS: lab.OSCloudInit, Config: "user-data"}
	document := `{"host":"worker-0.server.our.pretty.lab","done":"http://192.168.16.1:8080/done/52-54-00-00-02-04/TOKEN"}`
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
		"typo.bu": {Data: []byte("variant: fcos\nversion: 1.5.0\nstorage:\n  flies: []\n")},
		"none.bu": {Data: []byte("hello")},
	}
	r, d := compile(t, &lab.Profile{Name: "p", Config: "good.bu"}, files)
	doc, err := r.Config(d, "good.bu")
	if err != nil || !strings.Contains(string(doc.Body), `"source": "data:,worker-0"`) || doc.ContentType != "application/vnd.coreos.ignition+json" {
		t.Errorf("document %s %s, %v", doc.ContentType, doc.Body, err)
	}
	for file, want := range map[string]string{"typo.bu": "flies", "none.bu": "none.bu is not Butane"} {
		r, d := compile(t, &lab.Profile{Name: "p", Config: file}, files)
		if _, err := r.Config(d, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", file, err, want)
		}
	}
}

// TestCheck is about templates that would fail at boot.
func TestCheck(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"bad.ign": {Data: []byte(`{{.Host.Vars.shelf}}`)}}
	pos := lab.Pos{File: "lab.yaml", Line: 12, Column: 3}
	for _, tt := range []struct {
		name    string
		profile lab.Profile
		want    string // in the error; empty: none
	}{
		{"good", lab.Profile{Kernel: "k", Args: []string{"{{.Host.Vars.rack}}"}}, ""},
		{"missing var", lab.Profile{Kernel: "k", Args: []string{"{{.Host.Vars.shelf}}"}}, `map has no entry for key "shelf"`},
		{"missing var in document", lab.Profile{Config: "bad.ign"}, `map has no entry for key "shelf"`},
		{"unknown field", lab.Profile{Kernel: "{{.Host.Colour}}"}, "can't evaluate field Colour"},
		{"document to come", lab.Profile{Config: "later.ign"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.profile.Name, tt.profile.Pos = "p", pos
			r, d := compile(t, &tt.profile, files)
			err := r.Check(d)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "lab.yaml:12:3: profiles.p.") {
				t.Errorf("error %v, want %q at lab.yaml:12:3", err, tt.want)
			}
		})
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
