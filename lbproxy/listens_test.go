package lbproxy

import (
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

// portRange returns a bind of three ports on an address of its own.
func portRange(t testing.TB) lab.Bind {
	t.Helper()
	return lab.Bind{Addr: addr(t).Addr(), First: 30000, Last: 30002}
}

// TestSeveralListens: one balancer answers on all its addresses and ports, one of which it shares by server name; a reload that
// drops one keeps the connections there, and leaves the others alone.
func TestSeveralListens(t *testing.T) {
	t.Parallel()
	back, named := serveTCP(t, nameServer("back")), serveTCP(t, func(c net.Conn) { _, _ = io.WriteString(c, "named\n") })
	single, many := lab.BindTo(addr(t))[0], portRange(t)
	six := lab.BindTo(netip.AddrPortFrom(netip.IPv6Loopback(), listenOf(&lab.Balancer{Listen: lab.Binds{single}}).Port()+uint16(addrs.Add(1))))[0]
	b := func(on ...lab.Bind) *lab.Balancer {
		return with(balancer("b", netip.AddrPort{}, back), func(b *lab.Balancer) { b.Listen = on })
	}
	sni := with(balancer("sni", netip.AddrPortFrom(many.Addr, 30001), named), func(b *lab.Balancer) { b.Match.SNI = []string{"a.example"} })
	r := newTestServer(t, Config{}, b(single, six, many), sni)
	all := slices.Collect(lab.Binds{single, six, many}.All())
	conns := map[netip.AddrPort]net.Conn{}
	for _, at := range all {
		c := dial(t, at)
		if at.Port() == 30001 {
			_, _ = io.WriteString(c, "no TLS") // the address is shared: the first bytes decide
		}
		if got := readLine(t, c); got != "back" {
			t.Errorf("%s answers %q", at, got)
		}
		conns[at] = c
	}
	tlsClient := dial(t, netip.AddrPortFrom(many.Addr, 30001))
	_, _ = tlsClient.Write(hello(t, &tls.Config{ServerName: "a.example"}))
	if got := readLine(t, tlsClient); got != "named" {
		t.Errorf("the server name leads to %q", got)
	}
	if got := r.Status()[0].Listen.String(); got != single.String()+", "+six.String()+", "+many.Addr.String()+":30000-30002" {
		t.Errorf("status shows %s", got)
	}
	kept := r.sockets[all[0]]
	r.apply(t, b(single, lab.Bind{Addr: many.Addr, First: 30002, Last: 30002}))
	for at, c := range conns {
		_, _ = io.WriteString(c, "still\n")
		if line := readLine(t, c.(*net.TCPConn)); line != "still" && line != "no TLSstill" {
			t.Errorf("the connection to %s got %q after the reload", at, line)
		}
		again, err := net.DialTimeout("tcp", at.String(), time.Minute)
		if serves := at == all[0] || at.Port() == 30002; serves != (err == nil) {
			t.Errorf("a new connection to %s after the reload: %v", at, err)
		}
		if err == nil {
			_ = again.Close()
		}
	}
	if r.sockets[all[0]] != kept {
		t.Error("the socket that stays was opened again")
	}
}

// TestSamePort: a backend without a port gets the client at the port to which it has connected, and ports where nothing listens eject it
// from no other.
func TestSamePort(t *testing.T) {
	t.Parallel()
	on, node, healthy := portRange(t), addr(t).Addr(), serveTCP(t, func(net.Conn) {})
	var served [2]atomic.Int32
	for i := range served {
		serveTCPAt(t, netip.AddrPortFrom(node, 30000+uint16(i)), func(c net.Conn) {
			served[i].Add(1)
			_, _ = io.WriteString(c, "node\n")
		})
	}
	b := with(balancer("nodeports", netip.AddrPort{}, netip.AddrPortFrom(node, 0)), func(b *lab.Balancer) {
		b.Listen, b.Timeouts.Connect = lab.Binds{on}, 300*time.Millisecond
	})
	r := newTestServer(t, Config{Hedge: time.Minute}, b)
	for range 3 {
		if got, err := readAll(netip.AddrPortFrom(on.Addr, 30002)); err == nil {
			t.Errorf("the port where nothing listens answers %q", got)
		}
	}
	if s := r.Status()[0].Backends[0]; s.Health == Down {
		t.Errorf("refused connections to one port ejected the backend: %s", s.Reason)
	}
	b.Timeouts.Connect = 0 // the default
	r.apply(t, b)
	for i := range served {
		if got := readLine(t, dial(t, netip.AddrPortFrom(on.Addr, 30000+uint16(i)))); got != "node" || served[i].Load() != 1 {
			t.Errorf("port %d: %q, %d connections there", 30000+i, got, served[i].Load())
		}
	}
	if _, err := r.Drain(t.Context(), "nodeports", node.String()); err != nil {
		t.Errorf("drain by address: %v", err)
	}
	b.Check, b.Backends[0].Addr = lab.Check{Kind: lab.CheckTCP, Port: healthy.Port()}, netip.AddrPortFrom(healthy.Addr(), 0)
	r.apply(t, b)
	r.waitHealth(t, b.Backends[0].Addr, Up)
}

// TestMaxConnectionsOfSeveralListens: the limit holds for all ports together, and what raises it lets clients of every port in.
func TestMaxConnectionsOfSeveralListens(t *testing.T) {
	t.Parallel()
	on := portRange(t)
	b := with(balancer("b", netip.AddrPort{}, serveTCP(t, nameServer("b"))), func(b *lab.Balancer) {
		b.Listen, b.MaxConnections = lab.Binds{on}, 1
	})
	r := newTestServer(t, Config{}, b)
	first := dial(t, netip.AddrPortFrom(on.Addr, 30000))
	readLine(t, first)
	var others []*net.TCPConn
	for port := uint16(30000); port <= 30002; port++ {
		others = append(others, dial(t, netip.AddrPortFrom(on.Addr, port)))
	}
	_ = others[0].SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := others[0].Read(make([]byte, 8)); err == nil {
		t.Fatalf("got %d bytes beyond the limit", n)
	}
	if n := r.Status()[0].Connections; n != 1 {
		t.Errorf("%d connections, the limit is 1", n)
	}
	b.MaxConnections = 4
	r.apply(t, b) // one change, of which the sockets of all ports are to know
	for _, c := range others {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if got := readLine(t, c); got != "b" {
			t.Errorf("got %q after the limit was raised", got)
		}
		_ = c.Close()
	}
	_ = first.Close()
	netns.WaitFor(t, "ended", func() bool { return r.Status()[0].Connections == 0 })
}
