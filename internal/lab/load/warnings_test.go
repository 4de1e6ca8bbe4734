package load_test

import (
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab/load"
)

// warned loads a lab and compares its warnings: the beginning of each, in the order of the file.
func warned(t *testing.T, text string, want ...string) {
	t.Helper()
	l, err := load.Parse("lab.yaml", []byte(head+text), load.Options{FileExists: noFiles})
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Warnings) != len(want) {
		t.Fatalf("%d warnings, want %d:\n%v", len(l.Warnings), len(want), l.Warnings)
	}
	for i, w := range l.Warnings {
		if got := w.Key + ": " + w.Message; !strings.Contains(got, want[i]) {
			t.Errorf("got  %s\nwant %s", got, want[i])
		}
	}
}

// TestNoAddress: a machine that gets no address is a warning, once for each network. One that another server gives its address is none.
func TestNoAddress(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, network, hosts string
		want                 []string
	}{
		{"no pool", "", "a: {mac: 52:54:00:00:00:01}", []string{"hosts.a: has no ip, and network lan (lab.yaml:3:12) has no pool: the machine never gets an address; want ip, or a pool"}},
		{"two of them", "", "a: {mac: 52:54:00:00:00:01}, b: {mac: 52:54:00:00:00:02}", []string{"hosts.a: has no ip, as 1 other host, and network lan"}},
		{"silent", ", dhcp: off", "a: {mac: 52:54:00:00:00:01}", []string{"hosts.a: has no ip, and network lan (lab.yaml:3:12) has dhcp: off: bootlab gives the machine no address; want ip, or dhcp: off in the host too"}},
		{"another server", ", dhcp: proxy", "a: {mac: 52:54:00:00:00:01}", nil},
		{"another server for it", ", dhcp: off", "a: {mac: 52:54:00:00:00:01, dhcp: off}", nil},
		{"a pool", ", pools: {p: {range: 10.1.2.50-10.1.2.90}}", "a: {mac: 52:54:00:00:00:01}", nil},
		{"a name", "", "a: {ip6: 'fd00::1'}", nil},
		{"IPv6", "", "a: {mac: 52:54:00:00:00:01, ip6: 'fd00::1'}", nil},
		{"a NIC that does not boot", ", dhcp: off}, two: {subnet: 10.1.3.0/24, address: 10.1.3.1", "a: {nics: [{ip: 10.1.3.9, mac: 52:54:00:00:00:01}, {network: lan, mac: 52:54:00:00:00:02}]}", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			warned(t, "networks: {lan: {subnet: 10.1.2.0/24, address: 10.1.2.1"+tt.network+"}}\nhosts: {"+tt.hosts+"}\n", tt.want...)
		})
	}
}

const (
	master0 = "m0: {mac: 52:54:00:00:00:01, ip: 10.1.2.21, cluster: c, role: master}, "
	master1 = "m1: {mac: 52:54:00:00:00:02, ip: 10.1.2.22, cluster: c, role: master}, "
	master2 = "m2: {mac: 52:54:00:00:00:03, ip: 10.1.2.23, cluster: c, role: master}, "
	worker0 = "w0: {mac: 52:54:00:00:00:04, ip: 10.1.2.24, cluster: c, role: worker}, "
	worker1 = "w1: {mac: 52:54:00:00:00:05, ip: 10.1.2.25, cluster: c, role: worker}, "
)

// TestClusterMistakes: what is written of a cluster and works otherwise than it was probably meant is one warning.
func TestClusterMistakes(t *testing.T) {
	t.Parallel()
	const three = master0 + master1 + master2
	installed := strings.ReplaceAll(three, "role: master", "role: master, profile: p")
	compute := strings.ReplaceAll(worker0+worker1, "role: worker", "role: compute")
	for _, tt := range []struct {
		name, cluster, hosts string
		want                 []string
	}{
		{"*.apps leads to the only master, beside a worker", "kind: openshift, address: 10.1.2.21", master0 + worker0,
			[]string{"clusters.c.address: 10.1.2.21 is the ip of host m0 (lab.yaml:6:9): *.apps.c.lab.example leads to it alone, no balancer is made for ports 443 and 80, and the routers of 1 worker get nothing; want an address of the cluster's own, or ingress with one, where balancers listen"}},
		{"*.apps leads to one of the workers", "kind: openshift, address: 10.1.2.10, ingress: 10.1.2.24", three + worker0 + worker1,
			[]string{"clusters.c.ingress: 10.1.2.24 is the ip of host w0 (lab.yaml:6:"}},
		{"*.apps leads to the only worker", "kind: openshift, address: 10.1.2.10, ingress: 10.1.2.24", three + worker0, nil},
		{"*.apps has an address of its own", "kind: openshift, address: 10.1.2.21, ingress: 10.1.2.11", master0 + worker0, nil},
		{"a single node", "kind: openshift, address: 10.1.2.21", master0, nil},
		{"the ip of one of three", "kind: openshift, address: 10.1.2.21", three + worker0, []string{"clusters.c.address: 10.1.2.21 is the ip of host m0"}},
		{"workers by another word", "kind: openshift, address: 10.1.2.10", three + compute,
			[]string{`hosts.w0.role: "compute" (and of 1 other host) means nothing to cluster c, which has no worker: *.apps.c.lab.example leads to the control plane, and no machine gets worker.ign; did you mean worker?`}},
		{"workers of Kubernetes by another word", "kind: kubernetes, address: 10.1.2.10", three + strings.ReplaceAll(worker0, "worker", "Node"),
			[]string{`hosts.w0.role: "Node" means nothing to cluster c, which has no worker; did you mean worker?`}},
		{"infra beside workers", "kind: openshift, address: 10.1.2.10", three + strings.ReplaceAll(worker0, "role: worker", "role: infra") + worker1, nil},
		{"a bootstrap machine that boots nothing", "kind: openshift, address: 10.1.2.10", installed + strings.ReplaceAll(worker0, "worker", "bootstrap"),
			[]string{"hosts.w0: has no profile: bootlab up waits for the bootstrap machine, which boots nothing; want the profile of the control plane"}},
		{"a cluster of machines that boot elsewhere", "kind: openshift, address: 10.1.2.10", three + strings.ReplaceAll(worker0, "worker", "bootstrap"), nil},
		{"a misspelled bootstrap machine", "kind: openshift, address: 10.1.2.10", installed + strings.ReplaceAll(worker0, "role: worker", "role: botstrap, profile: p"),
			[]string{`hosts.w0.role: "botstrap" means nothing to cluster c: did you mean bootstrap?`}},
		{"no kind", "address: 10.1.2.10", three, []string{"clusters.c.kind: is missing, so the cluster is plain: its address makes no api names and no balancers; want kind: openshift, kubernetes or talos, or kind: plain if that is meant"}},
		{"plain", "kind: plain, address: 10.1.2.10", three, nil},
		{"no kind, and no role of a cluster", "address: 10.1.2.10", strings.ReplaceAll(three, "master", "web"), nil},
		{"the name in the domain", "kind: openshift, address: 10.1.2.10, domain: C.example.com", three,
			[]string{"clusters.c.domain: begins with the name of the cluster, which is added: its names are api.c.c.example.com and so on; want domain: example.com"}},
		{"the name is the domain", "kind: openshift, address: 10.1.2.10, domain: c", three, nil},
		{"the VIPs of machines", "kind: openshift, balancer: off, address: 10.1.2.21, ingress: 10.1.2.24", three + worker0,
			[]string{"clusters.c.address: 10.1.2.21 is the ip of host m0 (lab.yaml:6:9): with balancer: off the cluster's own load balancer needs an address that no machine has; want a free one", "clusters.c.ingress: 10.1.2.24 is the ip of host w0"}},
		{"free VIPs", "kind: openshift, balancer: off, address: 10.1.2.10, ingress: 10.1.2.11", three + worker0, nil},
		{"a single node without balancers", "kind: openshift, balancer: off, address: 10.1.2.21", master0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			warned(t, "networks: {lan: {subnet: 10.1.2.0/24, address: 10.1.2.1}}\nprofiles: {p: {kernel: k, config: '{{.Host.Role}}.ign', install: once}}\n"+
				"clusters: {c: {"+tt.cluster+"}}\nhosts: {"+tt.hosts+"}\n", tt.want...)
		})
	}
}

// TestMisspelledRoleOfDocument: no document is missing for a role that is misspelled.
func TestMisspelledRoleOfDocument(t *testing.T) {
	t.Parallel()
	l, err := load.Parse("lab.yaml", []byte(head+"networks: {lan: {subnet: 10.1.2.0/24, address: 10.1.2.1}}\nprofiles: {p: {kernel: k, config: '{{.Host.Role}}.ign'}}\n"+
		"clusters: {c: {kind: openshift, address: 10.1.2.10}}\nhosts: {"+master0+strings.ReplaceAll(worker0, "role: worker", "role: wroker, profile: p")+"}\n"),
		load.Options{FileExists: func(name string) bool { return !strings.HasSuffix(name, ".ign") }})
	if err != nil || len(l.Warnings) != 1 || !strings.Contains(l.Warnings.Error(), "did you mean worker?") {
		t.Errorf("%v, %v", err, l.Warnings)
	}
}

// TestLiveSystem: CoreOS needs its root file system.
func TestLiveSystem(t *testing.T) {
	t.Parallel()
	const want = "profiles.p.rootfs: is missing: the live system of os: coreos stops in its initrd without its root file system; want the live-rootfs.img of the same release"
	for keys, want := range map[string][]string{
		"kernel: k, initrd: [i]":            {want},
		"kernel: k, initrd: [i], rootfs: r": nil,
		"kernel: k, initrd: [i, r]":         nil,
		"kernel: k, initrd: [i], args: ['coreos.live.rootfs_url=http://10.1.2.1/r']": nil,
		"image: i.qcow2": nil,
	} {
		warned(t, "profiles: {p: {os: coreos, "+keys+"}}\n", want...)
	}
}

// TestSynonymFile: a document that is there for another word of a role is named.
func TestSynonymFile(t *testing.T) {
	t.Parallel()
	const text = head + `
networks: {n: {subnet: 10.1.2.0/24, address: 10.1.2.1}}
profiles: {p: {kernel: k, config: "ignition/{{.Host.Role}}.ign"}}
hosts:
  a: {mac: 52:54:00:00:00:01, ip: 10.1.2.11, role: Master, profile: p}
  b: {mac: 52:54:00:00:00:02, ip: 10.1.2.12, role: master, profile: p}
  c: {mac: 52:54:00:00:00:03, ip: 10.1.2.13, role: worker, profile: p}
`
	l, err := load.Parse("lab.yaml", []byte(text), load.Options{FileExists: func(name string) bool { return strings.HasSuffix(name, "/master.ign") }})
	if err != nil {
		t.Fatal(err)
	}
	got := l.Warnings.Error()
	if !strings.Contains(got, "Master.ign: file not found; machines that need it get an error until it exists; ignition/master.ign is there: a template sees the role as the host has it, so write role: master") ||
		strings.Count(got, "is there") != 1 {
		t.Error(got)
	}
}

// TestRelayAtAnUnknownAddress: a network without interface takes the appliance's address of another one. Where that is not known here, one
// warning says so.
func TestRelayAtAnUnknownAddress(t *testing.T) {
	t.Parallel()
	warned(t, "networks: {lan: {subnet: 10.1.2.0/24, interface: eth1}, far: {subnet: 10.1.3.0/24, pools: {p: {range: 10.1.3.50-10.1.3.90}}}}\n",
		"networks.lan.address: interface eth1 has no address in 10.1.2.0/24 on this machine")
}
