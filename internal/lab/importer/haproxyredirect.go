package importer

import (
	"slices"
	"strings"
)

// A proxyRedirect is a redirect to https of requests without TLS.
type proxyRedirect struct {
	at     place
	only   mapping   // the requests that it redirects; empty: all
	except []mapping // but not these
}

// redirects returns the redirects of a frontend to https, in the order of the file. Others are noted.
func (h *haproxy) redirects(f *proxySection) (found []proxyRedirect) {
	for _, l := range f.lines {
		w := l.words
		if w[0] == "http-request" {
			w = w[1:]
		}
		if w[0] != "redirect" {
			continue
		}
		toHTTPS := len(w) > 2 && w[1] == "scheme" && w[2] == "https"
		if !toHTTPS {
			note := h.note
			if f.restricts(w) {
				note = h.weaker
			}
			note(l.at, "the only redirect is that to https: it is left out")
			continue
		}
		if !f.isHTTP() {
			h.note(l.at, "a redirect needs mode http: it is left out")
			continue
		}
		r, why := h.redirect(f, l.at, w[3:])
		if why != "" {
			h.weaker(l.at, "%s: it is left out, and requests without TLS get to the backends", why)
			continue
		}
		h.redirectOptions(l.at, w[3:])
		for _, m := range append(slices.Clone(r.except), r.only) {
			if m.get("sni") != nil {
				h.note(l.at, "%s", sniIsHost)
			}
			h.pathBegins(l, &m)
		}
		found = append(found, r)
	}
	return found
}

// redirectOptions notes what a redirect to https does otherwise than here. Its condition is the end of w.
func (h *haproxy) redirectOptions(at place, w []string) {
	code := "302" // the default
	for len(w) > 0 && w[0] != "if" && w[0] != "unless" {
		switch {
		case w[0] == "code" && len(w) > 1:
			code, w = w[1], w[1:]
		case (w[0] == "set-cookie" || w[0] == "clear-cookie") && len(w) > 1:
			h.note(at, "%s is left out", w[0])
			w = w[1:]
		default:
			h.note(at, "%s is left out", clip(w[0]))
		}
		w = w[1:]
	}
	if code != "301" {
		h.note(at, "HAProxy redirects with %s, bootlab with 301 (GET, HEAD) or 308, which browsers keep", clip(code))
	}
}

// redirect reads the condition of the redirect to https at a place. It returns what cannot be carried; "" if all is.
func (h *haproxy) redirect(f *proxySection, at place, w []string) (r proxyRedirect, why string) {
	r.at = at
	i := slices.IndexFunc(w, func(s string) bool { return s == "if" || s == "unless" })
	if i < 0 {
		return r, ""
	}
	terms, either, why := f.terms(w[i+1:])
	unless := w[i] == "unless"
	switch {
	case why != "":
		return r, why
	case unless && len(terms) > 1 && !either, !unless && either:
		return r, "a redirect is for all of its conditions, not for one or the other"
	}
	for _, t := range terms {
		negated := t.negated != unless
		if len(t.tests) == 1 && slices.Equal(t.tests[0], []string{"ssl_fc"}) {
			if !negated {
				return r, "requests with TLS are not redirected to TLS"
			}
			continue
		}
		var m mapping
		for _, test := range t.tests {
			if why := h.test(at, test, &m, anyOf); why != "" {
				return r, why
			}
		}
		switch only, ok := both(&r.only, &m); {
		case len(m.entries) > 1:
			return r, "a balancer matches one of hosts and one of paths, not one or the other"
		case negated:
			r.except = append(r.except, m)
		case !ok:
			return r, "two conditions exclude each other"
		default:
			r.only = only
		}
	}
	if len(r.only.entries) > 0 && len(r.except) > 0 {
		return r, "a redirect is for some requests, or for all but some"
	}
	return r, ""
}

// A proxyTerm is one term of a condition: tests of which one must hold, or none.
type proxyTerm struct {
	negated bool
	tests   [][]string
}

// terms reads a condition. Either says that one of the terms must hold, and not all.
func (s *proxySection) terms(words []string) (all []proxyTerm, either bool, why string) {
	negated := false
	for ; len(words) > 0; words = words[1:] {
		w := words[0]
		if w == "or" || w == "||" {
			either = true
			continue
		}
		if rest, found := strings.CutPrefix(w, "!"); found {
			negated, w = !negated, rest
		}
		t := proxyTerm{negated: negated}
		switch w {
		case "":
			continue // "!" alone, or a blank between it and what it negates
		case "{":
			end := slices.Index(words, "}")
			if end < 0 {
				return nil, either, "a brace is missing"
			}
			t.tests, words = [][]string{words[1:end]}, words[end:]
		default:
			for _, acl := range s.all("acl", w) {
				t.tests = append(t.tests, acl.words[2:])
			}
			if len(t.tests) == 0 {
				return nil, either, "there is no acl " + clip(w)
			}
		}
		all, negated = append(all, t), false
	}
	return all, either, ""
}

// apply returns where requests without TLS go, with a redirect before the routes.
func (r proxyRedirect) apply(routes []proxyRoute) (all []proxyRoute) {
	to := proxyRoute{at: r.at, redirect: true, match: r.only}
	if len(r.only.entries) == 0 {
		for _, route := range routes {
			if route.redirect {
				all = append(all, route)
				continue
			}
			for _, e := range r.except {
				if m, ok := both(&route.match, &e); ok {
					all = append(all, proxyRoute{at: route.at, backend: route.backend, match: m})
				}
			}
		}
		return distinct(append(all, to))
	}
	all = append(all, to)
	for _, route := range routes {
		m, ok := both(&route.match, &r.only)
		if route.redirect || !ok || m.key() != route.match.key() {
			all = append(all, route)
		}
		if !route.redirect && ok {
			all = append(all, proxyRoute{at: r.at, redirect: true, match: m})
		}
	}
	return distinct(all)
}

// distinct removes routes with the match of an earlier one.
func distinct(routes []proxyRoute) []proxyRoute {
	seen := map[string]bool{}
	return slices.DeleteFunc(routes, func(r proxyRoute) bool {
		again := seen[r.match.key()]
		seen[r.match.key()] = true
		return again
	})
}

// key returns a match as a text that tells it from others.
func (m *mapping) key() string {
	var parts []string
	for _, e := range m.entries {
		values := texts(e.list)
		slices.Sort(values)
		parts = append(parts, e.key+"="+strings.Join(values, ","))
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// both returns what two matches have in common; false: nothing.
func both(a, b *mapping) (m mapping, ok bool) {
	for _, key := range []string{"sni", "host", "path"} {
		x, y := a.get(key), b.get(key)
		switch {
		case x == nil && y == nil:
			continue
		case x == nil:
			x = y
		case y != nil:
			common := &entry{key: key}
			for _, v := range texts(x.list) {
				for _, w := range texts(y.list) {
					if within(key, v, w) {
						common.list = append(common.list, &entry{text: v})
					} else if within(key, w, v) {
						common.list = append(common.list, &entry{text: w})
					}
				}
			}
			x = common
		}
		if len(x.list) == 0 {
			return m, false
		}
		m.needList(key, place{}, texts(x.list)...)
	}
	return m, true
}

// within reports whether all that a name or path v matches is matched by w, too.
func within(key, v, w string) bool {
	if key == "path" {
		return strings.HasPrefix(strings.TrimRight(v, "/")+"/", strings.TrimRight(w, "/")+"/")
	}
	v, w = strings.ToLower(v), strings.ToLower(w)
	return v == w || strings.HasPrefix(w, "*.") && strings.HasSuffix(v, w[1:])
}
