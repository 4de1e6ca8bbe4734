package httpd_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/httpd"
)

// TestConditions holds files to RFC 9110's conditional requests: what a client has is not sent again, and a part is never
// of another file than the one that it was begun with.
func TestConditions(t *testing.T) {
	t.Parallel()
	const modified = "Tue, 14 Nov 2023 22:13:20 GMT"
	w := newBootServer(t, httpd.Limits{}, map[string][]byte{"images/vmlinuz": []byte("0123456789")})
	at := time.Unix(1700000000, 0)
	if err := os.Chtimes(filepath.Join(w.dir, "images/vmlinuz"), at, at); err != nil {
		t.Fatal(err)
	}
	header, _ := curl(t, "-I", w.url("/files/images/vmlinuz"))
	_, rest, _ := strings.Cut(header, "Etag: ")
	tag, _, ok := strings.Cut(rest, "\n")
	if !ok || !strings.HasPrefix(tag, `"`) {
		t.Fatalf("no strong ETag:\n%s", header)
	}
	for _, tt := range []struct {
		name   string
		args   []string
		status string
		body   string
	}{
		{"If-None-Match", []string{"-H", "If-None-Match: " + tag}, "304", ""},
		{"If-None-Match, weak", []string{"-H", "If-None-Match: W/" + tag}, "304", ""},
		{"If-None-Match, one of several", []string{"-H", `If-None-Match: "x", ` + tag}, "304", ""},
		{"If-None-Match, any", []string{"-H", "If-None-Match: *"}, "304", ""},
		{"If-None-Match, another", []string{"-H", `If-None-Match: "x"`}, "200", "0123456789"},
		{"If-None-Match beats the date", []string{"-H", `If-None-Match: "x"`, "-H", "If-Modified-Since: " + modified}, "200", "0123456789"},
		{"If-Modified-Since", []string{"-H", "If-Modified-Since: " + modified}, "304", ""},
		{"If-Modified-Since, before", []string{"-H", "If-Modified-Since: Mon, 13 Nov 2023 22:13:20 GMT"}, "200", "0123456789"},
		{"If-Match", []string{"-H", "If-Match: " + tag}, "200", "0123456789"},
		{"If-Match, another", []string{"-H", `If-Match: "x"`}, "412", ""},
		{"If-Range", []string{"-r", "2-4", "-H", "If-Range: " + tag}, "206", "234"},
		{"If-Range, another", []string{"-r", "2-4", "-H", `If-Range: "x"`}, "200", "0123456789"},
		{"If-Range, weak is no ground", []string{"-r", "2-4", "-H", "If-Range: W/" + tag}, "200", "0123456789"},
		{"If-Range, date", []string{"-r", "2-4", "-H", "If-Range: " + modified}, "206", "234"},
		{"If-Range, another date", []string{"-r", "2-4", "-H", "If-Range: Mon, 13 Nov 2023 22:13:20 GMT"}, "200", "0123456789"},
		{"to the end", []string{"-r", "7-"}, "206", "789"},
		{"the last bytes", []string{"-r", "-3"}, "206", "789"},
		{"beyond the end is cut", []string{"-r", "7-99"}, "206", "789"},
		{"more last bytes than there are", []string{"-r", "-99"}, "206", "0123456789"},
		{"a unit of its own is ignored", []string{"-H", "Range: blocks=1-2"}, "416", "invalid range\n"},
		{"nonsense", []string{"-H", "Range: bytes=x"}, "416", "invalid range\n"},
		{"HTTP/1.0", []string{"-0"}, "200", "0123456789"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			header, body := curl(t, append(tt.args, w.url("/files/images/vmlinuz"))...)
			if _, status, _ := strings.Cut(header, " "); !strings.HasPrefix(status, tt.status) || body != tt.body {
				t.Errorf("%q\n%s", body, header)
			}
			if length := fmt.Sprintf("Content-Length: %d\n", len(tt.body)); tt.status[0] == '2' && !strings.Contains(header, length) {
				t.Errorf("lacks %q:\n%s", length, header)
			}
		})
	}
}

// TestHeadIsGet: HEAD says of a file what GET says, a range too: UEFI and CoreOS's initrd go by it.
func TestHeadIsGet(t *testing.T) {
	t.Parallel()
	w := newBootServer(t, httpd.Limits{}, map[string][]byte{"public/a.efi": image(5000), "public/empty": nil})
	for _, path := range []string{"/files/public/a.efi", "/files/public/empty", "/files/public/none", "/boot/" + hyphens + "/ipxe.efi", "/boot/" + hyphens + "/boot.ipxe"} {
		for _, asked := range []string{"", "bytes=10-19"} {
			var lines [2]string
			for i, method := range []string{http.MethodGet, http.MethodHead} {
				r, err := http.NewRequest(method, w.url(path), nil)
				if err != nil {
					t.Fatal(err)
				}
				if asked != "" {
					r.Header.Set("Range", asked)
				}
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				n, err := io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if method == http.MethodGet && (err != nil || n != resp.ContentLength) || method == http.MethodHead && n > 0 {
					t.Errorf("%s %s %q: %d bytes of %d, %v", method, path, asked, n, resp.ContentLength, err)
				}
				resp.Header.Del("Date")
				lines[i] = fmt.Sprint(resp.Status, resp.ContentLength, resp.TransferEncoding, resp.Header)
			}
			if lines[0] != lines[1] {
				t.Errorf("%s %q:\nGET  %s\nHEAD %s", path, asked, lines[0], lines[1])
			}
		}
	}
}

// TestMediaTypes: UEFI goes by the type, or by the last four characters of the path (UEFI 2.10, section 24.7.2.3.1).
func TestMediaTypes(t *testing.T) {
	t.Parallel()
	types := map[string]string{
		"boot.efi": "application/efi", "BOOTX64.EFI": "application/efi", "disk.iso": "application/vnd.efi-iso", "disk.img": "application/vnd.efi-img",
		"a.json": "application/json", "a.ign": "application/json", "ks.cfg": "text/plain; charset=utf-8", "a.ks": "text/plain; charset=utf-8",
		"user.yaml": "text/plain; charset=utf-8", "boot.ipxe": "text/plain; charset=utf-8", "auto.xml": "application/xml",
		"vmlinuz": "application/octet-stream", "page.html": "application/octet-stream",
	}
	files := map[string][]byte{}
	for name := range types {
		files["public/"+name] = []byte("<script>")
	}
	w := newBootServer(t, httpd.Limits{}, files)
	for name, want := range types {
		header, _ := curl(t, "-I", w.url("/files/public/"+name))
		if !strings.Contains(header, "Content-Type: "+want+"\n") || !strings.Contains(header, "X-Content-Type-Options: nosniff\n") {
			t.Errorf("%s, want %s:\n%s", name, want, header)
		}
	}
}

// TestNoEscape asks for what is no plain file of its own, on disk and on the wire. None of it is served, and none of it
// makes the server wait.
func TestNoEscape(t *testing.T) {
	t.Parallel()
	w := newBootServer(t, httpd.Limits{}, map[string][]byte{"public/a": []byte("a"), "secrets/bmc": []byte("calvin")})
	public := filepath.Join(w.dir, "public")
	outside := t.TempDir()
	write(t, filepath.Join(outside, "passwd"), []byte("root"))
	for link, to := range map[string]string{
		"file": filepath.Join(outside, "passwd"), "folder": outside, "up": "../..", "loop": "loop", "chain": "folder/passwd", "proc": "/proc/self/environ",
		"etc": "/etc", "document": "secret.ign",
	} {
		if err := os.Symlink(to, filepath.Join(public, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(public, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(public, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, path := range []string{
		"file", "folder/passwd", "up/secrets/bmc", "loop", "chain", "proc", "etc/passwd", "document", "pipe", "socket", ".", "..", "../secrets/bmc",
		"%2e%2e/secrets/bmc", "..%2fsecrets%2fbmc", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "a/../../secrets/bmc", "./a", "a/", "a%00", "a%00/../b", "..%5csecrets%5cbmc",
		"%252e%252e/secrets/bmc", "....//secrets/bmc", "//etc/passwd", "a;/../b",
	} {
		header, body := curl(t, w.url("/files/public/"+path))
		if !strings.HasPrefix(header, "HTTP/1.1 403 ") && !strings.HasPrefix(header, "HTTP/1.1 404 ") {
			t.Errorf("%s: %q\n%s", path, body, header)
		}
	}
	for _, target := range []string{"/files/../../etc/passwd", "http://x/files/public/../../secrets/bmc", "files/public/a", "*", "/files/public/a\x00b"} {
		c, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", target)
		answer, err := io.ReadAll(c)
		_ = c.Close()
		if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 40")) {
			t.Errorf("%q: %.80q, %v", target, answer, err)
		}
	}
}

// TestSlowSenders: who does not finish a request, or keeps a connection without a use, is hung up on.
func TestSlowSenders(t *testing.T) {
	t.Parallel()
	const limit = 150 * time.Millisecond
	w := newBootServer(t, httpd.Limits{Header: limit, Idle: limit, Stall: limit}, map[string][]byte{"public/a": []byte("a")})
	for name, said := range map[string]string{
		"nothing":                       "",
		"half a header":                 "GET /files/public/a HTTP/1.1\r\nHost: x\r\nX-Slow: ",
		"one and a half":                "GET /files/public/a HTTP/1.1\r\nHost: x\r\n\r\nGET /fil",
		"idle":                          "GET /files/public/a HTTP/1.1\r\nHost: x\r\n\r\n",
		"a body promised to GET":        "GET /files/public/a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n",
		"a body promised to nobody":     "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n",
		"half a body":                   "POST /done/" + hyphens + "/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12",
		"a chunked body without an end": "POST /report/" + hyphens + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
		"a body that waits to be asked": "PUT /files/public/a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", w.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			fmt.Fprint(c, said)
			if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) { // what was sent after the end brings a reset
				t.Errorf("it is not hung up on: %v", err)
			}
		})
	}
}

// TestFileShrinks: a file that is cut while it is sent is a broken connection, never a short file that looks whole.
func TestFileShrinks(t *testing.T) {
	t.Parallel()
	w := newBootServer(t, httpd.Limits{}, map[string][]byte{"images/vmlinuz": image(big)})
	resp, err := http.ReadResponse(bufio.NewReader(w.ask(t, "/files/images/vmlinuz")), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.CopyN(io.Discard, resp.Body, 1000); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(w.dir, "images/vmlinuz"), 1<<20); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Errorf("%d bytes look whole", n)
	}
}
