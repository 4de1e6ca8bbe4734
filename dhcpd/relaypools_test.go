package dhcpd

import (
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab/load"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// relayPoolsLab has a pool for each of two ports of a relay, and one for everybody else.
const relayPoolsLab = `
networks:
  main: {subnet: 10.77.0.0/24, interface: lab0, address: 10.77.0.1}
  far:
    subnet: 10.78.0.0/24
    lease: 1h
    pools:
      port-1: {range: 10.78.0.10-10.78.0.19, circuit_id: eth1, remote_id: switch, per_port: 1}
      port-2: {range: 10.78.0.20-10.78.0.29, circuit_id: eth2}
      rest: {range: 10.78.0.100-10.78.0.199}
`

// option82 is what a relay adds for one of its ports (RFC 3046).
func option82(port string) dhcpv4.Modifier {
	return raw(82, "\x01"+string(rune(len(port)))+port+"\x02\x06switch")
}

// newRelayBench returns a server of relayPoolsLab, and a function that sends a client's packet through a port of the relay ("": directly, by
// unicast) and returns the type and the address of the reply.
func newRelayBench(t *testing.T) (*bench, func(kind dhcpv4.MessageType, m, port string, more ...dhcpv4.Modifier) string) {
	t.Helper()
	b := newBench(t)
	l, err := load.Parse("lab.yaml", []byte("version: 1\nlab: test\ndomain: lab.test\n"+relayPoolsLab), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.lab, b.table = l, Compile(l)
	return b, func(kind dhcpv4.MessageType, m, port string, more ...dhcpv4.Modifier) string {
		t.Helper()
		from := "10.78.0.10:68"
		if port != "" {
			from, more = "10.78.0.254:67", append(more, withGiaddr("10.78.0.254"), option82(port))
		}
		out := b.exchange("lab0", 67, from, message(t, kind, mac(t, m), udhcpc, more...))
		if len(out) != 1 {
			return "none"
		}
		p := decode(t, out[0].data)
		return p.MessageType().String() + " " + p.YourIPAddr.String()
	}
}

// TestPoolsOfRelayPorts: a renewal is sent directly and carries no ids of a relay; the pool is that of the lease. A packet with ids
// has the pool of its port.
func TestPoolsOfRelayPorts(t *testing.T) {
	t.Parallel()
	const discover, request = dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest
	b, send := newRelayBench(t)
	lease := func(m, port string) (addr string) {
		t.Helper()
		offer := send(discover, m, port)
		addr = offer[len("OFFER "):]
		if got := send(request, m, port, withRequested(addr), withServer("10.77.0.1")); got != "ACK "+addr {
			t.Fatalf("%s at port %s: %s, then %s", m, port, offer, got)
		}
		return addr
	}
	portOf := func(addr string) string {
		l, _ := b.deps.Book.ByAddr(ip(addr))
		return l.RelayPort
	}
	first := lease(other, "eth1")
	if b.lab.PoolAt(ip(first)).Name != "port-1" || portOf(first) != "eth1 of switch" {
		t.Fatalf("%s is not of pool port-1, or of relay port %q", first, portOf(first))
	}
	for _, tt := range []struct {
		name, port string
		more       dhcpv4.Modifier
		after      time.Duration
		want       string
	}{
		{"a renewal that is answered from memory", "", withCiaddr(first), time.Minute, "ACK " + first},
		{"a renewal that is stored", "", withCiaddr(first), 30 * time.Minute, "ACK " + first},
		{"a rebinding", "eth1", withCiaddr(first), 30 * time.Minute, "ACK " + first},
		{"a reboot", "eth1", withRequested(first), time.Minute, "ACK " + first},
		{"a reboot at another port", "eth2", withRequested(first), time.Minute, "NAK 0.0.0.0"},
	} {
		b.clock.Advance(tt.after)
		if got := send(request, other, tt.port, tt.more); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if got := portOf(first); got != "eth1 of switch" {
			t.Errorf("%s: the relay port of the lease is %q", tt.name, got)
		}
	}
	if got := send(discover, pooled, "eth1"); got != "none" {
		t.Errorf("a second machine at a port with per_port: 1: %s", got)
	}
	second := lease(other, "eth2")
	if b.lab.PoolAt(ip(second)).Name != "port-2" {
		t.Errorf("a machine that moved to port eth2 got %s", second)
	}
	if got := send(request, other, "", withCiaddr(first)); got != "NAK 0.0.0.0" {
		t.Errorf("a renewal of the address that it had before: %s", got)
	}
	if third := lease(other, "eth9"); b.lab.PoolAt(ip(third)).Name != "rest" {
		t.Errorf("a machine that moved to port eth9 got %s", third)
	}
}
