package load

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

func (r *resolver) balancerList() {
	for _, e := range r.raw.Balancers.Entries {
		r.lab.Balancers = append(r.lab.Balancers, r.balancer(e))
	}
}

func (r *resolver) balancer(e *entry[rawBalancer]) *lab.Balancer {
	raw, key := &e.V, "balancers."+e.Name
	r.identName(e.spot, key, e.Name)
	b := &lab.Balancer{
		Pos: r.pos(e.spot), Name: e.Name, Listen: r.binds(&raw.Listen, key+".listen"), Mode: raw.Mode.or(lab.ModeTCP), Balance: raw.Balance.or(lab.RoundRobin),
		Check: r.check(&raw.Check, raw.Mode.V, key+".check"), SendProxy: raw.SendProxy.V.number(),
		Match: lab.Match{
			SNI: r.patterns(raw.Match.SNI), Host: r.patterns(raw.Match.Host), Path: r.matchPaths(raw.Match.Path, key+".match.path"),
		},
		AcceptProxy:    values(raw.AcceptProxy, func(s source) netip.Prefix { return s.Prefix }),
		MaxConnections: int(raw.MaxConnections.V),
		Queue:          int(raw.Queue.or(defaultQueue)),
		Timeouts:       timeouts(&raw.Timeouts, raw.Mode.V),
		Log:            raw.Log.or(lab.LogNone), OnDown: raw.OnDown.or(lab.OnDownKeep), Protocol: raw.Protocol.or(lab.BackendHTTP1),
		Responses: lab.AnyResponses, Redirect: raw.Redirect.or(lab.RedirectOff), Sticky: string(raw.Sticky.V),
		TrustedProxies: values(raw.TrustedProxies, func(s source) netip.Prefix { return s.Prefix }),
	}
	if !bool(raw.Health.V) && !raw.Listen.set() {
		r.failMissing(e.spot, key+".listen", "is missing: want an address such as 192.168.16.10:80")
	}
	if raw.Responses.ok() {
		b.Responses = int(raw.Responses.V)
	}
	b.Health = bool(raw.Health.V)
	b.Backends = r.backends(e, b, key)
	r.balancerNames(e, b, key)
	r.tls(raw, b, key)
	r.backendTLS(raw, b, key)
	if raw.Mode.bad() {
		return b // keys that depend on it would be errors that follow
	}
	r.modeKeys(raw, b.Mode, key)
	r.unreached(raw, b, key)
	switch {
	case b.Mode == lab.ModeHTTP: // in HTTP mode a server name is a host
		b.Match = lab.Match{Host: append(b.Match.Host, b.Match.SNI...), Path: b.Match.Path}
	case len(b.Match.Host) > 0:
		r.fail(raw.Match.Host.spot, key+".match.host", "is read from HTTP, which mode %s does not see: want mode: http, or sni in mode tcp", b.Mode)
	case len(b.Match.Path) > 0:
		r.fail(raw.Match.Path.spot, key+".match.path", "is read from HTTP, which mode %s does not see: want mode: http", b.Mode)
	}
	return b
}

// unreached warns of backends that no request gets to, because the balancer redirects all of them.
func (r *resolver) unreached(raw *rawBalancer, b *lab.Balancer, key string) {
	if b.Redirect == lab.RedirectHTTPS && len(b.Backends) > 0 && raw.TLS.V == nil && len(b.TrustedProxies) == 0 {
		r.lab.Warnings.Addf(r.pos(raw.Redirect.spot), key+".redirect",
			"every request without TLS is redirected, so that the backends are never used: want a balancer of their own with match, or no backends")
	}
}

// maxPorts is how many ports one balancer may listen on: each has a socket.
const maxPorts = 8192

// binds returns where a balancer listens.
func (r *resolver) binds(raw *oneOrMore[bind], key string) lab.Binds {
	all := lab.Binds(values(raw.scalars, func(b bind) lab.Bind { return b.Bind }))
	if raw.set() && !raw.bad() && len(raw.Items) == 0 {
		r.fail(raw.spot, key, "is empty: want an address such as 192.168.16.10:80, or a list of addresses")
	}
	for i, b := range all {
		for _, other := range all[:i] {
			if b.SharesPort(other) && sameAddr(b.Addr, other.Addr) {
				r.fail(raw.spot, key, "%s and %s overlap: want each port of an address once", other, b)
			}
		}
	}
	if n := all.Ports(); n > maxPorts {
		r.fail(raw.spot, key, "has %d ports: want at most %d", n, maxPorts)
	}
	return all
}

// balancerNames resolves the names of a balancer, and whether they follow its backends.
func (r *resolver) balancerNames(e *entry[rawBalancer], b *lab.Balancer, key string) {
	raw := &e.V
	for i := range raw.Names.Items {
		n := &raw.Names.Items[i]
		if !n.ok() {
			continue
		}
		name, absolute := strings.CutSuffix(string(n.V), ".")
		if !absolute {
			name += "." + r.lab.Domain
		}
		if len(name) > maxName {
			r.fail(n.spot, fmt.Sprintf("%s.names[%d]", key, i), "the name %s has %d characters: want at most %d", name, len(name), maxName)
		}
		b.Names = append(b.Names, name)
	}
	switch {
	case b.Health && !raw.Names.set():
		r.failMissing(e.spot, key+".names", "is missing: want the names that follow the backends, such as [registry]")
	case b.Health && b.Check.Kind == lab.CheckNone:
		r.fail(raw.Check.Kind.spot, key+".check.kind", "none makes no backend unhealthy: want another check, or no health")
	case !b.Health && len(b.Names) > 0 && slices.ContainsFunc(b.Listen, func(at lab.Bind) bool { return at.Addr.IsUnspecified() }):
		r.fail(raw.Names.spot, key+".names", "need an address, and listen (%s) has none: want one like 192.168.16.10:80, or health: true", b.Listen)
	}
}

// timeouts returns the timeouts of a balancer.
func timeouts(raw *rawTimeouts, mode lab.BalanceMode) lab.Timeouts {
	idleTimeout := idleTimeout
	if mode == lab.ModeUDP {
		idleTimeout = sessionTimeout
	}
	return lab.Timeouts{
		Connect: time.Duration(raw.Connect.or(span(connectTimeout))), Idle: time.Duration(raw.Idle.or(span(idleTimeout))), Queue: time.Duration(raw.Queue.V),
		Server: time.Duration(raw.Server.V), Request: time.Duration(raw.Request.V), Body: time.Duration(raw.Body.V), KeepAlive: time.Duration(raw.Keep.V),
	}.WithDefaults()
}

// matchPaths returns paths without the "/" at their end.
func (r *resolver) matchPaths(l scalars[text], key string) (out []string) {
	for i := range l.Items {
		item := &l.Items[i]
		path := strings.TrimRight(string(item.V), "/")
		switch {
		case !item.ok():
		case !strings.HasPrefix(string(item.V), "/") || strings.ContainsAny(path, "?#*") || strings.ContainsFunc(path, func(c rune) bool { return c <= ' ' || c >= 0x7f }):
			r.fail(item.spot, fmt.Sprintf("%s[%d]", key, i), "%q is not a path: want one like /api, which is everything below it, too", item.V)
		case path == "":
			r.fail(item.spot, fmt.Sprintf("%s[%d]", key, i), "is every path: want match without path")
		default:
			out = append(out, path)
		}
	}
	return out
}

func (r *resolver) patterns(l scalars[domain]) []string {
	return values(l, func(d domain) string { return strings.TrimSuffix(string(d), ".") })
}

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
