package boot_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/bootlab/bootlab/internal/observe/event"
)

// TestMissingDocument: Ignition asks every few seconds until a document exists. It is one event for each reason and boot.
func TestMissingDocument(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "files", "worker.cfg")
	write(t, file, "fine")
	l, table := tableOf(t, dir, labFile)
	r := rigOf(t, l, table)
	token := r.token(t)
	insist := func(why string, want int) {
		t.Helper()
		r.events = nil
		for range 20 {
			_, err := r.Config(t.Context(), mac, token, "worker.cfg", addr)
			var status interface{ HTTPStatus() int }
			if !errors.As(err, &status) || status.HTTPStatus() != 503 {
				t.Fatalf("%s: %v, want 503", why, err)
			}
		}
		if len(r.events) != want || want > 0 && r.events[0].Kind != event.ConfigRefused {
			t.Errorf("%s: %d events, want %d: %+v", why, len(r.events), want, r.events)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	insist("not there", 1)
	insist("still not there", 0)
	write(t, file, "{{.Host.Vars.unset}}")
	insist("there, and broken", 1)
	if again := r.token(t); again != token {
		t.Fatalf("the machine starts again within 20 s: token %s, want %s", again, token)
	}
	insist("the machine started again with the same token", 1)
	write(t, file, "fine")
	if doc, err := r.Config(t.Context(), mac, token, "worker.cfg", addr); err != nil || string(doc.Body) != "fine" {
		t.Errorf("once it is there: %v, %v", doc, err)
	}
}
