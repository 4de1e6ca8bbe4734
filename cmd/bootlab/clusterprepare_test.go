package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const talosLab = `version: 1
domain: lab.example
networks: {lan: {subnet: 10.125.8.0/24, address: 10.125.8.1}}
clusters:
  home: {kind: talos, address: 10.125.8.5}
profiles:
  talos: {os: talos, kernel: talos/vmlinuz, initrd: [talos/initramfs.xz], config: "talos/{{.Host.Role}}.yaml", install_to: /dev/sda}
hosts:
  cp-0: &cp {mac: "52:54:00:08:00:21", ip: 10.125.8.21, cluster: home, role: controlplane, profile: talos}
  cp-1: {<<: *cp, mac: "52:54:00:08:00:22", ip: 10.125.8.22}
  cp-2: {<<: *cp, mac: "52:54:00:08:00:23", ip: 10.125.8.23}
  worker-0: {mac: "52:54:00:08:00:24", ip: 10.125.8.24, cluster: home, role: worker, profile: talos}
`

const kubeadmLab = `version: 1
domain: lab.example
networks: {lan: {subnet: 10.125.9.0/24, address: 10.125.9.1}}
clusters:
  k8s: {kind: kubernetes, address: 10.125.9.5}
profiles:
  first: &p {os: cloud-init, kernel: k, initrd: [i], config: cloud/user-data, documents: [kubeadm/init.yaml]}
  more: {<<: *p, documents: ["kubeadm/join-{{.Host.Role}}.yaml"]}
hosts:
  cp-0: {mac: "52:54:00:09:00:21", ip: 10.125.9.21, cluster: k8s, role: control-plane, profile: first}
  cp-1: &n {mac: "52:54:00:09:00:22", ip: 10.125.9.22, cluster: k8s, role: control-plane, profile: more}
  worker-0: {<<: *n, mac: "52:54:00:09:00:24", ip: 10.125.9.24, role: worker}
`

// installerFolder copies testdata/NAME, edited. The documents of Talos are what the generator of Talos 1.13 writes, without its keys; their
// certificates are made here, the client's for one year as talosctl does.
func installerFolder(t *testing.T, name string, ends time.Time, edit ...string) string {
	t.Helper()
	encode := func(pem string) string { return base64.StdEncoding.EncodeToString([]byte(pem)) }
	edits := strings.NewReplacer(append(edit, "AUTHORITY", encode(certificate(t, time.Now().Add(10*365*24*time.Hour))), "CLIENT", encode(certificate(t, ends)))...)
	names, err := filepath.Glob(filepath.Join("testdata", name, "*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%v %v", names, err)
	}
	dir := t.TempDir()
	for _, from := range names {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		writeFiles(t, dir, map[string]string{filepath.Base(from): edits.Replace(string(text))})
	}
	return dir
}

func writeFiles(t *testing.T, dir string, texts map[string]string) {
	t.Helper()
	for name, text := range texts {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// editedLab writes a lab file.
func editedLab(t *testing.T, text string, edit ...string) string {
	t.Helper()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"lab.yaml": strings.NewReplacer(edit...).Replace(text)})
	return filepath.Join(dir, "lab.yaml")
}

// TestPrepareTalos: machine configurations go where the profiles look for them, that of one host to that host, and what is next is said.
func TestPrepareTalos(t *testing.T) {
	t.Parallel()
	year := time.Now().Add(364*24*time.Hour + time.Hour)
	path, dir := editedLab(t, talosLab), installerFolder(t, "talos", year)
	a := run(t.Context(), "talos", "prepare", dir, "--lab", path)
	step{args: "prepare", out: []string{
		"the certificates in talosconfig are valid until", "for 364 days", "controlplane.yaml: put in place", "worker.yaml: put in place", "bootlab up home",
		"Talos v1.13.7 boots https://github.com/siderolabs/talos/releases/download/v1.13.7/vmlinuz-amd64 and ",
		`warning: talos/initramfs.xz of profile talos is missing: want images: {talos/initramfs.xz: {url: "https://github.com/siderolabs/talos/releases/download/v1.13.7/initramfs-amd64.xz"`,
		"config endpoint 10.125.8.21 10.125.8.22 10.125.8.23", "-n 10.125.8.21 bootstrap",
	}}.check(t, a)
	step{args: "check", not: []string{"controlplane.yaml: file not found"}}.check(t, run(t.Context(), "check", "--lab", path))

	text, err := os.ReadFile(filepath.Join(dir, "worker.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	writeFiles(t, dir, map[string]string{"worker-0.yaml": strings.Replace(string(text), "auto: stable", "hostname: worker-0", 1)})
	own := editedLab(t, talosLab, "{{.Host.Role}}", "{{.Host.Name}}")
	step{args: "a host's own", out: []string{"worker-0.yaml: put in place", "files/talos/cp-2.yaml"}, not: []string{"hostname"}}.
		check(t, run(t.Context(), "talos", "prepare", dir, "--lab", own))
	step{args: "a host's own, and one path for its role", err: "nothing was copied", out: []string{"hosts.worker-1: reads talos/worker.yaml, where worker-0.yaml belongs too: want {{.Host.Name}} in the profile's config"}}.
		check(t, run(t.Context(), "talos", "prepare", dir, "--lab", editedLab(t, talosLab, "  worker-0:", "  worker-1: {mac: \"52:54:00:08:00:25\", ip: 10.125.8.25, cluster: home, role: worker, profile: talos}\n  worker-0:")))
	step{args: "one path for all", err: "nothing was copied", out: []string{"reads talos/all.yaml, where controlplane.yaml belongs too: want {{.Host.Role}}"}}.
		check(t, run(t.Context(), "talos", "prepare", dir, "--lab", editedLab(t, talosLab, "{{.Host.Role}}", "all")))
	writeFiles(t, dir, map[string]string{"worker.yaml": "# of mine\ngarbage\n"})
	step{args: "another document", err: "worker.yaml:2:1: is not a machine configuration of Talos"}.check(t, run(t.Context(), "talos", "prepare", dir, "--lab", path))
	writeFiles(t, dir, map[string]string{"worker.yaml": ""})
	step{args: "an empty document", err: "worker.yaml:1:1: is not a machine configuration of Talos"}.check(t, run(t.Context(), "talos", "prepare", dir, "--lab", path))
	step{args: "empty folder", err: "run talosctl gen config NAME https://api.NAME.DOMAIN:6443"}.
		check(t, run(t.Context(), "talos", "prepare", t.TempDir(), "--lab", path))
}

// TestPrepareTalosRefuses: what would keep the cluster from coming up is an error at its place in the document, and nothing is copied.
func TestPrepareTalosRefuses(t *testing.T) {
	t.Parallel()
	year := time.Now().Add(364 * 24 * time.Hour)
	const endpoint = "https://api.home.lab.example:6443"
	image := "images: {talos/vmlinuz: {url: \"https://github.com/siderolabs/talos/releases/download/v1.11.2/vmlinuz-amd64\", sha256: " + strings.Repeat("0", 64) + "}}\nprofiles:\n"
	for _, tt := range []struct {
		name, want string
		ends       time.Time
		lab, edit  []string
	}{
		{"endpoint", "controlplane.yaml:36:19: endpoint https://10.125.8.99:6443 leads to no cluster of the lab: want " + endpoint + ", of cluster home", year, nil, []string{endpoint, "https://10.125.8.99:6443"}},
		{"the line", "   36 |         endpoint: https://10.125.8.99:6443\n      |                   ^^^", year, nil, []string{endpoint, "https://10.125.8.99:6443"}},
		{"all errors at once", "hostname cp-9 would be the name of 3 machines", year, nil, []string{endpoint, "https://10.125.8.99:6443", "auto: stable", "hostname: cp-9"}},
		{"port", "want https://api.home.lab.example:6443", year, nil, []string{endpoint, "https://api.home.lab.example:443"}},
		{"cluster", "did you mean hone.lab.example?", year, []string{"home:", "hone:", "cluster: home", "cluster: hone"}, nil},
		{"kind", "clusters.home.kind: is openshift: want talos", year, []string{"kind: talos", "kind: openshift"}, nil},
		{"disk", "Talos would install to /dev/sda, and host cp-0 has install_to: /dev/vda", year, []string{"/dev/sda", "/dev/vda"}, nil},
		{"place of the disk", "lab.yaml:7:124): want the same disk in both", year, []string{"/dev/sda", "/dev/vda"}, nil},
		{"expired", "the certificate of talosconfig ended on", time.Now().Add(-time.Hour), nil, nil},
		{"ends soon", "the certificate of talosconfig ends on", time.Now().Add(time.Hour), nil, []string{endpoint, "https://10.125.8.99:6443"}},
		{"type", `machine type is "worker", and host cp-0`, year, nil, []string{"type: controlplane", "type: worker"}},
		{"two runs", "machine.token is not that of controlplane.yaml", year, nil, []string{"type: worker\n    token: abcdef", "type: worker\n    token: fedcba"}},
		{"hostname", "hostname cp-9 would be the name of 3 machines", year, nil, []string{"auto: stable", "hostname: cp-9"}},
		{"pods", "controlplane.yaml:41:15: 10.125.0.0/16 overlaps with networks.lan (10.125.8.0/24", year, nil, []string{"10.244.0.0/16", "10.125.0.0/16"}},
		{"services", "10.244.7.0/24 overlaps with 10.244.0.0/16", year, nil, []string{"10.96.0.0/12", "10.244.7.0/24"}},
		{"names", "certSANs has no 10.125.8.5", time.Now().Add(-time.Hour), nil, []string{"- 10.125.8.5", "- 10.125.8.6"}},
		{"role", "Talos has no bootstrap machine", year, []string{"role: worker", "role: bootstrap"}, nil},
		{"images", "images.talos/vmlinuz: is of Talos v1.11.2, and the documents install v1.13.7: want https://github.com/siderolabs/talos/releases/download/v1.13.7/vmlinuz-amd64", year, []string{"profiles:\n", image}, nil},
		{"YAML", "controlplane.yaml:7:7: not YAML", year, nil, []string{"    type: controlplane", "    type: {controlplane"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := editedLab(t, talosLab, tt.lab...)
			a := run(t.Context(), "talos", "prepare", "--no-images", installerFolder(t, "talos", tt.ends, tt.edit...), "--lab", path)
			if text := a.out + a.stderr; a.err == nil || !strings.Contains(text+a.err.Error(), tt.want) {
				t.Errorf("%v\n%s\nwant %s", a.err, text, tt.want)
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), "files")); err == nil {
				t.Error("something was copied")
			}
		})
	}
}

// TestPrepareKubernetes: configuration of kubeadm goes where the profiles name files of that name; where none does, it is compared alone.
func TestPrepareKubernetes(t *testing.T) {
	t.Parallel()
	path, dir := editedLab(t, kubeadmLab), installerFolder(t, "kubeadm", time.Time{})
	writeFiles(t, filepath.Dir(path), map[string]string{"files/cloud/user-data": "#cloud-config\npackages: [cri-o]\n"})
	a := run(t.Context(), "kubernetes", "prepare", dir, "--lab", path)
	step{args: "prepare", out: []string{
		"init.yaml: put in place", "join-control-plane.yaml: put in place", "join-worker.yaml: put in place", "kubeadm init --config init.yaml --upload-certs # on cp-0",
		"warning: cloud/user-data, which installs cp-0, does not mention containerd, whose socket init.yaml names", "want caCertHashes",
	}}.check(t, a)
	for _, name := range []string{"init.yaml", "join-control-plane.yaml", "join-worker.yaml"} {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "files", "kubeadm", name)); err != nil {
			t.Error(err)
		}
	}
	noDocuments := editedLab(t, kubeadmLab, ", documents: [kubeadm/init.yaml]", "", `, documents: ["kubeadm/join-{{.Host.Role}}.yaml"]`, "")
	step{args: "by hand", out: []string{"init.yaml fits cluster k8s of the lab"}, not: []string{"put in place"}}.check(t, run(t.Context(), "kubernetes", "prepare", filepath.Join(dir, "init.yaml"), "--lab", noDocuments))
	step{args: "empty folder", err: "kubeadm config print init-defaults"}.check(t, run(t.Context(), "kubernetes", "prepare", t.TempDir(), "--lab", path))
}

// TestPrepareKubernetesLacks: a document that a host's profile names and the folder lacks is an error, unless one file was given.
func TestPrepareKubernetesLacks(t *testing.T) {
	t.Parallel()
	path, dir := editedLab(t, kubeadmLab), installerFolder(t, "kubeadm", time.Time{})
	if err := os.Remove(filepath.Join(dir, "join-worker.yaml")); err != nil {
		t.Fatal(err)
	}
	const lacks = "hosts.worker-0: reads kubeadm/join-worker.yaml, and the folder has no configuration of kubeadm of that name"
	step{args: "no join-worker.yaml", err: "nothing was copied", out: []string{lacks}}.check(t, run(t.Context(), "kubernetes", "prepare", dir, "--lab", path))
	if _, err := os.Stat(filepath.Join(filepath.Dir(path), "files")); err == nil {
		t.Error("something was copied")
	}
	step{args: "one file", out: []string{"init.yaml: put in place"}, not: []string{lacks}}.check(t, run(t.Context(), "kubernetes", "prepare", filepath.Join(dir, "init.yaml"), "--lab", path))
	others := editedLab(t, kubeadmLab, "[kubeadm/init.yaml]", "[kubeadm/init.yaml, kubeadm/network.yaml]", "role: worker}", "role: worker, profile: other}",
		"hosts:", "  other: {<<: *p, documents: [other/setup.yaml, kubeadm/setup.sh]}\nhosts:")
	step{args: "documents of others", out: []string{"init.yaml: put in place"}}.check(t, run(t.Context(), "kubernetes", "prepare", dir, "--lab", others))
}

// TestPrepareKubernetesRefuses: what would keep machines from joining is an error at its place in the document, and nothing is copied.
func TestPrepareKubernetesRefuses(t *testing.T) {
	t.Parallel()
	const endpoint, ttl = "api.k8s.lab.example:6443", "ttl: 24h0m0s"
	for _, tt := range []struct {
		name, want string
		lab, edit  []string
	}{
		{"endpoint", `init.yaml:22:23: endpoint "10.125.9.99:6443" leads to no cluster of the lab: want ` + endpoint, nil, []string{endpoint, "10.125.9.99:6443"}},
		{"a join that leads elsewhere", `join-worker.yaml:5:24: endpoint "kube-apiserver:6443"`, nil, []string{"apiServerEndpoint: " + endpoint, "apiServerEndpoint: kube-apiserver:6443"}},
		{"port", "want api.k8s.lab.example:6443", nil, []string{endpoint, "api.k8s.lab.example:443"}},
		{"all errors at once", "init.yaml:13:21: advertiseAddress 1.2.3.4", nil, []string{"controlPlaneEndpoint: " + endpoint + "\n", "", "10.125.9.21", "1.2.3.4", "apiServerEndpoint: " + endpoint, ""}},
		{"no endpoint", "ClusterConfiguration has no controlPlaneEndpoint", nil, []string{"controlPlaneEndpoint: " + endpoint + "\n", ""}},
		{"kind", "clusters.k8s.kind: is talos: want kubernetes", []string{"kind: kubernetes", "kind: talos"}, nil},
		{"address", "advertiseAddress 1.2.3.4 is no control-plane host of cluster k8s: it is the example of kubeadm config print; want 10.125.9.21, of cp-0", nil, []string{"10.125.9.21", "1.2.3.4"}},
		{"bind port", "bindPort 8443", nil, []string{"bindPort: 6443", "bindPort: 8443"}},
		{"name", "node name cp-9 is no host of cluster k8s: did you mean cp-0?", nil, []string{"name: cp-0", "name: cp-9"}},
		{"token of the example", "the example of kubeadm config print, which everybody knows", nil, []string{"k2q8zd.w1m5cz0h7t9pbx3e", "abcdef.0123456789abcdef"}},
		{"no token", "is no bootstrap token", nil, []string{"k2q8zd.w1m5cz0h7t9pbx3e", "K2Q8ZD.x"}},
		{"another token", "the token is none that InitConfiguration makes", nil, []string{"token: k2q8zd.w1m5cz0h7t9pbx3e\n  ttl", "token: k2q8zd.w1m5cz0h7t9pbx3f\n  ttl"}},
		{"expired", "the bootstrap token ended", nil, []string{ttl, `expires: "2026-01-01T00:00:00Z"`}},
		{"expires", `expires "tomorrow" is no time`, nil, []string{ttl, "expires: tomorrow"}},
		{"ttl", `ttl "a day" is no duration`, nil, []string{ttl, "ttl: a day"}},
		{"certificate key", "is no certificate key", nil, []string{"certificateKey: 3c5f", "certificateKey: 3c5"}},
		{"a certificate key of one side", "join-control-plane.yaml:4:19: certificateKey is one that InitConfiguration (", nil, []string{"certificateKey: 3c5f9d0a7be148d2a6f1c0b9e4d7735a1f2e6b8c9d0e4f5a6b7c8d9e0f1a2b3c\nlocalAPIEndpoint", "localAPIEndpoint"}},
		{"another certificate key", "certificateKey is not that of InitConfiguration", nil, []string{"controlPlane:\n  certificateKey: 3c", "controlPlane:\n  certificateKey: 4c"}},
		{"socket", "criSocket /run/containerd.sock is no URL", nil, []string{"unix:///var/run/containerd/containerd.sock\n  name", "/run/containerd.sock\n  name"}},
		{"hash", "neither caCertHashes nor unsafeSkipCAVerification", nil, []string{"    unsafeSkipCAVerification: true\n", ""}},
		{"pods", "10.125.0.0/16 overlaps with networks.lan (10.125.9.0/24", nil, []string{"10.244.0.0/16", "10.125.0.0/16"}},
		{"one subnet", "pods and services could have the same addresses; want another subnet", nil, []string{"10.96.0.0/12", "10.244.0.0/16"}},
		{"kind of a document", `init.yaml:2:7: kind "IntConfiguration" is not known to kubeadm: did you mean InitConfiguration?`, nil, []string{"kind: InitConfiguration", "kind: IntConfiguration"}},
		{"no token to compare with", "the token was not compared: no InitConfiguration here has bootstrapTokens", nil, []string{"kind: InitConfiguration", "kind: IntConfiguration"}},
		{"version", "kubeadm.k8s.io/v1beta2 is none that kubeadm reads today", nil, []string{"v1beta4", "v1beta2"}},
		{"two inits", "hosts.cp-1: reads kubeadm/init.yaml, with which cp-0 runs kubeadm init", []string{"profile: more", "profile: first"}, nil},
		{"a worker that controls", "which makes a control-plane machine of it", []string{"join-{{.Host.Role}}", "join-control-plane"}, nil},
		{"a control plane that works", "which makes a worker of it", []string{"join-{{.Host.Role}}", "join-worker"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := editedLab(t, kubeadmLab, tt.lab...)
			a := run(t.Context(), "kubernetes", "prepare", installerFolder(t, "kubeadm", time.Time{}, tt.edit...), "--lab", path)
			step{args: "prepare", err: "nothing was copied", out: []string{tt.want}}.check(t, a)
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), "files")); err == nil {
				t.Error("something was copied")
			}
		})
	}
}
