package load

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
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
		Pos: r.pos(e.spot), Name: e.Name, Listen: raw.Listen.V.orEvery(), Mode: raw.Mode.or(lab.ModeTCP), Balance: raw.Balance.or(lab.RoundRobin),
		Check: r.check(&raw.Check, key+".check"), Backends: r.backends(e, key), SendProxy: raw.SendProxy.V.number(),
		Match: lab.Match{
			SNI: r.patterns(raw.Match.SNI), Host: r.patterns(raw.Match.Host), Path: r.matchPaths(raw.Match.Path, key+".match.path"),
		},
		AcceptProxy:    values(raw.AcceptProxy, func(s source) netip.Prefix { return s.Prefix }),
		MaxConnections: int(raw.MaxConnections.V),
		Queue:          int(raw.Queue.or(defaultQueue)),
		Timeouts:       timeouts(&raw.Timeouts),
		Log:            raw.Log.or(lab.LogNone), OnDown: raw.OnDown.or(lab.OnDownKeep), Protocol: raw.Protocol.or(lab.BackendHTTP1),
		Redirect: raw.Redirect.or(lab.RedirectOff), Sticky: string(raw.Sticky.V),
		TrustedProxies: values(raw.TrustedProxies, func(s source) netip.Prefix { return s.Prefix }),
	}
	if !raw.Health.V {
		missing(r, &raw.Listen, e.spot, key+".listen", "an address such as 192.168.16.10:80")
	}
	r.balancerNames(e, b, key)
	r.tls(raw, b, key)
	r.backendTLS(raw, b, key)
	if b.Mode == lab.ModeTCP {
		r.onlyHTTP(raw, key)
	}
	switch {
	case b.Mode == lab.ModeHTTP: // in HTTP mode a server name is a host
		b.Match = lab.Match{Host: append(b.Match.Host, b.Match.SNI...), Path: b.Match.Path}
	case len(b.Match.Host) > 0:
		r.fail(raw.Match.Host.spot, key+".match.host", "is read from HTTP, which mode tcp does not see: want mode: http, or sni")
	case len(b.Match.Path) > 0:
		r.fail(raw.Match.Path.spot, key+".match.path", "is read from HTTP, which mode tcp does not see: add mode: http")
	}
	return b
}

// balancerNames resolves the names of a balancer, and whether they follow its members.
func (r *resolver) balancerNames(e *entry[rawBalancer], b *lab.Balancer, key string) {
	raw := &e.V
	b.Health = bool(raw.Health.V)
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
	case !b.Health && len(b.Names) > 0 && raw.Listen.ok() && b.Listen.Addr().IsUnspecified():
		r.fail(raw.Names.spot, key+".names", "need an address, and listen (%s) has none: want one like 192.168.16.10:80, or health: true", b.Listen)
	}
}

// tls sets how b ends its clients' TLS.
func (r *resolver) tls(raw *rawBalancer, b *lab.Balancer, key string) {
	tls := raw.TLS.V
	if tls == nil {
		return
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
	if len(names.Items) == 0 && !names.bad() {
		r.failMissing(at, key+".names", "is missing, and so is match.host: want the names that get a certificate, such as [web.lab.example.com]")
	}
	return c
}

// backendTLS sets how TLS is spoken with the backends of b.
func (r *resolver) backendTLS(raw *rawBalancer, b *lab.Balancer, key string) {
	tls := raw.BackendTLS.V
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

// timeouts returns the timeouts of a balancer.
func timeouts(raw *rawTimeouts) lab.Timeouts {
	return lab.Timeouts{
		Connect: time.Duration(raw.Connect.or(span(connectTimeout))), Idle: time.Duration(raw.Idle.or(span(idleTimeout))), Queue: time.Duration(raw.Queue.V),
		Server: time.Duration(raw.Server.V), Request: time.Duration(raw.Request.V), Body: time.Duration(raw.Body.V), KeepAlive: time.Duration(raw.Keep.V),
	}.WithDefaults()
}

// onlyHTTP reports keys that mode tcp does not have.
func (r *resolver) onlyHTTP(raw *rawBalancer, key string) {
	t, has := &raw.Timeouts, "no mode, which means tcp"
	if raw.Mode.set() {
		has = "mode tcp"
	}
	for _, k := range []struct {
		name string
		set  bool
		at   spot
	}{
		{"timeouts.server", t.Server.ok(), t.Server.spot}, {"timeouts.request", t.Request.ok(), t.Request.spot},
		{"timeouts.body", t.Body.ok(), t.Body.spot}, {"timeouts.keepalive", t.Keep.ok(), t.Keep.spot},
		{"tls", raw.TLS.V != nil, raw.TLS.spot}, {"backend_protocol", raw.Protocol.ok(), raw.Protocol.spot},
		{"backend_tls", raw.BackendTLS.V != nil, raw.BackendTLS.spot},
		{"redirect", raw.Redirect.ok(), raw.Redirect.spot}, {"sticky", raw.Sticky.ok(), raw.Sticky.spot},
		{"trusted_proxies", raw.TrustedProxies.set(), raw.TrustedProxies.spot},
		{"log", raw.Log.ok(), raw.Log.spot},
	} {
		if k.set {
			r.fail(k.at, key+"."+k.name, "is for mode http, and this balancer has %s: add mode: http", has)
		}
	}
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

func (r *resolver) check(raw *rawCheck, key string) lab.Check {
	c := lab.Check{
		Kind: raw.Kind.or(lab.CheckTCP), Path: string(raw.Path.V), Port: uint16(raw.Port.V),
		Expect: lab.Statuses(strings.Join(values(raw.Expect.scalars, func(s statuses) string { return string(s) }), ",")),
		Host:   string(raw.Host.V), SNI: strings.TrimSuffix(string(raw.SNI.V), "."), CAFile: r.optionalPath(raw.CAFile),
		Interval: time.Duration(raw.Interval.or(span(checkInterval))), Timeout: time.Duration(raw.Timeout.or(span(checkTimeout))),
		FastInterval: time.Duration(raw.Fast.or(span(checkFast))),
		Rise:         int(raw.Rise.or(checkRise)), Fall: int(raw.Fall.or(checkFall)),
	}
	if !raw.Fast.set() {
		c.FastInterval = min(c.FastInterval, c.Interval)
	}
	http, secure := c.Kind == lab.CheckHTTP || c.Kind == lab.CheckHTTPS, c.Kind == lab.CheckTLS || c.Kind == lab.CheckHTTPS
	switch {
	case raw.Kind.bad():
	case raw.Path.set() && !http:
		r.fail(raw.Path.spot, key+".path", "is for checks of kind http and https: this one is %s", c.Kind)
	case raw.Expect.set() && !http:
		r.fail(raw.Expect.spot, key+".expect", "is for checks of kind http and https: this one is %s", c.Kind)
	case raw.Path.ok() && c.Path[0] != '/':
		r.fail(raw.Path.spot, key+".path", "%q is not a path: want one like /healthz", c.Path)
	case strings.ContainsFunc(c.Path, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		r.fail(raw.Path.spot, key+".path", "%q has a space or a control character: want them encoded, as %%20", c.Path)
	case raw.Host.set() && !http:
		r.fail(raw.Host.spot, key+".host", "is for checks of kind http and https: this one is %s", c.Kind)
	case raw.SNI.set() && !secure:
		r.fail(raw.SNI.spot, key+".sni", "is for checks of kind tls and https: this one is %s", c.Kind)
	case raw.CAFile.set() && !secure:
		r.fail(raw.CAFile.spot, key+".ca_file", "is for checks of kind tls and https: this one is %s", c.Kind)
	case raw.Fast.ok() && c.FastInterval > c.Interval:
		r.fail(raw.Fast.spot, key+".fast_interval", "%s is longer than interval (%s)", c.FastInterval, c.Interval)
	}
	if http && c.Path == "" {
		c.Path = "/"
	}
	for name, v := range map[string]*scalar[count]{"rise": &raw.Rise, "fall": &raw.Fall} {
		if v.ok() && v.V == 0 {
			r.fail(v.spot, key+"."+name, "0 in a row is not possible: want 1 or more")
		}
	}
	return c
}

// optionalPath returns the absolute path of a file; empty: the key is missing.
func (r *resolver) optionalPath(v scalar[text]) string {
	if !v.ok() {
		return ""
	}
	return r.path(string(v.V))
}

func (r *resolver) backends(e *entry[rawBalancer], key string) []lab.Backend {
	var out []lab.Backend
	raw := &e.V.Backends
	for i := range raw.Items {
		m := &raw.Items[i]
		at := fmt.Sprintf("%s.backends[%d]", key, i)
		b, ok := r.backendItem(m, at)
		if !ok {
			continue
		}
		for _, other := range out {
			if other.Addr == b.Addr {
				r.fail(m.spot, at, "%s is listed twice", b.Addr)
			}
			if other.Name == b.Name {
				b.Name = b.Addr.String()
			}
		}
		out = append(out, b)
	}
	if len(raw.Items) == 0 && !raw.bad() && e.V.Redirect.V != lab.RedirectHTTPS {
		at := raw.spot
		if !raw.set() {
			at = e.spot
		}
		r.fail(at, key+".backends", "is missing: want a list such as [worker-0:80, 10.0.0.7:80]")
	}
	return out
}

// maxWeight is the largest weight, as HAProxy's.
const maxWeight = 256

// backendItem returns a backend of the list; false: it has an error.
func (r *resolver) backendItem(m *either[member, rawBackend], at string) (lab.Backend, bool) {
	if m.Long == nil {
		if !m.Short.ok() {
			return lab.Backend{}, false
		}
		return r.backend(&m.Short, at)
	}
	raw := m.Long
	if !missing(r, &raw.Address, m.spot, at+".address", "host:port like worker-0:80 or 10.0.0.7:80") {
		return lab.Backend{}, false
	}
	b, ok := r.backend(&raw.Address, at+".address")
	b.Weight, b.Backup, b.MaxConnections = int(raw.Weight.V), bool(raw.Backup.V), int(raw.MaxConnections.V)
	if raw.Weight.ok() && (b.Weight < 1 || b.Weight > maxWeight) {
		r.fail(raw.Weight.spot, at+".weight", "%d is not a weight: want 1 to %d; bootlab backend drain takes a backend out", b.Weight, maxWeight)
	}
	return b, ok
}

// backend finds the host or address of a member.
func (r *resolver) backend(m *scalar[member], key string) (lab.Backend, bool) {
	number, err := strconv.ParseUint(m.V.port, 10, 16)
	if err != nil {
		return lab.Backend{}, false // member.parse checks it
	}
	if a, err := netip.ParseAddr(m.V.host); err == nil {
		b := lab.Backend{Name: m.V.host, Addr: netip.AddrPortFrom(a.Unmap(), uint16(number)), Host: r.hostByIP[a.Unmap()]}
		if b.Host != nil {
			b.Name = b.Host.Name
		}
		if a.IsUnspecified() || a.IsMulticast() {
			r.fail(m.spot, key, "%s is not the address of a machine: want host:port like worker-0:80 or 10.0.0.7:80", a)
		}
		return b, true
	}
	h := r.hosts[m.V.host]
	name := strings.ToLower(strings.TrimSuffix(m.V.host, "."))
	if h == nil {
		h = r.names[name]
	}
	if h == nil {
		h = r.names[name+"."+r.lab.Domain]
	}
	var named4, named6 netip.Addr
	if h != nil {
		named4, named6 = h.NamedAddrs()
	}
	switch {
	case h == nil:
		r.unknownName(m.spot, key, "host", m.V.host, r.raw.Hosts.names())
		return lab.Backend{}, false
	case !named4.IsValid() && !named6.IsValid():
		r.fail(m.spot, key, "host %s (%s) has no ip: want one there, or an address here", h.Name, h.Pos)
		return lab.Backend{}, false
	}
	a := named4
	if !a.IsValid() {
		a = named6
	}
	return lab.Backend{Name: h.Name, Host: h, Addr: netip.AddrPortFrom(a, uint16(number))}, true
}

// listeners sorts the balancers and reports those that cannot listen side by side.
func (r *resolver) listeners() {
	slices.SortStableFunc(r.lab.Balancers, func(a, b *lab.Balancer) int { return strings.Compare(a.Name, b.Name) })
	r.sharedNames()
	for i, b := range r.lab.Balancers {
		if b.Listen.Port() == 0 {
			continue
		}
		r.applianceListens(b)
		r.hostListens(b)
		r.ownBackend(b)
		for _, other := range r.lab.Balancers[:i] {
			if other.Listen.Port() == b.Listen.Port() {
				r.sideBySide(other, b)
			}
		}
	}
}

// sharedNames reports a balancer of the file with the name of a derived one.
func (r *resolver) sharedNames() {
	for i, b := range r.lab.Balancers[min(1, len(r.lab.Balancers)):] {
		first := r.lab.Balancers[i]
		if first.Name != b.Name {
			continue
		}
		authored, derived := first, b
		if authored.Cluster != nil {
			authored, derived = derived, authored
		}
		if derived.Cluster == nil {
			continue
		}
		r.failAt(authored.Pos, "balancers."+b.Name, "cluster %s (%s) already defines a balancer of this name: want another name", derived.Cluster.Name, derived.Pos)
	}
}

// applianceListens reports a balancer on a port of the appliance itself.
func (r *resolver) applianceListens(b *lab.Balancer) {
	a := &r.lab.Appliance
	own := r.lab.OwnAddresses()
	for _, server := range []struct {
		key    string
		listen lab.Listen
	}{{"http", a.HTTP}, {"dns", a.DNS}, {"admin", a.Admin}} {
		if slices.ContainsFunc(server.listen.Addrs(own), func(l netip.AddrPort) bool {
			return l.Port() == b.Listen.Port() && sameAddr(l.Addr(), b.Listen.Addr())
		}) {
			r.failAt(b.Pos, balancerKey(b, "listen"), "%s is where the appliance listens (appliance.%s): want another address or port", b.Listen, server.key)
		}
	}
}

// hostListens reports a balancer on the address of another machine. Derived balancers are never there.
func (r *resolver) hostListens(b *lab.Balancer) {
	h := r.hostByIP[b.Listen.Addr()]
	if b.Cluster == nil && h != nil && h.Role != lab.RoleAppliance && len(h.MACs) > 0 {
		r.failAt(b.Pos, balancerKey(b, "listen"), "%s belongs to host %s (%s): want an address of the appliance", b.Listen.Addr(), h.Name, h.Pos)
	}
}

// ownBackend reports a balancer that would connect to itself.
func (r *resolver) ownBackend(b *lab.Balancer) {
	for i, m := range b.Backends {
		here := m.Addr == b.Listen || b.Listen.Addr().IsUnspecified() && m.Addr.Port() == b.Listen.Port() &&
			(m.Addr.Addr().IsLoopback() || slices.Contains(r.lab.OwnAddresses(), m.Addr.Addr()))
		if here {
			r.failAt(b.Pos, balancerKey(b, fmt.Sprintf("backends[%d]", i)), "%s is where the balancer itself listens: want the address of a server", m.Addr)
		}
	}
}

func balancerKey(b *lab.Balancer, key string) string {
	if b.Cluster != nil {
		return "clusters." + b.Cluster.Name + ".address"
	}
	return "balancers." + b.Name + "." + key
}

// sameAddr reports whether two sockets of one port conflict.
func sameAddr(a, b netip.Addr) bool { return a == b || a.IsUnspecified() || b.IsUnspecified() }

// sideBySide reports two balancers of one port that conflict.
func (r *resolver) sideBySide(a, b *lab.Balancer) {
	where := func() string { return fmt.Sprintf("balancer %s (%s)", a.Name, a.Pos) }
	switch {
	case a.Listen != b.Listen && sameAddr(a.Listen.Addr(), b.Listen.Addr()):
		r.failAt(b.Pos, balancerKey(b, "listen"), "%s and %s of %s cannot both be bound: want one address for both, or two that do not overlap", b.Listen, a.Listen, where())
	case a.Listen != b.Listen:
	case a.Mode != b.Mode:
		r.failAt(b.Pos, balancerKey(b, "listen"), "%s is shared with %s, which has mode %s: want one mode on one address", b.Listen, where(), a.Mode)
	case a.EndsTLS() != b.EndsTLS():
		r.failAt(b.Pos, balancerKey(b, "listen"), "%s is shared with %s, and only one of the two has tls: want tls in both or none", b.Listen, where())
	case empty(a.Match) && empty(b.Match):
		r.failAt(b.Pos, balancerKey(b, "listen"), "%s is taken by %s: want another address, or match to distinguish them", b.Listen, where())
	default:
		if p := common(a.Match, b.Match); p != "" {
			r.failAt(b.Pos, balancerKey(b, "match"), "%s on %s is also matched by %s: want different patterns", p, b.Listen, where())
		}
	}
}

func empty(m lab.Match) bool { return len(m.SNI) == 0 && len(m.Host) == 0 && len(m.Path) == 0 }

// common returns what both match, or "".
func common(a, b lab.Match) string {
	names, otherNames := append(slices.Clone(a.SNI), a.Host...), append(slices.Clone(b.SNI), b.Host...)
	name, sameName := shared(names, otherNames)
	path, samePath := shared(a.Path, b.Path)
	if !sameName || !samePath {
		return ""
	}
	return name + path
}

// shared returns an item of both lists; two empty lists share everything.
func shared(a, b []string) (item string, ok bool) {
	for _, item := range a {
		if slices.Contains(b, item) {
			return item, true
		}
	}
	return "", len(a) == 0 && len(b) == 0
}

// The ports of a Kubernetes API, of OpenShift's machine configuration, of ingress, and of the ingress router's health.
const (
	portAPI           = 6443
	portMachineConfig = 22623
	portHTTPS         = 443
	portHTTP          = 80
	portRouterHealth  = 1936
)

// deriveBalancers adds the balancers of clusters.
func (r *resolver) deriveBalancers() {
	for _, c := range r.lab.Clusters {
		if c.Kind == lab.Plain || c.Names && !c.Health {
			continue
		}
		r.deriveAPI(c)
		if c.Kind == lab.OpenShift {
			r.deriveMachineConfig(c)
			r.deriveIngress(c)
		}
	}
}

// ours reports whether the appliance can listen on a cluster's address. It can unless the address is reserved for a
// host: then traffic goes straight to that machine (a single-node cluster, or ingress on its only worker). The host
// with role appliance is the daemon itself.
func (r *resolver) ours(a netip.Addr) bool {
	if !a.IsValid() {
		return false
	}
	h := r.hostByIP[a]
	return h == nil || h.Role == lab.RoleAppliance
}

// memberAddr returns the address of h as a member of c: that in the network of the cluster's address, if it has several.
func (r *resolver) memberAddr(c *lab.Cluster, h *lab.Host) netip.Addr {
	if len(h.NICs) == 0 {
		return h.IP
	}
	var subnet netip.Prefix
	if n := lab.FindSubnet(r.bySubnet, c.Address); n != nil {
		subnet = n.Subnet
	}
	return h.AddrIn(subnet)
}

// members returns the backends of c with a role; backup marks them as used only while no other is up.
func (r *resolver) members(c *lab.Cluster, role string, port uint16, backup bool) []lab.Backend {
	n := 0
	for _, h := range c.Hosts {
		if h.Role == role {
			n++
		}
	}
	out := make([]lab.Backend, 0, n)
	for _, h := range c.Hosts {
		if h.Role != role {
			continue
		}
		if a := r.memberAddr(c, h); a.IsValid() {
			out = append(out, lab.Backend{Name: h.Name, Host: h, Addr: netip.AddrPortFrom(a, port), Backup: backup})
		}
	}
	return out
}

// derive adds one balancer of c if it has members. It listens nowhere if the cluster's names lead to the members.
func (r *resolver) derive(c *lab.Cluster, service string, listen netip.Addr, port uint16, b lab.Balancer) {
	if len(b.Backends) == 0 || !r.ours(listen) && !c.Health {
		return
	}
	b.Pos, b.Name, b.Cluster = c.Pos, c.BalancerOf(service), c
	if !c.Health {
		b.Listen = netip.AddrPortFrom(listen, port)
	}
	b.Timeouts = lab.Timeouts{Connect: connectTimeout, Idle: idleTimeout}.WithDefaults()
	b.Log, b.OnDown, b.Protocol = lab.LogNone, lab.OnDownKeep, lab.BackendHTTP1
	b.Redirect = lab.RedirectOff
	b.Check.Interval, b.Check.FastInterval, b.Check.Timeout, b.Check.Rise, b.Check.Fall = checkInterval, checkFast, checkTimeout, checkRise, checkFall
	if b.Mode == "" {
		b.Mode = lab.ModeTCP
	}
	r.lab.Balancers = append(r.lab.Balancers, &b)
}

// deriveAPI checks /readyz, not the port: an API server accepts connections long before it serves and long after it
// stopped. Talos and hardened clusters run it with --anonymous-auth=false: it answers 401 to the check.
func (r *resolver) deriveAPI(c *lab.Cluster) {
	expect := lab.Statuses("200")
	if c.Kind == lab.Kubernetes { // Talos' API server tells nobody more without a login
		expect = "200,401"
	}
	r.derive(c, lab.ServiceAPI, c.API, portAPI, lab.Balancer{
		Balance: lab.RoundRobin, Match: sniMatch(c, "api", "api-int"),
		Check:    lab.Check{Kind: lab.CheckHTTPS, Path: "/readyz", Expect: expect},
		Backends: append(r.members(c, lab.RoleControlPlane, portAPI, false), r.members(c, lab.RoleBootstrap, portAPI, true)...),
	})
}

// deriveMachineConfig keeps workers from the bootstrap: its machine-config server has no configuration for them, and they are to wait until the
// control plane's has.
func (r *resolver) deriveMachineConfig(c *lab.Cluster) {
	if c.Health {
		return // api-int follows the API
	}
	bootstraps := r.members(c, lab.RoleBootstrap, portMachineConfig, true)
	for i := range bootstraps {
		bootstraps[i].NotFor = r.workers(c)
	}
	r.derive(c, "machine-config", c.API, portMachineConfig, lab.Balancer{
		Balance: lab.RoundRobin, Match: sniMatch(c, "api-int", "api"),
		Check:    lab.Check{Kind: lab.CheckHTTPS, Path: "/healthz", Expect: "200"},
		Backends: append(r.members(c, lab.RoleControlPlane, portMachineConfig, false), bootstraps...),
	})
}

// workers returns the addresses of the workers of c, sorted.
func (r *resolver) workers(c *lab.Cluster) (addrs []netip.Addr) {
	for _, h := range c.Hosts {
		if a := r.memberAddr(c, h); h.Role == lab.RoleWorker && a.IsValid() {
			addrs = append(addrs, a)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs
}

// deriveIngress sends to the workers, or to the control plane where there are none. The router answers for its health
// on a port of its own, so that a node without a router takes no traffic.
func (r *resolver) deriveIngress(c *lab.Cluster) {
	role := lab.RoleControlPlane
	if slices.ContainsFunc(c.Hosts, func(h *lab.Host) bool { return h.Role == lab.RoleWorker && r.memberAddr(c, h).IsValid() }) {
		role = lab.RoleWorker
	}
	check := lab.Check{Kind: lab.CheckHTTP, Path: "/healthz/ready", Port: portRouterHealth, Expect: "200"}
	r.derive(c, lab.ServiceIngress, c.Ingress, portHTTPS, lab.Balancer{
		Balance: lab.SourceHash, Match: sniMatch(c, "*.apps"), Check: check, Backends: r.members(c, role, portHTTPS, false),
	})
	if c.Health {
		return // *.apps follows the balancer above
	}
	plain := lab.Balancer{Balance: lab.SourceHash, Check: check, Backends: r.members(c, role, portHTTP, false)}
	if c.SNI {
		plain.Mode, plain.Match.Host = lab.ModeHTTP, []string{"*.apps." + c.Domain}
	}
	r.derive(c, "ingress-http", c.Ingress, portHTTP, plain)
}

// sniMatch returns the match of a balancer of c: empty, unless c shares its address.
func sniMatch(c *lab.Cluster, names ...string) lab.Match {
	if !c.SNI {
		return lab.Match{}
	}
	var m lab.Match
	for _, name := range names {
		m.SNI = append(m.SNI, name+"."+c.Domain)
	}
	return m
}
