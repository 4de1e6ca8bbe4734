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
