package tftpd_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/tftpd"
)

// A client is a TFTP client whose every packet a test controls.
type client struct {
	t      testing.TB
	conn   *net.UDPConn
	server netip.AddrPort // first the listening port, then the transfer's
}

func newClient(t testing.TB, server netip.AddrPort) *client {
	t.Helper()
	return newClientFrom(t, "127.0.0.1", server)
}

func newClientFrom(t testing.TB, addr string, server netip.AddrPort) *client {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(addr)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{t: t, conn: conn, server: server}
}

// request makes a read request; options are names and values in turn.
func request(name, mode string, options ...string) []byte {
	r := tftpd.Request{Name: name, Mode: mode}
	for i := 0; i < len(options); i += 2 {
		r.Options = append(r.Options, tftpd.Option{Name: options[i], Value: options[i+1]})
	}
	return r.Append(nil)
}

func (c *client) send(b []byte) {
	c.t.Helper()
	if _, err := c.conn.WriteToUDPAddrPort(b, c.server); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) ack(block int) {
	c.t.Helper()
	c.send(binary.BigEndian.AppendUint16([]byte{0, 4}, uint16(block)))
}

// maxWait bounds what must come.
const maxWait = 30 * time.Second

// receive returns the next packet, or nil after d.
func (c *client) receive(d time.Duration) []byte {
	c.t.Helper()
	b := make([]byte, 65536)
	if err := c.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		c.t.Fatal(err)
	}
	n, from, err := c.conn.ReadFromUDPAddrPort(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.server = from
	return b[:n]
}

// data returns the bytes of the next packet, which must be that block. The one before may come again first: where a machine stands still,
// the time-out for a quick client is over before it reads the answer.
func (c *client) data(block int) string {
	c.t.Helper()
	for again := true; ; again = false {
		b := c.receive(maxWait)
		switch {
		case len(b) >= 4 && b[1] == 3 && binary.BigEndian.Uint16(b[2:]) == uint16(block):
			return string(b[4:])
		case again && len(b) >= 4 && b[1] == 3 && binary.BigEndian.Uint16(b[2:]) == uint16(block-1):
		default:
			c.t.Fatalf("got %.20q, want block %d", b, block)
		}
	}
}

// dataAtLast takes blocks until the one that is wanted comes; those before it were sent again.
func (c *client) dataAtLast(block int) {
	c.t.Helper()
	for {
		b := c.receive(maxWait)
		if len(b) < 4 || b[1] != 3 || binary.BigEndian.Uint16(b[2:]) > uint16(block) {
			c.t.Fatalf("got %.20q, want block %d", b, block)
		}
		if binary.BigEndian.Uint16(b[2:]) == uint16(block) {
			return
		}
	}
}

// dataInTheEnd takes blocks, of the transfer before too, until the one that is wanted comes, and returns its bytes.
func (c *client) dataInTheEnd(block int) string {
	c.t.Helper()
	for {
		b := c.receive(maxWait)
		if len(b) < 4 || b[1] != 3 {
			c.t.Fatalf("got %.20q, want block %d", b, block)
		}
		if binary.BigEndian.Uint16(b[2:]) == uint16(block) {
			return string(b[4:])
		}
	}
}

// oack returns the options of the next packet, which must be an OACK.
func (c *client) oack() string {
	c.t.Helper()
	b := c.receive(maxWait)
	if len(b) < 2 || b[1] != 6 {
		c.t.Fatalf("got %.20q, want an option acknowledgement", b)
	}
	return strings.ReplaceAll(string(b[2:]), "\x00", " ")
}

// errorPacket receives an ERROR. A block that is sent again before it, on a slow machine, is passed over.
func (c *client) errorPacket() string {
	c.t.Helper()
	b := c.receive(maxWait)
	for len(b) > 4 && b[1] == 3 {
		b = c.receive(maxWait)
	}
	if len(b) < 5 || b[1] != 5 {
		c.t.Fatalf("got %.20q, want an error", b)
	}
	return fmt.Sprintf("%d %s", binary.BigEndian.Uint16(b[2:]), strings.TrimRight(string(b[4:]), "\x00"))
}
