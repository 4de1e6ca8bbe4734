package dnsd

import (
	"encoding/binary"
	"sync"
	"time"
)

// The bounds of how long an answer of the forwarder is kept.
const (
	maxPositive = 24 * time.Hour
	maxNegative = time.Hour
	maxFailure  = 5 * time.Second // RFC 9520 section 3.2: failures are kept too, but not for long

	entryOverhead = 200 // octets of memory that an entry takes beside its data
)

// A cacheEntry is an answer of the forwarder. It is immutable but for its place in the cache.
type cacheEntry struct {
	key   string
	code  rcode
	count [3]uint16
	rest  []byte // what stands behind the question; its compression pointers may point into a question of the same name
	at    time.Time
	ttl   time.Duration

	newer, older *cacheEntry
}

func (e *cacheEntry) size() int { return len(e.key) + len(e.rest) + entryOverhead }

// A cache keeps the entries that were used last.
type cache struct {
	maxEntries, maxBytes int

	mu             sync.Mutex
	rules          uint64 // of the forwarding rules that the entries were learned under
	entries        map[string]*cacheEntry
	newest, oldest *cacheEntry
	bytes          int
}

// get returns the entry of a key if it is still good. Looking up does not allocate.
func (c *cache) get(rules uint64, key []byte, now time.Time) *cacheEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkLocked(rules)
	e := c.entries[string(key)]
	if e == nil {
		return nil
	}
	c.unlinkLocked(e)
	if now.Sub(e.at) >= e.ttl {
		delete(c.entries, e.key)
		c.bytes -= e.size()
		return nil
	}
	c.linkLocked(e)
	return e
}

// put adds an entry and evicts the least recently used. It returns the number of entries and their octets.
func (c *cache) put(rules uint64, e *cacheEntry) (entries, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkLocked(rules)
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
	age(r.w.b, start, now.Sub(e.at))
}

// age takes the time that has passed from the TTLs of the records from off to the end of a message.
func age(b []byte, off int, passed time.Duration) {
	seconds := uint32(max(0, passed/time.Second))
	for off < len(b) {
		h, ok := parseHeader(b, off)
		if !ok {
			return
		}
		binary.BigEndian.PutUint32(b[h.fixed+4:], h.ttl-min(h.ttl, seconds))
		off = h.end
	}
}
