package httpd_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/httpd"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/test/support/netns"
)

// A counter is a daemon whose generation grows each time it is asked.
type counter struct {
	*fakeDaemon
	asked   atomic.Uint64
	fetched atomic.Int32 // pages
}

func (c *counter) Status(ctx context.Context) api.Status {
	s := c.fakeDaemon.Status(ctx)
	s.Generation = c.asked.Add(1)
	return s
}

// TestLiveRefresh lets a real browser stay on a page: its script and style pass the page's own security policy, and the
// numbers move without a reload.
func TestLiveRefresh(t *testing.T) {
	t.Parallel()
	netns.Need(t, "chromium")
	c := &counter{fakeDaemon: newFakeDaemon()}
	admin := newAdmin(t, c.fakeDaemon, &logBuffer{}, func(d *httpd.AdminDeps) {
		d.Backend, d.Now = c, func() time.Time { return noon().Add(4 * time.Second * time.Duration(c.fetched.Load())) }
	})
	var static atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/static/") {
			static.Add(1)
		} else {
			c.fetched.Add(1) // the browser's time is virtual, and so is the server's: four seconds a page
		}
		admin.Trusted().ServeHTTP(w, r)
	}))
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
		"--user-data-dir="+t.TempDir(), "--virtual-time-budget=13000", "--dump-dom", srv.URL+"/").Output()
	if err != nil {
		t.Fatal(err)
	}
	if asked := c.asked.Load(); asked < 3 || !strings.Contains(string(out), "<b>master-0</b>") || strings.Contains(string(out), "<b>1</b><span>generation") {
		t.Errorf("the page was fetched %d times and shows\n%.3000s", asked, out)
	}
	if n := static.Load(); n < 3 {
		t.Errorf("%d of style, script and icon were fetched", n)
	}
}
