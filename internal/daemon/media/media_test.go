package media

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bootlab/bootlab/internal/api/redfish"
	"github.com/bootlab/bootlab/internal/lab"
)

// TestMediaRefused: what is not an image of a known and allowed size, from a web server, does not get as far as a hypervisor.
func TestMediaRefused(t *testing.T) {
	t.Parallel()
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/to-file":
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/large":
			_, _ = w.Write(make([]byte, 1001))
		case "/unknown":
			w.(http.Flusher).Flush()
		default:
			http.NotFound(w, r)
		}
	}))
	defer files.Close()
	m := New(nil, nil, func(netip.AddrPort) error { return nil })
	for url, want := range map[string]string{
		files.URL + "/to-file": "unsupported protocol scheme",
		files.URL + "/loop":    "more than 5 redirects",
		files.URL + "/large":   "more than redfish.max_media (1000)",
		files.URL + "/unknown": "no Content-Length",
		files.URL + "/none":    "404",
		"file:///etc/passwd":   "unsupported protocol scheme",
	} {
		if err := m.load(t.Context(), "m1", redfish.Image{URL: url}, 1000); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}

// TestMediaAddressRefused: a server that media may not come from gets no request, whether its address stands in the URL, is what a name
// resolves to, or is that of a redirect.
func TestMediaAddressRefused(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	closed := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer closed.Close()
	open := httptest.NewServer(http.RedirectHandler(closed.URL, http.StatusFound))
	defer open.Close()
	at := netip.MustParseAddrPort(closed.Listener.Addr().String())
	errClosed := errors.New("refused by the test")
	m := New(nil, nil, func(a netip.AddrPort) error {
		if a.Port() == at.Port() {
			return errClosed
		}
		return nil
	})
	for _, url := range []string{closed.URL, strings.Replace(closed.URL, "127.0.0.1", "localhost", 1), open.URL} {
		if err := m.load(t.Context(), "m1", redfish.Image{URL: url}, 1000); !errors.Is(err, errClosed) {
			t.Errorf("%s: %v, want %q", url, err, errClosed)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the server had %d requests", n)
	}
}

// TestMediaAddress: media come neither from this machine itself nor from the links that it is on, except from bootlab's own HTTP server.
func TestMediaAddress(t *testing.T) {
	t.Parallel()
	admin := lab.Listen{netip.AddrPortFrom(netip.Addr{}, 9680), netip.MustParseAddrPort("198.51.100.1:9681")}
	own := func(a netip.Addr) bool { return a == netip.MustParseAddr("192.0.2.1") }
	for text, allowed := range map[string]bool{
		"127.0.0.1:80": false, "127.1.2.3:8080": false, "[::1]:8080": false, "[::ffff:127.0.0.1]:80": false, "0.0.0.0:80": false, "[::]:80": false,
		"169.254.169.254:80": false, "[fe80::1]:80": false, "[fe80::1%eth0]:80": false, "[::ffff:169.254.1.1]:80": false,
		"192.0.2.1:9680": false, "[::ffff:192.0.2.1]:9680": false, "198.51.100.1:9681": false,
		"192.0.2.1:8080": true, "192.0.2.2:9680": true, "198.51.100.1:80": true, "[2001:db8::1]:443": true,
	} {
		err := CheckAddress(admin, own, netip.MustParseAddrPort(text))
		if (err == nil) != allowed || err != nil && !strings.Contains(err.Error(), "may not be downloaded from") {
			t.Errorf("%s: %v, allowed: want %t", text, err, allowed)
		}
	}
}
