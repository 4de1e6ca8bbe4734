package load_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab/load"
)

// pair returns a certificate and its key, PEM.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", pkcs8)
}

// kubeconfig is a whole file with one cluster and one user.
func kubeconfig(cluster, user string) string {
	return `apiVersion: v1
kind: Config
current-context: admin
contexts:
- {name: other, context: {cluster: x, user: y}}
- {name: admin, context: {cluster: prod, user: admin}}
clusters:
- name: prod
  cluster: {` + cluster + `}
users:
- name: admin
  user: {` + user + `}
`
}

// TestKubeconfig reads the kinds of kubeconfig that there are, and says what is wrong with those that cannot be used.
func TestKubeconfig(t *testing.T) {
	t.Parallel()
	cert, key := pair(t)
	inline := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	server := "server: 'https://api.prod.example.com:6443', certificate-authority-data: " + inline(cert)
	admin := "client-certificate-data: " + inline(cert) + ", client-key-data: " + inline(key)
	for _, tt := range []struct{ name, text, want string }{
		{"certificate", kubeconfig(server, admin), ""},
		{"token", kubeconfig(server, "token: abc"), ""},
		{"files", kubeconfig("server: 'https://10.0.0.5:6443', certificate-authority: ca.pem", "client-certificate: ca.pem, client-key: key.pem"), ""},
		{"token in a file", kubeconfig(server, "tokenFile: token"), ""},
		{"not verified", kubeconfig("server: 'https://10.0.0.5:6443', insecure-skip-tls-verify: true", "token: abc"), ""},
		{"empty", "", `current-context: "" is not in contexts`},
		{"a Secret", "kind: Secret", "is no kubeconfig"},
		{"no YAML", "kind: [", "did not find"},
		{"no such context", strings.Replace(kubeconfig(server, admin), "current-context: admin", "current-context: root", 1), `current-context: "root" is not in contexts`},
		{"no such cluster", strings.Replace(kubeconfig(server, admin), "cluster: prod,", "cluster: test,", 1), `the cluster "test" of context admin is not in clusters`},
		{"no such user", strings.Replace(kubeconfig(server, admin), "user: admin}", "user: root}", 1), `the user "root" of context admin is not in users`},
		{"plain HTTP", kubeconfig("server: 'http://api.prod.example.com'", admin), "clusters.prod.server: \"http://api.prod.example.com\" is no address of an API server"},
		{"bad base64", kubeconfig("server: 'https://a:6443', certificate-authority-data: '*'", admin), "clusters.prod.certificate-authority-data: illegal base64"},
		{"no certificate", kubeconfig("server: 'https://a:6443', certificate-authority-data: "+inline("x"), admin), "clusters.prod.certificate-authority has no certificate"},
		{"a file that is missing", kubeconfig("server: 'https://a:6443', certificate-authority: gone.pem", admin), "clusters.prod.certificate-authority: open"},
		{"a proxy", kubeconfig(server+", proxy-url: 'http://p:1'", admin), "clusters.prod.proxy-url is not supported"},
		{"a certificate without key", kubeconfig(server, "client-certificate-data: "+inline(cert)), "users.admin.client-certificate and client-key"},
		{"nobody", kubeconfig(server, ""), "users.admin has neither a client certificate nor a token"},
		{"a program", kubeconfig(server, "exec: {command: oc}"), "users.admin.exec and auth-provider start programs"},
		{"another user", kubeconfig(server, admin+", as: root"), "users.admin.as is not supported"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t, map[string]string{"kubeconfig": tt.text, "ca.pem": cert, "key.pem": key, "token": "abc\n", "lab.yaml": head + "\nclusters: {prod: {kind: openshift, kubeconfig: kubeconfig}}\n"})
			_, err := load.Lab(filepath.Join(dir, "lab.yaml"), load.Options{})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), "lab.yaml:") ||
				!strings.Contains(err.Error(), "clusters.prod.kubeconfig: "+filepath.Join(dir, "kubeconfig")+": ") || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// TestKubeconfigMissing: a kubeconfig that openshift-install has not written yet is a warning, one that may not be read an error.
func TestKubeconfigMissing(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"lab.yaml": head + "\nclusters: {prod: {kind: openshift, kubeconfig: auth/kubeconfig}, k: {kind: kubernetes, kubeconfig: k}}\n"})
	_, err := load.Lab(filepath.Join(dir, "lab.yaml"), load.Options{})
	if err == nil || strings.Count(err.Error(), "\n") > 0 || !strings.Contains(err.Error(), "clusters.k.kubeconfig: is for kind openshift") {
		t.Errorf("kind kubernetes: %v", err)
	}
	dir = folder(t, map[string]string{"lab.yaml": head + "\nclusters: {prod: {kind: openshift, kubeconfig: auth/kubeconfig}}\n"})
	l, err := load.Lab(filepath.Join(dir, "lab.yaml"), load.Options{})
	if err != nil || !strings.Contains(l.Warnings.Error(), "auth/kubeconfig: file not found; until it exists, the bootstrap machine leaves once its own check fails") {
		t.Errorf("missing: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "auth/kubeconfig"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := load.Lab(filepath.Join(dir, "lab.yaml"), load.Options{}); err == nil || !strings.Contains(err.Error(), "is no regular file") {
		t.Errorf("a folder: %v", err)
	}
}

// TestKubeconfigFIFO: a path that nobody writes to holds nothing up.
func TestKubeconfigFIFO(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kc")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load.ReadKubeconfig(path); err == nil || !strings.Contains(err.Error(), "is no regular file") {
		t.Errorf("error: %v", err)
	}
}
