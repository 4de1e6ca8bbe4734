package lbproxy

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"testing"

	http2frame "golang.org/x/net/http2"
)

const (
	benchRequest = "GET /api/v1/nodes?limit=500 HTTP/1.1\r\nHost: web.example.com\r\nUser-Agent: bench/1\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n\r\n"
	benchReply   = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nDate: Sun, 22 Nov 2026 21:00:00 GMT\r\nContent-Length: 64\r\n\r\n" +
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// BenchmarkHTTPKeepAlive is one request after the other on one connection, to a backend that allocates nothing.
func BenchmarkHTTPKeepAlive(b *testing.B) {
	backend := benchBackend(b)
	at := addr(b)
	newTestServer(b, Config{}, httpBalancer("web", at, backend))
	c := dial(b, at)
	request, reply := []byte(benchRequest), make([]byte, len(benchReply))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(request); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, reply); err != nil {
			b.Fatal(err)
		}
	}
}

// benchBackend answers requests with benchReply.
func benchBackend(b *testing.B) netip.AddrPort {
	return serveTCP(b, func(c net.Conn) {
		buf := make([]byte, 4096)
		for {
			for n := 0; !bytes.HasSuffix(buf[:n], []byte("\r\n\r\n")); {
				m, err := c.Read(buf[n:])
				if err != nil {
					return
				}
				n += m
			}
			if _, err := io.WriteString(c, benchReply); err != nil {
				return
			}
		}
	})
}

// BenchmarkHTTP2Requests is one request after the other on one HTTP/2 connection, to a backend in HTTP/1 that allocates nothing.
func BenchmarkHTTP2Requests(b *testing.B) {
	at := addr(b)
	newTestServer(b, Config{}, httpBalancer("web", at, benchBackend(b)))
	f := rawHTTP2(b, at)
	_ = f.WriteWindowUpdate(0, 1<<30)
	head := block("/api/v1/nodes?limit=500", "user-agent", "bench/1", "accept", "*/*")
	stream := uint32(1)
	b.ReportAllocs()
	for b.Loop() {
		if err := f.WriteHeaders(http2frame.HeadersFrameParam{StreamID: stream, BlockFragment: head, EndHeaders: true, EndStream: true}); err != nil {
			b.Fatal(err)
		}
		for ended := false; !ended; {
			h := f.next(b).Header()
			ended = h.StreamID == stream && h.Flags.Has(http2frame.FlagDataEndStream)
		}
		stream += 2
	}
}

// BenchmarkHTTP2Deadline is what http2Conn.use costs a request.
func BenchmarkHTTP2Deadline(b *testing.B) {
	h := &http2Conn{c: &httpConn{}}
	for b.Loop() {
		h.use(0)
		h.use(1)
		h.use(-1)
	}
}
