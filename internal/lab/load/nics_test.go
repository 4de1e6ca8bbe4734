package load_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab/load"
)

const twoNetworks = `
networks:
  baremetal: {subnet: 192.168.16.0/24, subnet6: "fd00:16::/64", address: 192.168.16.1}
  provisioning: {subnet: 172.22.0.0/24, address: 172.22.0.1}
hypervisors: {kvm: {uri: "qemu:///system", bridges: {baremetal: br0, provisioning: br1}}}
profiles: {p: {kernel: k}}
clusters: {c: {kind: openshift, address: 192.168.16.10}}
`

// TestNICs: a machine with NICs in two networks has one name with the addresses of the first, and a name for each other NIC; it boots
// from one, and is a member of its cluster by its address there.
func TestNICs(t *testing.T) {
	t.Parallel()
	l := parse(t, twoNetworks+`
hosts:
  provisionhost:
    profile: p
    nics:
      - {network: baremetal, mac: "52:54:00:00:03:01", ip: 192.168.16.31, ip6: "fd00:16::31", boot: true}
      - {network: provisioning, mac: "52:54:00:00:03:02", ip: 172.22.0.31, model: e1000}
    vm: {hypervisor: kvm}
  master-0:
    cluster: c
    role: master
    profile: p
    nics:
      - {mac: "52:54:00:00:03:03", ip: 192.168.16.32}
      - {mac: "52:54:00:00:03:04", ip: 172.22.0.32, boot: true}
`)
	var got []string
	for _, h := range l.Hosts {
		for _, as := range h.Interfaces() {
			got = append(got, fmt.Sprintf("%s %s %s %s %s boots %t", h.Name, as.MACs[0], as.IP, as.Network.Name, as.Model, as.Profile != nil))
		}
		for _, key := range []string{h.MACs[0].String(), h.NICs[0].MAC.String(), h.IP.String(), h.NICs[0].IP.String(), h.FQDN} {
			if l.Find(key) != h {
				t.Errorf("%s finds %v", key, l.Find(key))
			}
		}
	}
	for _, r := range records(l) {
		if strings.Contains(r, "provisionhost") || strings.Contains(r, "master-0") {
			got = append(got, r)
		}
	}
	for _, b := range l.Balancers {
		got = append(got, fmt.Sprintf("%s %v", b.Name, b.Backends[0].Addr))
	}
	want := []string{
		"master-0 52:54:00:00:03:04 172.22.0.32 provisioning  boots true",
		"master-0 52:54:00:00:03:03 192.168.16.32 baremetal  boots false",
		"provisionhost 52:54:00:00:03:01 192.168.16.31 baremetal  boots true",
		"provisionhost 52:54:00:00:03:02 172.22.0.31 provisioning e1000 boots false",
		"0.0.0.0.0.0.0.0.6.1.0.0.0.0.d.f.ip6.arpa.: 1.3.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.1.0.0.0.0.d.f.ip6.arpa. PTR provisionhost.lab.example.",
		"0.22.172.in-addr.arpa.: 31.0.22.172.in-addr.arpa. PTR provisionhost-provisioning.lab.example.",
		"0.22.172.in-addr.arpa.: 32.0.22.172.in-addr.arpa. PTR master-0-provisioning.c.lab.example.",
		"16.168.192.in-addr.arpa.: 31.16.168.192.in-addr.arpa. PTR provisionhost.lab.example.",
		"16.168.192.in-addr.arpa.: 32.16.168.192.in-addr.arpa. PTR master-0.c.lab.example.",
		"c.lab.example.: master-0-provisioning.c.lab.example. A 172.22.0.32",
		"c.lab.example.: master-0.c.lab.example. A 192.168.16.32",
		"lab.example.: provisionhost-provisioning.lab.example. A 172.22.0.31",
		"lab.example.: provisionhost.lab.example. A 192.168.16.31",
		"lab.example.: provisionhost.lab.example. AAAA fd00:16::31",
		"c-api 192.168.16.32:6443", "c-ingress-http 192.168.16.32:80", "c-ingress-https 192.168.16.32:443", "c-machine-config 192.168.16.32:22623",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestInvalidNICs: one error for each mistake.
func TestInvalidNICs(t *testing.T) {
	t.Parallel()
	const a, b = `{network: baremetal, mac: "52:54:00:00:03:01", ip: 192.168.16.31}`, `{network: provisioning, mac: "52:54:00:00:03:02", ip: 172.22.0.31}`
	for _, tt := range []struct{ name, host, want string }{
		{"both forms", "{mac: 52:54:00:00:03:09, nics: [" + a + "]}", "hosts.h.mac: excludes nics (lab.yaml:"},
		{"no MAC", "{nics: [{network: baremetal, ip: 192.168.16.31}]}", "hosts.h.nics[0].mac: is missing: want the MAC address of the NIC"},
		{"no network", `{nics: [` + a + `, {mac: "52:54:00:00:03:02"}]}`, "hosts.h.nics[1].network: is missing, and there is no ip to derive it from: want baremetal or provisioning"},
		{"network", `{nics: [{network: baremetall, mac: "52:54:00:00:03:02"}]}`, `hosts.h.nics[0].network: network "baremetall" is not in the lab: did you mean baremetal?`},
		{"same network", `{nics: [` + a + `, {network: baremetal, mac: "52:54:00:00:03:02"}]}`, "hosts.h.nics[1].network: baremetal has another NIC of this host"},
		{"same MAC", `{nics: [` + a + `, {network: provisioning, mac: "52:54:00:00:03:01"}]}`, "hosts.h.nics[1].mac: 52:54:00:00:03:01 is already used by host h (lab.yaml:"},
		{"same address", "{nics: [" + a + ", " + b + "]}\n  z: {mac: 52:54:00:00:03:03, ip: 172.22.0.31}", "hosts.z.ip: 172.22.0.31 is already used by host h (lab.yaml:"},
		{"both boot", `{nics: [` + strings.Replace(a, "}", ", boot: true}", 1) + `, ` + strings.Replace(b, "}", ", boot: true}", 1) + `]}`, "hosts.h.nics[1].boot: is true for another NIC too"},
		{"none", "{nics: []}", "hosts.h.nics: is empty"},
		{"outside", `{nics: [{network: provisioning, mac: "52:54:00:00:03:02", ip: 192.168.16.31}]}`, "hosts.h.nics[0].ip: 192.168.16.31 is outside network provisioning: want one inside 172.22.0.0/24"},
		{"outside of IPv6", `{nics: [{network: baremetal, mac: "52:54:00:00:03:02", ip6: "fd00:17::1"}]}`, "hosts.h.nics[0].ip6: fd00:17::1 is outside network baremetal: want one inside fd00:16::/64"},
		{"short form outside of IPv6", `{mac: "52:54:00:00:03:02", ip: 192.168.16.31, ip6: "fd00:17::1"}`, "hosts.h.ip6: fd00:17::1 is outside network baremetal: want one inside fd00:16::/64"},
		{"appliance", `{nics: [{network: provisioning, mac: "52:54:00:00:03:02", ip: 172.22.0.1}]}`, "hosts.h.ip: 172.22.0.1 is the appliance's address in network provisioning"},
		{"key", `{nics: [{netwrok: provisioning, mac: "52:54:00:00:03:02"}]}`, `hosts.h.nics[0]: unknown key "netwrok": did you mean network?`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := load.Parse("lab.yaml", []byte(head+twoNetworks+"hosts:\n  h: "+tt.host+"\n"), load.Options{FileExists: noFiles})
			if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
	for networks, want := range map[string]string{
		`{a: {subnet: 10.0.0.0/24, address: 10.0.0.1, subnet6: "fd00::/64"}, b: {subnet: 10.0.1.0/24, address: 10.0.1.1, subnet6: "fd00::/60"}}`: "networks.b.subnet6: fd00::/60 overlaps fd00::/64 of network a",
		`{a: {subnet: 10.0.0.0/24, address: 10.0.0.1, subnet6: "fd00::1/64"}}`:                                                                   "has host bits set: want fd00::/64",
		`{a: {subnet: 10.0.0.0/24, address: 10.0.0.1, subnet6: "10.0.0.0/24"}}`:                                                                  "is not an IPv6 prefix: want one like fd00:16::/64",
		`{a: {subnet: 10.0.0.0/24, address: 10.0.0.1, subnet6: "fd00::/20"}}`:                                                                    "has the length /20: want /48 to /126",
	} {
		if _, err := load.Parse("lab.yaml", []byte(head+"networks: "+networks), load.Options{}); err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", networks, err, want)
		}
	}
}

// TestDerivedMACs: a virtual machine's NIC without a MAC has one that depends on the names of lab, host and network alone.
func TestDerivedMACs(t *testing.T) {
	t.Parallel()
	l := parse(t, twoNetworks+`
hosts:
  a: {ip: 192.168.16.41, vm: {hypervisor: kvm}}
  b:
    vm: {hypervisor: kvm}
    nics:
      - {network: provisioning}
      - {network: baremetal, ip: 192.168.16.42}
`)
	got := map[string]string{}
	for _, h := range l.Hosts {
		for _, as := range h.Interfaces() {
			got[h.Name+" "+as.Network.Name] = as.MACs[0].String()
		}
	}
	// Constant: leases, reservations and installed systems know machines by them.
	want := map[string]string{"a baremetal": "52:54:37:49:e6:70", "b baremetal": "52:54:eb:aa:61:72", "b provisioning": "52:54:08:64:83:9a"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := load.Parse("lab.yaml", []byte("version: 1\nlab: lab\ndomain: lab.example\n"+twoNetworks+"hosts:\n  b: {nics: [{network: baremetal}]}\n"), load.Options{}); err == nil || !strings.Contains(err.Error(), "the MAC address of the NIC") {
		t.Errorf("bare metal without a MAC: %v", err)
	}
}

// TestHypervisorPlaces: what live checks and vm.xml complain about is marked at the value.
func TestHypervisorPlaces(t *testing.T) {
	t.Parallel()
	l := parse(t, `
networks: {a: {subnet: 10.1.2.0/24, address: 10.1.2.1}, b: {subnet: 10.1.3.0/24, address: 10.1.3.1}}
hypervisors:
  kvm:
    uri: "qemu:///system"
    bridges:
      a: br0
      b: {network: lan}
profiles: {p: {kernel: k}}
hosts:
  h:
    mac: 52:54:00:00:00:01
    ip: 10.1.2.11
    profile: p
    vm:
      hypervisor: kvm
      xml:
        - at: devices
          add: "<sound/>"
`)
	kvm := l.Hypervisors[0]
	uri, add := kvm.URIPos, l.Hosts[0].VM.XML[0].AddPos
	got := fmt.Sprint(uri.Line-kvm.Pos.Line, kvm.Bridges[0].Pos.Line-uri.Line, kvm.Bridges[1].Pos.Line-uri.Line, add.Line-l.Hosts[0].VM.XML[0].Pos.Line, add.Column)
	if want := "1 2 3 1 16"; got != want {
		t.Errorf("places %s, want %s", got, want)
	}
}
