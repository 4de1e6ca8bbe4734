package tftpd

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"
)

// TestReceiveEndsWhole: what was read as the server was stopped is handed on, and the port is the next reader's at once. A drain
// in single-port mode depends on both: its client's acknowledgement was lost, and it received nothing more.
func TestReceiveEndsWhole(t *testing.T) {
	t.Parallel()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client, err := net.DialUDP("udp4", nil, conn.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s := &Server{log: slog.New(slog.DiscardHandler)}
	for range 500 {
		if _, err := client.Write([]byte{0, opACK, 0, 1}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop() // the end and the packet are there at once
		received := 0
		if err := s.receive(ctx, conn, func(packet) { received++ }); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Time{})
		if received == 0 {
			ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
			_ = s.receive(ctx, conn, func(packet) { received++; stop() })
			stop()
			_ = conn.SetReadDeadline(time.Time{})
		}
		if received != 1 {
			t.Fatalf("received %d packets of one", received)
		}
	}
}
