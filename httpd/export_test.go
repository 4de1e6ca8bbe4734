package httpd

import (
	"net/http"
)

// Trusted is the admin API as it answers on the Unix socket.
func (a *Admin) Trusted() http.Handler { return a.handler(bySocket) }

// ParseHost is for fuzzing.
func ParseHost(s string) (string, error) { return parseHost(s) }
