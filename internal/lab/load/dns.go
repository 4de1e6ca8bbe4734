package load

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// defaultRateLimit is in replies per second; a resolver that caches needs few.
const defaultRateLimit = 200

// A zoneForward says which names of a zone are forwarded.
type zoneForward string

const forwardMissing zoneForward = "missing"

// A zoneLeases says where the names of DHCP clients are, beside answers.
type zoneLeases string

const leasesTransfer zoneLeases = "transfer"

func (r *resolver) dns() {
	raw, d := &r.raw.DNS, &r.lab.DNS
	if r.lab.Appliance.DNS == nil && (raw.Forward.set() || raw.ForwardZones.set() || raw.Zones.set()) {
		r.lab.Warnings.Addf(r.pos(r.raw.Appliance.DNS.spot), "appliance.dns", "is off, so dns is not served")
	}
	d.Forward = r.nameServers(raw.Forward, "dns.forward")
	d.RateLimit = int(raw.RateLimit.or(defaultRateLimit))
	d.CacheEntries, d.CacheSize = int(raw.Cache.Entries.V), raw.Cache.Size.V
	d.Allow = values(raw.Allow, func(s source) netip.Prefix { return s.Prefix })
	r.openForwarder(raw.Allow)
	r.keys()
	d.Transfer = r.access(raw.Transfer, "dns.transfer")
	d.Notify = values(raw.Notify, func(n secondary) lab.Secondary { return n.Secondary })
	for i := range raw.Notify.Items {
		if n := &raw.Notify.Items[i]; n.ok() {
			r.keyIsKnown(n.V.Key, n.spot, fmt.Sprintf("dns.notify[%d]", i))
		}
	}
	if !raw.Notify.set() {
		for _, a := range d.Transfer {
			if a.From.IsSingleIP() && !a.From.Addr().IsLoopback() {
				d.Notify = append(d.Notify, lab.Secondary{Addr: netip.AddrPortFrom(a.From.Addr(), 53), Key: a.Key})
			}
		}
	}
	for _, e := range raw.ForwardZones.Entries {
		key := "dns.forward_zones." + e.Name
		name := r.zoneName(e.Name, e.spot, key)
		if len(e.V.Items) == 0 {
			r.fail(e.spot, key, "has no name server: want a list such as [10.0.0.53]")
		}
		r.forwarded[name+"."] = true
		d.ForwardZones = append(d.ForwardZones, lab.ForwardZone{Domain: name, Servers: r.nameServers(e.V, key)})
	}
	r.staticZones()
}

// keys resolves dns.keys.
func (r *resolver) keys() {
	for _, e := range r.raw.DNS.Keys.Entries {
		key := "dns.keys." + e.Name
		k := lab.TSIGKey{Pos: r.pos(e.spot), Name: keyName(e.Name), Algorithm: string(e.V.Algorithm.or("hmac-sha256")), SecretFile: r.path(string(e.V.SecretFile.V))}
		if checkZone(strings.TrimSuffix(k.Name, ".")) != nil {
			r.fail(e.spot, key, "%q is not the name of a key: want a domain name, such as ns2 or ns2.example", e.Name)
		}
		if slices.ContainsFunc(r.lab.DNS.Keys, func(o lab.TSIGKey) bool { return o.Name == k.Name }) {
			r.fail(e.spot, key, "is defined twice: want one key of that name")
		}
		r.lab.DNS.Keys = append(r.lab.DNS.Keys, k)
	}
	slices.SortFunc(r.lab.DNS.Keys, func(a, b lab.TSIGKey) int { return strings.Compare(a.Name, b.Name) })
}

// access returns the rules of a list, whose keys must be known.
func (r *resolver) access(l scalars[access], key string) []lab.Access {
	for i := range l.Items {
		if a := &l.Items[i]; a.ok() {
			r.keyIsKnown(a.V.Key, a.spot, fmt.Sprintf("%s[%d]", key, i))
		}
	}
	return values(l, func(a access) lab.Access { return a.Access })
}

// keyIsKnown reports a key that is not in dns.keys.
func (r *resolver) keyIsKnown(name string, s spot, key string) {
	known := func(k lab.TSIGKey) bool { return k.Name == name }
	if name != "" && !slices.ContainsFunc(r.lab.DNS.Keys, known) {
		if !r.incomplete["dns.keys"] && !r.incomplete["dns"] {
			r.failOnce(s, key, "%[2]q%[1]s is not a key of dns.keys: want dns: {keys: {%[2]s: {secret_file: FILE}}}", strings.TrimSuffix(name, "."))
		}
	}
}

// openForwarder warns of clients that are half the internet: who forges the address of a victim could send it any number of
// answers (RFC 5358).
func (r *resolver) openForwarder(allow scalars[source]) {
	for i := range allow.Items {
		p := &allow.Items[i]
		if !p.ok() {
			continue
		}
		few := 8 // bits of a prefix of one owner
		if p.V.Addr().Is6() {
			few = 16
		}
		if p.V.Bits() < few && !p.V.Addr().IsPrivate() && !p.V.Addr().IsLinkLocalUnicast() {
			r.lab.Warnings.Addf(r.pos(p.spot), fmt.Sprintf("dns.allow[%d]", i), "%s covers the internet, or much of it: anyone could use this forwarder to attack others; "+
				"list your own networks", p.V.Prefix)
		}
	}
}

// nameServers returns the servers of a forwarding rule.
func (r *resolver) nameServers(l list[either[upstream, rawUpstream]], key string) []lab.NameServer {
	var servers []lab.NameServer
	for i := range l.Items {
		raw, key := &l.Items[i], fmt.Sprintf("%s[%d]", key, i)
		n := lab.NameServer{Pos: r.pos(raw.spot)}
		switch long := raw.Long; {
		case long != nil:
			missing(r, &long.Address, raw.spot, key+".address", "the address of a server that speaks DNS over TLS, such as 9.9.9.9")
			missing(r, &long.TLS, raw.spot, key+".tls", "the name in its certificate, such as dns.quad9.net")
			if !long.Address.ok() || !long.TLS.ok() {
				continue
			}
			if strings.HasPrefix(string(long.TLS.V), "*") {
				r.fail(long.TLS.spot, key+".tls", "%q is not the name of a server: want one like dns.quad9.net", long.TLS.V)
			}
			n.Addr, n.TLS, n.CAFile = long.Address.V.AddrPort, strings.TrimSuffix(string(long.TLS.V), "."), r.path(string(long.CAFile.V))
		case !raw.Short.ok():
			continue
		case raw.Short.V.file != "":
			n.File = r.path(raw.Short.V.file)
		default:
			n.Addr = raw.Short.V.AddrPort
		}
		if n.Addr.IsValid() && r.forwardsToItself(n.Addr, raw.spot, key) {
			continue
		}
		servers = append(servers, n)
	}
	return servers
}

// updateReserved returns the reserved names that updates of a zone may have.
func (r *resolver) updateReserved(e *entry[rawZone], key string) (names []string) {
	for i := range e.V.UpdRes.Items {
		n := &e.V.UpdRes.Items[i]
		if !n.ok() {
			continue
		}
		name, at := strings.ToLower(string(n.V)), fmt.Sprintf("%s.update_reserved[%d]", key, i)
		switch {
		case !e.V.Update.set():
			r.fail(n.spot, at, "needs update: no client may update the zone")
		case name != "*" && (checkDomain(name) != nil || strings.HasSuffix(name, ".")):
			r.fail(n.spot, at, "%q is not a name of the zone: want one like wpad or *.dev", n.V)
		case !lab.ReservedName(name):
			r.fail(n.spot, at, "%q is not reserved: updates may have it already", n.V)
		}
		names = append(names, name)
	}
	return names
}

// forwardsToItself reports an upstream that is the appliance: queries would loop.
func (r *resolver) forwardsToItself(server netip.AddrPort, at spot, key string) bool {
	if !r.lab.AnswersDNS(server) {
		return false
	}
	where := ""
	for _, n := range r.lab.Networks {
		if n.Address == server.Addr() {
			where = " in network " + n.Name
		}
	}
	r.fail(at, key, "%s is this appliance%s: want another name server", server.Addr(), where)
	return true
}

// zoneName checks the name of a zone and returns it in lower case without a final dot.
func (r *resolver) zoneName(name string, s spot, key string) string {
	err := checkZone(name)
	if strings.HasPrefix(name, "*") {
		err = errors.New("wildcard")
	}
	if err != nil {
		r.fail(s, key, "%q is not a domain: want one like corp.example", name)
	}
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

func (r *resolver) staticZones() {
	for _, e := range r.raw.DNS.Zones.Entries {
		key := "dns.zones." + e.Name
		z := &lab.Zone{Pos: r.pos(e.spot), Origin: r.zoneName(e.Name, e.spot, key) + ".", File: r.path(string(e.V.File.or("")))}
		for i := range e.V.Records.Items {
			if line := &e.V.Records.Items[i]; line.ok() {
				z.Lines = append(z.Lines, lab.Line{Pos: r.pos(line.spot), Text: string(line.V)})
			}
		}
		switch first := r.zones[z.Origin]; {
		case first != nil:
			r.fail(e.spot, key, "is zone %s, which is defined already (%s): want it once", z.Origin, first.Pos)
		case e.V.File.set() && e.V.Records.set():
			r.fail(e.V.File.spot, key+".file", "excludes records (%s): want one of the two", r.pos(e.V.Records.spot))
		case !e.V.File.set() && !e.V.Records.set() && !e.V.Forward.set() && !e.V.Update.set() && !e.V.Leases.set():
			if !r.incomplete[key] {
				r.fail(e.spot, key, "is empty: want records or file")
			}
		}
		z.ForwardMissing, z.Leases = e.V.Forward.set(), e.V.Leases.ok()
		z.Update = r.access(e.V.Update, key+".update")
		if i := slices.IndexFunc(z.Update, func(a lab.Access) bool { return a.Key == "" }); i >= 0 {
			r.fail(e.V.Update.spot, key+".update", "is open to any client that uses an address: want a key too, such as %s key NAME", z.Update[i].From)
		}
		z.UpdateReserved = r.updateReserved(e, key)
		z.Derived = !e.V.File.set() && !e.V.Records.set()
		r.zones[z.Origin] = z
	}
}
