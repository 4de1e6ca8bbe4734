package consolelog_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bootlab/bootlab/internal/observe/consolelog"
)

func TestFilter(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ in, want string }{
		"text":            {"login: grün 日本 🙂\r\n\t\a", "login: grün 日本 🙂\r\n\t\a"},
		"colours":         {"\x1b[1;31mred\x1b[0m\x1b[m", "\x1b[1;31mred\x1b[0m\x1b[m"},
		"firmware":        {"\x1bc\x1b[?7l\x1b[2J\x1b[0mSeaBIOS", "\x1bc\x1b[?7l\x1b[2J\x1b[0mSeaBIOS"},
		"line drawing":    {"\x1b(0lqk\x1b(B", "\x1b(0lqk\x1b(B"},
		"title":           {"a\x1b]0;rm -rf ~\x07b", "ab"},
		"clipboard":       {"a\x1b]52;c;cm0gLXJmIH4K\x1b\\b", "ab"},
		"device control":  {"a\x1bP$q\"p\x1b\\b", "ab"},
		"status report":   {"a\x1b[6nb\x1b[5nc", "abc"},
		"attributes":      {"a\x1b[cb\x1b[>cc\x1bZd\x05e", "abcde"},
		"window report":   {"a\x1b[21tb", "ab"},
		"mode report":     {"a\x1b[?1$pb", "ab"},
		"keyboard report": {"a\x1b[?ub", "ab"},
		"printing":        {"a\x1b[5ib", "ab"},
		"repeat":          {"a\x1b[999999999bb", "ab"},
		"CSI of one byte": {"a\x9b6nb", "a6nb"},
		"CSI in UTF-8":    {"a\u009b6nb", "a6nb"},
		"string in UTF-8": {"a\u009d52;c;eA==\u009cb", "a52;c;eA==b"},
		"not UTF-8":       {"a\xff\xfe\xe2\x82b\xc3", "ab"},
		"cancelled":       {"a\x1b[1\x1b[31mb\x1b]0;t\x18c", "a\x1b[31mbc"},
		"too long":        {"a\x1b[" + strings.Repeat("1;", 100) + "mb", "ab"},
		"NUL and DEL":     {"a\x00b\x7fc", "abc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f consolelog.Filter
			if got := f.Filter([]byte(tt.in)); string(got) != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestFilterReset(t *testing.T) {
	t.Parallel()
	var f consolelog.Filter
	if got := f.Reset(); bytes.Contains(got, []byte("1049")) {
		t.Errorf("%q leaves a screen that was not entered", got)
	}
	f.Filter([]byte("\x1b[?1049h"))
	if got := f.Reset(); !bytes.Contains(got, []byte("\x1b[?1049l")) {
		t.Errorf("%q does not leave the alternate screen", got)
	}
}

// dangerous is what must not reach a terminal: strings, what it answers, control characters of one byte.
var dangerous = regexp.MustCompile("\x1b[]PX^_Zk]|\x1b\\[[0-9;?]*[^0-9;?@ABCDEFGHJKLMPSTXZ`adefghlmrsu]|\x05")

// FuzzFilter: nothing dangerous passes, however the output is cut.
func FuzzFilter(f *testing.F) {
	f.Add([]byte("\x1b[1mlogin\x1b]0;t\x07"), 3)
	f.Add([]byte("a\u009b6n\xe2\x82\xac\x1b[\x1b[6n"), 2)
	f.Add([]byte("\x1b\x1b]52;\x1b[c\x18\x1bZ"), 4)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		var whole, parts consolelog.Filter
		out := whole.Filter(in)
		if cut = max(0, min(cut, len(in))); !bytes.Equal(append(parts.Filter(in[:cut]), parts.Filter(in[cut:])...), out) {
			t.Errorf("cut at %d, %q becomes another text", cut, in)
		}
		if !utf8.Valid(out) || bytes.ContainsFunc(out, func(r rune) bool { return r >= 0x80 && r < 0xa0 }) {
			t.Errorf("%q is no text in UTF-8 without control characters of one byte", out)
		}
		if found := dangerous.Find(out); found != nil {
			t.Errorf("%q passes in %q", found, out)
		}
	})
}
