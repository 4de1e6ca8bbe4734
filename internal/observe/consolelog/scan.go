package consolelog

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// A Meaning is what a line of a console says about a boot.
type Meaning int

// The meanings of lines.
const (
	Nothing      Meaning = iota
	Panic                // the kernel panicked
	Emergency            // the system stopped in an emergency shell
	NoBootDevice         // the firmware found nothing to boot
)

// maxLine bounds the line that a Scanner keeps: what follows in a longer one is not looked at.
const maxLine = 512

// signs are parts of lines, in lower case, and what they mean. The first that a line has counts.
var signs = []struct {
	text    string
	meaning Meaning
}{
	{"kernel panic - not syncing", Panic},             // Linux
	{"no bootable device", NoBootDevice},              // SeaBIOS
	{"no bootable option or device", NoBootDevice},    // OVMF
	{"no more network devices", NoBootDevice},         // iPXE
	{"you are in emergency mode", Emergency},          // systemd
	{"entering emergency mode", Emergency},            // dracut
	{"press enter for emergency shell", Emergency},    // Fedora CoreOS, RHCOS
	{"dropping to a shell", Emergency},                // Debian's initramfs
	{"dropping to emergency shell", Emergency},        // dracut
	{"give root password for maintenance", Emergency}, // systemd-sulogin
}

// meaningOf returns what a line means.
func meaningOf(line string) Meaning {
	line = strings.ToLower(line)
	for _, s := range signs {
		if strings.Contains(line, s.text) {
			return s.meaning
		}
	}
	return Nothing
}

// A Scanner cuts the output of a console into lines without control sequences. The zero value is ready for use.
type Scanner struct {
	line  []byte
	state scanState
}

// A scanState is where in a control sequence (ECMA-48) the output is.
type scanState int

const (
	inText    scanState = iota
	inEscape            // after ESC
	inControl           // after ESC [: until a byte from @ to ~
	inString            // after ESC ], ESC P, ESC X, ESC ^ or ESC _: until BEL or ESC \
	inStringEscape
	inCharset // after ESC ( and its like: one byte
)

// Scan takes output and calls fn for each line that ends in it. Lines are valid UTF-8 of at most 512 bytes.
func (s *Scanner) Scan(output []byte, fn func(line string)) {
	for _, b := range output {
		if s.state != inText {
			s.state = s.state.next(b)
			continue
		}
		switch {
		case b == 0x1b:
			s.state = inEscape
		case b == '\n' || b == '\r':
			s.end(fn)
		case b == '\b' && len(s.line) > 0:
			s.line = s.line[:len(s.line)-1]
		case b == '\t', b >= ' ' && b != 0x7f:
			if len(s.line) < maxLine {
				s.line = append(s.line, b)
			}
		}
	}
}

// next returns where the output is after a byte of a control sequence.
func (s scanState) next(b byte) scanState {
	switch s {
	case inEscape:
		switch b {
		case '[':
			return inControl
		case ']', 'P', 'X', '^', '_':
			return inString
		case '(', ')', '*', '+', '#', '%', ' ':
			return inCharset
		case 0x1b:
			return inEscape
		}
	case inControl:
		if (b < '@' || b > '~') && b != '\n' {
			return inControl
		}
	case inString:
		switch b {
		case 0x07, '\n':
		case 0x1b:
			return inStringEscape
		default:
			return inString
		}
	}
	return inText // also after the end of a string, or a charset
}

func (s *Scanner) end(fn func(string)) {
	if len(s.line) == 0 {
		return
	}
	line := string(bytes.TrimRight(s.line, " \t"))
	s.line = s.line[:0]
	if !utf8.ValidString(line) {
		line = strings.ToValidUTF8(line, "�")
	}
	if line != "" {
		fn(line)
	}
}

// Plain returns output as text without control sequences, for a page or another terminal.
func Plain(output []byte) []byte {
	var s Scanner
	var out bytes.Buffer
	line := func(l string) { out.WriteString(l); out.WriteByte('\n') }
	s.Scan(output, line)
	s.end(line)
	return out.Bytes()
}
