package httpd

import (
	"net/http"
	"net/netip"
	"time"
)

// Trusted is the admin API as it answers on the Unix socket.
func (a *Admin) Trusted() http.Handler { return a.handler(bySocket) }

// TryLogins tries n wrong tokens and returns how many were looked at.
func TryLogins(now func() time.Time, n int, from func(i int) netip.Addr) (looked int) {
	l := newLogins(now)
	for i := range n {
		if l.try(from(i), func() bool { return false }) == loginWrong {
			looked++
		}
	}
	return looked
}

// ParseHost is for fuzzing.
func ParseHost(s string) (string, error) { return parseHost(s) }
