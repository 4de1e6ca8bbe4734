package dnsd

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// A logBuffer is a log that is read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logBuffer) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), part)
}

// TestSilentForwarders: that all servers of a rule are silent is measured without a client, and so is that one of them answers again. The log says
// each once. A server that refuses a question is alive, and one of two is enough.
func TestSilentForwarders(t *testing.T) {
	t.Parallel()
	var silent atomic.Bool
	server := func() *fakeServer {
		return newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg {
			if silent.Load() {
				return nil
			}
			return new(dns.Msg).SetRcode(q, dns.RcodeRefused)
		})
	}
	one, two := server(), server()
	log := &logBuffer{}
	table := compile(t, forwardingLab(one.addr, two.addr))
	s, err := New(Config{ForwardTimeout: 2 * time.Second}, Deps{
		Table: func() *Table { return table }, Now: time.Now, Log: slog.New(slog.NewTextHandler(log, nil)), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.ServeChanges(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	rule := func() ForwardRule {
		for _, r := range s.Forwards(table) {
			if r.Key() == "dns.forward" {
				return r
			}
		}
		return ForwardRule{}
	}
	drain := func() {
		for _, u := range []*fakeServer{one, two} {
			for len(u.asked) > 0 {
				<-u.asked
			}
		}
	}
	netns.WaitFor(t, "both to be measured", func() bool { drain(); r := rule(); return r.Answering == 2 && r.Err == nil && !r.Since.IsZero() })
	silent.Store(true)
	s.forward.servers.update(upstream{addr: one.addr}, func(s *serverState, now time.Time) { s.replied = now.Add(-2 * repliedWithin) })
	s.forward.loopTests.mu.Lock()
	clear(s.forward.loopTests.asked) // ten minutes later
	s.forward.loopTests.mu.Unlock()
	netns.WaitFor(t, "both to be silent", func() bool {
		drain()
		r := rule()
		return r.Err != nil && r.Answering == 0 && strings.Contains(r.Err.Error(), "i/o timeout") && log.count("no upstream answers") == 1
	})
	silent.Store(false)
	netns.WaitFor(t, "one to answer", func() bool {
		drain()
		return rule().Err == nil && log.count("answers again") == 1
	})
	if n := log.count("upstream answers"); n != 2 {
		t.Errorf("%d lines in the log, want 2", n)
	}
}
