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

// width returns the columns of the terminal.
func (s *screen) width() int {
	width, _, err := term.GetSize(s.fd)
	if err != nil {
		return 80
	}
	return width
}

// widthOf returns the columns of w; 0: it is no terminal.
func widthOf(w io.Writer) int {
	if s := newScreen(w); s != nil {
		return s.width()
	}
	return 0
}

// wrap breaks text at blanks into lines of at most width columns, as far as its words allow. With a width below 1 the text is one line.
func wrap(text string, width int) (lines []string) {
	for width > 0 {
		end := cut(text, width)
		if end == len(text) {
			break
		}
		at := strings.LastIndexByte(text[:end+1], ' ')
		if at <= 0 {
			if at = strings.IndexByte(text, ' '); at <= 0 {
				break
			}
		}
		lines = append(lines, text[:at])
		text = text[at+1:]
	}
	return append(lines, text)
}

// draw writes lines over those that it wrote before.
func (s *screen) draw(text string) {
	s.clear()
	s.drawn = strings.Count(text, "\n")
	fmt.Fprint(s.w, clip(text, s.width()))
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
		if cells(line) >= width && width > 1 {
			lines[i] = line[:cut(line, width-2)] + "…"
		}
	}
	return strings.Join(lines, "\n")
}
