package httpd_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/bootlab/bootlab/httpd"
)

// TestInitramfsAsksAgain: dracut's way with curl, which takes 404 for the last word, comes back for an image that is not pulled yet, after
// as many seconds as it is told.
func TestInitramfsAsksAgain(t *testing.T) {
	t.Parallel()
	w := newBootServer(t, httpd.Limits{}, map[string][]byte{"images/vmlinuz": nil})
	url := w.url("/files/public/fcos/kernel")
	pulled := make(chan struct{})
	go func() {
		defer close(pulled)
		select {
		case <-w.events.news: // told that it was asked for
			write(t, filepath.Join(w.dir, "public/fcos/kernel"), []byte("kernel"))
		case <-t.Context().Done():
		}
	}()
	at := time.Now()
	_, body := curl(t, "--globoff", "--location", "--retry", "3", "--retry-connrefused", "--fail", "--show-error", url)
	<-pulled
	if body != "kernel" {
		t.Errorf("it has %q", body)
	}
	if took := time.Since(at); took < 4*time.Second {
		t.Errorf("it came back after %v, want after the 5 s of Retry-After", took)
	}
}
