package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// A screen is text on a terminal that is drawn over again and again.
type screen struct {
	w     io.Writer
	fd    int
	drawn int // lines that are on the terminal
}

// newScreen returns nil if w is no terminal.
func newScreen(w io.Writer) *screen {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return &screen{w: w, fd: int(f.Fd())}
}

// draw writes lines over those that it wrote before.
func (s *screen) draw(text string) {
	width, _, err := term.GetSize(s.fd)
	if err != nil {
		width = 80
	}
	s.clear()
	s.drawn = strings.Count(text, "\n")
	fmt.Fprint(s.w, clip(text, width))
}

// clear removes what draw wrote.
func (s *screen) clear() {
	if s.drawn > 0 {
		fmt.Fprintf(s.w, "\x1b[%dA\x1b[J", s.drawn)
		s.drawn = 0
	}
}

// clip cuts lines to the width of a terminal, so that each is one line there. One that is cut ends with an ellipsis.
func clip(text string, width int) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if r := []rune(line); len(r) >= width && width > 1 {
			lines[i] = string(r[:width-2]) + "…"
		}
	}
	return strings.Join(lines, "\n")
}
