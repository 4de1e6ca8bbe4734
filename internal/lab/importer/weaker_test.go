package importer_test

import (
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab/importer"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// tlsHead is a backend whose servers follow.
const tlsHead = "frontend f\n mode http\n bind 10.0.0.1:80\n default_backend b\nbackend b\n mode http\n"

// TestNotEnforced says which statements restrict access where bootlab does not. Each is a comment of the lab file.
func TestNotEnforced(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		format importer.Format
		text   string
		want   string // of a comment; empty: there is none
	}{
		"http-request deny":        {importer.HAProxy, ruleHead + " acl inside src 10.0.0.0/8\n http-request deny unless inside\n" + ruleEnd, "x:6: http-request deny unless inside"},
		"http-request auth":        {importer.HAProxy, ruleHead + " http-request auth realm a if !{ http_auth(u) }\n" + ruleEnd, "x:5: http-request auth"},
		"return 403":               {importer.HAProxy, ruleHead + " http-request return status 403 if { path /x }\n" + ruleEnd, "x:5: http-request return status 403"},
		"return 200":               {importer.HAProxy, ruleHead + " http-request return status 200 if { path /x }\n" + ruleEnd, ""},
		"lua action":               {importer.HAProxy, ruleHead + " http-request lua.guard\n" + ruleEnd, "x:5: http-request lua.guard"},
		"tcp-request reject":       {importer.HAProxy, ruleHead + " tcp-request connection reject if { src -f bad }\n" + ruleEnd, "x:5: tcp-request connection reject"},
		"reject by defaults":       {importer.HAProxy, "defaults d\n tcp-request connection reject if { src -f bad }\n" + ruleHead + ruleEnd, "x:2: tcp-request connection reject"},
		"tcp-request accept":       {importer.HAProxy, ruleHead + " tcp-request inspect-delay 5s\n tcp-request content accept if { req_ssl_hello_type 1 }\n" + ruleEnd, ""},
		"older deny":               {importer.HAProxy, ruleHead + " reqdeny ^x\n" + ruleEnd, "x:5: reqdeny"},
		"response deny":            {importer.HAProxy, ruleHead + " http-response deny if { status 500 }\n" + ruleEnd, "x:5: http-response deny"},
		"rate limit":               {importer.HAProxy, ruleHead + " rate-limit sessions 10\n" + ruleEnd, "x:5: rate-limit sessions 10"},
		"global rate limit":        {importer.HAProxy, "global\n maxconnrate 10\n" + ruleHead + ruleEnd, "x:2: maxconnrate 10"},
		"filter":                   {importer.HAProxy, ruleHead + " filter spoe engine waf config waf.cfg\n" + ruleEnd, "x:5: filter spoe"},
		"a header is removed":      {importer.HAProxy, ruleHead + " http-request del-header X-Remote-User\n" + ruleEnd, "x:5: http-request del-header X-Remote-User"},
		"a header with who it is":  {importer.HAProxy, ruleHead + " http-request set-header X-User %[ssl_c_s_dn(cn)]\n" + ruleEnd, "x:5: http-request set-header X-User"},
		"another header":           {importer.HAProxy, ruleHead + " http-request set-header X-Team blue\n" + ruleEnd, ""},
		"X-Forwarded-Proto":        {importer.HAProxy, ruleHead + " http-request set-header X-Forwarded-Proto https\n" + ruleEnd, ""},
		"clients' certificates":    {importer.HAProxy, strings.Replace(ruleHead, "10.0.0.1:80", "10.0.0.1:443 ssl crt a.pem ca-file ca.pem verify required", 1) + ruleEnd, "x:3: bind 10.0.0.1:443"},
		"no clients' certificates": {importer.HAProxy, strings.Replace(ruleHead, "10.0.0.1:80", "10.0.0.1:443 ssl crt a.pem verify none", 1) + ruleEnd, ""},
		"newest TLS only":          {importer.HAProxy, strings.Replace(ruleHead, "10.0.0.1:80", "10.0.0.1:443 ssl crt a.pem ssl-min-ver TLSv1.3", 1) + ruleEnd, "x:3: bind 10.0.0.1:443"},
		"TLS of today":             {importer.HAProxy, strings.Replace(ruleHead, "10.0.0.1:80", "10.0.0.1:443 ssl crt a.pem ssl-min-ver TLSv1.2", 1) + ruleEnd, ""},
		"newest TLS for all":       {importer.HAProxy, "global\n ssl-default-bind-options ssl-min-ver TLSv1.3\n" + ruleHead + ruleEnd, "x:2: ssl-default-bind-options"},
		"one interface":            {importer.HAProxy, strings.Replace(ruleHead, "10.0.0.1:80", ":80 interface eth1", 1) + ruleEnd, "x:3: bind :80 interface eth1"},
		"server name needed":       {importer.HAProxy, strings.Replace(ruleHead, "10.0.0.1:80", "10.0.0.1:443 ssl crt a.pem strict-sni", 1) + ruleEnd, "x:3: bind 10.0.0.1:443"},
		"rule by address":          {importer.HAProxy, ruleHead + " use_backend b unless { src 10.0.0.0/8 }\n" + ruleEnd, "x:5: use_backend b unless"},
		"rule by acl":              {importer.HAProxy, ruleHead + " acl inside src 10.0.0.0/8\n use_backend b if !inside\n" + ruleEnd, "x:6: use_backend b if !inside"},
		"rule to nowhere":          {importer.HAProxy, ruleHead + " use_backend nowhere if { path_end .php }\n" + ruleEnd + "backend nowhere\n mode http\n", "x:5: use_backend nowhere"},
		"rule to a disabled one":   {importer.HAProxy, ruleHead + " use_backend b if { path_beg /api }\n" + strings.Replace(ruleEnd, "backend b\n", "backend b\n disabled\n", 1), "x:5: use_backend b"},
		"rule by path":             {importer.HAProxy, ruleHead + " use_backend b if { path_end .php }\n" + ruleEnd, ""},
		"redirect to login":        {importer.HAProxy, ruleHead + " http-request redirect location /login if !{ req.cook(s) -m found }\n" + ruleEnd, "x:5: http-request redirect location /login"},
		"redirect of some to TLS":  {importer.HAProxy, ruleHead + " redirect scheme https if { hdr_dom(host) a.example }\n" + ruleEnd, "x:5: redirect scheme https"},
		"redirect of a host":       {importer.HAProxy, ruleHead + " redirect scheme https if { hdr(host) a.example }\n" + ruleEnd, ""},
		"redirect of a path":       {importer.HAProxy, ruleHead + " redirect location /b if { path /a }\n" + ruleEnd, ""},
		"statistics":               {importer.HAProxy, "listen stats\n bind :8404\n mode http\n stats enable\n stats auth a:b\n http-request deny if { src 10.0.0.1 }\n", ""},
		"section in no use":        {importer.HAProxy, ruleHead + ruleEnd + "backend x\n http-request deny\n", ""},
		"revoked certificates":     {importer.HAProxy, tlsHead + " server a 10.0.0.11:443 ssl verify required ca-file ca.pem crl-file crl.pem\n", "x:7: server a"},
		"some without TLS":         {importer.HAProxy, tlsHead + " server a 10.0.0.11:80\n server b 10.0.0.12:443 ssl verify required ca-file ca.pem\n", ""},

		"ignored tag":                  {importer.Dnsmasq, dhcpHead + "dhcp-vendorclass=set:bad,printer\ndhcp-ignore=tag:bad\n", "x:3: dhcp-ignore=tag:bad"},
		"ignored tag of some hosts":    {importer.Dnsmasq, dhcpHead + "dhcp-mac=set:bad,52:54:66:*:*:*\ndhcp-host=52:54:66:00:00:01,10.202.77.11,a\ndhcp-ignore=tag:bad\n", "x:4: dhcp-ignore=tag:bad"},
		"ignored hosts":                {importer.Dnsmasq, dhcpHead + "dhcp-host=52:54:66:00:00:01,set:bad,10.202.77.11,a\ndhcp-ignore=tag:bad\n", ""},
		"ignored pattern":              {importer.Dnsmasq, dhcpHead + "dhcp-host=52:54:66:*:*:*,ignore\n", "x:2: dhcp-host=52:54:66:*:*:*,ignore"},
		"ignored client id":            {importer.Dnsmasq, dhcpHead + "dhcp-host=id:01:02,ignore\n", "x:2: dhcp-host=id:01:02,ignore"},
		"ignored name":                 {importer.Dnsmasq, dhcpHead + "dhcp-host=laptop,ignore\n", "x:2: dhcp-host=laptop,ignore"},
		"known hosts only":             {importer.Dnsmasq, dhcpHead + "dhcp-host=52:54:66:00:00:01,a\ndhcp-ignore=tag:!known\n", ""},
		"known hosts of some MACs":     {importer.Dnsmasq, "dhcp-mac=set:lab,52:54:66:*:*:*\ndhcp-range=tag:lab,10.202.77.100,10.202.77.120,255.255.255.0\ndhcp-host=52:54:66:00:00:01,a\ndhcp-ignore=tag:!known\n", ""},
		"all but some":                 {importer.Dnsmasq, "dhcp-mac=set:bad,52:54:66:*:*:*\ndhcp-range=tag:!bad,10.202.77.100,10.202.77.120,255.255.255.0\n", "x:2: dhcp-range=tag:!bad"},
		"all but those of another":     {importer.Dnsmasq, "dhcp-mac=set:vm,52:54:66:*:*:*\ndhcp-range=tag:!vm,10.202.77.100,10.202.77.120,255.255.255.0\ndhcp-range=tag:vm,10.202.77.130,10.202.77.140,255.255.255.0\n", ""},
		"rebinding":                    {importer.Dnsmasq, dhcpHead + "stop-dns-rebind\n", "x:2: stop-dns-rebind"},
		"DNSSEC":                       {importer.Dnsmasq, dhcpHead + "dnssec\n", "x:2: dnssec"},
		"blocked name":                 {importer.Dnsmasq, dhcpHead + "address=/ads.example/\n", "x:2: address=/ads.example/"},
		"name that is never forwarded": {importer.Dnsmasq, dhcpHead + "domain=lab.example\nlocal=/ads.example/\n", "x:3: local=/ads.example/"},
		"own domain":                   {importer.Dnsmasq, dhcpHead + "domain=lab.example\nlocal=/lab.example/\n", ""},
		"allowlist":                    {importer.Dnsmasq, dhcpHead + "connmark-allowlist-enable\nconnmark-allowlist=1,a.example\n", "x:3: connmark-allowlist=1,a.example"},

		"class that is denied":   {importer.DHCPD, dhcpdHead + "pool { range 10.0.0.5 10.0.0.9; deny members of \"bad\"; }\n}\n", "x:2: deny members of bad"},
		"unknown machines":       {importer.DHCPD, "deny unknown-clients;\n" + dhcpdHead + "range 10.0.0.5 10.0.0.9;\n}\n", ""},
		"unknown machines, flag": {importer.DHCPD, "boot-unknown-clients off;\n" + dhcpdHead + "range 10.0.0.5 10.0.0.9;\n}\n", ""},
		"unknown in one subnet":  {importer.DHCPD, dhcpdHead + "deny unknown-clients;\npool { range 10.0.0.5 10.0.0.9; }\n}\n", ""},
		"nobody boots":           {importer.DHCPD, "deny booting;\n" + dhcpdHead + "range 10.0.0.5 10.0.0.9;\n}\n", "x:1: deny booting"},
		"group that is ignored":  {importer.DHCPD, "group { ignore booting; host a { hardware ethernet 52:54:00:77:00:01; } }\n", "x:1: ignore booting"},
		"ignored client":         {importer.DHCPD, "host a { option dhcp-client-identifier 01; deny booting; }\n", "x:1: host a"},
		"limit of a class":       {importer.DHCPD, "class \"c\" { match hardware; lease limit 4; }\n", "x:1: class c"},
		"ignored by a class":     {importer.DHCPD, "class \"c\" { match if true; ignore booting; }\n", "x:1: class c"},
		"ignored by expression":  {importer.DHCPD, "if option vendor-class-identifier = \"x\" { ignore booting; }\n", "x:1: if option vendor-class-identifier = x"},
		"another class":          {importer.DHCPD, "class \"c\" { match hardware; filename \"a\"; }\n", ""},

		"dropped class":       {importer.Kea, kea(`"client-classes": [{"name": "DROP", "test": "member('x')"}]`), "class DROP"},
		"class of a subnet":   {importer.Kea, kea(`"subnet4": [{"subnet": "10.0.0.0/24", "client-class": "x"}]`), "client-class: x"},
		"classes of a subnet": {importer.Kea, kea(`"subnet4": [{"subnet": "10.0.0.0/24", "client-classes": ["x", "y"]}]`), "client-classes"},
		"class of a network":  {importer.Kea, kea(`"shared-networks": [{"name": "s", "client-class": "x", "subnet4": [{"subnet": "10.0.0.0/24"}]}]`), "client-class: x"},
		"classes of a pool":   {importer.Kea, kea(`"subnet4": [{"subnet": "10.0.0.0/24", "pools": [{"pool": "10.0.0.5-10.0.0.9", "client-classes": ["x", "y"]}]}]`), ""},
		"limits":              {importer.Kea, kea(`"hooks-libraries": [{"library": "/usr/lib/libdhcp_limits.so"}]`), "hooks-libraries"},
		"other hook":          {importer.Kea, kea(`"hooks-libraries": [{"library": "/usr/lib/libdhcp_run_script.so"}]`), ""},
		"dropped client":      {importer.Kea, kea(`"reservations": [{"duid": "01:02", "client-classes": ["DROP"]}]`), "reservation"},

		"rate of a network":  {importer.LibvirtNet, "<network><name>n</name><bridge name='b'/><bandwidth><inbound average='1'/></bandwidth></network>", "<bandwidth>"},
		"isolated ports":     {importer.LibvirtNet, "<network><name>n</name><bridge name='b'/><port isolated='yes'/></network>", "<port isolated='yes'>"},
		"VLAN of a network":  {importer.LibvirtNet, "<network><name>n</name><bridge name='b'/><vlan><tag id='7'/></vlan></network>", "<vlan>"},
		"line end in a text": {importer.HAProxy, ruleHead + " http-request deny if { path /\u2028version:\u00852 }\n" + ruleEnd, "x:5: http-request deny if { path / version: 2 }"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := importer.Text(tt.format, "x", []byte(tt.text), importer.Options{Check: check})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := load.Parse("lab.yaml", r.Lab, load.Options{}); err != nil {
				t.Fatal(err)
			}
			var comments []string
			for line := range strings.Lines(string(r.Lab)) {
				if comment, ok := strings.CutPrefix(line, "# NOT ENFORCED: "); ok {
					comments = append(comments, comment)
				}
			}
			got := strings.Join(comments, "")
			if !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("want the comment %q, not %q in\n%s%v", tt.want, got, r.Lab, r.Notes)
			}
		})
	}
}

const dhcpdHead = "subnet 10.0.0.0 netmask 255.255.255.0 {\n"

func kea(members string) string { return `{"Dhcp4": {` + members + `}}` }

// TestVerificationIsKept says how the certificates of backends are verified, as HAProxy does by default.
func TestVerificationIsKept(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text       string
		want, none string
	}{
		"by default":            {tlsHead + " server a 10.0.0.11:443 ssl ca-file ca.pem\n", "backend_tls: {ca_file: ca.pem}", "verify: off"},
		"the system's":          {tlsHead + " server a 10.0.0.11:443 ssl ca-file @system-ca\n", "backend_tls: {}", "verify: off"},
		"not at all":            {tlsHead + " server a 10.0.0.11:443 ssl verify none\n", "backend_tls: {verify: off}", "ca_file"},
		"not at all for all":    {"global\n ssl-server-verify none\n" + tlsHead + " server a 10.0.0.11:443 ssl\n", "backend_tls: {verify: off}", "ca_file"},
		"required against none": {"global\n ssl-server-verify none\n" + tlsHead + " server a 10.0.0.11:443 ssl verify required ca-file ca.pem\n", "backend_tls: {ca_file: ca.pem}", "verify: off"},
		"by the second server":  {tlsHead + " server a 10.0.0.11:443 ssl verify none\n server b 10.0.0.12:443 ssl verify required ca-file ca.pem\n", "backend_tls: {ca_file: ca.pem}", "verify: off"},
		"TLS of the second":     {tlsHead + " server a 10.0.0.11:80\n server b 10.0.0.12:443 ssl verify required ca-file ca.pem\n", "backend_tls: {ca_file: ca.pem}", "verify: off"},
		"below ca-base":         {"global\n ca-base /etc/pki\n crt-base /etc/keys\n" + strings.Replace(tlsHead, "10.0.0.1:80", "10.0.0.1:443 ssl crt web.pem", 1) + " server a 10.0.0.11:443 ssl verify required ca-file ca.pem\n", "backend_tls: {ca_file: /etc/pki/ca.pem}", "[web.pem]"},
		"absolute path":         {"global\n ca-base /etc/pki\n" + tlsHead + " server a 10.0.0.11:443 ssl verify required ca-file /ca.pem\n", "backend_tls: {ca_file: /ca.pem}", ""},
		"of a check":            {tlsHead + " server a 10.0.0.11:443 ssl verify required ca-file ca.pem verifyhost a.example check\n", "check: {kind: tls, ca_file: ca.pem, sni: a.example}", ""},
		"of a check of mode tcp": {"listen l\n bind 10.0.0.1:443\n option httpchk GET /\n server a 10.0.0.11:443 check check-ssl verify required ca-file ca.pem check-sni a.example\n",
			"ca_file: ca.pem", ""},
		"of a check without": {tlsHead + " server a 10.0.0.11:443 ssl verify none check\n", "check: {kind: tls}", "ca_file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := importer.Text(importer.HAProxy, "x", []byte(tt.text), importer.Options{Check: check})
			if err != nil {
				t.Fatal(err)
			}
			if text := string(r.Lab); !strings.Contains(text, tt.want) || tt.none != "" && strings.Contains(text, tt.none) {
				t.Errorf("want %q and not %q in\n%s%v", tt.want, tt.none, text, r.Notes)
			}
		})
	}
}
