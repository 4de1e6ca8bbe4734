package lbproxy

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// TestHTTPUncleanConnection: a connection to a backend on which something of a response may still come, or something of a request is
// missing, carries no other request.
func TestHTTPUncleanConnection(t *testing.T) {
	t.Parallel()
	const ok, get, head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "GET /first HTTP/1.1\r\nHost: x\r\n", "HEAD /first HTTP/1.1\r\nHost: x\r\n"
	for name, test := range map[string]struct {
		send, answer, want string
		reused             bool
	}{
		"a whole response":                 {get, ok, "200", true},
		"HEAD with a length":               {head, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "200", true},
		"many 1xx":                         {get, strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 500) + ok, "103", true},
		"304 with a length":                {get, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "304", true},
		"HEAD with a body":                 {head, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "200", false},
		"304 with a body":                  {get, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nhello", "304", false},
		"204 with a length":                {get, "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "204", false},
		"204 with chunks":                  {get, "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", "204", false},
		"205 with a body":                  {get, "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\nhello", "205", false},
		"bytes after the response":         {get, ok + "\r\n", "200", false},
		"a second response":                {get, ok + ok, "200", false},
		"100 after the response":           {get, ok + "HTTP/1.1 100 Continue\r\n\r\n", "200", false},
		"1xx with a body":                  {get, "HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\nhello" + ok, "103", false},
		"101 that nobody asked for":        {get, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\nConnection: Upgrade\r\n\r\n", "502", false},
		"a length and chunks":              {get, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "200", false},
		"an answer before the whole body":  {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n", ok, "200", false},
		"an answer before the last chunk":  {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n", ok, "200", false},
		"an answer instead of 100":         {"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n", ok, "200", false},
		"a response without a known end":   {get, "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "200", false},
		"an upgrade that is not done":      {get + "Connection: Upgrade\r\nUpgrade: a\r\n", ok, "200", true},
		"an upgrade refused, and its data": {get + "Connection: Upgrade\r\nUpgrade: a\r\n", "HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\nX", "426", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var conns, victims atomic.Int64 // victims are on the first connection
			back := serveTCP(t, func(c net.Conn) {
				first := conns.Add(1) == 1
				for in := bufio.NewReader(c); ; {
					switch head := readHead(in); {
					case head == "":
						return
					case strings.Contains(head, " /victim "):
						if first {
							victims.Add(1)
						}
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nvictim")
					default:
						_, _ = io.WriteString(c, test.answer)
					}
				}
			})
			b := httpBalancer("web", addr(t), back)
			r := newTestServer(t, Config{}, b)
			c := dial(t, b.Listen)
			_, _ = io.WriteString(c, test.send+"\r\n")
			if got := readLine(t, c); !strings.HasPrefix(got, "HTTP/1.1 "+test.want) {
				t.Errorf("the first client got %q, want %s", got, test.want)
			}
			if name == "many 1xx" {
				_, _ = io.ReadFull(c, make([]byte, len(test.answer)-len("HTTP/1.1 103 Early Hints\r\n")))
			}
			if strings.HasPrefix(test.send, "POST") {
				_ = c.CloseWrite()
			}
			r.waitEnded(t, "web")
			if got := ask(t, b.Listen, "GET /victim HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(got, "\r\n\r\nvictim") {
				t.Errorf("the second client got %q", got)
			}
			if got := victims.Load() == 1; got != test.reused {
				t.Errorf("connection used again: %t, want %t", got, test.reused)
			}
		})
	}
}

// TestHTTPClosingConnection: a backend closes a connection when a client's first POST comes on it, as if it had been about to. Such a
// request uses no connection that another client left, so each gets its answer. GETs share one.
func TestHTTPClosingConnection(t *testing.T) {
	t.Parallel()
	var conns atomic.Int64
	back := serveTCP(t, func(c net.Conn) {
		conns.Add(1)
		for in, n := bufio.NewReader(c), 0; ; n++ {
			head := readHead(in)
			if head == "" || n > 0 && strings.HasPrefix(head, "POST ") {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	b := httpBalancer("web", addr(t), back)
	r := newTestServer(t, Config{}, b)
	const first = 5
	for _, method := range []string{"GET", "POST"} {
		for range first {
			if got := ask(t, b.Listen, method+" / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(got, "ok") {
				t.Errorf("%s got %q", method, got)
			}
			r.waitEnded(t, "web")
		}
	}
	if n := conns.Load(); n != 1+first {
		t.Errorf("%d connections, want one of all GETs, and one of each POST", n)
	}
}
