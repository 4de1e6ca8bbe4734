package daemon

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api/redfish"
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
	m := newMediaLoader(nil, nil)
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
