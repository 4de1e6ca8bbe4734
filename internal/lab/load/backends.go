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

func (r *resolver) check(raw *rawCheck, mode lab.BalanceMode, key string) lab.Check {
	kind := lab.CheckTCP
	if mode == lab.ModeUDP { // most servers of UDP do not listen on the same port of TCP
		kind = lab.CheckNone
	}
	c := lab.Check{
		Kind: raw.Kind.or(kind), Name: strings.TrimSuffix(string(raw.Name.V), "."), Path: string(raw.Path.V), Port: uint16(raw.Port.V),
		Expect: lab.Statuses(strings.Join(values(raw.Expect.scalars, func(s statuses) string { return string(s) }), ",")),
		Host:   string(raw.Host.V), SNI: strings.TrimSuffix(string(raw.SNI.V), "."), CAFile: r.optionalPath(raw.CAFile),
		Interval: time.Duration(raw.Interval.or(span(checkInterval))), Timeout: time.Duration(raw.Timeout.or(span(checkTimeout))),
		FastInterval: time.Duration(raw.Fast.or(span(checkFast))),
		Silence:      time.Duration(raw.Silence.V),
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
	case raw.Name.set() && c.Kind != lab.CheckDNS:
		r.fail(raw.Name.spot, key+".name", "is for checks of kind dns: this one is %s", c.Kind)
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

func (r *resolver) backends(e *entry[rawBalancer], of *lab.Balancer, key string) []lab.Backend {
	type place struct {
		addr netip.AddrPort
		name string // of one without an address
	}
	var out []lab.Backend
	type listed struct {
		s    spot
		host *lab.Host
	}
	places := map[place]listed{}
	raw := &e.V.Backends
	for i := range raw.Items {
		m := &raw.Items[i]
		at := fmt.Sprintf("%s.backends[%d]", key, i)
		b, ok := r.backendItem(m, at)
		if !ok || !r.backendPort(&b, of, m.spot, at) {
			continue
		}
		p := place{addr: b.Addr}
		if b.Dynamic() {
			p.name = b.Name
		}
		first, twice := places[p]
		if twice && first.host == b.Host { // two hosts with one address are reported as that
			r.fail(m.spot, at, "%s is listed twice, here and at %s: want it once", b.AddrText(), r.pos(first.s))
		}
		if !twice {
			places[p] = listed{m.spot, b.Host}
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

// backendPort gives a backend without a port that of the balancer; where that has several, it keeps port 0: that to which the
// client has connected. It reports a port that is needed, by false.
func (r *resolver) backendPort(m *lab.Backend, b *lab.Balancer, s spot, at string) bool {
	if m.Addr.Port() != 0 {
		return true
	}
	port := b.Listen.Port()
	m.Addr = netip.AddrPortFrom(m.Addr.Addr(), port)
	with := func(port uint16) string {
		example := *m
		example.Addr = netip.AddrPortFrom(m.Addr.Addr(), port)
		return example.AddrText()
	}
	switch {
	case port != 0 || b.Check.Kind == lab.CheckNone && b.Mode != lab.ModeHTTP || b.Check.Port != 0 && b.Mode != lab.ModeHTTP:
		return true
	case len(b.Listen) == 0 && !b.Health: // reported
	case len(b.Listen) == 0:
		r.fail(s, at, "has no port: want one, as in %s", with(443))
	case b.Mode == lab.ModeHTTP:
		r.fail(s, at, "has no port, and the balancer listens on several: want one, as in %s, in mode http", with(80))
	default:
		r.fail(s, at, "has no port, and the balancer listens on several: want one to check, as in check: {kind: http, port: 10256, path: /healthz}, or check: {kind: none}")
	}
	return false
}

// backendItem returns a backend of the list; false: it has an error.
func (r *resolver) backendItem(m *either[backendAddr, rawBackend], at string) (lab.Backend, bool) {
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
	if raw.Weight.ok() && (b.Weight < 1 || b.Weight > lab.MaxWeight) {
		r.fail(raw.Weight.spot, at+".weight", "%d is not a weight: want 1 to %d; bootlab backend drain takes a backend out", b.Weight, lab.MaxWeight)
	}
	return b, ok
}

// inDNS reports whether a name of a backend is looked up in DNS: it has a dot and is in no domain of the lab, or it is absolute. That a
// name in the lab's domains is none of a host is probably a mistake.
func (r *resolver) inDNS(name string) bool {
	plain, absolute := strings.CutSuffix(strings.ToLower(name), ".")
	if !strings.Contains(plain, ".") || checkDomain(plain) != nil || strings.HasPrefix(plain, "*") || strings.Trim(plain, "0123456789.") == "" {
		return false
	}
	in := func(domain string) bool { return plain == domain || strings.HasSuffix(plain, "."+domain) }
	return absolute || !in(r.lab.Domain) && !slices.ContainsFunc(r.lab.Clusters, func(c *lab.Cluster) bool { return in(c.Domain) })
}

// backend finds the host or address of a backend.
func (r *resolver) backend(m *scalar[backendAddr], key string) (lab.Backend, bool) {
	number, _ := strconv.ParseUint(m.V.port, 10, 16) // backendAddr.parse checks it; 0: none
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
	if h == nil && !r.inDNS(m.V.host) {
		r.unknownBackend(m, key)
		return lab.Backend{}, false
	}
	var named4, named6 netip.Addr
	if h != nil {
		named4, named6 = h.NamedAddrs()
	}
	switch {
	case h == nil:
		return lab.Backend{Name: name, Addr: netip.AddrPortFrom(netip.Addr{}, uint16(number))}, true
	case !named4.IsValid() && !named6.IsValid() && len(h.MACs) == 0:
		r.fail(m.spot, key, "host %s (%s) has no ip, and no mac that could get a lease: want one there, or an address here", h.Name, h.Pos)
		return lab.Backend{}, false
	case !named4.IsValid() && !named6.IsValid():
		return lab.Backend{Name: h.Name, Host: h, Addr: netip.AddrPortFrom(netip.Addr{}, uint16(number))}, true
	}
	a := named4
	if !a.IsValid() {
		a = named6
	}
	return lab.Backend{Name: h.Name, Host: h, Addr: netip.AddrPortFrom(a, uint16(number))}, true
}

// unknownBackend reports a backend that is no host: by the name of the host that was probably meant, unless its domain is wrong because its cluster
// is.
func (r *resolver) unknownBackend(m *scalar[backendAddr], key string) {
	known, label := r.raw.Hosts.names(), m.V.host
	if label == "localhost" {
		r.failOnce(m.spot, key, "host %[2]q%[1]s is not in the lab: did you mean 127.0.0.1?", label)
		return
	}
	if i := strings.IndexByte(label, '.'); i > 0 {
		label = label[:i]
		if e := r.raw.Hosts.byName[label]; e != nil && e.V.Cluster.set() && r.clusters[string(e.V.Cluster.V)] == nil {
			return // reported already
		}
		if near := lab.Nearest(label, known); near == "" || !r.misnamed["hosts."+near] {
			if h := r.hosts[near]; h != nil {
				r.failOnce(m.spot, key, "host %[2]q%[1]s is not in the lab: did you mean %[3]s or %[4]s?", m.V.host, near, h.FQDN)
				return
			}
			label = m.V.host
		}
	}
	r.unknownName(m.spot, key, "host", label, known)
}
