package httpd_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/httpd"
	"github.com/bootlab/bootlab/internal/api"
)

// TestRenderedOnce: readers that ask at about the same time share one page, which is never older than two seconds and shows
// what an action changed.
func TestRenderedOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	now := noon()
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	c := &counter{fakeDaemon: newFakeDaemon()}
	handler := newAdmin(t, c.fakeDaemon, &logBuffer{}, func(d *httpd.AdminDeps) { d.Backend, d.Now = c, clock }).Trusted()
	read := func(method, path string) string {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Body.String()
	}
	shows := func(what string, generation int) {
		t.Helper()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if want := fmt.Sprintf("<b>%d</b><span>generation", generation); !strings.Contains(read(http.MethodGet, "/"), want) {
					t.Errorf("%s: not %q", what, want)
				}
			})
		}
		wg.Wait()
	}
	shows("first", 1)
	mu.Lock()
	now = now.Add(1999 * time.Millisecond)
	mu.Unlock()
	shows("still kept", 1)
	read(http.MethodGet, "/?q=worker") // 2: another page
	shows("beside another query", 1)
	mu.Lock()
	now = now.Add(time.Millisecond)
	mu.Unlock()
	shows("too old", 3)
	read(http.MethodPost, "/do/reload")
	shows("after an action", 4)
	read(http.MethodPost, api.Prefix+"reload")
	shows("after a request", 5)
	for i := range 100 { // nobody can fill the memory with queries
		read(http.MethodGet, fmt.Sprintf("/?q=%d", i))
	}
	if asked := c.asked.Load(); asked != 105 {
		t.Errorf("rendered %d times", asked)
	}
	shows("pushed out", 106)
}

// TestLeaseStream: without a limit the book is one array, however long; with one, a header leads to the next page.
func TestLeaseStream(t *testing.T) {
	t.Parallel()
	h := newFakeDaemon()
	h.leases = nil
	for i := range 10_001 {
		h.leases = append(h.leases, api.Lease{IP: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), MAC: macOf(1)})
	}
	handler := newAdmin(t, h, &logBuffer{}, func(*httpd.AdminDeps) {}).Trusted()
	read := func(path string) (all []api.Lease, next string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if err := json.Unmarshal(w.Body.Bytes(), &all); err != nil {
			t.Fatalf("%s: %v in %.300s", path, err, w.Body)
		}
		next, _, _ = strings.Cut(strings.TrimPrefix(w.Header().Get("Link"), "<"), `>; rel="next"`)
		return all, next
	}
	if all, next := read("/api/v1/leases"); !slices.Equal(all, h.leases) || next != "" {
		t.Errorf("%d leases, next %q", len(all), next)
	}
	if all, next := read("/api/v1/leases?host=nobody"); len(all) != 0 || all == nil || next != "" {
		t.Errorf("none: %v, next %q", all, next)
	}
	var got []api.Lease
	pages := 0
	for path := "/api/v1/leases?limit=3000&state=active"; path != ""; pages++ {
		var page []api.Lease
		page, path = read(path)
		got = append(got, page...)
	}
	if !slices.Equal(got, h.leases) || pages != 4 {
		t.Errorf("%d leases on %d pages", len(got), pages)
	}
	for _, bad := range []string{"limit=0", "limit=x", "limit=10001", "limit=1&cursor=x"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/leases?"+bad, nil))
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", bad, w.Code)
		}
	}
}
