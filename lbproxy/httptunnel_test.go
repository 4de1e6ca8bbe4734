package lbproxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

// readHead reads a head from a connection and returns it with its empty line; "": the connection ended.
func readHead(in *bufio.Reader) string {
	var head strings.Builder
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return ""
		}
		head.WriteString(line)
		if line == "\r\n" {
			return head.String()
		}
	}
}

// serveTunnels answers CONNECT with a head, from then on with lines that it got on the connection, and other requests with "next".
// others counts these, tunnelled what was sent in tunnels.
func serveTunnels(answer string, others *atomic.Int64, tunnelled *atomic.Pointer[string]) func(net.Conn) {
	return func(c net.Conn) {
		in := bufio.NewReader(c)
		for {
			head := readHead(in)
			switch {
			case head == "":
				return
			case strings.HasPrefix(head, "CONNECT "):
				_, _ = io.WriteString(c, answer)
				if strings.HasPrefix(answer, "HTTP/1.1 2") {
					got, _ := io.ReadAll(io.TeeReader(in, c))
					text := string(got)
					tunnelled.Store(&text)
					_, _ = io.WriteString(c, "ended\n")
					return
				}
			default:
				others.Add(1)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext")
			}
		}
	}
}

// TestHTTPConnect: what follows a 2xx answer to CONNECT is a tunnel, whatever the answer's fields say, and its connection is of no
// other client (RFC 9110 section 9.3.6).
func TestHTTPConnect(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"length 0":   "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-A: b\r\n\r\n",
		"length 5":   "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\n",
		"chunked":    "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n",
		"no framing": "HTTP/1.1 200 OK\r\nX-A: b\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var others atomic.Int64
			var tunnelled atomic.Pointer[string]
			back := serveTCP(t, serveTunnels(answer, &others, &tunnelled))
			b := httpBalancer("web", addr(t), back)
			r := newTestServer(t, Config{}, b)
			c := dial(t, b.Listen)
			_, _ = io.WriteString(c, "CONNECT cl0.y:443 HTTP/1.1\r\nHost: cl0.y:443\r\n\r\nearly\n")
			in := bufio.NewReader(c)
			head := readHead(in)
			if lower := strings.ToLower(head); !strings.HasPrefix(head, "HTTP/1.1 20") || !strings.Contains(head, "X-A: b\r\n") ||
				strings.Contains(lower, "content-length") || strings.Contains(lower, "transfer-encoding") || strings.Contains(lower, "connection:") {
				t.Fatalf("head %q", head)
			}
			if got := say(t, b.Listen, "GET / HTTP/1.1\r\nHost: x\r\nCookie: secret\r\n\r\n"); !strings.HasSuffix(got, "next") {
				t.Errorf("another client got %q", got)
			}
			_, _ = io.WriteString(c, "late\n")
			_ = c.CloseWrite()
			if got, err := io.ReadAll(in); err != nil || string(got) != "early\nlate\nended\n" {
				t.Errorf("through the tunnel came %q, %v", got, err)
			}
			r.waitEnded(t, "web")
			if got := tunnelled.Load(); got == nil || *got != "early\nlate\n" {
				t.Errorf("the tunnel of the backend got %v", got)
			}
		})
	}
}

// TestHTTPConnectRefused: after another answer than 2xx, neither connection carries another request, as the client may have sent the
// protocol of the tunnel already.
func TestHTTPConnectRefused(t *testing.T) {
	t.Parallel()
	var others atomic.Int64
	back := serveTCP(t, serveTunnels("HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno\n", &others, nil))
	plain, h2 := httpBalancer("web", addr(t), back), with(httpBalancer("h2", addr(t), back), func(b *lab.Balancer) { b.Protocol = lab.BackendH2C })
	redirect := with(httpBalancer("redirect", addr(t), back), func(b *lab.Balancer) { b.Redirect = lab.RedirectHTTPS })
	newTestServer(t, Config{}, plain, h2, redirect)
	for _, test := range []struct {
		name, send, want string
		at               *lab.Balancer
	}{
		{"the backend's answer", "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n", "403", plain},
		{"Host without the port", "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", "403", plain},
		{"HTTP/1.0", "CONNECT a:443 HTTP/1.0\r\n\r\n", "403", plain},
		{"a body", "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nContent-Length: 5\r\n\r\nhello", "400", plain},
		{"chunks", "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400", plain},
		{"a path", "CONNECT /a HTTP/1.1\r\nHost: a:443\r\n\r\n", "400", plain},
		{"a URI", "CONNECT http://a:443/ HTTP/1.1\r\nHost: a:443\r\n\r\n", "400", plain},
		{"no port", "CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n", "400", plain},
		{"another Host", "CONNECT a:443 HTTP/1.1\r\nHost: b:443\r\n\r\n", "400", plain},
		{"another port", "CONNECT a:443 HTTP/1.1\r\nHost: a:80\r\n\r\n", "400", plain},
		{"to HTTP/2", "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", "501", h2},
		{"a redirect", "CONNECT a.b:443 HTTP/1.1\r\nHost: a.b:443\r\n\r\n", "400", redirect},
	} {
		got := ask(t, test.at.Listen, test.send) // ends: the client's connection is closed
		if !strings.HasPrefix(got, "HTTP/1.1 "+test.want) || strings.Count(got, "HTTP/1.1 ") != 1 || strings.Contains(got, "Location") {
			t.Errorf("%s: %q, want %s and the end", test.name, got, test.want)
		}
	}
	request, _ := http.NewRequest(http.MethodConnect, "http://"+plain.Listen.String(), nil)
	resp, err := h2cClient(t).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusNotImplemented {
		t.Errorf("from HTTP/2: %s, want 501", resp.Status)
	}
	if n := others.Load(); n != 0 {
		t.Errorf("the backend read %d requests after CONNECT", n)
	}
}
