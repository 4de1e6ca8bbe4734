package freshfile

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"strings"

	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/lab"
)

// Certificates are TLS certificates by the name of their file.
type Certificates = Cache[string, *tls.Certificate]

// NewCertificates returns an empty cache of certificates; ReadCertificate reads them.
func NewCertificates(log *slog.Logger) *Certificates {
	return New(log, func(path string) []string { return []string{path, lab.CertificateKey(path)} }, ReadCertificate)
}

// ReadCertificate reads a certificate with its chain and its key, PEM. The key may be in a file of its own beside it, whose name has
// ".key" at the end.
func ReadCertificate(path string) (*tls.Certificate, error) {
	chain, err := regular.Read(path, regular.Small)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	if !strings.Contains(string(chain), "CERTIFICATE-----") {
		return nil, fmt.Errorf("%s has no certificate: want certificate, chain and key, PEM", path)
	}
	key := chain
	if !strings.Contains(string(chain), "PRIVATE KEY-----") {
		if key, err = regular.Read(lab.CertificateKey(path), regular.Small); err != nil {
			return nil, fmt.Errorf("%s has no private key, and there is none beside it: %w", path, err)
		}
	}
	cert, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", path, err)
	}
	return &cert, nil
}
