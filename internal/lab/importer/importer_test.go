package importer_test

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/importer"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/test/support/golden"
)

var update = flag.Bool("update", false, "rewrite golden files")

// check is what bootlab check reports as errors.
func check(name string, text []byte) lab.Problems {
	l, err := load.Parse(name, text, load.Options{})
	if err == nil {
		_, err = snapshot.Compile(l)
	}
	var problems lab.Problems
	if err != nil && !errors.As(err, &problems) {
		problems = lab.Problems{{Message: err.Error()}}
	}
	return problems
}

// TestExamples imports every example, and compares the lab and the notes. A folder NAME.root has the files that an example names.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, f := range importer.Formats() {
		files, err := filepath.Glob("testdata/" + f[0] + "/*")
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for _, name := range files {
			ext := filepath.Ext(name)
			if ext == ".golden" || ext == ".root" {
				continue
			}
			count++
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				o := importer.Options{Check: check, Root: strings.TrimSuffix(name, ext) + ".root"}
				o.Lookup = hostsFile(filepath.Join(o.Root, "etc/hosts"))
				r, err := importer.Import(importer.Format(f[0]), []string{name}, o)
				if err != nil {
					t.Fatal(err)
				}
				text := string(r.Lab) + "--- notes\n"
				for _, n := range r.Notes {
					text += strings.Replace(n.String(), filepath.Dir(name)+"/", "", 1) + "\n"
				}
				golden.Check(t, update, strings.TrimSuffix(name, ext)+".golden", text)
			})
		}
		if count == 0 {
			t.Errorf("%s has no example", f[0])
		}
	}
}

// hostsFile looks names up in a file.
func hostsFile(file string) func(string) netip.Addr {
	text, _ := os.ReadFile(file) // without it no name has an address
	return func(name string) netip.Addr {
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 2 && f[1] == name {
				return netip.MustParseAddr(f[0])
			}
		}
		return netip.Addr{}
	}
}

// TestInterfacesOfThisMachine says that a network that an interface of this machine has is served on it.
func TestInterfacesOfThisMachine(t *testing.T) {
	t.Parallel()
	o := importer.Options{Check: check, Interface: func(a netip.Addr) (string, netip.Prefix) {
		own := netip.MustParsePrefix("10.30.4.1/22")
		if own.Contains(a) {
			return "br7", own
		}
		return "", netip.Prefix{}
	}}
	r, err := importer.Text(importer.Dnsmasq, "dnsmasq.conf", []byte("dhcp-range=10.30.5.10,10.30.5.20\n"), o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := load.Parse("lab.yaml", r.Lab, load.Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, r.Lab)
	}
	n := l.Networks[0]
	if n.Interface != "br7" || n.Address.String() != "10.30.4.1" || n.Subnet.String() != "10.30.4.0/22" || n.Router != n.Address || len(n.Pools) != 1 {
		t.Errorf("network %+v of\n%s", n, r.Lab)
	}
	if len(r.Notes) > 0 {
		t.Errorf("notes: %v", r.Notes)
	}
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		format importer.Format
		text   string
		want   string
	}{
		"another format":   {"bind", "", `"bind" is not a format`},
		"not for HAProxy":  {importer.HAProxy, "# a comment\nserver a 10.0.0.1:80\n", `x:2: "server" is not a section of haproxy.cfg`},
		"open block":       {importer.DHCPD, "subnet 10.0.0.0 netmask 255.255.255.0 {\n  pool {\n    range 10.0.0.5 10.0.0.9;\n  }\n# {\n", "x:1: the block that begins here is not closed"},
		"open inner block": {importer.DHCPD, "\nsubnet 10.0.0.0 netmask 255.255.255.0 {\n  pool {\n    range 10.0.0.5 10.0.0.9;\n", "x:3: the block that begins here is not closed"},
		"open statement":   {importer.DHCPD, "authoritative;\nsubnet 10.0.0.0 netmask\n 255.255.255.0\n", "x:2: a semicolon is missing"},
		"not for dnsmasq":  {importer.Dnsmasq, "domain=a.example\nlisten_addresses = '*'\n", `x:2: "listen_addresses" is not an option of dnsmasq`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := importer.Text(tt.format, "x", []byte(tt.text), importer.Options{Check: check})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
	if _, err := importer.Import(importer.Dnsmasq, []string{"testdata/none.conf"}, importer.Options{Check: check}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

const proxyHead = "frontend f\n mode http\n bind 10.0.0.1:80\n default_backend b\nbackend b\n mode http\n"

const dhcpHead = "dhcp-range=lab,10.202.77.100,10.202.77.120,255.255.255.0,1h\n"

// ruleHead and ruleEnd are a frontend around its rules.
const (
	ruleHead = "frontend f\n mode http\n bind 10.0.0.1:80\n default_backend d\n"
	ruleEnd  = "backend b\n mode http\n server w2 10.0.0.12:80\nbackend d\n mode http\n server w1 10.0.0.11:80\n"
)

// TestNotes says what becomes of statements that have no equal, and that the note says so.
func TestNotes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		format     importer.Format
		text       string
		want, none string // in the lab
		note       string
	}{
		"disabled server": {importer.HAProxy, proxyHead + " server w1 10.0.0.11:80\n server w2 10.0.0.12:80 disabled\n", "10.0.0.11:80", "10.0.0.12",
			"x:8: server w2 10.0.0.12:80 disabled: a disabled server gets no connections: it is left out; to use it, add 10.0.0.12:80 to backends, or run bootlab backend add BALANCER 10.0.0.12:80"},
		"unknown option of a server": {importer.HAProxy, proxyHead + " server w1 10.0.0.11:80 chek weight 7\n", "weight: 7", "tcp",
			"x:7: server w1 10.0.0.11:80 chek weight 7: \"chek\" is not an option of a server, and is left out: did you mean check?\n"},
		"unknown option of all servers": {importer.HAProxy, proxyHead + " default-server chek\n server w1 10.0.0.11:80\n", "10.0.0.11:80", "", "x:7: default-server chek: \"chek\" is not an option of a server"},
		"enabled after all":             {importer.HAProxy, proxyHead + " default-server disabled\n server w1 10.0.0.11:80 enabled\n", "10.0.0.11:80", "disabled", ""},
		"weight 0": {importer.HAProxy, proxyHead + " server w1 10.0.0.11:80\n server w2 10.0.0.12:80 weight 0\n", "10.0.0.11:80", "10.0.0.12",
			"a server of weight 0 gets no connections: it is left out"},
		"all disabled": {importer.HAProxy, proxyHead + " server w1 10.0.0.11:80 disabled\n", "domain:", "10.0.0.1", "a disabled server"},
		"disabled frontend": {importer.HAProxy, "frontend f\n mode http\n disabled\n bind 10.0.0.1:80\n default_backend b\n" + ruleEnd, "domain:", "10.0.0.1",
			"x:3: disabled: a disabled frontend listens nowhere: f is left out\n"},
		"disabled listen": {importer.HAProxy, "listen l\n bind 10.0.0.1:80\n server s 10.0.0.11:80\n disabled\n", "domain:", "10.0.0.1", "x:4: disabled: a disabled listen listens nowhere: l is left out\n"},
		"disabled backend": {importer.HAProxy, ruleHead + " use_backend b if { path_beg /api }\n" + strings.Replace(ruleEnd, "backend b\n", "backend b\n disabled\n", 1), "10.0.0.11:80", "/api",
			"the backend is disabled (x:7), and HAProxy refuses what it would get: it is left out\n"},
		"disabled default backend": {importer.HAProxy, proxyHead + " disabled\n server w1 10.0.0.11:80\n", "domain:", "10.0.0.1", "the backend is disabled (x:7)"},
		"disabled by defaults":     {importer.HAProxy, "defaults\n disabled\n" + proxyHead + " server w1 10.0.0.11:80\n", "domain:", "10.0.0.1", "x:2: disabled: a disabled frontend listens nowhere: f is left out\n"},
		"enabled again":            {importer.HAProxy, "defaults\n disabled\nlisten l\n bind 10.0.0.1:80\n disabled\n enabled\n server s 10.0.0.11:80\n", "10.0.0.11:80", "disabled", ""},
		"MAC twice": {importer.Dnsmasq, dhcpHead + "dhcp-host=52:54:00:77:00:01,10.202.77.11,zulu\ndhcp-host=52:54:00:77:00:01,10.202.77.12,alpha\n", "alpha: {mac", "zulu",
			"x:2: dhcp-host=52:54:00:77:00:01,10.202.77.11,zulu: 52:54:00:77:00:01 is the MAC of a host at x:3: this host is left out\n"},
		"a host that is left out has one note": {importer.Dnsmasq, "domain=a.example\ninterface=eth0\n" + dhcpHead + "dhcp-host=52:54:00:77:00:01,10.202.77.11,zulu,infinite\ndhcp-host=52:54:00:77:00:01,10.202.77.12,alpha\n", "alpha: {mac", "8760h", "x:4: dhcp-host=52:54:00:77:00:01,10.202.77.11,zulu,infinite: 52:54:00:77:00:01 is the MAC of a host at x:5"},
		"a client identifier":                  {importer.Dnsmasq, dhcpHead + "dhcp-host=id:01:02,10.202.77.11,zulu\n", "zulu", "", "machines are known by MAC, not by a client identifier or the name that they send: the host has no mac\n"},
		"one of two MACs twice": {importer.Dnsmasq, dhcpHead + "dhcp-host=52:54:00:77:00:01,52:54:00:77:00:02,10.202.77.12,alpha\ndhcp-host=52:54:00:77:00:01,10.202.77.11,zulu\n",
			"alpha: {mac: 52:54:00:77:00:02", "", "52:54:00:77:00:01 is the MAC of a host at x:3: it is left out\n"},
		"MAC twice in dhcpd": {importer.DHCPD, "host zulu { hardware ethernet 52:54:00:77:00:01; }\nhost alpha { hardware ethernet 52:54:00:77:00:01; }\n", "zulu: {mac", "alpha:",
			"52:54:00:77:00:01 is the MAC of a host at x:1: this host is left out\n"},
		"address twice": {importer.Dnsmasq, dhcpHead + "dhcp-host=52:54:00:77:00:01,10.202.77.11,a\ndhcp-host=52:54:00:77:00:02,10.202.77.11,b\n", "a: {mac", "b: {",
			"hosts.b is left out: ip: 10.202.77.11 is already used by host a: want another address\n"},
		"tag without a prefix": {importer.Dnsmasq, dhcpHead + "dhcp-option=lab,3,10.202.77.254\n", "router: 10.202.77.254", "", "x:1: "},
		"tags of both kinds":   {importer.Dnsmasq, dhcpHead + "dhcp-option=lab,tag:lab,option:ntp-server,10.202.77.253\n", "ntp: [10.202.77.253]", "", "x:1: "},
		"tag that nobody sets": {importer.Dnsmasq, dhcpHead + "dhcp-option=blue,3,10.202.77.254\n", "networks:", "router", "no network, pool or host is all that has the tag blue: it is left out"},
		"not such a tag":       {importer.Dnsmasq, dhcpHead + "dhcp-option=#lab,3,10.202.77.254\n", "networks:", "router", "tag:!lab is not carried: it is left out"},
		"ignored by a tag":     {importer.Dnsmasq, dhcpHead + "dhcp-host=52:54:00:77:00:01,set:bad,zulu\ndhcp-ignore=bad\n", `zulu: {dhcp: off, mac: 52:54:00:77:00:01}`, "", "x:1: "},
		"log of queries":       {importer.Dnsmasq, "log-queries=extra\n", "domain:", "", "x:1: log-queries=extra: queries are not logged: bootlab dns log HOST shows those of one client\n"},
		"domain in a host": {importer.HAProxy, ruleHead + " use_backend b if { path_beg /api } { hdr_dom(host) -i a.example }\n" + ruleEnd, "10.0.0.11:80", "/api",
			"hdr_dom(host) is not supported, only the server name (req.ssl_sni, ssl_fc_sni), the host (hdr(host), hdr_end(host)) and the path (path_beg): the rule is left out\n"},
		"domain in an acl": {importer.HAProxy, ruleHead + " acl a hdr_dom(host) a.example\n use_backend b if a\n" + ruleEnd, "10.0.0.11:80", "a.example", "acl a: hdr_dom(host) is not supported, only"},
		"expression":       {importer.HAProxy, ruleHead + " use_backend b if { hdr(host) -m reg ^a }\n" + ruleEnd, "10.0.0.11:80", "^a", "^a }: -m reg of hdr(host) is not supported: the rule is left out\n"},
		"list in a file":   {importer.HAProxy, ruleHead + " use_backend b if { hdr(host) -f names }\n" + ruleEnd, "10.0.0.11:80", "names\n", "-f of hdr(host) is not supported: the rule is left out\n"},
		"end without a dot": {importer.HAProxy, ruleHead + " use_backend b if { hdr_end(host) a.example }\n" + ruleEnd, "10.0.0.11:80", "a.example",
			"the end a.example of a name is not supported, only one that begins with a dot: the rule is left out\n"},
		"a test without a value": {importer.HAProxy, ruleHead + " use_backend b if { ssl_fc }\n" + ruleEnd, "10.0.0.11:80", "10.0.0.12", "ssl_fc is not supported, only"},
		"whole path":             {importer.HAProxy, ruleHead + " use_backend b if { path /api }\n" + ruleEnd, "10.0.0.11:80", "/api", "path, the whole path, is not supported, only path_beg: the rule is left out\n"},
		"two hosts at once": {importer.HAProxy, ruleHead + " use_backend b if { hdr(host) a.example } { hdr(host) b.example }\n" + ruleEnd, "10.0.0.11:80", "a.example",
			"two tests of the host that must both hold are not supported: the rule is left out\n"},
		"host with a port": {importer.HAProxy, ruleHead + " use_backend b if { hdr(host) -i a.example:8443 }\n" + ruleEnd, "10.0.0.11:80", "10.0.0.12",
			"the port in a.example:8443 is not compared, only a name: the rule is left out\n"},
		"one host of two is no name": {importer.HAProxy, strings.Replace(ruleHead, " default_backend d\n", "", 1) + " use_backend b if { hdr(host) a_b..example c.example }\n use_backend d if { hdr(host) d.example }\n" + ruleEnd, "10.0.0.11:80", "10.0.0.12",
			"x:4: use_backend b if { hdr(host) a_b..example c.example }: balancers.f-b is left out: "},
		"the only host is no name": {importer.HAProxy, strings.Replace(ruleHead, " default_backend d\n", "", 1) + " use_backend b if { hdr(host) a_b..example }\n use_backend d if { hdr(host) d.example }\n" + ruleEnd, "10.0.0.11:80", "10.0.0.12",
			"balancers.f-b is left out: "},
		"unless": {importer.HAProxy, ruleHead + " use_backend b unless { path_beg /api }\n" + ruleEnd, "10.0.0.11:80", "/api", "a rule cannot be that something is not so: the rule is left out\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := importer.Text(tt.format, "x", []byte(tt.text), importer.Options{Check: check})
			if err != nil {
				t.Fatal(err)
			}
			if _, lab, _ := strings.Cut(string(r.Lab), "\nversion: 1\n"); !strings.Contains(lab, tt.want) || tt.none != "" && strings.Contains(lab, tt.none) {
				t.Errorf("want %q and not %q in\n%s", tt.want, tt.none, lab)
			}
			var notes strings.Builder
			for _, n := range r.Notes {
				notes.WriteString(n.String() + "\n")
			}
			if !strings.Contains(notes.String(), tt.note) || tt.note == "" && notes.Len() > 0 {
				t.Errorf("want the note %q, not\n%s", tt.note, &notes)
			}
		})
	}
}

// TestRelayedSubnets: what Kea serves through a relay, of a subnet or of its shared network, is on no interface of the server.
func TestRelayedSubnets(t *testing.T) {
	t.Parallel()
	const relay, shared = `, "relay": {"ip-addresses": ["10.9.0.1"]}`, `"name": "s", "subnet4": [{"id": 2, "subnet": "10.1.0.0/24"`
	for name, tt := range map[string]struct {
		networks string
		relayed  bool
	}{
		"a subnet":                             {`"subnet4": [{"id": 2, "subnet": "10.1.0.0/24"` + relay + `}]`, true},
		"a subnet, as of Kea 1.4":              {`"subnet4": [{"id": 2, "subnet": "10.1.0.0/24", "relay": {"ip-address": "10.9.0.1"}}]`, true},
		"none, as Kea 1.4 writes it":           {`"subnet4": [{"id": 2, "subnet": "10.1.0.0/24", "relay": {"ip-address": "0.0.0.0"}}]`, false},
		"none":                                 {`"subnet4": [{"id": 2, "subnet": "10.1.0.0/24", "relay": {"ip-addresses": []}}]`, false},
		"a shared network":                     {`"shared-networks": [{` + shared + `}]` + relay + `}]`, true},
		"a subnet of a shared network":         {`"shared-networks": [{` + shared + relay + `}]}]`, true},
		"a shared network that is not relayed": {`"shared-networks": [{` + shared + `}]}]`, false},
		"a shared network with an interface":   {`"shared-networks": [{"interface": "eth0", ` + shared + `}]}]`, false},
		"a relayed subnet of an interface":     {`"shared-networks": [{"interface": "eth0", ` + shared + relay + `}]}]`, false},
	} {
		text := `{"Dhcp4": {"interfaces-config": {"interfaces": ["eth0"]}, ` + tt.networks + `}}`
		r, err := importer.Text(importer.Kea, "x", []byte(text), importer.Options{Check: check})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := !strings.Contains(string(r.Lab), "interface: eth0"); got != tt.relayed {
			t.Errorf("%s: relayed: %t, want %t\n%s", name, got, tt.relayed, r.Lab)
		}
	}
}

// TestReadOnce: a lab is given to the loader once, and three times where something must be left out.
func TestReadOnce(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		dhcpHead + "dhcp-host=52:54:00:77:00:01,10.202.77.11,a\n":                                             1,
		dhcpHead + "dhcp-host=52:54:00:77:00:01,10.202.77.11,a\ndhcp-host=52:54:00:77:00:02,10.202.77.11,b\n": 3,
	} {
		count := 0
		o := importer.Options{Check: func(name string, text []byte) lab.Problems {
			count++
			return check(name, text)
		}}
		if _, err := importer.Text(importer.Dnsmasq, "x", []byte(text), o); err != nil || count != want {
			t.Errorf("%d times, want %d (%v):\n%s", count, want, err, text)
		}
	}
}

// TestManyRules imports what grew with the square of its size: servers of one backend, rules of one frontend, by acl and by name, and
// machines with tags, options and names. The limit only ends what would take ten minutes and more: with BOOTLAB_LONG there are so many that it would.
func TestManyRules(t *testing.T) {
	t.Parallel()
	rules := 200
	if os.Getenv("BOOTLAB_LONG") != "" {
		rules = 50_000
	}
	machines := min(rules, 30_000) // each needs two zones, and a lab has at most 65,535
	var proxy, dnsmasq, servers strings.Builder
	servers.WriteString("listen l\n bind :80\n")
	for i := range 4 * rules {
		fmt.Fprintf(&servers, " server s%d 10.%d.%d.%d:80\n", i, i>>16, i>>8&0xff, i&0xff)
	}
	proxy.WriteString("frontend f\n mode http\n bind :80\n")
	for i := range rules {
		fmt.Fprintf(&proxy, " acl a%d hdr(host) h%[1]d.lab.example\n use_backend b%[1]d if a%[1]d\n", i)
	}
	for i := range rules {
		fmt.Fprintf(&proxy, "backend b%d\n mode http\n server s 10.0.%d.%d:80\n", i, i>>8, i&0xff)
	}
	dnsmasq.WriteString("domain=lab.example\nserver=9.9.9.9\ndhcp-range=10.0.0.0,static,255.255.0.0\n")
	for i := range machines {
		fmt.Fprintf(&dnsmasq, "dhcp-host=52:54:00:00:%02x:%02x,set:t%d,10.0.%[1]d.%[2]d,h%[3]d\ndhcp-option=tag:t%[3]d,150,10.0.0.%[2]d\naddress=/a%[3]d.lab.example/10.0.%[1]d.%[2]d\ncname=c%[3]d.lab.example,h%[3]d.lab.example\n", i>>8, i&0xff, i)
		fmt.Fprintf(&dnsmasq, "host-record=r%d.lab.example,10.1.%d.%d\naddress=/z%[1]d.example/10.0.0.1\n", i, i>>8, i&0xff)
	}
	for _, tt := range []struct {
		format importer.Format
		text   string
		want   []string
	}{
		{importer.HAProxy, servers.String(), []string{fmt.Sprintf("10.%d.%d.%d:80", (4*rules-1)>>16, (4*rules-1)>>8&0xff, (4*rules-1)&0xff)}},
		{importer.HAProxy, proxy.String(), []string{fmt.Sprintf("h%d.lab.example", rules-1), fmt.Sprintf("10.0.%d.%d:80", (rules-1)>>8, (rules-1)&0xff)}},
		{importer.Dnsmasq, dnsmasq.String(), []string{fmt.Sprintf("c%d", machines-1), fmt.Sprintf("z%d.example:", machines-1), fmt.Sprintf(`"150": 10.0.0.%d`, (machines-1)&0xff)}},
	} {
		t.Run(string(tt.format), func(t *testing.T) {
			t.Parallel()
			done := make(chan *importer.Result, 1)
			go func() {
				r, err := importer.Text(tt.format, "x", []byte(tt.text), importer.Options{Check: check})
				if err != nil {
					t.Error(err)
				}
				done <- r
			}()
			select {
			case r := <-done:
				for _, want := range tt.want {
					if r != nil && !strings.Contains(string(r.Lab), want) {
						t.Errorf("%s is missing", want)
					}
				}
				if r != nil && len(r.Notes) > 10 {
					t.Errorf("%d notes, the first is %s", len(r.Notes), r.Notes[0])
				}
			case <-time.After(5 * time.Minute):
				t.Error("it takes more than five minutes")
			}
		})
	}
}

// FuzzDnsmasq holds that any text is refused, or becomes a lab that loads.
func FuzzDnsmasq(f *testing.F) { loads(f, importer.Dnsmasq) }

// FuzzHAProxy is FuzzDnsmasq for HAProxy.
func FuzzHAProxy(f *testing.F) { loads(f, importer.HAProxy) }

func loads(f *testing.F, format importer.Format) {
	files, err := filepath.Glob("testdata/" + string(format) + "/*")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, name := range files {
		if text, err := os.ReadFile(name); err == nil {
			f.Add(text)
		}
	}
	o := importer.Options{Check: func(name string, text []byte) lab.Problems {
		_, err := load.Parse(name, text, load.Options{})
		var problems lab.Problems
		if err != nil && !errors.As(err, &problems) {
			problems = lab.Problems{{Message: err.Error()}}
		}
		return problems
	}}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := importer.Text(format, "x", text, o)
		if err != nil {
			if strings.Contains(err.Error(), "imported") {
				t.Fatal(err)
			}
			return
		}
		if _, err := load.Parse("lab.yaml", r.Lab, load.Options{}); err != nil {
			t.Fatalf("%v\n%s", err, r.Lab)
		}
	})
}

// FuzzDHCPD is FuzzDnsmasq for ISC dhcpd.
func FuzzDHCPD(f *testing.F) { loads(f, importer.DHCPD) }

// FuzzKea is FuzzDnsmasq for Kea.
func FuzzKea(f *testing.F) { loads(f, importer.Kea) }

// FuzzLibvirtNet is FuzzDnsmasq for networks of libvirt.
func FuzzLibvirtNet(f *testing.F) { loads(f, importer.LibvirtNet) }
