package interop

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// firmwarePort is where many boot ROMs send their requests from.
const firmwarePort = 2070

// TestForgedRequestDuringTransfer: requests that a neighbour forges from the address and port of the host's transfer do not end it. The
// host's own request from there does, as that of a machine that has restarted.
func TestForgedRequestDuringTransfer(t *testing.T) {
	t.Parallel()
	n := newNeighbourhood(t, "10.93.26")
	n.install()
	var conn *net.UDPConn
	err := n.host.inside(func() (err error) {
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(n.hostAddr()), Port: firmwarePort})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	const program = "boot/" + hostHyphens + "/undionly.kpxe"
	server := netip.MustParseAddrPort(n.addr + ":69")
	send := func(b []byte, to netip.AddrPort) {
		t.Helper()
		if _, err := conn.WriteToUDPAddrPort(b, to); err != nil {
			t.Fatal(err)
		}
	}
	b := make([]byte, 2048)
	// next acknowledges a block and returns the size of the next one, and the port that it came from.
	next := func(acked uint16, to netip.AddrPort) (size int, from netip.AddrPort) {
		t.Helper()
		send(binary.BigEndian.AppendUint16([]byte{0, 4}, acked), to)
		for { // the block before may come again
			_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
			size, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil || size < 4 || b[1] != 3 {
				t.Fatalf("after block %d: %q, %v\n%s", acked, b[:max(0, size)], err, n.timeline())
			}
			if binary.BigEndian.Uint16(b[2:]) == acked+1 {
				return size, from
			}
		}
	}
	start := func() netip.AddrPort {
		t.Helper()
		send(rrq(program), server)
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		size, from, err := conn.ReadFromUDPAddrPort(b)
		if err != nil || size != 516 || b[1] != 3 {
			t.Fatalf("%q, %v", b[:max(0, size)], err)
		}
		return from
	}
	dropped := func() float64 { return n.metric(`bootlab_tftpd_packets_dropped_total{reason="forged"}`) }
	at := start()
	before, _ := n.events()
	requests := [][]byte{rrq("public/motd"), rrq(program, "blksize", "1400"), rrq(n.script), rrq("nosuch")}
	for i, acked := 0, uint16(1); ; acked++ {
		size, from := next(acked, at)
		if from != at {
			t.Fatalf("block %d came from %s, not %s: another transfer\n%s", acked+1, from, at, n.timeline())
		}
		if size < 516 {
			send(binary.BigEndian.AppendUint16([]byte{0, 4}, acked+1), at)
			break
		}
		if acked%16 == 0 && i < 2*len(requests) {
			n.forge(firmwarePort, 69, requests[i%len(requests)])
			i++
			n.until("the forged request is dropped", func() bool { return dropped() >= float64(i) })
		}
	}
	n.until("the transfer is over", func() bool { return n.metric(`bootlab_tftpd_transfers_active`) == 0 })
	if after, _ := n.events(); len(after) < len(before) || slices.Contains(after[len(before)-1:], "tftp_failed") {
		t.Errorf("the host's own events %q\n%s", after, n.timeline())
	}
	at = start()
	next(1, at)
	send(rrq("public/motd"), server) // it has restarted
	for from := at; from == at; {
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, from, err = conn.ReadFromUDPAddrPort(b); err != nil {
			t.Fatalf("the host's own request from that port: %v\n%s", err, n.timeline())
		}
	}
}
