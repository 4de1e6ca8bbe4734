package load_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

const head = "version: 1\ndomain: lab.example\n"

func parse(t testing.TB, text string) *lab.Lab {
	t.Helper()
	l, err := load.Parse("lab.yaml", []byte(head+text), load.Options{FileExists: noFiles})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// records writes the records of all zones, "zone: name type value".
func records(l *lab.Lab) []string {
	var out []string
	for _, z := range l.Zones {
		kind := ""
		if !z.Derived {
			kind = "!"
		}
		if len(z.Records) == 0 {
			out = append(out, kind+z.Origin)
		}
		for _, r := range z.Records {
			value := r.Target
			if r.Addr.IsValid() {
				value = r.Addr.String()
			}
			out = append(out, fmt.Sprintf("%s%s: %s %s %s", kind, z.Origin, r.Name, r.Type, value))
		}
	}
	return out
}

func TestZones(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		want       []string
	}{
		{
			name: "aliases go to the longest zone",
			text: `
networks: {lan: {subnet: 10.1.2.0/24, dhcp: off}}
clusters: {c: {}}
dns: {zones: {deep.lab.example: {records: ["@ NS a"]}}}
hosts:
  A: {ip: 10.1.2.5, cluster: c, aliases: [www, "*.web", x.deep.lab.example., reg.corp.example., top.]}
`,
			want: []string{
				"2.1.10.in-addr.arpa.: 5.2.1.10.in-addr.arpa. PTR a.c.lab.example.",
				"c.lab.example.: *.web.c.lab.example. A 10.1.2.5",
				"c.lab.example.: a.c.lab.example. A 10.1.2.5",
				"c.lab.example.: www.c.lab.example. A 10.1.2.5",
				"corp.example.: reg.corp.example. A 10.1.2.5",
				"!deep.lab.example.: x.deep.lab.example. A 10.1.2.5",
				"lab.example.",
				"top.: top. A 10.1.2.5",
			},
		},
		{
			name: "reverse zones on octet boundaries",
			text: `
networks:
  a: {subnet: 10.1.4.0/23, dhcp: off}
  b: {subnet: 10.1.6.64/26, dhcp: off}
  c: {subnet: 172.16.0.0/16, dhcp: off}
hosts:
  x: {ip: 10.1.5.9}
  y: {ip: 10.1.6.65}
  z: {ip: 172.16.3.4}
`,
			want: []string{
				"16.172.in-addr.arpa.: 4.3.16.172.in-addr.arpa. PTR z.lab.example.",
				"4.1.10.in-addr.arpa.",
				"5.1.10.in-addr.arpa.: 9.5.1.10.in-addr.arpa. PTR x.lab.example.",
				"6.1.10.in-addr.arpa.: 65.6.1.10.in-addr.arpa. PTR y.lab.example.",
				"lab.example.: x.lab.example. A 10.1.5.9",
				"lab.example.: y.lab.example. A 10.1.6.65",
				"lab.example.: z.lab.example. A 172.16.3.4",
			},
		},
		{
			name: "IPv6",
			text: `
hosts: {x: {ip6: "fd00:16::21", aliases: [y]}}
`,
			want: []string{
				"0.0.0.0.0.0.0.0.6.1.0.0.0.0.d.f.ip6.arpa.: 1.2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.1.0.0.0.0.d.f.ip6.arpa. PTR x.lab.example.",
				"lab.example.: x.lab.example. AAAA fd00:16::21",
				"lab.example.: y.lab.example. AAAA fd00:16::21",
			},
		},
		{
			name: "kubernetes has api alone, and an address outside all networks a reverse zone",
			text: `
clusters: {k: {kind: kubernetes, address: 192.0.2.7}, p: {kind: plain, address: 192.0.2.9}}
`,
			want: []string{
				"2.0.192.in-addr.arpa.: 7.2.0.192.in-addr.arpa. PTR api.k.lab.example.",
				"k.lab.example.: api.k.lab.example. A 192.0.2.7",
				"lab.example.",
				"p.lab.example.",
			},
		},
		{
			name: "a host may carry a reserved name at the cluster's own address",
			text: `
networks: {lan: {subnet: 10.1.2.0/24}}
clusters: {c: {kind: openshift, address: 10.1.2.3}}
hosts: {lb: {ip: 10.1.2.3, role: appliance, cluster: c, aliases: [api]}}
`,
			want: []string{
				"2.1.10.in-addr.arpa.: 3.2.1.10.in-addr.arpa. PTR lb.c.lab.example.",
				"c.lab.example.: *.apps.c.lab.example. A 10.1.2.3",
				"c.lab.example.: api-int.c.lab.example. A 10.1.2.3",
				"c.lab.example.: api.c.lab.example. A 10.1.2.3",
				"c.lab.example.: lb.c.lab.example. A 10.1.2.3",
				"lab.example.",
			},
		},
		{
			name: "etcd by alias, else by name",
			text: `
networks: {lan: {subnet: 10.1.2.0/24, dhcp: off}}
clusters: {c: {kind: openshift, etcd_srv: true}}
dns: {zones: {lab.example: {records: ["@ NS a"]}}}
hosts:
  m0: {ip: 10.1.2.5, cluster: c, role: control-plane, aliases: [etcd-x, etcd-0]}
  m1: {ip: 10.1.2.6, cluster: c, role: control-plane}
  w0: {ip: 10.1.2.7, cluster: c, role: worker, aliases: [etcd-2]}
`,
			want: []string{
				"2.1.10.in-addr.arpa.: 5.2.1.10.in-addr.arpa. PTR m0.c.lab.example.",
				"2.1.10.in-addr.arpa.: 6.2.1.10.in-addr.arpa. PTR m1.c.lab.example.",
				"2.1.10.in-addr.arpa.: 7.2.1.10.in-addr.arpa. PTR w0.c.lab.example.",
				"c.lab.example.: _etcd-server-ssl._tcp.c.lab.example. SRV etcd-0.c.lab.example.",
				"c.lab.example.: _etcd-server-ssl._tcp.c.lab.example. SRV m1.c.lab.example.",
				"c.lab.example.: etcd-0.c.lab.example. A 10.1.2.5",
				"c.lab.example.: etcd-2.c.lab.example. A 10.1.2.7",
				"c.lab.example.: etcd-x.c.lab.example. A 10.1.2.5",
				"c.lab.example.: m0.c.lab.example. A 10.1.2.5",
				"c.lab.example.: m1.c.lab.example. A 10.1.2.6",
				"c.lab.example.: w0.c.lab.example. A 10.1.2.7",
				"!lab.example.",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, records(parse(t, tt.text))); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

// balancers writes each balancer and its members in one line.
func balancers(l *lab.Lab) []string {
	var out []string
	for _, b := range l.Balancers {
		var names []string
		for _, m := range b.Backends {
			name := m.Name
			if b.Listen.Ports() > 1 || b.Listen.Port() == 8443 {
				name += "(" + m.AddrText() + ")"
			}
			if m.Backup {
				name += "(backup)"
			}
			names = append(names, name)
		}
		line := fmt.Sprintf("%s %s %s: %s", b.Name, b.Listen, b.Mode, strings.Join(names, " "))
		if m := append(b.Match.SNI, b.Match.Host...); len(m) > 0 {
			line += " for " + strings.Join(m, " ")
		}
		out = append(out, line)
	}
	return out
}

// TestAPICheck: an API server of Talos, or of a hardened cluster, answers 401 to the check and is healthy; one of OpenShift answers 200.
func TestAPICheck(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]lab.Statuses{"openshift": "200", "kubernetes": "200,401", "talos": "200,401"} {
		l := parse(t, fmt.Sprintf(`
networks: {lan: {subnet: 10.0.0.0/24, dhcp: off}}
clusters: {home: {kind: %s, address: 10.0.0.5}}
hosts: {c: {ip: 10.0.0.7, cluster: home, role: control-plane}}
`, kind))
		i := slices.IndexFunc(l.Balancers, func(b *lab.Balancer) bool { return b.Name == "home-api" })
		if i < 0 || l.Balancers[i].Check.Expect != want || l.Balancers[i].Check.Path != "/readyz" {
			t.Errorf("%s: balancer %d, want /readyz to answer %s", kind, i, want)
		}
	}
}

func TestBalancers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		want       []string
	}{
		{
			name: "a node's own address needs no balancer, and is checked",
			text: `
networks: {lan: {subnet: 10.1.2.0/24, address: 10.1.2.1}}
clusters: {sno: {kind: openshift, address: 10.1.2.5}}
hosts: {m: {ip: 10.1.2.5, cluster: sno, role: control-plane}}
`,
			want: []string{"sno-api  tcp: m", "sno-ingress-https  tcp: m"},
		},
		{
			name: "the appliance's address is ours, the control plane takes ingress where there are no workers",
			text: `
networks: {lan: {subnet: 10.1.2.0/24}}
clusters: {c: {kind: openshift, address: 10.1.2.1}}
hosts:
  us: {ip: 10.1.2.1, role: appliance}
  b: {ip: 10.1.2.4, cluster: c, role: bootstrap}
  m: {ip: 10.1.2.5, cluster: c, role: control-plane}
  w: {mac: 52:54:00:00:00:01, cluster: c, role: worker}
`,
			want: []string{
				"c-api 10.1.2.1:6443 tcp: m b(backup)",
				"c-ingress-http 10.1.2.1:80 tcp: m",
				"c-ingress-https 10.1.2.1:443 tcp: m",
				"c-machine-config 10.1.2.1:22623 tcp: m b(backup)",
			},
		},
		{
			name: "two clusters on one address by server name",
			text: `
networks: {lan: {subnet: 10.1.2.0/24, address: 10.1.2.1}}
clusters:
  a: {kind: openshift, address: 10.1.2.1, sni: true}
  b: {kind: openshift, address: 10.1.2.1, sni: true}
hosts:
  ma: {ip: 10.1.2.5, cluster: a, role: control-plane}
  mb: {ip: 10.1.2.6, cluster: b, role: control-plane}
`,
			want: []string{
				"a-api 10.1.2.1:6443 tcp: ma for api.a.lab.example api-int.a.lab.example",
				"a-ingress-http 10.1.2.1:80 http: ma for *.apps.a.lab.example",
				"a-ingress-https 10.1.2.1:443 tcp: ma for *.apps.a.lab.example",
				"a-machine-config 10.1.2.1:22623 tcp: ma for api-int.a.lab.example api.a.lab.example",
				"b-api 10.1.2.1:6443 tcp: mb for api.b.lab.example api-int.b.lab.example",
				"b-ingress-http 10.1.2.1:80 http: mb for *.apps.b.lab.example",
				"b-ingress-https 10.1.2.1:443 tcp: mb for *.apps.b.lab.example",
				"b-machine-config 10.1.2.1:22623 tcp: mb for api-int.b.lab.example api.b.lab.example",
			},
		},
		{
			name: "members by name, FQDN, alias and address",
			text: `
networks: {lan: {subnet: 10.1.2.0/24, dhcp: off}}
hosts: {w0: {ip: 10.1.2.5, aliases: [x]}, w1: {ip: 10.1.2.6}, w2: {ip6: "fd00::7"}}
balancers:
  web: {listen: ":80", backends: [w0:80, W1.lab.example.:80, x:81, w2:80, 10.1.2.6:82, "[fd00::9]:80"]}
`,
			want: []string{"web 0.0.0.0:80 tcp: w0 w1 w0 w2 w1 fd00::9"},
		},
		{
			name: "several addresses, ranges of ports, and backends with the client's port",
			text: `
networks: {lan: {subnet: 10.0.0.0/24, dhcp: off}}
hosts: {w: {ip: 10.0.0.7}}
balancers:
  all: {listen: ':8443', backends: [w]}
  many: {listen: ['10.0.0.10:80', '[fd00::10]:80', '10.0.0.10:30000-32767'], backends: [w, '10.0.0.8:80'], check: {port: 10256}}
  one: {listen: ['10.0.0.11:443', '[fd00::11]:443'], backends: [w, '[fd00::9]:443', '[fd00::8]']}
`,
			want: []string{
				"all 0.0.0.0:8443 tcp: w(10.0.0.7:8443)",
				"many 10.0.0.10:80, [fd00::10]:80, 10.0.0.10:30000-32767 tcp: w(10.0.0.7) 10.0.0.8(10.0.0.8:80)",
				"one 10.0.0.11:443, [fd00::11]:443 tcp: w(10.0.0.7:443) fd00::9([fd00::9]:443) fd00::8([fd00::8]:443)",
			},
		},
		{
			name: "kind talos",
			text: `
networks: {lan: {subnet: 10.0.0.0/24, dhcp: off}}
clusters: {home: {kind: talos, address: 10.0.0.5}}
hosts: {c: {ip: 10.0.0.7, cluster: home, role: control-plane}, w: {ip: 10.0.0.8, cluster: home, role: worker}}
`,
			want: []string{"home-api 10.0.0.5:6443 tcp: c", "home-talos 10.0.0.5:50000 tcp: c"},
		},
		{
			name: "members by name in DNS, and hosts that have only a lease",
			text: `
networks: {lan: {subnet: 10.0.0.0/24, dhcp: off}}
hosts: {w: {mac: "52:54:00:00:00:01", network: lan}}
balancers:
  a: {listen: ':8443', backends: [Registry.Example.Com, 'a.example.net.:81', 'static.lab.example.:82', 'w:83', w]}
`,
			want: []string{"a 0.0.0.0:8443 tcp: registry.example.com(registry.example.com:8443) a.example.net(a.example.net:81) static.lab.example(static.lab.example:82) w(w:83) w(w:8443)"},
		},
		{
			name: "in mode http a server name is a host",
			text: `
balancers:
  a: {listen: "10.0.0.1:80", mode: http, backends: ["10.0.0.9:80"], match: {sni: ["*.Apps.example."], host: [b.example]}}
  b: {listen: "10.0.0.1:80", mode: http, backends: ["10.0.0.8:80"]}
`,
			want: []string{"a 10.0.0.1:80 http: 10.0.0.9 for b.example *.apps.example", "b 10.0.0.1:80 http: 10.0.0.8"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, balancers(parse(t, tt.text))); diff != "" {
				t.Errorf("balancers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInstallDefault(t *testing.T) {
	t.Parallel()
	l := parse(t, `
profiles:
  a: {os: coreos, kernel: k}
  b: {os: coreos, kernel: k, install_to: /dev/vda}
  c: {os: debian, kernel: k}
  d: {os: talos, kernel: k, install: never}
  e: {kernel: k, install: always}
  f: {os: talos, image: i.qcow2, install_to: /dev/vda}
`)
	want := []lab.InstallMode{lab.InstallNever, lab.InstallOnce, lab.InstallOnce, lab.InstallNever, lab.InstallAlways, lab.InstallNever}
	for i, p := range l.Profiles {
		if p.Install != want[i] {
			t.Errorf("profile %s installs %q, want %q", p.Name, p.Install, want[i])
		}
	}
}

func TestNetworkAddress(t *testing.T) {
	t.Parallel()
	const net = head + "networks: {lan: {subnet: 10.1.2.0/24, interface: br0}}\n"
	const us = "hosts: {us: {ip: 10.1.2.9, role: appliance}}\n"
	tests := []struct {
		name, text string
		addr       func(string, netip.Prefix) (netip.Addr, bool)
		want       string
		warnings   int
	}{
		{"interface", net, firstAddr, "10.1.2.1", 0},
		{"interface first", net + us, firstAddr, "10.1.2.1", 0},
		{"interface elsewhere", net + us, func(string, netip.Prefix) (netip.Addr, bool) { return netip.MustParseAddr("10.9.9.9"), true }, "10.1.2.9", 0},
		{"appliance", net + us, nil, "10.1.2.9", 0},
		{"unknown", net, nil, "invalid IP", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l, err := load.Parse("lab.yaml", []byte(tt.text), load.Options{InterfaceAddr: tt.addr})
			if err != nil {
				t.Fatal(err)
			}
			n := l.Networks[0]
			if n.Address.String() != tt.want || len(l.Warnings) != tt.warnings {
				t.Errorf("address %s, want %s; warnings %v, want %d", n.Address, tt.want, l.Warnings, tt.warnings)
			}
			if want := "http://" + tt.want + ":8080"; n.Address.IsValid() && (n.BaseURL != want || n.DNS[0] != n.Address) {
				t.Errorf("base URL %s, want %s; dns %v", n.BaseURL, want, n.DNS)
			}
		})
	}
}

// TestAddressBehindARelay: the appliance's address for machines of a network in which it has none, and what is derived from it.
func TestAddressBehindARelay(t *testing.T) {
	t.Parallel()
	const (
		a   = "  a: {subnet: 10.1.0.0/24, address: 10.1.0.1, dhcp: off}\n"
		one = "  one: {subnet: 10.2.0.0/24, interface: lab0, address: 10.2.0.1}\n"
		two = "  two: {subnet: 10.3.0.0/24, interface: lab1, address: 10.3.0.1}\n"
	)
	uplink := func(name string, subnet netip.Prefix) (netip.Addr, bool) {
		at := netip.MustParseAddr("192.0.2.7")
		return at, name == "lab2" && subnet.Contains(at)
	}
	tests := []struct{ name, networks, far, want string }{
		{"of a network that gets its addresses here", a + one + two, "", "10.2.0.1"},
		{"of any network", a, "", "10.1.0.1"},
		{"of the network on its interface", a + one + two, "interface: lab1", "10.3.0.1"},
		{"of its interface", a + one + two, "interface: lab2", "192.0.2.7"},
		{"unknown before its interface is up", a + one + two, "interface: lab3", "invalid IP"},
		{"as written: of another network", a + one + two, "address: 10.3.0.1", "10.3.0.1"},
		{"as written: in the network", a + one + two, "address: 10.9.0.1", "10.9.0.1"},
		{"as written: of a network whose interface is not up", "  two: {subnet: 10.3.0.0/24, interface: lab1}\n", "address: 10.3.0.1", "10.3.0.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := head + "networks:\n" + tt.networks + "  far: {subnet: 10.9.0.0/24, router: 10.9.0.254, " + tt.far + "}\n"
			l, err := load.Parse("lab.yaml", []byte(text), load.Options{InterfaceAddr: uplink})
			if err != nil {
				t.Fatal(err)
			}
			far, url := l.Network("far"), "http://"+tt.want+":8080"
			if !far.Address.IsValid() {
				url = ""
			}
			if far.Address.String() != tt.want || far.BaseURL != url || far.Address.IsValid() && (len(far.DNS) != 1 || far.DNS[0] != far.Address) {
				t.Errorf("address %s, base URL %s, dns %v; want %s everywhere", far.Address, far.BaseURL, far.DNS, tt.want)
			}
		})
	}
}

// TestApplianceInForce reloads a file whose appliance has changed: the daemon's own stays.
func TestApplianceInForce(t *testing.T) {
	t.Parallel()
	const net = head + "networks: {lan: {subnet: 10.1.2.0/24, address: 10.1.2.1}}\n"
	started, err := load.Parse("lab.yaml", []byte(net), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, text string
		warnings   int
	}{
		{"same", net, 0},
		{"port changed", net + "appliance: {http: ':80'}\n", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l, err := load.Parse("lab.yaml", []byte(tt.text), load.Options{Appliance: &started.Appliance})
			if err != nil {
				t.Fatal(err)
			}
			if got := l.Networks[0].BaseURL; got != "http://10.1.2.1:8080" || len(l.Warnings) != tt.warnings {
				t.Errorf("base URL %s, warnings %v, want port 8080 and %d", got, l.Warnings, tt.warnings)
			}
		})
	}
}

// TestSingleNode: while a single-node cluster whose address is the node's own has a bootstrap machine, api and api-int lead to balancers of
// the appliance, which use the bootstrap until the node answers; without one they lead to the node. What the appliance does not serve, it checks.
func TestSingleNode(t *testing.T) {
	t.Parallel()
	const two = `
networks: {lan: {subnet: 10.1.2.0/24, address: 10.1.2.1}}
clusters:
  a: {kind: openshift, address: 10.1.2.21}
  b: {kind: openshift, address: 10.1.2.31}
hosts:
  a-node: {mac: 52:54:00:00:00:01, ip: 10.1.2.21, cluster: a, role: master}
  a-boot: {mac: 52:54:00:00:00:02, ip: 10.1.2.22, cluster: a, role: bootstrap}
  b-node: {mac: 52:54:00:00:00:03, ip: 10.1.2.31, cluster: b, role: master}
`
	const second = "  b-boot: {mac: 52:54:00:00:00:04, ip: 10.1.2.32, cluster: b, role: bootstrap}\n"
	for _, tt := range []struct{ name, text, want string }{
		{"one bootstrap", two, `
a-api 10.1.2.1:6443 [] a-node 10.1.2.21:6443 a-boot 10.1.2.22:6443 (backup)
a-ingress-https  [] a-node 10.1.2.21:443
a-machine-config 10.1.2.1:22623 [] a-node 10.1.2.21:22623 a-boot 10.1.2.22:22623 (backup)
b-api  [] b-node 10.1.2.31:6443
b-ingress-https  [] b-node 10.1.2.31:443
api.a 10.1.2.1, api-int.a 10.1.2.1, *.apps.a 10.1.2.21
api.b 10.1.2.31, api-int.b 10.1.2.31, *.apps.b 10.1.2.31`},
		{"two share the appliance's address", two + second, `
a-api 10.1.2.1:6443 [api.a.lab.example api-int.a.lab.example] a-node 10.1.2.21:6443 a-boot 10.1.2.22:6443 (backup)
a-ingress-https  [] a-node 10.1.2.21:443
a-machine-config 10.1.2.1:22623 [api-int.a.lab.example api.a.lab.example] a-node 10.1.2.21:22623 a-boot 10.1.2.22:22623 (backup)
b-api 10.1.2.1:6443 [api.b.lab.example api-int.b.lab.example] b-node 10.1.2.31:6443 b-boot 10.1.2.32:6443 (backup)
b-ingress-https  [] b-node 10.1.2.31:443
b-machine-config 10.1.2.1:22623 [api-int.b.lab.example api.b.lab.example] b-node 10.1.2.31:22623 b-boot 10.1.2.32:22623 (backup)
api.a 10.1.2.1, api-int.a 10.1.2.1, *.apps.a 10.1.2.21
api.b 10.1.2.1, api-int.b 10.1.2.1, *.apps.b 10.1.2.31`},
		{"names only", strings.ReplaceAll(two, "kind: openshift,", "kind: openshift, balancer: off,"), `
a-api  [] a-node 10.1.2.21:6443 a-boot 10.1.2.22:6443 (backup)
a-ingress-https  [] a-node 10.1.2.21:443
b-api  [] b-node 10.1.2.31:6443
b-ingress-https  [] b-node 10.1.2.31:443
api.a 10.1.2.21, api-int.a 10.1.2.21, *.apps.a 10.1.2.21
api.b 10.1.2.31, api-int.b 10.1.2.31, *.apps.b 10.1.2.31`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := parse(t, tt.text)
			var b strings.Builder
			for _, lb := range l.Balancers {
				fmt.Fprintf(&b, "\n%s %s %v", lb.Name, lb.Listen, lb.Match.SNI)
				for _, m := range lb.Backends {
					fmt.Fprintf(&b, " %s %s%s", m.Name, m.Addr, map[bool]string{true: " (backup)"}[m.Backup])
				}
			}
			addrs := map[string]string{}
			for _, z := range l.Zones {
				for _, r := range z.Records {
					addrs[r.Name] = r.Addr.String()
				}
			}
			for _, c := range []string{"a", "b"} {
				fmt.Fprintf(&b, "\napi.%s %s, api-int.%[1]s %[3]s, *.apps.%[1]s %[4]s", c, addrs["api."+c+".lab.example."], addrs["api-int."+c+".lab.example."], addrs["*.apps."+c+".lab.example."])
			}
			if diff := cmp.Diff(tt.want, b.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(l.Warnings) > 0 || len(l.VIPs()) > 0 {
				t.Errorf("warnings %v, addresses to hold %v", l.Warnings, l.VIPs())
			}
		})
	}
}

// TestNamesOnly: the balancers of a cluster that balances itself are left to it and checked, and nobody's roles are missed.
func TestNamesOnly(t *testing.T) {
	t.Parallel()
	l := parse(t, "networks: {lan: {subnet: 10.1.2.0/24, address: 10.1.2.1}}\nclusters: {ipi: {kind: openshift, address: 10.1.2.40, ingress: 10.1.2.41, balancer: off}}\n"+
		"hosts: {m: {mac: 52:54:00:00:00:01, ip: 10.1.2.21, cluster: ipi}}\n")
	if got := balancers(l); len(got)+len(l.Warnings)+len(l.VIPs()) > 0 {
		t.Errorf("balancers %v, warnings %v", got, l.Warnings)
	}
	if got := strings.Join(records(l), "\n"); !strings.Contains(got, "api-int.ipi.lab.example. A 10.1.2.40") || !strings.Contains(got, "*.apps.ipi.lab.example. A 10.1.2.41") {
		t.Error(got)
	}
}

// TestClusterLog: the balancers of a cluster have its log.
func TestClusterLog(t *testing.T) {
	t.Parallel()
	l, err := load.Parse("lab.yaml", []byte(head+"networks: {n: {subnet: 10.1.2.0/24, address: 10.1.2.1}}\n"+
		"clusters: {c: {kind: kubernetes, address: 10.1.2.3, log: errors}}\nhosts: {a: {ip: 10.1.2.4, cluster: c, role: control-plane}}\n"), load.Options{})
	if err != nil || len(l.Balancers) != 1 || l.Balancers[0].Log != lab.LogErrors {
		t.Errorf("%+v, %v", l, err)
	}
}

// TestClusterHosts: the hosts of a cluster are in the order of their names, whatever the order of the file.
func TestClusterHosts(t *testing.T) {
	t.Parallel()
	l := parse(t, "clusters: {c: {kind: plain}}\nhosts: {b: {ip6: 'fd00::2', cluster: c}, a: {ip6: 'fd00::1', cluster: c}}\n")
	if hosts := l.Clusters[0].Hosts; len(hosts) != 2 || hosts[0].Name != "a" || hosts[1].Name != "b" {
		t.Errorf("hosts %v", hosts)
	}
}

// TestZoneOfTheDomain: the derived zone of the lab's domain is where the domain is written.
func TestZoneOfTheDomain(t *testing.T) {
	t.Parallel()
	l, err := load.Parse("lab.yaml", []byte("version: 1\ndomain: lab.example\nnetworks: {n: {subnet: 10.0.0.0/24, dhcp: off}}\nhosts: {a: {ip: 10.0.0.9}}\n"), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, z := range l.Zones {
		if z.Origin == "lab.example." && z.Pos.String() != "lab.yaml:2:9" {
			t.Errorf("zone at %s", z.Pos)
		}
	}
}
