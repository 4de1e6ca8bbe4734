package adoption

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/timeline"
	"github.com/bootlab/bootlab/test/support/storetest"
)

func TestNames(t *testing.T) {
	t.Parallel()
	l, err := load.Parse("lab.yaml", []byte("version: 1\ndomain: d.example\nhosts: {taken: {ip: 10.0.0.9}}\nnetworks: {n: {subnet: 10.0.0.0/24, dhcp: off}}\n"), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		u    api.UnknownMachine
		want string
	}{
		{api.UnknownMachine{Serial: "J8K2P53", UUID: "4c4c4544-004a-3810-804b-b8c04f503533"}, "j8k2p53 node-b8c04f503533 02-00-00-00-00-01"},
		{api.UnknownMachine{Serial: "To Be Filled By O.E.M.", Name: "Printer.lan"}, "printer-lan 02-00-00-00-00-01"},
		{api.UnknownMachine{Serial: "Not Specified"}, "02-00-00-00-00-01"},
		{api.UnknownMachine{Serial: "System Serial Number"}, "02-00-00-00-00-01"},
		{api.UnknownMachine{Serial: "0123456789"}, "02-00-00-00-00-01"},
		{api.UnknownMachine{Serial: "00000000"}, "02-00-00-00-00-01"},
		{api.UnknownMachine{Serial: "Default string"}, "02-00-00-00-00-01"},
		{api.UnknownMachine{Serial: "taken"}, "02-00-00-00-00-01"},
		{api.UnknownMachine{Serial: "WPAD", Name: "localhost"}, "02-00-00-00-00-01"},
		{api.UnknownMachine{Serial: "VMware-56 4d 8e 1c"}, "vmware-56-4d-8e-1c 02-00-00-00-00-01"},
		{api.UnknownMachine{Serial: "ünïcode\x1b[31m"}, "ncode31m 02-00-00-00-00-01"},
		{api.UnknownMachine{Serial: strings.Repeat("a-", 60)}, strings.Repeat("a-", 31) + "a 02-00-00-00-00-01"},
	} {
		tt.u.MAC = lab.MAC{2, 0, 0, 0, 0, 1}
		if diff := cmp.Diff(tt.want, strings.Join(names(l, tt.u), " ")); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.u, diff)
		}
	}
}

// TestRogueServer: an unknown machine does not have the address of another DHCP server that answered it.
func TestRogueServer(t *testing.T) {
	t.Parallel()
	var u api.UnknownMachine
	addTimeline(&u, timeline.Summary{Last: event.Event{At: time.Unix(1, 0), Kind: event.DHCPRogue, Addr: netip.MustParseAddr("10.0.0.66")}})
	if u.Event != "dhcp_rogue" || u.IP.IsValid() {
		t.Errorf("%+v", u)
	}
}

// TestRefused: the network of a machine without an address is that of the event that refused it, and has the address to reserve.
func TestRefused(t *testing.T) {
	t.Parallel()
	l, err := load.Parse("lab.yaml", []byte("version: 1\ndomain: d.example\nnetworks:\n  a: {subnet: 10.0.0.0/24, dhcp: off}\n  b: {subnet: 10.1.0.0/24, dhcp: off}\n"), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	book, err := leases.Open(t.Context(), storetest.Memory(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for network, want := range map[string]string{"b": "10.1.0.1", "gone": "invalid IP", "": "invalid IP"} {
		u := api.UnknownMachine{MAC: lab.MAC{2, 0, 0, 0, 0, 6}}
		addTimeline(&u, timeline.Summary{Last: event.Event{At: time.Unix(1, 0), Kind: event.DHCPRefused, Network: network, Reason: event.PoolFull}})
		u = located(l, u)
		if a, _ := (Machines{Book: book}).wanted(l, u); a.String() != want || u.Network != "" && u.Network != "b" {
			t.Errorf("refused in %q: network %q, address %s, want %s", network, u.Network, a, want)
		}
	}
}

func TestNextFree(t *testing.T) {
	t.Parallel()
	const text = `version: 1
domain: d.example
networks:
  n: {subnet: 10.0.0.0/28, address: 10.0.0.1, router: 10.0.0.2, dhcp: off, pools: {p: {range: 10.0.0.9-10.0.0.12}}, routes: [{to: 10.9.0.0/24, via: 10.0.0.6}]}
  other: {subnet: 10.7.0.0/24, dhcp: off}
hosts:
`
	for _, tt := range []struct{ name, hosts, want string }{
		{"behind the last", "  a: {ip: 10.0.0.5}\n", "10.0.0.7"},
		{"behind the last of its own", "  a: {ip: 10.0.0.5}\n  b: {ip: 10.7.0.9}\n", "10.0.0.7"},
		{"over the pool", "  a: {ip: 10.0.0.8}\n", "10.0.0.13"},
		{"from the start, if nothing is behind", "  a: {ip: 10.0.0.14}\n", "10.0.0.3"},
		{"none", "  a: {ip: 10.0.0.3}\n  b: {ip: 10.0.0.4}\n  c: {ip: 10.0.0.5}\n  d: {ip: 10.0.0.7}\n  e: {ip: 10.0.0.8}\n  f: {ip: 10.0.0.13}\n  g: {ip: 10.0.0.14}\n", "invalid IP"},
		{"no hosts", "", "10.0.0.3"},
		{"behind the servers", "  {}\nSERVERS", "10.0.0.5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			hosts := tt.hosts
			if hosts == "" {
				hosts = "  {}\n"
			}
			text, hosts := text, hosts
			if cut, ok := strings.CutSuffix(hosts, "SERVERS"); ok {
				text, hosts = strings.Replace(text, "dhcp: off", "dhcp: off, dns: [10.0.0.3], ntp: [10.0.0.4]", 1), cut
			}
			l, err := load.Parse("lab.yaml", []byte(text+hosts), load.Options{})
			if err != nil {
				t.Fatal(err)
			}
			book, err := leases.Open(t.Context(), storetest.Memory(), time.Now)
			if err != nil {
				t.Fatal(err)
			}
			m := Machines{Book: book}
			if got := m.NextFree(l, l.Networks[0]); got.String() != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if got := m.NextFree(l, l.Networks[0]); got != (netip.Addr{}) && !l.Networks[0].Subnet.Contains(got) {
				t.Errorf("%s is outside", got)
			}
		})
	}
}
