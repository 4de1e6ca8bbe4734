package dnsd

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"
)

// The bounds of how long an answer of the forwarder is kept.
const (
	maxPositive = 24 * time.Hour
	maxNegative = time.Hour
	maxFailure  = 5 * time.Second // RFC 9520 section 3.2: failures are kept too, but not for long

	maxStale   = 24 * time.Hour          // RFC 8767 section 5: how long an expired answer may still be given
	staleAfter = 1800 * time.Millisecond // when no server has answered by then; clients wait little longer
	staleTTL   = 30 * time.Second

	anyType = 0 // the type in the key of a name that does not exist

	entryOverhead = 200 // octets of memory that an entry takes beside its data
)

// A cacheEntry is an answer of the forwarder. It is immutable but for its place in the cache.
type cacheEntry struct {
	key     string
	code    rcode
	count   [3]uint16
	rest    []byte // what stands behind the question; its compression pointers may point into a question of the same name
	at      time.Time
	learned time.Time // from a server
	ttl     time.Duration
	ad      bool     // the server says that it has verified the answer (RFC 4035 section 3.2.3)
	stale   bool     // it had expired, and no server answered: its records have staleTTL
	server  upstream // that sent it; invalid: none did
	why     string   // no server answered, and why

	targets [][]byte // of its CNAMEs, in order and lower case, if the question is not for them
	endless bool     // it ends in a CNAME, and nothing says that its target has no such record

	referral *delegation // it is no answer, but says whom to ask; never cached

	refreshed atomic.Bool // another answer was asked for, because this one is about to expire

	newer, older *cacheEntry
}

// expiring reports whether an answer that is good will not be for long, so that it is worth asking again while it is.
func (e *cacheEntry) expiring(now time.Time) bool {
	return e.ttl >= minRefreshed && !e.stale && e.code != servFail && now.Sub(e.at) >= e.ttl-e.ttl/refreshFraction
}

func (e *cacheEntry) size() int {
	size := len(e.key) + len(e.rest) + len(e.why) + entryOverhead
	for _, target := range e.targets {
		size += len(target) + 24
	}
	return size
}

// again returns an expired entry as one that is good for staleTTL.
func (e *cacheEntry) again() *cacheEntry {
	return &cacheEntry{code: e.code, count: e.count, rest: e.rest, ttl: staleTTL, stale: true, learned: e.learned, server: e.server,
		targets: e.targets, endless: e.endless}
}

// A cache keeps the entries that were used last.
type cache struct {
	mu                   sync.Mutex
	maxEntries, maxBytes int
	rules                uint64 // of the forwarding rules that the entries were learned under
	entries              map[string]*cacheEntry
	newest, oldest       *cacheEntry
	bytes                int
}

// get returns the entry of a key if it is still good, or that which says that its name does not exist. It may change key. Looking
// up does not allocate.
func (c *cache) get(rules uint64, key []byte, now time.Time) *cacheEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkLocked(rules)
	e := c.entries[string(key)]
	if !e.good(now) {
		e = c.entries[string(withAnyType(key))]
	}
	if !e.good(now) {
		return nil
	}
	c.unlinkLocked(e)
	c.linkLocked(e)
	return e
}

func (e *cacheEntry) good(now time.Time) bool { return e != nil && now.Sub(e.at) < e.ttl }

// expired returns the entry of a key that is no longer good, but better than no answer. It may change key.
func (c *cache) expired(rules uint64, key []byte, now time.Time) *cacheEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkLocked(rules)
	e := c.entries[string(key)]
	if e == nil {
		e = c.entries[string(withAnyType(key))]
	}
	if e == nil || e.code == servFail || now.Sub(e.learned) > maxStale {
		return nil
	}
	return e
}

// limit sets the bounds.
func (c *cache) limit(entries, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.maxEntries, c.maxBytes = entries, bytes
}

// put adds an entry and evicts the least recently used. It returns the number of entries and their octets.
func (c *cache) put(rules uint64, e *cacheEntry) (entries, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkLocked(rules)
	if !e.stale {
		e.learned = e.at
	}
	if old := c.entries[e.key]; old != nil {
		c.dropLocked(old)
	}
	if e.ttl > 0 && e.size() <= c.maxBytes {
		c.entries[e.key] = e
		c.bytes += e.size()
		c.linkLocked(e)
	}
	for len(c.entries) > c.maxEntries || c.bytes > c.maxBytes {
		c.dropLocked(c.oldest)
	}
	return len(c.entries), c.bytes
}

// checkLocked forgets everything if the rules have changed: the answers may have come from other servers.
func (c *cache) checkLocked(rules uint64) {
	if c.rules == rules && c.entries != nil {
		return
	}
	c.rules, c.entries, c.newest, c.oldest, c.bytes = rules, map[string]*cacheEntry{}, nil, nil, 0
}

// flush removes what is known about a name in wire form and the names below it. It returns how many entries that were, and what is left.
func (c *cache) flush(wire []byte) (removed, entries, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range c.entries {
		if isBelow(key, wire) {
			c.dropLocked(e)
			removed++
		}
	}
	return removed, len(c.entries), c.bytes
}

// isBelow reports whether the name that a key begins with is that name, or one below it.
func isBelow(key string, wire []byte) bool {
	for off := 0; ; off += 1 + int(key[off]) {
		if rest := key[off : len(key)-3]; len(rest) <= len(wire) {
			return rest == string(wire)
		}
	}
}

func (c *cache) dropLocked(e *cacheEntry) {
	c.unlinkLocked(e)
	delete(c.entries, e.key)
	c.bytes -= e.size()
}

func (c *cache) linkLocked(e *cacheEntry) {
	e.newer, e.older = nil, c.newest
	if c.newest != nil {
		c.newest.newer = e
	}
	if c.newest = e; c.oldest == nil {
		c.oldest = e
	}
}

func (c *cache) unlinkLocked(e *cacheEntry) {
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		c.newest = e.older
	}
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		c.oldest = e.newer
	}
}

// appendKey appends the key of a question: name, type, and the flags that change the answer.
func appendKey(b []byte, n *name, qtype uint16, do, cd bool) []byte {
	b = append(b, n.bytes()...)
	b = binary.BigEndian.AppendUint16(b, qtype)
	flags := byte(0)
	if do {
		flags |= 1
	}
	if cd {
		flags |= 2
	}
	return append(b, flags)
}

// withAnyType returns the key of a question as that of a name that does not exist, in place: the caller does not need it any more.
func withAnyType(key []byte) []byte {
	binary.BigEndian.PutUint16(key[len(key)-3:], anyType)
	return key
}

// fromCache makes an entry the reply, its TTLs less by the entry's age.
func (r *request) fromCache(e *cacheEntry, now time.Time) {
	r.code = e.code
	if len(r.w.b)+len(e.rest) > r.w.limit {
		r.w.full = true
		return
	}
	start := len(r.w.b)
	r.w.b = append(r.w.b, e.rest...)
	r.w.count = e.count
	if e.ad && (r.q.do || r.q.flags&flagAD != 0) { // RFC 6840 section 5.8
		r.flags |= flagAD
	}
	age(r.w.b, start, e, now)
}

// age takes the time that has passed since an entry was made from the TTLs of the records from off to the end of a message.
func age(b []byte, off int, e *cacheEntry, now time.Time) {
	passed := uint32(max(0, now.Sub(e.at)/time.Second))
	for off < len(b) {
		h, ok := parseHeader(b, off)
		if !ok {
			return
		}
		ttl := h.ttl
		if e.stale {
			ttl = uint32(staleTTL / time.Second)
		}
		binary.BigEndian.PutUint32(b[h.fixed+4:], ttl-min(ttl, passed))
		off = h.end
	}
}
