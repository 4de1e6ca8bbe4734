package tftpload

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// A server sends a file in lock-step, or in windows, to every client: correctly or, where a field says so, wrongly.
type server struct {
	content []byte
	window  int
	oack    string // option acknowledgement, zero bytes written as spaces; empty: none
	spoil   int64  // a block that has wrong content
}

func (s server) start(t *testing.T) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { _ = conn.Close(); <-ended })
	go func() {
		defer close(ended)
		s.serve(conn)
	}()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// serve has no memory: every ACK is answered with the window behind it.
func (s server) serve(conn *net.UDPConn) {
	b := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		base := int64(1)
		switch {
		case n >= 4 && b[1] == opACK:
			base = int64(binary.BigEndian.Uint16(b[2:])) + 1
		case s.oack != "":
			_, _ = conn.WriteToUDPAddrPort([]byte("\x00\x06"+strings.ReplaceAll(s.oack, " ", "\x00")), from)
			continue
		}
		for block := base; block < base+int64(s.window); block++ {
			at := (block - 1) * 512
			if at > int64(len(s.content)) {
				break
			}
			body := bytes.Clone(s.content[at:min(at+512, int64(len(s.content)))])
			if block == s.spoil {
				body[0]++
			}
			packet := binary.BigEndian.AppendUint16([]byte{0, opData}, uint16(block))
			_, _ = conn.WriteToUDPAddrPort(append(packet, body...), from)
		}
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

func TestLoad(t *testing.T) {
	t.Parallel()
	const window = "windowsize 4 "
	for _, tt := range []struct {
		name   string
		server server
		cfg    Config
		want   Result // Done, Failed, Bytes, Window, and how Why ends
	}{
		{"lock-step", server{content: noise(5000), window: 1}, Config{}, Result{Done: 1, Bytes: 5000, Window: 1}},
		{"asleep", server{content: noise(5000), window: 1}, Config{Wait: Sleep}, Result{Done: 1, Bytes: 5000, Window: 1}},
		{"whole blocks", server{content: noise(1024), window: 1}, Config{}, Result{Done: 1, Bytes: 1024, Window: 1}},
		{"empty", server{window: 1}, Config{}, Result{Done: 1, Window: 1}},
		{"window", server{content: noise(5000), window: 4, oack: window}, Config{Window: 4}, Result{Done: 1, Bytes: 5000, Window: 4}},
		{"first of a window lost", server{content: noise(5000), window: 4, oack: window}, Config{Window: 4, Lose: 5},
			Result{Done: 1, Bytes: 5000, Window: 4}},
		{"lost in lock-step", server{content: noise(5000), window: 1}, Config{Lose: 5, Timeout: 500 * time.Millisecond},
			Result{Done: 1, Bytes: 5000, Window: 1}},
		{"many", server{content: noise(50_000), window: 1}, Config{Clients: 50}, Result{Done: 50, Bytes: 2_500_000, Window: 1}},
		{"wrong content", server{content: noise(5000), window: 1, spoil: 7}, Config{},
			Result{Failed: 1, Why: "block 7 has 512 bytes and not what the file has there"}},
		{"an option that was not requested", server{content: noise(5000), window: 4, oack: window}, Config{},
			Result{Failed: 1, Why: "option windowsize=4 was not asked for"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := tt.cfg
			cfg.Server, cfg.Name, cfg.Want = tt.server.start(t), "f", tt.server.content
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			got, err := Load(ctx, cfg)
			if err != nil {
				t.Fatal(err)
			}
			if got.Done != tt.want.Done || got.Failed != tt.want.Failed || got.Bytes != tt.want.Bytes || got.Window != tt.want.Window ||
				!strings.HasSuffix(got.Why, tt.want.Why) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if cfg.Lose > 0 && cfg.Window == 0 && got.Stall < cfg.Timeout {
				t.Errorf("a lost block cost %v, want the %v of silence", got.Stall, cfg.Timeout)
			}
		})
	}
}

func TestNoAnswer(t *testing.T) {
	t.Parallel()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got, err := Load(t.Context(), Config{
		Server: conn.LocalAddr().(*net.UDPAddr).AddrPort(), Name: "f", Clients: 3, Timeout: 10 * time.Millisecond,
	})
	if err != nil || got.Failed != 3 || got.Resent != 3*(maxSends-1) || !strings.HasSuffix(got.Why, "no answer") {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	cfg := Config{Name: "f", Block: 1468, Window: 16}
	if got, want := fmt.Sprintf("%q", cfg.request()), `"\x00\x01f\x00octet\x00blksize\x001468\x00windowsize\x0016\x00"`; got != want {
		t.Errorf("request %s, want %s", got, want)
	}
}
