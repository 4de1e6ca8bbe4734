package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const prepareLab = `version: 1
domain: example.com
networks: {lan: {subnet: 10.1.2.0/24, address: 10.1.2.1}}
profiles: {rhcos: {os: coreos, kernel: k, initrd: [i], rootfs: r, config: "ignition/{{.Host.Role}}.ign", install_to: /dev/vda}}
clusters: {ocp4: {kind: openshift, address: 10.1.2.10}}
hosts:
  boot: {mac: 52:54:00:00:00:01, ip: 10.1.2.20, cluster: ocp4, role: bootstrap, profile: rhcos}
  m0: &m {mac: 52:54:00:00:00:02, ip: 10.1.2.21, cluster: ocp4, role: master, profile: rhcos}
  m1: {<<: *m, mac: 52:54:00:00:00:03, ip: 10.1.2.22}
  m2: {<<: *m, mac: 52:54:00:00:00:04, ip: 10.1.2.23}
  w0: {mac: 52:54:00:00:00:05, ip: 10.1.2.24, cluster: ocp4, role: worker, profile: rhcos}
`

// installConfig is the installer's input, as OpenShift's documentation has it.
const installConfig = `apiVersion: v1
baseDomain: example.com
compute: [{hyperthreading: Enabled, name: worker, replicas: 1}]
controlPlane: {hyperthreading: Enabled, name: master, replicas: 3}
metadata: {name: ocp4}
platform: {none: {}}
pullSecret: '{"auths": {}}'
`

// installFolder writes what one run of openshift-install create ignition-configs writes, in the shape of Ignition 3.2, with a certificate that
// ends then. The installer itself is not at hand in tests.
func installFolder(t *testing.T, ends time.Time, config string) string {
	t.Helper()
	data := func(text string) string {
		return "data:text/plain;charset=utf-8;base64," + base64.StdEncoding.EncodeToString([]byte(text))
	}
	manifest := "apiVersion: v1\ndata:\n  install-config: |\n    " + strings.ReplaceAll(strings.TrimSpace(config), "\n", "\n    ") + "\nkind: ConfigMap\n"
	root := data(certificate(t, time.Now().Add(10*365*24*time.Hour)))
	bootstrap := fmt.Sprintf(`{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/opt/openshift/tls/aggregator-ca.crt","contents":{"source":"%s"}},`+
		`{"path":"/opt/openshift/tls/root-ca.crt","contents":{"source":"%s"}},{"path":"/opt/openshift/manifests/cluster-config.yaml","contents":{"source":"%s"}}]},`+
		`"systemd":{"units":[{"name":"x.service","contents":"ExecStart=podman inspect --format '{{.Id}}'"}]}}`,
		data(certificate(t, ends)), root, data(manifest))
	pointer := func(role string) string {
		return `{"ignition":{"config":{"merge":[{"source":"https://api-int.ocp4.example.com:22623/config/` + role + `"}]},` +
			`"security":{"tls":{"certificateAuthorities":[{"source":"` + root + `"}]}},"version":"3.2.0"}}`
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"bootstrap.ign": bootstrap, "master.ign": pointer("master"), "worker.ign": pointer("worker"), "metadata.json": `{"clusterName":"ocp4"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func certificate(t *testing.T, ends time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	begins := ends.Add(-24 * time.Hour)
	if made := time.Now().Add(-time.Hour); begins.After(made) {
		begins = made
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "aggregator"}, NotBefore: begins, NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func labOf(t *testing.T, edit ...string) string {
	t.Helper()
	return editedLab(t, prepareLab, edit...)
}

// TestPrepare: documents go where the profiles look for them, under the role's own word, and render to themselves; others are not
// overwritten without an answer.
func TestPrepare(t *testing.T) {
	t.Parallel()
	path, dir := labOf(t), installFolder(t, time.Now().Add(20*time.Hour), installConfig)
	a := run(t.Context(), "openshift", "prepare", dir, "--lab", path)
	step{args: "prepare", out: []string{"valid until", "for 20h0m0s", "bootstrap.ign: put in place", "master.ign: put in place", "worker.ign: put in place", "bootlab up ocp4"}}.check(t, a)
	at := filepath.Join(filepath.Dir(path), "files", "ignition", "bootstrap.ign")
	info, err := os.Stat(at)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v, want mode 0600", info, err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(at), "master.ign")); err != nil {
		t.Error(err)
	}
	step{args: "check", not: []string{"bootstrap.ign: file not found", "master.ign: file not found"}}.check(t, run(t.Context(), "check", "--lab", path))
	plan := run(t.Context(), "plan", "boot", "--secrets", "--lab", path)
	if !strings.Contains(plan.out, "--format '{{.Id}}'") {
		t.Errorf("the document does not render to itself: %v %s", plan.err, plan.out)
	}
	step{args: "again", out: []string{"bootstrap.ign: in place already"}}.check(t, run(t.Context(), "openshift", "prepare", dir, "--lab", path))
	if err := os.WriteFile(at, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	step{args: "other", err: "--yes overwrites them"}.check(t, run(t.Context(), "openshift", "prepare", dir, "--lab", path))
	if text, _ := os.ReadFile(at); string(text) != "mine" {
		t.Errorf("overwritten without an answer: %s", text)
	}
	step{args: "--yes", out: []string{"bootstrap.ign: replaced"}}.check(t, run(t.Context(), "openshift", "prepare", dir, "--yes", "--lab", path))
}

// streamText is stream metadata as openshift-install coreos print-stream-json prints it, of one architecture.
const streamText = `{"stream":"rhcos-4.18","architectures":{"x86_64":{"artifacts":{"metal":{"release":"418.94","formats":{"pxe":{
"kernel":{"location":"https://mirror.test/kernel","sha256":"0000000000000000000000000000000000000000000000000000000000000001"},
"initramfs":{"location":"https://mirror.test/initramfs","sha256":"0000000000000000000000000000000000000000000000000000000000000002"},
"rootfs":{"location":"https://mirror.test/rootfs","sha256":"0000000000000000000000000000000000000000000000000000000000000003"}}}}}}}}`

// TestPrepareStream: the release's stream metadata goes where the lab's images read it, so that its CoreOS is pulled; another one is refused.
func TestPrepareStream(t *testing.T) {
	t.Parallel()
	const byStream = "images: {images/rhcos: {stream: rhcos.json}}\nprofiles: {rhcos: {os: coreos, kernel: images/rhcos/kernel, initrd: [images/rhcos/initramfs], rootfs: images/rhcos/rootfs, "
	const byURL = "images: {images/k: {url: \"https://mirror.test/kernel\", sha256: 000000000000000000000000000000000000000000000000000000000000000%d}}\nprofiles: {rhcos: {os: coreos, kernel: images/k, initrd: [i], rootfs: r, "
	const profile = "profiles: {rhcos: {os: coreos, kernel: k, initrd: [i], rootfs: r, "
	for _, tt := range []struct{ name, lab, stream, err, out string }{
		{"in place", byStream, streamText, "", "stream.json: put in place "},
		{"by URL, of the release", fmt.Sprintf(byURL, 1), streamText, "", "bootlab up ocp4"},
		{"by URL, of another release", fmt.Sprintf(byURL, 9), streamText, "nothing was copied", "images.images/k is no file of the release's stream"},
		{"a stream that moves", strings.Replace(byStream, "rhcos.json", `"https://fedora.test/stable.json"`, 1), streamText, "nothing was copied", "which is not the release's: want stream: stream.json"},
		{"no image", profile, streamText, "", "master.ign: put in place "},
		{"another architecture", byStream, strings.Replace(streamText, "x86_64", "aarch64", 1), "nothing was copied", `the document has no architecture "x86_64": want one of aarch64`},
		{"not given", byStream, "", "", "which CoreOS the release boots is not known: openshift-install coreos print-stream-json"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path, dir := labOf(t, profile, tt.lab), installFolder(t, time.Now().Add(20*time.Hour), installConfig)
			if tt.stream != "" {
				if err := os.WriteFile(filepath.Join(dir, "stream.json"), []byte(tt.stream), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			step{args: "prepare", err: tt.err, out: []string{tt.out}}.check(t, run(t.Context(), "openshift", "prepare", "--no-images", dir, "--lab", path))
			text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "rhcos.json"))
			if want := tt.name == "in place"; (err == nil) != want || want && string(text) != tt.stream {
				t.Errorf("the lab's stream: %v\n%s", err, text)
			}
		})
	}
	dir := installFolder(t, time.Now().Add(20*time.Hour), installConfig)
	writeFiles(t, dir, map[string]string{"rhcos.json": streamText})
	const notPulled = "no image of the lab is for cluster ocp4"
	step{args: "no image", out: []string{"master.ign: put in place", "bootlab up ocp4", "warning: the images of rhcos.json are not pulled: " + notPulled + "; want images: {images/rhcos: {stream: rhcos.json}}"}}.check(t,
		run(t.Context(), "openshift", "prepare", dir, "--lab", labOf(t)))
	step{args: "no image, --no-images", out: []string{"master.ign: put in place"}, not: []string{notPulled}}.check(t, run(t.Context(), "openshift", "prepare", "--no-images", dir, "--lab", labOf(t)))
	dir = installFolder(t, time.Now().Add(20*time.Hour), installConfig)
	step{args: "no stream", err: "the documents are in place, but images are missing", out: []string{"next: openshift-install coreos print-stream-json > " + dir + "/rhcos.json bootlab openshift prepare " + dir}, not: []string{"bootlab images pull"}}.check(t,
		run(t.Context(), "openshift", "prepare", dir, "--lab", labOf(t, profile, byStream)))
	elsewhere := filepath.Join(t.TempDir(), "4.18.json")
	if err := os.WriteFile(elsewhere, []byte(streamText), 0o600); err != nil {
		t.Fatal(err)
	}
	a := run(t.Context(), "openshift", "prepare", "--no-images", "--stream", elsewhere, installFolder(t, time.Now().Add(20*time.Hour), installConfig), "--lab", labOf(t, profile, byStream))
	step{args: "--stream", out: []string{"4.18.json: put in place "}}.check(t, a)
}

// TestPrepareReadsFilesAlone: what is no file, or is larger than any document, ends the command with an error; it waits for no writer of a
// FIFO and reads no file of any size into memory.
func TestPrepareReadsFilesAlone(t *testing.T) {
	t.Parallel()
	large := filepath.Join(t.TempDir(), "4.18.json")
	if err := errors.Join(os.WriteFile(large, nil, 0o600), os.Truncate(large, 16<<20)); err != nil {
		t.Fatal(err)
	}
	const byStream = "images: {images/rhcos: {stream: rhcos.json}}\nprofiles: {rhcos: {os: coreos, kernel: images/rhcos/kernel, initrd: [images/rhcos/initramfs], rootfs: images/rhcos/rootfs, "
	path, dir := labOf(t, "profiles: {rhcos: {os: coreos, kernel: k, initrd: [i], rootfs: r, ", byStream), installFolder(t, time.Now().Add(20*time.Hour), installConfig)
	step{args: "--stream", err: "nothing was copied", out: []string{"4.18.json", "more than"}}.check(t, run(t.Context(), "openshift", "prepare", "--no-images", "--stream", large, dir, "--lab", path))

	at := filepath.Join(filepath.Dir(path), "files", "ignition", "bootstrap.ign")
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), syscall.Mkfifo(at, 0o600)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan answer, 1)
	go func() { ended <- run(t.Context(), "openshift", "prepare", "--no-images", dir, "--lab", path) }()
	select {
	case a := <-ended:
		step{args: "a FIFO in place", err: "is no regular file"}.check(t, a)
	case <-time.After(30 * time.Second):
		t.Error("the command waits for a writer of a FIFO")
	}
}

// TestPreparePulls: the images of the release's stream are pulled into the lab's files.
func TestPreparePulls(t *testing.T) {
	t.Parallel()
	var gone atomic.Bool
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if gone.Load() {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, r.URL.Path)
	}))
	t.Cleanup(up.Close)
	stream := strings.ReplaceAll(streamText, "https://mirror.test", up.URL)
	for i, name := range []string{"/kernel", "/initramfs", "/rootfs"} {
		stream = strings.Replace(stream, fmt.Sprintf("%063d%d", 0, i+1), fmt.Sprintf("%x", sha256.Sum256([]byte(name))), 1)
	}
	path, dir := labOf(t, "profiles: {rhcos: {os: coreos, kernel: k, initrd: [i], rootfs: r, ",
		"images: {images/rhcos: {stream: rhcos.json}}\nprofiles: {rhcos: {os: coreos, kernel: images/rhcos/kernel, initrd: [images/rhcos/initramfs], rootfs: images/rhcos/rootfs, "), installFolder(t, time.Now().Add(20*time.Hour), installConfig)
	writeFiles(t, dir, map[string]string{"stream.json": stream})
	step{args: "prepare", out: []string{"images/rhcos/kernel: downloaded", "images/rhcos/rootfs: downloaded"}}.check(t, run(t.Context(), "openshift", "prepare", dir, "--lab", path))
	for _, name := range []string{"kernel", "initramfs", "rootfs"} {
		if text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "files", "images", "rhcos", name)); err != nil || string(text) != "/"+name {
			t.Errorf("%s: %v, %q", name, err, text)
		}
	}
	step{args: "check --strict", out: []string{"is valid"}}.check(t, run(t.Context(), "check", "--strict", "--lab", path))

	// What is next after images that cannot be fetched is to pull them, and nothing else.
	gone.Store(true) // and not closed: refused connections are tried again for half a minute
	missing := filepath.Join(filepath.Dir(path), "files", "images", "rhcos", "rootfs")
	if err := os.Remove(missing); err != nil {
		t.Fatal(err)
	}
	for _, more := range []string{"", "--json"} {
		a := run(t.Context(), strings.Fields("openshift prepare "+dir+" --lab "+path+" "+more)...)
		step{args: "prepare without images " + more, err: "the documents are in place, but images are missing", out: []string{"bootlab images pull --lab " + path, "bootlab openshift prepare " + dir}, not: []string{"bootlab up", "wait-for"}}.check(t, a)
	}
}

// TestPrepareEndsSoon: certificates that end in a few hours are a warning, and the documents are put in place; those of a day are none.
func TestPrepareEndsSoon(t *testing.T) {
	t.Parallel()
	const warning = "the certificates in bootstrap.ign end in "
	for left, soon := range map[time.Duration]bool{3 * time.Hour: true, 23 * time.Hour: false} {
		s := step{args: "prepare", out: []string{"bootstrap.ign: put in place"}, not: []string{warning}}
		if soon {
			s.out, s.not = append(s.out, "warning: "+warning, "the installation has to be through by then"), nil
		}
		s.check(t, run(t.Context(), "openshift", "prepare", installFolder(t, time.Now().Add(left), installConfig), "--lab", labOf(t)))
	}
}

// TestPrepareNothing: a folder that is not there is named, with what is wanted.
func TestPrepareNothing(t *testing.T) {
	t.Parallel()
	lab, nowhere := labOf(t), filepath.Join(t.TempDir(), "nowhere")
	for installer, want := range map[string]string{
		"openshift":  "want the folder that openshift-install create ignition-configs wrote, or an install-config.yaml",
		"talos":      "want the folder that talosctl gen config wrote",
		"kubernetes": "want a configuration file of kubeadm, or a folder of them",
	} {
		a := run(t.Context(), installer, "prepare", nowhere, "--lab", lab)
		if want := "read " + nowhere + ": no such file or directory: " + want; a.err == nil || a.err.Error() != want {
			t.Errorf("%s: %v, want %s", installer, a.err, want)
		}
	}
}

// TestPrepareRefuses: what would keep the cluster from coming up is an error, and nothing is copied.
func TestPrepareRefuses(t *testing.T) {
	t.Parallel()
	long := time.Now().Add(20 * time.Hour)
	for _, tt := range []struct {
		name, want string
		ends       time.Time
		edit       []string
		config     string
	}{
		{"expired", "the certificates in bootstrap.ign ended 2h", time.Now().Add(-2 * time.Hour), nil, installConfig},
		{"domain", `cluster domain "ocp4.example.com" (metadata.name.baseDomain), which is not in the lab: did you mean ocp5.example.com?`, long, []string{"ocp4", "ocp5"}, installConfig},
		{"replicas", "controlPlane.replicas is 1, and cluster ocp4 has 3 hosts with role control-plane", long, nil, strings.Replace(installConfig, "replicas: 3", "replicas: 1", 1)},
		{"one document for all", "where bootstrap.ign belongs too: want {{.Host.Role}}", long, []string{"{{.Host.Role}}.ign", "all.ign"}, installConfig},
		{"no bootstrap", "has 0 hosts with role bootstrap", long, []string{"role: bootstrap", "role: guest"}, installConfig},
		{"kind", "want openshift", long, []string{"kind: openshift", "kind: kubernetes"}, installConfig},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := labOf(t, tt.edit...)
			a := run(t.Context(), "openshift", "prepare", installFolder(t, tt.ends, tt.config), "--lab", path)
			step{args: "prepare", err: "nothing was copied", out: []string{tt.want}}.check(t, a)
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), "files")); err == nil {
				t.Error("something was copied")
			}
		})
	}
	elsewhere := installFolder(t, long, installConfig)
	writeFiles(t, elsewhere, map[string]string{"worker.ign": `{"ignition":{"config":{"merge":[{"source":"https://api-int.ocp3.example.com:22623/config/worker"}]},"version":"3.2.0"}}`})
	step{args: "api-int of another cluster", err: "nothing was copied", out: []string{"worker.ign fetches its configuration from api-int.ocp3.example.com:22623: want api-int.ocp4.example.com:22623"}}.check(t,
		run(t.Context(), "openshift", "prepare", elsewhere, "--lab", labOf(t)))
	bare := installFolder(t, long, installConfig)
	if err := os.WriteFile(filepath.Join(bare, "bootstrap.ign"), []byte(`{"ignition":{"version":"3.2.0"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	step{args: "bare bootstrap.ign", out: []string{"warning: bootstrap.ign holds no certificates below /opt/openshift/tls", "openshift-install create ignition-configs"}}.check(t,
		run(t.Context(), "openshift", "prepare", "--yes", "--no-images", bare, "--lab", labOf(t)))
	path := filepath.Join(t.TempDir(), "install-config.yaml")
	if err := os.WriteFile(path, []byte(installConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	step{args: "install-config", out: []string{"fits cluster ocp4", "compared: the cluster's domain, platform, controlPlane.replicas, compute.replicas", "openshift-install create ignition-configs"}}.check(t, run(t.Context(), "openshift", "prepare", path, "--lab", labOf(t)))
	for name, tt := range map[string]struct{ right, wrong, want string }{
		"machine network": {"platform: {none: {}}", "networking: {machineNetwork: [{cidr: 10.9.0.0/16}]}\nplatform: {none: {}}", "install-config.yaml:6:30: machineNetwork does not have 10.1.2.20, the address of host boot: want the subnet of its network, 10.1.2.0/24"},
		"platform":        {"{none: {}}", "{baremetal: {}}", "install-config.yaml:6:11: platform baremetal brings its own load balancer and addresses (keepalived), and the lab balances cluster ocp4: want platform: {none: {}}, or balancer: off in clusters.ocp4"},
		"no number":       {"replicas: 1", "replicas: two", `install-config.yaml:3:61: replicas "two" is not a number: want one such as 3`},
	} {
		writeFiles(t, filepath.Dir(path), map[string]string{"install-config.yaml": strings.Replace(installConfig, tt.right, tt.wrong, 1)})
		step{args: name, err: "nothing was copied", out: []string{tt.want}, not: []string{"fits cluster"}}.check(t, run(t.Context(), "openshift", "prepare", path, "--lab", labOf(t)))
	}
	writeFiles(t, filepath.Dir(path), map[string]string{"install-config.yaml": "apiVersion: v1\nbaseDomain example.com\nmetadata: {name: a}\n"})
	step{args: "no YAML", err: "install-config.yaml:3:1: not YAML: a colon is missing here or in the line above"}.check(t, run(t.Context(), "openshift", "prepare", path, "--lab", labOf(t)))
	for name, tt := range map[string]struct{ right, wrong, want string }{
		"a misspelt baseDomain": {"baseDomain", "baseDomian", "install-config.yaml:2:1: baseDomian is no key of an install-config: did you mean baseDomain?"},
		"a misspelt name":       {"metadata: {name", "metadata: {nmae", "install-config.yaml:5:12: nmae is no key of an install-config: did you mean name?"},
		"misspelt metadata":     {"metadata: {name", "metdata: {name", "install-config.yaml:5:1: metdata is no key of an install-config: did you mean metadata?"},
		"no name":               {"{name: ocp4}", "{}", "install-config.yaml: has no metadata.name: is it an install-config.yaml?"},
		"an empty baseDomain":   {"example.com", "", "install-config.yaml: has no baseDomain: is it an install-config.yaml?"},
	} {
		writeFiles(t, filepath.Dir(path), map[string]string{"install-config.yaml": strings.Replace(installConfig, tt.right, tt.wrong, 1)})
		step{args: name, err: tt.want}.check(t, run(t.Context(), "openshift", "prepare", path, "--lab", labOf(t)))
	}
	wrong := t.TempDir()
	writeFiles(t, wrong, map[string]string{"master.ign": `{"ignition":{"config":{"merge":[{"source":"https://api-int.ocp3.example.com:22623/config/master"}]},"version":"3.2.0"}}`})
	step{args: "api-int alone", err: "nothing was copied", out: []string{`master.ign fetches its configuration from https://api-int.ocp3.example.com:22623/config/master, and cluster domain "ocp3.example.com" is not in the lab: did you mean ocp4.example.com?`}}.check(t,
		run(t.Context(), "openshift", "prepare", wrong, "--lab", labOf(t)))
	step{args: "empty folder", err: "run openshift-install create ignition-configs"}.check(t, run(t.Context(), "openshift", "prepare", t.TempDir(), "--lab", labOf(t)))
}

// TestPrepareRefusesMixedDocuments: documents in each other's place, or of different runs of openshift-install, are an error, and nothing is
// copied.
func TestPrepareRefusesMixedDocuments(t *testing.T) {
	t.Parallel()
	const other = "of different runs of openshift-install; want all of one run"
	for _, tt := range []struct {
		name string
		copy map[string]string // by name: a document of the same run, or OTHER/NAME of another; empty: none
		want []string
	}{
		{"a worker's master.ign", map[string]string{"master.ign": "worker.ign"}, []string{"master.ign fetches https://api-int.ocp4.example.com:22623/config/worker, the configuration of other machines: want /config/master"}},
		{"swapped", map[string]string{"master.ign": "worker.ign", "worker.ign": "master.ign"}, []string{"worker.ign fetches https://api-int.ocp4.example.com:22623/config/master, the configuration of other machines: want /config/worker", ": want /config/master"}},
		{"a bootstrap's master.ign", map[string]string{"master.ign": "bootstrap.ign"}, []string{"master.ign holds /opt/openshift/tls/aggregator-ca.crt, a file of the bootstrap machine: want the master.ign that openshift-install wrote"}},
		{"a master's bootstrap.ign", map[string]string{"bootstrap.ign": "master.ign"}, []string{"bootstrap.ign fetches https://api-int.ocp4.example.com:22623/config/master, which the bootstrap machine serves itself: want the bootstrap.ign that openshift-install wrote"}},
		{"worker.ign of another run", map[string]string{"worker.ign": "OTHER/worker.ign"}, []string{"worker.ign trusts another root CA than that of bootstrap.ign: the two are " + other}},
		{"bootstrap.ign of another run", map[string]string{"bootstrap.ign": "OTHER/bootstrap.ign"}, []string{"master.ign trusts another root CA than that of bootstrap.ign: the two are " + other, "worker.ign trusts"}},
		{"two runs without bootstrap.ign", map[string]string{"bootstrap.ign": "", "master.ign": "OTHER/master.ign"}, []string{"worker.ign trusts another root CA than that of master.ign: the two are " + other}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := labOf(t)
			step{args: "prepare", err: "nothing was copied", out: tt.want}.check(t, run(t.Context(), "openshift", "prepare", mixedFolder(t, tt.copy), "--lab", path))
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), "files")); err == nil {
				t.Error("something was copied")
			}
		})
	}
}

// mixedFolder writes the documents of one run, some of them replaced by others of the same run or of another; empty: removed.
func mixedFolder(t *testing.T, replaced map[string]string) string {
	t.Helper()
	long := time.Now().Add(20 * time.Hour)
	dir, other := installFolder(t, long, installConfig), installFolder(t, long, installConfig)
	texts := map[string]string{}
	for name, from := range replaced {
		at := filepath.Join(dir, from)
		if rest, ok := strings.CutPrefix(from, "OTHER/"); ok {
			at = filepath.Join(other, rest)
		}
		if text, err := os.ReadFile(at); err == nil {
			texts[name] = string(text)
		} else if err := os.Remove(filepath.Join(dir, name)); from != "" || err != nil {
			t.Fatal(from, err)
		}
	}
	writeFiles(t, dir, texts)
	return dir
}
