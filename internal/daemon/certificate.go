package daemon

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// redfishCertificate is the file of the certificate that the daemon makes, below appliance.state.
const redfishCertificate = "redfish.pem"

// certificateLife is how long a certificate that the daemon makes is valid. Clients know it by itself, not by an authority.
const certificateLife = 10 * 365 * 24 * time.Hour

// A certificate is that of the Redfish service. It is read again when its file changes, and made where the lab names none.
type certificate struct {
	d *Daemon

	mu   sync.Mutex
	path string
	at   time.Time // of the file
	last *tls.Certificate
}

// get is tls.Config.GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	l := c.d.current.Load().Lab
	path := l.Redfish.Certificate
	c.mu.Lock()
	defer c.mu.Unlock()
	if path == "" {
		path = filepath.Join(l.Appliance.State, redfishCertificate)
		if err := makeCertificate(path, l); err != nil {
			return nil, fmt.Errorf("make certificate %s: %w", path, err)
		}
	}
	info, err := os.Stat(path)
	if err == nil && c.last != nil && c.path == path && c.at.Equal(info.ModTime()) {
		return c.last, nil
	}
	var cert tls.Certificate
	if err == nil {
		cert, err = tls.LoadX509KeyPair(path, path)
	}
	switch {
	case err != nil && c.last != nil && c.path == path: // it is being replaced
		return c.last, nil
	case err != nil:
		c.d.serverLog.Warn("redfish: no certificate", "err", err)
		return nil, fmt.Errorf("redfish.certificate: %w", err)
	}
	c.path, c.at, c.last = path, info.ModTime(), &cert
	return c.last, nil
}

// makeCertificate writes a self-signed certificate with its key, unless the file exists.
func makeCertificate(path string, l *lab.Lab) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "bootlab " + l.Name}, NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
		DNSNames: []string{"localhost"},
	}
	if name, err := os.Hostname(); err == nil {
		t.DNSNames = append(t.DNSNames, name)
	}
	for _, h := range l.Hosts {
		if h.Role == lab.RoleAppliance {
			t.DNSNames = append(t.DNSNames, h.FQDN)
		}
	}
	for _, a := range l.Redfish.Listen.Addrs(ownAddresses(l)) {
		if !a.Addr().IsUnspecified() {
			t.IPAddresses = append(t.IPAddresses, a.Addr().AsSlice())
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
