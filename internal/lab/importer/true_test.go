package importer_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab/importer"
	"github.com/bootlab/bootlab/test/support/netns"
)

// servers are the programs that say whether an example is a configuration of theirs.
var servers = map[importer.Format]func(file string) *exec.Cmd{
	importer.Dnsmasq: func(file string) *exec.Cmd { return exec.Command("dnsmasq", "--test", "-C", file) },
	importer.HAProxy: func(file string) *exec.Cmd { return exec.Command("haproxy", "-c", "-f", file) },
	importer.DHCPD:   func(file string) *exec.Cmd { return exec.Command("dhcpd", "-t", "-cf", file) },
	importer.Kea:     func(file string) *exec.Cmd { return exec.Command("kea-dhcp4", "-t", file) },
	// The driver for tests needs no daemon, and reads definitions as the others do.
	importer.LibvirtNet: func(file string) *exec.Cmd { return exec.Command("virsh", "-c", "test:///default", "net-define", file) },
}

// TestExamplesAreTrue gives every example to the server that it is for.
func TestExamplesAreTrue(t *testing.T) {
	t.Parallel()
	for _, f := range importer.Formats() {
		format := importer.Format(f[0])
		names, err := filepath.Glob("testdata/" + f[0] + "/*.*")
		if err != nil || len(names) == 0 {
			t.Fatalf("no examples of %s: %v", format, err)
		}
		for _, name := range names {
			ext := filepath.Ext(name)
			if ext == ".golden" || ext == ".root" || servers[format] == nil {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				cmd := servers[format](inPlace(t, name))
				netns.Need(t, filepath.Base(cmd.Args[0]))
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
				}
			})
		}
	}
}

// inPlace returns a copy of an example whose files are where it looks for them, and whose names are addresses.
func inPlace(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs(strings.TrimSuffix(name, filepath.Ext(name)) + ".root")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"certs/web.pem", "certs/ca.pem"} {
		text = []byte(strings.ReplaceAll(string(text), file, certificate(t, dir)))
	}
	hosts, _ := os.ReadFile(filepath.Join(root, "etc/hosts"))
	for line := range strings.Lines(string(hosts)) {
		if f := strings.Fields(line); len(f) == 2 {
			text = []byte(strings.ReplaceAll(string(text), f[1], f[0]))
		}
	}
	text = []byte(strings.ReplaceAll(string(text), `"eth1"`, `"lo"`))
	text = []byte(strings.ReplaceAll(string(text), "/etc/dnsmasq", root+"/etc/dnsmasq"))
	for _, d := range []string{filepath.Dir(dir), dir} { // servers read it as another user
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, filepath.Base(name))
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// certificate returns a file with a certificate and its key.
func certificate(t *testing.T, dir string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "cert.pem")
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
