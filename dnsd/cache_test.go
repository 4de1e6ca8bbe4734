package dnsd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// TestCacheAges lets time pass over cached answers: TTLs shrink, then the answer is gone. A negative answer lives as long
// as its SOA says, a failure five seconds.
func TestCacheAges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := compile(t, forwardingLab(netip.MustParseAddrPort("127.0.0.1:1")))
		s, err := New(Config{}, Deps{Table: func() *Table { return table }, Now: time.Now,
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Registerer: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		learn(t, s, table, "www.example.org.", "www.example.org. 300 IN A 198.51.100.7")
		learn(t, s, table, "missing.example.org.")
		time.Sleep(100*time.Second + 900*time.Millisecond)
		m := lookup(t, s, "WWW.example.org. A", inside)
		if m.Answer[0].Header().Ttl != 200 || m.Answer[0].Header().Name != "WWW.example.org." {
			t.Errorf("after 100s: %v, want a TTL of 200 and the client's spelling", m.Answer[0])
		}
		if m := lookup(t, s, "missing.example.org. A", inside); m.Rcode != dns.RcodeNameError || m.Ns[0].Header().Ttl != 800 {
			t.Errorf("negative after 100s: %v, want NXDOMAIN with a SOA of 800", m)
		}
		time.Sleep(199 * time.Second)
		if !known(s, table, "www.example.org.") || known(s, table, "missing.example.org.") {
			t.Error("after 299.9s: want the positive answer, which lives 300s, and no negative one, whose SOA has a minimum of 299s")
		}
		time.Sleep(time.Second)
		if known(s, table, "www.example.org.") {
			t.Error("after 300.9s the answer is still there")
		}
	})
}

// learn puts a reply into the cache as if a server had sent it.
func learn(t *testing.T, s *Server, table *Table, owner string, records ...string) {
	t.Helper()
	var n name
	wire, _ := appendName(nil, owner)
	if _, err := n.parse(wire); err != nil {
		t.Fatal(err)
	}
	a := upstreamQuery{name: &n, qtype: typeA}
	m := reply(new(dns.Msg).SetQuestion(owner, dns.TypeA), records...)
	for _, rr := range m.Ns {
		rr.(*dns.SOA).Minttl = 299
	}
	e, err := a.newEntry(m)
	if err != nil {
		t.Fatal(err)
	}
	e.key, e.at = string(appendKey(nil, &n, typeA, false, false)), s.deps.Now()
	s.forward.cache.limit(100, 1<<20)
	s.forward.cache.put(table.forwardHash, e)
}

func known(s *Server, table *Table, owner string) bool {
	var n name
	wire, _ := appendName(nil, owner)
	_, _ = n.parse(wire)
	return s.forward.cache.get(table.forwardHash, appendKey(nil, &n, typeA, false, false), s.deps.Now()) != nil
}

// TestCacheBounds fills the cache beyond its bounds: what was used last stays.
func TestCacheBounds(t *testing.T) {
	t.Parallel()
	now := time.Unix(1, 0)
	c := cache{maxEntries: 3, maxBytes: 4 * entryOverhead}
	const typed = "\x00\x01\x00" // of a key: type and flags
	put := func(key string, size int) {
		c.put(1, &cacheEntry{key: key + typed, rest: make([]byte, size), at: now, ttl: time.Minute})
	}
	has := func() string {
		got := ""
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			if _, ok := c.entries[key+typed]; ok {
				got += key
			}
		}
		return got
	}
	put("a", 0)
	put("b", 0)
	put("c", 0)
	c.get(1, []byte("a"+typed), now)
	put("d", 0)
	if got := has(); got != "acd" {
		t.Errorf("after four of three: %q, want acd: b was used least", got)
	}
	put("e", 2*entryOverhead)
	if got := has(); got != "e" || c.bytes > c.maxBytes {
		t.Errorf("after a large one: %q with %d octets, want only e, as a second would exceed %d", got, c.bytes, c.maxBytes)
	}
	put("a", 5*entryOverhead)
	if got := has(); got != "e" {
		t.Errorf("after one that is too large: %q, want e", got)
	}
	put("e", 1)
	if len(c.entries) != 1 || c.bytes != entryOverhead+2+len(typed) {
		t.Errorf("replaced: %d entries of %d octets", len(c.entries), c.bytes)
	}
	if c.get(2, []byte("e"+typed), now) != nil || c.bytes != 0 {
		t.Error("an answer outlived the forwarding rules that it was learned under")
	}
	for i := range 50 {
		put(fmt.Sprint(i), i)
		c.get(1, []byte(fmt.Sprint(i/2)+typed), now)
	}
	n := 0
	for e := c.newest; e != nil; e = e.older {
		n++
	}
	if n != len(c.entries) || n > 3 {
		t.Errorf("%d entries in the list, %d in the map", n, len(c.entries))
	}
}

// TestPrefetch: an answer that is asked for while it is about to expire is asked for again in the background, once; one that nobody
// asks for just expires. Should no server answer, the old answer stays.
func TestPrefetch(t *testing.T) {
	t.Parallel()
	answers := make(chan string, 1)
	up := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg {
		select {
		case addr := <-answers:
			return reply(q, q.Question[0].Name+" 60 IN A "+addr)
		default:
			return new(dns.Msg).SetRcode(q, dns.RcodeRefused)
		}
	})
	var mu sync.Mutex
	now := time.Now()
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	after := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
	s := newServer(t, compile(t, forwardingLab(up.addr)), nil)
	s.deps.Now, s.forward.now, s.forward.servers.now = clock, clock, clock
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.forward.refresh(ctx) })
	defer wg.Wait()
	defer cancel()
	want := func(addr string) {
		t.Helper()
		if got := show(lookup(t, s, "www.example.org. A", inside)); got != "NOERROR ra\nan www.example.org. A "+addr {
			t.Errorf("got %s, want %s", got, addr)
		}
	}
	answers <- "198.51.100.1"
	want("198.51.100.1")
	after(53 * time.Second)
	want("198.51.100.1")
	after(2 * time.Second)
	want("198.51.100.1") // no server answers
	netns.WaitFor(t, "the failed question", func() bool { return len(up.asked) == 2 })
	want("198.51.100.1")
	s.forward.cache.entries[string(s.forward.cache.newest.key)].refreshed.Store(false)
	answers <- "198.51.100.2"
	want("198.51.100.1")
	netns.WaitFor(t, "the new answer", func() bool {
		return show(lookup(t, s, "www.example.org. A", inside)) == "NOERROR ra\nan www.example.org. A 198.51.100.2"
	})
	after(30 * time.Second)
	want("198.51.100.2")
	if len(up.asked) != 3 {
		t.Errorf("asked %d times, want 3", len(up.asked))
	}
}

// TestCacheSize: the lab file bounds the cache, and a reload changes that.
func TestCacheSize(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg { return reply(q, q.Question[0].Name+" 60 IN A 198.51.100.1") })
	l := forwardingLab(up.addr)
	l.DNS.CacheEntries, l.DNS.CacheSize = 3, 1<<20
	s := newServer(t, compile(t, l), nil)
	for i := range 10 {
		lookup(t, s, fmt.Sprintf("h%d.example.org. A", i), inside)
	}
	if n := len(s.forward.cache.entries); n != 3 {
		t.Errorf("%d entries, want 3", n)
	}
	l.DNS.CacheEntries = 5
	table := compile(t, l)
	s.deps.Table = func() *Table { return table }
	for i := range 10 {
		lookup(t, s, fmt.Sprintf("i%d.example.org. A", i), inside)
	}
	if n := len(s.forward.cache.entries); n != 5 {
		t.Errorf("%d entries after a reload, want 5", n)
	}
}
