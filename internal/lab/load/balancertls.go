package load

import (
	"fmt"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// tls sets how b ends its clients' TLS.
func (r *resolver) tls(raw *rawBalancer, b *lab.Balancer, key string) {
	tls := raw.TLS.V
	if tls == nil {
		return
	}
	for i := range tls.Certificates.Items {
		r.certificate(&tls.Certificates.Items[i], fmt.Sprintf("%s.tls.certificates[%d]", key, i))
	}
	b.Certificates = values(tls.Certificates, func(f text) string { return r.path(string(f)) })
	if tls.ACME.V != nil {
		b.ACME = r.acme(tls.ACME.V, raw, tls.ACME.spot, key+".tls.acme")
		return
	}
	if len(b.Certificates) == 0 && !tls.Certificates.bad() {
		r.failMissing(raw.TLS.spot, key+".tls.certificates", "is missing: want a list such as [certs/web.pem]: certificate, chain and key in one file, or the key in certs/web.pem.key")
	}
}

// acme returns where certificates come from, and for which names.
func (r *resolver) acme(raw *rawACME, balancer *rawBalancer, at spot, key string) *lab.ACME {
	c := &lab.ACME{Directory: string(raw.Directory.V), CAFile: r.path(string(raw.CAFile.V)), Email: string(raw.Email.V)}
	missing(r, &raw.Directory, at, key+".directory", "the URL of an ACME server's directory")
	if raw.Directory.ok() && !strings.HasPrefix(c.Directory, "https://") {
		r.fail(raw.Directory.spot, key+".directory", "%q is not https: ACME has no other (RFC 8555 section 6.1)", c.Directory)
	}
	if raw.Email.ok() && !strings.Contains(c.Email, "@") {
		r.fail(raw.Email.spot, key+".email", "%q is no address: want one like admin@lab.example.com", c.Email)
	}
	names := raw.Names
	if !names.set() {
		names = balancer.Match.Host
	}
	for i := range names.Items {
		name := strings.ToLower(strings.TrimSuffix(string(names.Items[i].V), "."))
		if strings.HasPrefix(name, "*") {
			r.fail(names.Items[i].spot, key+".names", "%q is a wildcard, which only the dns-01 challenge proves: want the names themselves, or certificates", name)
			continue
		}
		c.Names = append(c.Names, name)
	}
	switch {
	case len(names.Items) > 0 || names.bad():
	case raw.Names.set():
		r.fail(raw.Names.spot, key+".names", "is empty: want the names that get a certificate, such as [web.lab.example.com]")
	default:
		r.failMissing(at, key+".names", "is missing, and so is match.host: want the names that get a certificate, such as [web.lab.example.com]")
	}
	return c
}

// backendTLS sets how TLS is spoken with the backends of b.
func (r *resolver) backendTLS(raw *rawBalancer, b *lab.Balancer, key string) {
	tls := raw.BackendTLS.V
	if b.SendProxy != 0 && b.Protocol != lab.BackendHTTP1 {
		r.fail(raw.SendProxy.spot, key+".send_proxy", "names one client of a connection, and one of %s has requests of several: want backend_protocol: http1, or no send_proxy", b.Protocol)
	}
	switch {
	case tls == nil && b.Protocol == lab.BackendH2:
		r.fail(raw.Protocol.spot, key+".backend_protocol", "h2 is HTTP/2 with TLS: add backend_tls: {ca_file: ca.pem}, or want h2c for HTTP/2 without TLS")
	case tls == nil:
	case b.Protocol == lab.BackendH2C:
		r.fail(raw.Protocol.spot, key+".backend_protocol", "h2c is HTTP/2 without TLS, and backend_tls is set: want h2, or no backend_tls")
	default:
		b.BackendTLS = lab.BackendTLS{
			On: true, CAFile: r.path(string(tls.CAFile.V)), Name: strings.TrimSuffix(string(tls.Name.V), "."), Unverified: tls.Verify.set() && !bool(tls.Verify.V),
		}
		if b.BackendTLS.Unverified && tls.CAFile.ok() {
			r.fail(tls.CAFile.spot, key+".backend_tls.ca_file", "verifies nothing with verify: off: want one of the two")
		}
	}
}
