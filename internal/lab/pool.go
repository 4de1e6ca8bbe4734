package lab

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// A Client is what a DHCP message says of its sender. The slices may point into the packet: nothing keeps them.
type Client struct {
	MAC         MAC
	Arch        uint16 // option 93, its first code; counts only with HasArch
	HasArch     bool
	VendorClass []byte // option 60
	UserClass   []byte // option 77 as it was sent: a list as in RFC 3004, or bare text, as iPXE sends it
	CircuitID   []byte // option 82 sub-option 1 (RFC 3046): the relay's port
	RemoteID    []byte // option 82 sub-option 2: the relay, or what it knows of the machine
}

// PoolFor returns the pool of n that serves a machine without a reservation, or nil. Of a pool's criteria all that are
// given must match, and of each list any; a pool without criteria is for anyone. The most specific pool wins: relay ids
// first (both before one, exact before pattern, circuit before remote), then the bits of the MAC, user class, vendor
// class, architecture; the first by name among equals. It does not allocate.
func (n *Network) PoolFor(a *Client) *Pool { return n.poolIndex().find(a) }

// PoolHolding returns the pool of n whose range holds a, or nil. Ranges of one network never overlap.
func (n *Network) PoolHolding(a netip.Addr) *Pool { return n.poolIndex().holding(a) }

// PoolAt returns the pool whose range holds a, in whatever network, or nil.
func (l *Lab) PoolAt(a netip.Addr) *Pool {
	n := l.NetworkOf(a)
	if n == nil {
		return nil
	}
	return n.PoolHolding(a)
}

// Admits reports whether machines with that MAC may have addresses of the pool, as far as the MAC decides.
func (p *Pool) Admits(m MAC) bool {
	return len(p.MACs) == 0 || slices.ContainsFunc(p.MACs, func(pattern MACPattern) bool { return pattern.Match(m) })
}

// Criteria returns the criteria as text, one for each key: "circuit_id=eth0/7 or hex:0001ff". Empty: every client.
func (p *Pool) Criteria() (all []string) {
	all = appendCriteria(all, "mac", p.MACs)
	all = appendCriteria(all, "arch", p.Archs)
	all = appendCriteria(all, "vendor_class", p.VendorClasses)
	all = appendCriteria(all, "user_class", p.UserClasses)
	all = appendCriteria(all, "circuit_id", p.CircuitIDs)
	return appendCriteria(all, "remote_id", p.RemoteIDs)
}

func appendCriteria[T interface{ String() string }](all []string, key string, patterns []T) []string {
	if len(patterns) == 0 {
		return all
	}
	words := make([]string, len(patterns))
	for i, p := range patterns {
		words[i] = p.String()
	}
	return append(all, key+"="+strings.Join(words, " or "))
}

// A trait is an option that a client may send and a pool may require. All clients send a MAC.
type trait uint8

const (
	traitArch trait = 1 << iota
	traitVendor
	traitUser
	traitCircuit
	traitRemote
)

func (a *Client) traits() (t trait) {
	for _, v := range []struct {
		sent  bool
		trait trait
	}{
		{a.HasArch, traitArch}, {len(a.VendorClass) > 0, traitVendor}, {len(a.UserClass) > 0, traitUser},
		{len(a.CircuitID) > 0, traitCircuit}, {len(a.RemoteID) > 0, traitRemote},
	} {
		if v.sent {
			t |= v.trait
		}
	}
	return t
}

// requires returns what a client must send to be considered for p.
func (p *Pool) requires() (t trait) {
	for _, v := range []struct {
		patterns int
		trait    trait
	}{
		{len(p.Archs), traitArch}, {len(p.VendorClasses), traitVendor}, {len(p.UserClasses), traitUser},
		{len(p.CircuitIDs), traitCircuit}, {len(p.RemoteIDs), traitRemote},
	} {
		if v.patterns > 0 {
			t |= v.trait
		}
	}
	return t
}

// A rank says how specific the match of a pool is; the higher wins, 0 is a pool for anyone. From the top: relay ids given,
// exact ones of them, circuit given, worth of both (10 bits); bits of the MAC (6); worth of user class (9), of vendor
// class (9), of architecture (2).
type rank uint64

// A score is what a rank is made of: the worth of the best match of each key, 0 for a key that the pool does not ask for.
type score struct{ circuit, remote, mac, user, vendor, arch uint64 }

func (s *score) rank() rank {
	given := min(s.circuit, 1) + min(s.remote, 1)
	exact := s.circuit/worthExact + s.remote/worthExact
	r := given<<2 | exact
	r = r<<1 | min(s.circuit, 1)
	r = r<<(worthBits+1) | (s.circuit + s.remote)
	r = r<<6 | s.mac
	r = r<<worthBits | s.user
	r = r<<worthBits | s.vendor
	return rank(r<<2 | s.arch)
}

// A poolIndex finds pools of one network. It is immutable.
type poolIndex struct {
	bySpecific []indexedPool // by the highest rank that a machine can reach there, then by the lab's order
	byRange    []*Pool       // by first address
}

// An indexedPool holds, beside the pool, the criteria that exclude most clients.
type indexedPool struct {
	pool     *Pool
	requires trait
	order    int        // place in Network.Pools
	best     rank       // no machine ranks higher here
	mac      MACPattern // the one that every machine fits; zero: any, or several are asked for
	archs    uint64     // bit n: code n may fit
}

func indexed(p *Pool, order int) indexedPool {
	x := indexedPool{pool: p, requires: p.requires(), order: order, best: p.best()}
	if len(p.MACs) == 1 {
		x.mac = p.MACs[0]
	}
	for _, a := range p.Archs {
		x.archs |= a.low()
	}
	if len(p.Archs) == 0 {
		x.archs = ^uint64(0)
	}
	return x
}

// mayFit is fast, and false only for a pool that does not match.
func (x *indexedPool) mayFit(q *candidate) bool {
	return x.requires&^q.sent == 0 && q.mac&x.mac.mask == x.mac.value && (x.archs>>q.Arch&1 == 1 || q.Arch >= 64 || !q.HasArch)
}

// poolIndex returns the index that resolve made. A network that was not loaded has none.
func (n *Network) poolIndex() *poolIndex {
	if n.pools != nil && len(n.pools.byRange) == len(n.Pools) {
		return n.pools
	}
	return newPoolIndex(n.Pools)
}

func newPoolIndex(pools []*Pool) *poolIndex {
	x := &poolIndex{bySpecific: make([]indexedPool, len(pools)), byRange: slices.Clone(pools)}
	for i, p := range pools {
		x.bySpecific[i] = indexed(p, i)
	}
	slices.SortStableFunc(x.bySpecific, func(a, b indexedPool) int { return cmp.Compare(b.best, a.best) })
	slices.SortStableFunc(x.byRange, func(a, b *Pool) int { return a.Range.First.Compare(b.Range.First) })
	return x
}

// best returns the rank of the machine that fits p best.
func (p *Pool) best() rank {
	s := score{
		circuit: mostWorth(p.CircuitIDs), remote: mostWorth(p.RemoteIDs),
		user: mostWorth(p.UserClasses), vendor: mostWorth(p.VendorClasses), arch: mostWorth(p.Archs),
	}
	for _, m := range p.MACs {
		s.mac = max(s.mac, uint64(m.Bits()))
	}
	return s.rank()
}

func mostWorth[T interface{ worth() uint64 }](patterns []T) (most uint64) {
	for _, p := range patterns {
		most = max(most, p.worth())
	}
	return most
}

func (x *poolIndex) find(a *Client) *Pool {
	q := candidate{Client: a, mac: a.MAC.bits(), sent: a.traits(), classList: isClassList(a.UserClass)}
	var found *indexedPool
	var foundRank rank
	for i := range x.bySpecific {
		p := &x.bySpecific[i]
		if found != nil && (foundRank > p.best || foundRank == p.best && found.order < p.order) {
			break // so are all that come after
		}
		if !p.mayFit(&q) {
			continue
		}
		r, ok := q.rank(p.pool)
		if ok && (found == nil || r > foundRank || r == foundRank && p.order < found.order) {
			found, foundRank = p, r
		}
	}
	if found == nil {
		return nil
	}
	return found.pool
}

func (x *poolIndex) holding(a netip.Addr) *Pool {
	i, found := slices.BinarySearchFunc(x.byRange, a, func(p *Pool, a netip.Addr) int { return p.Range.First.Compare(a) })
	if !found {
		i--
	}
	if i < 0 || !x.byRange[i].Range.Contains(a) {
		return nil
	}
	return x.byRange[i]
}

// A candidate is a Client prepared for comparison.
type candidate struct {
	*Client
	mac       uint64
	sent      trait
	classList bool // UserClass is a list as in RFC 3004
}

// rank compares the client with the criteria of p, the most selective first.
func (q *candidate) rank(p *Pool) (rank, bool) {
	var s score
	ok := matchAny(p.CircuitIDs, q.CircuitID, &s.circuit) && matchAny(p.RemoteIDs, q.RemoteID, &s.remote) &&
		q.matchMAC(p.MACs, &s.mac) && q.matchUser(p.UserClasses, &s.user) &&
		matchAny(p.VendorClasses, q.VendorClass, &s.vendor) && q.matchArch(p.Archs, &s.arch)
	if !ok {
		return 0, false
	}
	return s.rank(), true
}

// matchAny reports whether no pattern is asked for, or any matches, and raises worth to that of the best.
func matchAny(patterns []Pattern, b []byte, worth *uint64) bool {
	for i := range patterns {
		if patterns[i].Match(b) {
			*worth = max(*worth, patterns[i].worth())
		}
	}
	return len(patterns) == 0 || *worth > 0
}

func (q *candidate) matchMAC(patterns []MACPattern, bits *uint64) bool {
	matched := len(patterns) == 0
	for i := range patterns {
		if p := &patterns[i]; q.mac&p.mask == p.value {
			matched, *bits = true, max(*bits, uint64(p.Bits()))
		}
	}
	return matched
}

func (q *candidate) matchUser(patterns []Pattern, worth *uint64) bool {
	if len(patterns) == 0 {
		return true
	}
	matchAny(patterns, q.UserClass, worth)
	if q.classList {
		for b := q.UserClass; len(b) > 0; b = b[1+int(b[0]):] {
			matchAny(patterns, b[1:1+int(b[0])], worth)
		}
	}
	return *worth > 0
}

func (q *candidate) matchArch(archs []Arch, worth *uint64) bool {
	for i := range archs {
		if q.HasArch && archs[i].Match(q.Arch) {
			*worth = max(*worth, archs[i].worth())
		}
	}
	return len(archs) == 0 || *worth > 0
}

// isClassList reports whether option 77 is a list as RFC 3004 section 4 has it: lengths, each followed by so many bytes.
func isClassList(b []byte) bool {
	for len(b) > 0 {
		n := int(b[0])
		if n == 0 || n >= len(b) {
			return false
		}
		b = b[1+n:]
	}
	return true
}
