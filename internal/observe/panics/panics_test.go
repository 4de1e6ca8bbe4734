package panics_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/bootlab/bootlab/internal/observe/panics"
)

// TestContained: each panic is counted, and the first of each place is in the log, with its stack and without secrets.
func TestContained(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	registry := prometheus.NewRegistry()
	all, err := panics.New(registry, slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s := all.Server("dhcpd")
	for range 5 {
		func() {
			defer s.Contain()
			var table []int
			_ = table[len(out.String())+3]
		}()
	}
	func() {
		defer func() { s.Note(recover(), "SECRET") }()
		panic("another place, SECRET")
	}()
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Errorf("%d lines, want one for each place:\n%s", n, &out)
	}
	for _, want := range []string{"index out of range", "panics_test.go:", "TestContained", "another place, …"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, &out)
		}
	}
	if c := all.Counts()["dhcpd"]; c.N != 6 || !strings.HasPrefix(c.Place, "panics_test.go:") || len(all.Counts()) != 1 {
		t.Errorf("counts %+v", all.Counts())
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader("# HELP bootlab_panics_total Panics that were contained: each is a bug of bootlab, and the log has its stack.\n"+
		"# TYPE bootlab_panics_total counter\nbootlab_panics_total{server=\"dhcpd\"} 6\n")); err != nil {
		t.Error(err)
	}
}

// TestLoop: a background loop that panics goes on after a pause, until it returns or its context ends.
func TestLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := panics.LogOnly(slog.New(slog.DiscardHandler), "timeline")
		calls := 0
		s.Loop(t.Context(), func() {
			if calls++; calls < 4 {
				panic("a bug")
			}
		})
		if calls != 4 {
			t.Errorf("%d calls, want three that panic and one that returns", calls)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		calls = 0
		s.Loop(ctx, func() { calls++; panic("always") })
		if calls < 10 || calls > 1000 {
			t.Errorf("%d calls in an hour, want pauses of up to 10 s", calls)
		}
		if err := s.Run(func() error { panic("one") }); !errors.Is(err, panics.ErrPanic) {
			t.Errorf("run = %v", err)
		}
	})
}
