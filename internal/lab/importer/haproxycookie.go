package importer

import (
	"slices"
	"strings"
)

// sticky carries a cookie that keeps clients at their backend.
func (h *haproxy) sticky(m *mapping, s *proxySection) {
	l, v, ok := s.value("cookie")
	if !ok || len(v) == 0 {
		return
	}
	name := v[0]
	if !slices.Contains(v, "insert") { // it is the application's, whose sessions would end
		name += "_BACKEND"
		h.note(l.at, "the application's cookie is not changed: sticky sets one of its own, %s", name)
	}
	m.set("sticky", l.at, name)
	var left []string
	for _, word := range v[1:] {
		if listed("domain maxidle maxlife preserve postonly attr dynamic", word) {
			left = append(left, word)
		}
	}
	if len(left) > 0 {
		h.note(l.at, "%s of the cookie is left out", strings.Join(left, ", "))
	}
}
