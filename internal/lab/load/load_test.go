package load_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/test/support/golden"
)

// folder writes files into a new folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLoadFolder(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		files map[string]string
		want  string // problems, DIR for the folder; empty: none
	}{
		{
			name: "merged",
			files: map[string]string{
				"10-net.yaml":   head + "networks: {lan: {subnet: 10.1.2.0/24, dhcp: off}}\nappliance: {http: ':80'}\n",
				"20-hosts.yml":  "version: 1\nhosts: {a: {ip: 10.1.2.5}}\nappliance: {tftp: ':6969'}\n",
				"30-hosts.yaml": "# more\nhosts:\n  b: {ip: 10.1.2.6}\n",
				"40-none.yaml":  "# nothing yet\n",
				"notes.txt":     "not: [a lab",
				".hidden.yaml":  "not: [a lab",
			},
		},
		{
			name: "clashes",
			files: map[string]string{
				"a.yaml": head + "lab: x\nhosts: {a: {ip6: 'fd00::1'}}\nappliance: {http: ':80'}\ndns: {forward: [9.9.9.9]}\n",
				"b.yaml": "lab: y\nhosts: {a: {ip6: 'fd00::2'}}\nappliance: {http: ':81'}\ndns: {forward: [1.1.1.1]}\n",
			},
			want: `DIR/b.yaml:1:6: lab: is defined here and at DIR/a.yaml:3:6: want it in one file
DIR/b.yaml:2:9: hosts.a: is defined twice, here and at DIR/a.yaml:4:9: want it once
DIR/b.yaml:3:19: appliance.http: is defined here and at DIR/a.yaml:5:19: want it in one file
DIR/b.yaml:4:16: dns.forward: is defined here and at DIR/a.yaml:6:16: want it in one file`,
		},
		{
			name:  "one file is not YAML",
			files: map[string]string{"a.yaml": head, "b.yaml": "hosts: [\n"},
			want:  "DIR/b.yaml:1:8: not YAML: [ is not closed: want ] at the end of the list",
		},
		{
			name:  "across files",
			files: map[string]string{"a.yaml": head + "hosts: {a: {ip6: 'fd00::1'}}\n", "b.yaml": "hosts: {b: {ip6: 'fd00::1', role: [x]}}\n"},
			want: `DIR/b.yaml:1:18: hosts.b.ip6: fd00::1 is already used by host a (DIR/a.yaml:3:18): want another address
DIR/b.yaml:1:35: hosts.b.role: is a list: want one value`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t, tt.files)
			l, err := load.Lab(dir, load.Options{})
			if err != nil {
				got := strings.ReplaceAll(err.Error(), dir, "DIR")
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("problems (-want +got):\n%s", diff)
				}
				return
			}
			if tt.want != "" || len(l.Hosts) != 2 || l.Appliance.HTTPPort != 80 || l.Appliance.TFTP[0].Port() != 6969 || l.Dir != dir || len(l.Files) != 4 {
				t.Errorf("loaded %+v, want problems %q", l, tt.want)
			}
		})
	}
}

func TestLoadMissing(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"testdata/none.yaml", t.TempDir()} {
		if l, err := load.Lab(path, load.Options{}); err == nil {
			t.Errorf("%s loads: %v", path, l)
		}
	}
}

func TestFilesNotFound(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"lab.yaml": head + `
networks: {lan: {subnet: 10.1.2.0/24, address: 10.1.2.1, pools: {p: {range: 10.1.2.50-10.1.2.90}}}}
profiles:
  p: {kernel: k, initrd: [there, gone], config: "{{.Host.Role }}.ign", args: ["{{.Host.Name}}"]}
  q: {kernel: "k-{{.Host.Name}}"}
hosts:
  a: {mac: 52:54:00:00:00:01, role: worker, profile: p}
  b: {mac: 52:54:00:00:00:02, role: master, profile: p, bmc: {ipmi: 10.1.9.9, password_file: secret}}
  c: {mac: 52:54:00:00:00:03, role: master, profile: p, bmc: {ipmi: 10.1.9.8, password_file: secret}}
dns: {zones: {z.example: {file: z.zone}}}
images: {gone: {stream: rhcos.json}}
`})
	if err := os.Mkdir(filepath.Join(dir, "files"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"there", "master.ign"} {
		if err := os.WriteFile(filepath.Join(dir, "files", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"profiles.p.kernel: DIR/files/k", "profiles.p.initrd[1]: DIR/files/gone", "profiles.p.config: DIR/files/worker.ign",
		"hosts.b.bmc.password_file: DIR/secret", "images.gone.stream: DIR/rhcos.json",
	}
	l, err := load.Lab(filepath.Join(dir, "lab.yaml"), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range l.Warnings {
		message, _, _ := strings.Cut(w.Message, ": file not found")
		got = append(got, w.Key+": "+strings.ReplaceAll(message, dir, "DIR"))
		if pulled := strings.HasSuffix(w.Message, "bootlab images pull fetches it"); pulled != strings.HasSuffix(message, "/gone") {
			t.Errorf("%s: %s", w.Key, w.Message)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// TestText loads values that YAML would type in its own way.
func TestText(t *testing.T) {
	t.Parallel()
	l := parse(t, `
lab: 0123
networks:
  lan:
    subnet: 10.1.2.0/24
    dhcp: off
    mtu: "1500"
    options: {150: 10.1.2.1, 43: "hex:01:04", 66: "text:a:b", 23: "u8:64", 2: "u32:256", 4: "10.1.2.1, 10.1.2.2"}
hosts:
  a: {mac: 10:20:30:40:50:59, ip: 10.1.2.5, vars: {n: 3, f: 1.5, b: true, s: "3", l: [a, {x: y}], nothing: ~}}
  b: {mac: [0A-0b-0C-0d-0e-0f], ip: 10.1.2.6}
balancers:
  x: {listen: ":1", backends: ["10.1.2.5:1"], send_proxy: off, check: {kind: http, expect: 200, port: "80"}}
  y: {listen: ":2", backends: ["10.1.2.5:1"], send_proxy: "v2"}
`)
	n := l.Networks[0]
	wantOptions := []lab.Option{
		{Code: 2, Data: []byte{0, 0, 1, 0}}, {Code: 4, Data: []byte{10, 1, 2, 1, 10, 1, 2, 2}}, {Code: 23, Data: []byte{64}},
		{Code: 43, Data: []byte{1, 4}}, {Code: 66, Data: []byte("a:b")}, {Code: 150, Data: []byte{10, 1, 2, 1}},
	}
	if diff := cmp.Diff(wantOptions, n.Options); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	wantVars := map[string]any{"n": 3, "f": 1.5, "b": true, "s": "3", "l": []any{"a", map[string]any{"x": "y"}}, "nothing": nil}
	if diff := cmp.Diff(wantVars, l.Host("a").Vars); diff != "" {
		t.Errorf("vars (-want +got):\n%s", diff)
	}
	if l.Name != "0123" || n.DHCP != lab.DHCPOff || n.MTU != 1500 || l.Host("a").MACs[0].String() != "10:20:30:40:50:59" || l.Host("b").MACs[0].Hyphens() != "0a-0b-0c-0d-0e-0f" {
		t.Errorf("lab %q, dhcp %q, mtu %d, macs %v %v", l.Name, n.DHCP, n.MTU, l.Host("a").MACs, l.Host("b").MACs)
	}
	if x, y := l.Balancers[0], l.Balancers[1]; x.SendProxy != 0 || y.SendProxy != 2 || x.Check.Port != 80 {
		t.Errorf("send_proxy %d and %d, port %d", x.SendProxy, y.SendProxy, x.Check.Port)
	}
}

// TestMerge holds what "<<" and aliases give: the key beside it wins, then the first mapping of a list.
func TestMerge(t *testing.T) {
	t.Parallel()
	l := parse(t, `
hosts:
  a: &a {mac: 52:54:00:00:00:01, role: worker, vars: &v {x: 1, y: 2}}
  b: &b {<<: *a, mac: 52:54:00:00:00:02, role: second}
  c: {role: other, <<: [{mac: 52:54:00:00:00:03}, *b], vars: {<<: *v, y: 3}}
`)
	got := map[string]string{}
	for _, h := range l.Hosts {
		got[h.Name] = h.MACs[0].String() + " " + h.Role
	}
	want := map[string]string{"a": "52:54:00:00:00:01 worker", "b": "52:54:00:00:00:02 second", "c": "52:54:00:00:00:03 other"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]any{"x": 1, "y": 3}, l.Host("c").Vars); diff != "" {
		t.Errorf("vars (-want +got):\n%s", diff)
	}
}

// TestLoadAppliance is about a command line that must find its daemon while the lab file is broken.
func TestLoadAppliance(t *testing.T) {
	t.Parallel()
	const fallback = "/run/bootlab/admin.sock"
	for _, tt := range []struct{ name, text, want string }{
		{"good", "version: 1\nlab: x\nappliance: {admin_socket: /tmp/a.sock}\n", "/tmp/a.sock"},
		{"unknown key", "version: 1\nlab: x\nappliance: {admin_socket: /tmp/a.sock}\nfoo: 1\n", "/tmp/a.sock"},
		{"wrong host", "version: 1\nlab: x\nappliance: {admin_socket: /tmp/a.sock}\nhosts: {a: {mac: nonsense}}\n", "/tmp/a.sock"},
		{"not YAML", "version: 1\nappliance: {admin_socket\n", fallback},
		{"not YAML below", "version: 1\nappliance:\n  # where we are\n  admin_socket: /tmp/a.sock\n\n  user: root\nhosts: [\n", "/tmp/a.sock"},
		{"not YAML above", "hosts: [\nappliance: {admin_socket: /tmp/a.sock} # one line\nbad\n", "/tmp/a.sock"},
		{"a tab", "version: 1\nappliance: {admin_socket: /tmp/a.sock}\nhosts:\n\tx: 1\n", "/tmp/a.sock"},
		{"empty", "", fallback},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "lab.yaml")
			if err := os.WriteFile(path, []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
			if got := load.Appliance(path).AdminSocket; got != tt.want {
				t.Errorf("admin socket %q, want %q", got, tt.want)
			}
		})
	}
	if got := load.Appliance("/nowhere/lab.yaml").AdminSocket; got != fallback {
		t.Errorf("without a lab file: %q, want %q", got, fallback)
	}
}

// TestLimits feeds what is meant to hurt: it must be refused with a place, and soon.
func TestLimits(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 1<<20)
	tests := []struct{ name, text, want string }{
		{"deep flow", "a: " + deep, "not YAML"},
		{"deep block", "a:\n" + blocks(20000), "not YAML"},
		{"deep vars", head + "hosts: {a: {ip6: 'fd00::1', vars: {x: " + deep[:200] + strings.Repeat("]", 200) + "}}}", "deeper than 100 levels"},
		{"large", strings.Repeat("#", 16<<20+1), "larger than 16 MiB"},
		{"binary", "\x00\x01\x02", "not YAML"},
		{"not UTF-8", "a: \xff\xfe", "not YAML"},
		{"too many routes", head + "networks: {a: {subnet: 10.0.0.0/8, address: 10.0.0.1, routes: [" + strings.Repeat("{to: 172.16.0.0/12, via: 10.0.0.2}, ", 101) + "]}}", "101 routes do not fit in one message: want 100 or fewer"},
		{"long key", head + strings.Repeat("k", 5000) + ": 1\n", "unknown key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := load.Parse("lab.yaml", []byte(tt.text), load.Options{})
			var problems lab.Problems
			if !errors.As(err, &problems) || !strings.Contains(err.Error(), tt.want) || problems[0].Pos.Line < 1 {
				t.Errorf("error %.200v, want %q with a place", err, tt.want)
			}
		})
	}
}

// blocks nests n lists, one in a line.
func blocks(n int) string {
	var b strings.Builder
	for range n {
		b.WriteString("- ")
	}
	return b.String()
}

// TestPipe: a pipe without a writer is read as an empty file, without waiting.
func TestPipe(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "lab.yaml")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Skip(err)
	}
	for _, path := range []string{name, filepath.Dir(name)} {
		if _, err := load.Lab(path, load.Options{}); err == nil || !strings.Contains(err.Error(), "version: is missing") {
			t.Errorf("%s: %v, want that the version is missing", path, err)
		}
	}
}

const wantMark = "# want: "

// TestInvalid loads every testdata/invalid-*.yaml and compares the problems with the "# want: " lines at its end.
func TestInvalid(t *testing.T) {
	names, err := filepath.Glob("testdata/invalid-*.yaml")
	if err != nil || len(names) < 30 {
		t.Fatalf("invalid labs: %d, %v", len(names), err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			body, _, _ := strings.Cut(string(data), wantMark)
			_, err = load.Parse(filepath.Base(name), []byte(body), load.Options{FileExists: noFiles})
			var problems lab.Problems
			if !errors.As(err, &problems) {
				t.Fatalf("error %v, want Problems", err)
			}
			got := wantMark + strings.ReplaceAll(err.Error(), "\n", "\n"+wantMark) + "\n"
			golden.Check(t, update, name, body+got)
		})
	}
}

// TestRoles: other words for a role mean the same to clusters, and templates see the word as written.
func TestRoles(t *testing.T) {
	t.Parallel()
	l := parse(t, `
networks: {lan: {subnet: 10.1.2.0/24, address: 10.1.2.1}}
clusters: {c: {kind: openshift, address: 10.1.2.3}}
hosts:
  b: {mac: 52:54:00:00:00:01, ip: 10.1.2.11, cluster: c, role: Bootstrap}
  m: {mac: 52:54:00:00:00:02, ip: 10.1.2.12, cluster: c, role: master}
  w: {mac: 52:54:00:00:00:03, ip: 10.1.2.13, cluster: c, role: Worker}
  x: {mac: 52:54:00:00:00:04, ip: 10.1.2.14, cluster: c, role: control_plane}
  y: {mac: 52:54:00:00:00:05, ip: 10.1.2.15, cluster: c, role: control-plane}
`)
	got := ""
	for _, b := range l.Balancers {
		got += b.Name
		for _, m := range b.Backends {
			got += " " + m.Name
		}
		got += "\n"
	}
	for _, h := range l.Hosts {
		got += h.Role + "=" + h.WrittenRole() + " "
	}
	const want = "c-api m x y b\nc-ingress-http w\nc-ingress-https w\nc-machine-config m x y b\n" +
		"bootstrap=Bootstrap control-plane=master worker=Worker control-plane=control_plane control-plane=control-plane "
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(l.Warnings) > 0 {
		t.Errorf("warnings: %v", l.Warnings)
	}
}

// TestClusterWarnings: a cluster that cannot come up is said so at check.
func TestClusterWarnings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, hosts, want string }{
		{"no control plane", "w: {mac: 52:54:00:00:00:03, ip: 10.1.2.13, cluster: c, role: worker}", "clusters.c: no host of the cluster has role control-plane and an ip: nothing answers at api.c.lab.example"},
		{"two members", "a: {mac: 52:54:00:00:00:03, ip: 10.1.2.13, cluster: c, role: master}\n  b: {mac: 52:54:00:00:00:04, ip: 10.1.2.14, cluster: c, role: master}",
			"clusters.c: 2 hosts have role control-plane: etcd with 2 members survives no more failures than with 1; want 1, 3 or 5"},
		{"worker without address", "a: {mac: 52:54:00:00:00:03, ip: 10.1.2.13, cluster: c, role: master}\n  w: {mac: 52:54:00:00:00:04, cluster: c, role: worker}",
			"hosts.w: has no ip: the balancers of *.apps.c.lab.example leave it out"},
		{"control plane without address", "a: {mac: 52:54:00:00:00:03, ip: 10.1.2.13, cluster: c, role: master}\n  b: {mac: 52:54:00:00:00:04, cluster: c, role: master}",
			"hosts.b: has no ip: the balancers of api.c.lab.example leave it out"},
		{"misspelled", "a: {mac: 52:54:00:00:00:03, ip: 10.1.2.13, cluster: c, role: master}\n  w: {mac: 52:54:00:00:00:04, ip: 10.1.2.14, cluster: c, role: wroker}",
			"hosts.w.role: \"wroker\" means nothing to cluster c: did you mean worker?"},
		{"part of a role", "a: {mac: 52:54:00:00:00:03, ip: 10.1.2.13, cluster: c, role: master}\n  w: {mac: 52:54:00:00:00:04, ip: 10.1.2.14, cluster: c, role: Master-Node}",
			"hosts.w.role: \"Master-Node\" means nothing to cluster c: did you mean control-plane?"},
		{"part of worker", "a: {mac: 52:54:00:00:00:03, ip: 10.1.2.13, cluster: c, role: master}\n  w: {mac: 52:54:00:00:00:04, ip: 10.1.2.14, cluster: c, role: gpu-worker}",
			"hosts.w.role: \"gpu-worker\" means nothing to cluster c: did you mean worker?"},
		{"none", "a: {mac: 52:54:00:00:00:03, ip: 10.1.2.13, cluster: c, role: master}\n  w: {mac: 52:54:00:00:00:04, ip: 10.1.2.14, cluster: c}",
			"hosts.w: has no role: no balancer of cluster c uses it"},
		{"etcd_srv", "", "clusters.c.etcd_srv: the cluster has no host with role control-plane and an ip: no SRV record is made"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := parse(t, "networks: {lan: {subnet: 10.1.2.0/24, address: 10.1.2.1, pools: {p: {range: 10.1.2.100-10.1.2.120}}}}\n"+
				"clusters: {c: {kind: openshift, address: 10.1.2.3, etcd_srv: true}}\nhosts:\n  "+tt.hosts+"\n")
			if len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0].Error(), tt.want) {
				t.Errorf("warnings %v, want %s", l.Warnings, tt.want)
			}
		})
	}
}

// TestClusterWithoutAddress: a cluster without an address has no name api, and kubernetes no bootstrap.
func TestClusterWithoutAddress(t *testing.T) {
	t.Parallel()
	got := parse(t, "networks: {lan: {subnet: 10.1.2.0/24, address: 10.1.2.1}}\nclusters: {c: {kind: kubernetes}}\nhosts: {w: {mac: 52:54:00:00:00:03, ip: 10.1.2.13, cluster: c, role: worker}}\n").Warnings
	if len(got) != 1 || !strings.HasSuffix(got[0].Error(), "clusters.c: no host of the cluster has role control-plane and an ip") {
		t.Errorf("warnings %v", got)
	}
}

// TestPlainWithoutEtcd: a cluster of kind plain has SRV records of etcd, too, if it has members.
func TestPlainWithoutEtcd(t *testing.T) {
	t.Parallel()
	const text = "networks: {lan: {subnet: 10.1.2.0/24, address: 10.1.2.1}}\nclusters: {c: {kind: plain, etcd_srv: true}}\n"
	if got := parse(t, text+"hosts: {a: {mac: 52:54:00:00:00:03, ip: 10.1.2.13, cluster: c, role: worker}}\n").Warnings.Error(); !strings.Contains(got, "no SRV record is made") {
		t.Errorf("warnings %s", got)
	}
	if got := parse(t, text+"hosts: {a: {mac: 52:54:00:00:00:03, ip: 10.1.2.13, cluster: c, role: master}}\n").Warnings; len(got) > 0 {
		t.Errorf("warnings %s", got.Error())
	}
}

// TestWithoutBootstrap: machines of a control plane that install themselves with a document of openshift-install wait for a bootstrap machine.
// Which of them need none: those whose cluster balances itself, and those that boot without a document.
func TestWithoutBootstrap(t *testing.T) {
	t.Parallel()
	const three = "\n  a: {mac: 52:54:00:00:00:03, ip: 10.1.2.13, cluster: c, role: master, profile: p}\n  b: {mac: 52:54:00:00:00:04, ip: 10.1.2.14, cluster: c, role: master, profile: p}" +
		"\n  d: {mac: 52:54:00:00:00:05, ip: 10.1.2.15, cluster: c, role: master, profile: p}"
	for _, tt := range []struct {
		name, cluster, profile, hosts string
		warns                         bool
	}{
		{"none", "kind: openshift", "config: c.ign, ", three, true},
		{"it has one", "kind: openshift", "config: c.ign, ", three + "\n  z: {mac: 52:54:00:00:00:06, ip: 10.1.2.16, cluster: c, role: bootstrap, profile: p}", false},
		{"kubernetes", "kind: kubernetes", "config: c.ign, ", three, false},
		{"it balances itself", "kind: openshift, balancer: off", "config: c.ign, ", three, false},
		{"a single node", "kind: openshift", "config: c.ign, ", "\n  a: {mac: 52:54:00:00:00:03, ip: 10.1.2.13, cluster: c, role: master, profile: p}", true},
		{"no document", "kind: openshift", "", three, false},
		{"never installed", "kind: openshift", "config: c.ign, install: never, ", three, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := parse(t, "networks: {lan: {subnet: 10.1.2.0/24, address: 10.1.2.1}}\nprofiles: {p: {os: coreos, kernel: k, initrd: [i], "+tt.profile+"install_to: /dev/vda}}\n"+
				"clusters: {c: {address: 10.1.2.3, "+tt.cluster+"}}\nhosts:"+tt.hosts+"\n")
			warns := slices.ContainsFunc(l.Warnings, func(w *lab.Problem) bool {
				return strings.Contains(w.Error(), "clusters.c: no host has role bootstrap: ") && strings.Contains(w.Error(), "https://api-int.c.lab.example:22623")
			})
			if warns != tt.warns {
				t.Errorf("warnings %v", l.Warnings)
			}
		})
	}
}

// TestBootstrapInPlace: a single control-plane host needs no bootstrap machine if its document gets nothing from port 22623, or if it has the
// cluster's address and no document yet.
func TestBootstrapInPlace(t *testing.T) {
	t.Parallel()
	const merges = `{"ignition": {"version": "3.4.0", "config": {"merge": [{"source": "https://api-int.c.lab.example:22623/config/master"}]}}}`
	const inPlace = `{"ignition": {"version": "3.4.0"}, "systemd": {"units": [{"name": "bootkube.service", "enabled": true}]}}`
	for _, tt := range []struct {
		name, address, config, document string
		warns                           bool
	}{
		{"it merges", "10.1.2.3", "{{.Host.Role}}.ign", merges, true},
		{"it merges, at its own address", "10.1.2.13", "{{.Host.Role}}.ign", merges, true},
		{"in place", "10.1.2.3", "{{ .Host.Role }}.ign", inPlace, false},
		{"in place, at its own address", "10.1.2.13", "master.ign", inPlace, false},
		{"no document yet", "10.1.2.3", "{{.Host.Role}}.ign", "", true},
		{"no document yet, at its own address", "10.1.2.13", "{{.Host.Role}}.ign", "", false},
		{"an unknown document", "10.1.2.3", "{{.Host.Vars.x}}.ign", inPlace, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if tt.document != "" {
				dir = folder(t, map[string]string{"master.ign": tt.document})
			}
			l := parse(t, "appliance: {files: '"+dir+"'}\nnetworks: {lan: {subnet: 10.1.2.0/24, address: 10.1.2.1}}\n"+
				"profiles: {p: {os: coreos, kernel: k, initrd: [i], install_to: /dev/vda, config: '"+tt.config+"'}}\nclusters: {c: {kind: openshift, address: "+tt.address+"}}\n"+
				"hosts: {a: {mac: 52:54:00:00:00:03, ip: 10.1.2.13, cluster: c, role: master, profile: p, vars: {x: master}}}\n")
			if got := strings.Contains(l.Warnings.Error(), "no host has role bootstrap"); got != tt.warns || l.Cluster("c").LacksBootstrap() != tt.warns {
				t.Errorf("warnings %v, want one: %t", l.Warnings, tt.warns)
			}
		})
	}
}

// TestOpenForwarder: who lets the internet use the forwarder is warned.
func TestOpenForwarder(t *testing.T) {
	t.Parallel()
	for allow, want := range map[string]bool{
		"0.0.0.0/0": true, "::/0": true, "128.0.0.0/1": true, "2000::/3": true,
		"10.0.0.0/8": false, "192.0.2.0/24": false, "fc00::/7": false, "fe80::/10": false, "2001:db8::/32": false,
	} {
		l := parse(t, "dns: {forward: [9.9.9.9], allow: ['"+allow+"']}\n")
		if got := len(l.Warnings) == 1 && strings.Contains(l.Warnings[0].Error(), "dns.allow[0]: "+allow+" covers the internet"); got != want || !want && len(l.Warnings) > 0 {
			t.Errorf("allow: [%s]: warnings %v, want one: %t", allow, l.Warnings, want)
		}
	}
}
