package importer

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A proxyBind is the addresses of a frontend with the same port and parameters.
type proxyBind struct {
	at     place
	listen []string
	port   string
	params []string
}

// A proxyRoute is a backend that a frontend uses, or a redirect to https, and for which connections.
type proxyRoute struct {
	at       place
	backend  *proxySection // nil: redirect
	redirect bool
	match    mapping
}

// frontend makes the balancers of a frontend.
func (h *haproxy) frontend(f *proxySection) {
	if f.isStats() {
		return
	}
	if l := f.disabled(); l != nil {
		h.note(l.at, "a disabled %s listens nowhere: %s is left out", f.kind, clip(f.name))
		return
	}
	binds := h.binds(f)
	routes := h.reached(h.routesOf(f))
	redirects := h.redirects(f)
	if len(binds) == 0 {
		h.note(f.at, "it binds no address: it is left out")
	}
	for _, b := range binds {
		if b.port == "22623" {
			h.note(f.at, "a cluster of kind openshift with an address has the balancers of 6443, 22623, 443 and 80 by itself")
		}
		if slices.Contains(b.params, "ssl") && !f.isHTTP() {
			h.note(b.at, "mode tcp does not end TLS, it passes it through: it is left out; let the servers speak TLS themselves and remove ssl and crt, "+
				"or keep HAProxy in front; mode http ends TLS, for HTTP alone")
			continue
		}
		name := f.name
		if len(binds) > 1 {
			name += "-" + b.port
		}
		all := routes
		if !slices.Contains(b.params, "ssl") {
			for _, r := range redirects {
				all = r.apply(all)
			}
		}
		if len(all) == 0 {
			h.note(f.at, "it has no server and no backend: it is left out")
		}
		made := make([]*mapping, len(all))
		for i, r := range all {
			if made[i] = h.balancer(f, b, r); made[i] != nil {
				h.addBalancer(r, r.name(name), made[i])
			}
		}
		h.order(all, made, f.nameIs())
	}
}

// name returns the name of the balancer of a route, of a frontend with that name.
func (r proxyRoute) name(frontend string) string {
	switch {
	case len(r.match.entries) == 0:
		return frontend
	case r.redirect:
		return frontend + "-redirect"
	}
	return frontend + "-" + r.backend.name
}

func (s *proxySection) isHTTP() bool {
	_, v, ok := s.value("mode")
	return ok && len(v) > 0 && v[0] == "http"
}

// nameIs says what a client calls the server whose names a match compares.
func (s *proxySection) nameIs() string {
	if s.isHTTP() {
		return "host"
	}
	return "server name"
}

func (h *haproxy) addBalancer(r proxyRoute, name string, m *mapping) {
	name = h.free("balancers", ident(name, "balancer"), func(try string) bool { return h.balancers.get(try) != nil })
	h.balancers.add(&entry{key: name, at: r.at, sub: m})
	if r.backend != nil {
		h.made[r.backend] = append(h.made[r.backend], name)
	}
}

// usedTwice notes backends that became several balancers.
func (h *haproxy) usedTwice() {
	for s, names := range h.made {
		if n := len(names); n > 1 {
			h.note(s.at, "it becomes %d balancers, %s and %s, each with checks, connection limits and a queue of its own", n, strings.Join(names[:n-1], ", "), names[n-1])
		}
	}
}

// binds reads the addresses of a frontend: those of bind, and of older files in the line of the section.
func (h *haproxy) binds(f *proxySection) (all []proxyBind) {
	add := func(at place, addresses string, params []string) {
		for a := range strings.SplitSeq(addresses, ",") {
			b, ok := h.bind(at, a)
			if !ok {
				continue
			}
			b.params = params
			same := slices.IndexFunc(all, func(o proxyBind) bool { return o.port == b.port && slices.Equal(o.params, params) })
			if same < 0 {
				all = append(all, b)
				continue
			}
			all[same].listen = append(all[same].listen, b.listen...)
		}
	}
	if w := strings.Fields(f.at.text); len(w) > 2 && strings.Contains(w[2], ":") {
		add(f.at, w[2], nil)
	}
	for _, l := range f.lines {
		if l.words[0] == "bind" && len(l.words) > 1 {
			add(l.at, l.words[1], l.words[2:])
		}
	}
	return all
}

func (h *haproxy) bind(at place, a string) (proxyBind, bool) {
	a = strings.TrimPrefix(strings.TrimPrefix(a, "ipv4@"), "ipv6@")
	i := strings.LastIndexByte(a, ':')
	if i < 0 || strings.HasPrefix(a, "/") || strings.Contains(a, "@") {
		h.note(at, "%s is not an address with a port: it is left out", a)
		return proxyBind{}, false
	}
	host, port := strings.Trim(a[:i], "[]"), a[i+1:]
	first, last, isRange := strings.Cut(port, "-")
	if !isPort(first) || isRange && !isPort(last) {
		h.note(at, "%q is not a port: it is left out", port)
		return proxyBind{}, false
	}
	b := proxyBind{at: at, port: port}
	switch ip, err := netip.ParseAddr(host); {
	case host == "" || host == "*":
		b.listen = []string{":" + port}
	case err != nil:
		address, ok := h.lookup(at, host)
		if !ok {
			return b, false
		}
		b.listen = []string{joinPort(address, port)}
	default:
		b.listen = []string{joinPort(ip.String(), port)}
	}
	return b, true
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func joinPort(host, port string) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == "" {
		return host
	}
	return host + ":" + port
}

// lookup returns an address of a name, as HAProxy looks it up when it starts.
func (h *haproxy) lookup(at place, name string) (string, bool) {
	if _, known := h.looked[name]; !known {
		h.looked[name] = ""
		if h.o.Lookup != nil {
			if a := h.o.Lookup(name); a.IsValid() {
				h.looked[name] = a.Unmap().String()
			}
		}
	}
	h.seen = append(h.seen, name)
	if h.looked[name] == "" {
		h.note(at, "%s has no address here: it is left out; write its address, a host of the lab, or as a backend the name with a dot at its end, which is looked up again and again", name)
		return "", false
	}
	h.note(at, "%s has the address %s now; a backend whose name ends with a dot is looked up again and again", name, h.looked[name])
	return h.looked[name], true
}

// routesOf returns the backends of a frontend: those with a rule first.
func (h *haproxy) routesOf(f *proxySection) (all []proxyRoute) {
	for _, l := range f.all("use_backend") {
		if len(l.words) < 2 {
			continue
		}
		b := h.usable(l, l.words[1])
		if b == nil {
			continue
		}
		r := proxyRoute{at: l.at, backend: b}
		if len(l.words) > 2 && !h.condition(f, l, l.words[2:], &r.match) {
			continue
		}
		all = append(all, r)
	}
	if l, name, ok := f.value("default_backend"); ok && len(name) > 0 {
		if b := h.usable(l, name[0]); b != nil {
			all = append(all, proxyRoute{at: l.at, backend: b})
		}
	}
	if f.kind == "listen" && f.hasServers() {
		all = append(all, proxyRoute{at: f.at, backend: f})
	}
	return all
}

// usable returns the section of a backend that a line uses; nil: there is none, or it is disabled.
func (h *haproxy) usable(l proxyLine, name string) *proxySection {
	b := h.backendOf(name)
	switch {
	case b == nil && strings.Contains(name, "%["):
		h.note(l.at, "a backend that is looked up for each request is not supported: write a balancer with match for each line of the map")
	case b == nil:
		h.note(l.at, "there is no backend of that name: it is left out")
	case b.disabled() != nil:
		note := h.note
		if l.words[0] == "use_backend" {
			note = h.weaker // another backend gets it
		}
		note(l.at, "the backend is disabled (%s:%d), and HAProxy refuses what it would get: it is left out", b.disabled().at.file, b.disabled().at.line)
		return nil
	}
	return b
}

// condition reads what follows use_backend, if it is about the server name, the host or the path alone. False: it is noted.
func (h *haproxy) condition(f *proxySection, l proxyLine, words []string, match *mapping) bool {
	give := func(why string) bool {
		h.leaveRule(f, l, why)
		return false
	}
	if words[0] != "if" {
		return give("a rule cannot be that something is not so")
	}
	joined := allOf
	if slices.Contains(words, "or") || slices.Contains(words, "||") {
		joined = anyOf
	}
	for words = words[1:]; len(words) > 0; words = words[1:] {
		var test []string
		switch w := words[0]; {
		case w == "or" || w == "||":
			continue
		case w == "{":
			end := slices.Index(words, "}")
			if end < 0 {
				return give("a brace is missing")
			}
			test, words = words[1:end], words[end:]
			if why := h.test(l.at, test, match, joined); why != "" {
				return give(why)
			}
		case strings.HasPrefix(w, "!"):
			return give("a rule cannot be that something is not so")
		default:
			found := false
			for _, acl := range f.all("acl", w) {
				found = true
				if why := h.test(l.at, acl.words[2:], match, anyOf); why != "" {
					return give("acl " + w + ": " + why)
				}
			}
			if !found {
				return give("there is no acl " + w)
			}
		}
	}
	if joined == anyOf && len(match.entries) > 1 {
		return give("a balancer matches one of hosts and one of paths, not one or the other")
	}
	if f.isHTTP() && match.get("sni") != nil {
		if match.get("host") != nil {
			return give("a server name and a host that must both hold are not supported")
		}
		h.note(l.at, "%s", sniIsHost)
	}
	h.pathBegins(l, match)
	return len(match.entries) > 0 || give("there is no condition")
}

const sniIsHost = "in mode http the server name is compared with the HTTP host, and not with the one of the TLS handshake"

// pathBegins notes paths that begin more in HAProxy than here.
func (h *haproxy) pathBegins(l proxyLine, match *mapping) {
	if e := match.get("path"); e != nil {
		for _, path := range texts(e.list) {
			if !strings.HasSuffix(path, "/") {
				h.note(l.at, "path_beg %s is also the begin of %[1]s-x in HAProxy; here it is %[1]s and what is below", path)
			}
		}
	}
}

// A junction says which of several tests must hold.
type junction int

const (
	allOf junction = iota
	anyOf
)

// test adds one test of an acl, which the rule at a place has, to match. Another test of the same key is an alternative, for which joined must be anyOf. It returns
// what cannot be carried; "" if all is.
func (h *haproxy) test(at place, w []string, match *mapping, joined junction) string {
	if len(w) == 0 {
		return "a test is missing"
	}
	fetch, values := clip(w[0]), w[1:]
	key, form := testKey(fetch)
	if key == "" {
		return fetch + " is not supported, only the server name (req.ssl_sni, ssl_fc_sni), the host (hdr(host), hdr_end(host)) and the path (path_beg)"
	}
	anyCase := false
	for len(values) > 0 && strings.HasPrefix(values[0], "-") {
		switch flag := values[0]; {
		case flag == "-m" && len(values) > 1:
			form, values = values[1], values[1:]
		case flag == "-i":
			anyCase = true
		case flag == "--":
		default:
			return clip(flag) + " of " + fetch + " is not supported"
		}
		values = values[1:]
	}
	switch {
	case len(values) == 0:
		return fetch + " needs a value"
	case key == "path" && form == "str":
		return fetch + ", the whole path, is not supported, only path_beg"
	case key == "path" && form != "beg" || key != "path" && form != "str" && form != "end":
		return "-m " + clip(form) + " of " + fetch + " is not supported"
	case match.get(key) != nil && joined == allOf:
		return "two tests of the " + key + " that must both hold are not supported"
	}
	for _, v := range values {
		if key == "path" && anyCase && strings.ToLower(v) != strings.ToUpper(v) {
			h.note(at, "-i is left out: the path %s is compared as it is written", v)
		}
		if key != "path" && strings.Contains(v, ":") {
			return "the port in " + clip(v) + " is not compared, only a name"
		}
		if form == "end" {
			if !strings.HasPrefix(v, ".") {
				return "the end " + clip(v) + " of a name is not supported, only one that begins with a dot"
			}
			v = "*" + v
		}
		if e := match.get(key); e == nil {
			match.needList(key, place{}, v)
		} else {
			match.append(key, place{}, v)
		}
	}
	return ""
}

// testKey returns the key of match that says what a test of an acl looks at, and how it compares; empty: none does.
func testKey(fetch string) (key, form string) {
	switch strings.TrimSuffix(strings.ToLower(fetch), ",lower") {
	case "req_ssl_sni", "req.ssl_sni", "ssl_fc_sni":
		return "sni", "str"
	case "ssl_fc_sni_end":
		return "sni", "end"
	case "hdr(host)", "req.hdr(host)", "hdr(host),field(1,:)", "req.hdr(host),field(1,:)":
		return "host", "str"
	case "hdr_end(host)":
		return "host", "end"
	case "path_beg":
		return "path", "beg"
	case "path":
		return "path", "str"
	}
	return "", ""
}
