package main

import (
	"strings"
	"testing"
)

// TestScreen: what is drawn replaces what was drawn before, and lines are as narrow as the terminal.
func TestScreen(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	s := screen{w: &b, fd: -1} // of no known width: 80 columns
	s.draw("one\ntwo\n")
	s.draw(strings.Repeat("ä", 90) + "\n")
	s.clear()
	s.clear()
	if want := "one\ntwo\n\x1b[2A\x1b[J" + strings.Repeat("ä", 78) + "…\n\x1b[1A\x1b[J"; b.String() != want {
		t.Errorf("drew %q, want %q", b.String(), want)
	}
	if newScreen(&b) != nil {
		t.Error("a builder is no terminal")
	}
}
