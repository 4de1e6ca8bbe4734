package lbproxy

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// Defaults of balancers that were not loaded from a lab file.
const (
	defaultConnect  = 5 * time.Second
	defaultIdle     = 10 * time.Minute
	defaultInterval = 5 * time.Second
	defaultTimeout  = 5 * time.Second
	defaultRise     = 2
	defaultFall     = 3
)

// A Table is every balancer of a lab, by listen address. It is immutable.
type Table struct {
	Frontends []*Frontend // sorted by Name

	listeners []*listener // sorted by address
}

// A Frontend is one balancer.
type Frontend struct {
	Name           string
	Listen         netip.AddrPort
	Mode           lab.BalanceMode
	Balance        lab.Algorithm
	Check          lab.Check
	Backends       []Backend    // in the order of the lab
	SendProxy      int          // PROXY protocol version to backends: 0 off, 1, 2
	MaxConnections int          // 0: no limit
	Timeouts       lab.Timeouts // Connect and Idle are never zero

	index int // of this frontend in Table.Frontends
}

// A Backend is one server of a frontend. Its stable key is the frontend's name and Addr.
type Backend struct {
	Name   string // the host's name, else the address
	Label  string // Name, with the port if the frontend has several backends of this name; for metrics
	Host   string // of the lab; empty: an external address
	Addr   netip.AddrPort
	Backup bool // used only while every other backend is down

	seed uint64 // of the rendezvous hash
}

// A listener is one listen address and the frontends that share it.
type listener struct {
	addr      netip.AddrPort
	frontends []*Frontend
	peers     []netip.Prefix // trusted to send PROXY headers, of all frontends here
	sni       nameTable
	host      nameTable
	fallback  *Frontend // the frontend without a match; nil: none
}

// Compile returns the table of a lab. The error is lab.Problems: two balancers of one address with the same match, or an
// address that another balancer's includes.
func Compile(l *lab.Lab) (*Table, error) {
	var problems lab.Problems
	t := &Table{Frontends: make([]*Frontend, 0, len(l.Balancers))}
	listeners := make(map[netip.AddrPort]*listener)
	names := make(map[string]bool, len(l.Balancers))
	for _, b := range sorted(l.Balancers) {
		if !valid(&problems, b, names) {
			continue
		}
		f := newFrontend(b)
		f.index = len(t.Frontends)
		t.Frontends = append(t.Frontends, f)
		at := listeners[f.Listen]
		if at == nil {
			at = &listener{addr: f.Listen}
			listeners[f.Listen] = at
			t.listeners = append(t.listeners, at)
		}
		at.add(&problems, b, f)
	}
	slices.SortFunc(t.listeners, func(a, b *listener) int { return a.addr.Compare(b.addr) })
	overlaps(&problems, l.Balancers)
	return t, problems.Err()
}

func sorted(bs []*lab.Balancer) []*lab.Balancer {
	return slices.SortedStableFunc(slices.Values(bs), func(a, b *lab.Balancer) int { return cmp.Compare(a.Name, b.Name) })
}

// valid reports whether a balancer can be part of the table, and adds the problem if not.
func valid(problems *lab.Problems, b *lab.Balancer, names map[string]bool) bool {
	switch {
	case names[b.Name]:
		problems.Addf(b.Pos, key(b), "there is another balancer of this name; rename one")
	case !b.Listen.IsValid() || b.Listen.Port() == 0:
		problems.Addf(b.Pos, key(b)+".listen", "%q is not an address and port, such as 192.168.16.10:443", b.Listen)
	default:
		names[b.Name] = true
		return true
	}
	return false
}

func key(b *lab.Balancer) string { return "balancers." + b.Name }

// overlaps reports addresses that cannot be bound together with an unspecified one of the same port.
func overlaps(problems *lab.Problems, bs []*lab.Balancer) {
	wide := make(map[uint16]*lab.Balancer)
	for _, b := range bs {
		if b.Listen.IsValid() && b.Listen.Addr().IsUnspecified() {
			wide[b.Listen.Port()] = b
		}
	}
	for _, b := range bs {
		if w := wide[b.Listen.Port()]; w != nil && w.Listen != b.Listen {
			problems.Addf(b.Pos, key(b)+".listen", "%s is included in %s of balancer %s; give both the same address, or two specific ones",
				b.Listen, w.Listen, w.Name)
		}
	}
}

func newFrontend(b *lab.Balancer) *Frontend {
	f := &Frontend{
		Name: b.Name, Listen: b.Listen, Mode: cmp.Or(b.Mode, lab.ModeTCP), Balance: cmp.Or(b.Balance, lab.RoundRobin),
		Check: b.Check, SendProxy: b.SendProxy, MaxConnections: b.MaxConnections, Timeouts: b.Timeouts,
		Backends: make([]Backend, len(b.Backends)),
	}
	f.Timeouts.Connect = cmp.Or(f.Timeouts.Connect, defaultConnect)
	f.Timeouts.Idle = cmp.Or(f.Timeouts.Idle, defaultIdle)
	f.Check = withDefaults(f.Check)
	count := countBackends(b.Backends)
	for i, m := range b.Backends {
		f.Backends[i] = newBackend(m, count)
	}
	return f
}

func withDefaults(c lab.Check) lab.Check {
	c.Kind = cmp.Or(c.Kind, lab.CheckTCP)
	c.Path = cmp.Or(c.Path, "/")
	c.Interval = cmp.Or(c.Interval, defaultInterval)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.Rise = cmp.Or(c.Rise, defaultRise)
	c.Fall = cmp.Or(c.Fall, defaultFall)
	return c
}

func newBackend(m lab.Backend, count backendCount) Backend {
	out := Backend{Name: m.Name, Addr: m.Addr, Backup: m.Backup}
	if out.Name == "" {
		out.Name = m.Addr.String()
	}
	if m.Host != nil {
		out.Host = m.Host.Name
	}
	out.Label = out.Name
	if count.names[m.Name] > 1 {
		out.Label = out.Name + ":" + strconv.Itoa(int(m.Addr.Port()))
	}
	// Without the port, so that a client gets the same machine on ports 80 and 443.
	out.seed = hash(m.Addr.Addr())
	if count.addrs[m.Addr.Addr()] > 1 {
		out.seed = mix(out.seed + uint64(m.Addr.Port()))
	}
	return out
}

// A backendCount says how many backends of a balancer have a name or an address.
type backendCount struct {
	names map[string]int
	addrs map[netip.Addr]int
}

func countBackends(backends []lab.Backend) backendCount {
	c := backendCount{names: make(map[string]int, len(backends)), addrs: make(map[netip.Addr]int, len(backends))}
	for _, m := range backends {
		c.addrs[m.Addr.Addr()]++
		if m.Name != "" {
			c.names[m.Name]++
		}
	}
	return c
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
func (l *listener) add(problems *lab.Problems, b *lab.Balancer, f *Frontend) {
	l.frontends = append(l.frontends, f)
	for _, p := range b.AcceptProxy {
		if !slices.Contains(l.peers, p) {
			l.peers = append(l.peers, p)
		}
	}
	if len(b.Match.SNI)+len(b.Match.Host) == 0 {
		if l.fallback != nil {
			problems.Addf(b.Pos, key(b)+".match", "balancer %s listens on %s and has no match either; add match.sni or match.host to one",
				l.fallback.Name, l.addr)
			return
		}
		l.fallback = f
		return
	}
	// Mode http does not terminate TLS, so match.sni can only mean the Host header there.
	sni := &l.sni
	if f.Mode == lab.ModeHTTP {
		sni = &l.host
	}
	l.addNames(problems, b, f, sni, "sni", b.Match.SNI)
	l.addNames(problems, b, f, &l.host, "host", b.Match.Host)
}

func (l *listener) addNames(problems *lab.Problems, b *lab.Balancer, f *Frontend, into *nameTable, what string, patterns []string) {
	for _, p := range patterns {
		if owner := into.add(p, f); owner != f {
			problems.Addf(b.Pos, key(b)+".match."+what, "balancer %s on %s already matches %q", owner.Name, l.addr, p)
		}
	}
}

// only returns the frontend of the address if it has one only, without a match; else nil.
func (l *listener) only() *Frontend {
	if len(l.frontends) == 1 {
		return l.fallback
	}
	return nil
}

// onlyHTTP reports whether every frontend of the address is in mode http, so that requests are routed, not connections.
func (l *listener) onlyHTTP() bool {
	return !slices.ContainsFunc(l.frontends, func(f *Frontend) bool { return f.Mode != lab.ModeHTTP })
}

// byServerName returns the frontend for a TLS server name; nil: none matches.
func (l *listener) byServerName(sni string) *Frontend { return cmp.Or(l.sni.find(sni), l.fallback) }

// byHost returns the frontend for a Host header; nil: none matches.
func (l *listener) byHost(host string) *Frontend { return cmp.Or(l.host.find(host), l.fallback) }

// trusts reports whether a PROXY header of that peer is accepted.
func (l *listener) trusts(peer netip.Addr) bool {
	return slices.ContainsFunc(l.peers, func(p netip.Prefix) bool { return p.Contains(peer) })
}
