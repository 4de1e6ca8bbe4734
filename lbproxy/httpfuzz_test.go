package lbproxy

import (
	"bufio"
	"bytes"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/lbproxy/h1"

	"github.com/bootlab/bootlab/internal/lab"
)

// FuzzRequest holds that what a backend gets is one request that a strict server understands, with the client's method,
// target and body, whatever the client sends.
func FuzzRequest(f *testing.F) {
	for _, test := range smugglingCorpus() {
		f.Add([]byte(test.send))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bufio.NewReaderSize(bytes.NewReader(data), clientBuffer)
		x := exchange{src: netip.MustParseAddrPort("192.0.2.1:1"), frontend: &frontend{Frontend: &Frontend{Mode: lab.ModeHTTP}}}
		if x.req.ReadRequest(in) != nil {
			return
		}
		framing, length := x.req.Framing()
		x.reqBody.Reset(in, framing, length)
		x.reqFraming = framing
		out := x.appendRequest(nil)
		body, err := io.ReadAll(&x.reqBody)
		if err != nil {
			return
		}
		if len(body) > 0 {
			out = h1.AppendContent(out, framing, body)
		}
		if framing == h1.ByChunks {
			out = h1.AppendTrailers(out, x.reqBody.Trailers())
		}
		rest := bufio.NewReader(bytes.NewReader(out))
		got, err := strictRequest(rest)
		if err != nil {
			t.Fatalf("a strict server refuses %q: %v", out, err)
		}
		if want := string(x.req.Method) + " " + string(x.req.Target) + " " + string(body); got != want {
			t.Fatalf("a strict server understands %q, want %q", got, want)
		}
		if left, _ := io.ReadAll(rest); len(left) > 0 {
			t.Fatalf("after the request follows %q", left)
		}
	})
}

// FuzzResponse is FuzzRequest for a backend's bytes: what a client gets is one response, or an end that it can see.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2\r\nok\r\n0\r\nX: 1\r\n\r\n",
		"HTTP/1.0 200\r\n\r\nuntil the end", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\tc\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", "HTTP/1.1 99 x\r\n\r\n", "HTTP/1.1 200 OK\nX: y\n\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bufio.NewReaderSize(bytes.NewReader(data), backendBuffer)
		x := exchange{frontend: &frontend{Frontend: &Frontend{Mode: lab.ModeHTTP}}}
		x.req.Method, x.req.Minor = []byte("GET"), 1
		if x.resp.ReadResponse(in) != nil || x.resp.Status < 200 {
			return
		}
		framing, length := x.responseFraming()
		x.respBody.Reset(in, framing, length)
		body, err := io.ReadAll(&x.respBody)
		if err != nil {
			return
		}
		if framing == h1.ByClose {
			framing = h1.ByChunks
		}
		out := x.appendResponse(nil, framing, false)
		if len(body) > 0 {
			out = h1.AppendContent(out, framing, body)
		}
		if framing == h1.ByChunks {
			out = h1.AppendTrailers(out, x.respBody.Trailers())
		}
		rest := bufio.NewReader(bytes.NewReader(out))
		line, err := strictLine(rest)
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 ") {
			t.Fatalf("status line %q of %q: %v", line, out, err)
		}
		left, chunked, err := strictHead(rest)
		if err != nil {
			t.Fatalf("head of %q: %v", out, err)
		}
		got := make([]byte, left)
		switch {
		case framing == h1.NoBody:
			got = nil
		case chunked:
			got, err = strictChunks(rest)
		default:
			_, err = io.ReadFull(rest, got)
		}
		if err != nil || !bytes.Equal(got, body) {
			t.Fatalf("body %q of %q, want %q: %v", got, out, body, err)
		}
		if after, _ := io.ReadAll(rest); len(after) > 0 {
			t.Fatalf("after the response follows %q", after)
		}
	})
}
