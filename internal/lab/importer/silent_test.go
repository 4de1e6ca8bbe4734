package importer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab/importer"
)

// TestLoopbackNames: a hosts file that dnsmasq reads may have names with an address that no other machine reaches.
func TestLoopbackNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	conf, hosts := filepath.Join(dir, "dnsmasq.conf"), filepath.Join(dir, "hosts")
	for name, text := range map[string]string{conf: "addn-hosts=hosts\n", hosts: "127.0.0.1 localhost\n127.0.1.1 nas.a.example nas\n::1 ip6-localhost\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := importer.Import(importer.Dnsmasq, []string{conf}, importer.Options{Check: check})
	if err != nil {
		t.Fatal(err)
	}
	want := []importer.Note{{File: hosts, Line: 2, Statement: "127.0.1.1 nas.a.example nas", Text: "no other machine reaches 127.0.1.1: it is left out"}}
	if diff := cmp.Diff(want, r.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// TestNothingIsLeftOutSilently: of a line that another line or bootlab overrides, there is a note.
func TestNothingIsLeftOutSilently(t *testing.T) {
	t.Parallel()
	const forwarded = "no-resolv\nserver=9.9.9.9\n"
	for name, tt := range map[string]struct {
		text string
		note string // begins with the line
	}{
		"alias of a host that is left out": {
			dhcpHead + "dhcp-host=52:54:00:77:00:01,10.202.77.11,zulu\ndhcp-host=52:54:00:77:00:01,10.202.77.12,alpha\ndomain=a.example\ncname=web.a.example,zulu.a.example\n",
			"x:5: cname=web.a.example,zulu.a.example: the lab file has nothing of this line: "},
		"option of a host that is left out": {
			dhcpHead + "dhcp-host=52:54:00:77:00:01,set:z,10.202.77.11,zulu\ndhcp-host=52:54:00:77:00:01,10.202.77.12,alpha\ndhcp-option=tag:z,66,boot.a.example\n",
			"x:4: dhcp-option=tag:z,66,boot.a.example: the lab file has nothing of this line: "},
		"pool for known machines, without one": {
			dhcpHead + "dhcp-host=52:54:00:77:00:01,10.202.77.11,alpha\ndhcp-ignore=tag:!known\n",
			"x:1: dhcp-range=lab,10.202.77.100,10.202.77.120,255.255.255.0,1h: no machine that dhcp-ignore=tag:!known (x:3) leaves is without a reservation: the pool is left out"},
		"option twice":       {dhcpHead + "dhcp-option=42,10.202.77.1\ndhcp-option=42,10.202.77.2\n", "x:2: dhcp-option=42,10.202.77.1: the lab file has nothing of this line: "},
		"port twice":         {"port=54\nport=55\n", "x:1: port=54: the lab file has nothing of this line: "},
		"order of upstreams": {"no-resolv\nserver=9.9.9.9\nserver=1.1.1.1\nstrict-order\n", "x:4: strict-order: the upstream that answers fastest is asked first, whatever their order"},
		"reply delay":        {dhcpHead + "dhcp-reply-delay=2\n", "x:2: dhcp-reply-delay=2: "},
		"broadcast":          {dhcpHead + "dhcp-broadcast=tag:lab\n", "x:2: dhcp-broadcast=tag:lab: "},
		"made names":         {dhcpHead + "dhcp-generate-names\n", "x:2: dhcp-generate-names: "},
		"sent names":         {dhcpHead + "dhcp-ignore-names\n", "x:2: dhcp-ignore-names: "},
		"BOOTP":              {dhcpHead + "bootp-dynamic\n", "x:2: bootp-dynamic: "},
		"MX of all":          {"selfmx\n", "x:1: selfmx: "},
		"TTL":                {"local-ttl=600\n", "x:1: local-ttl=600: "},
		"ports":              {"tftp-port-range=4000,4100\n", "x:1: tftp-port-range=4000,4100: "},
		"leases":             {"dhcp-lease-max=20\n", "x:1: dhcp-lease-max=20: "},
		"zone of the usual servers": {forwarded + "server=/corp.example/#\n",
			"x:3: server=/corp.example/#: "},
		"PTR without a target":       {"ptr-record=1.77.202.10.in-addr.arpa\n", "x:1: ptr-record=1.77.202.10.in-addr.arpa: "},
		"CAA that is short":          {"caa-record=a.example,0\n", "x:1: caa-record=a.example,0: "},
		"MAC pattern, nothing of it": {dhcpHead + "dhcp-host=52:54:00:*:*:*,12h\n", "x:2: dhcp-host=52:54:00:*:*:*,12h: "},
		"name without an address":    {"host-record=a.example\n", "x:1: host-record=a.example: "},
		"no cache":                   {"cache-size=0\n", "x:1: cache-size=0: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := importer.Text(importer.Dnsmasq, "x", []byte(tt.text), importer.Options{Check: check})
			if err != nil {
				t.Fatal(err)
			}
			var notes strings.Builder
			for _, n := range r.Notes {
				notes.WriteString(strings.TrimPrefix(n.String(), "NOT ENFORCED: ") + "\n")
			}
			if !strings.Contains("\n"+notes.String(), "\n"+tt.note) {
				t.Errorf("no note %q of\n%s\nin\n%s\nof\n%s", tt.note, tt.text, notes.String(), r.Lab)
			}
		})
	}
}
