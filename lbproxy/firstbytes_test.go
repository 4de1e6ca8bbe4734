package lbproxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/pires/go-proxyproto"
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
	head := make([]byte, recordHeader)
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
	for body := record[recordHeader:]; len(body) > 0; {
		k := min(n, len(body))
		out = append(out, record[0], record[1], record[2], byte(k>>8), byte(k))
		out = append(out, body[:k]...)
		body = body[k:]
	}
	return out
}

func TestHelloName(t *testing.T) {
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
		{"without a name", hello(t, &tls.Config{InsecureSkipVerify: true}), "", nil},
		{"in records of one byte", fragmented(old, 1), "old.lab", nil},
		{"in records of 100 bytes", fragmented(plain, 100), "api.mycluster.example.com", nil},
		{"with more behind it", append(bytes.Clone(old), "early data"...), "old.lab", nil},
		{"nothing", nil, "", errShort},
		{"half", plain[:len(plain)/2], "", errShort},
		{"http", []byte("GET / HTTP/1.1\r\n"), "", errForeign},
		{"ssh", []byte("SSH-2.0-OpenSSH\r\n"), "", errForeign},
		{"server hello", []byte{22, 3, 3, 0, 4, 2, 0, 0, 0}, "", errForeign},
		{"empty record", []byte{22, 3, 1, 0, 0}, "", errForeign},
		{"record of 64 KiB", []byte{22, 3, 1, 0xff, 0xff}, "", errForeign},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := helloName(test.in)
			if got != test.want || !errors.Is(err, test.err) {
				t.Errorf("helloName = %q, %v, want %q, %v", got, err, test.want, test.err)
			}
		})
	}
}

// settled returns what peek finds in b, and fails the test if it found something else when there was less of b: it may say that
// it needs more, but not change its mind.
func settled(t *testing.T, b []byte, peek func([]byte) (string, error)) (string, error) {
	t.Helper()
	found, err := peek(b)
	for cut := range min(len(b), 300) {
		early, earlyErr := peek(b[:cut])
		if !errors.Is(earlyErr, errShort) && (early != found || !errors.Is(err, earlyErr)) {
			t.Fatalf("after %d bytes %q, %v; after %d bytes %q, %v", cut, early, earlyErr, len(b), found, err)
		}
	}
	return found, err
}

// FuzzClientHello: no bytes break the parser; its answer never changes when more bytes follow, nor with the way the
// handshake is cut into records; and crypto/tls, where it understands the hello, sees the same name.
func FuzzClientHello(f *testing.F) {
	plain := hello(f, &tls.Config{ServerName: "api.lab"})
	f.Add(plain)
	f.Add(hello(f, &tls.Config{ServerName: "old.lab", MaxVersion: tls.VersionTLS12}))
	f.Add(hello(f, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}))
	f.Add(fragmented(plain, 7))
	// openssl s_client -tls1_1 -servername a.b, as captured.
	openssl, _ := hex.DecodeString("16030100610100005d0302c0ffee00000000000000000000000000000000000000000000000000000000000000000012c00ac0140039c009c01300330035002f00ff01000022000000080006000003612e62000b000403000102000a00060004001700180016000000")
	f.Add(openssl)
	f.Fuzz(func(t *testing.T, b []byte) {
		name, err := settled(t, b, helloName)
		if err != nil {
			return
		}
		if again, err := helloName(append(bytes.Clone(b), 0, 1, 2)); again != name || err != nil {
			t.Fatalf("with more bytes %q, %v, want %q", again, err, name)
		}
		if seen, ok := tlsSees(b); ok && seen != name {
			t.Fatalf("crypto/tls sees %q, we %q", seen, name)
		}
	})
}

// tlsSees returns the name that crypto/tls's server sees in a hello; false: it takes it for none.
func tlsSees(b []byte) (name string, ok bool) {
	stop := errors.New("seen")
	conn := readOnly{Reader: bytes.NewReader(b)}
	_ = tls.Server(conn, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = canonical(h.ServerName), true
		return nil, stop
	}}).Handshake()
	return name, ok
}

type readOnly struct {
	net.Conn
	io.Reader
}

func (r readOnly) Read(b []byte) (int, error)  { return r.Reader.Read(b) }
func (r readOnly) Write(b []byte) (int, error) { return len(b), nil }
func (r readOnly) Close() error                { return nil }

func TestHeadHost(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in, want string
		err            error
	}{
		{"usual", "GET / HTTP/1.1\r\nUser-Agent: curl\r\nHost: Apps.Lab:8080\r\n\r\n", "apps.lab", nil},
		{"answered before the head ends", "GET / HTTP/1.1\r\nHost: a.lab\r\nX-", "a.lab", nil},
		{"bare line feeds", "GET / HTTP/1.1\nhost:a.lab\n\n", "a.lab", nil},
		{"absolute target wins", "GET http://b.lab/x HTTP/1.1\r\nHost: a.lab\r\n\r\n", "b.lab", nil},
		{"a URL inside a path", "GET /go?to=http://b.lab/ HTTP/1.1\r\nHost: a.lab\r\n\r\n", "a.lab", nil},
		{"http/1.0 without a host", "GET / HTTP/1.0\r\n\r\n", "", nil},
		{"in the middle", "GET / HTTP/1.1\r\nHost: a.l", "", errShort},
		{"in the method", "GE", "", errShort},
		{"ssh", "SSH-2.0-OpenSSH_9.2\r\n", "", errForeign},
		{"http/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "", errForeign},
		{"tls", "\x16\x03\x01", "", errForeign},
		{"folded header", "GET / HTTP/1.1\r\nA: b\r\n c\r\nHost: a.lab\r\n\r\n", "", errForeign},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got, err := headHost([]byte(test.in)); got != test.want || !errors.Is(err, test.err) {
				t.Errorf("headHost = %q, %v, want %q, %v", got, err, test.want, test.err)
			}
		})
	}
}

// FuzzHostPeek: no bytes break the parser; its answer never changes when more bytes follow; and net/http, where it
// accepts the request, sees the same host.
func FuzzHostPeek(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: console.apps.lab\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n"))
	f.Add([]byte("POST http://b.lab:80/x HTTP/1.0\nContent-Length: 3\n\nabc"))
	f.Add([]byte("OPTIONS * HTTP/1.1\r\nhost:[fd00::1]:80\r\n\r\n"))
	f.Add([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		host, err := settled(t, b, headHost)
		r, httpErr := http.ReadRequest(bufio.NewReader(bytes.NewReader(b)))
		// net/http still unfolds header lines (RFC 9112 section 5.2); we answer at the first.
		folded := bytes.Contains(b, []byte("\n ")) || bytes.Contains(b, []byte("\n\t"))
		if err != nil || httpErr != nil || r.Method == http.MethodConnect || folded {
			return
		}
		if want := hostname(r.Host); want != host {
			t.Fatalf("net/http sees %q (%q), we %q", want, r.Host, host)
		}
	})
}

func TestReadProxyHeader(t *testing.T) {
	t.Parallel()
	want4 := proxyHeader{netip.MustParseAddrPort("192.168.0.1:56324"), netip.MustParseAddrPort("192.168.0.11:443")}
	want6 := proxyHeader{netip.MustParseAddrPort("[fd00::1]:1"), netip.MustParseAddrPort("[fd00::2]:65535")}
	v2 := func(parts ...string) string { return proxyV2Magic + strings.Join(parts, "") }
	tests := []struct {
		name, in string
		want     proxyHeader
		n        int
		bad      string // part of the error; empty: none
	}{
		{"v1 tcp4", "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\nGET", want4, 47, ""},
		{"v1 tcp6", "PROXY TCP6 fd00::1 fd00::2 1 65535\r\n", want6, 36, ""},
		{"v1 unknown", "PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", proxyHeader{}, 35, ""},
		{"v2 tcp4", v2("\x21\x11\x00\x0c", "\xc0\xa8\x00\x01\xc0\xa8\x00\x0b", "\xdc\x04\x01\xbb", "GET"), want4, 28, ""},
		{"v2 with a TLV", v2("\x21\x11\x00\x10", "\xc0\xa8\x00\x01\xc0\xa8\x00\x0b", "\xdc\x04\x01\xbb", "\x04\x00\x01x", "GET"), want4, 32, ""},
		{"v2 local", v2("\x20\x00\x00\x00", "GET"), proxyHeader{}, 16, ""},
		{"v2 unix", v2("\x21\x31\x00\x02", "xx"), proxyHeader{}, 18, ""},
		{"v1 half", "PROXY TCP4 192.168", proxyHeader{}, 0, errShort.Error()},
		{"v2 half", v2("\x21\x11\x00\x0c"), proxyHeader{}, 0, errShort.Error()},
		{"one byte", "P", proxyHeader{}, 0, errShort.Error()},
		{"http", "GET / HTTP/1.1\r\n", proxyHeader{}, 0, errForeign.Error()},
		{"PROPFIND", "PROPFIND / HTTP/1.1\r\n", proxyHeader{}, 0, errForeign.Error()},
		{"v1 port too large", "PROXY TCP4 192.168.0.1 192.168.0.11 56324 65536\r\n", proxyHeader{}, 49, "not a port"},
		{"v1 family mismatch", "PROXY TCP4 fd00::1 fd00::2 1 2\r\n", proxyHeader{}, 32, "not a TCP4 address"},
		{"v1 endless", "PROXY TCP4 " + strings.Repeat("1", 200), proxyHeader{}, 0, "does not end"},
		{"v2 version 3", v2("\x31\x11\x00\x0c"), proxyHeader{}, 0, "not known"},
		{"v2 too few bytes", v2("\x21\x11\x00\x04", "\xc0\xa8\x00\x01"), proxyHeader{}, 20, "too few"},
		{"v2 too many bytes", v2("\x21\x11\xff\xff"), proxyHeader{}, 0, "at most"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, n, err := readProxyHeader([]byte(test.in))
			if test.bad != "" {
				if err == nil || !strings.Contains(err.Error(), test.bad) {
					t.Errorf("error %v, want %q", err, test.bad)
				}
				return
			}
			if got != test.want || n != test.n || err != nil {
				t.Errorf("readProxyHeader = %v, %d, %v, want %v, %d", got, n, err, test.want, test.n)
			}
		})
	}
}

// FuzzProxyHeader: no bytes break the parser, it never claims more bytes than there are; what it reads, written again in
// either version, reads the same for us and for go-proxyproto.
func FuzzProxyHeader(f *testing.F) {
	h := proxyHeader{netip.MustParseAddrPort("192.168.0.1:56324"), netip.MustParseAddrPort("192.168.0.11:443")}
	f.Add(appendProxyHeader(nil, 1, h))
	f.Add(append(appendProxyHeader(nil, 2, h), "GET / HTTP/1.1"...))
	f.Add(appendProxyHeader(nil, 2, proxyHeader{}))
	f.Add([]byte("PROXY TCP6 fd00::1 fd00::2 1 65535\r\n"))
	f.Add([]byte("PROXY UNKNOWN\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := readProxyHeader(b)
		if err != nil {
			return
		}
		if n < 1 || n > len(b) {
			t.Fatalf("a header of %d bytes in %d", n, len(b))
		}
		if !h.src.IsValid() {
			return
		}
		for _, version := range []int{1, 2} {
			out := appendProxyHeader(nil, version, h)
			again, m, err := readProxyHeader(out)
			same := again.src.Port() == h.src.Port() && again.src.Addr().Unmap() == h.src.Addr().Unmap()
			mapped := h.src.Addr().Is4In6() != h.dst.Addr().Is4In6() // has no common family: becomes UNKNOWN
			if err != nil || m != len(out) || !same && !mapped {
				t.Fatalf("v%d: %v written as %q reads as %v, %d, %v", version, h, out, again, m, err)
			}
			theirs, err := proxyproto.Read(bufio.NewReader(bytes.NewReader(out)))
			if err != nil {
				t.Fatalf("v%d: go-proxyproto refuses %q: %v", version, out, err)
			}
			if src, ok := theirs.SourceAddr.(*net.TCPAddr); ok && !mapped && addrPort(src) != netip.AddrPortFrom(h.src.Addr().Unmap(), h.src.Port()) {
				t.Fatalf("v%d: go-proxyproto reads %s, want %s", version, src, h.src)
			}
		}
	})
}
