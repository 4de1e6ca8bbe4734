package daemon_test

import (
	"context"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

// A trap is a log handler that panics in the middle of a request that logs a certain line: a bug in a handler.
type trap struct {
	slog.Handler
	message string
}

func (h trap) Enabled(context.Context, slog.Level) bool { return true }

func (h trap) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.message {
		panic("the bug of this test")
	}
	return h.Handler.Handle(ctx, r)
}

func (h trap) WithAttrs(attrs []slog.Attr) slog.Handler {
	return trap{h.Handler.WithAttrs(attrs), h.message}
}

// TestPanicIsShown: a panic in a handler ends neither the daemon nor its server. It is counted in /readyz, the status and the metrics, and
// the log has its stack once.
func TestPanicIsShown(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.58.7.1")
	r.trap = "malformed request"
	r.start()
	conn, err := net.Dial("udp", "10.58.7.1:69")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	panics := func() string {
		return regexp.MustCompile(`(?m)^bootlab_panics_total\{server="tftpd"\} (.*)$`).FindString(r.get("http://10.58.7.1:9680/metrics"))
	}
	for _, want := range []string{"1", "2", "3"} {
		if _, err := conn.Write([]byte("\x00\x01")); err != nil {
			t.Fatal(err)
		}
		r.until("panic "+want+" is counted", func() bool { return strings.HasSuffix(panics(), " "+want) })
	}
	if body, want := r.get("http://10.58.7.1:9680/readyz"), "tftpd: degraded: panics contained: 3 (bootlab status says where)"; !strings.Contains(body, want) {
		t.Errorf("readyz lacks %q:\n%s", want, body)
	}
	s := r.status()
	if text := s.Warnings.Error(); !strings.Contains(text, "tftpd: panics contained: 3, the last at panics_test.go:") {
		t.Errorf("status: %s", text)
	}
	for _, server := range s.Servers {
		if n := map[string]int{"tftpd": 3}[server.Name]; server.Panics != n || !server.Serving && !server.Idle {
			t.Errorf("%+v, want %d panics", server, n)
		}
	}
	log := r.log.String()
	if n := strings.Count(log, "panic contained"); n != 1 || !strings.Contains(log, "the bug of this test") || strings.Count(log, "daemon_test.trap.Handle") != 1 {
		t.Errorf("the log has %d stacks, want 1:\n%s", n, log)
	}
}
