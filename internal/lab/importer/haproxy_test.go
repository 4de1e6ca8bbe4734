package importer_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab/importer"
)

// An imported is a lab file without its head, and its notes.
type imported struct{ lab, notes string }

// lookup knows pg.example.com and my.example.com.
func lookup(name string) netip.Addr {
	return map[string]netip.Addr{"pg.example.com": netip.MustParseAddr("10.9.9.9"), "my.example.com": netip.MustParseAddr("10.9.9.8")}[name]
}

func importProxy(t *testing.T, text string) imported {
	t.Helper()
	r, err := importer.Text(importer.HAProxy, "x", []byte(text), importer.Options{Check: check, Lookup: lookup})
	if err != nil {
		t.Fatal(err)
	}
	var notes strings.Builder
	for _, n := range r.Notes {
		notes.WriteString(n.String() + "\n")
	}
	_, lab, _ := strings.Cut(string(r.Lab), "\ndomain: ")
	return imported{lab, notes.String()}
}

// want compares an import with parts of the lab that must be there, or with "!" in front must not, and with parts of the notes.
func (i imported) want(t *testing.T, lab, notes []string) {
	t.Helper()
	for _, w := range lab {
		part, absent := strings.CutPrefix(w, "!")
		if strings.Contains(i.lab, part) == absent {
			t.Errorf("want %q in\n%s", w, i.lab)
		}
	}
	for _, w := range notes {
		part, absent := strings.CutPrefix(w, "!")
		if strings.Contains(i.notes, part) == absent {
			t.Errorf("want %q among the notes\n%s", w, i.notes)
		}
	}
}

// TestRedirects says which requests are redirected, and which get to backends, as HAProxy has it.
func TestRedirects(t *testing.T) {
	t.Parallel()
	const (
		head    = "frontend f\n mode http\n bind 10.0.0.1:80\n acl challenge path_beg /.well-known/acme-challenge/\n acl shop hdr(host) shop.example\n"
		servers = "backend acme\n mode http\n server a 10.0.0.11:80\nbackend web\n mode http\n server w 10.0.0.12:80\n"
	)
	for name, tt := range map[string]struct {
		text  string
		lab   []string
		notes []string
	}{
		"all but the challenge": {head + " http-request redirect scheme https if !{ ssl_fc } !challenge\n use_backend acme if challenge\n" + servers,
			[]string{"f: {listen: 10.0.0.1:80, mode: http, redirect: https}", "f-acme:\n    listen: 10.0.0.1:80\n    mode: http\n    backends:", "path: [/.well-known/acme-challenge/]", "10.0.0.11:80"}, nil},
		"unless": {head + " redirect scheme https unless { ssl_fc } or challenge\n use_backend acme if challenge\n default_backend web\n" + servers,
			[]string{"f: {listen: 10.0.0.1:80, mode: http, redirect: https}", "f-acme:", "!10.0.0.12"}, nil},
		"an exception without a rule": {head + " redirect scheme https if !{ ssl_fc } !challenge\n default_backend web\n" + servers,
			[]string{"f: {listen: 10.0.0.1:80, mode: http, redirect: https}", "f-web:", "path: [/.well-known/acme-challenge/]", "10.0.0.12:80"}, nil},
		"an exception of a host": {head + " redirect scheme https if !{ ssl_fc } !challenge\n use_backend acme if shop\n" + servers,
			[]string{"f: {listen: 10.0.0.1:80, mode: http, redirect: https}", "match: {path: [/.well-known/acme-challenge/], host: [shop.example]}"}, nil},
		"one host only": {head + " redirect scheme https if !{ ssl_fc } shop\n default_backend web\n" + servers,
			[]string{"f-redirect:\n", "match: {host: [shop.example]}\n    redirect: https", "f:\n", "10.0.0.12:80"}, nil},
		"a host whose backends are never reached": {head + " redirect scheme https if !{ ssl_fc } shop\n use_backend acme if shop\n default_backend web\n" + servers,
			[]string{"redirect: https", "10.0.0.12:80", "!10.0.0.11"}, nil},
		"all":              {head + " redirect scheme https if !{ ssl_fc }\n use_backend acme if challenge\n default_backend web\n" + servers, []string{"f: {listen: 10.0.0.1:80, mode: http, redirect: https}", "!10.0.0.11", "!10.0.0.12"}, nil},
		"by address":       {head + " redirect scheme https if !{ ssl_fc } !{ src 10.0.0.0/8 }\n default_backend web\n" + servers, []string{"!redirect", "10.0.0.12:80"}, []string{"NOT ENFORCED: x:6: redirect scheme https"}},
		"without an end":   {head + " redirect scheme https if !{ ssl_fc\n default_backend web\n" + servers, []string{"!redirect"}, []string{"NOT ENFORCED: x:6: "}},
		"on two ports":     {strings.Replace(head, "10.0.0.1:80\n", "10.0.0.1:80\n bind 10.0.0.1:443 ssl crt web.pem\n", 1) + " redirect scheme https if !{ ssl_fc }\n default_backend web\n" + servers, []string{"f-80: {listen: 10.0.0.1:80, mode: http, redirect: https}", "f-443:\n", "10.0.0.12:80"}, nil},
		"either of two":    {head + " redirect scheme https if !{ ssl_fc } shop || challenge\n default_backend web\n" + servers, []string{"!redirect"}, []string{"NOT ENFORCED: x:6: "}},
		"only with TLS":    {head + " redirect scheme https if { ssl_fc }\n default_backend web\n" + servers, []string{"!redirect"}, nil},
		"two redirects":    {head + " redirect scheme https if !{ ssl_fc } shop\n redirect scheme https if !{ ssl_fc } { hdr(host) blog.example }\n default_backend web\n" + servers, []string{"host: [shop.example]", "host: [blog.example]", "f-redirect-2:"}, nil},
		"the same twice":   {head + " redirect scheme https if !{ ssl_fc } shop\n redirect scheme https if !{ ssl_fc } shop\n default_backend web\n" + servers, []string{"!f-redirect-2"}, []string{"!is left out: "}},
		"path of a host":   {head + " redirect scheme https if !{ ssl_fc } challenge\n use_backend web if shop\n" + servers, []string{"match: {path: [/.well-known/acme-challenge/], host: [shop.example]}\n", "match: {path: [/.well-known/acme-challenge/]}"}, nil},
		"no other backend": {head + " redirect scheme https code 301 if !{ ssl_fc }\n" + servers, []string{"f: {listen: 10.0.0.1:80, mode: http, redirect: https}"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			importProxy(t, tt.text).want(t, tt.lab, tt.notes)
		})
	}
}

// TestOrderOfRules: HAProxy takes the first rule that holds. Where the most specific match is another's, a note names both.
func TestOrderOfRules(t *testing.T) {
	t.Parallel()
	const (
		head = "frontend f\n mode http\n bind 10.0.0.1:80\n"
		end  = "backend sso\n mode http\n server s 10.0.0.11:80\nbackend app\n mode http\n server a 10.0.0.12:80\nbackend none\n mode http\n"
		tcp  = "frontend f\n bind 10.0.0.1:443\n"
	)
	for name, tt := range map[string]struct {
		text  string
		notes []string
	}{
		"a path, then a host": {head + " use_backend sso if { path_beg /admin/ }\n use_backend app if { hdr(host) -i app.example }\n" + end,
			[]string{"x:5: use_backend app if { hdr(host) -i app.example }: HAProxy takes the first rule that holds, for host app.example with path /admin use_backend sso if { path_beg /admin/ } (x:4); here the most specific host, then the longest path decides, which is this one: write a balancer with a match of both"}},
		"a host, then a path": {head + " use_backend app if { hdr(host) -i app.example }\n use_backend sso if { path_beg /admin/ }\n" + end, []string{"!HAProxy takes"}},
		"a path, then one below it": {head + " use_backend sso if { path_beg /a/ }\n use_backend app if { path_beg /a/b/ }\n" + end,
			[]string{"x:5: use_backend app if { path_beg /a/b/ }: HAProxy takes the first rule that holds, for path /a/b use_backend sso if { path_beg /a/ } (x:4)"}},
		"a path below one, then that": {head + " use_backend sso if { path_beg /a/b/ }\n use_backend app if { path_beg /a/ }\n" + end, []string{"!HAProxy takes"}},
		"other paths":                 {head + " use_backend sso if { path_beg /a/ }\n use_backend app if { path_beg /ab/ }\n default_backend app\n" + end, []string{"!HAProxy takes"}},
		"all below a name, then one":  {head + " use_backend sso if { hdr_end(host) .example }\n use_backend app if { hdr(host) App.Example }\n" + end, []string{"x:5: use_backend app if { hdr(host) App.Example }: HAProxy takes the first rule that holds, for host app.example use_backend sso"}},
		"one name, then all below it": {head + " use_backend sso if { hdr(host) app.example }\n use_backend app if { hdr_end(host) .example }\n" + end, []string{"!HAProxy takes"}},
		"below a name, with a path":   {head + " use_backend sso if { hdr_end(host) .example } { path_beg /admin/ }\n use_backend app if { hdr(host) app.example }\n" + end, []string{"for host app.example with path /admin use_backend sso"}},
		"in mode tcp":                 {tcp + " use_backend sso if { req_ssl_sni -m end .example }\n use_backend app if { req_ssl_sni app.example }\n" + strings.ReplaceAll(end, " mode http\n", ""), []string{"x:4: use_backend app if { req_ssl_sni app.example }: HAProxy takes the first rule that holds, for server name app.example use_backend sso"}},
		"the same backend":            {head + " use_backend app if { path_beg /admin/ }\n use_backend app if { hdr(host) -i app.example }\n" + end, []string{"!HAProxy takes"}},
		"a listen of its own":         {"listen f\n mode http\n bind 10.0.0.1:80\n use_backend sso if { path_beg /admin/ }\n server a 10.0.0.12:80\n" + end, []string{"!HAProxy takes"}},
		"redirected":                  {head + " redirect scheme https code 301\n use_backend sso if { path_beg /admin/ }\n use_backend app if { hdr(host) -i app.example }\n" + end, []string{"!HAProxy takes"}},
		"redirected, but one":         {head + " redirect scheme https code 301 if { hdr(host) app.example }\n use_backend sso if { path_beg /admin/ }\n default_backend app\n" + end, []string{"!HAProxy takes"}},
		"one without servers, then a host": {head + " use_backend none if { path_beg /admin/ }\n use_backend app if { hdr(host) -i app.example }\n" + end,
			[]string{"NOT ENFORCED: x:4: use_backend none if { path_beg /admin/ }: it has no server, and HAProxy refuses what it selects; here host app.example with path /admin gets to use_backend app if { hdr(host) -i app.example } (x:5)"}},
		"one without servers, then all":     {head + " use_backend none if { path_beg /admin/ }\n default_backend app\n" + end, []string{"NOT ENFORCED: x:4: use_backend none if { path_beg /admin/ }: it has no server, and HAProxy refuses what it selects; here path /admin gets to default_backend app (x:5)"}},
		"one without servers, nothing else": {head + " use_backend none if { path_beg /admin/ }\n use_backend app if { path_beg /app/ }\n" + end, []string{"!NOT ENFORCED"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			importProxy(t, tt.text).want(t, nil, tt.notes)
		})
	}
}

// TestRulesWithTheSameName: HAProxy asks the first rule about a name. A later one keeps its others.
func TestRulesWithTheSameName(t *testing.T) {
	t.Parallel()
	const end = " default_backend c\nbackend a\n mode http\n server a 10.0.0.11:80\nbackend b\n mode http\n server b 10.0.0.12:80\nbackend c\n mode http\n server c 10.0.0.13:80\n"
	const head = "frontend f\n mode http\n bind 10.0.0.1:80\n use_backend a if { hdr(host) a.example }\n"
	importProxy(t, head+" use_backend b if { hdr(host) A.example b.example }\n"+end).want(t, []string{"match: {host: [a.example]}", "match: {host: [b.example]}", "10.0.0.12"}, []string{"!left out"})
	importProxy(t, head+" use_backend b if { hdr(host) a.example }\n"+end).want(t, []string{"!10.0.0.12"}, []string{"x:5: use_backend b if { hdr(host) a.example }: rules before it have all that it selects, so that HAProxy never uses it: it is left out\n"})
	importProxy(t, head+" use_backend b if { hdr(host) a.example } { path_beg /b/ }\n"+end).want(t, []string{"10.0.0.12"}, []string{"HAProxy takes the first rule"})
}

// TestProxySemantics says what becomes of statements that mean something else here, and which note says so.
func TestProxySemantics(t *testing.T) {
	t.Parallel()
	const (
		http = "frontend f\n mode http\n bind 10.0.0.1:80\n default_backend b\nbackend b\n mode http\n"
		tcp  = "listen f\n bind 10.0.0.1:5432\n"
	)
	for name, tt := range map[string]struct {
		text  string
		lab   []string
		notes []string
	}{
		"cookie of the application, prefixed":  {http + " cookie JSESSIONID prefix nocache\n server a 10.0.0.11:80 cookie a\n", []string{"sticky: JSESSIONID_BACKEND"}, []string{"x:7: cookie JSESSIONID prefix nocache: the application's cookie is not changed: sticky sets one of its own, JSESSIONID_BACKEND\n"}},
		"cookie of the application, rewritten": {http + " cookie SRV rewrite\n server a 10.0.0.11:80 cookie a\n", []string{"sticky: SRV_BACKEND"}, []string{"x:7: cookie SRV rewrite: "}},
		"cookie of the application, read":      {http + " cookie SRV\n server a 10.0.0.11:80 cookie a\n", []string{"sticky: SRV_BACKEND"}, []string{"x:7: cookie SRV: "}},
		"cookie of HAProxy":                    {http + " cookie SRV insert indirect nocache\n server a 10.0.0.11:80 cookie a\n", []string{"sticky: SRV\n"}, []string{"!x:7"}},
		"cookie of HAProxy for a domain":       {http + " cookie SRV insert indirect domain .a.example maxidle 30m\n server a 10.0.0.11:80 cookie a\n", []string{"sticky: SRV\n"}, []string{"x:7: cookie SRV insert indirect domain .a.example maxidle 30m: domain, maxidle of the cookie is left out\n"}},

		"TLS of mode tcp":           {"listen f\n bind 10.0.0.1:5432 ssl crt web.pem\n server a 10.0.0.11:5432\n", []string{"!10.0.0"}, []string{"x:2: bind 10.0.0.1:5432 ssl crt web.pem: mode tcp does not end TLS, it passes it through: it is left out; let the servers speak TLS themselves and remove ssl and crt, or keep HAProxy in front; mode http ends TLS, for HTTP alone\n", "!add mode: http"}},
		"TLS to servers, mode tcp":  {tcp + " server a 10.0.0.11:5432 ssl verify none\n", []string{"!10.0.0"}, []string{"x:3: server a 10.0.0.11:5432 ssl verify none: mode tcp speaks no TLS with backends, it passes that of the clients through: the balancer is left out", "!add mode: http"}},
		"TLS of one address of two": {"listen f\n bind 10.0.0.1:5433 ssl crt web.pem\n bind 10.0.0.1:5432\n server a 10.0.0.11:5432\n", []string{"10.0.0.1:5432", "!5433"}, []string{"x:2: bind"}},

		"monitor-uri":              {"frontend f\n mode http\n bind 10.0.0.1:80\n monitor-uri /up\n default_backend b\nbackend b\n mode http\n server a 10.0.0.11:80\n", nil, []string{"x:4: monitor-uri /up: bootlab answers no path by itself: the backends get these requests\n"}},
		"address of a check":       {tcp + " server a 10.0.0.11:5432 check addr 10.0.0.99 port 8008\n", []string{"check: {port: 8008}"}, []string{"x:3: server a 10.0.0.11:5432 check addr 10.0.0.99 port 8008: addr is left out: a check goes to the address of the backend\n"}},
		"client in another field":  {http + " option forwardfor header X-Client-IP\n server a 10.0.0.11:80\n", nil, []string{"NOT ENFORCED: x:7: option forwardfor header X-Client-IP: the client's address is in X-Forwarded-For alone: the backends get what a client writes into this field\n"}},
		"client of some":           {http + " option forwardfor except 10.0.0.0/8 if-none\n server a 10.0.0.11:80\n", nil, []string{"x:7: option forwardfor except 10.0.0.0/8 if-none: X-Forwarded-For of the clients is dropped, but that of trusted_proxies: set it\n", "!NOT ENFORCED"}},
		"client":                   {http + " option forwardfor\n server a 10.0.0.11:80\n", nil, []string{"!forwardfor"}},
		"ciphers":                  {"global\n ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256\n ssl-default-bind-ciphers ECDHE\nfrontend f\n mode http\n bind 10.0.0.1:443 ssl crt a.pem ciphers ECDHE\n default_backend b\nbackend b\n mode http\n server a 10.0.0.11:80\n", nil, []string{"x:2: ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256: cipher suites", "x:3: ssl-default", "x:6: bind 10.0.0.1:443 ssl crt a.pem ciphers ECDHE: cipher suites and curves are not configurable: ciphers is left out\n"}},
		"options of a server":      {tcp + " server a 10.0.0.11:5432 check downinter 1m minconn 3 maxqueue 9\n", nil, []string{": downinter is left out", ": minconn is left out", ": maxqueue is left out"}},
		"backups, one at a time":   {tcp + " server a 10.0.0.11:5432\n server b 10.0.0.12:5432 backup\n server c 10.0.0.13:5432 backup\n", nil, []string{"x:5: server c 10.0.0.13:5432 backup: HAProxy uses the first backup alone, bootlab all of them at once: leave out this one, or keep both\n"}},
		"backups together":         {tcp + " option allbackups\n server a 10.0.0.11:5432\n server b 10.0.0.12:5432 backup\n server c 10.0.0.13:5432 backup\n", nil, []string{"!backup"}},
		"format of the log":        {http + " log-format %ci\n server a 10.0.0.11:80\n", nil, []string{"x:7: log-format %ci: the access log has attributes of its own: it is left out\n"}},
		"verified in part":         {http + " server a 10.0.0.11:443 ssl verify none\n server b 10.0.0.12:443 ssl verify required ca-file ca.pem\n", []string{"ca_file: ca.pem"}, []string{"x:7: server a 10.0.0.11:443 ssl verify none: verify is one for all backends: this server is down unless its certificate is verified as that of x:8 is\n"}},
		"verified by one file":     {http + " server a 10.0.0.11:443 ssl verify required ca-file a.pem\n server b 10.0.0.12:443 ssl verify required ca-file b.pem\n", nil, []string{"x:8: server b 10.0.0.12:443 ssl verify required ca-file b.pem: ca-file is one for all backends"}},
		"begin of a path":          {"frontend f\n mode http\n bind 10.0.0.1:80\n use_backend b if { path_beg /api }\nbackend b\n mode http\n server a 10.0.0.11:80\n", []string{"path: [/api]"}, []string{"x:4: use_backend b if { path_beg /api }: path_beg /api is also the begin of /api-x in HAProxy; here it is /api and what is below\n"}},
		"begin of a folder":        {"frontend f\n mode http\n bind 10.0.0.1:80\n use_backend b if { path_beg /api/ }\nbackend b\n mode http\n server a 10.0.0.11:80\n", []string{"path: [/api/]"}, []string{"!path_beg /api/ is"}},
		"requests that are broken": {http + " option accept-invalid-http-request\n server a 10.0.0.11:80\n", nil, []string{"x:7: option accept-invalid-http-request: what is malformed gets 400\n"}},

		"check with TLS, of one":    {tcp + " option httpchk GET /up\n server a 10.0.0.11:5432 check check-ssl verify none\n server b 10.0.0.12:5432 check\n", []string{"kind: https"}, []string{"x:5: server b 10.0.0.12:5432 check: check-ssl is one for all backends of a balancer: that of the first is used\n"}},
		"one server is checked":     {tcp + " server a 10.0.0.11:5432 port 9 inter 9s\n server b 10.0.0.12:5432 check\n", []string{"!kind: none"}, []string{"x:4: server b 10.0.0.12:5432 check: check is one for all backends of a balancer: all are checked\n", "!that of", "!inter is one"}},
		"another check":             {tcp + " server a 10.0.0.11:5432\n server b 10.0.0.12:5432 check inter 3s\n server c 10.0.0.13:5432 check\n", []string{"interval: 3s"}, []string{"x:5: server c 10.0.0.13:5432 check: inter is one for all backends of a balancer: that of server b is used\n"}},
		"defaults of a check":       {tcp + " server a 10.0.0.11:5432 check inter 2s rise 2 fall 3\n server b 10.0.0.12:5432 check\n server c 10.0.0.13:5432 check inter 2000\n", []string{"interval: 2s"}, []string{"!is one for all"}},
		"PROXY header of a check":   {tcp + " server a 10.0.0.11:5432 check check-send-proxy\n server b 10.0.0.12:5432 check\n", []string{"!send_proxy"}, []string{"x:3: server a 10.0.0.11:5432 check check-send-proxy: check-send-proxy is left out: checks send a PROXY header where connections do"}},
		"PROXY header, checked":     {tcp + " server a 10.0.0.11:5432 check send-proxy check-send-proxy\n", []string{"send_proxy: v1"}, []string{"!check-send-proxy is left out"}},
		"PROXY header, other port":  {tcp + " server a 10.0.0.11:5432 check send-proxy check-send-proxy port 8008\n", nil, []string{"check-send-proxy is left out"}},
		"time without an ACK":       {"listen f\n bind 10.0.0.1:5432 tcp-ut 30s\n server a 10.0.0.11:5432 tcp-ut 20s\n", nil, []string{"x:2: bind 10.0.0.1:5432 tcp-ut 30s: tcp-ut is left out\n", "x:3: server a 10.0.0.11:5432 tcp-ut 20s: tcp-ut is left out\n"}},
		"request of a check":        {http + " option httpchk\n http-check send meth GET uri /up ver HTTP/1.1 hdr Host a.example hdr X-Token b body c\n server a 10.0.0.11:80 check\n", []string{"path: /up", "host: a.example"}, []string{"hdr X-Token b …: a check sends no header but Host: X-Token is left out\n", ": a check sends no body: it is left out\n", "!with GET"}},
		"connection of a check":     {http + " option httpchk GET /up\n http-check comment c\n http-check connect ssl\n http-check send hdr Host a.example\n http-check expect status 200\n http-check send uri /b\n http-check expect status 204\n server a 10.0.0.11:80 check\n", []string{"expect: 204"}, []string{"NOT ENFORCED: x:11: http-check expect status 200: a check expects one thing, that of x:13: ", "x:9: http-check connect ssl: there is no equivalent: it is left out\n", "x:10: http-check send hdr Host a.example: a check sends one request, that of x:12: it is left out\n", "!x:8", "!x:13: http-check"}},
		"path of a check like meth": {http + " option httpchk\n http-check send uri /up hdr uri meth meth GET\n server a 10.0.0.11:80 check\n", []string{"path: /up"}, []string{"!with GET"}},
		"path in any case":          {"frontend f\n mode http\n bind 10.0.0.1:80\n use_backend b if { path_beg -i /Api/ }\nbackend b\n mode http\n server a 10.0.0.11:80\n", []string{"path: [/Api/]"}, []string{"x:4: use_backend b if { path_beg -i /Api/ }: -i is left out: the path /Api/ is compared as it is written\n"}},
		"path without letters":      {"frontend f\n mode http\n bind 10.0.0.1:80\n use_backend b if { path_beg -i /1/ }\nbackend b\n mode http\n server a 10.0.0.11:80\n", []string{"path: [/1/]"}, []string{"!-i is left out"}},
		"redirect by default":       {"frontend f\n mode http\n bind 10.0.0.1:80\n redirect scheme https\n", []string{"redirect: https"}, []string{"x:4: redirect scheme https: HAProxy redirects with 302, bootlab with 301 (GET, HEAD) or 308, which browsers keep\n"}},
		"redirect with a code":      {"frontend f\n mode http\n bind 10.0.0.1:80\n http-request redirect scheme https code 307 if !{ ssl_fc }\n", []string{"redirect: https"}, []string{"HAProxy redirects with 307, bootlab with 301"}},
		"redirect for good":         {"frontend f\n mode http\n bind 10.0.0.1:80\n redirect scheme https code 301 drop-query set-cookie a=b\n", []string{"redirect: https"}, []string{"!HAProxy redirects", ": drop-query is left out\n", ": set-cookie is left out\n"}},
		"server name, mode http":    {"frontend f\n mode http\n bind 10.0.0.1:443 ssl crt a.pem\n use_backend b if { ssl_fc_sni a.example }\nbackend b\n mode http\n server a 10.0.0.11:80\n", []string{"sni: [a.example]"}, []string{"x:4: use_backend b if { ssl_fc_sni a.example }: in mode http the server name is compared with the HTTP host, and not with the one of the TLS handshake\n"}},
		"server name and host":      {"frontend f\n mode http\n bind 10.0.0.1:443 ssl crt a.pem\n use_backend b if { ssl_fc_sni a.example } { hdr(host) b.example }\nbackend b\n mode http\n server a 10.0.0.11:80\n", []string{"!10.0.0.11"}, []string{"a server name and a host that must both hold are not supported: the rule is left out\n"}},
		"server name, mode tcp":     {"frontend f\n bind 10.0.0.1:443\n use_backend b if { req_ssl_sni a.example }\nbackend b\n server a 10.0.0.11:443\n", []string{"sni: [a.example]"}, []string{"!in mode http"}},
		"retries":                   {http + " retries 0\n retry-on 503 conn-failure\n server a 10.0.0.11:80\n", nil, []string{"x:7: retries 0: another backend is tried all the same until timeouts.connect ends\n", "x:8: retry-on 503 conn-failure: a request is tried again where it is lost, not for what a backend answers: it is left out\n"}},
		"retries as here":           {http + " retries 3\n retry-on conn-failure empty-response\n server a 10.0.0.11:80\n", nil, []string{"!x:7", "!x:8"}},
		"no retries":                {http + " retry-on none\n server a 10.0.0.11:80\n", nil, []string{"x:7: retry-on none: a request that is lost is tried again all the same\n"}},
		"timeouts of half":          {tcp + " timeout client-fin 30s\n timeout server-fin 30s\n timeout tarpit 3s\n timeout client 30s\n server a 10.0.0.11:5432\n", nil, []string{"x:3: timeout client-fin 30s: there is no equivalent: it is left out\n", "x:4: timeout server-fin", "x:5: timeout tarpit", "!x:6"}},
		"whole requests":            {http + " option http-buffer-request\n server a 10.0.0.11:80\n", nil, []string{"x:7: option http-buffer-request: there is no equivalent: it is left out\n"}},

		"lines of global": {"global\n stats socket /run/haproxy.sock\n setenv A b\n external-check\n log /dev/log local0\n tune.bufsize 32768\n maxconn 4000\n no strict-limits\n lua-load a.lua\n ssl-default-bind-options ssl-min-ver TLSv1.2\n" + tcp + " server a 10.0.0.11:5432\n", nil,
			[]string{"x:2: stats socket /run/haproxy.sock: the dashboard and /metrics replace it\n", "x:3: setenv A b: there is no equivalent: it is left out\n", "x:4: external-check: there is no", "!x:5", "!x:6", "!x:7", "!x:8", "x:9: lua-load a.lua: there is no Lua", "!x:10"}},

		"expectation":            {tcp + " option tcp-check\n tcp-check connect\n tcp-check expect string role:master\n server a 10.0.0.11:5432 check\n", nil, []string{"NOT ENFORCED: x:5: tcp-check expect string role:master: a check connects and reads nothing: a server that does not answer so, such as a replica, gets connections\n"}},
		"expectation of http":    {http + " option httpchk GET /role\n http-check expect string master\n server a 10.0.0.11:80 check\n", nil, []string{"NOT ENFORCED: x:8: http-check expect string master: a check expects a status"}},
		"statuses by expression": {http + " option httpchk GET /up\n http-check expect rstatus ^20[04]\n server a 10.0.0.11:80 check\n", nil, []string{"x:8: http-check expect rstatus ^20[04]: a check expects statuses as a list: write expect; any 2xx or 3xx passes until then\n", "!NOT ENFORCED"}},
		"no expectation":         {tcp + " option tcp-check\n tcp-check connect\n server a 10.0.0.11:5432 check\n", nil, []string{"x:4: tcp-check connect: ", "!NOT ENFORCED"}},

		"servers by DNS":                 {tcp + " server-template pg 3 db.example.com:5432 resolvers dns check\n", []string{"- db.example.com:5432 # pg\n"}, []string{"x:3: server-template pg 3 db.example.com:5432 resolvers dns check: all addresses of the name are backends, 64 at most, and are looked up again when their TTL ends\n"}},
		"servers by SRV":                 {tcp + " server-template pg 3 _pg._tcp.example.com resolvers dns check\n", nil, []string{"x:3: server-template pg 3 _pg._tcp.example.com resolvers dns check: SRV records"}},
		"a server by DNS":                {tcp + " server a db.example.com:5432 resolvers dns check\n", []string{"- db.example.com:5432 # a\n"}, []string{"x:3: server a db.example.com:5432 resolvers dns check: all addresses"}},
		"a name of the domain of others": {tcp + " server a db.example.com:5432 resolvers dns\n server b pg.example.com:5432\n server c my.example.com:5432\n", []string{"!example.com\n", "- db.example.com:5432 # a\n", "- 10.9.9.9:5432 # b\n"}, nil},

		"names of servers":      {tcp + " server pg-0 10.0.0.11:5432\n server pg-1 10.0.0.12:5432 weight 3\n server 10.0.0.13 10.0.0.13:5432\n", []string{"- 10.0.0.11:5432 # pg-0\n", "- {address: 10.0.0.12:5432, weight: 3} # pg-1\n", "- 10.0.0.13:5432\n"}, nil},
		"a backend used twice":  {"frontend f\n bind 10.0.0.1:80\n default_backend b\nfrontend g\n bind 10.0.0.2:80\n default_backend b\nbackend b\n server a 10.0.0.11:80\n", nil, []string{"x:7: backend b: it becomes 2 balancers, f and g, each with checks, connection limits and a queue of its own\n"}},
		"a map":                 {"frontend f\n mode http\n bind 10.0.0.1:80\n use_backend %[req.hdr(host),lower,map(/etc/haproxy/hosts.map,b)]\nbackend b\n mode http\n server a 10.0.0.11:80\n", nil, []string{"x:4: use_backend %[req.hdr(host),lower,map(/etc/haproxy/hosts.map,b)]: a backend that is looked up for each request is not supported: write a balancer with match for each"}},
		"statistics":            {"listen stats\n bind :8404\n mode http\n stats enable\n stats uri /\n", nil, []string{"x:1: listen stats: the dashboard and /metrics replace it: the section is left out\n"}},
		"statistics of a front": {"frontend stats\n bind :8404\n mode http\n http-request use-service prometheus-exporter if { path /metrics }\n", nil, []string{"x:4: http-request use-service prometheus-exporter if { path /metrics }: the dashboard and /metrics replace it"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			importProxy(t, tt.text).want(t, tt.lab, tt.notes)
		})
	}
}

// TestCertificatesOfAFolder: the files that HAProxy would load from a folder are listed; one that cannot be read is a note.
func TestCertificatesOfAFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"b.pem", "a.pem", "a.pem.ocsp", "a.pem.key", ".hidden.pem", "c.pem.issuer"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := filepath.Join(t.TempDir(), "haproxy.cfg")
	for _, tt := range []struct{ crt, lab, note string }{
		{dir + "/", "certificates: [" + dir + "/a.pem, " + dir + "/b.pem]", "bind :443 ssl crt " + dir + "/: the files that the folder has now are listed: add a new one to certificates"},
		{dir, "certificates: [" + dir + "/a.pem, " + dir + "/b.pem]", ""},
		{"/nowhere/certs/", "/nowhere/certs/CERTIFICATE.pem", "the folder /nowhere/certs/ cannot be read here (no such file or directory): list its files as certificates, for which /nowhere/certs/CERTIFICATE.pem stands"},
	} {
		text := "frontend f\n mode http\n bind :443 ssl crt " + tt.crt + "\n default_backend b\nbackend b\n mode http\n server a 10.0.0.11:80\n"
		if err := os.WriteFile(cfg, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := importer.Import(importer.HAProxy, []string{cfg}, importer.Options{Check: check})
		if err != nil {
			t.Fatal(err)
		}
		notes := fmt.Sprint(r.Notes)
		if !strings.Contains(strings.Join(strings.Fields(string(r.Lab)), " "), strings.Join(strings.Fields(tt.lab), " ")) && !strings.Contains(string(r.Lab), "- "+dir+"/a.pem\n") || !strings.Contains(notes, tt.note) {
			t.Errorf("crt %s: want %q and the note %q, got\n%s%s", tt.crt, tt.lab, tt.note, r.Lab, notes)
		}
	}
}

// TestStandardInput imports what is piped in, by either name.
func TestStandardInput(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"-", "/dev/stdin"} {
		o := importer.Options{Check: check, Stdin: strings.NewReader("listen l\n bind :80\n server a 10.0.0.11:80\n chek\n")}
		r, err := importer.Import(importer.HAProxy, []string{name}, o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !strings.Contains(string(r.Lab), "10.0.0.11:80") || len(r.Notes) != 1 || r.Notes[0].File != name {
			t.Errorf("%s: %s%v", name, r.Lab, r.Notes)
		}
	}
	if _, err := importer.Import(importer.HAProxy, []string{"-", "-"}, importer.Options{Check: check, Stdin: strings.NewReader("")}); err == nil {
		t.Error("standard input is read twice")
	}
}
