package importer

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// balancer returns the balancer of a frontend's address and one of its routes; nil: it cannot be one.
func (h *haproxy) balancer(f *proxySection, b proxyBind, r proxyRoute) *mapping {
	m := &mapping{}
	if len(b.listen) == 1 {
		m.need("listen", b.at, b.listen[0])
	} else {
		m.needList("listen", b.at, b.listen...)
	}
	http := f.isHTTP()
	if http {
		m.need("mode", f.all("mode")[0].at, "http")
	}
	h.bindParams(m, b)
	if len(r.match.entries) > 0 {
		match := m.under("match", r.at)
		m.get("match").needed = true
		for _, e := range r.match.entries {
			match.needList(e.key, r.at, texts(e.list)...)
			for _, value := range match.get(e.key).list {
				value.needed = true // without one of them the balancer could match everything
			}
		}
	}
	if l, v, ok := f.value("maxconn"); ok && len(v) > 0 {
		m.set("max_connections", l.at, v[0])
	}
	log := "tcplog"
	if http {
		log = "httplog"
	}
	switch {
	case f.has("option", "dontlog-normal"):
		m.set("log", f.all("option", "dontlog-normal")[0].at, "errors")
	case f.has("option", log):
		m.set("log", f.all("option", log)[0].at, "requests")
	}
	if r.redirect {
		m.need("redirect", r.at, "https")
		return m
	}
	h.algorithm(m, r.backend)
	h.timeouts(m, f, r.backend, http)
	if http {
		h.sticky(m, r.backend)
	}
	if !h.servers(m, b, r.backend, http) {
		return nil
	}
	return m
}

func texts(list []*entry) (all []string) {
	for _, e := range list {
		all = append(all, e.text)
	}
	return all
}

func (h *haproxy) algorithm(m *mapping, s *proxySection) {
	l, v, ok := s.value("balance")
	switch {
	case !ok || len(v) == 0 || v[0] == "static-rr":
	case slices.Contains([]string{"roundrobin", "leastconn", "source"}, v[0]):
		if v[0] != "roundrobin" {
			m.set("balance", l.at, v[0])
		}
	default:
		h.note(l.at, "there is roundrobin, leastconn and source: roundrobin is used")
	}
}

// timeouts reads those of the client from the frontend, and the others from the backend.
func (h *haproxy) timeouts(m *mapping, f, b *proxySection, http bool) {
	read := func(s *proxySection, name string) (proxyLine, time.Duration) {
		l, v, ok := s.value("timeout", name)
		if !ok || len(v) == 0 {
			return l, 0
		}
		return l, proxyTime(v[0])
	}
	set := func(key string, l proxyLine, d time.Duration) {
		if d > 0 {
			m.under("timeouts", l.at).set(key, l.at, lab.DurationText(d))
		}
	}
	l, connect := read(b, "connect")
	set("connect", l, connect)
	l, queue := read(b, "queue")
	set("queue", l, queue)
	client, c := read(f, "client")
	server, s := read(b, "server")
	tunnel, t := read(b, "tunnel")
	switch {
	case t > 0:
		set("idle", tunnel, t)
	case !http && c > s:
		set("idle", client, c)
	case !http:
		set("idle", server, s)
	}
	if http {
		set("server", server, s)
		set("body", client, c)
		l, d := read(f, "http-request")
		set("request", l, d)
		l, d = read(f, "http-keep-alive")
		set("keepalive", l, d)
	}
}

// proxyTime reads a time of HAProxy: milliseconds, or a number with us, ms, s, m, h or d. 0: it is none.
func proxyTime(s string) time.Duration {
	digits := strings.TrimRight(s, "usmhd")
	n, err := strconv.ParseUint(digits, 10, 31)
	unit := map[string]time.Duration{"": time.Millisecond, "us": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}[s[len(digits):]]
	if err != nil {
		return 0
	}
	return time.Duration(n) * unit
}

// A proxyServer is one server of a backend, with the parameters of default-server.
type proxyServer struct {
	at      place
	name    string
	address string
	port    string
	params  map[string]string // by word; "" for those without a value
}

// flags are parameters of a server without a value.
const proxyFlags = `check backup disabled enabled send-proxy send-proxy-v2 send-proxy-v2-ssl send-proxy-v2-ssl-cn ssl check-ssl no-check no-backup
	check-send-proxy no-check-ssl no-ssl no-ssl-reuse no-sslv3 no-tlsv10 no-tlsv11 no-tlsv12 no-tlsv13 tfo allow-0rtt non-stick no-verifyhost stick agent-check force-tlsv12 force-tlsv13 check-via-socks4
	no-agent-check no-send-proxy no-send-proxy-v2 no-send-proxy-v2-ssl no-send-proxy-v2-ssl-cn no-tfo force-sslv3 force-tlsv10 force-tlsv11 renegotiate no-renegotiate
	strict-maxconn sni-auto no-sni-auto check-sni-auto no-check-sni-auto check-reuse-pool no-check-reuse-pool tls-tickets no-tls-tickets ssl-reuse`

// proxyValues are parameters of a server that are followed by a value.
const proxyValues = `addr agent-addr agent-inter agent-port agent-send alpn ca-file check-alpn check-proto check-sni ciphers ciphersuites client-sigalgs cookie
	crl-file crt curves downinter error-limit fall fastinter guid hash-key id idle-ping init-addr init-state inter interface log-bufsize log-proto max-reuse maxconn
	maxqueue minconn namespace observe on-error on-marked-down on-marked-up pool-conn-name pool-low-conn pool-max-conn pool-purge-delay port proto proxy-v2-options
	redir resolve-net resolve-opts resolve-prefer resolvers rise set-proxy-v2-tlv-fmt shard sigalgs slowstart sni socks4 source ssl-max-ver ssl-min-ver tcp-ut track
	usesrc verify verifyhost weight ws`

// proxyLeft are parameters of a server that matter and have no equivalent.
const proxyLeft = `slowstart agent-check track observe source downinter minconn maxqueue crt redir socks4 interface namespace
	proxy-v2-options on-marked-up tcp-ut ciphers ciphersuites curves sigalgs`

// proxyParams adds the parameters of a server to into. It returns those of a server that HAProxy does not have; what
// follows one is taken for its value, unless HAProxy has it.
func proxyParams(words []string, into map[string]string) (unknown []string) {
	before := true // the word before is known
	for i := 0; i < len(words); i++ {
		switch words[i] { // of the two the last counts
		case "enabled":
			delete(into, "disabled")
		case "disabled":
			delete(into, "enabled")
		}
		flag, valued := listed(proxyFlags, words[i]), listed(proxyValues, words[i])
		switch {
		case flag || i+1 == len(words) && valued:
			into[words[i]] = ""
		case valued:
			into[words[i]] = words[i+1]
			i++
		case before:
			unknown = append(unknown, words[i])
		}
		before = flag || valued
	}
	return unknown
}

// servers adds the backends, and what HAProxy says of each server and bootlab of all. False: bootlab cannot speak with them.
func (h *haproxy) servers(m *mapping, b proxyBind, s *proxySection, http bool) bool {
	var all []proxyServer
	for _, d := range s.all("default-server") {
		h.unknownParams(d, proxyParams(d.words[1:], map[string]string{}))
	}
	for _, l := range s.lines {
		if l.words[0] == "server-template" && len(l.words) > 3 {
			l.words = append([]string{"server", l.words[1]}, l.words[3:]...) // the count is left out
			l.words = append(l.words, "resolvers", "any")                    // with or without, all addresses are used
		}
		if l.words[0] != "server" {
			continue
		}
		if server, ok := h.server(l, s, b.port); ok {
			all = append(all, server)
		}
	}
	for _, server := range all {
		h.backendEntry(m, server)
	}
	h.backups(s, all)
	if len(all) == 0 {
		m.setList("backends", s.at)
		m.get("backends").needed = true
		return true
	}
	if tls := h.tlsServer(all); tls != nil && !http {
		h.note(tls.at, "mode tcp speaks no TLS with backends, it passes that of the clients through: the balancer is left out")
		return false
	}
	h.shared(m, all, http)
	h.check(m, s, all)
	return true
}

func (h *haproxy) server(l proxyLine, s *proxySection, port string) (proxyServer, bool) {
	if len(l.words) < 3 {
		h.note(l.at, "the address is missing: it is left out")
		return proxyServer{}, false
	}
	host, own := l.words[2], ""
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		host = a.String()
	} else if i := strings.LastIndexByte(host, ':'); i >= 0 {
		host, own = strings.Trim(host[:i], "[]"), host[i+1:]
	}
	switch {
	case own != "":
		port = own
	case strings.Contains(port, "-"):
		port = "" // the one of the range to which the client has connected, as in HAProxy
	}
	if port != "" && !isPort(port) || strings.ContainsAny(host, "/@") {
		h.note(l.at, "%s is not an address with a port: it is left out", l.words[2])
		return proxyServer{}, false
	}
	p := proxyServer{at: l.at, name: l.words[1], address: host, port: port, params: map[string]string{}}
	for _, d := range s.all("default-server") {
		proxyParams(d.words[1:], p.params)
	}
	h.unknownParams(l, proxyParams(l.words[3:], p.params))
	if _, err := netip.ParseAddr(host); err == nil {
		return p, !h.idle(p)
	}
	var ok bool
	if p.params["resolvers"] != "" && strings.Contains(host, ".") {
		ok = h.inDNS(&p)
	} else {
		p.address, ok = h.lookup(l.at, host)
	}
	return p, ok && !h.idle(p)
}

// backups notes those that HAProxy uses only when the first is down, too.
func (h *haproxy) backups(s *proxySection, all []proxyServer) {
	if s.has("option", "allbackups") {
		return
	}
	first := true
	for _, server := range all {
		if _, backup := server.params["backup"]; backup && !first {
			h.note(server.at, "HAProxy uses the first backup alone, bootlab all of them at once: leave out this one, or keep both")
		} else if backup {
			first = false
		}
	}
}

// inDNS makes a server a backend by its name. False: it cannot be one.
func (h *haproxy) inDNS(p *proxyServer) bool {
	name := strings.TrimSuffix(p.address, ".")
	if strings.HasPrefix(name, "_") {
		h.note(p.at, "SRV records are not looked up for backends: it is left out; write host:port, of which all addresses are backends")
		return false
	}
	h.note(p.at, "all addresses of the name are backends, 64 at most, and are looked up again when their TTL ends")
	p.address, h.outside = name, append(h.outside, name)
	return true
}

// unknownParams lists the options of a server, or of default-server, that HAProxy does not have.
func (h *haproxy) unknownParams(l proxyLine, words []string) {
	for _, word := range words {
		hint := ""
		if near := lab.Nearest(word, strings.Fields(proxyFlags+" "+proxyValues)); near != "" {
			hint = ": did you mean " + near + "?"
		}
		h.note(l.at, "%q is not an option of a server, and is left out%s", word, hint)
	}
}

// idle reports whether HAProxy gives a server no connections until an administrator says so. A backend has no such state in the lab file.
func (h *haproxy) idle(p proxyServer) bool {
	_, disabled := p.params["disabled"]
	why := "a disabled server"
	switch {
	case disabled:
	case p.params["weight"] == "0":
		why = "a server of weight 0"
	default:
		return false
	}
	h.note(p.at, "%s gets no connections: it is left out; to use it, add %s to backends, or run bootlab backend add BALANCER %[2]s", why, joinPort(p.address, p.port))
	return true
}

// backendEntry adds one backend.
func (h *haproxy) backendEntry(m *mapping, s proxyServer) {
	has := func(name string) bool { _, ok := s.params[name]; return ok }
	item := &mapping{}
	address := joinPort(s.address, s.port)
	item.need("address", s.at, address)
	if w := s.params["weight"]; w != "" && w != "1" {
		item.set("weight", s.at, w)
	}
	if n := s.params["maxconn"]; n != "" {
		item.set("max_connections", s.at, n)
	}
	if has("backup") {
		item.set("backup", s.at, "true")
	}
	for name := range strings.FieldsSeq(proxyLeft) {
		if has(name) {
			h.note(s.at, "%s is left out", name)
		}
	}
	if has("check-send-proxy") && (s.params["port"] != "" || !slices.ContainsFunc(strings.Fields("send-proxy send-proxy-v2 send-proxy-v2-ssl send-proxy-v2-ssl-cn"), has)) {
		h.note(s.at, "check-send-proxy is left out: checks send a PROXY header where connections do, to the same port alone")
	}
	if has("addr") {
		h.note(s.at, "addr is left out: a check goes to the address of the backend")
	}
	var added *entry
	if len(item.entries) == 1 {
		added = m.append("backends", s.at, address)
	} else {
		added = m.appendMap("backends", s.at, item)
	}
	if added != nil && s.name != s.address && s.name != address {
		added.remark = clip(s.name)
	}
}

// effective returns the value of a parameter that counts for a server: the default of HAProxy where it has none. One without a value is true.
func (s proxyServer) effective(name string) string {
	v, ok := s.params[name]
	switch {
	case name == "inter":
		return cmp.Or(proxyTime(v), 2*time.Second).String()
	case !ok:
		return map[string]string{"rise": "2", "fall": "3"}[name]
	}
	return cmp.Or(v, "true")
}

// sharedCheck notes servers that are checked in another way than the first that is checked, whose check all get.
func (h *haproxy) sharedCheck(all []proxyServer) {
	i := slices.IndexFunc(all, proxyServer.checked)
	if i < 0 {
		return
	}
	whose := "that of the first is used"
	if i > 0 {
		whose = "that of server " + all[i].name + " is used"
	}
	for _, s := range all[i+1:] {
		for _, name := range []string{"port", "inter", "rise", "fall", "check-ssl"} {
			if s.checked() && s.effective(name) != all[i].effective(name) {
				h.note(s.at, "%s is one for all backends of a balancer: %s", name, whose)
			}
		}
	}
}

func (s proxyServer) checked() bool { _, ok := s.params["check"]; return ok }

// shared sets what is one value of a balancer: the first server's.
func (h *haproxy) shared(m *mapping, all []proxyServer, http bool) {
	first := all[0]
	for _, s := range all[1:] {
		for _, name := range []string{"send-proxy", "send-proxy-v2", "ssl", "check"} {
			if first.effective(name) == s.effective(name) {
				continue
			}
			whose := "that of the first is used"
			switch name {
			case "ssl":
				whose = "all get it"
			case "check":
				whose = "all are checked"
			}
			h.note(s.at, "%s is one for all backends of a balancer: %s", name, whose)
		}
	}
	h.sharedCheck(all)
	has := func(name string) bool { _, ok := first.params[name]; return ok }
	switch {
	case has("send-proxy"):
		m.need("send_proxy", first.at, "v1")
	case has("send-proxy-v2"), has("send-proxy-v2-ssl"), has("send-proxy-v2-ssl-cn"):
		m.need("send_proxy", first.at, "v2")
	}
	if first.params["on-marked-down"] == "shutdown-sessions" {
		m.set("on_down", first.at, "close")
	}
	h2 := first.params["proto"] == "h2" || strings.HasPrefix(first.params["alpn"], "h2")
	switch {
	case h.tlsServer(all) != nil:
		h.backendTLS(m, *h.tlsServer(all), h2)
		h.oneTLS(all, *h.tlsServer(all))
	case h2 && http:
		m.need("backend_protocol", first.at, "h2c")
	}
}

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
