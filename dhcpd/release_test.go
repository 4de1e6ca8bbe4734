package dhcpd

import (
	"net/netip"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/dhcpd/leases"
)

// TestLeaseAfterRelease: a machine that releases its address, or declines it, and asks again before the disk has noted that is not
// acknowledged a lease that is about to end.
func TestLeaseAfterRelease(t *testing.T) {
	t.Parallel()
	for _, kind := range []dhcpv4.MessageType{dhcpv4.MessageTypeRelease, dhcpv4.MessageTypeDecline} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			m := madeUp(1)
			addr := b.take(t, m)
			send := func(from string, p []byte) (acked bool) {
				t.Helper()
				b.wire.sent = nil
				b.handle(&exchange{iface: "lab0", port: 67, from: netip.MustParseAddrPort(from), out: b.wire}, p)
				return len(b.wire.sent) > 0 && decode(t, b.wire.sent[0].data).MessageType() == dhcpv4.MessageTypeAck
			}
			request := message(t, dhcpv4.MessageTypeRequest, m, udhcpc, withRequested(addr), withServer("10.77.0.1"))
			if !send(client0, request) {
				t.Fatal("a young lease is not renewed at once")
			}
			send(addr+":68", message(t, kind, m, nil, dhcpv4.WithClientIP(ip(addr).AsSlice()), withRequested(addr), withServer("10.77.0.1"))) // the disk is busy
			if send(client0, request) {
				t.Error("its lease is acknowledged before the disk has it")
			}
			b.commitQueued()
			acked := len(b.wire.sent) > 0 && decode(t, b.wire.sent[0].data).MessageType() == dhcpv4.MessageTypeAck
			l, ok := b.deps.Book.ByMAC(m)
			if live := ok && l.State == leases.Active && l.Addr == ip(addr); acked != live || acked != (kind == dhcpv4.MessageTypeRelease) {
				t.Errorf("acknowledged: %v, and the book has %+v, %v", acked, l, ok)
			}
			if !send(client0, request) && kind == dhcpv4.MessageTypeRelease {
				t.Error("the new lease is not renewed at once")
			}
		})
	}
}
