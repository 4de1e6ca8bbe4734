package watchdog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatchdog: it is served while all servers answer. One that does not is logged first; then it is served no more, until the
// server answers again.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		stuck        [2]time.Duration // from when until when the server does not answer
		wantPings    [2]int           // at least, at most, of 40 tests
		stops, again bool
	}{
		{"all answer", [2]time.Duration{}, [2]int{40, 41}, false, false},
		{"one test is missed", [2]time.Duration{9500 * time.Millisecond, 10500 * time.Millisecond}, [2]int{38, 41}, false, false},
		{"stuck for ever", [2]time.Duration{9500 * time.Millisecond, time.Hour}, [2]int{10, 12}, true, false},
		{"stuck for a while", [2]time.Duration{9500 * time.Millisecond, 20 * time.Second}, [2]int{25, 35}, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				begin, pings, after := time.Now(), 0, 0
				ask := func(ctx context.Context) error {
					if since := time.Since(begin); since < tt.stuck[0] || since >= tt.stuck[1] {
						return nil
					}
					<-ctx.Done()
					return errors.New("no answer from 10.0.0.1:53")
				}
				w := &Watchdog{
					tests: []Test{{"tftpd", func(context.Context) error { return nil }}, {"dnsd", ask}}, every: time.Second,
					log: slog.New(slog.NewTextHandler(&log, nil)),
					alive: func() {
						pings++
						if strings.Contains(log.String(), "failed its self-test") && !strings.Contains(log.String(), "passes its self-test again") {
							after++
						}
					},
				}
				ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second+time.Millisecond)
				defer cancel()
				if err := w.Run(ctx); err != nil {
					t.Fatal(err)
				}
				if pings < tt.wantPings[0] || pings > tt.wantPings[1] || after > 0 {
					t.Errorf("served %d times, %d of them after the error; want %v", pings, after, tt.wantPings)
				}
				text := log.String()
				if got := strings.Contains(text, "level=ERROR msg=\"server failed its self-test"); got != tt.stops || got && !strings.Contains(text, "server=dnsd err=\"no answer from 10.0.0.1:53\"") {
					t.Errorf("log: %s", text)
				}
				if got := strings.Contains(text, "server passes its self-test again"); got != tt.again {
					t.Errorf("log: %s", text)
				}
			})
		})
	}
}

func TestReachable(t *testing.T) {
	t.Parallel()
	for socket, want := range map[string]string{
		"[::]:69": "127.0.0.1:69", "0.0.0.0:53": "127.0.0.1:53", "127.0.0.1:8080": "127.0.0.1:8080",
		"192.0.2.77:53": "", "/run/bootlab/admin.sock": "", // an address that this machine has lost; a Unix socket
	} {
		if got, ok := reachable(socket); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q, %v; want %q", socket, got, ok, want)
		}
	}
}
