package plan_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/daemon/plan"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/test/support/golden"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// compile makes the snapshot of testdata/lab.yaml, edited.
func compile(t *testing.T, edit ...string) *snapshot.Snapshot {
	t.Helper()
	data, err := os.ReadFile("testdata/lab.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(edit); i += 2 {
		if !strings.Contains(string(data), edit[i]) {
			t.Fatalf("testdata/lab.yaml does not hold %q", edit[i])
		}
	}
	l, err := load.Parse("lab.yaml", []byte(strings.NewReplacer(edit...).Replace(string(data))), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := snapshot.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func of(t *testing.T, s *snapshot.Snapshot, host string) *plan.Plan {
	t.Helper()
	p, err := plan.Of(s, host)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func text(t *testing.T, p *plan.Plan) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestText(t *testing.T) {
	t.Parallel()
	s := compile(t)
	for name, host := range map[string]string{"lab.txt": "", "cp-0.txt": "cp-0", "worker-0.txt": "worker-0", "cname.txt": "cname"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden.Check(t, update, "testdata/"+name, text(t, of(t, s, host)))
		})
	}
}

// TestNotAnswered: the plan says of which hosts DHCP gives no address, and lists no boot files of those that it does not answer.
func TestNotAnswered(t *testing.T) {
	t.Parallel()
	s := compile(t, "  far: {subnet: 10.9.0.0/24, dhcp: off}", "  far: {subnet: 10.9.0.0/24, interface: br9, address: 10.9.0.1, dhcp: proxy}", "hosts:\n", `hosts:
  elsewhere: {mac: "52:54:00:00:09:01", ip: 10.9.0.11, profile: live}
  ignored: {mac: "52:54:00:00:09:02", ip: 192.168.16.99, profile: live, dhcp: off}
`)
	for host, boots := range map[string]bool{"elsewhere": true, "ignored": false} {
		p := of(t, s, host)
		if r := p.Reservations[0]; r.IPFrom != lab.FromElsewhere || !strings.Contains(text(t, p), r.IP.String()+" ("+lab.FromElsewhere+")") {
			t.Errorf("%s has %s from %q:\n%s", host, r.IP, r.IPFrom, text(t, p))
		}
		if got := len(p.Machines[0].Boot) > 0; got != boots {
			t.Errorf("%s has boot files: %v, want %v", host, got, boots)
		}
	}
}

// TestHostTellsAll holds plan HOST to the last table of the lab file's contract: all that a host derives.
func TestHostTellsAll(t *testing.T) {
	t.Parallel()
	got := text(t, of(t, compile(t), "cp-0"))
	got = strings.Join(strings.Fields(got), " ")
	for _, want := range []string{
		"52:54:00:00:02:01 192.168.16.21 cp-0 cp-0.prod.lab.example",        // reservation and hostname
		"cp-0.prod.lab.example. A 192.168.16.21",                            // forward
		"21.16.168.192.in-addr.arpa. PTR cp-0.prod.lab.example.",            // and back
		"cp-0.prod.lab.example. AAAA fd00:16::21",                           //
		"api.prod.lab.example. A 192.168.16.10",                             // the cluster's names
		"api-int.prod.lab.example. A 192.168.16.10",                         //
		"*.apps.prod.lab.example. A 192.168.16.11",                          //
		"_etcd-server-ssl._tcp.prod.lab.example. SRV 0 10 2380 etcd-0.prod", //
		"192.168.16.21:6443 cp-0",                                           // its place in the balancers
		"192.168.16.21:22623 cp-0",                                          //
		"UEFI x64 boot/52-54-00-00-02-01/ipxe.efi",                          // firmware file
		"iPXE http://192.168.16.1:8080/boot/52-54-00-00-02-01/boot.ipxe",    // script
		"coreos.inst.install_dev=/dev/vda",                                  // kernel arguments
		"CONFIG cp-0 not available yet: open control-plane.ign",             // config document
		`<mac address="52:54:00:00:02:01">`,                                 // domain XML
		`<source network="metal">`,                                          //
		"network metal mtu 9000",                                            // what DHCP says beside
		"network metal option 66 text:tftp.example",                         //
		"host cp-0 lease 1h30m",                                             //
		"host cp-0 route none",                                              //
	} {
		if !strings.Contains(got, want) {
			t.Errorf("plan cp-0 lacks %q", want)
		}
	}
	for _, not := range []string{"worker-0", "wild.example", "BIOS", "10.9.0"} {
		if strings.Contains(got, not) {
			t.Errorf("plan cp-0 holds %q, which is not its concern", not)
		}
	}
}

// TestNetworksOfNICs: the plan of a host has the settings of the networks that it shows: those of all its NICs.
func TestNetworksOfNICs(t *testing.T) {
	t.Parallel()
	l, err := load.Parse("lab.yaml", []byte(`version: 1
domain: d.example
networks:
  a: {subnet: 10.0.0.0/24, address: 10.0.0.1, lease: 1h}
  b: {subnet: 10.1.0.0/24, address: 10.1.0.1, lease: 2h}
  c: {subnet: 10.2.0.0/24, address: 10.2.0.1, lease: 3h}
hosts:
  two: {nics: [{mac: "52:54:00:00:00:01", ip: 10.0.0.11, network: a}, {mac: "52:54:00:00:00:02", ip: 10.1.0.12, network: b}]}
`), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := snapshot.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	p := of(t, s, "two")
	var networks, leases []string
	for _, n := range p.Networks {
		networks = append(networks, "network "+n.Name)
	}
	for _, s := range p.Settings {
		if s.Name == "lease" {
			leases = append(leases, s.Of)
		}
	}
	if want := []string{"network a", "network b"}; !slices.Equal(networks, want) || !slices.Equal(leases, want) {
		t.Errorf("networks %q, lease times of %q, want %q", networks, leases, want)
	}
}

// TestRefused: one host that cannot be rendered is shown as what it is, and all others are shown.
func TestRefused(t *testing.T) {
	t.Parallel()
	l, err := load.Parse("lab.yaml", []byte("version: 1\ndomain: lab.example\nnetworks: {n: {subnet: 10.0.0.0/24, interface: br0, address: 10.0.0.1}}\n"+
		"profiles: {p: {kernel: k, args: ['rack={{.Host.Vars.rack}}']}}\nhosts:\n"+
		"  good: {mac: '52:54:00:00:00:01', profile: p, vars: {rack: r1}}\n  bad: {mac: '52:54:00:00:00:02', profile: p}\n"), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := snapshot.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	got := text(t, of(t, s, ""))
	for _, want := range []string{"REFUSED bad\n  {{.Host.Vars.rack}} is not set: want vars: {rack: …} for the host\n", "SCRIPT good\n", "rack=r1"} {
		if !strings.Contains(got, want) {
			t.Errorf("the plan lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "SCRIPT bad") {
		t.Error("the plan has a script for a host that gets none")
	}
}

func TestUnknownHost(t *testing.T) {
	t.Parallel()
	bare, err := load.Parse("lab.yaml", []byte("version: 1\nlab: bare\ndomain: lab.example\n"), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	empty, err := snapshot.Compile(bare)
	if err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]*snapshot.Snapshot{
		`no host "cp-9" in lab plan; hosts are cname, cp-0, printer, worker-0`: compile(t),
		`no host "cp-9" in lab bare; hosts are none`:                           empty,
	} {
		if _, err := plan.Of(s, "cp-9"); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestJSON: programs get lists, never null, and nothing that Go does not read back.
func TestJSON(t *testing.T) {
	t.Parallel()
	bare, err := load.Parse("lab.yaml", []byte("version: 1\ndomain: lab.example\n"), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	empty, err := snapshot.Compile(bare)
	if err != nil {
		t.Fatal(err)
	}
	full := compile(t)
	for name, p := range map[string]*plan.Plan{"empty": of(t, empty, ""), "lab": of(t, full, ""), "host": of(t, full, "cp-0"), "name": of(t, full, "cname")} {
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte("null")) {
			t.Errorf("%s: holds null: %s", name, b)
		}
		var back plan.Plan
		if err := json.Unmarshal(b, &back); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(text(t, p), text(t, &back)); diff != "" {
			t.Errorf("%s: not what was written (-want +got):\n%s", name, diff)
		}
	}
}

// TestDiff: plan --diff shows changes of what the text has; TestKeysHaveEveryField is about all others.
func TestDiff(t *testing.T) {
	t.Parallel()
	from := text(t, of(t, compile(t), ""))
	for _, tc := range []struct {
		name string
		edit []string
		want []plan.Change
	}{
		{"nothing", nil, []plan.Change{}},
		{"lease", []string{"lease: 1h", "lease: 30s"}, []plan.Change{
			{Section: "SETTINGS", Op: "-", Line: "pool metal/discover lease 1h"},
			{Section: "SETTINGS", Op: "+", Line: "pool metal/discover lease 30s"},
		}},
		{"forwarder", []string{"forward: [1.1.1.1]", "forward: [1.1.1.1, 9.9.9.9]"}, []plan.Change{
			{Section: "SETTINGS", Op: "-", Line: "dns forward 1.1.1.1:53"},
			{Section: "SETTINGS", Op: "+", Line: "dns forward 1.1.1.1:53 9.9.9.9:53"},
		}},
		{"route of a host", []string{"    routes: []\n", ""}, []plan.Change{{Section: "SETTINGS", Op: "-", Line: "host cp-0 route none"}}},
		{"option", []string{"tftp.example", "boot.example"}, []plan.Change{
			{Section: "SETTINGS", Op: "-", Line: "network metal option 66 text:tftp.example"},
			{Section: "SETTINGS", Op: "+", Line: "network metal option 66 text:boot.example"},
		}},
		{"criteria", []string{"arch: [uefi-arm64, 64]", "arch: uefi-x64"}, []plan.Change{
			{Section: "POOLS", Op: "-", Line: "metal arm 192.168.16.140-192.168.16.149 arch=uefi-arm64 or 64, vendor_class=HTTPClient* -"},
			{Section: "POOLS", Op: "+", Line: "metal arm 192.168.16.140-192.168.16.149 arch=uefi-x64, vendor_class=HTTPClient* -"},
		}},
		{"forced option", []string{"x/y\", force: true", "x/y\", force: false"}, []plan.Change{
			{Section: "SETTINGS", Op: "-", Line: "pool metal/arm option 67 text:http://x/y, forced"},
			{Section: "SETTINGS", Op: "+", Line: "pool metal/arm option 67 text:http://x/y"},
		}},
		{"probe", []string{"probe: false, ", ""}, []plan.Change{{Section: "SETTINGS", Op: "-", Line: "network quiet probe off"}}},
		{"per port", []string{"per_port: 2", "per_port: 3"}, []plan.Change{
			{Section: "SETTINGS", Op: "-", Line: "pool metal/rack7 per_port 2"},
			{Section: "SETTINGS", Op: "+", Line: "pool metal/rack7 per_port 3"},
		}},
		{"backend", []string{"[worker-0:80, 10.0.0.7:80]", "[worker-0:80]"}, []plan.Change{{Section: "BALANCERS", Op: "-", Line: "web: 10.0.0.7:80 10.0.0.7"}}},
		{"longer name", []string{"printer", "a-printer-with-a-long-name"}, []plan.Change{
			{Section: "RESERVATIONS", Op: "-", Line: "52:54:00:00:02:04 from a pool printer printer.lab.example metal - -"},
			{Section: "RESERVATIONS", Op: "+", Line: "52:54:00:00:02:04 from a pool a-printer-with-a-long-name a-printer-with-a-long-name.lab.example metal - -"},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := plan.Diff(from, text(t, of(t, compile(t, tc.edit...), "")))
			if got == nil {
				t.Error("no differences are nil: want an empty list, for JSON")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWriteDiff(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := plan.WriteDiff(&b, []plan.Change{{"DNS", "-", "a"}, {"DNS", "-", "b"}, {"SCRIPT x", "+", "c"}}); err != nil {
		t.Fatal(err)
	}
	if want := "DNS\n- a\n- b\nSCRIPT x\n+ c\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

// TestDiffPairs: the old and the new line of one machine stand together.
func TestDiffPairs(t *testing.T) {
	t.Parallel()
	got := plan.Diff("VMS\n  a 1 cpu 1GiB\n  b 1 cpu 1GiB\nDNS\n  x A 10.0.0.1\n", "VMS\n  b 1 cpu 2GiB\n  a 1 cpu 2GiB\n  c 1 cpu\nDNS\n  x A 10.0.0.2\n")
	want := []plan.Change{
		{"VMS", "-", "a 1 cpu 1GiB"}, {"VMS", "+", "a 1 cpu 2GiB"}, {"VMS", "-", "b 1 cpu 1GiB"}, {"VMS", "+", "b 1 cpu 2GiB"}, {"VMS", "+", "c 1 cpu"},
		{"DNS", "-", "x A 10.0.0.1"}, {"DNS", "+", "x A 10.0.0.2"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDiffHides: without --secrets, plan --diff shows that a document changes, but nothing of its text.
func TestDiffHides(t *testing.T) {
	t.Parallel()
	before, after := "RESERVATIONS\n  a\nCONFIG w0\n  password: x\n  user: u\nCONFIG w1\n  same\n", "RESERVATIONS\n  b\nCONFIG w0\n  password: y\n  user: u\nCONFIG w1\n  same\n"
	want := []plan.Change{
		{Section: "RESERVATIONS", Op: "-", Line: "a"}, {Section: "RESERVATIONS", Op: "+", Line: "b"},
		{Section: "CONFIG w0", Op: "~", Line: "another document; --secrets shows what changes in it"},
	}
	if diff := cmp.Diff(want, plan.HideChanges(plan.Diff(before, after))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
