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
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/daemon/statefile"
	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/host/file/replace"
	"github.com/bootlab/bootlab/internal/lab"
)

// certificateLife is how long a certificate that the daemon makes is valid. Clients know it by itself, not by an authority.
const certificateLife = 10 * 365 * 24 * time.Hour

// redfishCertificate is the certificate of the Redfish service, made where the lab names none. It is tls.Config.GetCertificate.
func (d *Daemon) redfishCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	l := d.current.Load().Lab
	path := l.Redfish.Certificate
	if path == "" {
		path = filepath.Join(l.Appliance.State, statefile.RedfishCertificate)
		if err := makeCertificate(path, l); err != nil {
			return nil, fmt.Errorf("make certificate %s: %w", path, err)
		}
	}
	cert, err := d.certificates.Get(path)
	if err != nil {
		d.serverLog.Warn("redfish: no certificate", "err", err)
		return nil, fmt.Errorf("redfish.certificate: %w", err)
	}
	return cert, nil
}

// certificateProblems returns what is wrong with the certificates of a lab: faults, which no client gets, and warnings. read is
// freshfile.ReadCertificate, or looks whether the file is still as it was read. That a file is missing is a warning of the loader.
func certificateProblems(l *lab.Lab, read func(path string) (*tls.Certificate, error), now time.Time) (faults, warnings lab.Problems) {
	for _, c := range l.Certificates {
		cert, err := read(c.Path)
		_, gone := regular.Stat(c.Path)
		switch {
		case errors.Is(gone, fs.ErrNotExist) && slices.ContainsFunc(l.Warnings, func(p *lab.Problem) bool { return p.Path == c.Path }):
		case errors.Is(err, fs.ErrPermission): // perhaps of the user who checks
			warnings.Addf(c.Pos, c.Key, "%s", err)
		case err != nil:
			faults = append(faults, certificateProblem(c, err))
		default:
			if err := outOfTime(c.Path, cert, now); err != nil {
				warnings = append(warnings, certificateProblem(c, err))
			}
		}
	}
	return faults, warnings
}

// certificateProblem returns err with the place of the certificate in the lab file.
func certificateProblem(c lab.FileAt, err error) *lab.Problem {
	return &lab.Problem{Pos: c.Pos, Key: c.Key, Message: err.Error()}
}

// outOfTime returns an error if clients refuse the certificate of path at that time.
func outOfTime(path string, cert *tls.Certificate, now time.Time) error {
	switch {
	case now.After(cert.Leaf.NotAfter):
		return fmt.Errorf("certificate %s expired on %s: clients refuse it", path, cert.Leaf.NotAfter.Format(time.DateTime))
	case now.Before(cert.Leaf.NotBefore):
		return fmt.Errorf("certificate %s is not valid before %s: clients refuse it", path, cert.Leaf.NotBefore.Format(time.DateTime))
	}
	return nil
}

// certificateConditions has one condition for each certificate: whether clients that connect now can verify it.
func (d *Daemon) certificateConditions(l *lab.Lab) (all []api.Condition) {
	seen := map[string]bool{}
	for _, c := range l.Certificates {
		if seen[c.Path] {
			continue
		}
		seen[c.Path] = true
		a := api.Condition{Kind: api.ConditionCertificate, Name: c.Path}
		if name, err := filepath.Rel(l.Dir, c.Path); err == nil && filepath.IsLocal(name) {
			a.Name = name
		}
		cert, err := d.certificates.Now(c.Path)
		used := ""
		if err == nil {
			a.Detail, err = "valid until "+cert.Leaf.NotAfter.Format(time.DateOnly), outOfTime(c.Path, cert, time.Now())
		} else if cert != nil {
			used = "; what was read before is used"
		}
		if a.OK = err == nil; err != nil {
			a.Problem, a.Cause = err.Error()+used, certificateProblem(c, err)
		}
		all = append(all, a)
	}
	return all
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
	for _, a := range l.Redfish.Listen.Addrs(interfaces.OwnAddresses(l)) {
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
	return replace.File(path, 0o600, replace.With(text))
}
