package consolelog

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Filter lets a machine draw on an admin's terminal and do no more. It removes what sets the clipboard, titles or keys, prints, or makes
// the terminal answer: an answer is typed, in the end into the admin's shell. The zero value is ready for use.
type Filter struct {
	state scanState
	seq   []byte // of a control sequence or character that is not complete yet
	rest  int    // bytes that the character lacks
	other bool   // the alternate screen is shown
}

// maxSequence bounds a control sequence. Longer ones are removed.
const maxSequence = 64

// drawing are the last bytes of control sequences that move the cursor, edit, colour, scroll and set modes (ECMA-48, xterm).
const drawing = "@ABCDEFGHJKLMPSTXZ`adefghlmrsu"

// singles are the bytes after ESC of the sequences of two bytes that stay: save and restore, keypad, index, tab stop, reset.
const singles = "78=>DEHMc"

// Filter returns the part of output that may go to a terminal. A sequence may go on in the next output.
func (f *Filter) Filter(output []byte) []byte {
	out := make([]byte, 0, len(output)+len(f.seq))
	for _, b := range output {
		if f.state == inText {
			out = f.text(out, b)
			continue
		}
		out = f.control(out, b)
	}
	return out
}

// text takes a byte that is in no control sequence.
func (f *Filter) text(out []byte, b byte) []byte {
	if f.rest > 0 && b&0xc0 == 0x80 {
		f.seq = append(f.seq, b)
		if f.rest--; f.rest > 0 {
			return out
		}
		if r, _ := utf8.DecodeRune(f.seq); r != utf8.RuneError && r >= 0xa0 { // below are control characters, such as CSI
			out = append(out, f.seq...)
		}
		f.seq = f.seq[:0]
		return out
	}
	f.rest, f.seq = 0, f.seq[:0]
	switch {
	case b == 0x1b:
		f.state, f.seq = inEscape, append(f.seq, b)
	case b >= 0xc2 && b < 0xf5:
		f.rest, f.seq = 1, append(f.seq, b)
		if b >= 0xe0 {
			f.rest++
		}
		if b >= 0xf0 {
			f.rest++
		}
	case b >= ' ' && b < 0x7f, b >= 0x07 && b <= 0x0f:
		out = append(out, b)
	}
	return out
}

// control takes a byte of a control sequence.
func (f *Filter) control(out []byte, b byte) []byte {
	if b == 0x18 || b == 0x1a || b == 0x1b && f.state != inString && f.state != inStringEscape { // it is cancelled
		f.state, f.seq = inText, f.seq[:0]
		return f.text(out, b)
	}
	if len(f.seq) < maxSequence {
		f.seq = append(f.seq, b)
	}
	last := f.state
	f.state = f.state.next(b)
	if f.state != inText {
		return out
	}
	keep := false
	switch last {
	case inEscape:
		keep = strings.IndexByte(singles, b) >= 0
	case inControl:
		keep = len(f.seq) < maxSequence && f.draws(f.seq[2:])
	case inCharset:
		keep = b >= '0' && b <= '~'
	}
	if keep {
		out = append(out, f.seq...)
	}
	f.seq = f.seq[:0]
	return out
}

// draws reports whether a control sequence, without ESC [, only draws.
func (f *Filter) draws(seq []byte) bool {
	last := seq[len(seq)-1]
	args := seq[:len(seq)-1]
	if strings.IndexByte(drawing, last) < 0 || bytes.ContainsFunc(args, func(r rune) bool { return r < '0' && r != '?' || r > ';' && r != '?' }) {
		return false // intermediate bytes and private sequences ask and set keys, not h and l of modes
	}
	private := bytes.HasPrefix(args, []byte("?"))
	if private && last != 'h' && last != 'l' && last != 'J' && last != 'K' || bytes.Contains(bytes.TrimPrefix(args, []byte("?")), []byte("?")) {
		return false
	}
	for mode := range bytes.SplitSeq(bytes.TrimPrefix(args, []byte("?")), []byte(";")) {
		if private && slices.Contains([]string{"47", "1047", "1049"}, string(mode)) {
			f.other = last == 'h'
		}
	}
	return true
}

// Reset returns what makes a terminal usable again after the machine: its modes, colours, cursor and character set, and the screen that
// was there before.
func (f *Filter) Reset() []byte {
	reset := "\x1b[?1;9;1000;1001;1002;1003;1004;1005;1006;1015;2004l\x1b>\x1b[4l\x1b[?7;25h\x1b[r\x1b[0m\x1b(B\x0f"
	if f.other {
		reset = "\x1b[?1049l" + reset
	}
	return []byte(reset)
}
