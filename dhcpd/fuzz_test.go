package dhcpd

import (
	"bytes"
	"testing"

	"github.com/bootlab/bootlab/dhcpd/wire"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// seeds are packets as real clients send them.
func seeds(t testing.TB) [][]byte {
	m := mac(t, master0)
	var all [][]byte
	for _, c := range []client{ovmf, ovmfHTTP, bios, ipxe, debianInstaller, networkd, dhclient, udhcpc} {
		all = append(all,
			message(t, dhcpv4.MessageTypeDiscover, m, c),
			message(t, dhcpv4.MessageTypeRequest, m, c, withRequested("10.77.0.21"), withServer("10.77.0.1")),
			message(t, dhcpv4.MessageTypeRequest, m, c, withRequested("10.1.1.1")),
			message(t, dhcpv4.MessageTypeRequest, m, c, withCiaddr("10.77.0.21")),
			message(t, dhcpv4.MessageTypeDiscover, mac(t, other), c, withGiaddr("10.78.0.254"), raw(82, "\x01\x04port\x05\x04\x0a\x4e\x00\x00")),
		)
	}
	return append(all,
		message(t, dhcpv4.MessageTypeInform, m, udhcpc, withCiaddr("10.77.0.21")),
		message(t, dhcpv4.MessageTypeRelease, m, udhcpc, withCiaddr("10.77.0.21"), withServer("10.77.0.1")),
		message(t, dhcpv4.MessageTypeDecline, m, udhcpc, withRequested("10.77.0.21"), withServer("10.77.0.1")),
	)
}

// FuzzPacket: no packet ends the server, and every reply is for its client and no longer than the client accepts.
func FuzzPacket(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(uint16(67), true, s)
		f.Add(uint16(4011), false, s)
	}
	b := newBench(f)
	f.Fuzz(func(t *testing.T, port uint16, served bool, data []byte) {
		iface := "lab1"
		if served {
			iface = "lab0"
		}
		if port != portPXE {
			port = portServer
		}
		b.events.take()
		for _, out := range b.exchange(iface, port, "10.77.0.21:4011", data) {
			reply, err := dhcpv4.FromBytes(out.data)
			if err != nil {
				t.Fatalf("the reply is no packet: %v", err)
			}
			req, err := dhcpv4.FromBytes(data)
			if err == nil {
				checkReply(t, req, reply, len(out.data))
			} else if !bytes.Equal(reply.TransactionID[:], data[4:8]) || !bytes.Equal(reply.ClientHWAddr, data[28:34]) {
				// The codec is stricter: it refuses what breaks off in its last option, which Kea and dnsmasq take, too.
				t.Errorf("the reply is for another client: %s", reply)
			}
		}
		if testutil.ToFloat64(b.m.dropped[dropPanic]) != 0 {
			t.Fatal("panic")
		}
	})
}

func checkReply(t *testing.T, req, reply *dhcpv4.DHCPv4, size int) {
	t.Helper()
	if reply.OpCode != dhcpv4.OpcodeBootReply || reply.TransactionID != req.TransactionID ||
		!bytes.Equal(reply.ClientHWAddr, req.ClientHWAddr) || !reply.GatewayIPAddr.Equal(req.GatewayIPAddr) {
		t.Errorf("reply %s to %s", reply, req)
	}
	if size < 300 || size > maxDatagram-28+len(req.Options[82])+2*(len(req.Options[82])/255+1) {
		t.Errorf("reply of %d bytes", size)
	}
	if !bytes.Equal(reply.Options[82], req.Options[82]) {
		t.Errorf("option 82 came back as % x, was % x", reply.Options[82], req.Options[82])
	}
	if id := reply.Options[61]; id != nil && !bytes.Equal(id, req.Options[61]) {
		t.Errorf("option 61 came back as % x, was % x", id, req.Options[61])
	}
}

// FuzzAgentInfo: option 82 of any content comes back last and unchanged, and what is read of it lies inside it.
func FuzzAgentInfo(f *testing.F) {
	f.Add([]byte("\x01\x04port\x02\x02sw"))
	f.Add([]byte("\x05\x04\x0a\x4e\x00\x00\x0b\x04\xc0\x00\x02\x09\x13\x00"))
	f.Add([]byte("\x05\xff\x0a"))
	f.Add(bytes.Repeat([]byte("\x01\x01x"), 100))
	b := newBench(f)
	f.Fuzz(func(t *testing.T, info []byte) {
		if len(info) == 0 || len(info) > 700 {
			return
		}
		n := 0
		for _, v := range wire.SubOptions(info) {
			n += 2 + len(v)
		}
		if n > len(info) {
			t.Errorf("sub-options of %d bytes in option 82 of %d", n, len(info))
		}
		data := message(t, dhcpv4.MessageTypeDiscover, mac(t, master0), udhcpc, withGiaddr("10.77.0.254"), raw(118, "\x0a\x4d\x00\x00"), raw(82, string(info)))
		for _, out := range b.exchange("lab0", 67, "10.77.0.254:67", data) {
			if got := decode(t, out.data).Options[82]; !bytes.Equal(got, info) {
				t.Errorf("came back as % x, was % x", got, info)
			}
			end := bytes.TrimRight(out.data, "\x00")
			if len(end) < 2 || end[len(end)-1] != 255 {
				t.Errorf("the reply does not end with option 255")
			}
		}
	})
}
