package tftpd_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/tftpd"
)

// The tests in this file are named after what firmware does or what the RFCs ask for, one each; those that are about one mechanism
// stand beside it in server_test.go.

// TestRequestsAsFirmwareSendsThem lists what was seen on the wire, and what each must get.
func TestRequestsAsFirmwareSendsThem(t *testing.T) {
	eachPort(t, testRequestsAsFirmwareSendsThem)
}

func testRequestsAsFirmwareSendsThem(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single})
	for _, tt := range []struct {
		who, name string
		options   []string
		want      string // the OACK; empty: the first block at once
	}{
		{"OVMF", "boot/52-54-00-00-02-01/ipxe.efi", []string{"tsize", "0", "blksize", "1468", "windowsize", "4"}, "tsize 80000 blksize 1468 windowsize 4 "},
		{"shim", `boot\52-54-00-00-02-01\ipxe.efi`, []string{"blksize", "512", "windowsize", "4"}, "blksize 512 windowsize 4 "},
		{"iPXE", "images/kernel", []string{"blksize", "1432", "tsize", "0"}, "blksize 1432 tsize 300001 "},
		{"GRUB", "/images/kernel", []string{"blksize", "1024", "tsize", "0"}, "blksize 1024 tsize 300001 "},
		{"PXELINUX", "images/kernel", []string{"tsize", "0", "blksize", "1408"}, "tsize 300001 blksize 1408 "},
		{"RPi 3", "images/kernel", nil, ""},
		{"RPi 4", "images/kernel", []string{"tsize", "0", "blksize", "1024"}, "tsize 300001 blksize 1024 "},
		{"curl", "images/kernel", []string{"tsize", "0", "blksize", "512", "timeout", "6"}, "tsize 300001 blksize 512 timeout 6 "},
		{"U-Boot", "images/kernel", []string{"timeout", "5", "blksize", "1468"}, "timeout 5 blksize 1468 "},
		{"Windows", `\IMAGES\KERNEL`, []string{"tsize", "0", "blksize", "1456", "windowsize", "8"}, "tsize 300001 blksize 1456 windowsize 8 "},
		{"in capitals", "images/kernel", []string{"BLKSIZE", "1024", "TSIZE", "0"}, "blksize 1024 tsize 300001 "},
		{"unknown options", "images/kernel", []string{"multicast", "", "blksize2", "1024", "x-y", "z"}, ""},
		{"0xff behind", "images/kernel\xff", nil, ""},
		{"curl, of an empty file", "images/empty", []string{"tsize", "0", "blksize", "512"}, "blksize 512 "}, // it takes tsize 0 for an error
	} {
		c := newClient(t, s.addr)
		c.send(request(tt.name, "octet", tt.options...))
		if tt.want == "" {
			if n := len(c.data(1)); n != 512 {
				t.Errorf("%s: first block of %d bytes, want one of 512 and no OACK", tt.who, n)
			}
		} else if got := c.oack(); got != tt.want {
			t.Errorf("%s: oack %q, want %q", tt.who, got, tt.want)
		}
		c.send([]byte("\x00\x05\x00\x00\x00"))
		if e := s.events.next(t); e.Kind != event.TFTPProbe {
			t.Errorf("%s: it looked and hung up: event %+v", tt.who, e)
		}
	}
}

// TestNoDataBeforeTheClientConsents: after an OACK comes ACK 0, and before that nothing (RFC 2347).
func TestNoDataBeforeTheClientConsents(t *testing.T) {
	eachPort(t, testNoDataBeforeTheClientConsents)
}

func testNoDataBeforeTheClientConsents(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single})
	c := newClient(t, s.addr)
	c.send(request("images/one", "octet", "blksize", "1024"))
	c.oack()
	c.ack(1) // of nothing that was sent
	if b := c.receive(100 * time.Millisecond); b != nil {
		t.Errorf("got %.20q before ACK 0", b)
	}
	c.ack(0)
	c.data(1)
}

// TestProbeThenTheSameRequest: UEFI asks for the size, hangs up with ERROR 8, and asks again. The server may hear of the second request
// first.
func TestProbeThenTheSameRequest(t *testing.T) {
	eachPort(t, testProbeThenTheSameRequest)
}

func testProbeThenTheSameRequest(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single})
	ask := request("boot/52-54-00-00-02-01/ipxe.efi", "octet", "tsize", "0", "blksize", "1468")
	abort := []byte("\x00\x05\x00\x08User aborted the transfer\x00")
	for name, overtakes := range map[string]bool{"in order": false, "the request overtakes": true} {
		c := newClient(t, s.addr)
		c.send(ask)
		c.oack()
		probed := c.server
		if overtakes {
			if _, err := c.conn.WriteToUDPAddrPort(ask, s.addr); err != nil {
				t.Fatal(err)
			}
			netns.WaitFor(t, "the second request", func() bool { return dropped(t, s, "duplicate") > 0 })
		}
		c.send(abort)
		if e := s.events.next(t); e.Kind != event.TFTPProbe {
			t.Fatalf("%s: event %+v", name, e)
		}
		if !overtakes {
			c.server = s.addr
			c.send(ask)
		}
		c.oack()
		if !single && c.server == probed {
			t.Errorf("%s: the second transfer has the port of the first", name)
		}
		c.ack(0)
		c.data(1)
		c.send([]byte("\x00\x05\x00\x00\x00"))
		if e := s.events.next(t); e.Kind != event.TFTPProbe {
			t.Errorf("%s: event %+v", name, e)
		}
	}
}

func dropped(t *testing.T, s *testServer, reason string) float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == tftpd.MetricDropped && m.GetLabel()[0].GetValue() == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// TestNextFileFromTheSamePort: tftp-hpa's client fetches one file after another from one port, and asks as soon as it has acknowledged
// the last block of the one before.
func TestNextFileFromTheSamePort(t *testing.T) {
	eachPort(t, testNextFileFromTheSamePort)
}

func testNextFileFromTheSamePort(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single})
	c := newClient(t, s.addr)
	for i := range 50 {
		c.server = s.addr
		c.send(request([]string{"images/one", "images/empty"}[i%2], "octet"))
		c.data(1)
		c.ack(1)
	}
	for range 50 {
		if e := s.events.next(t); e.Kind != event.TFTPServed {
			t.Errorf("event %+v", e)
		}
	}
}

// TestNetasciiAcrossBlocks has line ends and bare CRs where blocks end.
func TestNetasciiAcrossBlocks(t *testing.T) {
	eachPort(t, testNetasciiAcrossBlocks)
}

func testNetasciiAcrossBlocks(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single})
	for _, tt := range []struct{ name, text string }{
		{"LF", strings.Repeat("x", 511) + "\n" + "y"},
		{"CR", strings.Repeat("x", 511) + "\r" + "y"},
		{"whole", strings.Repeat("x", 510) + "\n"},
		{"nothing but", strings.Repeat("\n", 700)},
		{"none", ""},
	} {
		if err := os.WriteFile(filepath.Join(s.dir, "public", tt.name), []byte(tt.text), 0o644); err != nil {
			t.Fatal(err)
		}
		c := newClient(t, s.addr)
		c.send(request("public/"+tt.name, "netascii"))
		var got strings.Builder
		for block := 1; ; block++ {
			b := c.data(block)
			got.WriteString(b)
			c.ack(block)
			if len(b) < 512 {
				break
			}
		}
		want := strings.NewReplacer("\n", "\r\n", "\r", "\r\x00").Replace(tt.text)
		if got.String() != want {
			t.Errorf("%s: got %d bytes, want %d", tt.name, got.Len(), len(want))
		}
		s.events.next(t)
	}
}

// TestLostBlockOfAQuickClient: a client that has answered quickly so far gets a lost block again long before the timer, by which
// it would come too late for the client.
func TestLostBlockOfAQuickClient(t *testing.T) { eachPort(t, testLostBlockOfAQuickClient) }

func testLostBlockOfAQuickClient(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single, Config: tftpd.Config{Timeout: 5 * maxWait}})
	c := newClient(t, s.addr)
	c.send(request("images/window", "octet"))
	for block := 1; block <= 20; block++ {
		c.dataAtLast(block)
		c.ack(block)
	}
	c.dataAtLast(21) // is lost
	c.dataAtLast(21)
	c.ack(21)
	c.dataAtLast(22)
}

// TestRolloverAsAsked fetches over 65535 blocks in windows, with rollover to 0 and to 1.
func TestRolloverAsAsked(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, testConfig{big: 66000 * 8})
	for first := range 2 {
		c := newClient(t, s.addr)
		c.send(request("images/big", "octet", "blksize", "8", "windowsize", "64", "rollover", fmt.Sprint(first)))
		if got, want := c.oack(), fmt.Sprintf("blksize 8 windowsize 64 rollover %d ", first); got != want {
			t.Fatalf("oack %q, want %q", got, want)
		}
		var got bytes.Buffer
		number := 0
		c.ack(0)
		for i := 1; ; i++ {
			if number++; number > 65535 {
				number = first
			}
			b := c.dataInTheEnd(number)
			got.WriteString(b)
			if i%64 == 0 || len(b) < 8 {
				c.ack(number)
			}
			if len(b) < 8 {
				break
			}
		}
		if !bytes.Equal(got.Bytes(), s.files["images/big"]) {
			t.Errorf("rollover to %d: %d bytes, and not what the file holds", first, got.Len())
		}
		if e := s.events.next(t); e.Kind != event.TFTPServed {
			t.Errorf("event %+v", e)
		}
	}
}

// TestConfinement asks for what is outside of the folder, in all the ways that there are.
func TestConfinement(t *testing.T) {
	eachPort(t, testConfinement)
}

func testConfinement(t *testing.T, single bool) {
	s := newTestServer(t, testConfig{single: single})
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"out": secret, "up": "../../../../../../etc/passwd", "etc": "/etc", "root": "/", "self": "self"} {
		if err := os.Symlink(to, filepath.Join(s.dir, "public", link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{
		"public/out", "public/up", "public/etc/passwd", "public/root/etc/passwd", "public/self", secret, "/etc/passwd", "//etc/passwd",
		"../etc/passwd", `..\..\etc\passwd`, "public/../../etc/passwd", `public\..\..\..\etc\passwd`, "files/../../etc/passwd",
		"boot/52-54-00-00-02-01/../../../etc/passwd", "/proc/self/environ", "public/\x01", "C:\\boot.ini", strings.Repeat("a/", 700) + "x",
	} {
		c := newClient(t, s.addr)
		c.send(request(name, "octet"))
		if got := c.errorPacket(); !strings.HasPrefix(got, "1 ") && !strings.HasPrefix(got, "2 ") {
			t.Errorf("%.40q: error %q", name, got)
		}
		if e := s.events.next(t); e.Kind != event.TFTPRefused || len(e.Detail) > 128+len("…") {
			t.Errorf("%.40q: event %+v", name, e)
		}
	}
}

// TestLetterCase: the exact name comes first, and one that differs in case will do, for firmware and for files.
func TestLetterCase(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, testConfig{})
	for name, body := range map[string]string{"Motd": "capital", "motd": "small"} {
		if err := os.WriteFile(filepath.Join(s.dir, "public", name), []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"public/Motd": "capital", "public/motd": "small", "PUBLIC/TEXT": string(s.files["public/text"]), `Public\Text`: string(s.files["public/text"]),
		"IMAGES/One": string(s.files["images/one"]),
	} {
		c := newClient(t, s.addr)
		c.send(request(name, "octet"))
		if got := c.data(1); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
		c.ack(1)
		s.events.next(t)
	}
}

// TestStrayRepliesToTheSharedPort: an ACK or DATA of a transfer that there is not gets ERROR 5, so that a client need not wait; an ERROR
// gets nothing, or two servers could go on for ever.
func TestStrayRepliesToTheSharedPort(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, testConfig{single: true})
	for _, b := range []string{"\x00\x05\x00\x00no\x00", "\x00\x06blksize\x008\x00", "", "\x00", "\x00\x04", "\xff\xff\xff\xff"} {
		c := newClient(t, s.addr)
		c.send([]byte(b))
		if got := c.receive(30 * time.Millisecond); got != nil {
			t.Errorf("%q was answered with %q", b, got)
		}
	}
	c := newClient(t, s.addr)
	c.ack(7)
	if got := c.errorPacket(); got != "5 unknown transfer" {
		t.Errorf("error %q", got)
	}
	if c.server != s.addr {
		t.Errorf("the answer came from %s, asked was %s", c.server, s.addr)
	}
}

// TestSharedPortAnswersFromIt looks at every packet of a transfer.
func TestSharedPortAnswersFromIt(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"0.0.0.0:0", "[::]:0", "127.0.0.1:0"} {
		s := newTestServer(t, testConfig{single: true, listen: listen})
		asked := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.addr.Port())
		c := newClient(t, asked)
		c.send(request("images/window", "octet", "windowsize", "8", "blksize", "512"))
		c.oack()
		for block := 0; block < 64; block += 8 {
			c.ack(block)
			for i := range 8 {
				c.dataAtLast(block + i + 1)
				if c.server != asked {
					t.Fatalf("on %s: a packet came from %s, want %s", listen, c.server, asked)
				}
			}
		}
		c.ack(64)
		c.data(65)
		c.ack(65)
		if e := s.events.next(t); e.Kind != event.TFTPServed {
			t.Errorf("event %+v", e)
		}
	}
}
