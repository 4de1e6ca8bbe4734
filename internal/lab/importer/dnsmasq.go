package importer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// dnsmasq reads a configuration of dnsmasq. All statements are collected first, because tags are used before they are set.
type dnsmasq struct {
	*draft
	s          *sources
	statements map[string][]statement
	tags       map[string]*tag
	interfaces []string
	addresses  []netip.Addr // of listen-address
	ranges     []*dhcpRange
	reserved   []*reservation
	bySet      map[string][]*reservation // by the tags that they set
	local      map[string]statement      // domains that are not forwarded
	known      map[string][]netip.Addr   // addresses of names, of so many of names
	knownNames int
	wantsNames bool // resolves names even if no statement says so
}

// A statement is one line: key=value.
type statement struct {
	at    place
	value string
	words []string // value at its commas
}

func readDnsmasq(d *draft, s *sources, names []string) error {
	q := newDnsmasq(d, s)
	for _, name := range names {
		if err := q.file(name, 0); err != nil {
			return err
		}
	}
	q.finish(names)
	return nil
}

func newDnsmasq(d *draft, s *sources) *dnsmasq {
	d.lastMAC = true
	return &dnsmasq{
		draft: d, s: s, statements: map[string][]statement{}, tags: map[string]*tag{}, bySet: map[string][]*reservation{}, local: map[string]statement{},
		known: map[string][]netip.Addr{},
	}
}

// add stores a statement.
func (q *dnsmasq) add(at place, key, value string) {
	q.statements[key] = append(q.statements[key], statement{at, value, dnsmasqWords(value)})
}

// addWords stores a statement whose words are not written with commas.
func (q *dnsmasq) addWords(at place, key string, words ...string) {
	q.statements[key] = append(q.statements[key], statement{at, strings.Join(words, ","), words})
}

// finish makes the draft of all statements. names are the files that the command line named.
func (q *dnsmasq) finish(names []string) {
	for _, st := range q.statements["interface"] {
		q.interfaces = append(q.interfaces, st.words...)
	}
	for _, st := range q.statements["listen-address"] {
		for _, w := range st.words {
			if a, err := netip.ParseAddr(w); err == nil && !a.IsLoopback() && a.Is4() {
				q.addresses = append(q.addresses, a)
			}
		}
	}
	q.hostsFile(names)
	q.general()
	q.readTags()
	q.dhcpRanges()
	q.dhcpHosts()
	q.dhcpDefaults()
	q.dhcpOptions()
	q.dhcpIgnore()
	q.resolver()
	q.records()
	q.localDomains()
	q.others()
}

// file reads one file of statements, and those that it includes.
func (q *dnsmasq) file(name string, depth int) error {
	if depth > maxIncludes {
		return fmt.Errorf("read %s: %d files include each other", name, depth)
	}
	data, err := q.s.read(name)
	if err != nil {
		return err
	}
	line := 0
	for text := range strings.Lines(string(data)) {
		line++
		key, value, assigned := strings.Cut(withoutComment(strings.TrimSpace(text)), "=")
		key = strings.ToLower(strings.TrimPrefix(strings.TrimSpace(key), "--"))
		if key == "" {
			continue
		}
		st := statement{at: place{name, line, strings.TrimSpace(text)}, value: strings.TrimSpace(value)}
		if st.words = dnsmasqWords(st.value); !assigned {
			st.words = nil
		}
		if !dnsmasqKey(key) {
			return fmt.Errorf("%s:%d: %q is not an option of dnsmasq", name, line, clip(key))
		}
		q.include(name, key, st, depth)
	}
	return nil
}

// dnsmasqKey reports whether a word can be the name of an option of dnsmasq.
func dnsmasqKey(key string) bool {
	return !strings.ContainsFunc(key, func(r rune) bool { return r != '-' && (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}

// include stores a statement, or those of the files that it names.
func (q *dnsmasq) include(from, key string, st statement, depth int) {
	var files []string
	var as string // the key of each line of these files; empty: they have keys
	switch key {
	case "conf-file", "servers-file":
		files = []string{q.s.path(st.value, from)}
	case "conf-dir":
		files = q.folder(from, st)
	case "dhcp-hostsfile", "dhcp-hostsdir":
		files, as = q.fileOrFolder(from, st), "dhcp-hostsfile"
	case "dhcp-optsfile", "dhcp-optsdir":
		files, as = q.fileOrFolder(from, st), "dhcp-option"
	case "addn-hosts", "hostsdir":
		files, as = q.fileOrFolder(from, st), "hosts-line"
	default:
		q.statements[key] = append(q.statements[key], st)
		return
	}
	for _, name := range files {
		if as == "" {
			if err := q.file(name, depth+1); err != nil {
				q.note(st.at, "%v", err)
			}
			continue
		}
		data, err := q.s.read(name)
		if err != nil {
			q.note(st.at, "%v", err)
		}
		q.lines(name, as, string(data))
	}
}

// lines stores the lines of a file that has no keys.
func (q *dnsmasq) lines(name, key, data string) {
	line := 0
	for text := range strings.Lines(data) {
		line++
		if value := withoutComment(strings.TrimSpace(text)); value != "" {
			q.statements[key] = append(q.statements[key], statement{place{name, line, value}, value, dnsmasqWords(value)})
		}
	}
}

// fileOrFolder returns the files that a statement names.
func (q *dnsmasq) fileOrFolder(from string, st statement) []string {
	path := q.s.path(st.value, from)
	if files, err := q.s.folder(path, func(string) bool { return true }); err == nil {
		return files
	}
	return []string{path}
}

// folder returns the files of conf-dir=FOLDER, with suffixes that are left out, or, with an asterisk, the only ones.
func (q *dnsmasq) folder(from string, st statement) []string {
	if len(st.words) == 0 {
		return nil
	}
	only := slices.DeleteFunc(slices.Clone(st.words[1:]), func(w string) bool { return !strings.HasPrefix(w, "*") })
	files, err := q.s.folder(q.s.path(st.words[0], from), func(name string) bool {
		has := func(w string) bool { return strings.HasSuffix(name, strings.TrimPrefix(w, "*")) }
		if len(only) > 0 {
			return slices.ContainsFunc(only, has)
		}
		return !slices.ContainsFunc(st.words[1:], has)
	})
	if err != nil {
		q.note(st.at, "%v", err)
	}
	return files
}

// withoutComment cuts what follows a # at the begin of a word, outside of quotes.
func withoutComment(s string) string {
	quoted := false
	for i := range len(s) {
		switch {
		case s[i] == '"' && (i == 0 || s[i-1] != '\\'):
			quoted = !quoted
		case s[i] == '#' && !quoted && (i == 0 || s[i-1] == ' ' || s[i-1] == '\t'):
			return strings.TrimSpace(s[:i])
		}
	}
	return s
}

// dnsmasqWords splits a value at its commas. Quotes keep commas and are removed.
func dnsmasqWords(s string) (words []string) {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case c == ',' && !quoted:
			words = append(words, strings.TrimSpace(b.String()))
			b.Reset()
		default:
			b.WriteByte(c)
		}
	}
	return append(words, strings.TrimSpace(b.String()))
}

// take returns the statements of a key, of each of which the lab has something or a note; what is left at the end is not carried.
func (q *dnsmasq) take(key string) []statement {
	all := q.statements[key]
	delete(q.statements, key)
	for _, st := range all {
		q.expected = append(q.expected, expectation{st.at, key == "dhcp-ignore"})
	}
	return all
}

// general reads what is about the server itself.
func (q *dnsmasq) general() {
	for _, st := range q.take("domain") {
		if len(st.words) > 0 && q.domain == "" && st.words[0] != "#" {
			q.domain, q.domainAt = st.words[0], st.at
		} else {
			q.note(st.at, "a lab has one domain: machines of another one need a cluster with that domain")
		}
	}
	for _, st := range q.take("port") {
		switch st.value {
		case "0":
			q.appliance.set("dns", st.at, "off")
		case "53":
			q.accounted[st.at.on()] = true
		default:
			q.appliance.set("dns", st.at, ":"+st.value)
		}
	}
	for _, st := range q.take("tftp-single-port") {
		q.appliance.set("tftp_single_port", st.at, "true")
	}
	for _, st := range q.take("cache-size") {
		if st.value == "0" {
			q.note(st.at, "answers of upstreams are always cached")
		} else {
			q.dns.under("cache", st.at).set("entries", st.at, st.value)
		}
	}
}

// others notes every statement that is left: what bootlab does anyway is silent, the rest has its reason.
func (q *dnsmasq) others() {
	for key, all := range q.statements {
		reason, known := dnsmasqReasons[key]
		if known && reason == "" {
			continue
		}
		if !known {
			reason = "there is no equivalent: it is left out"
		}
		note := q.note
		if listed(dnsmasqAccess, key) {
			note = q.weaker
		}
		for _, st := range all {
			note(st.at, "%s", reason)
		}
	}
}

const (
	profileHint = "firmware gets the boot program that fits it once its host or pool has a profile: write profiles"
	dnssec      = "answers are not validated: use upstreams that validate"
)

// dnsmasqAccess are statements that keep somebody out, or an answer that is not to be trusted.
const dnsmasqAccess = "dnssec dnssec-check-unsigned stop-dns-rebind connmark-allowlist"

// dnsmasqReasons say what becomes of statements that no other function reads. Empty: bootlab does so by itself, or it does not matter.
var dnsmasqReasons = func() map[string]string {
	all := map[string]string{
		"dhcp-boot": profileHint, "pxe-service": profileHint, "pxe-prompt": "there is no menu of the firmware: a menu is an iPXE script of a profile",
		"enable-tftp": "", "tftp-root": "TFTP and HTTP serve the files that a profile names, and files/public: move the files below files",
		"tftp-unique-root": "a tree of a profile may contain {{.Host.Name}}",
		"dhcp-leasefile":   "bootlab leases import reads this file", "dhcp-relay": "bootlab does not relay DHCP", "dhcp-script": "there is no script: events are in the log, the timeline and the metrics",
		"dnssec": dnssec, "trust-anchor": dnssec, "stop-dns-rebind": "answers of upstreams are not searched for private addresses",
		"log-queries":       "queries are not logged: bootlab dns log HOST shows those of one client",
		"no-dhcp-interface": "an interface is served if a network names it", "read-ethers": "/etc/ethers is not read: its machines need hosts",
		"alias": "answers are not rewritten", "bogus-nxdomain": "answers are not rewritten", "ipset": "there are no IP sets", "nftset": "there are no nftables sets",
		"auth-server": "bootlab is authoritative for its zones", "auth-zone": "bootlab is authoritative for its zones", "enable-ra": "router advertisements are not sent",
		"dhcp-proxy": "relays see the server identifier of the appliance", "bridge-interface": "a network has one interface",
	}
	for reason, keys := range map[string]string{
		"bootlab chooses the TTLs: for a record of your own, write a zone":             "neg-ttl local-ttl max-ttl max-cache-ttl min-cache-ttl auth-ttl dhcp-ttl",
		"a mail server is a record of a zone, MX":                                      "localmx mx-target selfmx",
		"the kernel chooses the ports: for a firewall, set appliance.tftp_single_port": "tftp-port-range",
		"the kernel chooses the ports of queries":                                      "query-port min-port max-port",
		"a pool has as many leases as addresses":                                       "dhcp-lease-max",
		"answers are sent to the machine, or broadcast if it asks for that":            "dhcp-broadcast",
		"there is no delay: every offer is sent at once":                               "dhcp-reply-delay",
		"BOOTP is not served": "bootp-dynamic",
		"a machine without a line has the name that it sends":                                                 "dhcp-ignore-names",
		"a machine that sends no name has none":                                                               "dhcp-generate-names",
		"an address of a pool is probed before it is offered: for a network without probes, set probe: false": "no-ping",
		"the order of addresses is the same for all clients":                                                  "localise-queries",
		"the upstream that answers fastest is asked first, whatever their order":                              "strict-order",
		"queries of Windows are answered like others":                                                         "filterwin2k",
		"file names are used as they are":                                                                     "tftp-lowercase",
		"there is no rapid commit":                                                                            "dhcp-rapid-commit",
		"events are in the log, the timeline and the metrics":                                                 "script-arp script-on-renewal",
	} {
		for key := range strings.FieldsSeq(keys) {
			all[key] = reason
		}
	}
	for _, key := range strings.Fields(`interface listen-address except-interface bind-interfaces bind-dynamic user group pid-file log-dhcp log-facility log-async
		log-debug quiet-dhcp quiet-dhcp6 quiet-ra quiet-tftp no-daemon keep-in-foreground no-hosts no-resolv no-poll all-servers expand-hosts
		bogus-priv domain-needed dhcp-authoritative dhcp-ignore-clid dhcp-sequential-ip dhcp-no-override
		no-negcache clear-on-reload local-service
		tftp-no-blocksize tftp-secure tftp-max tftp-mtu tftp-no-fail dns-loop-detect dns-forward-max
		edns-packet-max conntrack rebind-localhost-ok
		dhcp-match dhcp-vendorclass dhcp-userclass dhcp-circuitid dhcp-remoteid dhcp-subscrid dhcp-mac fast-dns-retry use-stale-cache dhcp-hostsfile`) {
		all[key] = ""
	}
	return all
}()
