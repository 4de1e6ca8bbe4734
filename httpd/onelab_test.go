package httpd_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/httpd"
	"github.com/bootlab/bootlab/internal/api"
)

// A reloading daemon puts another lab in force, which has the host "after", while it is asked for hosts for the first time.
type reloading struct {
	*fakeDaemon
	reloaded bool
}

func (d *reloading) Generation() uint64 { return d.Status(context.Background()).Generation }

func (d *reloading) Status(ctx context.Context) api.Status {
	s := d.fakeDaemon.Status(ctx)
	if s.Generation = 7; d.reloaded {
		s.Generation++
	}
	return s
}

func (d *reloading) Hosts(context.Context) []api.Host {
	d.reloaded = true
	return []api.Host{{Name: "after"}}
}

// TestPageOfOneLab: a page that is collected while a lab is put in force shows that one alone.
func TestPageOfOneLab(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/", "/hosts/after"} {
		d := &reloading{fakeDaemon: newFakeDaemon()}
		admin := newAdmin(t, d.fakeDaemon, &logBuffer{}, func(deps *httpd.AdminDeps) { deps.Backend = d })
		w := httptest.NewRecorder()
		admin.Trusted().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if page := w.Body.String(); !strings.Contains(page, "after") || path == "/" && !strings.Contains(page, "<b>8</b><span>generation") {
			t.Errorf("%s is of two labs:\n%s", path, page)
		}
	}
}
