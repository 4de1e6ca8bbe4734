package dhcpload

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/net/ipv4"
)

// Fake answers every DISCOVER and REQUEST that comes to conn from what it holds alone: the machine's number says the address.
// It is the least that a server can do, so it shows where this load ends. It returns nil once conn is closed.
func Fake(conn *net.UDPConn, server, first netip.Addr) error {
	b := ipv4.NewPacketConn(conn)
	in, out := make([]ipv4.Message, batch), make([]ipv4.Message, batch)
	for i := range in {
		in[i].Buffers, out[i].Buffers = [][]byte{make([]byte, longest)}, [][]byte{make([]byte, shortest)}
	}
	for {
		n, err := b.ReadBatch(in, 0)
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return fmt.Errorf("dhcpload: fake: %w", err)
		}
		answers := 0
		for i := range n {
			if fakeAnswer(in[i].Buffers[0][:in[i].N], out[answers].Buffers[0], number(server), number(first)) {
				out[answers].Addr = in[i].Addr
				answers++
			}
		}
		for sent := 0; sent < answers; {
			n, err := b.WriteBatch(out[sent:answers], 0)
			if err != nil {
				break // a relay that is gone already; the next packets tell
			}
			sent += n
		}
	}
}

func fakeAnswer(in, out []byte, server, first uint32) bool {
	m, ok := parse(in)
	if !ok {
		return false
	}
	m.yiaddr, m.server, m.lease, m.requested = first+uint32(m.machine), server, 3600, 0
	switch m.kind {
	case discover:
		m.kind = offer
	case request:
		m.kind = ack
	default:
		return false
	}
	m.put(out)
	out[0] = 2
	return true
}
