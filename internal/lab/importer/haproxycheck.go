package importer

import (
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// check sets the health check.
func (h *haproxy) check(m *mapping, s *proxySection, all []proxyServer) {
	server := all[0]
	if i := slices.IndexFunc(all, proxyServer.checked); i >= 0 {
		server = all[i]
	} else {
		m.under("check", server.at).set("kind", server.at, "none")
		return
	}
	c := &mapping{}
	_, secure := server.params["check-ssl"]
	if _, tls := server.params["ssl"]; tls && server.params["port"] == "" && server.params["addr"] == "" {
		secure = true
	}
	kind := "tcp"
	if secure || s.has("option", "ssl-hello-chk") {
		kind = "tls"
	}
	if l, v, ok := s.value("option", "httpchk"); ok {
		if kind = "http"; secure {
			kind = "https"
		}
		h.httpCheck(c, s, l, v)
	} else if s.has("tcp-check") {
		h.tcpCheck(s)
	}
	if kind != "tcp" {
		c.need("kind", server.at, kind)
	}
	for name, key := range map[string]string{"port": "port", "rise": "rise", "fall": "fall"} {
		if v := server.params[name]; v != "" {
			c.set(key, server.at, v)
		}
	}
	for name, key := range map[string]string{"inter": "interval", "fastinter": "fast_interval"} {
		if d := proxyTime(server.params[name]); server.params[name] != "" && d > 0 {
			c.set(key, server.at, lab.DurationText(d))
		}
	}
	if l, v, ok := s.value("timeout", "check"); ok && len(v) > 0 && proxyTime(v[0]) > 0 {
		c.set("timeout", l.at, lab.DurationText(proxyTime(v[0])))
	}
	if secure {
		h.checkTLS(c, server)
	}
	if len(c.entries) > 0 {
		m.add(&entry{key: "check", at: server.at, sub: c})
	}
}

// httpCheck reads option httpchk and http-check.
func (h *haproxy) httpCheck(c *mapping, s *proxySection, l proxyLine, v []string) {
	method, path := "OPTIONS", "/"
	switch {
	case len(v) == 1:
		path = v[0]
	case len(v) > 1:
		method, path = v[0], v[1]
	}
	at := l.at
	if l, send, ok := s.value("http-check", "send"); ok {
		at = l.at
		params := h.checkRequest(c, l, send)
		if params["uri"] != "" {
			path = params["uri"]
		}
		if params["meth"] != "" {
			method = params["meth"]
		}
	}
	if len(v) > 2 {
		if _, host, ok := strings.Cut(strings.ToLower(strings.Join(v[2:], " ")), "host:"); ok && len(strings.Fields(host)) > 0 {
			c.set("host", l.at, strings.Fields(host)[0])
		}
	}
	if method != "GET" {
		h.note(at, "a check requests with GET, not %s", method)
	}
	c.set("path", at, path)
	expected, expect, ok := s.value("http-check", "expect")
	switch {
	case !ok:
	case len(expect) > 1 && expect[0] == "status":
		c.setList("expect", expected.at, strings.Split(expect[1], ",")...)
		if e := c.get("expect"); len(e.list) == 1 {
			c.set("expect", expected.at, expect[1])
		}
	case len(expect) > 1 && (expect[0] == "rstatus" || expect[0] == "!" && strings.HasSuffix(expect[1], "status")):
		h.note(expected.at, "a check expects statuses as a list: write expect; any 2xx or 3xx passes until then")
	default:
		h.weaker(expected.at, "a check expects a status: a server that does not answer so, such as a replica, gets requests")
	}
	last, _, _ := s.value("http-check", "send")
	for _, l := range s.all("http-check") {
		switch word := slices.Concat(l.words, []string{""})[1]; {
		case word == "send" && l.at != last.at:
			h.note(l.at, "a check sends one request, that of %s:%d: it is left out", last.at.file, last.at.line)
		case word == "expect" && l.at != expected.at:
			h.weaker(l.at, "a check expects one thing, that of %s:%d: a server that does not answer so gets requests", expected.at.file, expected.at.line)
		case !listed("send expect comment", word):
			h.note(l.at, "there is no equivalent: it is left out")
		}
	}
}

// checkRequest reads http-check send: it returns method (meth) and path (uri), sets the host, and notes what a check does not send.
func (h *haproxy) checkRequest(c *mapping, l proxyLine, send []string) map[string]string {
	params := map[string]string{}
	for len(send) > 1 {
		switch word := send[0]; {
		case word == "hdr" && len(send) > 2:
			if strings.EqualFold(send[1], "host") {
				c.set("host", l.at, send[2])
			} else {
				h.note(l.at, "a check sends no header but Host: %s is left out", clip(send[1]))
			}
			send = send[1:]
		case word == "meth" || word == "uri":
			params[word] = send[1]
		case word != "ver":
			h.note(l.at, "a check sends no %s: it is left out", clip(word))
		}
		send = send[2:]
	}
	return params
}

// tcpCheck notes what a check of mode tcp does not do. Without an expectation, such as of the role of a database, other servers get
// connections, too.
func (h *haproxy) tcpCheck(s *proxySection) {
	expects := s.all("tcp-check", "expect")
	for _, l := range expects {
		h.weaker(l.at, "a check connects and reads nothing: a server that does not answer so, such as a replica, gets connections")
	}
	if len(expects) == 0 {
		h.note(s.all("tcp-check")[0].at, "a check connects, and sends nothing of its own: the rules are left out")
	}
}
