package logs_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/logs"
)

// A summarized log is text without times.
func newSummarized() (*slog.Logger, *logs.Summarizer, *bytes.Buffer) {
	var out bytes.Buffer
	handler := logs.NewSummarizer(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	return slog.New(handler), handler, &out
}

// TestSummarizer: while the disk is bad, each DHCP packet fails. The log has the first failure of some machines, and how many there were.
func TestSummarizer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, _, out := newSummarized()
		log = log.With("server", "dhcpd")
		for i := range 1000 {
			log.Error("lease not stored", "mac", lab.MAC{2}, "addr", netip.MustParseAddr("10.0.0.7"), "err", errors.New("no space left"), "dur", time.Duration(i))
		}
		log.Info("interface is served", "iface", "br0")
		log.Info("interface is served", "iface", "br1")
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []string{
			`level=ERROR msg="lease not stored" server=dhcpd mac=02:00:00:00:00:00 addr=10.0.0.7 err="no space left" dur=0s`,
			`level=ERROR msg="lease not stored" server=dhcpd mac=02:00:00:00:00:00 addr=10.0.0.7 err="no space left" dur=1ns`,
			`level=ERROR msg="lease not stored" server=dhcpd mac=02:00:00:00:00:00 addr=10.0.0.7 err="no space left" dur=2ns`,
			`level=INFO msg="interface is served" server=dhcpd iface=br0`,
			`level=INFO msg="interface is served" server=dhcpd iface=br1`,
			`level=ERROR msg="lease not stored" server=dhcpd mac=02:00:00:00:00:00 addr=10.0.0.7 err="no space left" dur=999ns more=997 over=10s`,
		}
		if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(out.String()), "\n")); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

// TestSummarizerIsBounded: a flood from made-up machines writes some dozens of lines, not one for each machine.
func TestSummarizerIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, handler, out := newSummarized()
		for i := range 20_000 {
			log.Error("lease not stored", "mac", lab.MAC{2, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)}, "err", errors.New("no space left"))
			log.Warn("request failed", "addr", netip.MustParseAddrPort("10.0.0.8:1234"), "path", fmt.Sprint("/files/nosuch", i), "err", "disk")
		}
		handler.Flush()
		handler.Flush()
		if n := strings.Count(out.String(), "\n"); n > 120 {
			t.Errorf("%d lines for 40000 events", n)
		}
		more := 0
		for text := range strings.Lines(out.String()) {
			var n int
			if i := strings.Index(text, "more="); i >= 0 {
				if _, err := fmt.Sscanf(text[i:], "more=%d", &n); err != nil {
					t.Fatal(err)
				}
			} else {
				n = 1
			}
			more += n
		}
		if more != 40_000 {
			t.Errorf("lines and summaries stand for %d events, want 40000", more)
		}
	})
}

// TestSummarizerKeepsDebug: at level debug every line is written.
func TestSummarizerKeepsDebug(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(logs.NewSummarizer(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for range 5 {
		log.Debug("boot request")
	}
	if n := strings.Count(out.String(), "\n"); n != 5 {
		t.Errorf("%d lines, want 5", n)
	}
}
