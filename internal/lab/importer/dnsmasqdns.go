package importer

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// resolver reads where questions are forwarded to.
func (q *dnsmasq) resolver() {
	servers := append(q.take("server"), q.take("local")...)
	for _, st := range servers {
		domains, server := domainsOf(st.value)
		address, ok := q.upstream(st, server)
		switch {
		case !ok:
		case len(domains) == 0:
			q.dns.append("forward", st.at, address)
		default:
			for _, domain := range domains {
				q.forwardZone(st, domain, address)
			}
		}
	}
	for _, st := range q.take("rev-server") {
		p, err := netip.ParsePrefix(first(st.words))
		if err != nil || !p.Addr().Is4() || p.Bits()%8 != 0 || p.Bits() == 0 || len(st.words) < 2 {
			q.note(st.at, "want an IPv4 prefix that ends at a dot, and a server: it is left out")
			continue
		}
		b := p.Masked().Addr().As4()
		domain := "in-addr.arpa"
		for i := range p.Bits() / 8 {
			domain = fmt.Sprintf("%d.%s", b[i], domain)
		}
		if address, ok := q.upstream(st, st.words[1]); ok {
			q.forwardZone(st, domain, address)
		}
	}
	files := q.take("resolv-file")
	if len(q.statements["no-resolv"]) > 0 || q.appliance.value("dns") == "off" {
		for _, st := range files { // dnsmasq does not read them either
			q.accounted[st.at.on()] = true
		}
		files = nil
	} else if q.dns.get("forward") == nil && len(files) == 0 && q.servesNames() {
		files = []statement{{at: place{text: "resolv-file=/etc/resolv.conf"}, value: "/etc/resolv.conf"}}
	}
	for _, st := range files {
		q.dns.append("forward", st.at, st.value)
	}
	q.forwardAll = q.dns.get("forward") != nil
}

// padded returns words with empty ones behind, n at least.
func padded(words []string, n int) []string {
	return append(slices.Clone(words), make([]string, max(0, n-len(words)))...)
}

func first(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return words[0]
}

// servesNames reports whether the files are a whole configuration with DNS, and not the fragment of one.
func (q *dnsmasq) servesNames() bool {
	return q.wantsNames || len(q.ranges) > 0 || len(q.statements["address"])+len(q.statements["host-record"])+len(q.statements["hosts-line"]) > 0
}

// domainsOf splits /domain/domain/value.
func domainsOf(s string) (domains []string, value string) {
	if !strings.HasPrefix(s, "/") {
		return nil, s
	}
	parts := strings.Split(s[1:], "/")
	for _, p := range parts[:len(parts)-1] {
		domains = append(domains, strings.ToLower(strings.Trim(p, ".")))
	}
	return domains, parts[len(parts)-1]
}

// upstream returns a server in the notation of the lab file; "" is a domain without servers.
func (q *dnsmasq) upstream(st statement, s string) (string, bool) {
	s, source, bound := strings.Cut(s, "@")
	if bound {
		q.note(st.at, "@%s is left out: the kernel chooses interface and source address", source)
	}
	host, port, ported := strings.Cut(s, "#")
	switch a, err := netip.ParseAddr(host); {
	case s == "" || s == "#": // none; the usual ones
		return s, true
	case err != nil:
		q.note(st.at, "%q is not an address: it is left out", s)
		return "", false
	case !ported || port == "53":
		return host, true
	case a.Is6():
		return "[" + host + "]:" + port, true
	}
	return host + ":" + port, true
}

// forwardZone forwards a domain to a server, or, without one, keeps it here.
func (q *dnsmasq) forwardZone(st statement, domain, server string) {
	switch {
	case domain == "" || domain == "#":
		q.note(st.at, "names without dots are not forwarded: it is left out")
	case server == "#":
		q.note(st.at, "names below %s are forwarded only if the zone around it says forward: missing: it is left out", domain)
	case server == "":
		q.owned[domain], q.accounted[st.at.on()] = true, true
		if q.local[domain] = st; q.domain == "" {
			q.domain, q.domainAt = domain, st.at
		}
	default:
		q.dns.under("forward_zones", st.at).append(domain, st.at, server)
	}
}

// records reads names and records.
func (q *dnsmasq) records() {
	for _, st := range q.take("hosts-line") {
		q.hostsLine(st)
	}
	for _, st := range q.take("host-record") {
		q.hostRecord(st)
	}
	q.chooseDomain()
	for _, st := range q.take("address") {
		q.wildcard(st)
	}
	for _, st := range q.take("cname") {
		q.cname(st)
	}
	for _, st := range q.take("srv-host") {
		w := padded(st.words, 5)
		target, port, priority, weight := w[1], w[2], w[3], w[4]
		q.record(st.at, w[0], "SRV", fmt.Sprintf("%s %s %s %s", number(priority), number(weight), number(port), q.absolute(target)))
	}
	for _, st := range q.take("mx-host") {
		w := padded(st.words, 3)
		if w[1] == "" {
			q.note(st.at, "there is no target: it is left out")
			continue
		}
		q.record(st.at, w[0], "MX", number(w[2])+" "+q.absolute(w[1]))
	}
	for _, st := range q.take("txt-record") {
		q.record(st.at, first(st.words), "TXT", quotedStrings(st.words[min(1, len(st.words)):]))
	}
	for _, st := range q.take("ptr-record") {
		if len(st.words) > 1 {
			q.record(st.at, st.words[0], "PTR", q.absolute(st.words[1]))
		}
	}
	for _, st := range q.take("caa-record") {
		if w := st.words; len(w) == 4 {
			q.record(st.at, w[0], "CAA", number(w[1])+" "+ident(w[2], "issue")+" "+quotedStrings(w[3:]))
		}
	}
}

// localDomains notes domains that dnsmasq forwards nothing of, and the lab has no zone for.
func (q *dnsmasq) localDomains() {
	for domain, st := range q.local {
		if !q.forwardAll || q.ownsAbove(domain) {
			continue
		}
		q.weaker(st.at, "names below %s that are not in the lab are forwarded: to prevent it, write a zone %[1]s", domain)
	}
}

// ownsAbove reports whether the lab answers for all of a domain.
func (q *dnsmasq) ownsAbove(domain string) bool {
	for rest, more := domain, true; more; _, rest, more = strings.Cut(rest, ".") {
		if q.owned[rest] && (rest == q.domain || q.zones.get(rest) != nil) {
			return true
		}
	}
	return false
}

// number returns a decimal number, or 0.
func number(s string) string {
	if s == "" || strings.Trim(s, "0123456789") != "" || len(s) > 5 {
		return "0"
	}
	return s
}

// absolute returns a name with a final dot.
func (q *dnsmasq) absolute(name string) string {
	if name = strings.TrimSuffix(name, "."); name == "" || !lab.IsDomain(name) {
		return "."
	}
	return q.full(name) + "."
}

// quotedStrings writes the strings of a TXT record as in a zone file.
func quotedStrings(words []string) string {
	var parts []string
	for _, w := range words {
		var b strings.Builder
		for _, c := range []byte(w) {
			switch {
			case c == '"' || c == '\\':
				b.WriteString(`\` + string(c))
			case c < ' ' || c > '~':
				fmt.Fprintf(&b, `\%03d`, c)
			default:
				b.WriteByte(c)
			}
		}
		parts = append(parts, `"`+b.String()+`"`)
	}
	if len(parts) == 0 {
		return `""`
	}
	return strings.Join(parts, " ")
}

// everyHostsFile are the names that distributions write into every hosts file.
const everyHostsFile = "localhost localhost.localdomain localhost4 localhost6 ip6-localhost ip6-localnet ip6-mcastprefix ip6-allnodes ip6-allrouters ip6-allhosts broadcasthost"

// hostsLine reads a line of a hosts file: an address and its names, the first of which is the reverse name.
func (q *dnsmasq) hostsLine(st statement) {
	f := strings.Fields(st.value)
	a, err := netip.ParseAddr(f[0])
	switch {
	case err != nil || len(f) < 2:
		q.note(st.at, "want an address and names: it is left out")
		return
	case a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.IsUnspecified() || a.Zone() != "":
		if q.accounted[st.at.on()] = listed(everyHostsFile, f[1]); !q.accounted[st.at.on()] {
			q.note(st.at, "no other machine reaches %s: it is left out", f[0])
		}
		return
	}
	for _, name := range f[1:] {
		q.names = append(q.names, address{st.at, name, a})
	}
}

// hostRecord reads names and addresses.
func (q *dnsmasq) hostRecord(st statement) {
	var names []string
	for _, w := range st.words {
		switch a, err := netip.ParseAddr(w); {
		case err != nil && strings.Trim(w, "0123456789") != "":
			names = append(names, w)
		case err == nil:
			for _, n := range names {
				q.names = append(q.names, address{st.at, n, a})
			}
		}
	}
}

// wildcard reads address=/domain/address: the domain and everything below it.
func (q *dnsmasq) wildcard(st statement) {
	domains, value := domainsOf(st.value)
	a, err := netip.ParseAddr(value)
	for _, domain := range domains {
		below := strings.TrimPrefix(domain, "*.")
		switch {
		case domain == "#" || domain == "":
			q.note(st.at, "there is no answer for all names: it is left out")
		case value == "" || value == "#" || err != nil || a.Zone() != "":
			q.weaker(st.at, "names cannot be blocked: it is left out")
		case !lab.IsDomain(below):
			q.note(st.at, "%q is not a domain: it is left out", domain)
		case q.machine(below, a):
			q.names = append(q.names, address{st.at, below, a})
		default:
			q.owned[below] = true // dnsmasq forwards nothing below it
			z := q.zones.under(below, st.at)
			z.append("records", st.at, "@ "+recordType(a)+" "+a.String())
			z.append("records", st.at, "* "+recordType(a)+" "+a.String())
		}
	}
}

// machine reports whether address= is used for the one name of a machine: the machine has a reservation, or hosts files have the name.
func (q *dnsmasq) machine(name string, a netip.Addr) bool {
	h := q.hostNamed(name)
	return h != nil && h.ip == a || slices.Contains(q.addressesOf(name), a)
}

// cname makes names aliases of a host, or CNAME records.
func (q *dnsmasq) cname(st statement) {
	w := st.words
	if len(w) > 2 && strings.Trim(w[len(w)-1], "0123456789") == "" {
		w = w[:len(w)-1] // the TTL
	}
	if len(w) < 2 {
		q.note(st.at, "want an alias and a target: it is left out")
		return
	}
	target := w[len(w)-1]
	for _, name := range w[:len(w)-1] {
		switch h, ips := q.hostNamed(target), q.addressesOf(q.full(target)); {
		case strings.HasPrefix(name, "*") || !lab.IsDomain(strings.TrimSuffix(name, ".")):
			q.record(st.at, name, "CNAME", q.absolute(target))
		case h != nil:
			h.append("aliases", st.at, q.alias(h, name))
		case len(ips) > 0:
			q.names = append(q.names, address{st.at, q.full(name), ips[0]})
		default:
			q.record(st.at, q.full(name), "CNAME", q.absolute(target))
		}
	}
}

// addressesOf returns the addresses that hosts files have for a full name.
func (q *dnsmasq) addressesOf(full string) []netip.Addr {
	for _, n := range q.names[q.knownNames:] {
		name := q.full(n.name)
		q.known[name] = append(q.known[name], n.ip)
	}
	q.knownNames = len(q.names)
	return q.known[full]
}

// hostsFile is what dnsmasq reads unless it has no-hosts.
func (q *dnsmasq) hostsFile(names []string) {
	etc := filepath.Join("/", q.s.root, "etc")
	for _, name := range names {
		if abs, err := filepath.Abs(name); err == nil && strings.HasPrefix(abs, etc+"/") && len(q.statements["no-hosts"]) == 0 {
			if data, err := q.s.read(filepath.Join(etc, "hosts")); err == nil {
				q.lines(filepath.Join(etc, "hosts"), "hosts-line", string(data))
			}
			return
		}
	}
}
