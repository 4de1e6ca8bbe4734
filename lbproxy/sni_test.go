package lbproxy

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// hello returns the ClientHello that crypto/tls sends for a name.
func hello(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer func() { _ = server.Close() }()
	go func() {
		_ = tls.Client(client, config).Handshake()
		_ = client.Close()
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(server, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(server, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

// fragmented cuts a hello of one record into records of n bytes.
func fragmented(record []byte, n int) []byte {
	var out []byte
	for body := record[5:]; len(body) > 0; {
		k := min(n, len(body))
		out = append(out, record[0], record[1], record[2], byte(k>>8), byte(k))
		out = append(out, body[:k]...)
		body = body[k:]
	}
	return out
}

// chunks is a connection whose client sends b in segments of n bytes, then closes.
type chunks struct {
	net.Conn
	b []byte
	n int
}

func (c *chunks) Read(b []byte) (int, error) {
	if len(c.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.b[:min(len(c.b), c.n)])
	c.b = c.b[n:]
	return n, nil
}

func TestServerName(t *testing.T) {
	t.Parallel()
	plain := hello(t, &tls.Config{ServerName: "API.mycluster.example.com"})
	old := hello(t, &tls.Config{ServerName: "old.lab", MaxVersion: tls.VersionTLS12})
	tests := []struct {
		name string
		in   []byte
		want string
		err  error
	}{
		{"tls 1.3", plain, "api.mycluster.example.com", nil},
		{"tls 1.2", old, "old.lab", nil},
		{"tls 1.1 of openssl", opensslHello, "a.b", nil},
		{"without a name", hello(t, &tls.Config{InsecureSkipVerify: true}), "", nil},
		{"in records of one byte", fragmented(old, 1), "old.lab", nil},
		{"in records of 100 bytes", fragmented(plain, 100), "api.mycluster.example.com", nil},
		{"with more after it", append(bytes.Clone(old), "early data"...), "old.lab", nil},
		{"nothing", nil, "", io.EOF},
		{"half", plain[:len(plain)/2], "", io.EOF},
		{"too long", append([]byte{22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff}, make([]byte, 1<<15)...), "", errHelloTooLong},
		{"http", []byte("GET / HTTP/1.1\r\n"), "", errUnknownProtocol},
		{"ssh", []byte("SSH-2.0-OpenSSH\r\n"), "", errUnknownProtocol},
		{"server hello", []byte{22, 3, 3, 0, 4, 2, 0, 0, 0}, "", errUnknownProtocol},
		{"record of 64 KiB", []byte{22, 3, 1, 0xff, 0xff}, "", errUnknownProtocol},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for _, segment := range []int{1, 50, maxPeek} {
				p := newPeeker(&chunks{b: test.in, n: segment})
				got, err := p.clientHello()
				if got.name != test.want || !errors.Is(err, test.err) {
					t.Errorf("in segments of %d: clientHello = %v, %v, want %q, %v", segment, got, err, test.want, test.err)
				}
				if rest := p.close(); !bytes.HasPrefix(test.in, rest) {
					t.Errorf("in segments of %d: the backend gets %d bytes that are not the start of the hello", segment, len(rest))
				}
			}
		})
	}
}

// opensslHello was captured from openssl s_client -tls1_1 -servername a.b.
var opensslHello, _ = hex.DecodeString("160301006f0100006b0302e4112aabe04405ddb54891146ce9172d16c651e7503e46d325987d7149002b7c000012c00ac0140039c009c01300330035002f00ff01000030000000080006000003612e62000b000403000102000a000c000a001d0017001e00190018002300000016000000170000")

// openssl3Hello was captured from OpenSSL 3.0 s_client -servername api.lab -groups X25519 -alpn h2,http/1.1.
var openssl3Hello, _ = hex.DecodeString("16030101340100013003035264db7ccd1e2fbc5266c826a63e8b9bd10772da0853f1d502a865fc9b9842ce2080deed1a104e09932250084b3a8037c4fbac557b1d52b3ea0003411e8f5c3e3f003e130213031301c02cc030009fcca9cca8ccaac02bc02f009ec024c028006bc023c0270067c00ac0140039c009c0130033009d009c003d003c0035002f00ff010000a90000000c000a0000076170692e6c6162000b000403000102000a00040002001d002300000010000e000c02683208687474702f312e310016000000170000000d002a0028040305030603080708080809080a080b080408050806040105010601030303010302040205020602002b0009080304030303020301002d00020101003300260024001d0020924acd657928f8a130da12e7141ed75aef74a504ca634b059888135fdb2f193c")

// helloSeeds are real hellos, and what comes to a port of TLS by mistake.
func helloSeeds(t testing.TB) [][]byte {
	small := []tls.CurveID{tls.X25519} // a post-quantum share makes a hello too long to minimize
	plain := hello(t, &tls.Config{ServerName: "api.lab", CurvePreferences: small})
	return [][]byte{
		plain, fragmented(plain, 7), opensslHello, openssl3Hello, openssl3Hello[:len(openssl3Hello)-40],
		hello(t, &tls.Config{ServerName: "old.lab", MaxVersion: tls.VersionTLS12}),
		hello(t, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}, CurvePreferences: small}),
		[]byte("GET / HTTP/1.1\r\nHost: api.lab\r\n\r\n"), []byte("SSH-2.0-OpenSSH_9.2\r\n"),
	}
}

// TestHelloSeeds holds that the fuzzer starts behind the first branches: with hellos that have a name, and that have none.
func TestHelloSeeds(t *testing.T) {
	t.Parallel()
	got := map[string]int{}
	for _, seed := range helloSeeds(t) {
		p := newPeeker(&chunks{b: seed, n: maxPeek})
		hello, err := p.clientHello()
		name := hello.name
		switch {
		case errors.Is(err, errUnknownProtocol):
			name = "unknown protocol"
		case err != nil:
			name = "cut short"
		}
		got[name]++
		p.close()
	}
	want := map[string]int{"api.lab": 3, "a.b": 1, "old.lab": 1, "": 1, "cut short": 1, "unknown protocol": 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// FuzzClientHello: the name does not depend on the segments that the bytes arrive in, and the backend gets every byte that
// was read.
func FuzzClientHello(f *testing.F) {
	for _, seed := range helloSeeds(f) {
		f.Add(seed, 7)
	}
	f.Fuzz(func(t *testing.T, b []byte, segment int) {
		whole, cut := newPeeker(&chunks{b: b, n: maxPeek}), newPeeker(&chunks{b: b, n: max(segment, 1)})
		name, err := whole.clientHello()
		again, errAgain := cut.clientHello()
		if name != again || (err == nil) != (errAgain == nil) {
			t.Fatalf("%v, %v; in segments of %d bytes %v, %v", name, err, segment, again, errAgain)
		}
		if rest := cut.close(); !bytes.HasPrefix(b, rest) || err == nil && len(rest) == 0 {
			t.Fatalf("the backend gets %q of %q", rest, b)
		}
		whole.close()
	})
}

// BenchmarkServerName measures the routing of a TLS connection by name, without its sockets.
func BenchmarkServerName(b *testing.B) {
	in := hello(b, &tls.Config{ServerName: "api.mycluster.example.com", NextProtos: []string{"h2", "http/1.1"}})
	b.ReportAllocs()
	for b.Loop() {
		p := newPeeker(&chunks{b: in, n: maxPeek})
		if hello, err := p.clientHello(); hello.name == "" {
			b.Fatal(err)
		}
		p.close()
	}
}

func TestProxyHeader(t *testing.T) {
	t.Parallel()
	const sig = "\r\n\r\n\x00\r\nQUIT\n"
	v2 := func(parts ...string) string { return sig + strings.Join(parts, "") }
	tests := []struct {
		name, in, src, dst string
		rest               string // what the backend gets
		bad                bool
	}{
		{"v1 tcp4", "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\nGET", "192.168.0.1:56324", "192.168.0.11:443", "GET", false},
		{"v1 tcp6", "PROXY TCP6 fd00::1 fd00::2 1 65535\r\nGET", "[fd00::1]:1", "[fd00::2]:65535", "GET", false},
		{"v1 unknown", "PROXY UNKNOWN ffff::1 ffff::2 1 2\r\nGET", "", "", "GET", false},
		{"v2 tcp4", v2("\x21\x11\x00\x0c", "\xc0\xa8\x00\x01\xc0\xa8\x00\x0b", "\xdc\x04\x01\xbb", "GET"), "192.168.0.1:56324", "192.168.0.11:443", "GET", false},
		{"v2 with a TLV", v2("\x21\x11\x00\x10", "\xc0\xa8\x00\x01\xc0\xa8\x00\x0b", "\xdc\x04\x01\xbb", "\x04\x00\x01x", "GET"), "192.168.0.1:56324", "192.168.0.11:443", "GET", false},
		{"v2 local", v2("\x20\x00\x00\x00", "GET"), "", "", "GET", false},
		{"v2 unix", v2("\x21\x31\x00\xd8", strings.Repeat("x", 216), "GET"), "", "", "GET", false},
		{"http", "GET / HTTP/1.1\r\n", "", "", "GET / HTTP/1.1\r\n", false},
		{"PROPFIND", "PROPFIND / HTTP/1.1\r\n", "", "", "PROPFIND / HTTP/1.1\r\n", false},
		{"one byte", "P", "", "", "P", false},
		{"nothing", "", "", "", "", false},
		{"v1 half", "PROXY TCP4 192.168", "", "", "", true},
		{"v2 half", v2("\x21\x11\x00\x0c"), "", "", "", true},
		{"v1 port too large", "PROXY TCP4 192.168.0.1 192.168.0.11 56324 65536\r\n", "", "", "", true},
		{"v1 family mismatch", "PROXY TCP4 fd00::1 fd00::2 1 2\r\n", "", "", "", true},
		{"v1 endless", "PROXY TCP4 " + strings.Repeat("1", 200), "", "", "", true},
		{"v2 version 3", v2("\x31\x11\x00\x0c"), "", "", "", true},
		{"v2 too few bytes", v2("\x21\x11\x00\x04", "\xc0\xa8\x00\x01"), "", "", "", true},
		{"v2 too many bytes", v2("\x21\x11\xff\xff", strings.Repeat("x", 1<<16)), "", "", "", true},
	}
	parse := func(s string) (a netip.AddrPort) {
		if s != "" {
			a = netip.MustParseAddrPort(s)
		}
		return a
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, segment := range []int{1, 9, maxPeek} { // a header may arrive in several segments
				p := newPeeker(&chunks{b: []byte(test.in), n: segment})
				src, dst, err := p.proxyHeader()
				if src != parse(test.src) || dst != parse(test.dst) || (err != nil) != test.bad {
					t.Errorf("in segments of %d: %v, %v, %v", segment, src, dst, err)
				}
				if _ = p.more(); err == nil && !strings.HasPrefix(test.rest, string(p.buffered())) {
					t.Errorf("in segments of %d: the backend gets %q, want %q", segment, p.buffered(), test.rest)
				}
				p.close()
			}
		})
	}
}

// TestWriteProxyHeader compares each byte with the specification. TestSendProxyToNginxAndHAProxy has other implementations
// read the headers.
func TestWriteProxyHeader(t *testing.T) {
	t.Parallel()
	v4, v6 := netip.MustParseAddrPort("192.168.0.1:56324"), netip.MustParseAddrPort("[fd00::1]:1")
	const sig = "\r\n\r\n\x00\r\nQUIT\n"
	tests := []struct {
		name     string
		version  int
		src, dst netip.AddrPort
		want     string
	}{
		{"v1 tcp4", 1, v4, v4, "PROXY TCP4 192.168.0.1 192.168.0.1 56324 56324\r\n"},
		{"v1 tcp6", 1, v6, v6, "PROXY TCP6 fd00::1 fd00::1 1 1\r\n"},
		{"v1 of a check", 1, netip.AddrPort{}, netip.AddrPort{}, "PROXY UNKNOWN\r\n"},
		{"v2 tcp4", 2, v4, v4, sig + "\x21\x11\x00\x0c\xc0\xa8\x00\x01\xc0\xa8\x00\x01\xdc\x04\xdc\x04"},
		{"v2 tcp6", 2, v6, v6, sig + "\x21\x21\x00\x24" + strings.Repeat("\xfd\x00"+strings.Repeat("\x00", 13)+"\x01", 2) + "\x00\x01\x00\x01"},
		{"v2 of a check", 2, netip.AddrPort{}, netip.AddrPort{}, sig + "\x20\x00\x00\x00"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := proxyHeaderOf(t, test.version, test.src, test.dst); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func proxyHeaderOf(t testing.TB, version int, src, dst netip.AddrPort) string {
	t.Helper()
	var b strings.Builder
	if err := writeProxyHeader(&b, version, src, dst); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// FuzzProxyHeader: the addresses do not depend on the segments that the bytes arrive in, and no byte after the header is
// lost.
func FuzzProxyHeader(f *testing.F) {
	src, dst := netip.MustParseAddrPort("192.168.0.1:56324"), netip.MustParseAddrPort("192.168.0.11:443")
	for _, header := range []string{
		proxyHeaderOf(f, 1, src, dst), proxyHeaderOf(f, 2, src, dst) + "GET / HTTP/1.1", proxyHeaderOf(f, 2, netip.AddrPort{}, netip.AddrPort{}),
		"PROXY TCP6 fd00::1 fd00::2 1 65535\r\n", "PROXY UNKNOWN\r\n",
	} {
		f.Add([]byte(header), 3)
	}
	f.Fuzz(func(t *testing.T, b []byte, segment int) {
		whole, cut := newPeeker(&chunks{b: b, n: maxPeek}), newPeeker(&chunks{b: b, n: max(segment, 1)})
		src, dst, err := whole.proxyHeader()
		src2, dst2, err2 := cut.proxyHeader()
		if src != src2 || dst != dst2 || (err == nil) != (err2 == nil) {
			t.Fatalf("%v, %v, %v; in segments of %d bytes %v, %v, %v", src, dst, err, segment, src2, dst2, err2)
		}
		for err == nil && whole.more() == nil { // to the end, or to maxPeek
		}
		if rest := whole.close(); err == nil && len(b) <= maxPeek && !bytes.HasSuffix(b, rest) {
			t.Fatalf("%q follows the header in %q", rest, b)
		}
		cut.close()
	})
}

// TestEncryptedClientHello sends real ECH through balancers that share an address: the outer name decides, and what matches no outer
// name goes to the balancer without a match, where the backend reads the inner name.
func TestEncryptedClientHello(t *testing.T) {
	t.Parallel()
	netns.Need(t, "openssl")
	pem := filepath.Join(t.TempDir(), "pem")
	writeCertificate(t, pem, "inner.lab", false)
	certificate, err := tls.LoadX509KeyPair(pem, pem)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(certificate.Leaf)
	for _, test := range []struct {
		outer string
		want  string
		count float64
	}{{"outer.lab", "named", 0}, {"other.lab", "rest", 1}} {
		key, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		config := echConfig(key.PublicKey().Bytes(), test.outer)
		serve := func(name string) netip.AddrPort {
			return serveTCP(t, func(c net.Conn) {
				s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate}, EncryptedClientHelloKeys: []tls.EncryptedClientHelloKey{{Config: config, PrivateKey: key.Bytes()}}})
				_, _ = io.WriteString(s, name+" "+s.ConnectionState().ServerName+"\n")
				_ = s.Close()
			})
		}
		at := addr(t)
		named := with(balancer("named", at, serve("named")), func(b *lab.Balancer) { b.Match = lab.Match{SNI: []string{"outer.lab"}} })
		r := newTestServer(t, Config{}, named, balancer("rest", at, serve("rest")))
		list := binary.BigEndian.AppendUint16(nil, uint16(len(config)))
		c := tls.Client(dial(t, at), &tls.Config{ServerName: "inner.lab", RootCAs: roots, EncryptedClientHelloConfigList: append(list, config...)})
		got, err := io.ReadAll(c)
		if !strings.HasPrefix(string(got), test.want+" ") || err != nil || !c.ConnectionState().ECHAccepted || c.ConnectionState().ServerName != "inner.lab" {
			t.Errorf("outer name %s: %q, %v, want the balancer %s", test.outer, got, err, test.want)
		}
		if got := testutil.ToFloat64(r.metrics.withoutSNI.WithLabelValues("ech")); got != test.count {
			t.Errorf("outer name %s: %v connections counted, want %v", test.outer, got, test.count)
		}
	}
}

// echConfig returns an ECHConfig (RFC 9849 section 4) of a public key of X25519.
func echConfig(public []byte, name string) []byte {
	contents := []byte{1, 0, 0x20} // config_id, kem_id DHKEM(X25519, HKDF-SHA256)
	contents = append(binary.BigEndian.AppendUint16(contents, uint16(len(public))), public...)
	contents = append(contents, 0, 4, 0, 1, 0, 1, 0) // one cipher suite: HKDF-SHA256, AES-128-GCM; maximum_name_length
	contents = append(append(contents, byte(len(name))), name...)
	contents = append(contents, 0, 0) // no extensions
	out := binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(contents)))
	return append(out, contents...)
}
