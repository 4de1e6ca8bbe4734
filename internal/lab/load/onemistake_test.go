package load_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// freeNames matches the paths of mappings whose keys are names, not words of the lab file.
var freeNames = regexp.MustCompile(`^(networks|networks\.\w+\.pools|profiles|mirrors|images|clusters|hosts|hosts\.[\w-]+\.vars|dns\.(keys|zones|forward_zones)|balancers|hypervisors|` +
	`hypervisors\.\w+\.bridges|redfish\.accounts|.*\.options|.*\.set)$`)

// withUnit matches values whose unit makes the difference.
var withUnit = regexp.MustCompile(`^([0-9]+)(GiB|MiB|h|m|s)$`)

// exceptions are mistakes that are more than one error, or one in another place, each with the reason.
var exceptions = []struct {
	kind, key *regexp.Regexp
	reason    string
}{
	{regexp.MustCompile(`value`), regexp.MustCompile(`^networks\.test1\.address$`), "an address that may be right: a router that is not the appliance is another machine"},
	{regexp.MustCompile(`value`), regexp.MustCompile(`^clusters\.server\.domain$`), "a domain that may be right: a balancer names a host by its FQDN"},
	{regexp.MustCompile(`key without its last letter`), regexp.MustCompile(`\.vm\.cpus$`), "cpu is a key, too, which may be there already"},
}

// An edit is one mistake in a lab file.
type edit struct {
	kind         string
	key          string // path of the key that is changed
	text         string // the whole file, with the mistake
	line, column int    // of the key or value with the mistake
	may          bool   // it may be no mistake
	inside       bool   // the error may be at any column of the line: that of a colon or bracket
	was          string // the name that is another now, so that the error is where it is used; empty: none
}

// An editor makes one mistake after the other in a lab file.
type editor struct {
	lines []string // with their ends
	all   []edit
}

// add makes the mistake e by replacing length bytes at its place by text.
func (ed *editor) add(e edit, length int, text string) {
	l := ed.lines[e.line-1]
	changed := slices.Clone(ed.lines)
	changed[e.line-1] = l[:e.column-1] + text + l[e.column-1+length:]
	e.text = strings.Join(changed, "")
	ed.all = append(ed.all, e)
}

// mapping makes mistakes in each key and value of n, a mapping at path.
func (ed *editor) mapping(n *yaml.Node, path string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		key := strings.TrimPrefix(path+"."+k.Value, ".")
		if k.Value != "<<" && k.Style == 0 {
			ed.key(k, key, freeNames.MatchString(path))
			if len(n.Content) > 2 && n.Style&yaml.FlowStyle == 0 && strings.TrimLeft(ed.lines[k.Line-1], " ")[0] != '-' {
				ed.block(k, v, key)
			}
		}
		ed.value(v, key)
	}
}

// key makes mistakes in a key; free: it is a name that the lab file chooses.
func (ed *editor) key(k *yaml.Node, key string, free bool) {
	name := k.Value
	if len(name) > 1 {
		e := edit{key: key, line: k.Line, column: k.Column, may: free}
		if free {
			e.was = name
		}
		e.kind = "key without a letter"
		ed.add(e, len(name), name[:len(name)/2]+name[len(name)/2+1:])
		e.kind = "key without its last letter"
		ed.add(e, len(name), name[:len(name)-1])
	}
	// A var may have any value, also none.
	ed.add(edit{kind: "no colon", key: key, line: k.Line, column: k.Column + len(name), may: strings.Contains(key, ".vars."), inside: true}, 1, "")
}

// block makes mistakes in the lines of a key that has lines of its own.
func (ed *editor) block(k, v *yaml.Node, key string) {
	ed.add(edit{kind: "indented more", key: key, line: k.Line, column: k.Column, may: true, inside: true}, 0, " ")
	if k.Column > 1 {
		ed.add(edit{kind: "indented less", key: key, line: k.Line, column: k.Column - 1, may: true, inside: true}, 1, "")
	}
	if last := lastLine(v); v.Kind == yaml.ScalarNode || last > k.Line {
		again := slices.Insert(slices.Clone(ed.lines), last, ed.lines[k.Line-1:last]...)
		ed.all = append(ed.all, edit{kind: "twice", key: key, text: strings.Join(again, ""), line: last + 1, column: k.Column})
	}
}

// lastLine returns the last line of a node.
func lastLine(n *yaml.Node) int {
	last := n.Line
	for _, c := range n.Content {
		last = max(last, lastLine(c))
	}
	return last
}

// value makes mistakes in a value and those below it.
func (ed *editor) value(v *yaml.Node, key string) {
	switch {
	case v.Kind == yaml.MappingNode:
		ed.mapping(v, key)
	case v.Kind == yaml.SequenceNode:
		for i, item := range v.Content {
			ed.value(item, fmt.Sprintf("%s[%d]", key, i))
		}
	case v.Kind == yaml.ScalarNode && v.Value != "" && !strings.Contains(key, ".vars."):
		ed.scalar(v, key)
	}
}

// scalar makes mistakes in one value.
func (ed *editor) scalar(v *yaml.Node, key string) {
	length, quote := len(v.Value), ""
	if v.Style != 0 {
		length, quote = length+2, ed.lines[v.Line-1][v.Column-1:v.Column]
	}
	replace := func(e edit, text string) {
		e.key, e.line, e.column = key, v.Line, v.Column
		ed.add(e, length, text)
	}
	middle := len(v.Value) / 2
	if len(v.Value) > 1 {
		replace(edit{kind: "value without a character", may: true}, quote+v.Value[:middle]+v.Value[middle+1:]+quote)
	}
	replace(edit{kind: "value with another character", may: true}, quote+v.Value[:middle]+"x"+v.Value[middle+1:]+quote)
	replace(edit{kind: "value with one more", may: true}, quote+v.Value+"9"+quote)
	if m := withUnit.FindStringSubmatch(v.Value); m != nil {
		replace(edit{kind: "no unit"}, m[1])
		replace(edit{kind: "bad unit"}, m[1]+"q")
	}
	replace(edit{kind: "mapping for a value", may: true, inside: true}, "{x: y}")
	replace(edit{kind: "list in a list for a value", inside: true}, "[[x]]")
	replace(edit{kind: "empty value", may: true, inside: true}, "")
}

// wrong returns what is wrong with the errors of a lab with the mistake; empty: nothing.
func (e *edit) wrong(problems lab.Problems) string {
	if len(problems) == 0 {
		if e.may {
			return ""
		}
		return "no error"
	}
	for _, m := range exceptions {
		if m.kind.MatchString(e.kind) && m.key.MatchString(e.key) {
			return ""
		}
	}
	if len(problems) > 1 {
		return fmt.Sprintf("%d errors", len(problems))
	}
	p := problems[0]
	switch {
	case e.was != "" && strings.Contains(p.Message, e.was): // where the name is used
	case strings.HasPrefix(e.kind, "indented") && strings.Contains(p.Message, "as line "): // one of two lines that do not go together
	case p.Pos.Line != e.line:
		return "in another line"
	case p.Pos.Column != e.column && !e.inside:
		return "in another column"
	}
	return ""
}

// TestOneMistake: a mistake in a lab, whatever it is, is one error, at its place.
func TestOneMistake(t *testing.T) {
	t.Parallel()
	more, err := filepath.Glob("../../../configs/*.yaml")
	if err != nil || len(more) < 5 {
		t.Fatalf("lab files %v, %v", more, err)
	}
	for _, file := range append(labs(t), more...) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var doc yaml.Node
			if err := yaml.Unmarshal(text, &doc); err != nil {
				t.Fatal(err)
			}
			ed := &editor{lines: strings.SplitAfter(string(text), "\n")}
			ed.mapping(doc.Content[0], "")
			every, grammar := 1, 1
			if os.Getenv("BOOTLAB_LONG") == "" { // a part of them, and fewer of those that YAML's grammar does not allow, which take longest
				every = len(ed.all)/300 | 1
				grammar = every*every + 6
			}
			for i, e := range ed.all {
				if i%every != 0 && !e.inside || e.inside && i%grammar != 0 {
					continue
				}
				_, err := load.Parse("lab.yaml", []byte(e.text), load.Options{FileExists: noFiles})
				problems, _ := errors.AsType[lab.Problems](err)
				if wrong := e.wrong(problems); wrong != "" {
					t.Errorf("%d:%d %s: %s: %s\n%v", e.line, e.column, e.key, e.kind, wrong, problems)
				}
			}
		})
	}
}

// TestNothingFollows: what follows from a mistake is not reported beside it, neither as an error nor as a warning; what does not follow is.
func TestNothingFollows(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		want       []string // what is reported, in the order of the file: the end of its place and key, and its message
	}{
		{"key of the store", "appliance: {store: {servers: [https://10.0.0.1:2379]}}", []string{`appliance.store: unknown key "servers"`}},
		{"key of the appliance", "networks: {lan: {subnet: 10.1.2.0/24, addres: 10.1.2.1}}", []string{`networks.lan: unknown key "addres": did you mean address?`}},
		{"key with a wrong value", "networks: {lan: {subnet: 10.1.2.0/24, addres: 10.1.2}}", []string{`unknown key "addres": did you mean address?`}},
		{"a key that is near one of another type", "clusters: {c: {sn: 10.1.2.5}}", []string{`clusters.c: unknown key "sn": did you mean sni?`}},
		{"words of openshift-install", "clusters: {c: {api: 10.1.2.5, apps: 10.1.2.6}, d: {apiVIP: 10.1.2.7, ingressVIP: 10.1.2.8}}",
			[]string{`"api": did you mean address?`, `"apps": did you mean ingress?`, `"apiVIP": did you mean address?`, `"ingressVIP": did you mean ingress?`}},
		{"a NIC that is a name", "networks: {lan: {subnet: 10.1.2.0/24, dhcp: off}}\nhosts: {a: {mac: 52:54:00:00:00:01, ip: 10.1.2.9, nic: eth0}}", []string{`hosts.a: unknown key "nic": did you mean nics?`}},
		{"a NIC instead of a list", "networks: {lan: {subnet: 10.1.2.0/24, dhcp: off}}\nhosts: {a: {nics: {network: lan, mac: 52:54:00:00:00:01}}}", []string{`hosts.a.nics: is a mapping: want a list, whose items begin with - and a space`}},
		{"an item without its dash", "networks: {lan: {subnet: 10.1.2.0/24, dhcp: off}}\nhosts:\n  a:\n    nics:\n      - network: lan\n        ip: 10.1.2.9\n        mac: 52:54:00:00:00:01\n        network: dmz\n        mac: 52:54:00:00:00:02",
			[]string{`hosts.a.nics[0].network: is defined twice, here and at `}},
		{"pools that overlap", pools("10.1.2.50-10.1.2.90", "10.1.2.80-10.1.2.99"), []string{"pools.b.range: 10.1.2.80-10.1.2.99 overlaps"}},
		{"a reversed pool", pools("10.1.2.50-10.1.2.90", "10.1.2.99-10.1.2.91"), []string{`pools.b.range: "10.1.2.99-10.1.2.91"`}},
		{"pools that both are for anybody", pools("10.1.2.50-10.1.2.59", "10.1.2.80-10.1.2.99"), []string{"pools.b: is never reached"}},
		{"two mistakes of a host", "networks: {lan: {subnet: 10.1.2.0/24, dhcp: off}}\nhosts: {a: {mac: 52:54:00:00:00:01, ip: 10.1.2.300, profile: nope}}",
			[]string{`hosts.a.ip: "10.1.2.300" is not`, `hosts.a.profile: profile "nope" is not in the lab`}},
		{"two of a balancer", "balancers: {b: {listen: [10.1.2.1:80, 10.1.2.1:81], backends: [10.1.2.9], check: {kind: httq, port: 0}, sni: x}}",
			[]string{`check.kind: "httq" is not known: did you mean http?`, `check.port: "0" is not a port`, `balancers.b: unknown key "sni"`}},
		{"words of other programs as values", "balancers: {b: {listen: 10.1.2.1:80, mode: http, backends: ['localhost:81'], check: {kind: http, expect: 2xx}}}",
			[]string{`balancers.b.backends[0]: host "localhost" is not in the lab: did you mean 127.0.0.1?`, `balancers.b.check.expect: "2xx" is not an HTTP status: did you mean 200-299?`}},
		{"a word of HAProxy", "balancers: {b: {bind: 10.1.2.1:80, servers: [10.1.2.9:80]}}", []string{`unknown key "bind": did you mean listen?`, `unknown key "servers": did you mean backends?`}},
		{"a section of HAProxy", "frontend: {}\nbackend: {}", []string{`unknown key "frontend": did you mean balancers?`, `unknown key "backend": did you mean balancers?`}},
		{"more words of HAProxy", "balancers: {b: {listen: '10.1.2.1:80', mode: http, backends: [10.1.2.9], option: httpchk, cookie: SRV, default-server: check}}",
			[]string{`unknown key "option": did you mean check?`, `unknown key "cookie": did you mean sticky?`, `unknown key "default-server": did you mean check?`}},
		{"a balancer without a name", "balancers:\n  listen: '10.1.2.1:80'\n  mode: http\n  backends: [10.1.2.9]\n  check: {kind: http}",
			[]string{"lab.yaml:4:3: balancers: a name is missing above listen: want NAME: with the keys below it, indented"}},
		{"a host without a name", "networks: {lan: {subnet: 10.1.2.0/24, dhcp: off}}\nhosts: {mac: 52:54:00:00:00:01, ip: 10.1.2.9}", []string{"hosts: a name is missing above mac: want NAME:"}},
		{"hosts named as keys", "networks: {lan: {subnet: 10.1.2.0/24, dhcp: off}}\nhosts: {serial: {mac: 52:54:00:00:00:01, ip: 10.1.2.9}}", nil},
		{"words of Kea and Terraform", "networks: {lan: {cidr: 10.1.2.0/24, dns_servers: [9.9.9.9], gateway: 10.1.2.254, dhcp: off}}\nhosts: {a: {macaddr: 52:54:00:00:00:01, fixed-address: 10.1.2.9}}",
			[]string{`"cidr": did you mean subnet?`, `"dns_servers": did you mean dns?`, `"gateway": did you mean router?`, `"macaddr": did you mean mac?`, `"fixed-address": did you mean ip?`}},
		{"words of libvirt", "networks: {lan: {subnet: 10.1.2.0/24, dhcp: off}}\nhypervisors: {k: {uri: 'test:///', bridges: {lan: b}}}\nhosts: {a: {ip: 10.1.2.9, vm: {hypervisor: k, vcpus: 2, ram: 2048}}}",
			[]string{`"vcpus": did you mean cpus?`, `"ram": did you mean memory?`}},
		{"a name in many places", "networks: {lan: {subnet: 10.1.2.0/24, address: 10.1.2.1, pools: {p: {range: 10.1.2.50-10.1.2.90}}}}\nprofiles: {rhcos: {kernel: k}}\nhosts: {a: {mac: 52:54:00:00:00:01, profile: rhcso}, b: {mac: 52:54:00:00:00:02, profile: rhcso}}",
			[]string{`hosts.a.profile: profile "rhcso" (in 2 places) is not in the lab: did you mean rhcos?`}},
		{"an option with a key of its own and a wrong value", "networks: {lan: {subnet: 10.1.2.0/24, dhcp: off, options: {'51': 3600, '119': {value: foo}, '53': 1}}}",
			[]string{"options.51: option 51 has a key of its own: want lease", "options.119: option 119 has a key of its own: want search", "options.53: option 53 belongs to the protocol"}},
		{"a wrong subnet that overlaps another", wrongSubnet("10.1.4.0/25", ", dmz: {subnet: 10.1.4.0/24, dhcp: off, address: 10.1.4.200}"), []string{"lab.yaml:3:26: networks.lan.subnet: 10.1.4.0/25 overlaps 10.1.4.0/24 of network dmz"}},
		{"a wrong subnet around another", wrongSubnet("10.0.0.0/16", ", dmz: {subnet: 10.0.4.0/24, dhcp: off, address: 10.0.4.1}"), []string{"lab.yaml:3:26: networks.lan.subnet: 10.0.0.0/16 overlaps 10.0.4.0/24 of network dmz"}},
		{"an address of two hosts that are backends", "networks: {lan: {subnet: 10.1.2.0/24, dhcp: off, address: 10.1.2.1}}\nhosts: {a: {ip: 10.1.2.9}, b: {ip: 10.1.2.9}}\nbalancers: {b: {listen: '10.1.2.1:80', backends: [a, b]}}",
			[]string{"hosts.b.ip: 10.1.2.9 is already used by host a ("}},
		{"a backend twice", "networks: {lan: {subnet: 10.1.2.0/24, dhcp: off, address: 10.1.2.1}}\nhosts: {a: {ip: 10.1.2.9}}\nbalancers: {b: {listen: '10.1.2.1:80', backends: [a, 10.1.2.9]}}",
			[]string{"balancers.b.backends[1]: 10.1.2.9:80 is listed twice, here and at "}},
		{"a wrong network of a NIC", "networks: {lan: {subnet: 10.1.2.0/24, dhcp: off}, data: {subnet: 10.1.3.0/24, dhcp: off}}\nhosts: {a: {nics: [{ip: 10.1.2.9, network: data, mac: 52:54:00:00:00:01}, {ip: 10.1.3.9, mac: 52:54:00:00:00:02}]}}",
			[]string{"hosts.a.nics[0].ip: 10.1.2.9 is outside network data"}},
		{"two NICs of one network", "networks: {lan: {subnet: 10.1.2.0/24, dhcp: off}}\nhosts: {a: {nics: [{ip: 10.1.2.9, mac: 52:54:00:00:00:01}, {mac: 52:54:00:00:00:02, ip: 10.1.2.10}]}}",
			[]string{"lab.yaml:4:89: hosts.a.nics[1].ip: lan has another NIC of this host"}},
		{"a wrong subnet", wrongSubnet("10.1.3.0/24", ""), []string{"networks.lan.subnet: nothing is in 10.1.3.0/24, but outside of it are 6 values (10.1.2.1 at"}},
		{"a subnet that is too small", wrongSubnet("10.1.2.0/28", ""), []string{"networks.lan.pools.p.range: 10.1.2.50-10.1.2.90 is outside network lan: want", "hosts.a.ip: 10.1.2.20 is outside network lan: want", "hosts.b.ip: 10.1.2.21 is outside network lan: want"}},
		{"a wrong subnet of two", wrongSubnet("10.1.3.0/24", ", dmz: {subnet: 10.1.4.0/24, dhcp: off, address: 10.1.4.1}"), []string{"networks.lan.subnet: nothing is in 10.1.3.0/24, but outside of it are 6 values"}},
		{"a wrong subnet of IPv6", "networks: {lan: {subnet: 10.1.2.0/24, subnet6: 'fd00:1::/64', dhcp: off}}\nhosts: {a: {ip: 10.1.2.8, ip6: 'fd00:16::8'}, b: {ip: 10.1.2.9, ip6: 'fd00:16::9'}}",
			[]string{"networks.lan.subnet6: nothing is in fd00:1::/64, but outside of it are 2 values (fd00:16::8 at"}},
		{"a MAC, an address and a name twice, the first of them not by alphabet", "networks: {lan: {subnet: 10.1.2.0/24, dhcp: off}}\nhosts:\n  z: {mac: 52:54:00:00:00:0A, ip: 10.1.2.9, aliases: [x]}\n  a: {mac: '52:54:00:00:00:0a', ip: 10.1.2.9, aliases: [x]}",
			[]string{"lab.yaml:6:12: hosts.a.mac: 52:54:00:00:00:0a is already used by host z (", "hosts.a.ip: 10.1.2.9 is already used by host z (", "hosts.a.aliases[0]: the name x.lab.example is already used by host z ("}},
		{"an alias that is the name of a host below", "networks: {lan: {subnet: 10.1.2.0/24, dhcp: off}}\nhosts:\n  a: {ip: 10.1.2.8, aliases: [b]}\n  b: {ip: 10.1.2.9}\n  c: {ip: 10.1.2.10, aliases: [b]}",
			[]string{"lab.yaml:5:31: hosts.a.aliases[0]: the name b.lab.example is that of host b (", "lab.yaml:7:32: hosts.c.aliases[0]: the name b.lab.example is already used by host b ("}},
		{"an address and a router outside of a network with hosts", "networks: {lan: {subnet: 10.1.2.0/24, dhcp: off, address: 10.1.3.1, router: 10.1.3.2}}\nhosts: {a: {mac: 52:54:00:00:00:01, ip: 10.1.2.9}}",
			[]string{"lab.yaml:3:59: networks.lan.address: 10.1.3.1 is outside network lan: want", "lab.yaml:3:77: networks.lan.router: 10.1.3.2 is outside network lan: want"}},
		{"one outside", "networks: {lan: {subnet: 10.1.2.0/24, dhcp: off}}\nhosts: {a: {mac: 52:54:00:00:00:01, ip: 10.1.3.9}}", []string{"hosts.a.ip: 10.1.3.9 is outside every network"}},
		{"two outside of a named network", "networks: {lan: {subnet: 10.1.2.0/24, dhcp: off, address: 10.1.2.1}}\nhosts: {a: {mac: 52:54:00:00:00:01, ip: 10.1.3.9, network: lan}, b: {mac: 52:54:00:00:00:02, ip: 10.1.3.10, network: lan}}",
			[]string{"hosts.a.ip: 10.1.3.9 is outside network lan: want", "hosts.b.ip: 10.1.3.10 is outside network lan: want"}},
		{"two outside of every network", "networks: {lan: {subnet: 10.1.2.0/24, dhcp: off, address: 10.1.2.1}}\nhosts: {a: {mac: 52:54:00:00:00:01, ip: 10.1.3.9}, b: {mac: 52:54:00:00:00:02, ip: 10.1.4.10}}",
			[]string{"lab.yaml:4:41: hosts.a.ip: 10.1.3.9 is outside every network: want", "lab.yaml:4:84: hosts.b.ip: 10.1.4.10 is outside every network: want"}},
		{"a key in a section with a wrong name", "network: {lan: {interfce: br0, subnet: 10.1.2.0/24, address: 10.1.2.1}}", []string{`unknown key "network": did you mean networks?`, `networks.lan: unknown key "interfce": did you mean interface?`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "lab.yaml")
			if err := os.WriteFile(file, []byte(head+tt.text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, warnings, err := load.Check(file, load.Options{FileExists: noFiles})
			problems, _ := errors.AsType[lab.Problems](err)
			got := slices.Concat(problems, warnings)
			if len(got) != len(tt.want) {
				t.Fatalf("got\n%v\nwant %d", got, len(tt.want))
			}
			for i, want := range tt.want {
				if !strings.Contains(got[i].Error(), want) {
					t.Errorf("%v\nwant %s", got[i], want)
				}
			}
		})
	}
}

// pools is a lab with two pools for anybody.
func pools(a, b string) string {
	return "networks: {lan: {subnet: 10.1.2.0/24, address: 10.1.2.1, pools: {a: {range: " + a + "}, b: {range: " + b + "}}}}"
}

// wrongSubnet is a lab whose network lan has another subnet than its addresses are in.
func wrongSubnet(subnet, more string) string {
	return "networks: {lan: {subnet: " + subnet + ", address: 10.1.2.1, router: 10.1.2.2, pools: {p: {range: 10.1.2.50-10.1.2.90}}}" + more + "}\n" +
		"clusters: {c: {address: 10.1.2.3, domain: k8s.lab.example}}\nhosts: {a: {mac: 52:54:00:00:00:01, ip: 10.1.2.20}, b: {mac: 52:54:00:00:00:02, ip: 10.1.2.21}}"
}
