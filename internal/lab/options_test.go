package lab_test

import (
	"strings"
	"testing"
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
				if strings.Contains(w.Message, "takes the place of what profile live boots") {
					got = append(got, w.Key)
				}
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("warned of %q, want %q", got, tt.want)
			}
		})
	}
}
