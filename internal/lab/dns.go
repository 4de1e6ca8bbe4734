package lab

import (
	"net/netip"
	"strings"
)

// DNS is the part of the lab file about recursion and transfers. Zones are in Lab.Zones.
type DNS struct {
	Forward      []NameServer
	ForwardZones []ForwardZone  // sorted by Domain
	Allow        []netip.Prefix // may use the forwarder, beside the lab's networks
	Transfer     []Access       // may AXFR and IXFR
	Notify       []Secondary    // notified of changes
	Keys         []TSIGKey      // sorted by Name
	RateLimit    int            // replies per second to a network outside of the lab; 0: no limit
	CacheEntries int            // answers that the forwarder caches; 0: its default
	CacheSize    Size           // memory for them; 0: its default
}

// A TSIGKey is a secret shared with a secondary or with a client that updates zones (RFC 8945).
type TSIGKey struct {
	Pos        Pos
	Name       string // lower case, with a final dot
	Algorithm  string // such as hmac-sha256; a file that names one has precedence
	SecretFile string // absolute path
}

// An Access is a rule about who may do something. All that it names must hold.
type Access struct {
	From netip.Prefix // not valid: any address
	Key  string       // the name of the TSIG key that the request is signed with; empty: none is needed
}

// String returns the rule as the lab file has it.
func (a Access) String() string {
	var parts []string
	if a.From.IsValid() {
		parts = append(parts, a.From.String())
	}
	if a.Key != "" {
		parts = append(parts, "key "+strings.TrimSuffix(a.Key, "."))
	}
	return strings.Join(parts, " ")
}

// A Secondary is a name server that holds copies of zones.
type Secondary struct {
	Addr netip.AddrPort
	Key  string // the name of the TSIG key that messages to it are signed with; empty: they are not signed
}

// String returns the secondary as the lab file has it.
func (s Secondary) String() string {
	if s.Key == "" {
		return s.Addr.String()
	}
	return s.Addr.String() + " key " + strings.TrimSuffix(s.Key, ".")
}

// A NameServer is another server that questions are forwarded to, or a file that names some.
type NameServer struct {
	Pos    Pos
	Addr   netip.AddrPort // invalid: see File
	TLS    string         // the name that its certificate must have, in lower case (RFC 7858); empty: UDP and TCP
	CAFile string         // absolute; who may sign that certificate; empty: the system's authorities
	File   string         // absolute path of a resolv.conf
}

// String returns the server as the lab file may have it.
func (n NameServer) String() string {
	switch {
	case n.File != "":
		return n.File
	case n.TLS != "":
		return n.Addr.String() + "#" + n.TLS
	}
	return n.Addr.String()
}

// A ForwardZone sends questions below Domain to its own servers.
type ForwardZone struct {
	Domain  string
	Servers []NameServer
}

// A Zone is one DNS zone. The lab answers for all names below its origin.
type Zone struct {
	Pos     Pos
	Origin  string // lower case, with a final dot
	Derived bool
	// ForwardMissing says that others have names below Origin too: those that the zone does not have are forwarded, if there is a
	// forwarder.
	ForwardMissing bool
	Records        []Record // sorted by Name, then Type
	Lines          []Line   // zone-file lines as the lab file has them, relative to Origin
	File           string   // absolute path of a zone file; empty: none
	Update         []Access // who may update it (RFC 2136); each has a key
	UpdateReserved []string // names for which ReservedName holds, and that updates may have nevertheless
	Leases         bool     // transfers have the names of DHCP clients
}

// A Line is one zone-file line of the lab file.
type Line struct {
	Pos  Pos
	Text string
}

// A Record is one derived resource record.
type Record struct {
	Name   string // owner, lower case, absolute with a final dot; may start with "*."
	Type   string // A, AAAA, PTR, SRV, CNAME, NS
	Addr   netip.Addr
	Target string // absolute with a final dot, for PTR, SRV, CNAME, NS
	// Priority, Weight and Port are of SRV records (RFC 2782).
	Priority, Weight, Port uint16
	Source                 string // what it was derived from, such as "host master-0": for people
	// Follows is the balancer whose backend has Addr: the record is answered while the backend is healthy. nil: always.
	Follows *Balancer
	// Then is answered instead of Addr once the bootstrap machine of the cluster that Follows belongs to has left; zero: Addr stays. It is
	// the node of a single-node cluster.
	Then netip.Addr
}
