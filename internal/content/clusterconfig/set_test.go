package clusterconfig

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"
)

// TestCertificate: the certificate that ends first counts, and one that has not begun is an error.
func TestCertificate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	var r Report
	for _, hours := range []int{48, 24, 36} {
		r.certificate(&x509.Certificate{NotBefore: now.Add(30 * time.Second), NotAfter: now.Add(time.Duration(hours) * time.Hour)}, "bootstrap.ign", now)
	}
	if len(r.Errors) > 0 || r.Certs.Left != 24*time.Hour {
		t.Errorf("ends in %s; errors %v", r.Certs.Left, r.Errors)
	}
	r.certificate(&x509.Certificate{NotBefore: now.Add(time.Hour), NotAfter: now.Add(30 * time.Hour)}, "bootstrap.ign", now)
	if got := r.Errors.Error(); !strings.Contains(got, "in bootstrap.ign begins on 2026-11-28 13:00:00: the clock of this machine, or of the one that made it, is wrong") {
		t.Errorf("errors %s", got)
	}
}
