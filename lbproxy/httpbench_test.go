package lbproxy

import (
	"bytes"
	"io"
	"net"
	"testing"
)

const (
	benchRequest = "GET /api/v1/nodes?limit=500 HTTP/1.1\r\nHost: web.example.com\r\nUser-Agent: bench/1\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n\r\n"
	benchReply   = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nDate: Sun, 22 Nov 2026 21:00:00 GMT\r\nContent-Length: 64\r\n\r\n" +
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// BenchmarkHTTPKeepAlive is one request after the other on one connection, to a backend that allocates nothing.
func BenchmarkHTTPKeepAlive(b *testing.B) {
	backend := serveTCP(b, func(c net.Conn) {
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
