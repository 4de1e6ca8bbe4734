package lab

import "strings"

// IsName reports whether s can be the name of a network, profile, pool, hypervisor, balancer or role.
func IsName(s string) bool {
	for i := range len(s) {
		if c := s[i]; !IsAlnum(c) && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return s != "" && len(s) <= 255
}

// IsAlnum reports whether c is a letter or digit of ASCII.
func IsAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// IsLabel reports whether s is a host name of one label (RFC 1123 section 2.1).
func IsLabel(s string) bool {
	for i := range len(s) {
		if c := s[i]; !IsAlnum(c) && (c != '-' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return s != "" && len(s) <= 63
}

// MaxDomain is the length of the longest name that IsDomain accepts.
const MaxDomain = 252

// IsDomain reports whether s is a DNS name without a final dot: labels of letters, digits, '-' and '_'. RFC 2181 section 11 allows more, which
// is never intended.
func IsDomain(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if !IsLabel(strings.ReplaceAll(label, "_", "x")) {
			return false
		}
	}
	return len(s) <= MaxDomain
}
