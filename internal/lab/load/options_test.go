package load_test

import (
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab/load"
)

// TestBootFileBesideProfile: an option 67, as it comes along from another server's configuration, sends every machine that has a
// profile somewhere else, iPXE too.
func TestBootFileBesideProfile(t *testing.T) {
	t.Parallel()
	const file = `options: {"67": "text:pxelinux.0"}`
	for _, tt := range []struct {
		name, network, pool, host, want string
	}{
		{name: "nobody boots", network: file, pool: "", host: ""},
		{name: "of the network, and a host", network: file, host: "profile: live", want: "networks.a.options.67"},
		{name: "of the network, and a pool", network: file, pool: "profile: live", want: "networks.a.options.67"},
		{name: "of the network, and a host with options of its own", network: file, host: `profile: live, options: {"150": 10.0.0.1}`},
		{name: "of a pool", pool: file + ", profile: live", want: "networks.a.pools.p.options.67"},
		{name: "of a pool, and a host", pool: file, host: "profile: live"},
		{name: "of a host", host: file + ", profile: live", want: "hosts.h.options.67"},
		{name: "of a host that boots nothing", host: file, pool: "profile: live"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			join := func(s string) string { return strings.TrimSuffix(", "+s, ", ") }
			l := parse(t, "networks: {a: {subnet: 10.0.0.0/24, address: 10.0.0.1"+join(tt.network)+
				", pools: {p: {range: 10.0.0.9-10.0.0.20"+join(tt.pool)+"}}}}\nprofiles: {live: {kernel: k}}\nhosts: {h: {mac: 02:00:00:00:00:01, ip: 10.0.0.5"+join(tt.host)+"}}\n")
			var got []string
			for _, w := range l.Warnings {
				if strings.Contains(w.Message, "overrides what profile live boots") {
					got = append(got, w.Key)
				}
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("warned of %q, want %q", got, tt.want)
			}
		})
	}
}

// TestNoNameServers: an empty list is none, and not the default.
func TestNoNameServers(t *testing.T) {
	t.Parallel()
	const text = `networks:
  a: {subnet: 10.0.0.0/24, address: 10.0.0.1, dns: []}
  b: {subnet: 10.0.1.0/24, address: 10.0.1.1}
`
	l := parse(t, text)
	if a, b := l.Network("a").DNS, l.Network("b").DNS; len(a) > 0 || len(b) != 1 {
		t.Errorf("name servers %v and %v, want none and the appliance", a, b)
	}
}

// TestTFTPOff: what only TFTP could do is warned of.
func TestTFTPOff(t *testing.T) {
	t.Parallel()
	const text = `appliance: {tftp: off}
networks:
  a: {subnet: 10.0.0.0/24, address: 10.0.0.1}
profiles:
  p: {kernel: k}
hosts:
  h: {mac: "52:54:00:00:00:01", ip: 10.0.0.9, profile: p}
  g: {mac: "52:54:00:00:00:02", ip: 10.0.0.10, profile: p, chain: grub}
`
	l := parse(t, text)
	if !l.Network("a").NoTFTP || l.Appliance.TFTP != nil {
		t.Errorf("TFTP at %v, want none", l.Appliance.TFTP)
	}
	if len(l.Warnings) != 1 || l.Warnings[0].Key != "hosts.g.chain" {
		t.Errorf("warnings %v, want one of GRUB", l.Warnings)
	}
	if n := parse(t, strings.Replace(text, "tftp: off", "tftp: \":69\"", 1)); n.Network("a").NoTFTP || len(n.Warnings) > 0 {
		t.Errorf("with TFTP: %v", n.Warnings)
	}
}

// TestDNSOff: with appliance.dns off, DHCP names no DNS server of ours.
func TestDNSOff(t *testing.T) {
	t.Parallel()
	const text = `appliance: {dns: off}
dns: {forward: [10.0.0.1]}
networks:
  a: {subnet: 10.0.0.0/24, address: 10.0.0.1}
  b: {subnet: 10.0.1.0/24, address: 10.0.1.1, dns: [10.0.0.53]}
balancers:
  names: {listen: "10.0.0.1:53", backends: ["10.0.0.2:53"]}
`
	l := parse(t, text)
	if a, b := l.Network("a").DNS, l.Network("b").DNS; len(a) > 0 || len(b) != 1 || l.Appliance.DNS != nil {
		t.Errorf("name servers %v and %v, DNS at %v; want none, one and none", a, b, l.Appliance.DNS)
	}
	if len(l.Warnings) != 1 || l.Warnings[0].Key != "appliance.dns" {
		t.Errorf("warnings %v, want one of dns that is not served", l.Warnings)
	}
	if _, err := load.Parse("lab.yaml", []byte(head+"appliance: {dns: none}\n"), load.Options{}); err == nil || !strings.Contains(err.Error(), "or 192.168.16.1:8080, or off") {
		t.Errorf("a wrong word: %v", err)
	}
}
