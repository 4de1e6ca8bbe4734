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
	for _, c := range l.Certificates {
		add(c.Path, CertificateKey(c.Path))
	}
	for _, c := range l.Clusters {
		add(c.Kubeconfig)
	}
	for _, h := range l.Hypervisors {
		add(KeyFile(h.URI))
	}
	for _, h := range l.Hosts {
		if h.BMC != nil {
			add(h.BMC.PasswordFile)
		}
	}
	return files
}

// KeyFile returns the absolute path of the SSH key that the URI of a hypervisor names; empty: none.
func KeyFile(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || !filepath.IsAbs(u.Query().Get("keyfile")) {
		return "" // libvirt reports a URI that is none
	}
	return u.Query().Get("keyfile")
}

// CertificateKey returns where the key of a certificate is that does not hold it itself.
func CertificateKey(certificate string) string { return certificate + ".key" }
