package load

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// Defaults of the lab file. configs/reference.yaml and the doc tags of the raw types name them for people.
const (
	defaultState       = "/var/lib/bootlab"
	defaultFiles       = "files"
	defaultAdminSocket = "/run/bootlab/admin.sock"
	defaultUser        = "bootlab"
	defaultEtcdPrefix  = "/bootlab"
	defaultLease       = 12 * time.Hour
	defaultCPUs        = 2
	defaultMemory      = 4 << 30
	defaultMachine     = "q35"
	defaultDiskBus     = "virtio"
	defaultPool        = "default"
	defaultDomainType  = "kvm"
	defaultMirrorSize  = 20 << 30
	defaultMaxMedia    = 16 << 30
	defaultMirrorFresh = 30 * time.Second

	checkInterval = 5 * time.Second
	checkFast     = time.Second
	checkTimeout  = 3 * time.Second
	checkRise     = 2
	checkFall     = 3

	connectTimeout = 5 * time.Second
	installTimeout = 2 * time.Hour // longer than any working installer takes

	defaultQueue = 1024 // clients

	sessionTimeout = 30 * time.Second // of mode udp, as conntrack has for UDP

	idleTimeout = 4 * time.Hour // logs, exec and watches may be silent for long
)

// maxName is the length of the longest DNS name as text without its final dot (RFC 1035 section 2.3.4).
const maxName = 253

// A resolver turns the raw lab into a Lab: typed values, defaults, cross-references, and derived zones and balancers.
type resolver struct {
	*decoder
	o   Options
	raw *rawLab
	lab *lab.Lab

	networks    map[string]*lab.Network
	hosts       map[string]*lab.Host
	hostByMAC   map[lab.MAC]*lab.Host
	hostByIP    map[netip.Addr]*lab.Host
	clusters    map[string]*lab.Cluster
	profiles    map[string]*lab.Profile
	hypervisors map[string]*lab.Hypervisor
	bySubnet    []*lab.Network          // sorted by first address
	noSubnets   bool                    // a subnet is not valid, so addresses outside of all networks are not reported
	names       map[string]*lab.Host    // hosts by FQDN and alias
	aliasAt     map[string]keyAt        // where names are aliases
	reserved    map[string]*lab.Cluster // names that clusters reserve
	services    map[string]lab.Pos      // names that follow members or lead to balancers
	zones       map[string]*lab.Zone    // by origin
	forwarded   map[string]bool         // origins of dns.forward_zones
	misnamed    map[string]bool         // entries with a name that cannot be one, by path of keys
	once        map[string]*repeat      // problems that several values have for one reason
	outsiders   map[subnetOf][]outsider // values outside of subnets
	inside      map[subnetOf]bool       // subnets with values inside
	overlaps    [][2]*lab.Network       // subnets that overlap, in the order of their addresses
}

func newResolver(d *decoder, raw *rawLab, o Options) *resolver {
	r := &resolver{
		decoder: d, o: o, raw: raw, lab: &lab.Lab{},
		networks: map[string]*lab.Network{}, clusters: map[string]*lab.Cluster{}, profiles: map[string]*lab.Profile{}, hypervisors: map[string]*lab.Hypervisor{},
		hosts: make(map[string]*lab.Host, len(raw.Hosts.Entries)), hostByMAC: make(map[lab.MAC]*lab.Host, len(raw.Hosts.Entries)),
		hostByIP: make(map[netip.Addr]*lab.Host, len(raw.Hosts.Entries)), names: make(map[string]*lab.Host, len(raw.Hosts.Entries)), aliasAt: map[string]keyAt{}, reserved: map[string]*lab.Cluster{},
		services: map[string]lab.Pos{}, zones: map[string]*lab.Zone{}, forwarded: map[string]bool{},
		misnamed: map[string]bool{}, once: map[string]*repeat{}, outsiders: map[subnetOf][]outsider{}, inside: map[subnetOf]bool{},
	}
	return r
}

// A keyAt is a key and its place.
type keyAt struct {
	s   spot
	key string
}

// run resolves and derives. The error is Problems.
func (r *resolver) run() (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.problems.Addf(r.top(), "", "cannot be resolved: %v", p)
			err = r.problems.Err()
		}
	}()
	r.general()
	r.appliance()
	r.networkList()
	r.profileList()
	r.mirrorList()
	r.imageList()
	r.hypervisorList()
	r.redfish()
	r.clusterList()
	r.poolLists()
	r.hostList()
	r.gateways()
	r.bootFiles()
	r.addresses()
	r.answers()
	r.dns()
	r.balancerList()
	r.clusterMembers()
	r.singleNodes()
	r.deriveBalancers()
	r.listeners()
	r.deriveZones()
	r.checkFiles()
	r.reportOnce()
	r.reportOutside()
	r.lab.Warnings.Sort()
	r.lab.Index()
	return r.problems.Err()
}

// top is the first line of the first file.
func (r *resolver) top() lab.Pos { return lab.Pos{File: r.files[0], Line: 1, Column: 1} }

// fail adds a problem with the value at s.
func (r *resolver) fail(s spot, key, format string, args ...any) {
	pos := r.pos(s)
	if !s.set() {
		pos = r.top()
	}
	r.failAt(pos, key, format, args...)
}

// forget removes what was found at a key or below it: another problem says that it is not to be set at all.
func (r *resolver) forget(key string) {
	var left lab.Problems // a new list: causes has the old one
	for _, p := range r.problems {
		if p.Key != key && !strings.HasPrefix(p.Key, key+".") {
			left = append(left, p)
		}
	}
	r.problems = left
}

// missing adds a problem if a required value is not set. It returns whether the value is set and valid.
func missing[T any](r *resolver, v *scalar[T], owner spot, key, want string) (ok bool) {
	if !v.set() {
		r.failMissing(owner, key, "is missing: want %s", want)
	}
	return v.ok()
}

// failMissing is fail for a key that is not there, unless one beside it was not understood: that is the mistake.
func (r *resolver) failMissing(s spot, key, format string, args ...any) {
	if !r.incomplete[key[:max(strings.LastIndexByte(key, '.'), 0)]] {
		r.fail(s, key, format, args...)
	}
}

// unknownName reports a reference to nothing, once for all references to that name. It returns the name that was probably meant, so that
// nothing is reported that follows from the same mistake; empty: not known.
func (r *resolver) unknownName(s spot, key, kind, name string, known []string) (meant string) {
	meant = lab.Nearest(name, known)
	hint := ""
	switch {
	case meant != "":
		hint = fmt.Sprintf(": did you mean %s?", meant)
	case len(known) == 0:
		hint = fmt.Sprintf(": the lab has no %ss", kind)
	case len(known) <= 8:
		hint = ": want " + orList(known)
	}
	if !r.incomplete[kind+"s"] && !r.misnamed[kind+"s."+meant] {
		r.failOnce(s, key, "%[2]s %[3]q%[1]s is not in the lab%[4]s", kind, name, hint)
	}
	return meant
}

// A repeat is a problem that several values have for one reason.
type repeat struct {
	s      spot // of the first
	key    string
	format string
	args   []any
	places map[spot]bool
}

// failOnce is fail for what several values name that is not there: the first is reported, with their number, which is the first argument
// of the format; the others tell which mistakes are the same.
func (r *resolver) failOnce(s spot, key, format string, args ...any) {
	id := fmt.Sprintf(format, append([]any{""}, args...)...)
	p := r.once[id]
	if p == nil {
		p = &repeat{s, key, format, args, map[spot]bool{}}
		r.once[id] = p
	}
	if s.before(p.s) {
		p.s, p.key = s, key
	}
	p.places[s] = true
}

// reportOnce reports what failOnce has collected.
func (r *resolver) reportOnce() {
	for _, id := range slices.Sorted(maps.Keys(r.once)) {
		p, times := r.once[id], ""
		if n := len(p.places); n > 1 {
			times = fmt.Sprintf(" (in %d places)", n)
		}
		r.fail(p.s, p.key, p.format, append([]any{times}, p.args...)...)
	}
}

// before reports whether s is above or left of o; an unknown place is last.
func (s spot) before(o spot) bool {
	if !s.set() || !o.set() {
		return s.set()
	}
	return s.compare(o) < 0
}

// compare compares the places of values that are in the file.
func (s spot) compare(o spot) int {
	return cmp.Or(cmp.Compare(s.file&^badBit, o.file&^badBit), cmp.Compare(s.line, o.line), cmp.Compare(s.column, o.column))
}

// identName reports a name of an entry that cannot be one.
func (r *resolver) identName(s spot, key, name string) {
	if !lab.IsName(name) {
		r.misnamed[key] = true
		r.fail(s, key, "%q is not a name: want letters, digits, '.', '_' and '-', beginning with a letter or digit", name)
	}
}

// path makes a path of the lab file absolute.
func (r *resolver) path(p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(r.lab.Dir, p)
}

func (r *resolver) general() {
	l, raw := r.lab, r.raw
	for _, f := range r.files {
		if abs, err := filepath.Abs(f); err == nil {
			f = abs
		}
		l.Files = append(l.Files, f)
	}
	l.Dir = filepath.Dir(l.Files[0])
	missing(r, &raw.Version.scalar, spot{}, "version", "version: 1")
	if missing(r, &raw.Domain, spot{}, "domain", "the domain of hosts that belong to no cluster, such as lab.example.com") {
		l.Domain = r.plainDomain(&raw.Domain, "domain")
	}
	l.Name = string(raw.Lab.or(text(l.Domain)))
}

// plainDomain returns a domain that must not be a wildcard, without its final dot.
func (r *resolver) plainDomain(v *scalar[domain], key string) string {
	if strings.HasPrefix(string(v.V), "*.") {
		r.fail(v.spot, key, "%q is a wildcard: want a domain", v.V)
	}
	return strings.TrimPrefix(strings.TrimSuffix(string(v.V), "."), "*.")
}

func (r *resolver) appliance() {
	raw, a := &r.raw.Appliance, &r.lab.Appliance
	a.State = r.path(string(raw.State.or(defaultState)))
	a.Files = r.path(string(raw.Files.or(defaultFiles)))
	a.AdminSocket = r.path(string(raw.AdminSocket.or(defaultAdminSocket)))
	a.User, a.UserDefault = string(raw.User.or(defaultUser)), !raw.User.ok()
	own := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.Addr{}, port) }
	a.HTTP = listens(r, &raw.HTTP, "appliance.http", own(8080))
	a.HTTPPort = a.HTTP[0].Port()
	a.TFTP = listens(r, &raw.TFTP, "appliance.tftp", own(69))
	a.Confine = bool(raw.Confine.or(true))
	a.TFTPSingle = bool(raw.TFTPSingle.or(false))
	a.TFTPAllow = values(raw.TFTPAllow, func(s source) netip.Prefix { return s.Prefix })
	a.DNS = listens(r, &raw.DNS, "appliance.dns", own(53))
	// Not on the lab's own addresses, since a client that reaches it needs only the token.
	a.Admin = listens(r, &raw.Admin, "appliance.admin", netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 9680))
	a.Addresses = raw.Addresses.or(lab.AddressHold)
	a.AdminHosts = values(raw.AdminHosts, func(h webHost) string { return string(h) })
	r.store(&raw.Store, &a.Store)
	r.applianceInForce()
}

// applianceInForce keeps the appliance of a running daemon: a change takes effect at the next start.
func (r *resolver) applianceInForce() {
	if r.o.Appliance == nil {
		return
	}
	if !reflect.DeepEqual(*r.o.Appliance, r.lab.Appliance) {
		r.lab.Warnings.Addf(r.top(), "appliance", "changed: restart the daemon to apply it")
	}
	r.lab.Appliance = *r.o.Appliance
}

// listens returns where a server of the appliance listens, the default where nothing valid is set.
func listens[T interface{ endpoint() netip.AddrPort }](r *resolver, raw *oneOrMore[T], key string, def netip.AddrPort) lab.Listen {
	l := lab.Listen(values(raw.scalars, T.endpoint))
	off := slices.IndexFunc(l, func(a netip.AddrPort) bool { return a.Port() == 0 })
	switch {
	case off >= 0 && len(l) == 1:
		return nil
	case off >= 0:
		r.fail(raw.Items[off].spot, key, "is off and has addresses: want off alone, or addresses")
	case raw.set() && !raw.bad() && len(raw.Items) == 0:
		r.fail(raw.spot, key, "is empty: want an address or a list of addresses")
	}
	if len(l) == 0 {
		return lab.Listen{def}
	}
	return l
}

func (r *resolver) store(raw *either[storeKind, rawStore], s *lab.StoreConfig) {
	if raw.Long == nil {
		return
	}
	r.lab.StoreAt = r.pos(raw.spot)
	s.Etcd = values(raw.Long.Etcd, func(u webURL) string { return string(u) })
	s.Prefix = string(raw.Long.Prefix.or(defaultEtcdPrefix))
	s.CAFile = r.path(string(raw.Long.CAFile.or("")))
	if len(raw.Long.Etcd.Items) == 0 && !raw.Long.Etcd.bad() {
		r.failMissing(raw.spot, "appliance.store.etcd", "is missing: want the endpoints of etcd, such as [https://10.0.0.1:2379], or store: file")
	}
}

// redfish resolves the Redfish service.
func (r *resolver) redfish() {
	if !r.raw.Redfish.set() || r.raw.Redfish.V == nil {
		return
	}
	raw, s := r.raw.Redfish.V, &r.lab.Redfish
	if !raw.Listen.set() {
		r.failMissing(r.raw.Redfish.spot, "redfish.listen", "is missing: want an address such as 192.168.16.1:8443")
		return
	}
	s.Listen = listens(r, &raw.Listen, "redfish.listen", netip.AddrPort{})
	s.TLS, s.MaxMedia = bool(raw.TLS.or(true)), raw.MaxMedia.or(defaultMaxMedia)
	if s.Certificate = r.path(string(raw.Certificate.V)); s.Certificate != "" && !s.TLS {
		r.fail(raw.Certificate.spot, "redfish.certificate", "needs TLS, which is off: want one of the two")
	}
	r.certificate(&raw.Certificate, "redfish.certificate")
	for _, e := range raw.Accounts.Entries {
		key := "redfish.accounts." + e.Name
		r.identName(e.spot, key, e.Name)
		if missing(r, &e.V.PasswordFile, e.spot, key+".password_file", "a file that holds the password") {
			r.checkFile(&e.V.PasswordFile, key+".password_file", r.path(string(e.V.PasswordFile.V)))
		}
		s.Accounts = append(s.Accounts, lab.RedfishAccount{Name: e.Name, PasswordFile: r.path(string(e.V.PasswordFile.V)), Role: e.V.Role.or(lab.RedfishAdministrator)})
	}
	if len(s.Accounts) == 0 {
		r.failMissing(r.raw.Redfish.spot, "redfish.accounts", "is missing: without an account no client can log in; want accounts: {NAME: {password_file: …}}")
	}
	slices.SortFunc(s.Accounts, func(a, b lab.RedfishAccount) int { return cmp.Compare(a.Name, b.Name) })
}
