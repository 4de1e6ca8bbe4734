package lbproxy

import (
	"bytes"
	"errors"
	"strings"
)

// errIncomplete says that the request head is incomplete so far.
var errIncomplete = errors.New("more bytes are needed")

// requestHost returns the canonical host that the HTTP/1 request at the start of b asks for: of an absolute target, else of
// the Host header (RFC 9112 section 3.2.2), empty if it has neither. It returns errIncomplete while the head is
// incomplete, errUnknownProtocol if b is no request.
func requestHost(b []byte) (string, error) {
	line, rest, whole := cutLine(b)
	target, err := requestTarget(line, whole)
	if err != nil {
		return "", err
	}
	if authority, ok := absolute(target); ok {
		return hostname(authority), nil
	}
	for {
		line, rest, whole = cutLine(rest)
		if !whole {
			return "", errIncomplete
		}
		if len(line) == 0 {
			return "", nil
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || len(name) == 0 || !token(name) {
			return "", errUnknownProtocol
		}
		if strings.EqualFold(string(name), "host") {
			return hostname(strings.Trim(string(value), " \t")), nil
		}
	}
}

// cutLine cuts the first line off b. CRLF and a bare LF both end one (RFC 9112 section 2.2).
func cutLine(b []byte) (line, rest []byte, whole bool) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return b, nil, false
	}
	return bytes.TrimSuffix(b[:i], []byte("\r")), b[i+1:], true
}

// requestTarget returns the target of a request line such as "GET / HTTP/1.1".
func requestTarget(line []byte, whole bool) (string, error) {
	method, rest, spaced := bytes.Cut(line, []byte(" "))
	if !token(method) || spaced && len(method) == 0 {
		return "", errUnknownProtocol
	}
	if !whole {
		return "", errIncomplete
	}
	target, version, ok := bytes.Cut(rest, []byte(" "))
	if !ok || len(target) == 0 || !bytes.HasPrefix(version, []byte("HTTP/1.")) {
		return "", errUnknownProtocol
	}
	return string(target), nil
}

// absolute returns the authority of a target in absolute form.
func absolute(target string) (string, bool) {
	_, rest, ok := strings.Cut(target, "://")
	if !ok || strings.HasPrefix(target, "/") {
		return "", false
	}
	authority, _, _ := strings.Cut(rest, "/")
	authority, _, _ = strings.Cut(authority, "?")
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		authority = authority[i+1:]
	}
	return authority, true
}

// token reports whether b holds only what a method or field name may (RFC 9110 section 5.6.2).
func token(b []byte) bool {
	for _, c := range b {
		alnum := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !alnum && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return true
}
