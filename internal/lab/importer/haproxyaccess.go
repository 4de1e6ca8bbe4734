package importer

import (
	"slices"
	"strings"
)

const (
	refusesNothing = "bootlab refuses no client and no request: keep them out by a firewall, or at the backends"
	limitsNoRate   = "bootlab limits no rate of connections or requests"
	fixedTLS       = "cipher suites and curves are not configurable"
	oldTLS         = "TLS 1.2 is accepted too"
	clientsField   = "requests are not rewritten: the backends get what a client writes into this field"
)

// proxyAccess says what a line keeps out that bootlab lets in; empty: nothing.
func proxyAccess(w []string) string {
	next := append(slices.Clone(w), "", "", "", "")
	switch w[0] {
	case "http-request", "http-response", "http-after-response":
		return proxyAction(w[0], next[1], next[2:])
	case "tcp-request", "tcp-response":
		if listed("reject close silent-drop tarpit send-spoe-group", next[2]) || strings.HasPrefix(next[2], "lua.") {
			return refusesNothing
		}
	case "block", "reqdeny", "reqideny", "reqtarpit", "reqitarpit", "rspdeny", "rspideny":
		return refusesNothing
	case "filter":
		if next[1] == "spoe" || strings.HasPrefix(next[1], "lua.") {
			return "there are no filters: " + refusesNothing
		}
	case "option":
		if i := slices.Index(w, "header"); next[1] == "forwardfor" && i > 0 && !strings.EqualFold(next[i+1], "X-Forwarded-For") {
			return "the client's address is in X-Forwarded-For alone: the backends get what a client writes into this field"
		}
		if next[1] == "checkcache" {
			return "responses are not searched for cookies that could be cached"
		}
	case "rate-limit", "maxconnrate", "maxsessrate", "maxsslrate":
		return limitsNoRate
	case "ssl-default-bind-options", "ssl-default-server-options":
		if newestTLS(w) {
			return oldTLS
		}
	}
	return ""
}

// proxyAction is proxyAccess for a rule about requests or responses.
func proxyAction(kind, action string, w []string) string {
	switch {
	case listed("deny reject tarpit silent-drop auth send-spoe-group", action), strings.HasPrefix(action, "lua."):
		return refusesNothing
	case action == "return":
		i := slices.Index(w, "status")
		if i >= 0 && i+1 < len(w) && (strings.HasPrefix(w[i+1], "4") || strings.HasPrefix(w[i+1], "5")) {
			return refusesNothing
		}
	case kind != "http-request" || listed("x-forwarded-for x-forwarded-proto x-forwarded-host x-forwarded-port forwarded", strings.ToLower(w[0])):
	case action == "del-header":
		return clientsField
	case action == "set-header" || action == "replace-header":
		if slices.ContainsFunc(strings.FieldsFunc(strings.Join(w[1:], " "), func(r rune) bool { return strings.ContainsRune("%[]{} ", r) }), identifies) {
			return clientsField
		}
	}
	return ""
}

// identifies reports whether a test says who a client is, and not what it asks for.
func identifies(fetch string) bool {
	fetch = strings.ToLower(strings.TrimLeft(fetch, "!"))
	name, of, _ := strings.Cut(fetch, "(")
	name, _, _ = strings.Cut(name, ",")
	switch name {
	case "src", "http_auth", "http_auth_group", "http_auth_user", "ssl_fc_has_crt", "var", "cook", "req.cook", "cook_cnt", "req.cook_cnt":
		return true
	case "hdr", "req.hdr", "hdr_beg", "req.fhdr":
		return strings.HasPrefix(of, "authorization") || strings.HasPrefix(of, "cookie")
	}
	for _, begin := range []string{"src_", "ssl_c_", "sc_", "sc0_", "sc1_", "sc2_", "jwt_"} {
		if strings.HasPrefix(name, begin) {
			return true
		}
	}
	return false
}

// restricts reports whether the condition of a rule, with the acls that it names, says who a client is.
func (s *proxySection) restricts(words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool {
		return identifies(w) || slices.ContainsFunc(s.all("acl", strings.TrimLeft(w, "!")), func(l proxyLine) bool {
			return slices.ContainsFunc(l.words[2:], identifies)
		})
	})
}

// leaveRule notes a rule of a frontend that is left out. Its connections go to another backend: that is weaker where the rule is about who
// a client is, or leads to a backend that serves nobody.
func (h *haproxy) leaveRule(f *proxySection, l proxyLine, why string) {
	b := h.backendOf(l.words[1])
	if f.restricts(l.words[2:]) || b != nil && !b.hasServers() {
		h.weaker(l.at, "%s: the rule is left out, and what it selects goes to another backend", why)
		return
	}
	h.note(l.at, "%s: the rule is left out", why)
}
