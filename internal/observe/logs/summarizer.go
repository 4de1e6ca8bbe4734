package logs

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/repeats"
)

const (
	maxMessages = 48 // different lines that are known at a time, of all servers together
	maxAlike    = 3  // similar lines that are written before the next ones are counted: an interface goes up and down and up
)

// A Summarizer is the slog.Handler of the servers. Whoever sends packets can cause their lines: of many similar ones the first three
// are written at once, and the others as a summary, which is the last of them with more=312 over=10s. Lines are similar if they have the same
// message, source (mac, addr) and other attributes. Lines at level debug are not counted: an admin has asked for each of them.
type Summarizer struct {
	out slog.Handler
	*summaries
}

// summaries is what a Summarizer shares with those derived from it.
type summaries struct {
	mu      sync.Mutex
	limiter *repeats.Limiter[line]
	alarm   repeats.Alarm
}

// A line waits for a summary, with the handler that has its logger's attributes.
type line struct {
	out    slog.Handler
	record slog.Record
}

// NewSummarizer returns a handler that writes to out. A nil out is a bug and panics.
func NewSummarizer(out slog.Handler) *Summarizer {
	if out == nil {
		panic("logs: NewSummarizer: out is nil")
	}
	return &Summarizer{out, &summaries{limiter: repeats.New[line](repeats.Config{Burst: maxAlike, Keys: maxMessages})}}
}

// Enabled implements slog.Handler.
func (s *Summarizer) Enabled(ctx context.Context, level slog.Level) bool {
	return s.out.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (s *Summarizer) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Summarizer{s.out.WithAttrs(attrs), s.summaries}
}

// WithGroup implements slog.Handler.
func (s *Summarizer) WithGroup(name string) slog.Handler {
	return &Summarizer{s.out.WithGroup(name), s.summaries}
}

// Handle implements slog.Handler.
func (s *Summarizer) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo && !s.pass(r, s.out) {
		return nil
	}
	return s.out.Handle(ctx, r)
}

// pass reports whether a line is to be written now; if not, it is counted for a summary.
func (s *summaries) pass(r slog.Record, out slog.Handler) bool {
	key := keyOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limiter.Add(r.Time, key, line{out, r}) {
		return true
	}
	s.alarm.Set(r.Time, s.limiter.Next(), s.summarize)
	return false
}

// keyOf returns what a line has in common with its like.
func keyOf(r slog.Record) repeats.Key {
	k := repeats.Key{What: r.Message}
	var reason strings.Builder
	r.Attrs(func(a slog.Attr) bool {
		switch v := a.Value.Any().(type) {
		case netip.AddrPort:
			k.Addr = v.Addr().Unmap()
		case netip.Addr:
			k.Addr = v.Unmap()
		case lab.MAC:
			k.MAC = v
		case time.Duration, int64, uint64: // of the one line
		default:
			reason.WriteString(a.Value.String())
			reason.WriteByte(' ')
		}
		return true
	})
	k.Reason = reason.String()
	return k
}

func (s *summaries) summarize() {
	s.mu.Lock()
	s.alarm.Fired()
	now := time.Now()
	all := s.limiter.Due(now)
	s.alarm.Set(now, s.limiter.Next(), s.summarize)
	s.mu.Unlock()
	write(now, all)
}

// Flush writes all that was counted and is not written yet, such as before the daemon ends.
func (s *summaries) Flush() {
	s.mu.Lock()
	now := time.Now()
	all := s.limiter.Flush(now)
	s.mu.Unlock()
	write(now, all)
}

func write(now time.Time, all []repeats.Summary[line]) {
	for _, sum := range all {
		r := sum.Last.record.Clone()
		r.Time = now
		r.AddAttrs(slog.Int(KeyMore, sum.More), slog.Duration(KeyOver, sum.Over.Round(time.Millisecond)))
		_ = sum.Last.out.Handle(context.Background(), r) // there is nowhere to report that the log cannot be written
	}
}
