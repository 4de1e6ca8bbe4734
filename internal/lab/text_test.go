package lab_test

import (
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

func TestTexts(t *testing.T) {
	t.Parallel()
	got := map[string]string{}
	for d, want := range map[time.Duration]string{0: "0s", 12 * time.Hour: "12h", 90 * time.Minute: "1h30m", 10 * time.Second: "10s", time.Minute: "1m", time.Hour + time.Second: "1h0m1s", 1500 * time.Microsecond: "1.5ms"} {
		got[want] = lab.DurationText(d)
	}
	for n, want := range map[lab.Size]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 3 << 30: "3.0 GiB", 9 << 50: "9216.0 TiB"} {
		got[want] = n.Rounded()
	}
	for in, want := range map[string]string{"a\tb\nc": "a b c", "\x1b[2J": "\uFFFD[2J", "a\u202eb": "a\uFFFDb", "\xff\x9b": "\uFFFD\uFFFD", "Ä\u2028": "Ä "} {
		got[want] = lab.Printable(in)
	}
	for in, want := range map[string]string{" a\t\x00\x1b b ": "a b", "\u202e\xff": "", "123456789": "12345678", "1234567ü": "1234567", "1234567 9": "1234567"} {
		got[want] = lab.Tidy(in, 8)
	}
	for in, want := range map[string]string{"1234": "1234", "123ü": "123…", "12345": "1234…"} {
		got[want] = lab.Shortened(in, 4)
	}
	for in, want := range map[string]string{"https://a:b@c/d": "https://a:xxxxx@c/d", "%zz": "a URL"} {
		got[want] = lab.Redacted(in)
	}
	for want, got := range got {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for s, want := range map[string]bool{"http://a/b": true, "https://a": true, "http:///b": false, "ftp://a/b": false, "file:///b": false, "a": false, "%zz": false} {
		if lab.IsWeb(s) != want {
			t.Errorf("%s: %v, want %v", strings.TrimSpace(s), !want, want)
		}
	}
}
