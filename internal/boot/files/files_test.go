package files_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/boot/files"
	"github.com/bootlab/bootlab/internal/lab"
)

func labWith(t *testing.T, dir string, profiles ...*lab.Profile) *lab.Lab {
	t.Helper()
	n := &lab.Network{Name: "lan", Subnet: netip.MustParsePrefix("10.0.0.0/24")}
	l := &lab.Lab{Appliance: lab.Appliance{Files: dir}, Networks: []*lab.Network{n}, Profiles: profiles}
	for i, role := range []string{"worker", "control-plane"} {
		for _, p := range profiles {
			l.Hosts = append(l.Hosts, &lab.Host{
				Name: p.Name + "-" + role, Role: role, Network: n, Profile: p, Vars: map[string]any{"rack": "r1"},
				MACs: []lab.MAC{{0x52, 0x54, 0, 0, 0, byte(i)}},
			})
		}
	}
	return l
}

func write(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	write(t, outside, "secret")
	write(t, dir, "images/vmlinuz", "images/initrd", "images/other", "public/a.txt", "public/b/c.txt", "public/secret.ign",
		"public/bmc-password", "ignition/worker.ign", "images/worker/root.img", "ipxe/menu.ipxe")
	for name, target := range map[string]string{
		"public/leak": filepath.Join(outside, "secret"), "public/up": "../../etc/passwd", "public/inside": "a.txt",
		"public/document": "../ignition/worker.ign", "public/other": "../images/other", "public/folder": "../ignition",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "public/pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	l := labWith(t, dir,
		&lab.Profile{Name: "os", Kernel: "images/vmlinuz", Initrd: []string{"./images/initrd", "images/not-yet"},
			Rootfs: "images/{{.Host.Role}}/root.img", Config: "ignition/{{.Host.Role}}.ign"},
		&lab.Profile{Name: "careless", Config: "public/secret.ign", IPXE: "ipxe/menu.ipxe"})
	l.Hosts[0].BMC = &lab.BMC{PasswordFile: filepath.Join(dir, "public/bmc-password")}
	files, err := files.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		want error
	}{
		{"images/vmlinuz", nil},
		{"images/initrd", nil},
		{"images/worker/root.img", nil},
		{"public/a.txt", nil},
		{"public/b/c.txt", nil},
		{"public/inside", nil},
		{"public/other", nil},
		{"public/document", fs.ErrPermission},
		{"public/folder/worker.ign", fs.ErrPermission},
		{"images/not-yet", fs.ErrNotExist},
		{"images/control-plane/root.img", fs.ErrNotExist},
		{"public/nothing", fs.ErrNotExist},
		{"images/other", fs.ErrPermission},
		{"ignition/worker.ign", fs.ErrPermission},
		{"ipxe/menu.ipxe", fs.ErrPermission},
		{"public/secret.ign", fs.ErrPermission},
		{"public/bmc-password", fs.ErrPermission},
		{"public", fs.ErrPermission},
		{"public/b", fs.ErrPermission},
		{"public/pipe", fs.ErrPermission},
		{"public/leak", fs.ErrPermission},
		{"public/up", fs.ErrPermission},
		{"public/../ignition/worker.ign", fs.ErrPermission},
		{"../etc/passwd", fs.ErrPermission},
		{"/images/vmlinuz", fs.ErrPermission},
		{"images//vmlinuz", fs.ErrPermission},
		{"", fs.ErrPermission},
		{".", fs.ErrPermission},
	}
	for _, tt := range tests {
		t.Run(strings.ReplaceAll(tt.name, "/", "|"), func(t *testing.T) {
			f, err := files.Open(tt.name)
			if !errors.Is(err, tt.want) {
				t.Fatalf("Open(%q) = %v, want %v", tt.name, err, tt.want)
			}
			if err != nil {
				return
			}
			defer f.Close()
			if b, err := io.ReadAll(f); err != nil || len(b) == 0 {
				t.Errorf("read %q: %q, %v", tt.name, b, err)
			}
		})
	}
}

// TestSecretsOfTheLab: files with passwords, keys and tokens that the lab names are served under no name, in no folder.
func TestSecretsOfTheLab(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	names := []string{"tsig", "redfish-password", "redfish.pem", "redfish.pem.key", "web.pem", "web.pem.key", "kubeconfig", "id_ed25519", "bmc"}
	l := labWith(t, dir, &lab.Profile{Name: "os", Kernel: "images/k"})
	at := func(folder, name string) string { return filepath.Join(folder, "public", name) }
	use := func(folder string) {
		for _, name := range names {
			write(t, folder, "public/"+name)
		}
		l.DNS.Keys = append(l.DNS.Keys, lab.TSIGKey{SecretFile: at(folder, "tsig")})
		l.Redfish = lab.Redfish{Accounts: []lab.RedfishAccount{{PasswordFile: at(folder, "redfish-password")}}}
		l.Certificates = []lab.FileAt{{Path: at(folder, "redfish.pem")}, {Path: at(folder, "web.pem")}}
		l.Clusters = []*lab.Cluster{{Kubeconfig: at(folder, "kubeconfig")}}
		l.Hypervisors = []*lab.Hypervisor{{URI: "qemu+ssh://kvm/system?keyfile=" + at(folder, "id_ed25519")}}
		l.Hosts[0].BMC = &lab.BMC{PasswordFile: at(folder, "bmc")}
	}
	refused := func(name string) {
		t.Helper()
		files, err := files.Compile(l)
		if err != nil {
			t.Fatal(err)
		}
		if f, err := files.Open(name); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("open %s: %v, want refused", name, err)
			_ = f.Close()
		}
	}
	use(dir)
	for _, name := range names {
		refused("public/" + name)
		refused("public/" + strings.ToUpper(name))
	}
	use(outside)
	for _, name := range names {
		if err := os.Link(at(outside, name), at(dir, "link-to-"+name)); err != nil {
			t.Fatal(err)
		}
		refused("public/link-to-" + name)
	}
}

// TestLinksToSecrets: what counts is the file that was opened, by whatever name.
func TestLinksToSecrets(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	write(t, outside, "ca.pem", "state/token", "lab.yaml", "conf.d/hosts.yaml")
	write(t, dir, "ignition/worker.ign", "ignition/gone.ign", "ks/shared.cfg", "images/k", "public/plain")
	link := func(from, to string) {
		t.Helper()
		if err := os.Link(from, filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	l := labWith(t, dir, &lab.Profile{Name: "os", Kernel: "images/k", Config: "ignition/{{.Host.Role}}.ign"}, &lab.Profile{Name: "ks", Config: "ks/shared.cfg"})
	l.Appliance.State = filepath.Join(outside, "state")
	l.Appliance.Store.CAFile = filepath.Join(outside, "ca.pem")
	l.Files = []string{filepath.Join(outside, "lab.yaml"), filepath.Join(outside, "conf.d/hosts.yaml"), filepath.Join(dir, "public/lab.yaml")}
	write(t, dir, "public/lab.yaml")
	files, err := files.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	want := func(name string, refused bool) {
		t.Helper()
		f, err := files.Open(name)
		if err == nil {
			f.Close()
		}
		if refused && !errors.Is(err, fs.ErrPermission) || !refused && err != nil {
			t.Errorf("open %s: %v, want refused %v", name, err, refused)
		}
	}
	link(filepath.Join(dir, "images/k"), "public/k")
	want("public/k", false)
	link(filepath.Join(dir, "ignition/worker.ign"), "public/worker")
	link(filepath.Join(dir, "ignition/gone.ign"), "public/gone") // of a host that the lab does not have
	link(filepath.Join(dir, "ks/shared.cfg"), "public/ks.txt")
	link(filepath.Join(outside, "ca.pem"), "public/ca.pem")
	link(filepath.Join(outside, "state/token"), "public/token")
	link(filepath.Join(outside, "lab.yaml"), "public/lab")
	link(filepath.Join(outside, "conf.d/hosts.yaml"), "public/hosts")
	for _, name := range []string{"public/worker", "public/gone", "public/ks.txt", "public/ca.pem", "public/token", "public/lab", "public/hosts", "public/lab.yaml"} {
		want(name, true)
	}
	want("public/k", false)
	want("images/k", false)
	write(t, dir, "ignition/new.ign") // known from now on
	link(filepath.Join(dir, "ignition/new.ign"), "public/new")
	want("public/new", true)
	if err := os.Symlink("new", filepath.Join(dir, "public/twice")); err != nil {
		t.Fatal(err)
	}
	want("public/twice", true)
}

// TestSwappedLink: a link that changes between a public file and a document all the time never serves the document. A hard link is the
// only name of the public file once it is swapped, and no longer one of the document.
func TestSwappedLink(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		link func(dir, to, name string) error // makes the link, to a path relative to the files folder
	}{
		{"symbolic", func(_, to, name string) error { return os.Symlink("../"+to, name) }},
		{"hard", func(dir, to, name string) error { return os.Link(filepath.Join(dir, to), name) }},
		{"hard, and a file without links", func(dir, to, name string) error {
			if to == "public/plain" {
				return os.WriteFile(name, []byte(to), 0o600)
			}
			return os.Link(filepath.Join(dir, to), name)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			testSwappedLink(t, tt.link)
		})
	}
}

func testSwappedLink(t *testing.T, to func(dir, to, name string) error) {
	dir := t.TempDir()
	write(t, dir, "ignition/worker.ign", "public/plain")
	link := filepath.Join(dir, "public/link")
	if err := to(dir, "public/plain", link); err != nil {
		t.Fatal(err)
	}
	files, err := files.Compile(labWith(t, dir, &lab.Profile{Name: "os", Kernel: "k", Config: "ignition/{{.Host.Role}}.ign"}))
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			next := filepath.Join(dir, "public/.next")
			if err := errors.Join(to(dir, []string{"ignition/worker.ign", "public/plain"}[i%2], next), os.Rename(next, link)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	served, leaked := 0, 0
	for range 20_000 {
		f, err := files.Open("public/link")
		if err != nil {
			continue
		}
		served++
		text, err := io.ReadAll(f)
		f.Close()
		if err != nil || string(text) != "public/plain" {
			leaked++
		}
	}
	close(stop)
	<-stopped
	if served == 0 || leaked > 0 {
		t.Errorf("%d were served, of them %d times the document", served, leaked)
	}
}

func TestOpenWithoutFolder(t *testing.T) {
	t.Parallel()
	files, err := files.Compile(labWith(t, filepath.Join(t.TempDir(), "none"), &lab.Profile{Name: "os", Kernel: "k"}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := files.Open("k"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open = %v, want not exist", err)
	}
}

func TestFold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "public/Boot/BCD", "public/boot.txt", "EFI/Boot.efi")
	files, err := files.Compile(labWith(t, dir, &lab.Profile{Name: "win", Kernel: "EFI/Boot.efi"}))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"efi/boot.EFI":    "EFI/Boot.efi",
		"EFI/Boot.efi":    "EFI/Boot.efi",
		"PUBLIC/boot/bcd": "public/Boot/BCD",
		"public/BOOT.TXT": "public/boot.txt",
		"Public/none":     "Public/none",
		"other":           "other",
		"../x":            "../x",
		"public":          "public",
		"PUBLIC":          "PUBLIC",
	} {
		if got := files.Fold(name); got != want {
			t.Errorf("Fold(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestCompileProblems(t *testing.T) {
	t.Parallel()
	pos := lab.Pos{File: "lab.yaml", Line: 7, Column: 3}
	tests := []struct {
		name    string
		profile lab.Profile
		pool    bool
		want    string
	}{
		{"not a template", lab.Profile{Image: "k/{{.Host"}, false,
			`profiles.p.image: "k/{{.Host" is not a template: }} is missing: want {{…}}`},
		{"outside", lab.Profile{Kernel: "../k"}, false, `profiles.p.kernel: "../k" is not below the files folder: want a path relative to it`},
		{"outside by template", lab.Profile{Kernel: "../{{.Host.Role}}"}, false,
			`profiles.p.kernel: "../worker" is not below the files folder: want a path relative to it`},
		{"differs in a pool", lab.Profile{Kernel: "k/{{.Host.Name}}"}, true,
			`profiles.p.kernel: "k/{{.Host.Name}}" differs between the machines of pool dynamic: want one path for all of them`},
		{"any document", lab.Profile{Config: "{{.Host.MAC}}"}, true,
			`profiles.p.config: "{{.Host.MAC}}" may be any file for the machines of pool dynamic: want a fixed folder or extension`},
		{"any document of one machine", lab.Profile{Config: `{{if eq .Host.MAC.Hyphens "52-54-00-00-00-77"}}public/a{{else}}b{{end}}`}, true,
			`profiles.p.config: "{{if eq .Host.MAC.Hyphens \"52-54-00-00-00-77\"}}public/a{{else}}b{{end}}" may be any file for the machines of pool dynamic: want a fixed folder or extension`},
		{"any document by another way", lab.Profile{Config: `{{with .Host}}{{if eq .Name "x"}}public/a{{else}}b{{end}}{{end}}{{.Host.Role}}`}, true,
			`profiles.p.config: "{{with .Host}}{{if eq .Name \"x\"}}public/a{{else}}b{{end}}{{end}}{{.Host.Role}}" may be any file for the machines of pool dynamic: want a fixed folder or extension`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := tt.profile
			p.Name, p.Pos = "p", pos
			l := labWith(t, t.TempDir(), &p)
			if tt.pool {
				n := l.Networks[0]
				n.Pools = []*lab.Pool{{Name: "dynamic", Network: n, Profile: &p,
					Range: lab.Range{First: netip.MustParseAddr("10.0.0.10"), Last: netip.MustParseAddr("10.0.0.20")}}}
			}
			_, err := files.Compile(l)
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(pos.String()+": "+tt.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPoolMachinesShareATemplatedPath(t *testing.T) {
	t.Parallel()
	p := &lab.Profile{Name: "p", Kernel: "k/{{.Network.Name}}/{{.Host.Role}}",
		Config: `{{if and .Network.Subnet (eq .Host.Role "pool")}}pool.ign{{else}}{{range .Host.Vars}}x{{end}}.ign{{end}}`}
	l := labWith(t, t.TempDir(), p)
	l.Hosts = nil
	l.Networks[0].Pools = []*lab.Pool{{Name: "dynamic", Network: l.Networks[0], Profile: p,
		Range: lab.Range{First: netip.MustParseAddr("10.0.0.10"), Last: netip.MustParseAddr("10.0.0.20")}}}
	files, err := files.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	if !files.Allowed("k/lan/pool") {
		t.Error("k/lan/pool is not allowed")
	}
	if _, err := files.Open("pool.ign"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("the document of the pool: %v", err)
	}
}

func BenchmarkCompile10kHosts(b *testing.B) {
	for _, config := range []string{"ignition/{{.Host.Role}}.ign", "ignition/{{.Host.Name}}.ign"} {
		b.Run(config, func(b *testing.B) {
			p := &lab.Profile{Name: "p", Kernel: "images/vmlinuz", Initrd: []string{"images/initrd"}, Config: config}
			l := &lab.Lab{Appliance: lab.Appliance{Files: "/srv"}, Profiles: []*lab.Profile{p}}
			for i := range 10_000 {
				l.Hosts = append(l.Hosts, &lab.Host{Name: fmt.Sprint("h", i), Role: "worker", Profile: p, MACs: []lab.MAC{{0x52, 0x54, 0, 0, byte(i >> 8), byte(i)}}})
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := files.Compile(l); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestTree: all of a medium is served, in whatever case its loaders write it, but no document that stands in it.
func TestTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "media/win/Boot/BCD", "media/win/sources/boot.wim", "media/win/unattend.xml", "media/win/ks/worker.ks", "media/other/x")
	l := labWith(t, dir, &lab.Profile{Name: "win", Kernel: "wimboot", Tree: "media/win", Initrd: []string{"media/win/boot/bcd"},
		Config: "media/win/unattend.xml", Documents: []string{"media/win/ks/{{.Host.Role}}.ks"}})
	files, err := files.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	for ask, want := range map[string]string{
		"media/win/boot/bcd": "", "MEDIA/WIN/BOOT/BCD": "", "media/win/sources/boot.wim": "",
		"media/win/unattend.xml": "permission", "media/win/ks/worker.ks": "permission", "media/win/KS/Worker.ks": "permission",
		"media/other/x": "permission", "media/win": "permission", "media/win/gone": "exist", "media/win/../other/x": "permission",
	} {
		f, err := files.OpenFold(ask)
		if err == nil {
			f.Close()
		}
		got := ""
		switch {
		case errors.Is(err, fs.ErrPermission):
			got = "permission"
		case errors.Is(err, fs.ErrNotExist):
			got = "exist"
		}
		if got != want {
			t.Errorf("%s: %q (%v), want %q", ask, got, err, want)
		}
	}
}

// TestDocumentsOfRemovedHosts: a host that leaves the lab takes the protection of its documents with it in no folder.
func TestDocumentsOfRemovedHosts(t *testing.T) {
	t.Parallel()
	for _, config := range []string{
		"public/{{.Host.Name}}.cfg", "public/{{.Host.Vars.rack}}/x.cfg", "media/{{.Host.Role}}/{{.Host.MAC.Hyphens}}.cfg", "docs/{{.Host.Name}}", "public/shared.cfg",
		"{{.Host.Vars.folder}}/{{.Host.Name}}.cfg",
	} {
		dir := t.TempDir()
		l := labWith(t, dir, &lab.Profile{Name: "p", Kernel: "k", Config: config}, &lab.Profile{Name: "tree", Kernel: "k", Tree: "media"})
		for _, h := range l.Hosts {
			h.Vars["folder"] = "public"
		}
		names := []string{"public/p-worker.cfg", "public/r1/x.cfg", "media/worker/52-54-00-00-00-00.cfg", "docs/p-worker", "public/shared.cfg"}
		write(t, dir, names...)
		refused := func(when string) (n int) {
			f, err := files.Compile(l)
			if err != nil {
				t.Fatalf("%s, %s: %v", config, when, err)
			}
			for _, name := range names {
				if file, err := f.Open(name); errors.Is(err, files.ErrSecret) {
					n++
				} else if err == nil {
					file.Close()
				}
			}
			return n
		}
		before := refused("with its hosts")
		l.Hosts = nil
		if after := refused("without"); before == 0 || after < before {
			t.Errorf("%s: %d documents were refused, and %d are without their hosts", config, before, after)
		}
	}
	for name, want := range map[string]string{
		"public/x.cfg": `profiles.p.config: "{{.Host.Vars.doc}}" may be any file, and is public/x.cfg for a host: everybody could fetch it once the host is removed: want a document outside of public`,
		"media/x.cfg":  `outside of media`,
		"docs/x.cfg":   "",
	} {
		l := labWith(t, t.TempDir(), &lab.Profile{Name: "p", Kernel: "k", Config: "{{.Host.Vars.doc}}"}, &lab.Profile{Name: "tree", Kernel: "k", Tree: "media"})
		for _, h := range l.Hosts {
			h.Vars["doc"] = name
		}
		if _, err := files.Compile(l); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// TestExposed: a copy of what is secret, and what is secret only as long as the lab names it, are reported, where everybody can fetch them.
func TestExposed(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	write(t, outside, "bmc")
	l := labWith(t, dir, &lab.Profile{Name: "p", Kernel: "public/k", Config: "docs/{{.Host.Name}}.cfg", Documents: []string{"public/late.cfg"}})
	l.Hosts[0].BMC = &lab.BMC{PasswordFile: filepath.Join(outside, "bmc")}
	write(t, dir, "public/k", "docs/p-worker.cfg", "docs/gone.cfg", "docs/empty.cfg", "public/other", "public/late.cfg")
	copies := map[string]string{"public/a": "docs/p-worker.cfg", "public/deep/down/b": "docs/gone.cfg", "public/password": "bmc", "public/same-size": "docs/p-xorker.cfg", "public/none": "", "docs/empty.cfg": ""}
	for name, text := range copies {
		write(t, dir, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("../docs/p-worker.cfg", filepath.Join(dir, "public/link")), os.Link(filepath.Join(dir, "docs/p-worker.cfg"), filepath.Join(dir, "public/hard")), syscall.Mkfifo(filepath.Join(dir, "public/fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	f, err := files.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range f.Exposed() {
		if p.Path == "" || !strings.HasPrefix(p.Message, p.Path+": ") {
			t.Errorf("%+v", p)
		}
		got = append(got, strings.ReplaceAll(strings.ReplaceAll(p.Message, dir+"/", ""), outside+"/", ""))
	}
	want := []string{
		"public/a: everybody can fetch it, and it has the content of docs/p-worker.cfg, which is secret: delete it",
		"public/deep/down/b: everybody can fetch it, and it has the content of docs/gone.cfg, which is secret: delete it",
		"public/late.cfg: everybody can fetch it once the lab file does not name it any more: want it outside of public",
		"public/password: everybody can fetch it, and it has the content of bmc, which is secret: delete it",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestUnserved: an image that no profile names, and that is not below public/, is a warning.
func TestUnserved(t *testing.T) {
	t.Parallel()
	l := &lab.Lab{
		Images:   []*lab.Image{{Path: "images/k"}, {Path: "images/stream"}, {Path: "public/b"}, {Path: "media/boot/x"}, {Path: "images/role/k"}, {Path: "images/alone"}, {Path: "images/kk"}},
		Profiles: []*lab.Profile{{Name: "p", Kernel: "images/k", Initrd: []string{"images/stream/initramfs", "images/role/{{.Host.Role}}"}, Tree: "media"}},
	}
	f, err := files.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range f.Unserved(l) {
		got = append(got, w.Key)
	}
	if want := []string{"images.images/alone", "images.images/kk"}; !slices.Equal(got, want) {
		t.Errorf("warnings about %q, want %q", got, want)
	}
}
