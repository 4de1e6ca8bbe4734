package load_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNamesOfBalancers: names of balancers and of clusters without an address have the addresses of members, which only health checks use.
func TestNamesOfBalancers(t *testing.T) {
	t.Parallel()
	l := parse(t, `
networks: {lan: {subnet: 10.1.2.0/24, dhcp: off, address: 10.1.2.1}}
clusters: {c: {kind: openshift, health: true}, k: {kind: kubernetes, health: true, balancer: off}}
hosts:
  m0: {ip: 10.1.2.20, cluster: c, role: control-plane}
  boot: {ip: 10.1.2.29, cluster: c, role: bootstrap}
  w0: {ip: 10.1.2.30, cluster: c, role: worker}
  k0: {ip: 10.1.2.40, cluster: k, role: control-plane}
balancers:
  r: {backends: ["w0:5000", "w0:5001", "10.1.2.9:5000", "[fd00::9]:5000"], names: [registry, r.other.example.], health: true}
  s: {listen: 10.1.2.1:81, backends: ["w0:81"], names: [s]}
`)
	var got []string
	for _, z := range l.Zones {
		for _, r := range z.Records {
			follows := ""
			if r.Follows != nil {
				follows = " follows " + r.Follows.Name
			}
			if r.Addr.IsValid() {
				got = append(got, r.Name+" "+r.Addr.String()+" from "+r.Source+follows)
			}
		}
	}
	want := []string{
		"*.apps.c.lab.example. 10.1.2.30 from cluster c, backend w0 follows c-ingress-https",
		"api-int.c.lab.example. 10.1.2.20 from cluster c, backend m0 follows c-api",
		"api-int.c.lab.example. 10.1.2.29 from cluster c, backend boot follows c-api",
		"api.c.lab.example. 10.1.2.20 from cluster c, backend m0 follows c-api",
		"api.c.lab.example. 10.1.2.29 from cluster c, backend boot follows c-api",
		"boot.c.lab.example. 10.1.2.29 from host boot",
		"m0.c.lab.example. 10.1.2.20 from host m0",
		"w0.c.lab.example. 10.1.2.30 from host w0",
		"api.k.lab.example. 10.1.2.40 from cluster k, backend k0 follows k-api",
		"k0.k.lab.example. 10.1.2.40 from host k0",
		"registry.lab.example. 10.1.2.9 from balancer r, backend 10.1.2.9 follows r",
		"registry.lab.example. 10.1.2.30 from balancer r, backend w0 follows r",
		"registry.lab.example. fd00::9 from balancer r, backend fd00::9 follows r",
		"s.lab.example. 10.1.2.1 from balancer s",
		"r.other.example. 10.1.2.9 from balancer r, backend 10.1.2.9 follows r",
		"r.other.example. 10.1.2.30 from balancer r, backend w0 follows r",
		"r.other.example. fd00::9 from balancer r, backend fd00::9 follows r",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, b := range l.Balancers {
		if b.Name != "s" && b.Listen.String() != "" {
			t.Errorf("balancer %s listens on %s", b.Name, b.Listen)
		}
	}
}
