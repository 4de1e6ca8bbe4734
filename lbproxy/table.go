package lbproxy

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// What stands in for a zero value. The lab resolves its own defaults; these guard tables made by hand.
const (
	defaultConnect  = 5 * time.Second
	defaultIdle     = 10 * time.Minute
	defaultInterval = 5 * time.Second
	defaultTimeout  = 5 * time.Second
	defaultRise     = 2
	defaultFall     = 3
)

// A Table is what the server answers from: every balancer of a lab, by the address it listens on. It is immutable.
type Table struct {
	Frontends []*Frontend // sorted by Name

	sites []*site // sorted by address
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

// A Backend is one member of a frontend. Its stable key is the frontend's name and Addr.
type Backend struct {
	Name   string // the host's name, else the address
	Label  string // Name, with the port where another member of the frontend has the same name; for people and metrics
	Host   string // the host of the lab; empty: from outside
	Addr   netip.AddrPort
	Backup bool // used only while every other member is down

	seed uint64 // of the rendezvous hash
}

// A site is one listen address and the frontends that share it.
type site struct {
	addr     netip.AddrPort
	fronts   []*Frontend
	peers    []netip.Prefix // whose PROXY header is believed, of all frontends here
	sni      names
	host     names
	fallback *Frontend // the one without a match; nil: none
}

// Compile returns the table of a lab. The error is lab.Problems: two balancers that cannot be told apart, or an address
// that covers another's.
func Compile(l *lab.Lab) (*Table, error) {
	var problems lab.Problems
	t := &Table{Frontends: make([]*Frontend, 0, len(l.Balancers))}
	sites := make(map[netip.AddrPort]*site)
	owners := make(map[string]bool, len(l.Balancers))
	for _, b := range sorted(l.Balancers) {
		if !usable(&problems, b, owners) {
			continue
		}
		f := newFrontend(b)
		f.index = len(t.Frontends)
		t.Frontends = append(t.Frontends, f)
		s := sites[f.Listen]
		if s == nil {
			s = &site{addr: f.Listen}
			sites[f.Listen] = s
			t.sites = append(t.sites, s)
		}
		s.add(&problems, b, f)
	}
	slices.SortFunc(t.sites, func(a, b *site) int { return a.addr.Compare(b.addr) })
	overlaps(&problems, l.Balancers)
	return t, problems.Err()
}

func sorted(bs []*lab.Balancer) []*lab.Balancer {
	return slices.SortedStableFunc(slices.Values(bs), func(a, b *lab.Balancer) int { return cmp.Compare(a.Name, b.Name) })
}

// usable reports the problems that leave a balancer without a place in the table.
func usable(problems *lab.Problems, b *lab.Balancer, names map[string]bool) bool {
	switch {
	case names[b.Name]:
		problems.Addf(b.Pos, key(b), "a balancer of this name is already there; give it another name")
	case !b.Listen.IsValid() || b.Listen.Port() == 0:
		problems.Addf(b.Pos, key(b)+".listen", "%q is not an address and port, such as 192.168.16.10:443", b.Listen)
	default:
		names[b.Name] = true
		return true
	}
	return false
}

func key(b *lab.Balancer) string { return "balancers." + b.Name }

// overlaps reports addresses that cannot be bound beside an unspecified one of the same port.
func overlaps(problems *lab.Problems, bs []*lab.Balancer) {
	wide := make(map[uint16]*lab.Balancer)
	for _, b := range bs {
		if b.Listen.IsValid() && b.Listen.Addr().IsUnspecified() {
			wide[b.Listen.Port()] = b
		}
	}
	for _, b := range bs {
		if w := wide[b.Listen.Port()]; w != nil && w.Listen != b.Listen {
			problems.Addf(b.Pos, key(b)+".listen", "%s is covered by %s of balancer %s; give both the same address, or each its own",
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
	of := countMembers(b.Backends)
	for i, m := range b.Backends {
		f.Backends[i] = newBackend(m, of)
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

func newBackend(m lab.Backend, of count) Backend {
	out := Backend{Name: m.Name, Addr: m.Addr, Backup: m.Backup}
	if out.Name == "" {
		out.Name = m.Addr.String()
	}
	if m.Host != nil {
		out.Host = m.Host.Name
	}
	out.Label = out.Name
	if of.names[m.Name] > 1 {
		out.Label = out.Name + ":" + strconv.Itoa(int(m.Addr.Port()))
	}
	// The hash is over the address alone, so that a client finds the same machine on 80 and on 443.
	out.seed = hash(m.Addr.Addr())
	if of.addrs[m.Addr.Addr()] > 1 {
		out.seed = mix(out.seed + uint64(m.Addr.Port()))
	}
	return out
}

// A count says how many members of a balancer have one name or address.
type count struct {
	names map[string]int
	addrs map[netip.Addr]int
}

func countMembers(members []lab.Backend) count {
	c := count{names: make(map[string]int, len(members)), addrs: make(map[netip.Addr]int, len(members))}
	for _, m := range members {
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

// add makes f one of the frontends of the address.
func (s *site) add(problems *lab.Problems, b *lab.Balancer, f *Frontend) {
	s.fronts = append(s.fronts, f)
	for _, p := range b.AcceptProxy {
		if !slices.Contains(s.peers, p) {
			s.peers = append(s.peers, p)
		}
	}
	if len(b.Match.SNI)+len(b.Match.Host) == 0 {
		if s.fallback != nil {
			problems.Addf(b.Pos, key(b)+".match", "balancer %s listens on %s without a match too; tell them apart by match.sni or match.host",
				s.fallback.Name, s.addr)
			return
		}
		s.fallback = f
		return
	}
	// Mode http never sees TLS, so there a server name can only be the host that is asked for.
	sni := &s.sni
	if f.Mode == lab.ModeHTTP {
		sni = &s.host
	}
	s.claim(problems, b, f, sni, "sni", b.Match.SNI)
	s.claim(problems, b, f, &s.host, "host", b.Match.Host)
}

func (s *site) claim(problems *lab.Problems, b *lab.Balancer, f *Frontend, into *names, what string, patterns []string) {
	for _, p := range patterns {
		if owner := into.add(p, f); owner != f {
			problems.Addf(b.Pos, key(b)+".match."+what, "%q belongs to balancer %s on %s already", p, owner.Name, s.addr)
		}
	}
}

// solo returns the only frontend of the address where every connection is its own, or nil.
func (s *site) solo() *Frontend {
	if len(s.fronts) == 1 {
		return s.fallback
	}
	return nil
}

// onlyHTTP reports whether every frontend of the address speaks HTTP, so that nothing need be peeked at.
func (s *site) onlyHTTP() bool {
	return !slices.ContainsFunc(s.fronts, func(f *Frontend) bool { return f.Mode != lab.ModeHTTP })
}

// byName returns the frontend for a TLS server name; nil: none wants it.
func (s *site) byName(sni string) *Frontend { return cmp.Or(s.sni.find(sni), s.fallback) }

// byHost returns the frontend for a Host header; nil: none wants it.
func (s *site) byHost(host string) *Frontend { return cmp.Or(s.host.find(host), s.fallback) }

// trusts reports whether a PROXY header of that peer is believed.
func (s *site) trusts(peer netip.Addr) bool {
	return slices.ContainsFunc(s.peers, func(p netip.Prefix) bool { return p.Contains(peer) })
}
