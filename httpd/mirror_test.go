package httpd_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/httpd"
	"github.com/bootlab/bootlab/internal/lab"
)

// TestMirror fetches through a mirror as a stranger does: whole, in parts, by HEAD, and what may not be fetched.
func TestMirror(t *testing.T) {
	t.Parallel()
	body := image(400_000)
	asked := make(chan string, 100)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.EscapedPath()
		switch {
		case strings.HasSuffix(r.URL.Path, "gone.deb"):
			http.NotFound(w, r)
		case strings.HasSuffix(r.URL.Path, "broken.deb"):
			w.WriteHeader(http.StatusInternalServerError)
		default:
			w.Header().Set("Etag", `"v1"`)
			w.Header().Set("Content-Type", "application/vnd.debian.binary-package")
			http.ServeContent(w, r, "", time.Unix(1700000000, 0), bytes.NewReader(body))
		}
	}))
	t.Cleanup(up.Close)
	w := newBootServer(t, httpd.Limits{}, nil)
	pool, err := lab.ParsePattern("pool/*")
	if err != nil {
		t.Fatal(err)
	}
	w.serve(t, &lab.Mirror{Name: "debian", URLs: []string{up.URL + "/debian"}, MaxSize: 1 << 30, Allow: []lab.Pattern{pool}})
	for _, tt := range []struct {
		name   string
		args   []string
		path   string
		status string
		has    []string
		body   []byte
		asked  string
		events []string
	}{
		{name: "HEAD before", args: []string{"-I"}, path: "/mirror/debian/pool/a.deb", status: "200",
			has: []string{"Content-Length: 400000", `Etag: "v1"`, "X-Cache: passed"}, asked: "HEAD /debian/pool/a.deb"},
		{name: "first", path: "/mirror/debian/pool/a.deb", status: "200", body: body, asked: "GET /debian/pool/a.deb",
			has: []string{"Content-Length: 400000", "Content-Type: application/vnd.debian.binary-package", "Last-Modified: Tue, 14 Nov 2023 22:13:20 GMT", "X-Cache: miss"}},
		{name: "HEAD after", args: []string{"-I"}, path: "/mirror/debian/pool/a.deb", status: "200", has: []string{"Content-Length: 400000"}},
		{name: "range", args: []string{"-r", "10-19"}, path: "/mirror/debian/pool/a.deb", status: "206",
			has: []string{"Content-Range: bytes 10-19/400000", "Content-Length: 10"}, body: body[10:20]},
		{name: "If-Range", args: []string{"-r", "10-19", "-H", `If-Range: "v0"`}, path: "/mirror/debian/pool/a.deb", status: "200", body: body},
		{name: "not modified", args: []string{"-H", `If-None-Match: "v1"`}, path: "//mirror//debian/pool/a.deb", status: "304"},
		{name: "odd names", path: "/mirror/debian/pool/g++_4%253a12~1%20x.deb", status: "200", body: body, asked: "GET /debian/pool/g++_4%253a12~1%20x.deb"},
		{name: "a query stays here", path: "/mirror/debian/pool/q.deb?x=%2F", status: "200", body: body, asked: "GET /debian/pool/q.deb"},
		{name: "a question mark is a letter", path: "/mirror/debian/pool/q%3Fx=1.deb", status: "200", body: body, asked: "GET /debian/pool/q%3Fx=1.deb"},
		{name: "not upstream", path: "/mirror/debian/pool/gone.deb", status: "404", body: []byte("Not Found\n"), asked: "GET /debian/pool/gone.deb"},
		{name: "upstream is broken", path: "/mirror/debian/pool/broken.deb", status: "503", has: []string{"Retry-After: 5"},
			body: []byte("Service Unavailable\n"), asked: "GET /debian/pool/broken.deb", events: []string{
				"mirror_down 00:00:00:00:00:00 debian 0 GET " + up.URL + "/debian/pool/broken.deb: 500 Internal Server Error",
				"mirror_failed " + testMAC + " debian/pool/broken.deb 0 GET " + up.URL + "/debian/pool/broken.deb: 500 Internal Server Error"}},
		{name: "not allowed", path: "/mirror/debian/dists/x", status: "403", body: []byte("Forbidden\n"),
			events: []string{"file_missing " + testMAC + " mirror/debian/dists/x 0 not to be served"}},
		{name: "no such mirror", path: "/mirror/fedora/x", status: "404", body: []byte("Not Found\n"),
			events: []string{"file_missing " + testMAC + " mirror/fedora/x 0 the lab has no mirror of this name"}},
		{name: "dots", path: "/mirror/debian/pool/../../../etc/passwd", status: "404", body: []byte("Not Found\n"),
			events: []string{"file_missing " + testMAC + " mirror/debian/pool/../../../etc/passwd 0 nothing is served at this path"}},
		{name: "encoded dots", path: "/mirror/debian/pool/%2e%2e/%2e%2e/x", status: "404", body: []byte("Not Found\n"),
			events: []string{"file_missing " + testMAC + " mirror/debian/pool/../../x 0 nothing is served at this path"}},
		{name: "a listing", path: "/mirror/debian/pool/", status: "404", body: []byte("Not Found\n"),
			events: []string{"file_missing " + testMAC + " mirror/debian/pool/ 0 nothing is served at this path"}},
		{name: "another host", path: "/mirror/http://example.com/x", status: "404", body: []byte("Not Found\n"),
			events: []string{"file_missing " + testMAC + " mirror/http:/example.com/x 0 the lab has no mirror of this name"}},
		{name: "PUT", args: []string{"-X", "PUT"}, path: "/mirror/debian/pool/a.deb", status: "405", body: []byte("Method Not Allowed\n")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			header, got := curl(t, append(tt.args, w.url(tt.path))...)
			if len(tt.args) > 0 && tt.args[0] == "-I" {
				got = ""
			}
			if !strings.HasPrefix(header, "HTTP/1.1 "+tt.status+" ") || got != string(tt.body) {
				t.Errorf("%d bytes, want %d:\n%s", len(got), len(tt.body), header)
			}
			for _, line := range tt.has {
				if !strings.Contains(header, line+"\n") {
					t.Errorf("header lacks %q:\n%s", line, header)
				}
			}
			var question string
			select {
			case question = <-asked:
			default:
			}
			if question != tt.asked {
				t.Errorf("upstream was asked %q, want %q", question, tt.asked)
			}
			if diff := cmp.Diff(tt.events, w.events.settled(t, len(tt.events))); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
