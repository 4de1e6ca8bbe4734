package conformance

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// echoWebSocket echoes every message.
func echoWebSocket(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"echo"}, CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		return
	}
	defer func() { _ = c.CloseNow() }()
	c.SetReadLimit(-1)
	for {
		kind, data, err := c.Read(r.Context())
		if err != nil {
			return
		}
		if string(data) == "close" {
			_ = c.Close(4000, "as you wish")
			return
		}
		if c.Write(r.Context(), kind, data) != nil {
			return
		}
	}
}

// TestWebSocket sends what Autobahn's client cases send, as far as a balancer can spoil it: messages of every length of the
// length's encoding, in one write and octet by octet, fragments with control frames between them, pings, closes from both
// sides, invalid frames, subprotocols and compression; over TLS and without.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	back := origin(t, http.HandlerFunc(echoWebSocket))
	clear, secure := balancer("ws", back), balancer("wss", back)
	path, pool := certificate(t, "ws.test", listenOf(secure))
	secure.Certificates = []string{path}
	serve(t, clear, secure)
	trusting := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "ws.test"}}}
	targets := []wsTarget{
		{"ws", "ws://" + clear.Listen.String() + "/", http.DefaultClient, func() (net.Conn, error) { return net.Dial("tcp", clear.Listen.String()) }},
		{"wss", "wss://" + secure.Listen.String() + "/", trusting, func() (net.Conn, error) {
			return tls.Dial("tcp", secure.Listen.String(), &tls.Config{RootCAs: pool, ServerName: "ws.test"})
		}},
	}
	for _, target := range targets {
		for name, run := range map[string]func(*testing.T, wsTarget){
			"echo": wsEcho, "frames": wsFrames, "chopped": wsChopped, "server closes": wsServerCloses, "invalid": wsInvalid, "refused": wsRefused,
		} {
			t.Run(target.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				run(t, target)
			})
		}
	}
}

type wsTarget struct {
	name, url string
	client    *http.Client
	dial      func() (net.Conn, error)
}

// connect opens a WebSocket.
func (to wsTarget) connect(t *testing.T, mode websocket.CompressionMode) *websocket.Conn {
	t.Helper()
	c, resp, err := websocket.Dial(t.Context(), to.url, &websocket.DialOptions{HTTPClient: to.client, Subprotocols: []string{"other", "echo"}, CompressionMode: mode})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.CloseNow() })
	c.SetReadLimit(-1)
	if c.Subprotocol() != "echo" {
		t.Errorf("subprotocol %q, want echo", c.Subprotocol())
	}
	if compressed := strings.Contains(resp.Header.Get("Sec-WebSocket-Extensions"), "permessage-deflate"); compressed != (mode != websocket.CompressionDisabled) {
		t.Errorf("permessage-deflate negotiated: %v", compressed)
	}
	return c
}

// wsEcho: Autobahn 1.*, 9.* and 12.*.
func wsEcho(t *testing.T, to wsTarget) {
	for _, mode := range []websocket.CompressionMode{websocket.CompressionDisabled, websocket.CompressionContextTakeover} {
		c := to.connect(t, mode)
		for _, n := range []int{0, 1, 125, 126, 127, 128, 65535, 65536, 65537, 1 << 20, 4 << 20} {
			data := make([]byte, n)
			_, _ = rand.Read(data)
			if err := c.Write(t.Context(), websocket.MessageBinary, data); err != nil {
				t.Fatal(err)
			}
			_, got, err := c.Read(t.Context())
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%d octets came back as %d: %v", n, len(got), err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		read := c.CloseRead(ctx)
		if err := c.Ping(read); err != nil {
			t.Errorf("ping: %v", err)
		}
		cancel()
		_ = c.CloseNow()
	}
}

// A rawSocket is a WebSocket whose frames a test makes itself.
type rawSocket struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func (to wsTarget) raw(t *testing.T) *rawSocket {
	t.Helper()
	c, err := to.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: ws.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" || !strings.EqualFold(resp.Header.Get("Upgrade"), "websocket") {
		t.Fatalf("the handshake failed: %v", resp)
	}
	return &rawSocket{t, c, in}
}

// frame returns a masked frame (RFC 6455 section 5.2).
func frame(first byte, payload string) []byte {
	out := []byte{first}
	switch n := len(payload); {
	case n < 126:
		out = append(out, 0x80|byte(n))
	case n < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, 0x80|126), uint16(n))
	default:
		out = binary.BigEndian.AppendUint64(append(out, 0x80|127), uint64(n))
	}
	mask := [4]byte{1, 2, 3, 4}
	out = append(out, mask[:]...)
	for i := range len(payload) {
		out = append(out, payload[i]^mask[i%4])
	}
	return out
}

// next returns the next frame as "opcode payload"; empty: the connection ended.
func (s *rawSocket) next() string {
	s.t.Helper()
	var head [2]byte
	if _, err := io.ReadFull(s.in, head[:]); err != nil {
		return ""
	}
	n := int64(head[1])
	switch head[1] {
	case 126:
		var long [2]byte
		_, _ = io.ReadFull(s.in, long[:])
		n = int64(binary.BigEndian.Uint16(long[:]))
	case 127:
		var long [8]byte
		_, _ = io.ReadFull(s.in, long[:])
		n = int64(binary.BigEndian.Uint64(long[:]))
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(s.in, payload); err != nil {
		return ""
	}
	if head[0] == 0x88 && n >= 2 {
		return fmt.Sprintf("88 %d", binary.BigEndian.Uint16(payload))
	}
	return fmt.Sprintf("%x %s", head[0], payload)
}

// message is next, whose fragments are joined.
func (s *rawSocket) message() string {
	got := s.next()
	for strings.HasPrefix(got, "1 ") || strings.HasPrefix(got, "0 ") {
		part := s.next()
		_, payload, _ := strings.Cut(part, " ")
		if got = "1 " + got[2:] + payload; strings.HasPrefix(part, "80 ") {
			return "81 " + got[2:]
		}
	}
	return got
}

func (s *rawSocket) send(frames ...[]byte) {
	for _, f := range frames {
		_, _ = s.conn.Write(f)
	}
}

func (s *rawSocket) want(want ...string) {
	s.t.Helper()
	for _, w := range want {
		if got := s.message(); got != w {
			s.t.Errorf("got %.200q, want %.200q", got, w)
			return
		}
	}
}

// wsFrames: Autobahn 2.*, 5.* and 7.1: pings with payloads, unsolicited pongs, fragments with pings between them, and the
// client's close.
func wsFrames(t *testing.T, to wsTarget) {
	s := to.raw(t)
	s.send(frame(0x89, ""), frame(0x89, strings.Repeat("p", 125)), frame(0x8a, "unsolicited"))
	s.want("8a ", "8a "+strings.Repeat("p", 125))
	s.send(frame(0x01, "frag"), frame(0x89, "between"), frame(0x00, "men"), frame(0x80, "ts"))
	s.want("8a between", "81 fragments")
	s.send(frame(0x81, "one"), frame(0x81, "two"), frame(0x81, strings.Repeat("x", 70000)))
	s.want("81 one", "81 two", "81 "+strings.Repeat("x", 70000))
	s.send(frame(0x88, "\x03\xe8bye"))
	s.want("88 1000", "")
}

// wsChopped: Autobahn 2.6 and 9.*.6: frames that come octet by octet, and the first with the handshake.
func wsChopped(t *testing.T, to wsTarget) {
	s := to.raw(t)
	for _, b := range append(frame(0x81, "octet by octet"), frame(0x89, "ping")...) {
		s.send([]byte{b})
	}
	s.want("81 octet by octet", "8a ping")
}

// wsServerCloses: Autobahn 7.*, the other way round.
func wsServerCloses(t *testing.T, to wsTarget) {
	s := to.raw(t)
	s.send(frame(0x81, "close"))
	s.want("88 4000")
	s.send(frame(0x88, "\x0f\xa0"))
	s.want("")
}

// wsInvalid: Autobahn 3.*, 4.* and 6.*: the server's answer to a broken frame reaches the client, and then the end.
func wsInvalid(t *testing.T, to wsTarget) {
	for name, f := range map[string][]byte{
		"reserved bits": frame(0xd1, "x"), "reserved opcode": frame(0x83, "x"), "continuation of nothing": frame(0x80, "x"), "unmasked": {0x81, 1, 'x'},
		"long ping": frame(0x89, strings.Repeat("x", 126)), "fragmented ping": frame(0x09, "x"),
	} {
		s := to.raw(t)
		s.send(f)
		if got := s.next(); got != "88 1002" && got != "" {
			t.Errorf("%s: got %q, want a close with 1002", name, got)
		}
	}
}

// wsRefused: what is no WebSocket handshake gets the server's refusal, and the connection goes on.
func wsRefused(t *testing.T, to wsTarget) {
	c, err := to.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReader(c)
	for range 2 {
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: ws.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 12\r\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("status %d, want 400", resp.StatusCode)
		}
	}
}
