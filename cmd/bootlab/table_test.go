package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestTable: at every width of a terminal MACs, addresses and names are whole, and lines as narrow as their words allow.
func TestTable(t *testing.T) {
	t.Parallel()
	header := func() []string { return []string{"HOST", "MAC", "ADDRESS", "LAST REQUEST", "REASON"} }
	rows := func() [][]string {
		return [][]string{
			{"master-0.server.our.pretty.lab", "52:54:00:00:02:01", "192.168.16.21", "2026-11-27 10:11:12", "no answer to any of its checks since the switch was restarted"},
			{"机架-7", "52:54:00:00:02:02", "fd00:16::21", "", "e\u0301te\u0301"},
		}
	}
	for width := range 140 {
		var b strings.Builder
		if err := writeLines(&b, layTable(header(), rows(), width)); err != nil {
			t.Fatal(err)
		}
		out := b.String()
		for _, whole := range []string{"master-0.server.our.pretty.lab", "52:54:00:00:02:01", "192.168.16.21", "机架-7", "fd00:16::21", "switch"} {
			if !strings.Contains(out, whole) {
				t.Errorf("width %d: %s is broken or missing in\n%s", width, whole, out)
			}
		}
		const longest = len("host: master-0.server.our.pretty.lab")
		for line := range strings.Lines(out) {
			if n := cells(strings.TrimSuffix(line, "\n")); width > 0 && n > max(width, longest) {
				t.Errorf("width %d: a line has %d columns in\n%s", width, n, out)
			}
		}
		const words = 30 + 17 + 13 + 10 + 9 + 4*2 // the longest of each column
		if blocks := !strings.HasPrefix(out, "HOST "); blocks != (width > 0 && width < words) {
			t.Errorf("width %d: blocks %t\n%s", width, blocks, out)
		}
	}
	for _, tt := range []struct {
		width int
		want  string
	}{
		{0, "NAME    IP        REASON\n机架-7  10.0.0.1  a b c\né       -         d\n"},
		{24, "NAME    IP        REASON\n机架-7  10.0.0.1  a b c\né       -         d\n"},
		{20, "name: 机架-7\nip: 10.0.0.1\nreason: a b c\n\nname: é\nip: -\nreason: d\n"},
		{8, "name:\n  机架-7\nip:\n  10.0.0.1\nreason:\n  a b c\n\nname: é\nip: -\nreason:\n  d\n"},
	} {
		var b strings.Builder
		_ = writeLines(&b, layTable([]string{"NAME", "IP", "REASON"}, [][]string{{"机架-7", "10.0.0.1", "a b c"}, {"e\u0301", "", "d"}}, tt.width)) // a builder takes everything
		if got := strings.ReplaceAll(b.String(), "e\u0301", "é"); got != tt.want {
			t.Errorf("width %d:\n%swant\n%s", tt.width, got, tt.want)
		}
	}
}

// TestCells says how wide texts are on a terminal, and that what is cut to a width is not wider.
func TestCells(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"": 0, "abc": 3, "é": 1, "e\u0301": 1, "机架": 4, "ｶ": 1, "カ": 2} {
		if got := cells(text); got != want {
			t.Errorf("%q has %d cells, want %d", text, got, want)
		}
	}
	for width := range 12 {
		if got := clip("机架机架", width); width > 1 && cells(got) >= width && cells(got) > 0 {
			t.Errorf("clipped to %d: %q", width, got)
		}
	}
	if got, want := fmt.Sprintf("%q", wrap("机架 机架 a", 5)), `["机架" "机架" "a"]`; got != want {
		t.Errorf("wrapped to %s, want %s", got, want)
	}
}
