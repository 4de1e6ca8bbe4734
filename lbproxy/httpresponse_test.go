package lbproxy

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
)

// TestHTTPOddResponses: what a client gets of responses that HAProxy passes on, or that turn out to be malformed before anything of them
// was sent.
func TestHTTPOddResponses(t *testing.T) {
	t.Parallel()
	const upgrade = "Connection: Upgrade\r\nUpgrade: a\r\n"
	for name, test := range map[string]struct{ send, answer, want string }{
		"bad first chunk":            {"GET / HTTP/1.1\r\nHost: x\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", "HTTP/1.1 502"},
		"equal lengths":              {"GET / HTTP/1.1\r\nHost: x\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200"},
		"equal lengths in a list":    {"GET / HTTP/1.1\r\nHost: x\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok", "HTTP/1.1 200"},
		"other lengths":              {"GET / HTTP/1.1\r\nHost: x\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nok", "HTTP/1.1 502"},
		"101 for an HTTP/1.0 client": {"GET / HTTP/1.0\r\nHost: x\r\n" + upgrade, "HTTP/1.1 101 Switching Protocols\r\n" + upgrade + "\r\n", "HTTP/1.1 502"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := httpBalancer("web", addr(t), serveTCP(t, func(c net.Conn) {
				in := bufio.NewReader(c)
				if head := readHead(in); strings.HasPrefix(head, "GET / HTTP/1.0") && strings.Contains(head, "Upgrade") {
					t.Errorf("the backend got an upgrade of HTTP/1.0: %q", head)
				}
				_, _ = io.WriteString(c, test.answer)
				_, _ = io.Copy(io.Discard, in)
			}))
			newTestServer(t, Config{}, b)
			c := dial(t, b.Listen)
			_, _ = io.WriteString(c, test.send+"\r\n")
			head := readHead(bufio.NewReader(c))
			if !strings.HasPrefix(head, test.want) || strings.Contains(head, "200") && !strings.Contains(head, "Content-Length: 2\r\n") {
				t.Errorf("%q, want %s", head, test.want)
			}
		})
	}
}
