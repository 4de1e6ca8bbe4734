package load_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/test/support/golden"
)

// labs returns the whole examples of the lab file.
func labs(t testing.TB) []string {
	t.Helper()
	names, err := filepath.Glob("testdata/labs/*.yaml")
	if err != nil || len(names) < 5 {
		t.Fatalf("labs: %v, %v", names, err)
	}
	return names
}

func noFiles(string) bool { return true }

// firstAddr plays interfaces that have the first address of every subnet.
func firstAddr(_ string, subnet netip.Prefix) (netip.Addr, bool) { return subnet.Addr().Next(), true }

// summary writes what was derived, one line each.
func summary(l *lab.Lab) string {
	var b strings.Builder
	for _, n := range l.Networks {
		fmt.Fprintf(&b, "network %s %s address %s dns %v search %v %s %s\n", n.Name, n.Subnet, n.Address, n.DNS, n.Search, n.Lease, n.BaseURL)
		for _, p := range n.Pools {
			fmt.Fprintf(&b, "  pool %s %s %v routes %v %s\n", p.Name, p.Range, p.MACs, p.Routes, p.Lease)
		}
	}
	for _, p := range l.Profiles {
		fmt.Fprintf(&b, "profile %s install %s\n", p.Name, p.Install)
	}
	for _, h := range l.Hosts {
		fmt.Fprintf(&b, "host %s %v %s %s", h.FQDN, h.MACs, h.IP, h.Role)
		if h.VM != nil {
			fmt.Fprintf(&b, " vm %d cpus %s", h.VM.CPUs, h.VM.Memory)
			for _, d := range h.VM.Disks {
				fmt.Fprintf(&b, " disk %s %s %s", d.Size, d.Bus, d.Cache)
			}
		}
		b.WriteByte('\n')
	}
	for _, z := range l.Zones {
		fmt.Fprintf(&b, "zone %s derived %v\n", z.Origin, z.Derived)
		for _, line := range z.Lines {
			fmt.Fprintf(&b, "  line %s\n", line.Text)
		}
		for _, r := range z.Records {
			fmt.Fprintf(&b, "  %s %s", r.Name, r.Type)
			switch {
			case r.Type == "SRV":
				fmt.Fprintf(&b, " %d %d %d %s", r.Priority, r.Weight, r.Port, r.Target)
			case r.Target != "":
				fmt.Fprintf(&b, " %s", r.Target)
			default:
				fmt.Fprintf(&b, " %s", r.Addr)
			}
			fmt.Fprintf(&b, "  ; %s\n", r.Source)
		}
	}
	for _, lb := range l.Balancers {
		fmt.Fprintf(&b, "balancer %s %s %s %s check %s %s:%d match %v\n", lb.Name, lb.Listen, lb.Mode, lb.Balance, lb.Check.Kind, lb.Check.Path, lb.Check.Port, lb.Match)
		for _, m := range lb.Backends {
			fmt.Fprintf(&b, "  %s %s backup %v\n", m.Name, m.Addr, m.Backup)
		}
	}
	for _, w := range l.Warnings {
		fmt.Fprintf(&b, "warning %s\n", w)
	}
	return b.String()
}

func TestLabsLoad(t *testing.T) {
	for _, name := range labs(t) {
		l, err := load.Lab(name, load.Options{FileExists: noFiles})
		if err != nil {
			t.Errorf("%s:\n%v", name, err)
			continue
		}
		golden.Check(t, update, strings.TrimSuffix(name, ".yaml")+".golden", summary(l))
	}
}

// TestSecretFiles: every file of the lab that holds a secret is one that no machine gets, whether or not it exists.
func TestSecretFiles(t *testing.T) {
	t.Parallel()
	l := parse(t, `
networks: {lan: {subnet: 10.1.2.0/24, dhcp: off}}
redfish: {listen: 10.1.2.1:8443, certificate: /certs/redfish.pem, accounts: {a: {password_file: /secrets/a}}}
hypervisors: {kvm: {uri: "qemu+ssh://kvm/system?keyfile=/secrets/id"}}
balancers:
  web: {listen: 10.1.2.1:443, mode: http, tls: {certificates: [/certs/one.pem, /certs/two.pem]}, backends: ["10.1.2.3:80"]}
`)
	l.Appliance.State = ""
	want := []string{"/certs/one.pem", "/certs/one.pem.key", "/certs/redfish.pem", "/certs/redfish.pem.key", "/certs/two.pem", "/certs/two.pem.key",
		"/secrets/a", "/secrets/id"}
	if diff := cmp.Diff(want, slices.Sorted(slices.Values(l.SecretFiles()))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
