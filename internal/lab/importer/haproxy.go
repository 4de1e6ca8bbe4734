package importer

import (
	"fmt"
	"slices"
	"strings"
)

// haproxy reads a configuration of HAProxy. A balancer is made for each address that a frontend binds, and each backend that it uses
// there.
type haproxy struct {
	*draft
	sources  *sources
	sections []*proxySection
	byName   map[[2]string]*proxySection // the first of a kind and name
	uses     map[string]bool             // names of backends that rules use
	looked   map[string]string           // addresses of names
	made     map[*proxySection][]string  // balancers of backends
}

// A proxySection is a section of the file, with the defaults that apply to it.
type proxySection struct {
	at       place
	kind     string // defaults, frontend, backend, listen …
	name     string
	lines    []proxyLine
	index    map[[2]string][]proxyLine // by the first word, and by the first two
	state    *proxyLine                // the last one that is disabled or enabled; nil: none
	defaults *proxySection
}

// A proxyLine is one line of a section.
type proxyLine struct {
	at    place
	words []string // one at least
}

func readHAProxy(d *draft, s *sources, names []string) error {
	h := &haproxy{draft: d, sources: s, byName: map[[2]string]*proxySection{}, uses: map[string]bool{}, looked: map[string]string{}, made: map[*proxySection][]string{}}
	for _, name := range names {
		data, err := s.read(name)
		if err != nil {
			return err
		}
		if err := h.parse(name, string(data)); err != nil {
			return err
		}
	}
	for _, s := range h.sections {
		h.unread(s)
		if h.inUse(s) {
			h.access(s)
		}
		switch s.kind {
		case "frontend", "listen":
			h.frontend(s)
		case "backend":
			if !h.uses[s.name] {
				h.note(s.at, "no frontend uses this backend: it is left out")
			}
		}
	}
	h.usedTwice()
	return nil
}

// proxyKinds are the sections of HAProxy. Only the first line is about what bootlab has.
const proxyKinds = `global defaults frontend backend listen
	peers resolvers userlist mailers program http-errors ring log-forward cache fcgi-app crt-store traces acme`

func (h *haproxy) parse(name, data string) error {
	var section, defaults *proxySection
	number := 0
	for text := range strings.Lines(data) {
		number++
		words := proxyWords(text)
		if len(words) == 0 {
			continue
		}
		at := place{name, number, strings.Join(words, " ")}
		switch kind := words[0]; {
		case listed(proxyKinds, kind):
			section = &proxySection{at: at, kind: kind, defaults: defaults, index: map[[2]string][]proxyLine{}}
			if len(words) > 1 {
				section.name = words[1]
			}
			if i := slices.Index(words, "from"); i > 0 && i+1 < len(words) {
				section.defaults = h.named("defaults", words[i+1])
			}
			if kind == "defaults" {
				defaults = section
			}
			h.sections = append(h.sections, section)
			if key := [2]string{kind, section.name}; h.byName[key] == nil {
				h.byName[key] = section
			}
		case section == nil:
			return fmt.Errorf("%s:%d: %q is not a section of haproxy.cfg", name, number, clip(kind))
		default:
			section.add(proxyLine{at, words})
			if len(words) > 1 && (words[0] == "default_backend" || words[0] == "use_backend") {
				h.uses[words[1]] = true
			}
		}
	}
	return nil
}

func (s *proxySection) add(l proxyLine) {
	s.lines = append(s.lines, l)
	if l.words[0] == "disabled" || l.words[0] == "enabled" {
		s.state = &l
	}
	s.index[[2]string{l.words[0]}] = append(s.index[[2]string{l.words[0]}], l)
	if len(l.words) > 1 && l.words[1] != "" {
		key := [2]string{l.words[0], l.words[1]}
		s.index[key] = append(s.index[key], l)
	}
}

// proxyWords splits a line as HAProxy does: at blanks, with quotes, backslashes and comments.
func proxyWords(s string) (words []string) {
	var b strings.Builder
	var quote byte
	started := false
	end := func() {
		if started {
			words = append(words, b.String())
		}
		b.Reset()
		started = false
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote == 0 && c == '#':
			end()
			return words
		case quote == 0 && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			end()
		case quote == 0 && (c == '"' || c == '\''):
			quote, started = c, true
		case c == quote && quote != 0:
			quote = 0
		case c == '\\' && quote != '\'' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
			started = true
		default:
			b.WriteByte(c)
			started = true
		}
	}
	end()
	return words
}

// named returns the section of a kind with that name, or nil.
func (h *haproxy) named(kind, name string) *proxySection { return h.byName[[2]string{kind, name}] }

// all returns the lines of a section that begin with one word or two; none: those of its defaults.
func (s *proxySection) all(words ...string) []proxyLine {
	var key [2]string
	copy(key[:], words)
	if found := s.index[key]; len(found) > 0 || s.kind == "defaults" || s.defaults == nil {
		return found
	}
	return s.defaults.index[key]
}

// disabled returns the line that keeps HAProxy from using a section; nil: it is in use.
func (s *proxySection) disabled() *proxyLine {
	l := s.state
	if l == nil && s.defaults != nil {
		l = s.defaults.state
	}
	if l != nil && l.words[0] == "disabled" {
		return l
	}
	return nil
}

// value returns the last line that begins with the words, and what follows them.
func (s *proxySection) value(words ...string) (proxyLine, []string, bool) {
	all := s.all(words...)
	if len(all) == 0 {
		return proxyLine{}, nil, false
	}
	l := all[len(all)-1]
	return l, l.words[len(words):], true
}

func (s *proxySection) has(words ...string) bool { return len(s.all(words...)) > 0 }

// backendOf returns the section with the servers of a backend.
func (h *haproxy) backendOf(name string) *proxySection {
	if s := h.named("backend", name); s != nil {
		return s
	}
	return h.named("listen", name)
}

// proxySilent are directives that bootlab does by itself, or that do not matter, and those that other functions read.
const proxySilent = `mode bind disabled enabled server server-template default-server balance maxconn default_backend use_backend acl redirect cookie
	description id log log-tag unique-id-format fullconn hash-type
	tcp-check http-check backlog grace rate-limit load-server-state-from-file server-state-file-name source-keepalive max-keep-alive-queue`

// proxyOptions are options that bootlab does by itself, or that other functions read.
const proxyOptions = `httplog tcplog dontlognull dontlog-normal log-health-checks log-separate-errors logasap httpslog
	http-server-close httpclose forceclose http-keep-alive http-tunnel http-pretend-keepalive prefer-last-server redispatch tcpka clitcpka srvtcpka
	httpchk tcp-check ssl-hello-chk splice-auto splice-request splice-response tcp-smart-accept tcp-smart-connect contstats nolinger checkcache
	http-ignore-probes http-no-delay http-use-htx idle-close-on-response socket-stats abortonclose allbackups`

// inUse reports whether anything goes through a section.
func (h *haproxy) inUse(s *proxySection) bool {
	switch s.kind {
	case "global", "defaults":
		return true
	case "frontend", "listen":
		return s.disabled() == nil && !s.isStats()
	case "backend":
		return h.uses[s.name]
	}
	return false
}

// access notes the lines of a section that keep somebody out.
func (h *haproxy) access(s *proxySection) {
	for _, l := range s.lines {
		if reason := proxyAccess(l.words); reason != "" {
			h.weaker(l.at, "%s", reason)
		}
	}
}

// unread notes the lines of a section that have no equivalent.
func (h *haproxy) unread(s *proxySection) {
	switch s.kind {
	case "global":
		for _, l := range s.lines {
			if reason := globalReason(l.words); reason != "" && proxyAccess(l.words) == "" {
				h.note(l.at, "%s", reason)
			}
		}
		return
	case "defaults", "frontend", "backend", "listen":
	default:
		h.note(s.at, "there is no equivalent: the section is left out")
		return
	}
	if s.isStats() {
		h.note(s.at, "%s: the section is left out", replacedStats)
		return
	}
	for _, l := range s.lines {
		if reason := proxyReason(l.words); reason != "" && (proxyAccess(l.words) == "" || !h.inUse(s)) {
			h.note(l.at, "%s", reason)
		}
	}
}

// hasServers reports whether a section has servers of its own.
func (s *proxySection) hasServers() bool {
	return slices.ContainsFunc(s.lines, func(l proxyLine) bool { return l.words[0] == "server" || l.words[0] == "server-template" })
}

func (s *proxySection) isStats() bool {
	own := func(word string) bool {
		return slices.ContainsFunc(s.lines, func(l proxyLine) bool { return l.words[0] == word })
	}
	return own("stats") && !s.hasServers() && !own("default_backend") && !own("use_backend")
}

const replacedStats = "the dashboard and /metrics replace it"

// globalSilent are lines of global about HAProxy's own process, its log and its limits, and those that other functions read.
const globalSilent = `log log-tag log-send-hostname chroot user group uid gid daemon pidfile master-worker mworker-max-reloads nbproc nbthread thread-groups
	thread-group cpu-map numa-cpu-mapping cpu-policy node description ulimit-n maxconn maxsslconn maxpipes fd-hard-limit strict-limits prealloc-fd set-dumpable
	hard-stop-after localpeer server-state-base server-state-file quiet zero-warning unix-bind busy-polling noepoll nokqueue noevports nopoll nosplice
	noreuseport nogetaddrinfo spread-checks max-spread-checks ca-base crt-base ssl-server-verify ssl-default-bind-options ssl-default-server-options
	ssl-dh-param-file`

// globalReason says why a line of global is not carried, or "".
func globalReason(w []string) string {
	if w[0] == "no" && len(w) > 1 {
		w = w[1:]
	}
	_, what, _ := strings.Cut(strings.TrimPrefix(w[0], "ssl-default-"), "-")
	switch {
	case listed(globalSilent, w[0]), strings.HasPrefix(w[0], "tune."), strings.HasPrefix(w[0], "profiling."):
		return ""
	case w[0] == "stats":
		return replacedStats
	case strings.HasPrefix(w[0], "lua"):
		return "there is no Lua: it is left out"
	case strings.HasPrefix(w[0], "ssl-default-") && listed("ciphers ciphersuites curves sigalgs", what):
		return fixedTLS + ": it is left out"
	}
	return noEquivalent
}

// proxyReason says why a line is not carried, or "".
func proxyReason(w []string) string {
	second := ""
	if len(w) > 1 {
		second = w[1]
	}
	switch {
	case listed(proxySilent, w[0]):
		return ""
	case w[0] == "timeout" && listed("connect client server tunnel queue check http-request http-keep-alive", second), w[0] == "retries" && second != "0":
		return ""
	case w[0] == "retries":
		return "another backend is tried all the same until timeouts.connect ends"
	case w[0] == "retry-on" && second == "none":
		return "a request that is lost is tried again all the same"
	case w[0] == "retry-on" && !slices.ContainsFunc(w[1:], func(why string) bool { return !listed("conn-failure empty-response", why) }):
		return ""
	case w[0] == "retry-on":
		return "a request is tried again where it is lost, not for what a backend answers: it is left out"
	case w[0] == "monitor-uri":
		return "bootlab answers no path by itself: the backends get these requests"
	case w[0] == "log-format" || w[0] == "log-format-sd" || w[0] == "error-log-format":
		return "the access log has attributes of its own: it is left out"
	case w[0] == "option" && second == "forwardfor" && (slices.Contains(w, "except") || slices.Contains(w, "if-none")):
		return "X-Forwarded-For of the clients is dropped, but that of trusted_proxies: set it"
	case w[0] == "option" && second == "forwardfor":
		return "" // always
	case w[0] == "option" && second == "accept-invalid-http-request":
		return "what is malformed gets 400"
	case w[0] == "option" && listed(proxyOptions, second), w[0] == "no" && second == "option":
		return ""
	case w[0] == "option":
		return noEquivalent
	case w[0] == "tcp-request" && (second == "inspect-delay" || second == "content" && len(w) > 2 && w[2] == "accept"):
		return "" // waits for the server name
	case w[0] == "http-request" && len(w) > 2 && (second == "set-header" || second == "add-header") && strings.HasPrefix(strings.ToLower(w[2]), "x-forwarded-"):
		return "" // always set
	case w[0] == "http-request" && second == "redirect":
		return ""
	case w[0] == "http-request" && second == "use-service" && slices.Contains(w, "prometheus-exporter"):
		return replacedStats
	case w[0] == "stats":
		return replacedStats
	case w[0] == "stick" || w[0] == "stick-table":
		return "there are no stick tables: balance: source, or sticky, keeps a client at its backend"
	case w[0] == "use-server":
		return "a rule chooses a balancer, not a server: it is left out"
	case strings.HasPrefix(w[0], "http-request") || strings.HasPrefix(w[0], "http-response"):
		return "requests and responses are not rewritten or refused: it is left out"
	}
	return noEquivalent
}
