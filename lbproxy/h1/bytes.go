package h1

// Classes of bytes.
const (
	classToken  = 1 << iota // RFC 9110 section 5.6.2
	classText               // of a field value: no control character but the tab
	classTarget             // visible ASCII without "#", which starts a fragment
	classHost               // RFC 3986 section 3.2, without userinfo
)

var classes = func() (table [256]uint8) {
	set := func(class uint8, chars string) {
		for i := range len(chars) {
			table[chars[i]] |= class
		}
	}
	const alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	set(classToken, alphanumeric+"!#$%&'*+-.^_`|~")
	set(classHost, alphanumeric+"-._~%!$&'()*+;=:[]")
	for c := range 256 {
		if c == '\t' || c >= ' ' && c != 0x7f {
			table[c] |= classText
		}
		if c > ' ' && c < 0x7f && c != '#' {
			table[c] |= classTarget
		}
	}
	return table
}()

func all(b []byte, class uint8) bool {
	for _, c := range b {
		if classes[c]&class == 0 {
			return false
		}
	}
	return true
}

// IsToken reports whether b is a token (RFC 9110 section 5.6.2).
func IsToken(b []byte) bool { return len(b) > 0 && all(b, classToken) }

// IsTarget reports whether b has only bytes that a request target may have.
func IsTarget(b []byte) bool { return len(b) > 0 && all(b, classTarget) }

// IsText reports whether b may be a field's value: it has no control character but the tab.
func IsText(b []byte) bool { return all(b, classText) }

// IsHost reports whether b has only bytes that a host with a port may have.
func IsHost(b []byte) bool { return all(b, classHost) }

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

func isDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}

// TrimSpace removes spaces and tabs, and nothing else, from both ends.
func TrimSpace(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && isSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

// parseVersion returns the minor version of HTTP/1.
func parseVersion(b []byte) (minor int, ok bool) {
	if len(b) != 8 || string(b[:7]) != "HTTP/1." || b[7] < '0' || b[7] > '9' {
		return 0, false
	}
	return int(b[7] - '0'), true
}

// parseLength parses a Content-Length: digits only.
func parseLength(b []byte) (n int64, ok bool) {
	if !isDigits(b) || len(b) > 18 {
		return 0, false
	}
	for _, c := range b {
		n = 10*n + int64(c-'0')
	}
	return n, true
}
