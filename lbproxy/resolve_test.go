package lbproxy

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

// A directory is what Addresses finds.
type directory struct {
	mu    sync.Mutex
	addrs map[string][]netip.Addr
	ttl   time.Duration
	asked map[string]int
}

func (d *directory) set(name string, addrs ...netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.addrs == nil {
		d.addrs, d.asked = map[string][]netip.Addr{}, map[string]int{}
	}
	d.addrs[name] = addrs
}

func (d *directory) Lookup(_ context.Context, name string) ([]netip.Addr, time.Duration, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked[name]++
	if d.addrs[name] == nil {
		return nil, 0, errors.New("the name server answers SERVFAIL")
	}
	return d.addrs[name], d.ttl, nil
}

func (d *directory) lookups(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked[name]
}

func (d *directory) Lease(host string) netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.addrs[host]) == 0 {
		return netip.Addr{}
	}
	return d.addrs[host][0]
}

// backendAddrs returns the addresses of the backends of the first balancer, in order; "-" for one that has none.
func backendAddrs(r *testServer) string {
	var all []string
	for _, m := range r.Status()[0].Backends {
		if m.Addr.IsValid() {
			all = append(all, m.Addr.String())
		} else {
			all = append(all, "-")
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestBackendsOfOneHost: the name of a host is that of all its backends, whether the lab file or a lease gives it its address, and its name and port
// that of one.
func TestBackendsOfOneHost(t *testing.T) {
	t.Parallel()
	for _, lease := range []bool{false, true} {
		at := addr(t).Addr()
		names := &directory{}
		names.set("w0", at)
		in := at
		if lease {
			in = netip.Addr{}
		}
		h := &lab.Host{Name: "w0"}
		b := with(balancer("web", addr(t)), func(b *lab.Balancer) {
			b.Backends = []lab.Backend{{Name: "w0", Host: h, Addr: netip.AddrPortFrom(in, 80)}, {Name: "w0", Host: h, Addr: netip.AddrPortFrom(in, 81)}}
		})
		r := newTestServerWith(t, Config{}, Deps{Addresses: names}, b)
		netns.WaitFor(t, "both backends", func() bool { return r.Status()[0].Backends[1].Addr.IsValid() })
		drained := func() (ports []uint16) {
			for _, m := range r.Status()[0].Backends {
				if m.Drained {
					ports = append(ports, m.Addr.Port())
				}
			}
			return ports
		}
		for _, step := range []struct {
			do      func(context.Context, string, string) ([]BackendStatus, error)
			backend string
			drained []uint16
		}{{r.Drain, "w0", []uint16{80, 81}}, {r.Ready, "w0:81", []uint16{80}}, {r.Ready, "w0", nil}, {r.Drain, netip.AddrPortFrom(at, 81).String(), []uint16{81}}} {
			if _, err := step.do(t.Context(), "web", step.backend); err != nil {
				t.Error(err)
			}
			if got := drained(); !slices.Equal(got, step.drained) {
				t.Errorf("leased %t, %s: drained %v, want %v", lease, step.backend, got, step.drained)
			}
		}
	}
}

// TestNamedBackend: a name without an answer is looked up again; each of its addresses is a backend; one that leaves gets no new
// connections and keeps those that it has; lookups that fail change nothing.
func TestNamedBackend(t *testing.T) {
	t.Parallel()
	one, two := serveTCP(t, nameServer("one")), addr(t)
	serveTCPAt(t, two, nameServer("two"))
	names := &directory{}
	names.set("", netip.Addr{})
	b := with(balancer("b", addr(t)), func(b *lab.Balancer) {
		b.Backends = []lab.Backend{{Name: "registry.example.com", Addr: netip.AddrPortFrom(netip.Addr{}, 8000)}}
	})
	r := newTestServerWith(t, Config{Hedge: time.Minute}, Deps{Addresses: names}, b)
	netns.WaitFor(t, "the second lookup", func() bool { return names.lookups("registry.example.com") >= 2 })
	m := r.Status()[0].Backends[0]
	if m.Health != Down || !m.Unreachable || m.Key != "registry.example.com:8000" || m.Addr.IsValid() || !strings.Contains(m.Reason, "look up registry.example.com: the name server answers SERVFAIL") {
		t.Errorf("a backend without an answer is %+v", m)
	}
	if got, err := readAll(b.Listen); err == nil {
		t.Errorf("without an address %q", got)
	}
	// Its own address is none of a backend: clients would go in a circle.
	names.set("registry.example.com", one.Addr(), two.Addr(), b.Listen[0].Addr)
	want := []string{one.String(), two.String()}
	slices.Sort(want)
	netns.WaitFor(t, "both addresses", func() bool { return backendAddrs(r) == strings.Join(want, " ") })
	conns := map[string]io.ReadWriteCloser{}
	for range 2 {
		c := dial(t, b.Listen)
		conns[readLine(t, c)] = c
	}
	if len(conns) != 2 {
		t.Fatalf("connections to %v", conns)
	}
	r.mu.Lock()
	r.found[source{name: "registry.example.com"}].next = time.Time{} // its TTL has ended
	r.mu.Unlock()
	names.set("registry.example.com", two.Addr())
	for _, m := range r.Status()[0].Backends {
		if m.Key != m.Addr.String() {
			t.Errorf("one of two addresses of a name is %+v, want its address as key", m)
		}
	}
	netns.WaitFor(t, "the end of an address", func() bool { return backendAddrs(r) == two.String() })
	if m := r.Status()[0].Backends[0]; m.Key != "registry.example.com:8000" {
		t.Errorf("the only address of a name is %+v, want the name as key", m)
	}
	for range 3 {
		if got := readLine(t, dial(t, b.Listen)); got != "two" {
			t.Errorf("a new connection goes to %q", got)
		}
	}
	_, _ = io.WriteString(conns["one"], "still\n")
	line := make([]byte, 6)
	if _, err := io.ReadFull(conns["one"], line); err != nil || string(line) != "still\n" {
		t.Errorf("the connection to the address that has left: %q, %v", line, err)
	}
	names.set("registry.example.com")
	asked := names.lookups("registry.example.com")
	r.mu.Lock()
	r.found[source{name: "registry.example.com"}].next = time.Time{}
	r.mu.Unlock()
	netns.WaitFor(t, "a lookup that fails", func() bool { return names.lookups("registry.example.com") > asked+1 })
	if got := backendAddrs(r); got != two.String() {
		t.Errorf("after lookups without an answer the backends are %s", got)
	}
	r.apply(t, b) // a reload keeps what was found
	if got := backendAddrs(r); got != two.String() {
		t.Errorf("after a reload the backends are %s", got)
	}
}

// TestLookupBounds: a TTL of nothing is no reason to ask all the time.
func TestLookupBounds(t *testing.T) {
	t.Parallel()
	names := &directory{}
	names.set("a.example", netip.MustParseAddr("127.0.0.1"))
	b := with(balancer("b", addr(t)), func(b *lab.Balancer) {
		b.Backends = []lab.Backend{{Name: "a.example", Addr: netip.AddrPortFrom(netip.Addr{}, 8000)}}
	})
	r := newTestServerWith(t, Config{}, Deps{Addresses: names}, b)
	for ttl, want := range map[time.Duration]time.Duration{0: lookupMin, time.Hour: lookupMax, time.Minute: time.Minute} {
		netns.WaitFor(t, "the lookup", func() bool { return backendAddrs(r) == "127.0.0.1:8000" })
		names.mu.Lock()
		names.ttl = ttl
		names.mu.Unlock()
		before := time.Now()
		r.lookUpName(t.Context(), source{name: "a.example"})
		r.mu.Lock()
		if next := r.found[source{name: "a.example"}].next.Sub(before); next < want {
			t.Errorf("TTL %s: the next lookup is in %s, want %s", ttl, next, want)
		}
		r.mu.Unlock()
	}
}

// TestLeasedBackend: a host without an address of its own is a backend while it has a lease, at the address of that.
func TestLeasedBackend(t *testing.T) {
	t.Parallel()
	one, two := serveTCP(t, nameServer("one")), addr(t)
	serveTCPAt(t, two, nameServer("two"))
	leases := &directory{}
	leases.set("node")
	b := with(balancer("b", addr(t)), func(b *lab.Balancer) {
		b.Backends = []lab.Backend{{Name: "node", Host: &lab.Host{Name: "node", FQDN: "node.lab.test"}, Addr: netip.AddrPortFrom(netip.Addr{}, 8000)}}
	})
	r := newTestServerWith(t, Config{}, Deps{Addresses: leases}, b)
	netns.WaitFor(t, "the reason", func() bool { return r.Status()[0].Backends[0].Reason == "the host has no lease" })
	for name, at := range map[string]netip.AddrPort{"one": one, "two": two} {
		leases.set("node", at.Addr())
		netns.WaitFor(t, "the lease", func() bool { return backendAddrs(r) == at.String() })
		if got := readLine(t, dial(t, b.Listen)); got != name || r.Status()[0].Backends[0].Host != "node" {
			t.Errorf("%q at the address of %s", got, name)
		}
	}
	leases.set("node")
	netns.WaitFor(t, "the end of the lease", func() bool { return backendAddrs(r) == "-" })
}
