package lbproxy

import (
	"bytes"
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Table is every balancer of a lab, by listen address. It is immutable.
type Table struct {
	Frontends []*Frontend // sorted by Name

	listeners []*listener // sorted by address
	udp       map[netip.AddrPort]*Frontend
}

// A Frontend is one balancer.
type Frontend struct {
	Name           string
	Listen         lab.Binds // none: backends are only checked
	Mode           lab.BalanceMode
	Balance        lab.Algorithm
	Check          lab.Check
	Backends       []Backend    // in the order of the lab
	SendProxy      int          // PROXY protocol version to backends: 0 off, 1, 2
	MaxConnections int          // 0: no limit
	Queue          int          // clients that may wait for a backend with less than its Limit
	Timeouts       lab.Timeouts // never zero
	Log            lab.AccessLog
	Protocol       lab.BackendProtocol
	BackendTLS     lab.BackendTLS
	ACME           *lab.ACME // nil: none
	Redirect       lab.Redirect
	TrustedProxies []netip.Prefix
	Sticky         string // cookie name
	OnDown         lab.OnDown
	Responses      int // of mode udp: datagrams that a backend answers to each of a client's; below 0: any number

	own   []netip.Addr // addresses of this machine
	hop   lab.Hop
	index int // of this frontend in Table.Frontends
}

// A Backend is one server of a frontend. Its stable key is the frontend's name and Addr.
type Backend struct {
	Name  string // of lab.Backend: several may have it
	Label string // that it has alone in its frontend; for metrics and logs
	Host  string // of the lab; empty: an external address
	// Port 0: the port that the client has connected to. Without an address it is looked up: that of Host's lease, else of Name in DNS.
	Addr netip.AddrPort
	// ServerName is the name that its certificate has, where the balancer does not say another.
	ServerName string
	Weight     int          // share of new connections, relative to the others; at least 1
	Limit      int          // max_connections; 0: none
	Added      bool         // at run time
	Backup     bool         // used only while every other backend is down
	NotFor     []netip.Addr // clients that it never gets, sorted

	seed   uint64 // of the rendezvous hash
	cookie string // value of the sticky cookie; the same in every process, and not the address
}

// A listener is one listen address and the frontends that share it. The lab file allows one mode on one address.
type listener struct {
	addr      netip.AddrPort
	frontends []*Frontend
	peers     []netip.Prefix // trusted to send PROXY headers, of all frontends here
	// Files of the certificates with which the address terminates TLS, of all frontends here; none: it does not.
	certificates []string
	endsTLS      bool      // by certificates or ACME
	names        nameTable // TLS server names; in mode http hosts
	others       pathTable // the frontends that match no name
}

// Compile returns the table of a lab.
func Compile(l *lab.Lab) *Table {
	t := &Table{Frontends: make([]*Frontend, 0, len(l.Balancers)), udp: make(map[netip.AddrPort]*Frontend)}
	own := l.OwnAddresses()
	listeners := make(map[netip.AddrPort]*listener)
	byName := func(a, b *lab.Balancer) int { return cmp.Compare(a.Name, b.Name) }
	for _, b := range slices.SortedStableFunc(slices.Values(l.Balancers), byName) {
		f := newFrontend(b)
		f.index, f.own, f.hop = len(t.Frontends), own, lab.HopOf(b)
		t.Frontends = append(t.Frontends, f)
		for addr := range f.Listen.All() {
			if f.Mode == lab.ModeUDP {
				t.udp[addr] = f
				continue
			}
			at := listeners[addr]
			if at == nil {
				at = &listener{addr: addr}
				listeners[addr] = at
				t.listeners = append(t.listeners, at)
			}
			at.add(b, f)
		}
	}
	slices.SortFunc(t.listeners, func(a, b *listener) int { return a.addr.Compare(b.addr) })
	return t
}

func newFrontend(b *lab.Balancer) *Frontend {
	f := &Frontend{
		Name: b.Name, Listen: b.Listen, Mode: b.Mode, Balance: b.Balance, Check: b.Check, SendProxy: b.SendProxy,
		MaxConnections: b.MaxConnections, Queue: b.Queue, Timeouts: b.Timeouts.WithDefaults(), Log: b.Log, Protocol: b.Protocol, BackendTLS: b.BackendTLS, ACME: b.ACME, Redirect: b.Redirect,
		TrustedProxies: b.TrustedProxies, Sticky: b.Sticky, OnDown: b.OnDown, Responses: b.Responses, Backends: make([]Backend, len(b.Backends)),
	}
	labels, addrs := map[string]int{}, map[netip.Addr]int{}
	for _, m := range b.Backends {
		labels[m.Name]++
		labels[withPort(m.Name, m.Addr)]++
		addrs[m.Addr.Addr()]++
	}
	for i, m := range b.Backends {
		out := Backend{Name: m.Name, Addr: m.Addr, Weight: max(m.Weight, 1), Limit: m.MaxConnections, Backup: m.Backup, NotFor: m.NotFor}
		out.ServerName = m.Addr.Addr().String()
		if m.Dynamic() {
			out.ServerName = m.Name
		}
		if m.Host != nil {
			out.Host, out.ServerName = m.Host.Name, m.Host.FQDN
		}
		out.Label = labelOf(m.Name, m.Addr, func(label string) bool { return labels[label] > 1 })
		// Without the port, so that a client gets the same machine on ports 80 and 443.
		out.seed = hash(m.Addr.Addr())
		if addrs[m.Addr.Addr()] > 1 {
			out.seed = mix(out.seed + uint64(m.Addr.Port()))
		}
		out.cookie = cookieOf(m.Addr)
		f.Backends[i] = out
	}
	return f
}

// labelOf returns the name of a backend, its name and port, or its address: the first that no other has.
func labelOf(name string, addr netip.AddrPort, others func(label string) bool) string {
	for _, label := range []string{name, withPort(name, addr)} {
		if !others(label) {
			return label
		}
	}
	return lab.BackendText(addr)
}

// withPort returns the name and the port of a backend.
func withPort(name string, addr netip.AddrPort) string {
	return net.JoinHostPort(name, strconv.Itoa(int(addr.Port())))
}

func cookieOf(a netip.AddrPort) string {
	return strconv.FormatUint(mix(hash(a.Addr())+uint64(a.Port())), 36)
}

// hash returns a number for an address that is the same in every process (FNV-1a).
func hash(a netip.Addr) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, b := range a.As16() {
		h = (h ^ uint64(b)) * 0x100000001b3
	}
	return h
}

// add adds a frontend to the address.
func (l *listener) add(b *lab.Balancer, f *Frontend) {
	l.frontends = append(l.frontends, f)
	for _, p := range b.AcceptProxy {
		if !slices.Contains(l.peers, p) {
			l.peers = append(l.peers, p)
		}
	}
	l.certificates = append(l.certificates, b.Certificates...)
	l.endsTLS = l.endsTLS || b.EndsTLS()
	patterns := slices.Concat(b.Match.SNI, b.Match.Host)
	if len(patterns) == 0 {
		l.others.add(b.Match.Path, f)
	}
	for _, p := range patterns {
		l.names.add(p, b.Match.Path, f)
	}
}

// only returns the frontend of the address if it has one only, without a match; else nil.
func (l *listener) only() *Frontend {
	if len(l.frontends) == 1 {
		return l.others.every
	}
	return nil
}

// isHTTP reports whether the address is in mode http: then requests are routed, not connections.
func (l *listener) isHTTP() bool { return l.frontends[0].Mode == lab.ModeHTTP }

// byName returns the frontend for a TLS server name or host; nil: none matches.
func (l *listener) byName(name string) *Frontend { return l.byRequest(name, nil) }

// byRequest returns the frontend for a host and a target; nil: none matches.
func (l *listener) byRequest(host string, target []byte) *Frontend {
	if f := l.names.find(host, target); f != nil {
		return f
	}
	return l.others.find(target)
}

// trusts reports whether a PROXY header of that peer is accepted.
func (l *listener) trusts(peer netip.Addr) bool {
	return slices.ContainsFunc(l.peers, func(p netip.Prefix) bool { return p.Contains(peer) })
}

// A nameTable finds the frontend that matches a DNS name and a path. The zero value matches none.
type nameTable struct {
	exact map[string]pathTable
	below map[string]pathTable // by what follows "*."; "" for "*"
}

// A pathTable finds the frontend that matches a path. The zero value matches none.
type pathTable struct {
	paths   map[string]*Frontend // without "/" at their end
	longest int                  // of paths
	every   *Frontend            // that matches every path; nil: none
}

// add adds paths of f; none: every path.
func (t *pathTable) add(paths []string, f *Frontend) {
	if len(paths) == 0 {
		t.every = f
	}
	for _, path := range paths {
		if t.paths == nil {
			t.paths = make(map[string]*Frontend)
		}
		t.paths[path] = f
		t.longest = max(t.longest, len(path))
	}
}

// find returns the frontend with the longest path that target is, or is below. Both are compared as they are written.
func (t pathTable) find(target []byte) *Frontend {
	path, _, _ := bytes.Cut(target, []byte("?"))
	for len(t.paths) > 0 && len(path) > 0 {
		if len(path) <= t.longest {
			if f := t.paths[string(path)]; f != nil {
				return f
			}
		}
		path = path[:max(bytes.LastIndexByte(path, '/'), 0)]
	}
	return t.every
}

// add adds a pattern and the paths of f.
func (n *nameTable) add(pattern string, paths []string, f *Frontend) {
	into, name := &n.exact, canonical(pattern)
	if rest, wild := strings.CutPrefix(name, "*"); wild {
		into, name = &n.below, strings.TrimPrefix(rest, ".")
	}
	if *into == nil {
		*into = make(map[string]pathTable)
	}
	t := (*into)[name]
	t.add(paths, f)
	(*into)[name] = t
}

// find returns the frontend with the most specific pattern for a canonical name and a target: the name itself, then the
// longest "*." pattern, of those that have a path for the target. It returns nil if none matches.
func (n *nameTable) find(name string, target []byte) *Frontend {
	if name == "" {
		return nil
	}
	if f := n.exact[name].find(target); f != nil {
		return f
	}
	for rest := name; len(n.below) > 0; {
		_, parent, more := strings.Cut(rest, ".")
		if !more {
			return n.below[""].find(target)
		}
		if f := n.below[parent].find(target); f != nil {
			return f
		}
		rest = parent
	}
	return nil
}

// canonical returns a name in lower case without the final dot.
func canonical(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

// hostname returns the canonical name in a Host header (RFC 9110 section 7.2): without the port, an IPv6 address
// without its brackets.
func hostname(host string) string {
	if ap, err := netip.ParseAddrPort(host); err == nil {
		return ap.Addr().String()
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, _, _ = strings.Cut(inner, "]")
		return canonical(inner)
	}
	name, _, _ := strings.Cut(host, ":")
	return canonical(name)
}
