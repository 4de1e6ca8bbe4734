package daemon_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon"
	"github.com/bootlab/bootlab/test/support/netns"
)

// pemPair returns a certificate that is valid until then, and its key.
func pemPair(t *testing.T, until time.Time) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"web.lab.example"}, NotBefore: until.Add(-48 * time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, c, c, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCheckCertificates: check names each certificate with which no client could connect, and warns of those that clients refuse.
func TestCheckCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := pemPair(t, time.Now().Add(time.Hour))
	_, other := pemPair(t, time.Now().Add(time.Hour))
	old, oldKey := pemPair(t, time.Now().Add(-time.Hour))
	writeFiles(t, dir, map[string]string{
		"good.pem": cert + key, "beside.pem": cert, "beside.pem.key": key, "text.pem": "hello\n", "key.pem": key, "alone.pem": cert, "other.pem": cert + other,
		"old.pem": old + oldKey, "password": "secret", "lab.yaml": `version: 1
domain: lab.example
networks: {n: {subnet: 10.0.0.0/24, dhcp: off}}
balancers:
  web:
    listen: 10.0.0.10:8443
    mode: http
    tls:
      certificates:
        - good.pem
        - beside.pem
        - text.pem
        - key.pem
        - alone.pem
        - other.pem
        - old.pem
        - missing.pem
    backends: ["10.0.0.11:80"]
redfish:
  listen: 10.0.0.10:8000
  certificate: text.pem
  accounts: {admin: {password_file: password}}
`})
	_, found, err := daemon.Check(filepath.Join(dir, "lab.yaml"), daemon.Lenient)
	if err != nil {
		t.Fatal(err)
	}
	wantEach(t, "faults", found.Faults.Error(), []string{
		"lab.yaml:12:11: balancers.web.tls.certificates[2]: " + dir + "/text.pem has no certificate",
		"lab.yaml:13:11: balancers.web.tls.certificates[3]: " + dir + "/key.pem has no certificate",
		"lab.yaml:14:11: balancers.web.tls.certificates[4]: " + dir + "/alone.pem has no private key",
		"lab.yaml:15:11: balancers.web.tls.certificates[5]: certificate " + dir + "/other.pem: tls: private key does not match public key",
		"lab.yaml:21:16: redfish.certificate: " + dir + "/text.pem has no certificate",
	})
	wantEach(t, "warnings", found.Warnings.Error(), []string{
		"lab.yaml:17:11: balancers.web.tls.certificates[7]: " + dir + "/missing.pem: file not found",
		"lab.yaml:16:11: balancers.web.tls.certificates[6]: certificate " + dir + "/old.pem expired on ",
	})
}

// wantEach holds that each line has its part, in any order, and that there are no others.
func wantEach(t *testing.T, what, text string, want []string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%s do not say %q:\n%s", what, w, text)
		}
	}
	if n := strings.Count(text, "\n") + 1; n != len(want) {
		t.Errorf("%d %s, want %d:\n%s", n, what, len(want), text)
	}
}

// TestBadCertificateServed: a daemon whose lab has a bad certificate starts, says so in its log, status and /readyz, and serves the rest. The
// file that is fixed ends it without a reload; one that expires or is damaged begins it.
func TestBadCertificateServed(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.125.2.1")
	dir := filepath.Dir(r.lab)
	cert, key := pemPair(t, time.Now().Add(time.Hour))
	_, other := pemPair(t, time.Now().Add(time.Hour))
	writeFiles(t, dir, map[string]string{"web.pem": cert + other})
	r.write(r.read() + `
balancers:
  web: {listen: "10.125.2.1:8443", mode: http, tls: {certificates: [web.pem]}, check: {kind: none}, backends: ["10.125.2.1:9680"]}
`)
	r.start()
	row := func() api.Condition {
		all, _ := r.status().ConditionsOf(api.ConditionCertificate)
		if len(all) != 1 || all[0].Name != "web.pem" {
			t.Fatalf("conditions of certificates: %+v", all)
		}
		return all[0]
	}
	if c := row(); c.OK || !strings.Contains(c.Problem, "private key does not match public key") {
		t.Errorf("%+v", c)
	}
	r.until("one warning in the log", func() bool {
		return strings.Count(r.log.String(), "balancers.web.tls.certificates[0]: certificate") == 1
	})
	if got := r.get("http://10.125.2.1:9680/readyz"); !strings.Contains(got, "certificates: failed: 1 of 1") {
		t.Errorf("/readyz:\n%s", got)
	}
	warned := func() bool { return strings.Contains(r.status().Warnings.Error(), "balancers.web.tls") }
	faulty := func() bool { return strings.Contains(r.status().Faults.Error(), "balancers.web.tls") }
	writeFiles(t, dir, map[string]string{"web.pem": cert + key})
	r.until("the fixed certificate is measured", func() bool {
		c := row()
		return c.OK && strings.Contains(c.Detail, "valid until") && !warned() && !faulty()
	})
	old, oldKey := pemPair(t, time.Now().Add(-time.Hour))
	writeFiles(t, dir, map[string]string{"web.pem": old + oldKey})
	r.until("the expired certificate is measured", func() bool { return strings.Contains(row().Problem, "expired on ") && warned() })
	writeFiles(t, dir, map[string]string{"web.pem": "text"})
	r.until("the damaged file is measured", func() bool { return strings.Contains(row().Problem, "has no certificate") && faulty() && !warned() })
}
