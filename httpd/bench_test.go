package httpd_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/bootlab/bootlab/httpd"
)

// A sink is a ResponseWriter that keeps nothing.
type sink struct{ header http.Header }

func (s sink) Header() http.Header         { return s.header }
func (s sink) Write(b []byte) (int, error) { return len(b), nil }
func (s sink) WriteHeader(int)             {}
func (s sink) Flush()                      {}

// BenchmarkBoot is what a request costs beyond net/http itself.
func BenchmarkBoot(b *testing.B) {
	w := newBootServer(b, httpd.Limits{}, map[string][]byte{"images/vmlinuz": image(1024)})
	w.events.news = nil
	for name, path := range map[string]string{
		"script": "/boot/" + hyphens + "/boot.ipxe", "file": "/files/images/vmlinuz", "nothing": "/favicon.ico",
	} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			b.ReportAllocs()
			for b.Loop() {
				w.boot.ServeHTTP(sink{http.Header{}}, r)
			}
		})
	}
}
