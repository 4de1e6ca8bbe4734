package lab

import (
	"net/url"
	"path/filepath"
)

// SecretFiles returns the files with passwords, keys and tokens that the lab names, and those of its state, absolute. No server gives
// them to a machine, in whatever folder they are.
func (l *Lab) SecretFiles() (files []string) {
	add := func(paths ...string) {
		for _, p := range paths {
			if p != "" {
				files = append(files, p)
			}
		}
	}
	if state := l.Appliance.State; state != "" {
		add(filepath.Join(state, "token"), filepath.Join(state, "state.db"))
	}
	add(l.Appliance.Store.CAFile)
	for _, k := range l.DNS.Keys {
		add(k.SecretFile)
	}
	for _, a := range l.Redfish.Accounts {
		add(a.PasswordFile)
	}
	certificates := []string{l.Redfish.Certificate}
	for _, b := range l.Balancers {
		certificates = append(certificates, b.Certificates...)
	}
	for _, c := range certificates {
		if c != "" {
			add(c, CertificateKey(c))
		}
	}
	for _, c := range l.Clusters {
		add(c.Kubeconfig)
	}
	for _, h := range l.Hypervisors {
		if u, err := url.Parse(h.URI); err == nil && filepath.IsAbs(u.Query().Get("keyfile")) {
			add(u.Query().Get("keyfile"))
		}
	}
	for _, h := range l.Hosts {
		if h.BMC != nil {
			add(h.BMC.PasswordFile)
		}
	}
	return files
}

// CertificateKey returns where the key of a certificate is that does not hold it itself.
func CertificateKey(certificate string) string { return certificate + ".key" }
