package load_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// FuzzParse asserts that nothing panics, that every error is Problems with a file, and that a lab that loads keeps its
// promises to the servers.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/labs/*.yaml", "testdata/invalid-*.yaml", "../../../configs/*.yaml"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			f.Fatalf("no seeds in %s: %v", pattern, err)
		}
		for _, name := range names {
			if strings.HasPrefix(filepath.Base(name), "invalid-alias-") {
				continue // bombs burn the fuzzer's time; TestInvalid loads them
			}
			data, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	for _, text := range odd() {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<14 {
			return
		}
		l, err := load.Parse("fuzz.yaml", data, load.Options{FileExists: noFiles})
		if err == nil {
			promises(t, l)
			return
		}
		var problems lab.Problems
		if !errors.As(err, &problems) || len(problems) == 0 {
			t.Fatalf("error %v is no list of problems", err)
		}
		for _, p := range problems {
			if p.Pos.File != "fuzz.yaml" || p.Pos.Line < 1 || p.Pos.Column < 1 || p.Message == "" {
				t.Errorf("problem without a place: %v", p)
			}
		}
	})
}

// odd are labs in forms of YAML that our own labs do not use.
func odd() []string {
	const head = "version: 1\nlab: l\ndomain: lab.test\n"
	const network = "networks: {n: {subnet: 10.0.0.0/24, address: 10.0.0.1}}\n"
	return []string{
		head + network + "hosts:\n  <<: {a: {mac: 52:54:00:00:00:01, ip: 10.0.0.11}}\n  b: {mac: 52:54:00:00:00:02, ip: 10.0.0.12}\n",
		head + "networks: &n {n: {subnet: 10.0.0.0/24, address: 10.0.0.1}}\nhosts: {a: &h {mac: 52:54:00:00:00:01, ip: 10.0.0.11, role: worker}, b: {<<: *h, mac: 52:54:00:00:00:02, ip: 10.0.0.12}}\n",
		"\ufeff" + strings.ReplaceAll(head+network, "\n", "\r\n"),
		"%YAML 1.1\n---\n" + head + network + "...\n",
		head + network + "hosts:\n  a:\n    mac: !!str 52:54:00:00:00:01\n    ip: \"10.0.0.11\"\n    vars:\n      text: |\n        two\n        lines\n",
		head + network + "hosts:\n  ? a\n  : {mac: '52:54:00:00:00:01', ip: 10.0.0.11, vars: {folded: \"a\\tb\\u00e9\"}}\n",
		head + network + network, head + "---\n" + network, head + "\thosts: {}\n", head + "hosts: [a, b\n", head + "hosts: !!binary aGVsbG8=\n",
	}
}

// TestOdd holds that the fuzzer starts behind the parser of YAML: six of these are labs.
func TestOdd(t *testing.T) {
	t.Parallel()
	labs, hosts := 0, 0
	for _, text := range odd() {
		if l, err := load.Parse("odd.yaml", []byte(text), load.Options{FileExists: noFiles}); err == nil {
			labs, hosts = labs+1, hosts+len(l.Hosts)
		}
	}
	if labs != 6 || hosts != 6 {
		t.Errorf("%d labs with %d hosts", labs, hosts)
	}
}

// promises checks what servers rely on without looking.
func promises(t *testing.T, l *lab.Lab) {
	t.Helper()
	hostPromises(t, l)
	for i, n := range l.Networks {
		for _, other := range l.Networks[:i] {
			if n.Subnet.Overlaps(other.Subnet) {
				t.Errorf("networks %s and %s overlap", n.Name, other.Name)
			}
		}
		for _, p := range n.Pools {
			if !n.Subnet.Contains(p.Range.First) || !n.Subnet.Contains(p.Range.Last) || p.Range.Last.Less(p.Range.First) || p.Range.Contains(n.Address) {
				t.Errorf("pool %s %s of %s at %s", p.Name, p.Range, n.Subnet, n.Address)
			}
		}
	}
	for _, b := range l.Balancers {
		if len(b.Listen) == 0 && b.Cluster == nil || len(b.Listen) > 0 && b.Listen[0].First == 0 || len(b.Backends) == 0 || b.Timeouts.Idle <= 0 || b.Check.Rise < 1 {
			t.Errorf("balancer %+v", b)
		}
		for _, m := range b.Backends {
			if !m.Addr.IsValid() || m.Addr.Port() == 0 && b.Listen.Port() != 0 || m.Name == "" {
				t.Errorf("balancer %s: backend %+v", b.Name, m)
			}
		}
	}
	for _, z := range l.Zones {
		for _, r := range z.Records {
			if len(r.Name) == 0 || r.Name[len(r.Name)-1] != '.' || len(r.Name) < len(z.Origin) || r.Name[len(r.Name)-len(z.Origin):] != z.Origin {
				t.Errorf("zone %s: record %+v", z.Origin, r)
			}
		}
	}
}

func hostPromises(t *testing.T, l *lab.Lab) {
	t.Helper()
	macs, addrs, names := map[lab.MAC]bool{}, map[netip.Addr]bool{}, map[string]bool{}
	for _, h := range l.Hosts {
		for _, m := range h.MACs {
			if macs[m] || l.HostByMAC(m) != h {
				t.Errorf("MAC %s of %s is not its own", m, h.Name)
			}
			macs[m] = true
		}
		for _, a := range []netip.Addr{h.IP, h.IP6} {
			if a.IsValid() && (addrs[a] || l.HostByIP(a) != h) {
				t.Errorf("address %s of %s is not its own", a, h.Name)
			}
			addrs[a] = true
		}
		for _, name := range append([]string{h.FQDN}, h.Aliases...) {
			if names[name] {
				t.Errorf("name %s of %s is not its own", name, h.Name)
			}
			names[name] = true
		}
		if h.IP.IsValid() && (h.Network == nil || !h.Network.Subnet.Contains(h.IP) || l.NetworkOf(h.IP) != h.Network) {
			t.Errorf("host %s at %s in %v", h.Name, h.IP, h.Network)
		}
		if (h.VM != nil || h.Profile != nil) && len(h.MACs) == 0 {
			t.Errorf("host %s boots without a MAC", h.Name)
		}
		if h.Profile != nil && h.Profile.Install == lab.InstallDefault {
			t.Errorf("profile %s leaves its install mode open", h.Profile.Name)
		}
	}
}
