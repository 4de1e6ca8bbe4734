package lbproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"
)

// A strictOrigin is an HTTP/1.1 server that accepts only what RFC 9112 lets a client send, and records what it saw.
type strictOrigin struct {
	addr netip.AddrPort

	mu        sync.Mutex
	requests  []string // "METHOD target body"
	malformed []string
}

func newStrictOrigin(t testing.TB) *strictOrigin {
	o := &strictOrigin{}
	o.addr = serveTCP(t, o.serve)
	return o
}

func (o *strictOrigin) serve(c net.Conn) {
	in := bufio.NewReader(c)
	for {
		request, err := strictRequest(in)
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			o.mu.Lock()
			o.malformed = append(o.malformed, err.Error())
			o.mu.Unlock()
			_, _ = io.WriteString(c, "HTTP/1.1 499 Malformed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			return
		}
		o.mu.Lock()
		o.requests = append(o.requests, request)
		o.mu.Unlock()
		method, _, _ := strings.Cut(request, " ")
		body := "ok"
		if method == "HEAD" {
			body = ""
		}
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"+body); err != nil {
			return
		}
	}
}

// seen returns and forgets what the origin saw.
func (o *strictOrigin) seen() (requests, malformed []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	requests, malformed = o.requests, o.malformed
	o.requests, o.malformed = nil, nil
	return requests, malformed
}

// strictLine reads a line that ends with CRLF and has no other control characters.
func strictLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	text, ok := strings.CutSuffix(line, "\r\n")
	if !ok || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return "", fmt.Errorf("line %q", line)
	}
	return text, nil
}

// strictRequest reads one request. io.EOF: the connection ended, within a request or between two.
func strictRequest(in *bufio.Reader) (string, error) {
	line, err := strictLine(in)
	if err != nil {
		return "", endOf(err)
	}
	parts := strings.Split(line, " ")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || !strings.HasPrefix(parts[2], "HTTP/1.") {
		return "", fmt.Errorf("request line %q", line)
	}
	length, chunked, err := strictHead(in)
	if err != nil {
		return "", endOf(err)
	}
	body := make([]byte, length)
	if chunked {
		body, err = strictChunks(in)
	} else {
		_, err = io.ReadFull(in, body)
	}
	if err != nil {
		return "", endOf(err)
	}
	return parts[0] + " " + parts[1] + " " + string(body), nil
}

func endOf(err error) error {
	var network *net.OpError
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network) {
		return io.EOF
	}
	return err
}

// strictHead reads the header fields and returns how the body is delimited.
func strictHead(in *bufio.Reader) (length int, chunked bool, err error) {
	seen := make(map[string]bool)
	for {
		line, err := strictLine(in)
		if err != nil {
			return 0, false, err
		}
		if line == "" {
			break
		}
		name, value, found := strings.Cut(line, ":")
		if !found || name == "" || strings.ContainsAny(name, " \t\"(),/;<=>?@[\\]{}") {
			return 0, false, fmt.Errorf("field %q", line)
		}
		name, value = strings.ToLower(name), strings.Trim(value, " \t")
		switch name {
		case "content-length", "transfer-encoding", "host":
			if seen[name] {
				return 0, false, fmt.Errorf("second %s", name)
			}
			seen[name] = true
		}
		switch name {
		case "content-length":
			n, err := strconv.ParseUint(value, 10, 31)
			if err != nil {
				return 0, false, fmt.Errorf("content-length %q", value)
			}
			length = int(n)
		case "transfer-encoding":
			if !strings.EqualFold(value, "chunked") {
				return 0, false, fmt.Errorf("transfer-encoding %q", value)
			}
			chunked = true
		}
	}
	if chunked && seen["content-length"] {
		return 0, false, errors.New("transfer-encoding and content-length")
	}
	return length, chunked, nil
}

// strictChunks reads a chunked body (RFC 9112 section 7.1), without extensions.
func strictChunks(in *bufio.Reader) ([]byte, error) {
	var body []byte
	for {
		line, err := strictLine(in)
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseUint(line, 16, 31)
		if err != nil {
			return nil, fmt.Errorf("chunk size %q", line)
		}
		if n == 0 {
			break
		}
		chunk := make([]byte, n+2)
		if _, err := io.ReadFull(in, chunk); err != nil {
			return nil, err
		}
		if !bytes.HasSuffix(chunk, []byte("\r\n")) {
			return nil, fmt.Errorf("chunk ends with %q", chunk[n:])
		}
		body = append(body, chunk[:n]...)
	}
	for {
		line, err := strictLine(in)
		if err != nil || line == "" {
			return body, err
		}
	}
}

// A smugglingCase is what a client sends on one connection. A request for /smuggled is within it in a place where a proxy
// and a server may disagree on where a request ends.
type smugglingCase struct {
	name string
	send string
	want string // the statuses that we answer, in their order
}

const (
	smuggled  = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	post      = "POST /first HTTP/1.1\r\nHost: x\r\n"
	teChunked = "Transfer-Encoding: chunked\r\n"
)

// hidden returns a request with one more field line (as it is) and a chunked body that hides another request from who does
// not know the encoding.
func hidden(line string) string {
	return post + line + "\r\n\r\n0\r\n\r\n" + smuggled
}

// both returns a request with a body by Content-Length and a field that may be taken for an encoding.
func both(line string) string {
	body := "0\r\n\r\n" + smuggled
	return post + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n" + line + "\r\n\r\n" + body
}

// smugglingCorpus are the published ways: RFC 9112 section 11.2, PortSwigger's desync series (2019 to 2025), the lists of
// smuggler.py, http-garden and llhttp's tests, and the CVEs that are named.
func smugglingCorpus() []smugglingCase {
	var out []smugglingCase
	add := func(name, want, send string) { out = append(out, smugglingCase{name: name, send: send, want: want}) }
	add("plain", "200", "GET /first HTTP/1.1\r\nHost: x\r\n\r\n")
	add("chunked", "200", post+teChunked+"\r\n5\r\nhello\r\n0\r\n\r\n")
	add("pipelined", "200 200", "GET /first HTTP/1.1\r\nHost: x\r\n\r\nGET /second HTTP/1.1\r\nHost: x\r\n\r\n")
	add("leading CRLF", "200", "\r\nGET /first HTTP/1.1\r\nHost: x\r\n\r\n")

	add("CL.TE", "200", both("Transfer-Encoding: chunked"))
	add("TE.CL", "200", post+"Content-Length: 4\r\n"+teChunked+"\r\n"+fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(smuggled), smuggled))
	add("TE before CL", "200", post+teChunked+"Content-Length: 0\r\n\r\n0\r\n\r\n"+smuggled)
	for _, te := range []string{
		"Transfer-Encoding: xchunked", "Transfer-Encoding : chunked", "Transfer-Encoding\t: chunked", "Transfer-Encoding: identity",
		"Transfer-Encoding: chunked, identity", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
		"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
		"Transfer-Encoding: chunked, chunked", "Transfer-Encoding: \"chunked\"", "Transfer-Encoding: chunked;q=1", "Transfer-Encoding:",
		"Transfer-Encoding:\x0bchunked", "Transfer-Encoding: chunked\x0b", "Transfer-Encoding: \x00chunked", "Transfer-Encoding: chun\x00ked",
		"Transfer-Encoding: chunked\x00", "Transfer-Encoding: \xff chunked", "\x00Transfer-Encoding: chunked",
		" Transfer-Encoding: chunked", "\tTransfer-Encoding: chunked", "X: y\nTransfer-Encoding: chunked",
		"X: y\rTransfer-Encoding: chunked", "X: y\r\n\rTransfer-Encoding: chunked", "Transfer-Encoding:\n chunked", "Transfer-Encoding:\r\n chunked",
		"Transfer-Encoding\r\n : chunked", "Transfer-Encoding: chunked\r", "Transfer-Encoding: chunked\r\r",
		"Transfer-Encoding: gzip, chunked", "Transfer-Encoding: ,chunked", "Transfer-Encoding: chunked,", "Transfer\xadEncoding: chunked",
		"Transfer-Encoding chunked", ": chunked", "Transfer-Encoding: cHuNkEd\x7f", "Transfer-Encoding: chunKed\xc4\xb1",
	} {
		add("TE.TE "+strconv.Quote(te), "400", both(te))
	}
	add("TE without CL", "200 200", hidden("X: y\r\nTransfer-Encoding: CHUNKED")[:len(post)+len("X: y\r\nTransfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n")]+"GET /second HTTP/1.1\r\nHost: x\r\n\r\n")
	for _, name := range []string{"Transfer_Encoding: chunked", "X-Transfer-Encoding: chunked", "TransferEncoding: chunked"} {
		add("TE.TE other name "+name, "200", both(name))
	}

	for _, cl := range []string{
		"+5", "-5", "0x5", "5 5", "5,5", "5, 6", "5;", "5.0", "0005x", "", "5\x00", "\x005", "٥", "18446744073709551621", "99999999999999999999999", "5 \x0b", "1e1", "five", "5_0",
	} {
		add("CL "+strconv.Quote(cl), "400", post+"Content-Length: "+cl+"\r\n\r\nhello"+smuggled)
	}
	add("CL twice, different", "400", post+"Content-Length: 0\r\nContent-Length: 44\r\n\r\n"+smuggled)
	add("CL twice, the same", "400", post+"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello")
	add("CL folded", "400", post+"Content-Length:\r\n 5\r\n\r\nhello"+smuggled)
	add("CL space before colon", "400", post+"Content-Length : 39\r\n\r\n"+smuggled)
	add("CL.0 GET with body", "200", fmt.Sprintf("GET /first HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(smuggled), smuggled))
	add("CL leading zeros", "200", post+"Content-Length: 0005\r\n\r\nhello")
	add("0.CL Expect", "200", fmt.Sprintf("%sExpect: 100-continue\r\nContent-Length: %d\r\n\r\n%s", post, len(smuggled), smuggled))
	add("Expect obfuscated", "200", fmt.Sprintf("%sExpect: y 100-continue\r\nContent-Length: %d\r\n\r\n%s", post, len(smuggled), smuggled))

	for _, size := range []string{
		"ZZ", "", "-1", "+5", "0x5", "5g", " 5", "5 ", "5\t", "5\x00", "5\n", "\n5", "5\r", "FFFFFFFFFFFFFFFF5", "10000000000000005", "5,5", "5;a=\n", "5;a=\rb", "5;\x00", "٥",
	} {
		add("chunk size "+strconv.Quote(size), "400", post+teChunked+"\r\n"+size+"\r\nhello\r\n0\r\n\r\n"+smuggled)
	}
	add("chunk size bare LF (CVE-2025-22871)", "400", post+teChunked+"\r\n5\nhello\r\n0\r\n\r\n"+smuggled)
	add("chunk extension", "200", post+teChunked+"\r\n5;a=b\r\nhello\r\n0;c\r\n\r\n")
	add("chunk extension quoted", "200", post+teChunked+"\r\n5;a=\"b;c\"\r\nhello\r\n0\r\n\r\n")
	add("chunk extension bare LF (TERM.EXT)", "400", post+teChunked+"\r\n5;\nhello\r\n0\r\n\r\n"+smuggled)
	add("chunk extension too long", "400", post+teChunked+"\r\n5;"+strings.Repeat("a", 1<<20)+"\r\nhello\r\n0\r\n\r\n"+smuggled)
	add("chunk data without CRLF", "400", post+teChunked+"\r\n5\r\nhelloXX0\r\n\r\n"+smuggled)
	add("chunk data bare LF", "400", post+teChunked+"\r\n5\r\nhello\n0\r\n\r\n"+smuggled)
	add("chunk data bare CR", "400", post+teChunked+"\r\n5\r\nhello\r0\r\n\r\n"+smuggled)
	add("chunk data too long", "400", post+teChunked+"\r\n5\r\nhello!\r\n0\r\n\r\n"+smuggled)
	add("chunk zero bare LF", "400", post+teChunked+"\r\n0\n\n"+smuggled)
	add("chunk trailer", "200", post+teChunked+"\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n")
	add("chunk trailer malformed", "400", post+teChunked+"\r\n5\r\nhello\r\n0\r\nGET /smuggled HTTP/1.1\r\n\r\n")
	add("chunk trailer with CL", "200", post+teChunked+"\r\n5\r\nhello\r\n0\r\nContent-Length: 40\r\n\r\n")
	add("chunk trailer bare LF", "400", post+teChunked+"\r\n5\r\nhello\r\n0\r\nX: y\n\r\n"+smuggled)
	add("chunk after a good one", "400", post+teChunked+"\r\n5\r\nhello\r\nZZ\r\n"+smuggled)

	add("bare LF lines", "400", "GET /first HTTP/1.1\nHost: x\n\n"+smuggled)
	add("bare LF end of head", "400", "GET /first HTTP/1.1\r\nHost: x\r\n\n"+smuggled)
	add("bare CR in line", "400", "GET /first HTTP/1.1\r\nHost: x\rX: y\r\n\r\n")
	add("obs-fold", "400", "GET /first HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n")
	add("NUL in value", "400", "GET /first HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n")
	add("NUL in name", "400", "GET /first HTTP/1.1\r\nHost: x\r\nX\x00: a\r\n\r\n")
	add("space in name", "400", "GET /first HTTP/1.1\r\nHost: x\r\nX y: a\r\n\r\n")
	add("first field folded", "400", "GET /first HTTP/1.1\r\n Host: x\r\nHost: y\r\n\r\n")
	add("no colon", "400", "GET /first HTTP/1.1\r\nHost: x\r\nnothing\r\n\r\n")
	add("host twice", "400", "GET /first HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n")
	add("host list", "400", "GET /first HTTP/1.1\r\nHost: x, y\r\n\r\n")
	add("host with path", "400", "GET /first HTTP/1.1\r\nHost: x/y\r\n\r\n")
	add("host and authority differ", "400", "GET http://y/first HTTP/1.1\r\nHost: x\r\n\r\n")
	add("space in target", "400", "GET /first /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
	add("tab in request line", "400", "GET\t/first\tHTTP/1.1\r\nHost: x\r\n\r\n")
	add("two spaces", "400", "GET  /first HTTP/1.1\r\nHost: x\r\n\r\n")
	add("NUL in target", "400", "GET /first\x00 HTTP/1.1\r\nHost: x\r\n\r\n")
	add("fragment (CVE-2023-45539)", "400", "GET /first#/smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
	add("version 0.9", "400", "GET /first\r\n\r\n"+smuggled)
	add("version 2.0", "400", "GET /first HTTP/2.0\r\nHost: x\r\n\r\n"+smuggled)
	add("version 1.10", "400", "GET /first HTTP/1.10\r\nHost: x\r\n\r\n"+smuggled)
	add("version lower case", "400", "GET /first http/1.1\r\nHost: x\r\n\r\n"+smuggled)
	add("no host", "400", "GET /first HTTP/1.1\r\n\r\n"+smuggled)
	add("empty name (CVE-2023-25725)", "400", both(": y\r\nTransfer-Encoding: chunked"))
	add("HTTP/1.0 with TE", "200", "POST /first HTTP/1.0\r\nHost: x\r\n"+teChunked+"\r\n0\r\n\r\n"+smuggled)
	add("HTTP/1.0 with CL and TE", "200", "POST /first HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nContent-Length: 5\r\n"+teChunked+"\r\n0\r\n\r\n"+smuggled)
	add("Connection names CL", "200", fmt.Sprintf("%sConnection: Content-Length\r\nContent-Length: %d\r\n\r\n%s", post, len(smuggled), smuggled))
	add("Connection names TE", "200", post+"Connection: Transfer-Encoding\r\n"+teChunked+"\r\n"+fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(smuggled), smuggled))
	add("h2c upgrade", "200", "GET /first HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n")
	add("websocket refused", "200 200", "GET /first HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 777\r\n\r\nGET /second HTTP/1.1\r\nHost: x\r\n\r\n")
	add("HEAD", "200 200", "HEAD /first HTTP/1.1\r\nHost: x\r\n\r\nGET /second HTTP/1.1\r\nHost: x\r\n\r\n")
	return out
}

// converse sends what a case has on one connection and returns the final statuses that came before it was closed or quiet.
func converse(t testing.TB, at fmt.Stringer, send string) string {
	c := dial(t, at)
	go func() {
		_, _ = io.WriteString(c, send)
		_ = c.CloseWrite()
	}()
	var statuses []string
	in := bufio.NewReader(c)
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	head := strings.HasPrefix(send, "HEAD")
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			break
		}
		status, _, _ := strings.Cut(strings.TrimPrefix(line, "HTTP/1.1 "), " ")
		length := 0
		for {
			line, err := in.ReadString('\n')
			if err != nil || strings.TrimSpace(line) == "" {
				break
			}
			if v, ok := strings.CutPrefix(strings.ToLower(line), "content-length:"); ok {
				length, _ = strconv.Atoi(strings.TrimSpace(v))
			}
		}
		if status == "100" {
			continue
		}
		if !head || len(statuses) > 0 {
			_, _ = in.Discard(length)
		}
		statuses = append(statuses, status)
	}
	return strings.Join(statuses, " ")
}

// TestSmuggling sends the corpus through HTTP mode and through HAProxy. The origin behind each must never see a malformed
// request, or one that the client did not send as a request.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	netns.Need(t, "haproxy")
	ours, theirs := newStrictOrigin(t), newStrictOrigin(t)
	b, hap := httpBalancer("web", addr(t), ours.addr), addr(t)
	newTestServer(t, Config{}, b)
	startHAProxy(t, hap, fmt.Sprintf("listen l\n  mode http\n  bind %s\n  server s %s\n", hap, theirs.addr))
	for _, test := range smugglingCorpus() {
		t.Run(test.name, func(t *testing.T) {
			reference := converse(t, hap, test.send)
			requests, malformed := theirs.seen()
			t.Logf("HAProxy: status %q, origin saw %q, malformed %q", reference, requests, malformed)
			got := converse(t, b.Listen, test.send)
			requests, malformed = ours.seen()
			if got != test.want {
				t.Errorf("status %q, want %q (HAProxy %q)", got, test.want, reference)
			}
			if len(malformed) > 0 {
				t.Errorf("the origin got a malformed request: %q", malformed)
			}
			for _, r := range requests {
				if strings.HasPrefix(r, "GET /smuggled") {
					t.Errorf("the origin got the smuggled request: %q", requests)
				}
			}
		})
	}
}
