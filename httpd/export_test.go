package httpd

import (
	"maps"
	"net/http"
	"slices"
)

// Trusted is the admin API as it answers on the Unix socket.
func (a *Admin) Trusted() http.Handler { return a.handler(bySocket) }

// Public is the admin API as it answers by TCP.
func (a *Admin) Public() http.Handler { return a.handler(byToken) }

// ParseHost is for fuzzing.
func ParseHost(s string) (string, error) { return parseHost(s) }

// QuestionPaths are the paths of all GETs of the API, below its prefix.
func QuestionPaths() []string { return slices.Sorted(maps.Keys((&Admin{}).questions(bySocket))) }
