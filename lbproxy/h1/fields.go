package h1

// A FieldKind is a field that the proxy itself understands.
type FieldKind int

// The kinds; FieldOther is every field that is passed on as it is.
const (
	FieldOther FieldKind = iota
	FieldHost
	FieldLength
	FieldEncoding
	FieldConnection
	FieldKeepAlive
	FieldProxyConnection
	FieldUpgrade
	FieldSettings
	FieldTE
	FieldExpect
	FieldForwarded
	FieldForwardedFor
	FieldForwardedHost
	FieldForwardedProto
	FieldForwardedPort
	FieldCookie
	FieldSetCookie
)

// KindOf returns the kind of a field name.
func KindOf(name []byte) FieldKind {
	want, kind := "", FieldOther
	switch len(name) {
	case 2:
		want, kind = "te", FieldTE
	case 4:
		want, kind = "host", FieldHost
	case 6:
		if name[0]|0x20 == 'e' {
			want, kind = "expect", FieldExpect
		} else {
			want, kind = "cookie", FieldCookie
		}
	case 7:
		want, kind = "upgrade", FieldUpgrade
	case 9:
		want, kind = "forwarded", FieldForwarded
	case 10:
		switch name[0] | 0x20 {
		case 'c':
			want, kind = "connection", FieldConnection
		case 'k':
			want, kind = "keep-alive", FieldKeepAlive
		case 's':
			want, kind = "set-cookie", FieldSetCookie
		}
	case 14:
		if name[0]|0x20 == 'c' {
			want, kind = "content-length", FieldLength
		} else {
			want, kind = "http2-settings", FieldSettings
		}
	case 15:
		want, kind = "x-forwarded-for", FieldForwardedFor
	case 16:
		switch name[len(name)-1] | 0x20 {
		case 'n':
			want, kind = "proxy-connection", FieldProxyConnection
		case 't':
			if name[12]|0x20 == 'h' {
				want, kind = "x-forwarded-host", FieldForwardedHost
			} else {
				want, kind = "x-forwarded-port", FieldForwardedPort
			}
		}
	case 17:
		if name[0]|0x20 == 't' {
			want, kind = "transfer-encoding", FieldEncoding
		} else {
			want, kind = "x-forwarded-proto", FieldForwardedProto
		}
	}
	if kind == FieldOther || !EqualFold(name, want) {
		return FieldOther
	}
	return kind
}

// EqualFold reports whether b is want, which is in lower case, in any ASCII case.
func EqualFold(b []byte, want string) bool {
	if len(b) != len(want) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != want[i] {
			return false
		}
	}
	return true
}

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
